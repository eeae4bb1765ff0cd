"""Predicting beside training in other threads, and training that fails half-way."""

import hashlib
import pickle
import threading
from contextlib import suppress
from copy import copy, deepcopy

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from ltls import LTLSClassifier
from ltls.parts.trellis_training import TrellisTraining
from ltls.settings import Trellises
from ltls.training import further

N_FEATURES = 5000


def rows(n, seed=0, n_features=N_FEATURES):
    """Return rows of few of the features, so that the model has weights for those alone."""
    rng = np.random.default_rng(seed)
    return random_array((n, n_features), density=3e-3, format="csr", dtype=np.float32, rng=rng)


def classifier(parts=None, **trellises):
    given = Trellises(**{"n_trellises": 2, "width": 3, **trellises})
    return LTLSClassifier(trellises=given, random_state=0, **(parts or {}))


def started(**options):
    return classifier(**options).fit(rows(60), np.arange(60) % 6)


VIEWS = {"views": True, "prototypes": True, "neighbours": True}
OPTIONS = [{}, {"assignment": "ranking"}, {"average": True}, {"density": 0.3}, {"parts": VIEWS}]


@pytest.mark.parametrize(
    "options",
    [{}, {"assignment": "ranking"}, {"assignment": "frequency"}, {"parts": VIEWS}],
    ids=str,
)
def test_readers_see_the_old_model_or_the_new_one(options):
    model = started(**options)
    X, finished, errors, seen = rows(20, 1), threading.Event(), [], set()

    def predict():
        try:
            while not finished.is_set():
                _, scores = model.predict_topk(X, 3)
                assert np.isfinite(scores).all()
                model.predict(X)
                model.predict_proba(X)
                seen.add(len(model.classes_))
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=predict) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for step in range(60):
            model.partial_fit(rows(4, 10 + step), np.arange(4) + 6 + 3 * step)
    finally:
        finished.set()
        for reader in readers:
            reader.join()
    assert errors == []
    assert len(seen) > 1
    assert len(model.classes_) == 6 + 3 * 60 + 1


ASKED = {
    "predict_topk": lambda model, X: model.predict_topk(X, 3),
    "predict_proba": lambda model, X: model.predict_proba(X),
    "predictor": lambda model, X: model.predictor(k=3)(csr_array(X)),
    "coef_": lambda model, X: model.coef_,
    "pickle": lambda model, X: list(
        pickle.loads(pickle.dumps(model)).fitted_.training.weights.tensors().values()
    ),
}


def digest(answer):
    """Return a checksum of the bits of an answer."""
    parts = answer if isinstance(answer, (tuple, list)) else [answer]
    return hashlib.sha256(
        b"".join(np.asarray(each, order="C").tobytes() for each in parts)
    ).hexdigest()


@pytest.mark.parametrize(
    "options", [{}, {"average": True}, {"assignment": "ranking"}, {"parts": VIEWS}], ids=str
)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_every_answer_is_of_the_model_between_two_calls(ask, dense, options):
    def batch(n, seed):
        X = rows(n, seed, 200)
        return X.toarray() if dense else X

    def begun():
        return classifier(density=1.0, **options).fit(batch(400, 0), np.arange(400) % 30)

    steps = [(batch(300, 10 + step), np.arange(300) % (30 + 3 * (step // 3))) for step in range(6)]
    X, twin = batch(40, 1), begun()
    known = [digest(ask(twin, X))]
    known += [digest(ask(twin.partial_fit(*step), X)) for step in steps]
    assert len(set(known)) == len(known)

    model, finished, seen, errors = begun(), threading.Event(), [], []

    def reader():
        try:
            while not finished.is_set():
                seen.append(digest(ask(model, X)))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for step in steps:
            model.partial_fit(*step)
    finally:
        finished.set()
        thread.join()
    assert errors == []
    assert set(seen) <= set(known)
    places = [known.index(each) for each in seen]
    assert places == sorted(places)
    assert digest(ask(model, X)) == known[-1]


def test_copies_of_an_estimator_learn_apart():
    model = started(density=1.0)
    model.partial_fit(rows(10, 5), np.arange(10))
    other = copy(model)
    twins = [deepcopy(model), deepcopy(model)]
    for step in range(4):
        for number, each in enumerate((model, other)):
            X, y = rows(10, 20 + step + 10 * number), np.arange(10) + number
            each.partial_fit(X, y)
            twins[number].partial_fit(X, y)
    for each, twin in zip((model, other), twins, strict=True):
        assert state(each) == state(twin)


def state(model):
    """Return all that a model has learned, as copies."""
    fitted = deepcopy(model.fitted_)
    model, known, training = fitted.model, fitted.provenance, fitted.training
    parts = {
        f"{part.name}.{name}": tensor.tolist()
        for part in model.parts
        for name, tensor in part.state()[1].items()
    }
    memory = (
        None
        if model.memory is None
        else model.memory.state(model.multilabel, model.columns.n_features)[1]
    )
    return {
        "labels": list(model.labels.values),
        "trellis": training.trellis,
        "paths": [
            book.path_of(np.arange(len(model.labels))).tolist() for book in training.codebooks
        ],
        "known": (known.facts(), known.counts.tolist()),
        "numbers": (model.typical_labels, model.calibration.threshold, model.weights),
        "features": None if model.columns.used is None else model.columns.used.tolist(),
        "parts": parts,
        "memory": None if memory is None else {k: v.tolist() for k, v in memory.items()},
        "arrays": {name: array.tolist() for name, array in training.weights.tensors().items()},
        "step": (training.weights.step, training.weights.epochs),
    }


STEPS = {"training": (TrellisTraining, "run"), "memory": (further, "_kept")}


@pytest.mark.parametrize("where", STEPS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_a_failed_partial_fit_leaves_the_estimator_as_it_was(monkeypatch, where, options, kind):
    model = started(**options)
    if "density" not in options:
        model.partial_fit(rows(10, 5), np.arange(10))
    before, attributes = state(model), dict(model.__dict__)
    owner, name = STEPS[where]
    own = getattr(owner, name)

    def work_and_fail(*arguments):
        own(*arguments)
        raise RuntimeError("half-way")

    X = rows(10, 7)
    for labels in (np.zeros(10, int), np.arange(100, 110)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, work_and_fail)
            with pytest.raises(RuntimeError, match="half-way"):
                model.partial_fit(X if kind == "sparse" else X.toarray(), labels)
        assert state(model) == before
        assert model.__dict__ == attributes
    other = deepcopy(model)
    for each in (model, other):
        each.partial_fit(X, np.arange(100, 110))
    assert state(model) == state(other)
    assert len(model.classes_) > len(before["labels"])


@pytest.mark.parametrize("index", [2**31 - 1, -(2**31), 200, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("part", ["indices", "indptr"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_x_may_change_while_it_is_learned(monkeypatch, part, index, n_jobs):
    X, y = rows(300, n_features=200), np.arange(300) % 20
    if abs(index) > 2**31:
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    run = TrellisTraining.run

    def change_and_run(*arguments):  # as another thread could, after X was validated
        getattr(X, part)[1::2] = index
        return run(*arguments)

    monkeypatch.setattr(TrellisTraining, "run", change_and_run)
    model = classifier({"n_jobs": n_jobs, "memory": False}, epochs=2, batch_size=8, density=1.0)
    with suppress(ValueError):  # the second epoch finds that it is invalid
        model.fit(X, y)
    assert getattr(X, part)[1] == index
