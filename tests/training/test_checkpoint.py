"""Checkpoints: resuming is bit-identical, and other files or data are rejected."""

import os
import signal
from itertools import count

import numpy as np
import pytest
from problems import in_batches
from scipy.sparse import csr_array

from ltls import Checkpoint, LTLSClassifier, ModelFileError, TextClassifier
from ltls.parts.trellis_training import TrellisTraining
from ltls.settings import Text, Trellises, Views
from ltls.storage.tensor_file import TensorFile, write
from ltls.training.checkpoint import _CHECKPOINT, CheckpointMismatchError
from ltls.training.progress import TrainingInterruptedWarning

RNG = np.random.default_rng(0)
X = csr_array(RNG.random((300, 20)) * (RNG.random((300, 20)) < 0.4))
ONE = RNG.integers(0, 30, 300)
SEVERAL = (RNG.random((300, 30)) < 0.1).astype(int)

ALL_PARTS = {"views": Views(n_views=2, cluster_size=5), "prototypes": True, "neighbours": True}
CASES = {
    "softmax": ({}, {}, ONE),
    "several trellises": ({"n_trellises": 3, "width": 4}, {"n_jobs": 2}, ONE),
    "ranking, averaged": (
        {"assignment": "ranking", "average": True, "optimizer": "sgd", "loss": "separation"},
        {},
        ONE,
    ),
    "similarity, l1": ({"assignment": "similarity", "l1": 0.01, "shuffle": False}, {}, ONE),
    "learned": ({"assignment": "learned", "width": 2}, {"validation_fraction": 0.2}, ONE),
    "held-out rows": ({"n_iter_no_change": 5}, {"validation_fraction": 0.2}, ONE),
    "label weights": ({}, {"label_weights": True, "prototypes": True}, ONE),
    "views": ({}, ALL_PARTS, ONE),
    "several labels": ({"loss": "logistic"}, {"class_weight": "balanced"}, SEVERAL),
    "several labels, views": ({}, ALL_PARTS, SEVERAL),
}


def estimator(name="softmax", epochs=6, **changes):
    settings, parts, _ = CASES[name]
    return LTLSClassifier(trellises=Trellises(epochs=epochs, **settings), **{**parts, **changes})


class Killed(BaseException):
    """Handled nowhere, as if the process were killed."""


class Stopping(Checkpoint):
    """A checkpoint after which training ends."""

    error, after = Killed, 3

    def save(self, *arguments, **options):
        super().save(*arguments, **options)
        if len(arguments[1].losses) == self.after:
            raise self.error


class KilledInPass:
    """Batches whose iteration is killed in the middle of a pass; the first collects statistics."""

    def __init__(self, batches, last):
        self.batches, self.last, self.passes = batches, last, 0

    def __iter__(self):
        for number, batch in enumerate(self.batches):
            if self.passes == self.last and number == len(self.batches) // 2:
                raise Killed
            yield batch
        self.passes += 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


def model_bytes(model, path):
    model.save(path, resumable=True)
    return path.read_bytes()


@pytest.mark.parametrize("seed", [0, None], ids=["seeded", "unseeded"])
@pytest.mark.parametrize("name", CASES)
def test_resuming_is_bit_identical(path, tmp_path, name, seed):
    model, y = estimator(name, random_state=seed), CASES[name][2]
    np.random.seed(7)  # noqa: NPY002 - used if random_state is None
    whole = model_bytes(model.fit(X, y), tmp_path / "whole")
    np.random.seed(7)  # noqa: NPY002
    with pytest.raises(Killed):
        model.fit(X, y, checkpoint=Stopping(path))
    np.random.seed(8)  # noqa: NPY002 - another process
    model.fit(X, y, checkpoint=Checkpoint(path, resume=True))
    assert model_bytes(model, tmp_path / "resumed") == whole
    # Killed after the last epoch: what follows the epochs is done again.
    if model.n_iter_ == 6:
        again = estimator(name, random_state=seed)
        again.fit(X, y, checkpoint=Checkpoint(path, resume=True))
        assert model_bytes(again, tmp_path / "resumed") == whole


