"""Checkpoints: resuming is bit-identical, and other files or data are rejected."""

import os

import numpy as np
import pytest
from scipy.sparse import csr_array

from ltls import Checkpoint, LTLSClassifier, TextClassifier
from ltls.structure.policies import POLICIES, CodebookPolicy, register_policy
from ltls.training.interrupt import TrainingInterruptedWarning

RNG = np.random.default_rng(0)
X = csr_array(RNG.random((300, 20)) * (RNG.random((300, 20)) < 0.4))
ONE = RNG.integers(0, 30, 300)
SEVERAL = (RNG.random((300, 30)) < 0.1).astype(int)

CASES = {
    "softmax": ({}, ONE),
    "several trellises": ({"n_trellises": 3, "width": 4, "n_jobs": 2}, ONE),
    "ranking, averaged": (
        {"assignment": "ranking", "average": True, "optimizer": "sgd", "loss": "separation"},
        ONE,
    ),
    "similarity, l1": ({"assignment": "similarity", "l1": 0.01, "shuffle": False}, ONE),
    "held-out rows": ({"validation_fraction": 0.2, "n_iter_no_change": 5}, ONE),
    "several labels": ({"loss": "logistic"}, SEVERAL),
}


class Killed(BaseException):
    """Handled nowhere, as if the process were killed."""


class Stopping(CodebookPolicy):
    """Another policy that can stop training between two epochs."""

    name = "stopping"
    policy = POLICIES["random"]
    needs_sample = True
    error = None
    at_epoch = 0
    epoch = 0

    def initial(self, trellis, n_trellises, stats, rng):
        self.epoch = 0
        return self.policy.initial(trellis, n_trellises, stats, rng)

    def between_epochs(self, trellis, paths, score_sums, n_jobs):
        self.epoch += 1
        if self.error is not None and self.epoch == self.at_epoch:
            raise self.error
        return self.policy.between_epochs(trellis, paths, score_sums, n_jobs)


@pytest.fixture
def stopping():
    policy = Stopping()
    register_policy(policy)
    yield policy
    POLICIES.pop(policy.name)


class KilledInEpoch:
    """Batches whose iteration is killed in the middle of an epoch; pass 0 collects statistics."""

    def __init__(self, batches, epoch):
        self.batches, self.epoch, self.passes = batches, epoch, 0

    def __iter__(self):
        for number, batch in enumerate(self.batches):
            if self.passes == self.epoch and number == len(self.batches) // 2:
                raise Killed
            yield batch
        self.passes += 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


def model_bytes(model, path):
    model.save(path, dtype="float32")
    return path.read_bytes()


@pytest.mark.parametrize("seed", [0, None], ids=["seeded", "unseeded"])
@pytest.mark.parametrize(("settings", "y"), CASES.values(), ids=CASES)
def test_resuming_is_bit_identical(path, tmp_path, stopping, settings, y, seed):
    stopping.policy = POLICIES[settings.get("assignment", "random")]
    settings = {**settings, "assignment": "stopping"}
    model = LTLSClassifier(epochs=6, random_state=seed, **settings)
    np.random.seed(7)  # noqa: NPY002 - used if random_state is None
    whole = model_bytes(model.fit(X, y), tmp_path / "whole")
    stopping.error, stopping.at_epoch = Killed(), 3
    np.random.seed(7)  # noqa: NPY002
    with pytest.raises(Killed):
        model.fit(X, y, checkpoint=path)
    stopping.error = None
    np.random.seed(8)  # noqa: NPY002 - another process
    model.fit(X, y, checkpoint=Checkpoint(path, resume=True))
    assert model_bytes(model, tmp_path / "resumed") == whole


def test_resuming_after_early_stopping_changes_nothing(path):
    settings = {"validation_fraction": 0.2, "n_iter_no_change": 1, "random_state": 0}
    whole = LTLSClassifier(epochs=50, **settings).fit(X, ONE, checkpoint=path)
    assert whole.n_iter_ < 50
    again = LTLSClassifier(epochs=50, **settings)
    again.fit(X, ONE, checkpoint=Checkpoint(path, resume=True))
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    assert again.n_iter_ == whole.n_iter_


def test_text_classifiers_resume(path):
    texts = [f"row {number} of label {label}" for number, label in enumerate(ONE)]
    whole = TextClassifier(epochs=4, random_state=0).fit(texts, ONE)
    TextClassifier(epochs=2, random_state=0).fit(texts, ONE, checkpoint=path)
    model = TextClassifier(epochs=4, random_state=0)
    model.fit(texts, ONE, checkpoint=Checkpoint(path, resume=True))
    np.testing.assert_array_equal(model.coef_, whole.coef_)


