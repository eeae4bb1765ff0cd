"""Label weights: −max(0, 1 − s)³, where s is the output of a label's classifier."""

from types import SimpleNamespace

import numpy as np
import pytest
import reference_parts as reference
from hypothesis import given
from hypothesis import strategies as st
from problems import sparse
from scipy.sparse import csr_array, random_array
from small_parts import (
    N_FEATURES,
    N_LABELS,
    SEEDS,
    every,
    label_weight_part,
    make_rows,
)

from ltls import LTLSClassifier
from ltls.parts.label_weights import LabelWeightPart, usual_cost
from ltls.settings import Numbers


@given(seed=SEEDS)
def test_label_weights(seed):
    rng = np.random.default_rng(seed)
    part, rows = label_weight_part(rng), make_rows(rng)
    s = reference.scored_rows(rows.X, intercept=True) @ part.vectors.matrix().toarray().T
    wanted = -(np.maximum(0, 1 - s) ** 3)
    np.testing.assert_allclose(part.score(rows, every(5), None), wanted, rtol=1e-5)


@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_pruning_keeps_the_largest_label_weights(density):
    rng = np.random.default_rng(0)
    W = random_array((40, 31), density=0.3, rng=rng, data_sampler=rng.standard_normal)
    part = LabelWeightPart.of_matrix(W.tocsr().astype(np.float32), True)
    before = part.vectors.matrix().toarray()
    after = part.pruned(density).vectors.matrix().toarray()
    n_before, kept, dropped = (before != 0).sum(), after != 0, (before != 0) & (after == 0)
    assert kept.sum() == pytest.approx(density * n_before, abs=0.02 * n_before)
    np.testing.assert_allclose(after[kept], before[kept], rtol=0.2, atol=1e-2)
    if kept.any() and dropped.any():
        assert np.abs(before[kept]).min() >= np.abs(before[dropped]).max()
    assert (part.vectors.matrix().toarray() == before).all()


def test_label_weights_of_nothing_are_pruned():
    empty = LabelWeightPart.of_matrix(csr_array((3, 4), dtype=np.float32), False).pruned(0.5)
    assert (empty.vectors.matrix().shape, empty.vectors.matrix().nnz) == ((3, 4), 0)


@given(seed=SEEDS, n_labels=st.integers(1, 8))
def test_the_weights_of_some_labels_are_replaced(seed, n_labels):
    rng = np.random.default_rng(seed)
    part = label_weight_part(rng)
    some = rng.permutation(N_LABELS)[:n_labels]
    W = random_array((n_labels, N_FEATURES + 1), density=0.5, rng=rng, format="csr", dtype="f4")
    found = part.replaced(some, W).vectors.matrix().toarray()
    others = np.delete(np.arange(N_LABELS), some)
    before = part.vectors.matrix().toarray()
    np.testing.assert_allclose(found[others], before[others], atol=3 / 254)  # rounded again
    np.testing.assert_allclose(found[some], W.toarray(), atol=1 / 254)


def test_the_usual_cost():
    for n_rows, cost in ((100, 0.5), (10, 0.8), (2, 2)):
        context = SimpleNamespace(several=True, n_labels=5, counts=np.full(5, n_rows))
        assert usual_cost(context, 0.9) == cost
    one = SimpleNamespace(several=False)
    assert usual_cost(one, 0.9) == 4
    assert usual_cost(one, 0.1) == 0.25


@pytest.mark.parametrize("times", [1 / 16, 1.0])
def test_long_rows_have_label_weights(digits, times):
    X, y = digits
    model = LTLSClassifier(views=True, random_state=0).fit(times * 16 * X[:1200], y[:1200])
    assert model.score(times * 16 * X[1200:], y[1200:]) > 0.85


def test_rows_that_are_not_normalized_have_as_many_label_weights():
    X, y = sparse()
    numbers = {}
    for times in (1, 100):
        given = {"features": Numbers(normalize=False), "views": True, "random_state": 0}
        model = LTLSClassifier(**given).fit(times * X, y)
        numbers[times] = model.model_.part("views").describe()["label_weights"]
    assert numbers[100] == pytest.approx(numbers[1], rel=0.05)
