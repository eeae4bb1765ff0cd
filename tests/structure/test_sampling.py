"""Sampling of paths: frequencies and log-probabilities are those of the oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import MINUS_INFINITY, Graph
from scipy.stats import chisquare

from ltls import Trellis

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def probabilities(graph, h, temperature=1.0):
    """The probabilities of all paths, by enumeration."""
    scores = np.array(graph.scores((np.asarray(h, float) / temperature).tolist()))
    share = np.exp(scores - scores.max())
    return share / share.sum()


@DTYPES
@pytest.mark.parametrize("size", [(2, 2), (5, 2), (22, 2), (27, 3), (100, 4), (60, 7), (13, 13)])
def test_paths_are_drawn_by_their_probability(instruction_set, dtype, size):
    trellis, graph = Trellis(*size), Graph(*size)
    h = np.random.default_rng(0).normal(size=trellis.n_edges).astype(dtype)
    paths, log_probs = trellis.sample(h, 40_000, random_state=1)
    expected = probabilities(graph, h)
    seen = np.bincount(paths, minlength=trellis.n_classes)
    assert chisquare(seen, expected * len(paths)).pvalue > 1e-4
    assert log_probs.dtype == dtype
    np.testing.assert_allclose(np.exp(log_probs), expected[paths], rtol=1e-4)


@settings(max_examples=60)
@given(st.integers(1, 200), st.integers(2, 9), st.integers(0, 2**32 - 1), st.sampled_from([0.3, 5]))
def test_any_size_ties_forbidden_edges_and_temperatures(n_classes, width, seed, temperature):
    trellis, graph = Trellis(n_classes, width), Graph(n_classes, width)
    rng = np.random.default_rng(seed)
    h = rng.integers(-1, 2, trellis.n_edges).astype(float)
    h[rng.random(trellis.n_edges) < 0.2] = MINUS_INFINITY
    paths, log_probs = trellis.sample(h, 50, temperature, random_state=seed)
    scores = np.array(graph.scores(h.tolist()))
    if np.isneginf(scores).all():
        assert (paths == -1).all()
        assert np.isneginf(log_probs).all()
        return
    expected = probabilities(graph, h, temperature)
    assert (expected[paths] > 0).all()
    np.testing.assert_allclose(np.exp(log_probs), expected[paths], rtol=1e-9)


def test_rows_of_a_batch_are_independent_and_threads_change_nothing():
    trellis = Trellis(1000, 4)
    h = np.tile(np.random.default_rng(0).normal(size=trellis.n_edges), (64, 1))
    paths, log_probs = trellis.sample(h, 20, random_state=3)
    again = trellis.sample(h, 20, random_state=3, n_jobs=4)
    np.testing.assert_array_equal(paths, again[0])
    np.testing.assert_array_equal(log_probs, again[1])
    assert len({tuple(row) for row in paths.tolist()}) == 64
    assert (trellis.sample(h, 20, random_state=4)[0] != paths).any()
    np.testing.assert_allclose(
        log_probs, trellis.score(h, paths) - trellis.log_partition(h)[:, None], rtol=1e-9
    )


def test_sampling_from_2_to_the_62_classes():
    trellis = Trellis(2**62, 8)
    paths, log_probs = trellis.sample(np.zeros(trellis.n_edges), 1000, random_state=0)
    assert len(set(paths.tolist())) == 1000
    np.testing.assert_allclose(log_probs, -62 * np.log(2))


def test_invalid_arguments_of_sample_are_named():
    trellis = Trellis(22)
    h = np.zeros(trellis.n_edges)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        trellis.sample(h, 1, temperature=0)
    with pytest.raises(ValueError, match="n must be at least 1"):
        trellis.sample(h, 0)
    h[3] = np.nan
    with pytest.raises(ValueError, match="row 0 holds NaN"):
        trellis.sample(h, 1)