@pytest.mark.parametrize("seed", [0, None], ids=["seeded", "unseeded"])
@pytest.mark.parametrize(("settings", "y"), CASES.values(), ids=CASES)
def test_resuming_a_stream_is_bit_identical(path, tmp_path, settings, y, seed):
    batches = [(X[first : first + 70], y[first : first + 70]) for first in range(0, 300, 70)]
    model = LTLSClassifier(epochs=6, random_state=seed, **settings)
    np.random.seed(7)  # noqa: NPY002
    whole = model_bytes(model.fit_stream(batches), tmp_path / "whole")
    np.random.seed(7)  # noqa: NPY002
    with pytest.raises(Killed):
        model.fit_stream(KilledInEpoch(batches, 4), checkpoint=path)
    np.random.seed(8)  # noqa: NPY002
    resume = Checkpoint(path, resume=True)
    model.fit_stream(batches, checkpoint=resume)
    assert model_bytes(model, tmp_path / "resumed") == whole
    with pytest.raises(ValueError, match="of other rows or labels"):
        model.fit_stream(batches[::-1], checkpoint=resume)


def test_an_interrupted_fit_resumes_from_its_last_epoch(path, stopping):
    stopping.error, stopping.at_epoch = KeyboardInterrupt(), 3
    settings = {"assignment": "stopping", "random_state": 0}
    interrupted = Checkpoint(path)
    with pytest.warns(TrainingInterruptedWarning):
        LTLSClassifier(epochs=50, **settings).fit(X, ONE, checkpoint=interrupted)
    assert not interrupted.completed
    stopping.error = None
    model = LTLSClassifier(epochs=9, **settings)
    resumed = Checkpoint(path, resume=True)
    model.fit(X, ONE, checkpoint=resumed)
    assert resumed.completed
    whole = LTLSClassifier(epochs=9, **settings).fit(X, ONE)
    np.testing.assert_array_equal(model.coef_, whole.coef_)


def test_checkpoints_of_other_data_or_parameters_are_rejected(path):
    LTLSClassifier(epochs=1).fit(X, ONE, checkpoint=path)
    resume = Checkpoint(path, resume=True)
    with pytest.raises(
        ValueError, match=r"a checkpoint of width='auto', got 3: resume with the same"
    ):
        LTLSClassifier(width=3).fit(X, ONE, checkpoint=resume)
    for other, y in ((2 * X, ONE), (X, ONE[::-1]), (X[:-1], ONE[:-1])):
        with pytest.raises(ValueError, match="of other rows or labels"):
            LTLSClassifier().fit(other, y, checkpoint=resume)
    with pytest.raises(ValueError, match="of other rows or labels"):
        LTLSClassifier().fit(X, ONE, sample_weight=np.full(300, 2.0), checkpoint=resume)


def test_files_that_are_not_checkpoints_are_rejected(path):
    resume = Checkpoint(path, resume=True)
    with pytest.raises(ValueError, match="there is no checkpoint to resume from"):
        LTLSClassifier().fit(X, ONE, checkpoint=resume)
    LTLSClassifier(epochs=1).fit(X, ONE).save(path)
    with pytest.raises(ValueError, match="is not a checkpoint of ltls"):
        LTLSClassifier().fit(X, ONE, checkpoint=resume)
    with pytest.raises(ValueError, match="is not a checkpoint of ltls"):
        LTLSClassifier().fit(X, ONE, checkpoint=path)  # and it is not overwritten
    path.unlink()
    LTLSClassifier(epochs=1).fit(X, ONE, checkpoint=path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="is damaged"):
        LTLSClassifier().fit(X, ONE, checkpoint=resume)


def test_training_continues_if_a_checkpoint_cannot_be_written(path, full_disk):
    with full_disk(), pytest.warns(RuntimeWarning, match="could not be written"):
        model = LTLSClassifier(epochs=2).fit(X, ONE, checkpoint=path)
    assert model.n_iter_ == 2
    assert os.listdir(path.parent) == []


def test_seconds_is_the_minimum_time_between_checkpoints(path):
    LTLSClassifier(epochs=3).fit(X, ONE, checkpoint=Checkpoint(path, seconds=1000))
    assert not path.exists()