@pytest.mark.parametrize("seed", [0, None], ids=["seeded", "unseeded"])
@pytest.mark.parametrize("name", CASES)
def test_resuming_a_stream_is_bit_identical(path, tmp_path, name, seed):
    y = CASES[name][2]
    batches = in_batches(X, y, 70)
    model = estimator(name, random_state=seed)
    np.random.seed(7)  # noqa: NPY002
    whole = model_bytes(model.fit_stream(batches), tmp_path / "whole")
    np.random.seed(7)  # noqa: NPY002
    with pytest.raises(Killed):
        model.fit_stream(KilledInPass(batches, 4), checkpoint=path)
    np.random.seed(8)  # noqa: NPY002
    resume = Checkpoint(path, resume=True)
    model.fit_stream(batches, checkpoint=resume)
    assert model_bytes(model, tmp_path / "resumed") == whole
    swapped = np.r_[1, 0, 2:70]
    for other in (batches[::-1], [(X[:70], y[:70][swapped]), *batches[1:]]):
        with pytest.raises(CheckpointMismatchError, match="of other rows or labels"):
            model.fit_stream(other, checkpoint=resume)


@pytest.mark.parametrize("chunk", [1, 5])
@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
@pytest.mark.parametrize("name", CASES)
def test_resuming_within_an_epoch_is_bit_identical(path, tmp_path, name, stream, chunk, chunks):
    y, model = CASES[name][2], estimator(name, random_state=0)
    batches = in_batches(X, y, 170)

    def fit(checkpoint=None):
        return (
            model.fit_stream(batches, checkpoint) if stream else model.fit(X, y, None, checkpoint)
        )

    whole = model_bytes(fit(), tmp_path / "whole")
    chunks(chunk)
    with pytest.raises(Killed):
        fit(Checkpoint(path, seconds=1000))
    if name.startswith("ranking") and chunk == 1:  # labels get their paths in the first epoch
        assert not path.exists()
        return
    assert "within" in TensorFile(path, _CHECKPOINT).description
    fit(Checkpoint(path, resume=True))
    assert model_bytes(model, tmp_path / "resumed") == whole


@pytest.fixture
def chunks(monkeypatch):
    """Let a signal come in the n-th chunk of rows that is trained on, of 64 rows or more."""

    def killed(*_):
        raise Killed

    def register(last):
        run, numbers = TrellisTraining.run, count(1)

        def counted(*arguments):
            if next(numbers) == last:
                signal.raise_signal(signal.SIGTERM)
            return run(*arguments)

        monkeypatch.setattr(TrellisTraining, "run", counted)

    before = signal.signal(signal.SIGTERM, killed)
    yield register
    signal.signal(signal.SIGTERM, before)


def test_resuming_after_early_stopping_changes_nothing(path):
    settings = {"name": "softmax", "epochs": 50, "validation_fraction": 0.2, "random_state": 0}
    whole = estimator(**settings).fit(X, ONE, checkpoint=path)
    assert whole.n_iter_ < 50
    again = estimator(**settings).fit(X, ONE, checkpoint=Checkpoint(path, resume=True))
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    assert again.n_iter_ == whole.n_iter_


def test_text_classifiers_resume(path):
    texts = [f"row {number} of label {label}" for number, label in enumerate(ONE)]

    def model(epochs, tokenizer=str.split):
        return TextClassifier(
            features=Text(tokenizer=tokenizer), trellises=Trellises(epochs=epochs), random_state=0
        )

    whole = model(4).fit(texts, ONE)
    model(2).fit(texts, ONE, checkpoint=path)
    resume = Checkpoint(path, resume=True)
    np.testing.assert_array_equal(model(4).fit(texts, ONE, checkpoint=resume).coef_, whole.coef_)
    with pytest.raises(CheckpointMismatchError, match="a checkpoint with features__tokenizer="):
        model(4, list).fit(texts, ONE, checkpoint=resume)


def test_an_interrupted_fit_resumes_from_its_last_epoch(path):
    interrupted = Stopping(path)
    interrupted.error = KeyboardInterrupt
    with pytest.warns(TrainingInterruptedWarning):
        estimator(epochs=50, random_state=0).fit(X, ONE, checkpoint=interrupted)
    assert not interrupted.completed
    resumed = Checkpoint(path, resume=True)
    model = estimator(epochs=9, random_state=0).fit(X, ONE, checkpoint=resumed)
    assert resumed.completed
    whole = estimator(epochs=9, random_state=0).fit(X, ONE)
    np.testing.assert_array_equal(model.coef_, whole.coef_)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trellises__width": 3}, "with trellises__width='auto', got 3: resume with the same"),
        ({"class_weight": {3: 2.0}}, "with class_weight=None, got "),
        ({"views": True}, "with views='auto', got True"),
        ({"random_state": 1}, "with random_state=0, got 1"),
    ],
)
def test_checkpoints_of_other_parameters_are_rejected(path, change, message):
    model = estimator(epochs=1, random_state=0).fit(X, ONE, checkpoint=path)
    resume = Checkpoint(path, resume=True)
    with pytest.raises(CheckpointMismatchError, match=message):
        model.set_params(**change).fit(X, ONE, checkpoint=resume)
    with pytest.raises(CheckpointMismatchError, match=message):
        model.fit_stream([(X, ONE)], checkpoint=resume)


