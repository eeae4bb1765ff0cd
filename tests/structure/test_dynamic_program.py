"""The dynamic programs against the brute-force oracle, and properties of their definitions."""

import math
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import assert_all_same, edge_scores
from reference import MINUS_INFINITY, Graph

from ltls import Trellis

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
TOLERANCE = {np.float32: 5e-5, np.float64: 1e-11}


class Case:
    """A trellis, rows of edge scores, and the oracle's results for every row.

    The first ``n_distinct`` rows are all different and the others repeat them, so that a batch is
    longer than a vector register. Sums are free of rounding in the rows that ``exact`` marks.
    """

    def __init__(self, trellis, graph, seed=0, kinds=slice(None), n_rows=37):
        self.trellis = trellis
        rng = np.random.default_rng([seed, graph.n_classes, graph.width])
        distinct, exact = self._one_row_of_each_kind(rng, len(graph.edges))
        distinct, exact = distinct[kinds], exact[kinds]
        self.n_distinct = len(distinct)
        rows = distinct.tolist()
        rankings = [graph.topk(h, graph.n_classes) for h in rows]
        answers = {
            "h": distinct,
            "exact": exact,
            "path_scores": [graph.scores(h) for h in rows],
            "best_paths": [[path for path, _ in ranking] for ranking in rankings],
            "best_scores": [[score for _, score in ranking] for ranking in rankings],
            "log_partition": [graph.log_partition(h) for h in rows],
            "marginals": [graph.marginals(h) for h in rows],
        }
        repeated = np.arange(n_rows) % self.n_distinct
        for name, answer in answers.items():
            setattr(self, name, np.array(answer)[repeated])

    def _one_row_of_each_kind(self, rng, n_edges):
        h = rng.normal(scale=2, size=(9, n_edges))
        h[[4, 5, 6, 7]] = rng.integers(-1, 2, size=(4, n_edges))
        for row in (2, 3, 6, 7):
            h[row, rng.random(n_edges) < 0.25] = MINUS_INFINITY
        h[8] = MINUS_INFINITY
        return h, np.arange(9) >= 4


def check_score(case, dtype):
    paths = np.broadcast_to(np.arange(case.trellis.n_classes), case.path_scores.shape)
    scores = case.trellis.score(case.h.astype(dtype), paths)
    assert scores.dtype == dtype
    assert_close(scores, case.path_scores, dtype, case)
    assert_same(scores[case.exact], case.path_scores[case.exact], case)


def check_viterbi(case, dtype):
    paths, scores = case.trellis.viterbi(case.h.astype(dtype))
    assert paths.shape == scores.shape == (len(case.h),)
    assert_ranking(paths[:, None], scores[:, None], case, dtype)


def check_topk(case, dtype):
    n_classes = case.trellis.n_classes
    for k in (1, 2, 5):
        paths, scores = case.trellis.topk(case.h.astype(dtype), k)
        assert paths.shape == scores.shape == (len(case.h), min(k, n_classes))
        assert_ranking(paths, scores, case, dtype)


def check_topk_of_all_paths(case, dtype):
    n_classes = case.trellis.n_classes
    paths, scores = case.trellis.topk(case.h[: case.n_distinct].astype(dtype), n_classes + 3)
    assert paths.shape == scores.shape == (case.n_distinct, n_classes)
    assert_ranking(paths, scores, case, dtype)


def check_log_partition(case, dtype):
    found = case.trellis.log_partition(case.h.astype(dtype))
    assert found.dtype == dtype
    assert_close(found, case.log_partition, dtype, case)


def check_marginals(case, dtype):
    found = case.trellis.marginals(case.h.astype(dtype))
    assert found.dtype == dtype
    assert_close(found, case.marginals, dtype, case)


CHECKS = [
    check_score,
    check_viterbi,
    check_topk,
    check_topk_of_all_paths,
    check_log_partition,
    check_marginals,
]


def assert_same(found, expected, case):
    np.testing.assert_array_equal(found, expected, err_msg=repr(case.trellis))


def assert_close(found, expected, dtype, case):
    tolerance = TOLERANCE[dtype]
    message = f"{case.trellis}, {np.dtype(dtype)}"
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=message)


