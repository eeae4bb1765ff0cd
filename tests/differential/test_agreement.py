"""The same rows through every way of computing them: equal, or equal to a stated tolerance.

Results are the same bits for any number of threads, for mapped and loaded weights, for batches and
single rows, and for AVX2 and AVX-512. The baseline build has no fused multiply-add and rounds twice
where the others round once: scores of the same weights differ by less than 2e-5 there, and training
adds such differences up. Label weights are trained without fused operations, to the same bits in
every build. A build that this machine lacks is skipped.
"""

import hashlib
import re
from functools import cache
from pathlib import Path

import numpy as np
import problems
import pytest

from ltls import LTLSClassifier, load
from ltls.core import _engine
from ltls.settings import Trellises, Views

ALL_SETS = ("baseline", "avx2", "avx512")
TOLERANCE = 2e-5
PROBLEMS = {
    "one label": lambda: problems.sparse(),
    "several labels": lambda: problems.sparse(multilabel=True),
    "dense": lambda: problems.digits(),
    "all parts": lambda: problems.sparse(),
    "all parts, several labels": lambda: problems.sparse(multilabel=True),
    "label matrix": lambda: problems.digits(),
}
ALL_PARTS = {"label_weights": True, "prototypes": True, "neighbours": True}
PARTS = {
    "all parts": {**ALL_PARTS, "views": Views(n_views=2, cluster_size=8)},
    "all parts, several labels": {**ALL_PARTS, "views": False},
    "label matrix": {"label_matrix": True},
}
with_each_problem = pytest.mark.parametrize("problem", PROBLEMS)
with_each_loss = pytest.mark.parametrize("loss", ["softmax", "separation", "logistic"])


@pytest.fixture(params=ALL_SETS)
def each_set(request):
    """The engine restricted to one instruction set."""
    if request.param not in _engine.instruction_sets():
        pytest.skip(f"this machine has no {request.param}")
    before = _engine.use_instruction_set(request.param)
    yield request.param
    _engine.use_instruction_set(before)


def fitted(problem, loss, n_jobs=None, **settings):
    X, y = PROBLEMS[problem]()
    usual = {"width": 4, "n_trellises": 3, "epochs": 3, "dtype": "float32"}
    trellises = Trellises(loss=loss, **{**usual, **settings})
    parts = PARTS.get(problem, {})
    model = LTLSClassifier(trellises=trellises, n_jobs=n_jobs, random_state=0, **parts).fit(X, y)
    return model, X


def weights_of(model):
    return np.hstack([part.weights.dense() for part in model.model_.trellises()])


def label_weights_of(model):
    views = model.model_.part("views")
    parts = [model.model_.part("label_weights")] if views is None else views.views
    own = [getattr(part, "label_weights", part) for part in parts if part is not None]
    return [part.vectors.matrix().toarray() for part in own]


@cache
def trained_with(instruction_set, problem, loss):
    """Return what training with one instruction set gives: weights, best labels and scores."""
    before = _engine.use_instruction_set(instruction_set)
    try:
        model, X = fitted(problem, loss)
        return weights_of(model), label_weights_of(model), *model.predict_topk(X, 5)
    finally:
        _engine.use_instruction_set(before)


@with_each_problem
@with_each_loss
def test_instruction_sets_train_and_predict_alike(each_set, problem, loss):
    best = _engine.instruction_sets()[-1]
    weights, own, labels, scores = trained_with(each_set, problem, loss)
    expected_weights, expected_own, expected_labels, expected_scores = trained_with(
        best, problem, loss
    )
    rounds_twice = "baseline" in (each_set, best) and each_set != best
    if rounds_twice:
        np.testing.assert_allclose(weights, expected_weights, rtol=0, atol=1e-3)
    else:
        np.testing.assert_array_equal(weights, expected_weights)
    for found, expected in zip(own, expected_own, strict=True):
        np.testing.assert_array_equal(found, expected)
    if own or rounds_twice:
        assert (labels[:, 0] == expected_labels[:, 0]).mean() > 0.99
        return
    np.testing.assert_array_equal(labels, expected_labels)
    np.testing.assert_array_equal(scores, expected_scores)