def test_checkpoints_of_other_data_are_rejected(path):
    model = estimator(epochs=1).fit(X, ONE, checkpoint=path)
    resume = Checkpoint(path, resume=True)
    for other, y, weight in (
        (2 * X, ONE, None),
        (X, ONE[::-1], None),
        (X[:-1], ONE[:-1], None),
        (X, ONE, np.full(300, 2.0)),
    ):
        with pytest.raises(CheckpointMismatchError, match="of other rows or labels"):
            model.fit(other, y, sample_weight=weight, checkpoint=resume)
    model.set_params(n_jobs=2, verbose=0, trellises__epochs=2).fit(X, ONE, checkpoint=resume)


def test_files_that_are_not_checkpoints_are_rejected(path):
    model, resume = estimator(epochs=1), Checkpoint(path, resume=True)
    with pytest.raises(ValueError, match="there is no checkpoint to resume from"):
        model.fit(X, ONE, checkpoint=resume)
    model.fit(X, ONE).save(path)
    for checkpoint in (resume, path):  # it is not overwritten
        with pytest.raises(ModelFileError, match="is not an ltls checkpoint"):
            model.fit(X, ONE, checkpoint=checkpoint)
    path.unlink()
    model.fit(X, ONE, checkpoint=path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelFileError, match="is damaged"):
        model.fit(X, ONE, checkpoint=resume)


OTHERS = (None, "x", -1, 1.5, 2**70, np.nan, [], {}, [1], True)


@pytest.mark.parametrize("name", ["softmax", "ranking, averaged", "held-out rows", "views"])
def test_checkpoints_that_lie_are_rejected(path, name):
    model = estimator(name, 2, random_state=0).fit(X, ONE, checkpoint=path)
    model.set_params(trellises__epochs=3)
    file, resume = TensorFile(path, _CHECKPOINT), Checkpoint(path, resume=True)
    tensors = {each: np.array(file.tensor(each)) for each in file.tensors}

    def refused(description, tensors):
        write(path, _CHECKPOINT, description, tensors)
        try:
            model.fit(X, ONE, checkpoint=resume)
        except (ModelFileError, CheckpointMismatchError) as error:
            return str(path) in str(error)
        return False

    assert not refused(file.description, tensors)
    for key in file.description:
        assert refused({k: v for k, v in file.description.items() if k != key}, tensors), key
        accepted = [v for v in OTHERS if not refused({**file.description, key: v}, tensors)]
        # Any list of losses tells how many epochs are done, any precision is that of the best one.
        assert accepted in ([], [[]], [-1], [[], [1]], [[1]]) or key == "random", key
    assert refused({**file.description, "other": 1}, tensors)
    for key, tensor in tensors.items():
        below = np.where(np.arange(tensor.size).reshape(tensor.shape) == 3, -5, tensor)
        wrong = [tensor[None], tensor.astype(np.int8), below.astype(np.int64)]
        wrong += [tensor[:-1]] if key != "held_out" else []  # any rows may be held out
        wrong += [tensor * np.nan] if tensor.dtype.kind == "f" else []
        for each in filter(lambda each: tensor.size, wrong):
            assert refused(file.description, {**tensors, key: np.ascontiguousarray(each)}), key
        rest = {other: each for other, each in tensors.items() if other != key}
        assert refused(file.description, rest), key
    assert refused(file.description, {**tensors, "other": np.zeros(3)})


def test_training_continues_if_a_checkpoint_cannot_be_written(path, full_disk):
    with full_disk(), pytest.warns(RuntimeWarning, match="could not be written"):
        model = estimator(epochs=2).fit(X, ONE, checkpoint=path)
    assert model.n_iter_ == 2
    assert os.listdir(path.parent) == []


def test_seconds_is_the_minimum_time_between_checkpoints(path):
    checkpoint = Stopping(path, seconds=1000)
    checkpoint.error, checkpoint.after = ZeroDivisionError, 2
    with pytest.raises(ZeroDivisionError):
        estimator(epochs=3).fit(X, ONE, checkpoint=checkpoint)
    assert not path.exists()
    estimator(epochs=3).fit(X, ONE, checkpoint=Checkpoint(path, seconds=1000))
    assert path.exists()  # what follows the epochs may take long
