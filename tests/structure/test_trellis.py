import copy
import itertools
import pickle
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import Graph, digits
from scipy import sparse

from ltls import Trellis

PAPER_EDGE_COUNTS = {
    22: 19,
    105: 28,
    159: 34,
    1000: 42,
    3956: 52,
    11947: 61,
    12294: 56,
    320338: 81,
}


def padded(paths, length):
    rows = [path + [-1] * (length - len(path)) for path in paths]
    return np.array(rows, dtype=np.int64).reshape(len(paths), length)


def first_and_last_ids(graph):
    """The ids at both ends of every group of paths that share an exit."""
    sizes = [digit * graph.width**i for i, digit in enumerate(graph.digits)]
    starts = list(itertools.accumulate(sizes, initial=0))
    return sorted({p for start in starts for p in (start - 1, start) if 0 <= p < graph.n_classes})


# The graph


@pytest.mark.parametrize(("n_classes", "n_edges"), PAPER_EDGE_COUNTS.items())
def test_width_2_has_as_many_edges_as_the_paper_reports(n_classes, n_edges):
    assert Trellis(n_classes).n_edges == n_edges


def test_the_graph_of_figure_1():
    trellis = Trellis(n_classes=22)
    slices = [(1, 2), (3, 4), (5, 6), (7, 8)]
    expected = [(0, 1), (0, 2)]
    for tails, heads in itertools.pairwise(slices):
        expected += itertools.product(tails, heads)
    expected += [(7, 9), (8, 9), (9, 10), (3, 10), (5, 10)]
    assert trellis.edges.tolist() == [list(edge) for edge in expected]
    assert (trellis.n_slices, trellis.longest_path) == (4, 6)


def test_edges_are_numbered_as_in_the_design(small):
    for trellis, graph in small:
        assert (trellis.n_classes, trellis.width) == (graph.n_classes, graph.width)
        assert (trellis.n_slices, trellis.n_edges) == (graph.n_slices, len(graph.edges)), trellis
        assert trellis.longest_path == max(map(len, graph.paths)), trellis
        expected = np.array(graph.edges, dtype=np.int64).reshape(-1, 2)
        assert trellis.edges.dtype == np.int64
        np.testing.assert_array_equal(trellis.edges, expected, err_msg=repr(trellis))


@given(n_classes=st.integers(2, 2**62), width=st.integers(2, 1000))
def test_the_number_of_edges_follows_from_the_digits(n_classes, width):
    trellis = Trellis(n_classes, width)
    b = min(width, n_classes)
    *exits, auxiliary = digits(n_classes, b)
    n = len(exits)
    assert trellis.n_slices == n
    assert trellis.n_edges == b + (n - 1) * b**2 + b * auxiliary + auxiliary + sum(exits)
    one_vs_all = Trellis(width, width)
    assert (one_vs_all.n_slices, one_vs_all.n_edges) == (1, 2 * width + 1)


@given(n_classes=st.integers(2, 2**62))
def test_width_2_satisfies_the_bound_of_the_paper(n_classes):
    assert Trellis(n_classes).n_edges <= 5 * (n_classes - 1).bit_length() + 1


@pytest.mark.parametrize("width", [22, 23, 2**40, 2**62, 10**30])
def test_width_is_at_most_the_number_of_classes(width):
    assert Trellis(22, width).width == 22


def test_one_class_has_one_empty_path():
    trellis = Trellis(1)
    assert (trellis.width, trellis.n_slices, trellis.n_edges, trellis.longest_path) == (1, 0, 0, 0)
    assert trellis.edges.shape == (0, 2)
    assert trellis.path_edges(0).shape == (0,)
    assert trellis.path_of([]) == 0
    assert trellis.path_edges_batch([0, 0]).shape == (2, 0)
    assert trellis.matrix().shape == (1, 0)
    with pytest.raises(ValueError, match="path"):
        trellis.path_of([0])


# Path ids


def test_worked_paths_of_figure_1():
    trellis = Trellis(22)
    assert trellis.path_edges(0).tolist() == [0, 2, 17]
    assert trellis.path_edges(1).tolist() == [1, 4, 17]
    assert trellis.path_edges(5).tolist() == [1, 5, 8, 18]
    assert trellis.path_edges(6).tolist() == [0, 2, 6, 10, 14, 16]
    assert trellis.path_edges(21).tolist() == [1, 5, 9, 13, 15, 16]


def test_ids_and_edges_of_paths_from_source_to_sink(small):
    for trellis, graph in small:
        ids = list(range(graph.n_classes))
        found = [trellis.path_edges(path) for path in ids]
        assert [edges.tolist() for edges in found] == graph.paths, trellis
        assert [trellis.path_of(path) for path in graph.paths] == ids, trellis
        batch = trellis.path_edges_batch(ids)
        assert {each.dtype for each in (batch, *found)} == {np.dtype(np.int64)}
        expected = padded(graph.paths, trellis.longest_path)
        np.testing.assert_array_equal(batch, expected, err_msg=repr(trellis))


