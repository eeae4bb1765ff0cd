"""Ctrl-C at any moment of any call: what there was before, or what there is after, never half.

A timer sends SIGINT at random moments of calls. `fit` may also keep the weights so far, and then
says so.
"""

import os
import pickle
import re
import signal
import time
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

from ltls import Checkpoint, LTLSClassifier, TableClassifier, TextClassifier, load
from ltls.cli.app import INTERRUPTED, app, run
from ltls.settings import Memory, Neighbours, Table, Text, Trellises, Views
from ltls.training.progress import TrainingInterruptedWarning

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="needs signals"),
    # A file that is opened when the interrupt comes is closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
N_ROWS, N_LABELS = 96, 24
X = csr_array(np.eye(N_LABELS, dtype=np.float32)[np.arange(N_ROWS) % N_LABELS])
Y = np.arange(N_ROWS) % N_LABELS


def classifier(epochs=2):
    return LTLSClassifier(
        trellises=Trellises(width=2, n_trellises=1, epochs=epochs),
        views=Views(n_views=1, cluster_size=6),
        prototypes=True,
        neighbours=True,
        random_state=0,
    )


class Interrupts:
    """Presses Ctrl-C in a call; not if it ends before."""

    def __enter__(self):
        self.armed = False
        self.before = signal.signal(signal.SIGALRM, self._raise)
        return self

    def __exit__(self, *_):
        signal.signal(signal.SIGALRM, self.before)

    def _raise(self, *_):
        if self.armed:  # else it comes late
            self.armed = False
            signal.raise_signal(signal.SIGINT)

    def during(self, call, seconds):
        """Return whether a call was interrupted, given when that is tried."""
        try:
            try:
                self.armed = True
                signal.setitimer(signal.ITIMER_REAL, seconds)
                call()
            finally:
                self.armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            return True
        except RuntimeError as error:
            # What Python raises in place of KeyboardInterrupt while a Condition waits.
            if "unlocked lock" not in str(error):
                raise
            return True
        return False


def content(model, folder):
    model.save(folder / "content")
    return (folder / "content").read_bytes()


class Fit:
    """Training from scratch, where a model is already: of a clone, Ctrl-C always propagates."""

    def __init__(self, folder):
        self.folder = folder
        self.first = clone(classifier(1)).fit(X, Y)
        self.old = content(self.first, folder)
        self.prepare()
        self.call()
        self.new = self.found()
        assert self.new != self.old

    def prepare(self):
        self.model = clone(self.first)
        self.model.__dict__.update(self.first.__dict__)

    def call(self):
        self.model.set_params(trellises__epochs=2)
        self.model.fit(X, Y)

    def found(self):
        self.model.set_params(trellises__epochs=self.model.n_iter_)
        return content(self.model, self.folder)


class PartialFit(Fit):
    """A further batch with new labels and other parameters of training."""

    def call(self):
        self.model.partial_fit(X[:30], [*Y[:20].tolist(), *(["new"] * 10)])

    def found(self):
        return content(self.model, self.folder)


