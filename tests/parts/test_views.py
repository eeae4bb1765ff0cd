"""Views: log Σ exp over clusterings of what trellises and weights of labels and clusters say."""

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

from ltls.model.examples import Examples
from ltls.parts.views import ViewPart, clusters_of


def view_scores(part, rows):
    """−max(0, 1 − s)³ + weight · b − cluster_weight · max(0, 1 − c)³ in every view.

    b is the mean over the view's trellises.
    """
    x = reference.scored_rows(rows.X, intercept=True)
    found = []
    for trellises, weights, clusters in part.views:
        b = trellises.score(rows, every(len(rows)), None).astype(float)
        gap = np.maximum(0, 1 - x @ weights.vectors.matrix().toarray().T)
        found.append(-(gap**3) + part.weight / len(trellises.codebooks) * b)
        if clusters is not None:
            paths = trellises.codebooks[0].path_of(np.arange(weights.vectors.n_labels))
            gap = np.maximum(0, 1 - x @ clusters.vectors.matrix().toarray()[paths].T)
            found[-1] -= part.cluster_weight * gap**3
    return found


@given(
    seed=SEEDS,
    n_views=st.integers(1, 3),
    n_trellises=st.integers(1, 2),
    loss=st.sampled_from(["softmax", "logistic"]),
    cluster_weight=st.sampled_from([0.0, 0.25, 1.0]),
)
def test_views_add_up_as_the_log_of_the_sum_of_exponentials(
    seed, n_views, n_trellises, loss, cluster_weight
):
    rng = np.random.default_rng(seed)
    part = view_part(rng, n_views, n_trellises, loss, cluster_weight=cluster_weight)
    rows = make_rows(rng)
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
                g = trellises.decode_scores(block)
                of_paths = trellises.trellis.score(g, np.arange(book.n_paths)[None])[0].astype(
                    float
                )
                if cluster_weight and book is trellises.codebooks[0]:
                    vectors = part.views[view].cluster_weights.vectors.matrix().toarray()
                    x = reference.scored_rows(rows.X, intercept=True)[row]
                    share = cluster_weight * n_trellises / part.weight
                    of_paths -= share * np.maximum(0, 1 - vectors @ x) ** 3
                paths = np.argsort(-of_paths, kind="stable")[:4]
                known |= set(np.flatnonzero(np.isin(book.path_of(np.arange(N_LABELS)), paths)))
            wanted = -np.sort(-scores[row, sorted(known)])[:4]
            np.testing.assert_allclose(-np.sort(-scores[row, own]), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cluster_weight", [0.0, 0.5])
def test_variants_of_views_have_other_weights(cluster_weight):
    part = view_part(np.random.default_rng(0), cluster_weight=cluster_weight)
    rows = make_rows(np.random.default_rng(1))
    weights = [(variant.weight, variant.cluster_weight) for variant in part.variants()]
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


def test_growing_views_grow_their_weights():
    part = view_part(np.random.default_rng(0), cluster_weight=0.5)
    grown = part.grow(N_LABELS + 2, 3)
    for (trellises, weights, clusters), (same, *more) in zip(part.views, grown.views, strict=True):
        assert same is trellises
        n_clusters = trellises.trellis.n_classes
        wanted = weights.grow(N_LABELS + 2, 3), clusters.grow(n_clusters, 3)
        for ours, theirs in zip(more, wanted, strict=True):
            assert (ours.vectors.matrix() != theirs.vectors.matrix()).nnz == 0


def test_rows_have_every_cluster_of_their_labels_once():
    rng = np.random.default_rng(0)
    groups, rows = rng.integers(0, 5, 12), make_rows(rng)
    lists = [rng.permutation(12)[:n] for n in (3, 0, 5, 1, 2)]
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in lists])])
    found = Examples(rows, indptr, np.concatenate(lists), None, True).grouped(groups)
    for row, labels in enumerate(lists):
        own = found.labels[found.indptr[row] : found.indptr[row + 1]].tolist()
        assert own == sorted({int(groups[label]) for label in labels})
