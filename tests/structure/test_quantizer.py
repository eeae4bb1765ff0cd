"""Semantic IDs: distinct balanced codes near to their vectors, and paths for new labels."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltls import TableCodebook
from ltls.structure.quantizer import ResidualQuantizer, _balanced


def clusters(n, seed=0, n_clusters=8):
    """Return vectors in well separated clusters, and the cluster of each."""
    rng = np.random.RandomState(seed)
    of = rng.randint(n_clusters, size=n)
    return rng.standard_normal((n_clusters, 6))[of] * 10 + rng.standard_normal((n, 6)), of


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 3), st.integers(0, 10**6))
def test_choices_are_stable(n, width, n_groups, seed):
    """No column is over its capacity, and no row prefers one that has room or a worse row."""
    rng = np.random.RandomState(seed)
    cost, group = rng.standard_normal((n, width)), rng.randint(n_groups, size=n)
    largest = max(np.bincount(group).max(), 1)
    capacity = -(-largest // width) + rng.randint(2)
    chosen = _balanced(cost, group, np.empty(0, np.int64), capacity)
    for row in range(n):
        for column in range(width):
            there = np.flatnonzero((group == group[row]) & (chosen == column))
            assert len(there) <= capacity
            if cost[row, column] < cost[row, chosen[row]]:
                assert len(there) == capacity
                assert (cost[there, column] <= cost[row, column]).all()


def test_rows_avoid_columns_that_are_taken():
    cost = np.array([[0.0, 1, 2], [0, 1, 2], [0, 1, 2]])
    group = np.array([0, 0, 1])
    taken = np.array([0, 1])  # columns 0 and 1 of group 0
    assert _balanced(cost[1:], group[1:], taken, 1).tolist() == [2, 0]
    assert _balanced(cost, group, taken, 2).tolist() == [0, 1, 0]


@pytest.mark.parametrize(("n", "width", "n_paths"), [(100, 4, 256), (3, 2, 4), (30, 32, 1024)])
def test_paths_are_distinct_and_leave_some_free(n, width, n_paths):
    book = TableCodebook.from_embeddings(clusters(n)[0], width)
    assert book.n_paths == n_paths
    assert len(set(book.paths.tolist())) == n
    assert book.n_free >= 0.1 * n


@pytest.mark.parametrize("n", [60, 300, 2000])
def test_first_states_are_balanced_where_vectors_are_not(n):
    """Most vectors are nearly the same, then and later."""
    rng = np.random.RandomState(0)
    vectors = rng.standard_normal((n, 5)) * np.where(np.arange(n) % 10, 1e-3, 5)[:, None]
    book = TableCodebook.from_embeddings(vectors, width=8, spare=4.0)
    for _ in range(3):
        sizes = np.bincount(book.paths % 8, minlength=8)
        assert sizes.max() <= np.ceil(2 * book.n_labels / 8)
        book.assign_embeddings(vectors[: n // 2] * 1.01)
    assert len(set(book.paths.tolist())) == book.n_labels


def test_similar_labels_share_digits():
    """Eight clusters of 40: the first digit of their paths is that of their cluster."""
    vectors, of = clusters(320)
    book = TableCodebook.from_embeddings(vectors, width=8)
    first = book.paths % 8
    agreeing = [np.bincount(first[of == c]).max() / (of == c).sum() for c in range(8)]
    assert np.mean(agreeing) > 0.8
    shuffled = TableCodebook(book.n_paths, np.random.RandomState(0).permutation(book.paths))
    by_chance = np.bincount(shuffled.paths[of == 0] % 8).max() / (of == 0).sum()
    assert by_chance < 0.5


def test_balanced_even_if_all_vectors_are_the_same():
    book = TableCodebook.from_embeddings(np.ones((50, 3)), width=4, spare=0)
    assert len(set(book.paths.tolist())) == 50
    with pytest.raises(ValueError, match=r"vectors must be at most 14, .* got 15"):
        book.assign_embeddings(np.ones((15, 3)))


def test_a_new_label_gets_a_path_next_to_its_neighbours():
    vectors, of = clusters(300)
    book = TableCodebook.from_embeddings(vectors[:260], width=8)
    before = book.paths
    labels = book.assign_embeddings(vectors[260:])
    assert labels.tolist() == list(range(260, 300))
    np.testing.assert_array_equal(book.paths[:260], before)
    assert len(set(book.paths.tolist())) == 300
    first = book.paths % 8
    usual = {c: np.bincount(first[:260][of[:260] == c]).argmax() for c in range(8)}
    assert np.mean([first[label] == usual[of[label]] for label in labels]) > 0.7


def test_several_codebooks_differ_and_the_same_seed_gives_the_same():
    vectors, _ = clusters(100)
    books = TableCodebook.from_embeddings(vectors, 4, 3)
    again = TableCodebook.from_embeddings(vectors, 4, 3)
    assert len({tuple(book.paths) for book in books}) == 3
    assert books == again
    assert TableCodebook.from_embeddings(vectors, 4, random_state=1) != books[0]
    copy = pickle.loads(pickle.dumps(books[1]))
    assert copy == books[1]
    new = vectors[:5] + 0.1
    copy.assign_embeddings(new)
    books[1].assign_embeddings(new)
    assert copy == books[1]


def test_centroids_reduce_the_residual_digit_by_digit():
    vectors, _ = clusters(400)
    quantizer = ResidualQuantizer.fit(vectors, 8, 3, np.random.RandomState(0))
    assert (quantizer.width, quantizer.n_digits) == (8, 3)
    codes = quantizer.codes(vectors, np.empty(0, np.int64))
    left, lengths = vectors, [np.square(vectors).sum()]
    for digit in range(2):  # the last digit only tells apart those that are the same so far
        left = left - quantizer.centroids[digit][codes // 8**digit % 8]
        lengths.append(np.square(left).sum())
    assert lengths[0] > 3 * lengths[1] > 3 * lengths[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vectors": np.ones(3)}, r"vectors must have shape .*, got \(3,\)"),
        ({"vectors": [[np.nan]]}, "vectors must be finite"),
        ({"vectors": np.ones((3, 2)), "width": 1}, "width must be at least 2, got 1"),
        ({"vectors": np.ones((3, 2)), "n_trellises": 0}, "n_trellises must be at least 1"),
        (
            {"vectors": np.ones((3, 2)), "spare": -1},
            "spare must be at least 0 and less than infinity, got -1",
        ),
        ({"vectors": np.ones((3, 2)), "spare": np.inf}, "less than infinity, got inf"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        TableCodebook.from_embeddings(**arguments)


def test_only_a_codebook_of_embeddings_takes_embeddings():
    with pytest.raises(ValueError, match="needs a codebook made by from_embeddings"):
        TableCodebook(4, [1]).assign_embeddings([[1.0]])
    book = TableCodebook.from_embeddings(np.random.default_rng(0).normal(size=(9, 3)), 2)
    for vectors in (np.ones(3), np.ones((2, 4))):
        with pytest.raises(ValueError, match=r"vectors must have shape \(n, 3\), got"):
            book.assign_embeddings(vectors)
