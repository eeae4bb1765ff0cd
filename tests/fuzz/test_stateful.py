"""Calls in any order, against a simple model of what must hold after each of them."""

import pickle
import tempfile
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy.sparse import csr_array
from sklearn.base import clone

from ltls import LTLSClassifier, TableClassifier, TextClassifier, load
from ltls.settings import (
    Memory,
    Neighbours,
    Propensity,
    Prototypes,
    Table,
    Text,
    Trellises,
    Views,
)
from ltls.training.trainer import Trainer

N_FEATURES, N_LABELS = 12, 9
CALLS = []
SMALL = Trellises(width=2, n_trellises=2, epochs=1)
KINDS = {
    "trellises": {"label_weights": False},
    "codebooks": {"label_weights": False, "assignment": "frequency", "dtype": "float32"},
    "averaged": {"label_weights": False, "average": True, "optimizer": "sgd", "dtype": "float16"},
    "label weights": {"label_weights": True, "prototypes": Prototypes()},
    "views": {
        "views": Views(n_views=2, cluster_size=3),
        "neighbours": Neighbours(n_neighbors=3),
        "propensity": Propensity(strength=0.2),
    },
    "pruned": {"label_weights": False, "density": 0.4, "separation": True},
    "label matrix": {"label_matrix": True, "label_weights": False},
    "blocks": {"label_weights": True, "neighbours": Neighbours(n_neighbors=3)},
    "texts": {"label_weights": True, "features": Text(char_ngram_range=None)},
    "tables": {"label_weights": False, "features": Table(text="t", number="n", category="c")},
}
PARAMETERS = [
    {"n_jobs": 2},
    {"n_jobs": None},
    {"trellises__learning_rate": 0.3},
    {"memory": Memory(n_rows=7)},
    {"memory": "auto"},
    {"memory": False},
    {"size_budget": "6KB"},
    {"size_budget": None},
    {"random_state": 3},
]
label_lists = st.lists(st.integers(0, N_LABELS - 1), min_size=1, max_size=10)


def classifier(kind):
    """Return an estimator; what is no parameter of it is a setting of its trellises."""
    given = dict(KINDS[kind])
    if given.pop("separation", False):
        given["loss"] = "separation"
    own = {name: given.pop(name) for name in list(given) if not hasattr(LTLSClassifier, name)}
    trellises = Trellises(**{**SMALL.get_params(), **own})
    estimator = {"texts": TextClassifier, "tables": TableClassifier}.get(kind, LTLSClassifier)
    return estimator(trellises=trellises, random_state=0, **given)


def rows_of(labels, seed):
    """Sparse rows that tell their first label, with some noise."""
    rng = np.random.default_rng(seed)
    X = np.eye(N_LABELS, N_FEATURES)[labels]
    X += rng.random(X.shape) * (rng.random(X.shape) < 0.15)
    return csr_array(X.astype(np.float32))


def in_form(kind, X):
    """Return sparse rows as the estimator of a kind takes them."""
    if kind == "label matrix":
        return X.toarray()
    if kind == "blocks":
        return [X[:, :5], X[:, 5:].toarray()]
    texts = [" ".join(f"w{each}" for each in X[[row]].indices) for row in range(X.shape[0])]
    if kind == "texts":
        return texts
    if kind == "tables":
        pairs = zip(texts, X.data[X.indptr[:-1]], strict=True)
        return [{"t": text, "n": float(n), "c": text[:2]} for text, n in pairs]
    return X


def spoiled(X):
    """Return rows with one that is an error."""
    if isinstance(X, list) and hasattr(X[0], "indptr"):
        return [X[0], spoiled(X[1])]
    if isinstance(X, list):
        return [{**X[0], "n": "x"} if isinstance(X[0], dict) else None, *X[1:]]
    (X.data if hasattr(X, "indptr") else X.reshape(-1))[0] = np.nan
    return X


ASKED = rows_of([*range(N_LABELS), 0, 3], 99)
N_ASKED = ASKED.shape[0]