SMALL = Trellises(width=2, n_trellises=2, epochs=1)
N_MORE = 20
MORE_LABELS = [*Y[: N_MORE // 2].tolist(), *range(100, 100 + N_MORE // 2)]
WORDS = [f"w{n % 12} v{n % 5} my card" for n in range(N_ROWS)]


class LearnMore(PartialFit):
    """A further batch for a model of another kind, with labels and features that are new."""

    def make(self):
        raise NotImplementedError

    def __init__(self, folder):
        self.folder = folder
        self.X, self.more = self.rows()
        self.pickled = pickle.dumps(self.make().fit(self.X, Y))
        self.prepare()
        self.old = self.found()
        self.call()
        self.new = self.found()
        assert self.new != self.old

    def prepare(self):
        self.model = pickle.loads(self.pickled)

    def call(self):
        self.model.partial_fit(self.more, MORE_LABELS)


class LearnTexts(LearnMore):
    def make(self):
        features = Text(max_features=40)
        return TextClassifier(features=features, trellises=SMALL, neighbours=True, random_state=0)

    def rows(self):
        return WORDS, [f"new{n} w{n}" for n in range(N_MORE)]


class LearnHashedTexts(LearnTexts):
    def make(self):
        return TextClassifier(features=Text(n_features=64), trellises=SMALL, random_state=0)


class LearnRecords(LearnMore):
    def make(self):
        columns = Table(text="t", number="n", category="c", vectors="v")
        return TableClassifier(features=columns, trellises=SMALL, random_state=0)

    def rows(self):
        usual = [
            {"t": text, "n": n / 3 if n % 7 else None, "c": "ab"[n % 2], "v": [n % 3, 1.0]}
            for n, text in enumerate(WORDS)
        ]
        other = [{"t": f"new{n}", "n": 9 * n, "c": f"z{n}", "v": [5, n]} for n in range(N_MORE)]
        return usual, other


class LearnBlocks(LearnMore):
    def make(self):
        neighbours = Neighbours(n_neighbors=3)
        return LTLSClassifier(
            trellises=SMALL, label_weights=True, neighbours=neighbours, random_state=0
        )

    def rows(self):
        return [X, X.toarray()[:, :4] * 3], [X[:N_MORE], X[:N_MORE].toarray()[:, :4]]


class LearnDense(LearnMore):
    """A label matrix."""

    def make(self):
        return LTLSClassifier(
            trellises=SMALL, label_matrix=True, label_weights=False, random_state=0
        )

    def rows(self):
        return X.toarray(), 2 * X[:N_MORE].toarray()


class LearnAll(LearnMore):
    """The other parts, and few stored rows."""

    def make(self):
        views = Views(n_views=2, cluster_size=3, cluster_weights=True)
        return LTLSClassifier(
            trellises=SMALL, views=views, propensity=True, calibration=True,
            memory=Memory(n_rows=10), random_state=0,
        )  # fmt: skip

    def rows(self):
        return X, X[:N_MORE]


class FitStream(Fit):
    """Training on batches."""

    def call(self):
        self.model.set_params(trellises__epochs=2)
        self.model.fit_stream([(X[:50], Y[:50]), (X[50:], Y[50:])])


class Answer(Fit):
    """Predictions and explanations: the model stays as it was, and answers the same."""

    def call(self):
        self.model.predict_topk(X, 3, proba=True)
        self.model.explain(X[:2], k=2)
        self.model.predictor(2)(X[:1])

    def found(self):
        _, scores = self.model.predict_topk(X, 3)
        return content(self.model, self.folder) + scores.tobytes()

    def __init__(self, folder):
        self.folder = folder
        self.first = clone(classifier(1)).fit(X, Y)
        self.prepare()
        self.new = self.old = self.found()


class Pickle(Answer):
    """Pickles: there is a whole copy, or none."""

    def prepare(self):
        super().prepare()
        self.copied = None

    def call(self):
        self.copied = pickle.loads(pickle.dumps(self.model))

    def found(self):
        if self.copied is not None:
            assert content(self.copied, self.folder) == content(self.model, self.folder)
        return super().found()


class Save:
    """Another model over a file."""

    name = "model.ltls"

    def __init__(self, folder):
        self.models = [classifier(epochs).fit(X, Y) for epochs in (1, 2)]
        self.old, self.new = (content(model, folder) for model in self.models)
        self.folder, self.path = folder / "saved", folder / "saved" / self.name
        self.folder.mkdir()

    def prepare(self):
        self.path.write_bytes(self.old)

    def call(self):
        self.models[1].save(self.path)

    def found(self):
        assert [path.name for path in self.folder.iterdir()] == [self.name]
        return self.path.read_bytes()


class Load(Save):
    """Loading: there is a whole model, or none."""

    def __init__(self, folder):
        super().__init__(folder)
        self.new = self.old

    def prepare(self):
        super().prepare()
        self.model = None

    def call(self):
        self.model = load(self.path, verify=True)

    def found(self):
        assert super().found() == self.old
        return self.old if self.model is None else content(self.model, self.folder.parent)


class Predict(Save):
    """A command that writes a file."""

    codes = (INTERRUPTED,)
    command = "predict {folder}/model.ltls {folder}/rows.txt --one-based -o {path}"

    def __init__(self, folder):
        super().__init__(folder)
        self.models[0].save(folder / "model.ltls")
        lines = (f"{label} {label + 1}:1\n" for label in Y)
        (folder / "rows.txt").write_text("".join(lines))
        self.old = b"old"
        self.words = self.command.format(folder=folder, path=self.path).split()
        self.prepare()
        self.call()
        self.new = self.found()
        assert self.new != self.old

    def call(self):
        code = run(app, [*self.words, "-q"])
        if code in self.codes:
            raise KeyboardInterrupt
        assert code == 0


class Evaluate(Predict):
    name = "report.html"
    codes = (INTERRUPTED, 2)  # matplotlib may raise an error of its own in place of Ctrl-C
    command = "evaluate {folder}/model.ltls {folder}/rows.txt --one-based --report {path}"

    def found(self):
        return re.sub(rb"\d+", b"0", super().found())  # it says how long it took


class Convert(Predict):
    command = "convert {folder}/rows.txt {path} --one-based --to xmc"


class Train(Predict):
    """Training may leave a checkpoint, from which it resumes to the same model."""

    command = "train {folder}/rows.txt --epochs 2 --random-state 0 -o {path}"

    def found(self):
        checkpoint = self.folder / "model.ltls.checkpoint"
        if checkpoint.exists():
            found = self.path.read_bytes()
            assert run(app, [*self.words, "-q", "--resume"]) == 0
            assert self.path.read_bytes() == self.new
            self.path.write_bytes(found)
        return super().found()


class Resume:
    """Training with a checkpoint: whenever it ends, it can be resumed to the same model."""

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "state"
        self.model = clone(classifier(3)).fit(X, Y, checkpoint=self.path)
        self.new = self.old = content(self.model, folder)

    def prepare(self):
        self.path.unlink(missing_ok=True)

    def call(self):
        self.model = clone(classifier(3)).fit(X, Y, checkpoint=self.path)

    def found(self):
        saved = Checkpoint(self.path, resume=self.path.exists())
        return content(clone(classifier(3)).fit(X, Y, checkpoint=saved), self.folder)


WORK = [
    Fit, FitStream, PartialFit, Answer, Pickle, Save, Load, Predict, Evaluate, Convert, Train,
    Resume, LearnTexts, LearnHashedTexts, LearnRecords, LearnBlocks, LearnDense, LearnAll,
]  # fmt: skip


def moments(rng, n, call):
    """Return n random times within a call."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return rng.uniform(1e-6, min(times), n)


@pytest.mark.parametrize(
    "n", [40, pytest.param(1000, marks=pytest.mark.long)], ids=["some", "many"]
)
@pytest.mark.parametrize("work", WORK)
def test_the_old_or_the_new_whenever_ctrl_c_is_pressed(tmp_path, record_property, work, n):
    work, n_interrupted = work(tmp_path), 0
    work.prepare()
    with Interrupts() as interrupts:
        for seconds in moments(np.random.default_rng(0), n, work.call):
            work.prepare()
            interrupted = interrupts.during(work.call, seconds)
            n_interrupted += interrupted
            expected = (work.old, work.new) if interrupted else (work.new,)
            assert work.found() in expected, f"half a result after {seconds:.6f} s"
    record_property("interrupts", n_interrupted)
    assert n_interrupted


@pytest.mark.parametrize("n", [10, pytest.param(200, marks=pytest.mark.long)], ids=["some", "many"])
def test_an_interrupted_fit_keeps_the_weights_so_far_or_the_old_ones(tmp_path, n):
    first = classifier(1).fit(X, Y)
    old = content(first, tmp_path)
    with Interrupts() as interrupts, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for seconds in moments(np.random.default_rng(1), n, lambda: classifier(9).fit(X, Y)):
            caught.clear()
            model = classifier(9)
            model.__dict__.update(fitted_=first.fitted_, n_features_in_=first.n_features_in_)
            propagated = interrupts.during(lambda m=model: m.fit(X, Y), seconds)
            if propagated:
                assert content(model.set_params(trellises__epochs=1), tmp_path) == old
                continue
            epochs = model.n_iter_
            assert epochs == 9 or caught[0].category is TrainingInterruptedWarning
            assert set(load_again(model, tmp_path).predict(X)) <= set(Y)


def load_again(model, folder):
    model.save(folder / "again")
    return load(folder / "again", verify=True)
