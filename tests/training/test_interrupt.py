"""Ctrl-C and time limits.

Policies and batches raise `KeyboardInterrupt` themselves, at a known place, so that nothing here
depends on the clock.
"""

import os
import signal
import threading
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from ltls import LTLSClassifier
from ltls.structure.policies import POLICIES, RandomPolicy, register_policy
from ltls.training.interrupt import (
    InterruptGuard,
    TimeLimitExceededError,
    TrainingInterruptedWarning,
    check_time,
    time_limit,
)


class CallingPolicy(RandomPolicy):
    """Random codebooks, and a function that is called between epochs with their number."""

    name = "calling"

    def __init__(self, function):
        self.function, self.n_epochs = function, 0

    def initial(self, trellis, n_trellises, stats, rng):
        self.n_epochs = 0
        return super().initial(trellis, n_trellises, stats, rng)

    def between_epochs(self, trellis, paths, score_sums, n_jobs):
        self.n_epochs += 1
        self.function(self.n_epochs)


@pytest.fixture
def between_epochs():
    """Register a function to be called between epochs with assignment="calling"."""
    yield lambda function: register_policy(CallingPolicy(function))
    POLICIES.pop("calling", None)


def interrupt_after(n_epochs):
    def interrupt(done):
        if done == n_epochs:
            raise KeyboardInterrupt

    return interrupt


class InterruptedBatches:
    """Batches whose iteration is interrupted; pass 0 collects statistics, the others are epochs."""

    def __init__(self, batches, in_pass, before_batch):
        self.batches, self.in_pass, self.before_batch = batches, in_pass, before_batch
        self.passes = 0

    def __iter__(self):
        for number, batch in enumerate(self.batches):
            if (self.passes, number) == (self.in_pass, self.before_batch):
                raise KeyboardInterrupt
            yield batch
        self.passes += 1


def in_batches(X, y, size=300):
    return [(X[i : i + size], y[i : i + size]) for i in range(0, len(X), size)]


@pytest.fixture(scope="module")
def sparse_digits(digits):
    """Enough rows, labels and features for an embedding."""
    X, y = digits
    y = 10 * y + np.arange(len(y)) % 10
    return csr_array(X), y


# fit and fit_stream


@pytest.mark.parametrize("n_epochs", [1, 3])
def test_an_interrupted_fit_keeps_the_weights_of_the_epochs_so_far(
    digits, between_epochs, n_epochs
):
    X, y = digits
    between_epochs(interrupt_after(n_epochs))
    settings = {"n_trellises": 3, "calibrate": False, "random_state": 0}
    model = LTLSClassifier(assignment="calling", epochs=10, **settings)
    with pytest.warns(TrainingInterruptedWarning) as caught:
        assert model.fit(X, y) is model
    assert len(caught) == 1
    assert model.n_iter_ == len(model.loss_curve_) == n_epochs
    whole = LTLSClassifier(epochs=n_epochs, **settings).fit(X, y)
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_an_interrupted_fit_trains_no_embedding(sparse_digits, between_epochs):
    X, y = sparse_digits
    between_epochs(interrupt_after(2))
    model = LTLSClassifier(assignment="calling", embedding_dim=8, epochs=5, random_state=0)
    with pytest.warns(TrainingInterruptedWarning) as caught:
        model.fit(X, y)
    assert len(caught) == 1
    assert model.model_.embedding is None
    assert model.n_iter_ == 2


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_an_interrupted_multilabel_fit_has_a_threshold(between_epochs, stream):
    X, Y = make_multilabel_classification(300, n_classes=12, random_state=0)
    between_epochs(interrupt_after(1))
    model = LTLSClassifier(assignment="calling", epochs=5, random_state=0)
    with pytest.warns(TrainingInterruptedWarning) as caught:
        model = model.fit_stream(in_batches(X, Y, 100)) if stream else model.fit(X, Y)
    assert len(caught) == 1
    assert np.isfinite(model.threshold_)
    assert model.predict(X).shape == Y.shape


def test_an_interruption_after_early_stopping_epochs_keeps_the_best_weights(digits, between_epochs):
    X, y = digits
    between_epochs(interrupt_after(4))
    settings = {"validation_fraction": 0.2, "n_iter_no_change": 10, "random_state": 0}
    settings["n_trellises"] = 3
    model = LTLSClassifier(assignment="calling", epochs=10, **settings)
    with pytest.warns(TrainingInterruptedWarning):
        model.fit(X, y)
    whole = LTLSClassifier(epochs=4, **settings).fit(X, y)
    np.testing.assert_array_equal(model.coef_, whole.coef_)


