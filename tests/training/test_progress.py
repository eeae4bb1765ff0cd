"""Ctrl-C: `fit` keeps the epochs so far, or what was there before; `partial_fit` always the latter.

Policies, batches and a trace of lines raise `KeyboardInterrupt` themselves, at a known place, so
that nothing here depends on the clock.
"""

import os
import signal
import sys
import threading
import warnings
from copy import deepcopy
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import problems
import pytest
from comparison import trellises_only
from problems import in_batches
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import ltls
from ltls import LTLSClassifier
from ltls.parts.trellis_training import TrellisTraining
from ltls.settings import Trellises, Views
from ltls.training.progress import InterruptGuard, TrainingInterruptedWarning


@pytest.fixture
def between_epochs(monkeypatch):
    """Let a function be called between epochs with the number of those that are done."""

    def register(function):
        numbers = count(1)
        monkeypatch.setattr(TrellisTraining, "update_codebooks", lambda *_: function(next(numbers)))

    return register


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
                self.in_pass = None
                raise KeyboardInterrupt
            yield batch
        self.passes += 1


def classifier(assignment="random", epochs=10, validation_fraction="auto", **settings):
    usual = {"n_trellises": 3, "width": 8, "average": False, "learning_rate": 0.3}
    given = Trellises(assignment=assignment, epochs=epochs, **usual, **settings)
    return trellises_only(given, validation_fraction=validation_fraction, random_state=0)


# fit and fit_stream


@pytest.mark.parametrize("held_out", [0, 0.2])
@pytest.mark.parametrize("n_epochs", [1, 4])
def test_an_interrupted_fit_keeps_the_epochs_so_far(digits, between_epochs, n_epochs, held_out):
    X, y = digits
    between_epochs(interrupt_after(n_epochs))
    settings = {"validation_fraction": held_out, "n_iter_no_change": 10}
    model = classifier(**settings)
    with pytest.warns(TrainingInterruptedWarning) as caught:
        assert model.set_params(calibration=False).fit(X, y) is model
    assert len(caught) == 1
    assert model.n_iter_ == len(model.loss_curve_) == n_epochs
    between_epochs(lambda _: None)
    whole = classifier(epochs=n_epochs, **settings).set_params(calibration=False).fit(X, y)
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
@pytest.mark.parametrize("parts", [{}, {"label_weights": True, "prototypes": True}], ids=str)
def test_an_interrupted_fit_of_several_labels_has_a_threshold(between_epochs, stream, parts):
    X, Y = make_multilabel_classification(300, n_classes=12, random_state=0)
    between_epochs(interrupt_after(1))
    model = classifier(epochs=5).set_params(**parts)
    with pytest.warns(TrainingInterruptedWarning) as caught:
        model = model.fit_stream(in_batches(X, Y, 100)) if stream else model.fit(X, Y)
    assert len(caught) == 1
    assert np.isfinite(model.threshold_)
    assert model.predict(X).shape == Y.shape


@pytest.mark.parametrize("assignment", ["random", "ranking", "similarity", "frequency", "learned"])
@pytest.mark.parametrize(("epoch", "batch"), [(1, 0), (1, 3), (2, 1)])
def test_an_interrupted_stream_keeps_a_model_that_predicts(digits, assignment, epoch, batch):
    X, y = digits
    model = classifier(assignment, 5)
    with pytest.warns(TrainingInterruptedWarning) as caught:
        model.fit_stream(InterruptedBatches(in_batches(X, y, 300), epoch, batch))
    assert len(caught) == 1
    # The second pass of "learned" is over label scores, before the second epoch.
    assert model.n_iter_ == (1 if assignment == "learned" else epoch)
    assert set(model.predict(X)) <= set(range(10))
    for book in model.codebooks_:
        paths = book.path_of(np.arange(10)).tolist()
        assert sorted(paths) == sorted(set(paths) - {-1})
    if (epoch, batch) == (2, 1):
        assert model.score(X, y) > 0.5


def test_an_interrupted_pass_over_statistics_propagates(digits):
    X, y = digits
    model = classifier("random", 2).fit(X, y)
    before = model.coef_.copy()
    with pytest.raises(KeyboardInterrupt):
        model.fit_stream(InterruptedBatches(in_batches(X, y, 300), 0, 2))
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
    model = classifier(epochs=100_000)
    with pytest.warns(TrainingInterruptedWarning):
        model.fit(X, y)
    thread.join()
    assert 1 <= model.n_iter_ == len(model.loss_curve_) < 100_000
    assert model.score(X, y) > 0.5


# Any line of any file