def assert_ranking(paths, scores, case, dtype):
    """Rounding to single precision may swap paths of nearly equal score, and nothing else may."""
    n_rows, k = paths.shape
    best_paths, best_scores = case.best_paths[:n_rows, :k], case.best_scores[:n_rows, :k]
    exact = case.exact[:n_rows]
    assert paths.dtype == np.int64
    assert scores.dtype == dtype
    assert_close(scores, best_scores, dtype, case)
    assert_same(scores[exact], best_scores[exact], case)
    certain = exact | (np.dtype(dtype) == np.float64)
    assert_same(paths[certain], best_paths[certain], case)
    assert_same(paths == -1, best_paths == -1, case)
    own_scores = np.take_along_axis(case.path_scores[:n_rows], np.maximum(paths, 0), axis=1)
    assert_close(np.where(paths == -1, MINUS_INFINITY, own_scores), best_scores, dtype, case)
    for row in paths:
        found = row[row >= 0]
        assert len(set(found.tolist())) == len(found), case.trellis


# Against the oracle: every number of classes from 1 to 300 at every width from 2 to 9


@pytest.fixture(scope="module")
def cases(small):
    return [Case(trellis, graph) for trellis, graph in small]


@DTYPES
@pytest.mark.parametrize("check", CHECKS)
def test_every_number_of_classes_agrees_with_the_oracle(cases, check, dtype):
    for case in cases:
        check(case, dtype)


# Against the oracle: every instruction set


@pytest.fixture(scope="module")
def few_cases():
    widths = (2, 3, 4, 7, 8, 9, 15, 16, 17, 33, 64)
    sizes = (1, 2, 3, 22, 64, 105, 255, 300, 1000)
    return [Case(Trellis(c, width), Graph(c, width)) for width in widths for c in sizes]


@DTYPES
@pytest.mark.parametrize("check", CHECKS)
def test_every_instruction_set_agrees_with_the_oracle(instruction_set, few_cases, check, dtype):
    for case in few_cases:
        check(case, dtype)


@DTYPES
def test_every_instruction_set_finds_the_same_paths(instruction_set, dtype):
    trellis = Trellis(10**9, width=7)
    h = edge_scores(trellis, 50, dtype=dtype)
    h[np.random.default_rng(1).random(h.shape) < 0.05] = MINUS_INFINITY
    expected = [Graph(10**9, 7).topk_recursive(row, 9) for row in h.astype(float).tolist()]
    paths, scores = trellis.topk(h, 9)
    expected_scores = [[score for _, score in row] for row in expected]
    np.testing.assert_allclose(scores, expected_scores, rtol=TOLERANCE[dtype])
    if dtype == np.float64:
        assert paths.tolist() == [[path for path, _ in row] for row in expected]


# Against the oracle: more classes


@settings(max_examples=60)
@given(
    n_classes=st.integers(301, 20_000),
    width=st.integers(2, 40) | st.integers(41, 200),
    seed=st.integers(0, 2**32 - 1),
)
def test_more_classes_agree_with_the_oracle(n_classes, width, seed):
    trellis, graph = Trellis(n_classes, width), Graph(n_classes, width)
    case = Case(trellis, graph, seed=seed, kinds=[2, 4, 6])
    for dtype in TOLERANCE:
        for check in (check_viterbi, check_topk, check_log_partition, check_marginals):
            check(case, dtype)