def test_path_edges_batch_of_no_paths_is_empty():
    assert Trellis(22).path_edges_batch([]).shape == (0, 6)


def test_path_of_takes_arrays_and_lists():
    trellis = Trellis(22)
    for edges in ([1, 5, 8, 18], (1, 5, 8, 18), np.array([1, 5, 8, 18], dtype=np.int32)):
        assert trellis.path_of(edges) == 5


def test_path_of_accepts_paths_and_nothing_else():
    trellis, graph = Trellis(7), Graph(7)
    edges = range(-1, len(graph.edges) + 1)
    sequences = [s for length in range(5) for s in itertools.product(edges, repeat=length)]
    sequences += [(*path, e) for path in graph.paths for e in edges]
    for sequence in sequences:
        if graph.is_path(sequence):
            assert trellis.path_of(sequence) == graph.path_id(sequence)
        else:
            with pytest.raises(ValueError, match="path"):
                trellis.path_of(sequence)


@pytest.mark.parametrize("path", [-1, 22, 2**62, -(2**63), 2**64, 10**30])
def test_paths_outside_the_range_are_rejected(path):
    with pytest.raises(ValueError, match="path"):
        Trellis(22).path_edges(path)


@pytest.mark.parametrize("path", [-1, 22, 2**62])
def test_batches_with_a_path_outside_the_range_are_rejected(path):
    with pytest.raises(ValueError, match="path"):
        Trellis(22).path_edges_batch([0, path, 1])


def test_edges_and_ids_of_a_huge_trellis_are_those_of_the_design(huge):
    trellis, graph = huge
    np.testing.assert_array_equal(trellis.edges, graph.edges)
    rng = random.Random(0)
    paths = [graph.path_id(graph.random_path(rng)) for _ in range(200)]
    paths += [*first_and_last_ids(graph), *(rng.randrange(graph.n_classes) for _ in range(200))]
    alone = [trellis.path_edges(path).tolist() for path in paths]
    for path, edges in zip(paths, alone, strict=True):
        assert graph.is_path(edges)
        assert graph.path_id(edges) == path
        assert trellis.path_of(edges) == path
    batch = trellis.path_edges_batch(paths)
    np.testing.assert_array_equal(batch, padded(alone, trellis.longest_path))


# The path matrix


def test_matrix_marks_the_edges_of_every_path(small):
    for trellis, graph in small:
        expected = np.zeros((graph.n_classes, len(graph.edges)))
        for path, edges in enumerate(graph.paths):
            expected[path, edges] = 1
        np.testing.assert_array_equal(trellis.matrix().toarray(), expected, err_msg=repr(trellis))


def test_matrix_is_a_sparse_array_of_single_precision():
    matrix = Trellis(22).matrix()
    assert isinstance(matrix, sparse.csr_array)
    assert matrix.dtype == np.float32


def test_matrix_of_a_million_paths():
    trellis = Trellis(1_000_000)
    matrix = trellis.matrix()
    assert matrix.shape == (1_000_000, trellis.n_edges)
    for path in (0, 123_456, 999_999):
        assert sorted(matrix[[path]].indices) == sorted(trellis.path_edges(path))


@pytest.mark.parametrize("n_classes", [1_000_001, 2**62])
def test_matrix_of_more_than_a_million_paths_is_rejected(n_classes):
    with pytest.raises(ValueError, match=r"1[_,]?000[_,]?000"):
        Trellis(n_classes).matrix()


# Growing


def test_a_trellis_grows_to_the_next_size_of_the_design(small):
    for trellis, graph in small[1:]:
        larger, edge_map = trellis.grow()
        expected, expected_map = graph.grow()
        assert larger == Trellis(expected.n_classes, expected.width), trellis
        assert larger.width == trellis.width
        assert edge_map.dtype == np.int64
        assert edge_map.tolist() == expected_map, trellis


def test_old_paths_keep_their_ids_when_the_trellis_grows(small):
    for trellis, graph in small[1:]:
        larger, edge_map = trellis.grow()
        new_edges = larger.path_edges_batch(range(graph.n_classes))
        expected = padded([edge_map[path].tolist() for path in graph.paths], larger.longest_path)
        np.testing.assert_array_equal(new_edges, expected, err_msg=repr(trellis))


