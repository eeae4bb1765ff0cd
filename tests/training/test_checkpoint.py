import os
import signal

import numpy as np
import pytest
from scipy.sparse import csr_array

from ltls import Checkpoint, LTLSClassifier, TextClassifier
from ltls.training import trainer as training

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
    """What nothing inside handles, as a process that is killed handles nothing."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


def kill_in_epoch(monkeypatch, epoch):
    """Let learning break off in the middle of an epoch."""
    whole, passes = training.Training.pass_over, []

    def pass_over(self, parts, show=None):
        passes.append(1)
        if len(passes) == epoch:
            whole(self, ((rows, order[: len(order) // 2]) for rows, order in parts), show)
            raise Killed
        whole(self, parts, show)

    monkeypatch.setattr(training.Training, "pass_over", pass_over)


def model_bytes(model, path):
    model.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("seed", [0, None], ids=["seeded", "unseeded"])
@pytest.mark.parametrize(("settings", "y"), CASES.values(), ids=CASES)
def test_a_resumed_training_ends_as_if_never_stopped(
    path, tmp_path, monkeypatch, settings, y, seed
):
    model = LTLSClassifier(epochs=6, random_state=seed, **settings)
    np.random.seed(7)  # noqa: NPY002 - where random_state is None, it is this one
    whole = model_bytes(model.fit(X, y), tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_in_epoch(patch, 4)
        np.random.seed(7)  # noqa: NPY002
        with pytest.raises(Killed):
            model.fit(X, y, checkpoint=path)
    np.random.seed(8)  # noqa: NPY002 - another process
    model.fit(X, y, checkpoint=Checkpoint(path, resume=True))
    assert model_bytes(model, tmp_path / "resumed") == whole


def test_a_training_that_was_over_stays_so(path):
    settings = {"validation_fraction": 0.2, "n_iter_no_change": 1, "random_state": 0}
    whole = LTLSClassifier(epochs=50, **settings).fit(X, ONE, checkpoint=path)
    assert whole.n_iter_ < 50
    again = LTLSClassifier(epochs=50, **settings)
    again.fit(X, ONE, checkpoint=Checkpoint(path, resume=True))
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    assert again.n_iter_ == whole.n_iter_


def test_texts(path):
    texts = [f"row {number} of label {label}" for number, label in enumerate(ONE)]
    whole = TextClassifier(epochs=4, random_state=0).fit(texts, ONE)
    TextClassifier(epochs=2, random_state=0).fit(texts, ONE, checkpoint=path)
    model = TextClassifier(epochs=4, random_state=0)
    model.fit(texts, ONE, checkpoint=Checkpoint(path, resume=True))
    np.testing.assert_array_equal(model.coef_, whole.coef_)


@pytest.mark.parametrize("seed", [0, None], ids=["seeded", "unseeded"])
@pytest.mark.parametrize(("settings", "y"), CASES.values(), ids=CASES)
def test_a_resumed_stream_ends_as_if_never_stopped(path, tmp_path, monkeypatch, settings, y, seed):
    batches = [(X[first : first + 70], y[first : first + 70]) for first in range(0, 300, 70)]
    model = LTLSClassifier(epochs=6, random_state=seed, **settings)
    np.random.seed(7)  # noqa: NPY002
    whole = model_bytes(model.fit_stream(batches), tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_in_epoch(patch, 4)
        np.random.seed(7)  # noqa: NPY002
        with pytest.raises(Killed):
            model.fit_stream(batches, checkpoint=path)
    np.random.seed(8)  # noqa: NPY002
    resume = Checkpoint(path, resume=True)
    model.fit_stream(batches, checkpoint=resume)
    assert model_bytes(model, tmp_path / "resumed") == whole
    with pytest.raises(ValueError, match="of other rows or labels"):
        model.fit_stream(batches[::-1], checkpoint=resume)


def test_ctrl_c_leaves_the_last_epoch_to_resume_from(path, monkeypatch):
    learn, calls = training.Training._learn, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 8:
            signal.raise_signal(signal.SIGINT)
        return learn(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(training.Training, "_learn", interrupted)
        stopped = Checkpoint(path)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            LTLSClassifier(epochs=50, random_state=0).fit(X, ONE, checkpoint=stopped)
        assert not stopped.ended
    model = LTLSClassifier(epochs=9, random_state=0)
    resumed = Checkpoint(path, resume=True)
    model.fit(X, ONE, checkpoint=resumed)
    assert resumed.ended
    whole = LTLSClassifier(epochs=9, random_state=0).fit(X, ONE)
    np.testing.assert_array_equal(model.coef_, whole.coef_)


def test_another_problem_is_refused(path):
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


def test_what_is_no_checkpoint_is_refused(path):
    resume = Checkpoint(path, resume=True)
    with pytest.raises(ValueError, match="there is no checkpoint to resume from"):
        LTLSClassifier().fit(X, ONE, checkpoint=resume)
    LTLSClassifier(epochs=1).fit(X, ONE).save(path)
    with pytest.raises(ValueError, match="is not a checkpoint of ltls"):
        LTLSClassifier().fit(X, ONE, checkpoint=resume)
    with pytest.raises(ValueError, match="is not a checkpoint of ltls"):
        LTLSClassifier().fit(X, ONE, checkpoint=path)  # nor is it replaced by one
    path.unlink()
    LTLSClassifier(epochs=1).fit(X, ONE, checkpoint=path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="is damaged"):
        LTLSClassifier().fit(X, ONE, checkpoint=resume)


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(path, monkeypatch):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ltls.storage.tensor_file._seal", no_space)
    with pytest.warns(RuntimeWarning, match=r"could not be written: No space left on device"):
        model = LTLSClassifier(epochs=2).fit(X, ONE, checkpoint=path)
    assert model.n_iter_ == 2
    assert os.listdir(path.parent) == []


def test_no_more_often_than_asked(path):
    LTLSClassifier(epochs=3).fit(X, ONE, checkpoint=Checkpoint(path, seconds=1000))
    assert not path.exists()