@given(
    n_classes=st.integers(1, 2**62),
    width=st.integers(2, 12),
    k=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_ties_go_to_the_smaller_path_at_any_size(n_classes, width, k, seed):
    rng = random.Random(seed)
    trellis, graph = Trellis(n_classes, width), Graph(n_classes, width)
    choices = [MINUS_INFINITY, 0, 0, 0, 1]
    h = [float(rng.choice(choices)) for _ in graph.edges]
    paths, scores = trellis.topk(np.array(h, dtype=np.float32), k)
    found = list(zip(paths.tolist(), scores.tolist(), strict=True))
    assert found == graph.topk_recursive(h, k)


# Trellises with too many paths to enumerate


def test_topk_of_a_huge_trellis(huge):
    trellis, graph = huge
    h = edge_scores(trellis)
    expected = graph.topk_recursive(h.tolist(), 5)
    paths, scores = trellis.topk(h, 5)
    assert paths.tolist() == [path for path, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-12)
    np.testing.assert_allclose(trellis.score(h, paths), scores, rtol=1e-12)
    assert trellis.viterbi(h) == (paths[0], scores[0])


def test_log_partition_of_a_huge_trellis(huge):
    trellis, graph = huge
    h = edge_scores(trellis)
    expected = graph.log_partition_recursive(h.tolist())
    assert trellis.log_partition(h) == pytest.approx(expected, rel=1e-12)


def test_equal_scores_make_a_huge_trellis_count_its_paths(huge):
    trellis, graph = huge
    h = np.zeros(trellis.n_edges)
    assert trellis.log_partition(h) == pytest.approx(math.log(graph.n_classes), rel=1e-14)
    expected = [count / graph.n_classes for count in graph.paths_through_edges()]
    np.testing.assert_allclose(trellis.marginals(h), expected, rtol=1e-11)


def test_the_last_path_of_a_huge_trellis_can_be_the_best(huge):
    trellis, graph = huge
    last = graph.n_classes - 1
    h = np.zeros(trellis.n_edges, dtype=np.float32)
    h[trellis.path_edges(last)] = 1
    assert trellis.viterbi(h) == (last, trellis.longest_path)


@pytest.mark.perf
@pytest.mark.parametrize("n_classes", [10**12, 2**62])
@pytest.mark.parametrize("width", [2, 8])
def test_a_huge_trellis_takes_microseconds(n_classes, width):
    trellis = Trellis(n_classes, width)
    h = edge_scores(trellis, dtype=np.float32)
    path = n_classes // 3
    calls = {
        "path_of(path_edges)": lambda: trellis.path_of(trellis.path_edges(path)),
        "viterbi": lambda: trellis.viterbi(h),
        "topk": lambda: trellis.topk(h, 5),
        "log_partition": lambda: trellis.log_partition(h),
        "marginals": lambda: trellis.marginals(h),
    }
    for name, call in calls.items():
        assert shortest_time(call) < 200e-6, name


def shortest_time(call, n_times=100):
    times = []
    for _ in range(n_times):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


# Properties of the definitions


@pytest.mark.parametrize(("n_classes", "width"), [(2, 2), (22, 2), (300, 3), (1000, 10), (77, 77)])
def test_marginals_are_the_gradient_of_log_partition(n_classes, width):
    trellis = Trellis(n_classes, width)
    h = edge_scores(trellis)
    step = 1e-5 * np.eye(trellis.n_edges)
    slopes = (trellis.log_partition(h + step) - trellis.log_partition(h - step)) / 2e-5
    np.testing.assert_allclose(trellis.marginals(h), slopes, atol=1e-8)


@pytest.mark.parametrize(("n_classes", "width"), [(22, 2), (10**6, 5), (2**62 - 1, 3)])
def test_marginals_that_enter_a_vertex_leave_it(n_classes, width):
    trellis = Trellis(n_classes, width)
    marginals = trellis.marginals(edge_scores(trellis))
    n_vertices = trellis.edges.max() + 1
    entering = np.bincount(trellis.edges[:, 1], weights=marginals, minlength=n_vertices)
    leaving = np.bincount(trellis.edges[:, 0], weights=marginals, minlength=n_vertices)
    assert leaving[0] == pytest.approx(1)
    assert entering[-1] == pytest.approx(1)
    np.testing.assert_allclose(entering[1:-1], leaving[1:-1], atol=1e-12)


@pytest.mark.parametrize("width", [2, 8])
def test_paths_that_rounding_ties_keep_one_order_for_every_k(width):
    trellis = Trellis(5000, width)
    rng = np.random.default_rng(0)
    magnitudes = 10.0 ** rng.integers(-8, 3, size=(200, trellis.n_edges))
    h = (rng.normal(size=magnitudes.shape) * magnitudes).astype(np.float32)
    paths, scores = trellis.topk(h, 20)
    assert (np.diff(scores, axis=1) == 0).any()
    for k in (1, 2, 7):
        assert_all_same(trellis.topk(h, k), (paths[:, :k], scores[:, :k]))
    assert_all_same(trellis.viterbi(h), (paths[:, 0], scores[:, 0]))


@DTYPES
@pytest.mark.parametrize("shift", [-3000.0, 3000.0])
def test_a_constant_on_the_source_edges_shifts_log_partition_only(dtype, shift):
    trellis = Trellis(1000, 4)
    h = np.random.default_rng(0).integers(-3, 4, size=(5, trellis.n_edges)).astype(dtype)
    shifted = h.copy()
    shifted[:, :4] += shift
    moved = trellis.log_partition(shifted) - trellis.log_partition(h)
    tolerance = {np.float32: 1e-2, np.float64: 1e-9}[dtype]
    np.testing.assert_allclose(moved, shift, atol=tolerance)
    np.testing.assert_allclose(trellis.marginals(shifted), trellis.marginals(h), atol=tolerance)


@DTYPES
def test_very_different_scores_neither_overflow_nor_vanish(dtype):
    trellis = Trellis(1000, 4)
    h = 10_000 * edge_scores(trellis, 5, dtype=dtype)
    paths, scores = trellis.viterbi(h)
    np.testing.assert_allclose(trellis.log_partition(h), scores, rtol=1e-6)
    expected = np.zeros(h.shape)
    for row, path in enumerate(paths):
        expected[row, trellis.path_edges(path)] = 1
    np.testing.assert_allclose(trellis.marginals(h), expected, atol=1e-6)
