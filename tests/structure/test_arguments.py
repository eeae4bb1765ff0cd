"""Arguments and results of the dynamic programs: shapes, dtypes, memory layouts, errors."""

import math
import tracemalloc

import numpy as np
import pytest
from programs import PROGRAMS, all_results, assert_all_close, assert_all_same, edge_scores
from reference import MINUS_INFINITY, Graph

from ltls import Trellis

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
EVERY_PROGRAM = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


# Shapes and types


def test_a_single_row_gives_scalars_and_arrays_of_one_dimension():
    trellis = Trellis(22)
    h = edge_scores(trellis)
    path, score = trellis.viterbi(h)
    for value in (path, score, trellis.log_partition(h), trellis.score(h, 3)):
        assert np.ndim(value) == 0
        assert not isinstance(value, np.ndarray)
    assert isinstance(path, (int, np.int64))
    paths, scores = trellis.topk(h, 4)
    assert paths.shape == scores.shape == (4,)
    assert trellis.marginals(h).shape == (19,)
    assert trellis.score(h, [3, 1, 3]).shape == (3,)


def test_score_takes_one_or_several_paths_per_row():
    trellis, graph = Trellis(22), Graph(22)
    h = edge_scores(trellis, 3)
    expected = np.array([graph.scores(row) for row in h.tolist()])
    paths = np.array([[0, 21, 5, 5], [1, 2, 3, 4], [20, 6, 0, 9]])
    rows = np.arange(3)
    np.testing.assert_allclose(trellis.score(h, paths), expected[rows[:, None], paths])
    np.testing.assert_allclose(trellis.score(h, paths[:, 0]), expected[rows, paths[:, 0]])
    np.testing.assert_allclose(trellis.score(h[1], paths[1]), expected[1, paths[1]])
    assert trellis.score(h[2], 20) == pytest.approx(expected[2, 20])


@DTYPES
@pytest.mark.parametrize(("n_classes", "width"), [(22, 2), (1000, 3), (1000, 16)])
def test_batches_of_every_size_agree_with_their_rows(n_classes, width, dtype):
    trellis = Trellis(n_classes, width)
    h = edge_scores(trellis, 40, dtype=dtype)
    rows = [all_results(trellis, row) for row in h]
    for n_rows in range(1, 41):
        expected = [np.stack(results) for results in zip(*rows[:n_rows], strict=True)]
        tolerance = {np.float32: 5e-5, np.float64: 1e-11}[dtype]
        assert_all_close(all_results(trellis, h[:n_rows]), expected, tolerance)


def test_an_empty_batch_gives_empty_results():
    trellis = Trellis(22)
    shapes = [result.shape for result in all_results(trellis, np.zeros((0, 19)))]
    assert shapes == [(0,), (0,), (0,), (0, 5), (0, 5), (0,), (0, 19)]


def test_k_beyond_the_number_of_paths_gives_all_paths():
    trellis = Trellis(22)
    for k in (22, 23, 2**40):
        paths, _ = trellis.topk(edge_scores(trellis), k)
        assert sorted(paths.tolist()) == list(range(22))


@EVERY_PROGRAM
@DTYPES
def test_results_have_the_dtype_of_the_scores(program, dtype):
    trellis = Trellis(22)
    answer = program(trellis, edge_scores(trellis, 3, dtype=dtype))
    scores = answer[1] if isinstance(answer, tuple) else answer
    assert scores.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, np.int8, np.int64, np.uint32, bool])
def test_other_real_types_are_taken_as_double_precision(dtype):
    trellis = Trellis(22)
    h = np.random.default_rng(0).integers(0, 2, size=(3, 19)).astype(dtype)
    found = all_results(trellis, h)
    assert_all_same(found, all_results(trellis, h.astype(np.float64)))
    assert {answer.dtype for answer in found} == {np.dtype(np.int64), np.dtype(np.float64)}


def test_lists_are_taken_as_double_precision():
    trellis = Trellis(22)
    h = edge_scores(trellis, 3)
    assert_all_same(all_results(trellis, h.tolist()), all_results(trellis, h))
    assert_all_same(all_results(trellis, h[0].tolist()), all_results(trellis, h[0]))


def unaligned(h):
    buffer = bytearray(h.nbytes + 1)
    view = np.frombuffer(buffer, dtype=h.dtype, offset=1, count=h.size).reshape(h.shape)
    view[...] = h
    return view


def read_only(h):
    h = h.copy()
    h.flags.writeable = False
    return h


LAYOUTS = {
    "column-major": np.asfortranarray,
    "every other row": lambda h: np.repeat(h, 2, axis=0)[::2],
    "every other column": lambda h: np.repeat(h, 2, axis=1)[:, ::2],
    "backwards": lambda h: h[::-1, ::-1].copy()[::-1, ::-1],
    "part of wider rows": lambda h: np.pad(h, ((0, 0), (3, 2)))[:, 3:-2],
    "unaligned": unaligned,
    "read-only": read_only,
    "contiguous": np.copy,
}


