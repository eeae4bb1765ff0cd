"""Prototypes: log(max(0, cos) + 0.05), where cos is that of a row and a label's mean row."""

from types import SimpleNamespace

import numpy as np
import reference_parts as reference
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from small_parts import (
    N_FEATURES,
    N_LABELS,
    SEEDS,
    every,
    make_rows,
    prototype_part,
)

from ltls.parts.prototypes import PrototypePart


def unit(rows):
    """Dense rows of unit length, without the intercept."""
    return reference.scored_rows(rows.X, unit_length=True).astype(float)


def sums_of(rng, n_rows=60):
    """Rows with one label each, the sum of every label's rows of unit length, and their number."""
    rows = make_rows(rng, n_rows)
    labels = rng.integers(0, N_LABELS - 2, n_rows)  # two labels have no rows
    sums = np.zeros((N_LABELS, N_FEATURES + 1), np.float32)
    np.add.at(sums, (labels, slice(0, N_FEATURES)), unit(rows))
    return rows, labels, csr_array(sums), np.bincount(labels, minlength=N_LABELS)


@given(seed=SEEDS, n_kept=st.integers(1, 12))
def test_prototypes_are_mean_rows_of_which_the_largest_features_are_kept(seed, n_kept):
    rng = np.random.default_rng(seed)
    _, _, sums, counts = sums_of(rng)
    part = PrototypePart.of_sums(sums.__getitem__, counts, n_kept, True)
    means = sums.toarray().astype(float)
    lengths = np.linalg.norm(means, axis=1)
    for mean, length in zip(means, lengths, strict=True):
        mean[np.argsort(-np.abs(mean), kind="stable")[n_kept:]] = 0
        mean /= max(length, 1e-30)
    np.testing.assert_allclose(part.vectors.matrix().toarray(), means, atol=1 / 254)
    rows = make_rows(rng)
    cosines = unit(rows) @ means[:, :N_FEATURES].T
    wanted = np.log(np.maximum(0, cosines) + 0.05)
    np.testing.assert_allclose(part.score(rows, every(5), None), wanted, atol=0.2)


@given(seed=SEEDS)
def test_prototypes(seed):
    rng = np.random.default_rng(seed)
    part, rows = prototype_part(rng), make_rows(rng)
    products = reference.scored_rows(rows.X, intercept=True) @ part.vectors.matrix().toarray().T
    lengths = np.linalg.norm(rows.X.toarray(), axis=1, keepdims=True)
    wanted = np.log(np.maximum(0, products / lengths) + 0.05)
    np.testing.assert_allclose(part.score(rows, every(5), None), wanted, rtol=1e-5, atol=1e-5)
    found = part.candidates(rows, 4, None)
    np.testing.assert_array_equal(found, reference.largest(products.astype("f4"), 4)[0])


def test_prototypes_learn_the_rows_of_a_batch():
    rng = np.random.default_rng(0)
    _, _, sums, counts = sums_of(rng)
    _, _, more, n_more = sums_of(rng, 40)
    part = PrototypePart.of_sums(sums.__getitem__, counts, N_FEATURES + 1, True)
    of_batch = more.__getitem__, n_more
    context = SimpleNamespace(label_sums=lambda held_out=False: of_batch, intercept=True)
    learned = part.learn(context)
    assert learned.counts.tolist() == (counts + n_more).tolist()
    new = (counts == 0) & (n_more > 0)
    alone = PrototypePart.of_sums(*of_batch, N_FEATURES + 1, True).vectors.matrix().toarray()
    found, before = learned.vectors.matrix().toarray(), part.vectors.matrix().toarray()
    np.testing.assert_allclose(found[new], alone[new], atol=1 / 127)
    np.testing.assert_allclose(found[n_more == 0], before[n_more == 0], atol=1 / 127)
    total = csr_array(sums + more)
    both = PrototypePart.of_sums(total.__getitem__, counts, N_FEATURES + 1, True)
    wanted = both.vectors.matrix().toarray()
    cosines = (found * wanted).sum(axis=1)[counts + n_more > 0]
    assert cosines.min() > 0.9  # the lengths of sums are not known any more
    fitted = PrototypePart.fit(SimpleNamespace(n_features=3), context)
    assert (fitted.counts.tolist(), fitted.n_kept) == (n_more.tolist(), 3)
    np.testing.assert_array_equal(part.finish(context).vectors.matrix().toarray(), alone)