def test_old_paths_keep_their_states_when_the_trellis_grows(small):
    for trellis, graph in small[1:]:
        larger, _ = trellis.grow()
        larger_graph = Graph(larger.n_classes, larger.width)
        for path, edges in enumerate(graph.paths):
            new_edges = larger.path_edges(path).tolist()
            assert larger_graph.path_states(new_edges) == graph.path_states(edges), trellis


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_old_paths_keep_their_scores_exactly_when_the_trellis_grows(small, dtype):
    rng = np.random.default_rng(0)
    for trellis, _ in small[1:]:
        larger, edge_map = trellis.grow()
        old = rng.normal(size=trellis.n_edges).astype(dtype)
        new = rng.normal(size=larger.n_edges).astype(dtype)
        new[edge_map] = old
        paths = np.arange(trellis.n_classes)
        before, after = trellis.score(old, paths), larger.score(new, paths)
        np.testing.assert_array_equal(after, before, err_msg=repr(trellis))


@pytest.mark.parametrize("width", [2, 3, 5, 8, 64])
def test_a_trellis_grows_until_the_next_size_would_pass_the_limit(width):
    rng = random.Random(width)
    trellis = Trellis(width + 1, width)
    paths = {path: trellis.path_edges(path) for path in range(width + 1)}
    while (size := Graph(trellis.n_classes, width).next_n_classes) <= 2**62:
        trellis, edge_map = trellis.grow()
        assert trellis.n_classes == size
        paths = {path: edge_map[edges] for path, edges in paths.items()}
        newcomer = rng.randrange(size)
        paths.setdefault(newcomer, trellis.path_edges(newcomer))
    with pytest.raises(ValueError, match="grow"):
        trellis.grow()
    for path, edges in paths.items():
        assert trellis.path_edges(path).tolist() == edges.tolist()


def test_a_trellis_may_grow_to_the_limit_itself():
    trellis, _ = Trellis(3 * 2**60, width=64).grow()
    assert trellis.n_classes == 2**62


@pytest.mark.parametrize("n_classes", [1, 2**61, 2**62 - 1, 2**62])
def test_one_class_and_those_of_the_limit_cannot_grow(n_classes):
    with pytest.raises(ValueError, match="grow"):
        Trellis(n_classes).grow()


# Arguments


@pytest.mark.parametrize("n_classes", [0, -1, 2**62 + 1, 2**63, 2**64 + 22, 10**30, -(10**30)])
def test_n_classes_outside_its_range_is_rejected(n_classes):
    with pytest.raises(ValueError, match=f"n_classes.*{n_classes}"):
        Trellis(n_classes)


@pytest.mark.parametrize("width", [1, 0, -1, -(10**30)])
@pytest.mark.parametrize("n_classes", [1, 22])
def test_width_below_2_is_rejected(n_classes, width):
    with pytest.raises(ValueError, match=f"width.*{width}"):
        Trellis(n_classes, width=width)


@pytest.mark.parametrize("value", [22.0, np.float64(22), "22", None, [22], 22j])
def test_sizes_must_be_integers(value):
    with pytest.raises(TypeError):
        Trellis(value)
    with pytest.raises(TypeError):
        Trellis(100, width=value)


@pytest.mark.parametrize(
    ("n_classes", "width"),
    [
        (2**30, 2**30),
        (10**12, 10**12),
        (2**62, 2**17),
        (2**62, 2**31),
        (2**62, 2**32),
        (2**62, 2**33),
        (2**62, 2**62),
    ],
)
def test_more_edges_than_32_bits_can_number_are_rejected(n_classes, width):
    with pytest.raises(ValueError, match="edges"):
        Trellis(n_classes, width)


def test_numpy_integers_are_integers():
    assert Trellis(np.int64(22), np.uint8(3)) == Trellis(22, 3)
    assert Trellis(22).path_edges(np.int32(5)).tolist() == [1, 5, 8, 18]


# Behaviour as a value


def test_trellises_of_the_same_shape_are_equal():
    assert Trellis(22, 3) == Trellis(n_classes=22, width=3)
    assert hash(Trellis(22, 3)) == hash(Trellis(22, 3))
    assert Trellis(22, 100) == Trellis(22, 22)
    assert hash(Trellis(22, 100)) == hash(Trellis(22, 22))
    for other in (Trellis(23), Trellis(22, 3), 22, "Trellis", None):
        assert Trellis(22) != other
    assert repr(Trellis(22)) == "Trellis(n_classes=22, width=2)"
    assert repr(Trellis(2**62, width=64)) == f"Trellis(n_classes={2**62}, width=64)"


@pytest.mark.parametrize("trellis", [Trellis(1), Trellis(22), Trellis(300, 7), Trellis(2**62, 64)])
def test_a_trellis_survives_pickling_and_copying(trellis):
    h = np.random.default_rng(0).normal(size=trellis.n_edges)
    twins = [pickle.loads(pickle.dumps(trellis, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for twin in [*twins, copy.copy(trellis), copy.deepcopy(trellis)]:
        assert twin == trellis
        assert twin.viterbi(h) == trellis.viterbi(h)
