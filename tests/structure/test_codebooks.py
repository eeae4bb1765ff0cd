"""What all codebooks have in common: labels and paths both ways, shapes, errors, copies."""

import copy
import pickle

import numpy as np
import pytest

from ltls import RandomCodebook, TableCodebook
from ltls.structure.codebook import BucketCodebook

# How to make a codebook, and others that differ from it.
CASES = {
    "random": (
        lambda: RandomCodebook(22, seed=7),
        [RandomCodebook(22, seed=8), RandomCodebook(23, seed=7)],
    ),
    "random, grown": (
        lambda: RandomCodebook(22, seed=7).grow(54),
        [RandomCodebook(54, seed=7), RandomCodebook(22, seed=7).grow(30).grow(54)],
    ),
    "table": (
        lambda: TableCodebook(6, np.array([4, -1, 0])),
        [TableCodebook(7, [4, -1, 0]), TableCodebook(6, [4, -1, 1])],
    ),
    "buckets": (
        lambda: BucketCodebook(4, np.array([2, 0, 2])),
        [BucketCodebook(5, [2, 0, 2]), BucketCodebook(4, [2, 2, 0])],
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def book(case):
    return case[0]()


def test_labels_and_paths_are_looked_up_both_ways(book):
    paths = book.path_of(np.arange(book.n_labels)).tolist()
    first = [paths.index(path) if path in paths else -1 for path in range(book.n_paths)]
    assert book.label_of(np.arange(book.n_paths)).tolist() == first


@pytest.mark.parametrize("direction", ["path_of", "label_of"])
def test_lookups_keep_the_shape_of_their_argument(book, direction):
    ask = getattr(book, direction)
    n = book.n_labels if direction == "path_of" else book.n_paths
    one_by_one = [ask(i) for i in range(n)]
    assert all(isinstance(each, (int, np.int64)) and np.ndim(each) == 0 for each in one_by_one)
    assert ask(np.int32(1)) == one_by_one[1]
    for given in (np.arange(n), np.arange(n, dtype=np.uint8), list(range(n))):
        found = ask(given)
        assert found.dtype == np.int64
        assert found.tolist() == one_by_one
    assert ask([[0, 1], [1, 2]]).tolist() == [one_by_one[:2], one_by_one[1:3]]
    assert ask(np.arange(n)[::-2]).tolist() == one_by_one[::-2]
    assert ask(np.zeros((0, 3), dtype=np.int64)).shape == (0, 3)
    assert ask([]).shape == (0,)


@pytest.mark.parametrize(("direction", "what"), [("path_of", "label"), ("label_of", "path")])
def test_lookups_out_of_range_are_rejected(book, direction, what):
    n = book.n_labels if direction == "path_of" else book.n_paths
    for outside in (-1, n, 2**62):
        for given in (outside, [0, outside, 1]):
            with pytest.raises(ValueError, match=what):
                getattr(book, direction)(given)


def test_codebooks_are_equal_if_their_paths_are(case):
    make, others = case
    assert make() == make()
    for other in (*others, "a codebook", 22):
        assert make() != other


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda book: pickle.loads(pickle.dumps(book))]
)
def test_copies_are_equal(book, duplicate):
    twin, labels = duplicate(book), np.arange(book.n_labels)
    assert twin == book
    assert (twin.n_labels, twin.n_paths) == (book.n_labels, book.n_paths)
    np.testing.assert_array_equal(twin.path_of(labels), book.path_of(labels))


def test_repr_has_the_size(book):
    assert repr(book).startswith(f"{type(book).__name__}(")
    assert str(book.n_labels) in repr(book) or str(book.n_paths) in repr(book)


@pytest.mark.parametrize("kind", [TableCodebook, BucketCodebook])
def test_paths_are_a_copy(kind):
    given = np.array([2, 0])
    book = kind(3, given)
    given[0] = 1
    shown = book.paths
    if shown.flags.writeable:
        shown[:] = 1
    assert book.paths.tolist() == [2, 0]
