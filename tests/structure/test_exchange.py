"""Exchanges of paths between labels."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reference import Graph

from ltls import Trellis
from ltls.structure.exchange import exchange_paths


def total(graph, sums, paths):
    return sum(
        graph.scores(list(map(float, row)))[path] for row, path in zip(sums, paths, strict=True)
    )


@given(
    n_paths=st.integers(2, 40),
    n_free=st.integers(0, 5),
    width=st.integers(2, 5),
    seed=st.integers(0, 2**31),
)
def test_exchanges_keep_paths_distinct_and_never_lower_the_score(n_paths, n_free, width, seed):
    rng = np.random.default_rng(seed)
    trellis, graph = Trellis(n_paths, width), Graph(n_paths, width)
    n_labels = max(1, n_paths - n_free)
    before = rng.permutation(n_paths)[:n_labels]
    sums = rng.normal(size=(n_labels, trellis.n_edges)).astype(np.float32)
    sums *= rng.integers(0, 5, (n_labels, 1))  # some labels have no rows
    given_paths = before.copy()
    after = exchange_paths(trellis, sums, before)
    np.testing.assert_array_equal(before, given_paths)
    assert len(set(after.tolist())) == n_labels
    assert after.min() >= 0
    assert after.max() < n_paths
    assert total(graph, sums, after) >= total(graph, sums, before) - 1e-5
    if n_paths <= 16:  # every path is a candidate of every label
        assert_no_swap_gains(graph, sums, after)


def assert_no_swap_gains(graph, sums, paths):
    """No swap of two labels, and no move to a free path, raises the total score."""
    scores = [graph.scores(list(map(float, row))) for row in sums]
    label_of = {path: label for label, path in enumerate(paths.tolist())}
    for label, here in enumerate(paths.tolist()):
        for there in range(graph.n_classes):
            gain = scores[label][there] - scores[label][here]
            if gain > 0 and there in label_of:
                other = scores[label_of[there]]
                gain += other[here] - other[there]
            assert gain < 1e-5