@DTYPES
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_in_memory_does_not_matter_and_scores_are_not_modified(layout, dtype):
    trellis = Trellis(105, 3)
    h = edge_scores(trellis, 6, dtype=dtype)
    other = layout(h)
    np.testing.assert_array_equal(other, h)
    expected = all_results(trellis, h)
    assert_all_same(all_results(trellis, other), expected)
    for row in range(6):
        assert_all_same(all_results(trellis, other[row]), all_results(trellis, h[row]))
    np.testing.assert_array_equal(other, edge_scores(trellis, 6, dtype=dtype))


def test_the_byte_order_does_not_matter():
    trellis = Trellis(105, 3)
    h = edge_scores(trellis, 6)
    swapped = h.astype(h.dtype.newbyteorder("S"))
    assert_all_same(all_results(trellis, swapped), all_results(trellis, h))


@EVERY_PROGRAM
@DTYPES
def test_contiguous_scores_are_not_copied(program, dtype):
    trellis = Trellis(300, 300)
    h = edge_scores(trellis, 2000, dtype=dtype)
    tracemalloc.start()
    result = program(trellis, h)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    results = result if isinstance(result, tuple) else [result]
    assert peak - sum(r.nbytes for r in results) < h.nbytes / 2


# Errors


@EVERY_PROGRAM
@DTYPES
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("edge", [0, 9, 18])
def test_a_row_with_nan_or_infinity_is_named(program, dtype, bad, edge):
    trellis = Trellis(22)
    h = edge_scores(trellis, 50, dtype=dtype)
    h[3, edge] = bad
    with pytest.raises(ValueError, match=r"row 3\b"):
        program(trellis, h)
    with pytest.raises(ValueError, match=r"row 0\b"):
        program(trellis, h[3])


@EVERY_PROGRAM
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_first_of_several_bad_rows_is_named(program, n_jobs):
    trellis = Trellis(22)
    h = edge_scores(trellis, 1000)
    h[[999, 41, 700], [0, 5, 18]] = math.nan, math.inf, math.nan
    with pytest.raises(ValueError, match=r"row 41\b"):
        program(trellis, h, n_jobs=n_jobs)


@EVERY_PROGRAM
def test_a_bad_score_cannot_hide_behind_a_forbidden_edge(program):
    trellis = Trellis(22)
    h = np.full((5, trellis.n_edges), MINUS_INFINITY)
    h[3, 10] = math.inf
    with pytest.raises(ValueError, match=r"row 3\b"):
        program(trellis, h)


@EVERY_PROGRAM
@pytest.mark.parametrize("shape", [(), (18,), (20,), (0,), (4, 18), (4, 20), (4, 0), (1, 4, 19)])
def test_scores_of_the_wrong_shape_are_rejected(program, shape):
    with pytest.raises(ValueError, match=r"\bh\b"):
        program(Trellis(22), np.zeros(shape))


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_1_is_rejected(k):
    with pytest.raises(ValueError, match=r"\bk\b"):
        Trellis(22).topk(np.zeros(19), k)


@EVERY_PROGRAM
@pytest.mark.parametrize("shape", [(19,), (4, 19)])
def test_n_jobs_of_0_is_rejected(program, shape):
    with pytest.raises(ValueError, match="n_jobs"):
        program(Trellis(22), np.zeros(shape), n_jobs=0)


@pytest.mark.parametrize("path", [-1, 22, 2**62])
def test_the_score_of_a_path_out_of_range_is_rejected(path):
    trellis = Trellis(22)
    for h, paths in [
        (np.zeros(19), path),
        (np.zeros(19), [0, path]),
        (np.zeros((2, 19)), [0, path]),
        (np.zeros((2, 19)), [[0, 1], [path, 1]]),
    ]:
        with pytest.raises(ValueError, match="path"):
            trellis.score(h, paths)


@pytest.mark.parametrize("n_paths", [1, 3])
def test_score_needs_paths_for_every_row(n_paths):
    with pytest.raises(ValueError, match="path"):
        Trellis(22).score(np.zeros((2, 19)), np.zeros((n_paths, 4), dtype=np.int64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_classes", "width"), [(1000, 8), (1000, 2), (50, 3)])
def test_scores_whose_sums_overflow_give_paths_or_none(n_classes, width, dtype):
    trellis, rng = Trellis(n_classes, width), np.random.default_rng(0)
    large = 0.97 * np.finfo(dtype).max
    h = np.where(rng.random((300, trellis.n_edges)) < 0.5, -np.inf, large).astype(dtype)
    paths, scores = trellis.topk(h, 7)  # +inf, and +inf plus −inf on the way
    assert paths.min() >= -1
    assert paths.max() < n_classes
    assert (scores[paths == -1] == -np.inf).all()