class InterruptedAtLine:
    """Raises `KeyboardInterrupt` at the n-th line of ltls that is run; None counts them."""

    folder = str(Path(ltls.__file__).parent)

    def __init__(self, number=None):
        self.number, self.n_lines = number, 0

    def __call__(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(self.folder):
            return None
        if event == "line":
            self.n_lines += 1
            if self.n_lines == self.number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    def run(self, work):
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work()
        finally:
            sys.settrace(before)


def learned(model):
    """Return all that a model has learned, for comparison."""
    fitted = model.__dict__.get("fitted_")
    if fitted is None:
        return None
    training = fitted.training.weights
    sections = [part.state()[1] for part in fitted.model.parts]
    if fitted.model.memory is not None:
        sections.append(
            fitted.model.memory.state(fitted.model.multilabel, fitted.model.columns.n_features)[1]
        )
    arrays = {f"{n}.{name}": each for n, own in enumerate(sections) for name, each in own.items()}
    arrays |= training.tensors()
    facts = (fitted.model.labels.values, fitted.provenance.facts(), training.step, training.epochs)
    return {name: each.tobytes() for name, each in arrays.items()}, repr(facts)


PARTS = {
    "trellises": {},
    "ranking": {"trellises": Trellises(assignment="ranking", n_trellises=2)},
    "views": {"views": Views(n_views=2, cluster_size=8), "prototypes": True, "neighbours": True},
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_an_interrupted_partial_fit_leaves_the_old_model_or_the_new_one(parts):
    X, y = problems.wide()
    model = LTLSClassifier(random_state=0, **parts).fit(X, y)
    batch = X[:30], [*y[:20], *["new"] * 10]
    model.partial_fit(X[:5], y[:5])
    before = learned(model)
    expected = deepcopy(model).partial_fit(*batch)
    n_old = 0
    for number in lines_of(deepcopy(model).partial_fit, *batch):
        try:
            InterruptedAtLine(number).run(partial(model.partial_fit, *batch))
        except KeyboardInterrupt:
            n_old += learned(model) == before
        if learned(model) != before:  # the call was almost over, or had fewer lines this time
            break
    assert n_old > 70
    if learned(model) == before:
        model.partial_fit(*batch)
    assert learned(model) == learned(expected)


def lines_of(work, *arguments):
    """Return the numbers of some lines that a call runs, spread evenly."""
    counting = InterruptedAtLine()
    counting.run(partial(work, *arguments))
    return np.linspace(1, counting.n_lines, 80).astype(int).tolist()


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_an_interrupted_fit_leaves_the_old_model_or_keeps_the_epochs_so_far(stream):
    X, y = (each[:250] for each in problems.sparse())
    given = Trellises(n_trellises=2, epochs=3)
    model = LTLSClassifier(trellises=given, views=True, random_state=0).fit(X, y)
    before, batches = learned(model), in_batches(X, y, 100)

    def work(estimator):
        return estimator.fit_stream(batches) if stream else estimator.fit(X, y)

    n_kept, whole = 0, learned(work(deepcopy(model)))
    for number in lines_of(work, deepcopy(model)):
        again = deepcopy(model)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", TrainingInterruptedWarning)
                InterruptedAtLine(number).run(partial(work, again))
        except KeyboardInterrupt:
            assert learned(again) in (before, whole)
        else:
            assert (again.n_iter_ <= 3) or not caught
            assert again.predict_topk(X, 3)[0].shape == (250, 3)
            n_kept += len(caught)
    assert n_kept > 5


# Clones, which meta-estimators fit

USES = {
    "search": lambda model, X, y: GridSearchCV(model, {"n_jobs": [1, 2]}, cv=2).fit(X, y),
    "cross-validation": lambda model, X, y: cross_val_score(model, X, y, cv=2),
    "pipeline": lambda model, X, y: cross_val_score(
        make_pipeline(MaxAbsScaler(), model), X, y, cv=2
    ),
    "clone": lambda model, X, y: clone(model).fit(X, y),
    "clone of a clone": lambda model, X, y: clone(clone(model)).fit(X, y),
    "stream": lambda model, X, y: clone(model).fit_stream(in_batches(X, y, 300)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_ctrl_c_ends_a_search_and_not_one_of_its_fits(digits, between_epochs, use):
    fits = []

    def interrupt(_):
        fits.append(1)
        raise KeyboardInterrupt

    between_epochs(interrupt)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainingInterruptedWarning)
        with pytest.raises(KeyboardInterrupt):
            use(classifier(epochs=3), *digits)
    assert len(fits) == 1


# The guard itself


def test_the_guard_warns_once_and_passes_other_errors_on():
    guard = InterruptGuard(keep=True)

    def interrupted_phase():
        with guard():
            raise KeyboardInterrupt

    with pytest.raises(ZeroDivisionError), guard():
        raise ZeroDivisionError
    assert not guard.interrupted
    with pytest.warns(TrainingInterruptedWarning):
        interrupted_phase()
    interrupted_phase()
    assert guard.interrupted
    with pytest.raises(KeyboardInterrupt), InterruptGuard(keep=False)():
        raise KeyboardInterrupt
