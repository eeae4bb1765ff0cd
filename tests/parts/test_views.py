"""Views: log Σ exp over clusterings of what trellises and label weights say of a label."""

import numpy as np
import pytest
import reference_parts as reference
from hypothesis import given
from hypothesis import strategies as st
from small_parts import (
    N_LABELS,
    SEEDS,
    SIZES,
    every,
    make_rows,
    section_of,
    trellis_part,
    view_part,
)

from ltls.parts.views import ViewPart, clusters_of


def view_scores(part, rows):
    """−max(0, 1 − s)³ + weight · b in every view; b is the mean over the view's trellises."""
    x = reference.scored_rows(rows.X, intercept=True)
    found = []
    for trellises, weights in part.views:
        b = trellises.score(rows, every(len(rows)), None).astype(float)
        gap = np.maximum(0, 1 - x @ weights.vectors.matrix().toarray().T)
        found.append(-(gap**3) + part.weight / len(trellises.codebooks) * b)
    return found


@given(
    seed=SEEDS,
    n_views=st.integers(1, 3),
    n_trellises=st.integers(1, 2),
    loss=st.sampled_from(["softmax", "logistic"]),
)
def test_views_add_up_as_the_log_of_the_sum_of_exponentials(seed, n_views, n_trellises, loss):
    rng = np.random.default_rng(seed)
    part, rows = view_part(rng, n_views, n_trellises, loss), make_rows(rng)
    each = view_scores(part, rows)
    wanted = np.logaddexp.reduce(each)
    np.testing.assert_allclose(part.score(rows, every(5), None), wanted, rtol=1e-4, atol=1e-4)
    found = part.candidates(rows, 4, None).reshape(5, n_views, 4)
    for view, scores in enumerate(each):
        # The best of the labels of four clusters in every trellis.
        trellises = part.views[view].trellises
        for row in range(5):
            own = found[row, view][found[row, view] >= 0]
            h = trellises.blocks(trellises.edge_scores(rows[np.array([row])]))
            known = set()
            for book, block in zip(trellises.codebooks, h, strict=True):
                paths = trellises.trellis.topk(trellises.decode_scores(block), 4)[0][0]
                known |= set(np.flatnonzero(np.isin(book.path_of(np.arange(N_LABELS)), paths)))
            wanted = -np.sort(-scores[row, sorted(known)])[:4]
            np.testing.assert_allclose(-np.sort(-scores[row, own]), wanted, rtol=1e-4, atol=1e-4)


def test_variants_of_views_have_other_weights():
    part, rows = view_part(np.random.default_rng(0)), make_rows(np.random.default_rng(1))
    weights = [variant.weight for variant in part.variants()]
    assert len(set(weights)) == len(weights) >= 3
    for variant in part.variants():
        wanted = np.logaddexp.reduce(view_scores(variant, rows))
        np.testing.assert_allclose(variant.score(rows, every(5), None), wanted, rtol=1e-4)


def test_clusters_have_every_label_once():
    part = trellis_part(np.random.default_rng(0), "buckets", 50, 12)
    ptr, members = clusters_of(part)
    assert sorted(members.tolist()) == list(range(50))
    paths = part.codebooks[0].path_of(np.arange(50))
    for cluster in range(12):
        own = members[ptr[cluster] : ptr[cluster + 1]]
        assert own.tolist() == np.flatnonzero(paths == cluster).tolist()


def test_the_trellises_of_views_must_share_paths():
    described, tensors = view_part(np.random.default_rng(0), 1).state()
    _, own = trellis_part(np.random.default_rng(0)).state()
    described["0"]["trellises"] = trellis_part(np.random.default_rng(0)).state()[0]
    tensors |= {f"0.trellises.{name}": tensor for name, tensor in own.items()}
    with pytest.raises(ValueError, match="trellises of a view must have buckets of labels"):
        ViewPart.from_state(section_of(described, tensors), SIZES)


def test_growing_views_grow_their_label_weights():
    part = view_part(np.random.default_rng(0))
    grown = part.grow(N_LABELS + 2, 3)
    for (trellises, weights), (same, more) in zip(part.views, grown.views, strict=True):
        assert same is trellises
        wanted = weights.grow(N_LABELS + 2, 3).vectors.matrix()
        assert (more.vectors.matrix() != wanted).nnz == 0