# Of trained trellises, by width and loss. Change them only with training itself.
DIGESTS = {
    (2, "softmax"): "d5b2a84bc236d56f",
    (2, "separation"): "eab5ade8841dc81e",
    (2, "logistic"): "5be7d528a2624c1a",
    (8, "softmax"): "06ff4c44c7f9f10d",
    (8, "separation"): "236e368ce1c21f1a",
    (8, "logistic"): "8f90f93d8dd90e91",
}


@pytest.mark.parametrize("each_set", ["avx2", "avx512"], indirect=True)
@pytest.mark.parametrize(("width", "loss"), DIGESTS)
def test_training_gives_the_same_bits_as_before(each_set, width, loss):
    engine = Path(_engine.__file__).read_bytes()
    if not re.search(rb"GCC: \([^)]*\) 12\.", engine) or re.search(rb"__(a|t|ub)san_", engine):
        pytest.skip("the digests are of GCC 12; compilers fuse different operations")
    model, _ = fitted("one label", loss, width=width, n_trellises=2)
    assert hashlib.sha256(weights_of(model).tobytes()).hexdigest()[:16] == DIGESTS[width, loss]


@with_each_problem
@with_each_loss
def test_instruction_sets_score_the_same_weights_alike(problem, loss):
    model, X = fitted(problem, loss, epochs=1)
    before, scores = _engine.instruction_set(), {}
    try:
        for name in _engine.instruction_sets():
            _engine.use_instruction_set(name)
            scores[name] = model.predict_topk(X, 5)[1]
    finally:
        _engine.use_instruction_set(before)
    expected = scores[_engine.instruction_sets()[-1]]
    for name, found in scores.items():
        if name == "baseline":
            np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
        else:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("one label", {"n_jobs": 2}),
        ("several labels", {"n_jobs": 3}),
        ("dense", {"n_jobs": 2}),
        ("all parts", {"n_jobs": 3}),
        ("all parts, several labels", {"n_jobs": 2}),
        ("one label", {"n_jobs": 2, "batch_size": 16, "n_trellises": 1, "epochs": 1}),
    ],
    ids=str,
)
def test_threads_change_nothing(each_set, problem, options):
    several, X = fitted(problem, "auto", **options)
    one, _ = fitted(problem, "auto", **{**options, "n_jobs": 1})
    np.testing.assert_array_equal(weights_of(several), weights_of(one))
    for ours, theirs in zip(several.predict_topk(X, 5), one.predict_topk(X, 5), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@with_each_problem
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_mapped_and_loaded_weights_predict_alike(each_set, tmp_path, problem, dtype):
    model, X = fitted(problem, "auto", epochs=1, dtype=dtype)
    model.save(tmp_path / "model.ltls")
    mapped, loaded = (load(tmp_path / "model.ltls", mmap=mmap) for mmap in (True, False))
    for ours, theirs in zip(mapped.predict_topk(X, 5), loaded.predict_topk(X, 5), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@with_each_problem
@with_each_loss
@pytest.mark.parametrize("density", [1.0, 0.3])
def test_batches_and_single_rows_predict_alike(each_set, problem, loss, density):
    model, X = fitted(problem, loss, epochs=1, density=density)
    X = X[:40]
    labels, scores = model.predict_topk(X, 3)
    predictor = model.predictor(k=3)
    for row in range(X.shape[0]):
        one = X[row : row + 1]
        found = model.predict_topk(one, 3)
        np.testing.assert_array_equal(found[0], labels[row : row + 1])
        np.testing.assert_array_equal(found[1], scores[row : row + 1])
        if hasattr(X, "indptr"):
            found = predictor(one.indices, one.data)
        else:
            (used,) = np.nonzero(one[0])
            found = predictor(used, one[0, used])
        np.testing.assert_array_equal(found[0], labels[row])
        np.testing.assert_array_equal(found[1], scores[row])