def answers(model, asked):
    """Return all that a model says of some rows."""
    found = [*model.predict_topk(asked, 4), model.decision_function(asked), model.predict(asked)]
    if hasattr(model, "predict_proba"):
        found.append(model.predict_proba(asked))
    return [each.toarray() if hasattr(each, "toarray") else np.asarray(each) for each in found]


def assert_same(ours, theirs):
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, two)


class Calls(RuleBasedStateMachine):
    """An estimator, and what is known of it: its labels in order, and how many rows it saw."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(
            dir="/dev/shm" if Path("/dev/shm").is_dir() else None
        )
        self.path = Path(self.folder.name, "model.ltls")
        self.n_calls = 0

    def teardown(self):
        self.folder.cleanup()

    @initialize(kind=st.sampled_from(sorted(KINDS)), several=st.booleans(), labels=label_lists)
    def start(self, kind, several, labels):
        self.kind, self.several, self.asked = kind, several, in_form(kind, ASKED)
        self.model, self.labels, self.n_rows = classifier(kind), None, 0
        self.fit(labels)

    def _rows(self, labels):
        return in_form(self.kind, rows_of(labels, self.n_calls))

    def _answers(self, model):
        return answers(model, self.asked)

    @invariant()
    def count(self):
        CALLS.append(1)

    def _named(self, labels):
        """Return targets: one label a row, or the label and the next one."""
        if not self.several:
            return [f"label {label}" for label in labels]
        return [[f"label {label}", f"label {(label + 1) % N_LABELS}"] for label in labels]

    def _flat(self, targets):
        return [name for row in targets for name in (row if self.several else [row])]

    # Training

    @rule(labels=label_lists)
    def fit(self, labels):
        self.n_calls += 1
        labels = [0, 1, 2, *labels]
        y = self._named(labels)
        if self._call(self.model.fit, self._rows(labels), y):
            self.labels, self.n_rows = sorted(set(self._flat(y))), len(labels)

    @rule(labels=label_lists)
    def partial_fit(self, labels):
        self.n_calls += 1
        y = self._named(labels)
        if self._call(self.model.partial_fit, self._rows(labels), y):
            seen = dict.fromkeys([*self.labels, *self._flat(y)])
            self.labels, self.n_rows = list(seen), self.n_rows + len(labels)

    def _call(self, call, *given, **options):
        """Return whether a call succeeds; it may refuse parameters that do not go together."""
        try:
            call(*given, **options)
        except ValueError as error:
            if not any(name in str(error) for name in ("size_budget", "memory=")):
                raise
            return False
        return True

    @rule(labels=label_lists, fails=st.sampled_from(["y", "X", "interrupt"]))
    def fail(self, labels, fails):
        """A call that fails or is interrupted changes nothing."""
        X, y, before = (
            in_form(self.kind, rows_of(labels, 0)),
            self._named(labels),
            self._answers(self.model),
        )
        if fails == "y":
            y = y[:-1]
        if fails == "X":
            X = spoiled(X)
        real = Trainer.run_epoch

        def interrupted(*given):
            real(*given)
            raise KeyboardInterrupt

        error = KeyboardInterrupt if fails == "interrupt" else ValueError
        patched = interrupted if fails == "interrupt" else real
        expected = (error, ValueError) if self.model.memory is False else error
        with patch.object(Trainer, "run_epoch", patched), pytest.raises(expected):
            self.model.partial_fit(X, y)
        assert_same(self._answers(self.model), before)

    @rule(parameters=st.sampled_from(PARAMETERS))
    def set_params(self, parameters):
        before = self._answers(self.model)
        self.model.set_params(**parameters)
        assert_same(self._answers(self.model), before)

    # Files and copies

    @rule(resumable=st.booleans(), again=st.booleans())
    def save(self, resumable, again):
        """A file that is written loads, verifies, predicts the same, and is written again."""
        before = self.path.read_bytes() if self.path.exists() else None
        if not self._call(self.model.save, self.path, resumable=resumable):
            assert (self.path.read_bytes() if self.path.exists() else None) == before
            return
        content = self.path.read_bytes()
        if self.model.size_budget is not None:
            assert len(content) <= 6000
        expected = self._answers(self.model)
        for options in ({"verify": True}, {"mmap": False}):
            loaded = load(self.path, **options)
            assert_same(self._answers(loaded), expected)
        loaded.save(self.path, resumable=resumable)
        assert self.path.read_bytes() == content
        if self.model.memory is False:
            assert loaded.model_.memory is None
        if again:
            self.model = loaded

    @precondition(lambda self: self.model.memory is not False)  # whose files hold no rows
    @rule(labels=label_lists, parameters=st.sampled_from(PARAMETERS))
    def resume(self, labels, parameters):
        """To continue from a resumable file is to continue in memory, whatever is set between."""
        if not self._call(self.model.save, self.path, resumable=True):
            return
        loaded = load(self.path)
        for each in (self.model, loaded):
            each.set_params(**parameters)
        self.partial_fit(labels)
        self._call(loaded.partial_fit, self._rows(labels), self._named(labels))
        assert_same(self._answers(loaded), self._answers(self.model))
        self.model = loaded

    @rule()
    def pickle(self):
        if not self._call(pickle.dumps, self.model):
            return
        copied = pickle.loads(pickle.dumps(self.model))
        assert_same(self._answers(copied), self._answers(self.model))
        if self.model.memory is False:
            assert copied.model_.memory is None
        self.model = copied

    @rule()
    def clone(self):
        copied = clone(self.model)
        assert not hasattr(copied, "fitted_")
        assert repr(copied) == repr(self.model)

    # Answers

    @rule()
    def predict(self):
        model = self.model
        assert model.classes_.tolist() == self.labels
        assert model.fitted_.provenance.n_rows == self.n_rows
        labels, scores = model.predict_topk(self.asked, 4)
        decision = model.decision_function(self.asked)
        assert labels.shape == (N_ASKED, min(4, len(self.labels)))
        assert (scores[:, :-1] >= scores[:, 1:]).all()
        place = {name: number for number, name in enumerate(self.labels)}
        own = np.vectorize(place.__getitem__)(labels)
        np.testing.assert_array_equal(np.take_along_axis(decision, own, 1), scores)
        if hasattr(model, "predict_proba"):
            proba = model.predict_proba(self.asked)
            assert ((proba >= 0) & (proba <= 1)).all()
            if not self.several:
                np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-5)

    @rule()
    def explain(self):
        model, row = self.model, in_form(self.kind, ASKED[2:3])
        (found,) = model.explain(row, k=2)
        labels, scores = model.predict_topk(row, 2)
        assert [each.label for each in found] == labels[0].tolist()
        np.testing.assert_allclose([each.score for each in found], scores[0], rtol=1e-3, atol=1e-3)

    @precondition(lambda self: len(self.labels) > 2)
    @rule(chosen=st.lists(st.integers(0, N_LABELS - 1), min_size=1, max_size=4, unique=True))
    def among(self, chosen):
        """The best of some labels are those of all scores."""
        places = sorted({number % len(self.labels) for number in chosen})
        allowed = [self.labels[place] for place in places]
        labels, scores = self.model.predict_topk(self.asked, 2, among=allowed)
        theirs = self.model.decision_function(self.asked)[:, places]
        best = -np.sort(-theirs, axis=1)[:, :2]
        np.testing.assert_array_equal(scores, best)
        assert set(labels.reshape(-1)) <= set(allowed)


class TestCalls(Calls.TestCase):
    settings = settings(max_examples=50, stateful_step_count=15, deadline=None)

    @pytest.fixture(autouse=True)
    def _quiet(self, record_property):
        CALLS.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".* bytes of size_budget are needed")  # of 6 KB
            yield
        record_property("calls", len(CALLS))