@pytest.mark.parametrize("assignment", ["random", "ranking", "similarity", "frequency", "learned"])
@pytest.mark.parametrize(("epoch", "batch"), [(1, 0), (1, 3), (2, 1)])
def test_an_interrupted_stream_keeps_a_model_that_predicts(digits, assignment, epoch, batch):
    X, y = digits
    batches = InterruptedBatches(in_batches(X, y), epoch, batch)
    model = LTLSClassifier(assignment=assignment, epochs=5, random_state=0)
    with pytest.warns(TrainingInterruptedWarning) as caught:
        model.fit_stream(batches)
    assert len(caught) == 1
    # The second pass of "learned" is over label scores, before the second epoch.
    assert model.n_iter_ == (1 if assignment == "learned" else epoch)
    assert set(model.predict(X)) <= set(range(10))
    paths = model.codebook_.path_of(np.arange(10))
    assert sorted(paths) == sorted(set(paths.tolist()) - {-1})
    if (epoch, batch) == (2, 1):
        assert model.score(X, y) > 0.5


def test_an_interrupted_pass_over_statistics_propagates(digits):
    X, y = digits
    model = LTLSClassifier(random_state=0).fit(X, y)
    before = model.coef_.copy()
    with pytest.raises(KeyboardInterrupt):
        model.fit_stream(InterruptedBatches(in_batches(X, y), 0, 2))
    np.testing.assert_array_equal(model.coef_, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
def test_a_signal_from_another_thread_ends_training(digits, between_epochs):
    X, y = digits
    started = threading.Event()
    between_epochs(lambda _: started.set())

    def press_ctrl_c():
        started.wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press_ctrl_c)
    thread.start()
    model = LTLSClassifier(assignment="calling", n_trellises=1, epochs=100_000, random_state=0)
    with pytest.warns(TrainingInterruptedWarning):
        model.fit(X, y)
    thread.join()
    assert 1 <= model.n_iter_ == len(model.loss_curve_) < 100_000
    assert model.score(X, y) > 0.5


# Clones, which meta-estimators fit


def searched(model, X, y):
    GridSearchCV(model, {"width": [2, 4]}, cv=2).fit(X, y)


def cross_validated(model, X, y):
    cross_val_score(model, X, y, cv=2)


def cross_validated_pipeline(model, X, y):
    cross_val_score(make_pipeline(MaxAbsScaler(), model), X, y, cv=2)


def cloned(model, X, y):
    clone(model).fit(X, y)


def cloned_twice(model, X, y):
    clone(clone(model)).fit(X, y)


def streamed(model, X, y):
    clone(model).fit_stream(in_batches(X, y))


@pytest.mark.parametrize(
    "use", [searched, cross_validated, cross_validated_pipeline, cloned, cloned_twice, streamed]
)
def test_ctrl_c_ends_a_search_and_not_one_of_its_fits(digits, between_epochs, use):
    fits = []

    def interrupt(_):
        fits.append(1)
        raise KeyboardInterrupt

    between_epochs(interrupt)
    model = LTLSClassifier(assignment="calling", epochs=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainingInterruptedWarning)
        with pytest.raises(KeyboardInterrupt):
            use(model, *digits)
    assert len(fits) == 1


def test_an_interrupted_clone_is_not_fitted(digits, between_epochs):
    between_epochs(interrupt_after(1))
    model = clone(LTLSClassifier(assignment="calling", epochs=3))
    with pytest.raises(KeyboardInterrupt):
        model.fit(*digits)
    assert not hasattr(model, "classes_")


# The guard itself


def test_the_guard_warns_once():
    guard = InterruptGuard(keep=True)

    def interrupted_phase():
        with guard():
            raise KeyboardInterrupt

    with pytest.warns(TrainingInterruptedWarning):
        interrupted_phase()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interrupted_phase()
    assert guard.interrupted


def test_the_guard_passes_other_errors_on():
    guard = InterruptGuard(keep=True)
    with pytest.raises(ZeroDivisionError), guard():
        raise ZeroDivisionError
    assert not guard.interrupted
    with pytest.raises(KeyboardInterrupt), InterruptGuard(keep=False)():
        raise KeyboardInterrupt


# Time limits


def test_a_time_limit_of_0_is_exceeded_at_once(digits):
    X, y = digits
    model = LTLSClassifier(random_state=0).fit(X, y)
    before = model.coef_.copy()
    with time_limit(0), pytest.raises(TimeLimitExceededError):
        model.set_params(epochs=10**6).fit(X, y)
    np.testing.assert_array_equal(model.coef_, before)
    model.set_params(epochs=1).fit(X, y)


def test_time_limits_are_nested_and_end_with_their_block():
    with time_limit(1e9):
        with time_limit(0), pytest.raises(TimeLimitExceededError):
            check_time()
        check_time()
    check_time()


def test_a_time_limit_holds_in_its_own_thread_only():
    errors = []

    def check():
        try:
            check_time()
        except TimeLimitExceededError as error:
            errors.append(error)

    with time_limit(0):
        thread = threading.Thread(target=check)
        thread.start()
        thread.join()
    assert not errors
