"""The multi-label threshold against every threshold that could be chosen."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ltls.model.threshold import best_threshold


def micro_f1(scores, hits, n_true, threshold):
    predicted = scores >= threshold
    return 2 * (hits & predicted).sum() / (predicted.sum() + n_true)


@given(
    n_rows=st.integers(1, 6),
    k=st.integers(1, 5),
    missed=st.integers(0, 5),
    n_values=st.sampled_from([2, 4, 1000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_threshold_has_a_better_f1(n_rows, k, missed, n_values, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, n_values, (n_rows, k)).astype(np.float32)  # with ties
    hits = rng.random((n_rows, k)) < 0.5
    n_true = int(hits.sum()) + missed
    chosen = micro_f1(scores, hits, n_true, best_threshold(scores, hits, n_true))
    best = max(micro_f1(scores, hits, n_true, threshold) for threshold in np.unique(scores))
    assert chosen >= best - 1e-12
