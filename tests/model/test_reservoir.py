"""The reservoir keeps what a plain, slow implementation keeps, in one batch or in many."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from ltls.model.examples import Examples
from ltls.model.reservoir import LATE_ROWS, Reservoir, row_keys

N_FEATURES = 30


def examples(label_lists, weights=None, seed=0, dense=False):
    rng = np.random.default_rng(seed)
    X = random_array((len(label_lists), N_FEATURES), density=0.3, format="csr", rng=rng)
    X = X.astype(np.float32)
    indptr = np.cumsum([0, *map(len, label_lists)])
    labels = np.array([label for row in label_lists for label in row], np.int64)
    multilabel = any(len(row) != 1 for row in label_lists)
    return Examples(X.toarray() if dense else X, indptr, labels, weights, multilabel)


def counts_of(label_lists, n_labels):
    return np.bincount([label for row in label_lists for label in row], minlength=n_labels)


def kept_slowly(label_lists, counts, capacity, n_early):
    """Return the rows to keep: sort all rows by their rank within their rarest label."""
    strata = [min(row, key=lambda c: (counts[c], c)) if row else -1 for row in label_lists]
    keys = [int(key) for key in row_keys(np.arange(len(label_lists)))]
    n_late = len({label for label in strata if label >= n_early})
    quota = max(1, min(LATE_ROWS, capacity // (2 * n_late))) if n_late else 1
    places = []
    for row, (label, key) in enumerate(zip(strata, keys, strict=True)):
        rank = sum(
            other == label and other_key < key
            for other, other_key in zip(strata, keys, strict=True)
        )
        if label >= n_early:
            rank = max(rank - quota + 1, 0)
        places.append((rank, key, row))
    return {row for _, _, row in sorted(places)[:capacity]}


def rows_of(reservoir, n):
    """Return which rows a reservoir has, by their keys."""
    number = {int(key): row for row, key in enumerate(row_keys(np.arange(n)))}
    return {number[int(key)] for key in reservoir.keys}


single = st.lists(st.integers(0, 6).map(lambda label: [label]), min_size=1, max_size=80)
several = st.lists(st.lists(st.integers(0, 6), max_size=3, unique=True), min_size=1, max_size=80)


@settings(max_examples=100, deadline=None)
@given(single | several, st.integers(1, 40), st.integers(0, 7))
def test_the_rows_are_those_of_the_oracle(label_lists, capacity, n_early):
    counts = counts_of(label_lists, 7)
    reservoir = Reservoir.of(examples(label_lists), capacity, counts, n_early)
    assert len(reservoir) == min(capacity, len(label_lists))
    expected = kept_slowly(label_lists, counts, capacity, n_early)
    assert rows_of(reservoir, len(label_lists)) == expected


@settings(max_examples=50, deadline=None)
@given(single, st.integers(1, 40), st.lists(st.integers(1, 30), max_size=5))
def test_batches_do_not_matter(label_lists, capacity, sizes):
    data, counts = examples(label_lists), counts_of(label_lists, 7)
    whole = Reservoir.of(data, capacity, counts, 7)
    merged = None
    for rows in np.split(np.arange(len(data)), np.clip(np.cumsum(sizes), 0, len(data))):
        if len(rows):
            part = Reservoir.of(data.take(rows), capacity, counts, 7, int(rows[0]))
            merged = part if merged is None else merged.merge(part, capacity)
    n = len(data)
    assert rows_of(merged, n) == rows_of(whole, n)
    order, other = np.argsort(merged.keys), np.argsort(whole.keys)
    ours, theirs = merged.take(order), whole.take(other)
    for name in ("indptr", "indices", "values", "scales", "label_ptr", "labels", "strata"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


@settings(max_examples=50, deadline=None)
@given(single, st.integers(1, 40), st.integers(0, 40))
def test_a_smaller_reservoir_is_a_part_of_a_larger_one(label_lists, capacity, fewer):
    counts = counts_of(label_lists, 7)
    large = Reservoir.of(examples(label_lists), capacity, counts, 7)
    small = Reservoir.of(examples(label_lists), min(fewer, capacity), counts, 7)
    n = len(label_lists)
    assert rows_of(small, n) <= rows_of(large, n)
    assert rows_of(large.shrink(fewer), n) == rows_of(small, n)


def test_no_label_keeps_more_than_another_that_would_have_more():
    rng = np.random.default_rng(0)
    label_lists = [[label] for label in rng.choice(5, 1000, p=[0.7, 0.2, 0.07, 0.02, 0.01])]
    counts = counts_of(label_lists, 5)
    kept = np.bincount(Reservoir.of(examples(label_lists), 200, counts, 5).labels, minlength=5)
    assert kept.sum() == 200
    full = kept == counts
    assert full[-1]
    assert np.ptp(kept[~full]) <= 1
    assert kept[~full].min() >= kept[full].max()


def test_every_row_of_a_label_is_equally_likely():
    """Over many blocks of row numbers, the places of the kept rows are uniform."""
    label_lists, hits, n_blocks = [[0]] * 20, np.zeros(20), 2000
    data, counts = examples(label_lists), np.array([20])
    for block in range(n_blocks):
        kept = Reservoir.of(data, 5, counts, 1, 20 * block).keys
        hits += np.isin(row_keys(20 * block + np.arange(20)), kept)
    expected = n_blocks * 5 / 20
    chi_squared = ((hits - expected) ** 2 / expected).sum()
    assert chi_squared < 36.2  # 99 % of the distribution with 19 degrees of freedom


def test_late_labels_keep_more_rows_in_half_of_the_places():
    label_lists = [[label] for label in [*range(50)] * 20 + [50] * 300 + [51] * 300]
    counts = counts_of(label_lists, 52)
    kept = np.bincount(Reservoir.of(examples(label_lists), 400, counts, 50).labels, minlength=52)
    assert (kept[50:] >= LATE_ROWS).all()
    assert kept[:50].sum() >= 200
    few = np.bincount(Reservoir.of(examples(label_lists), 60, counts, 50).labels, minlength=52)
    assert few.sum() == 60
    assert few[50:].sum() <= 32


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_rows_are_rounded_to_8_bits(dense):
    data = examples([[0], [1], [1], [0]], np.array([1, 0, 2, 3], np.float32), dense=dense)
    rows = Reservoir.of(data, 10, np.array([2, 2]), 2).examples_like(data)
    assert hasattr(rows.X, "indptr") != dense
    X = data.X if dense else data.X.toarray()
    given_rows = X[[0, 2, 3]]  # that of weight 0 is never kept
    found = rows.X if dense else rows.X.toarray()
    tolerance = np.abs(given_rows).max(axis=1, keepdims=True) / 254 + 1e-6
    assert (np.abs(found - given_rows) <= tolerance).all()
    assert rows.weights.tolist() == [1, 2, 3]
    assert rows.labels.tolist() == [0, 1, 0]


def test_new_features_come_before_the_last_column():
    data = examples([[0]] * 5)
    data.X = csr_array(data.X)
    reservoir = Reservoir.of(data, 5, np.array([5]), 1)
    wider = examples([[0]] * 5)
    wider.X = csr_array((5, N_FEATURES + 3), dtype=np.float32)
    moved = reservoir.add_features(3, N_FEATURES).examples_like(wider).X.toarray()
    before = reservoir.examples_like(data).X.toarray()
    np.testing.assert_array_equal(moved[:, : N_FEATURES - 1], before[:, :-1])
    np.testing.assert_array_equal(moved[:, -1], before[:, -1])
    assert not moved[:, N_FEATURES - 1 : -1].any()
