"""Memory keeps the rows that a plain, slow implementation keeps, in one batch or in many."""

import numpy as np
import pytest
import reference_parts as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array
from small_parts import N_FEATURES as N_STORED
from small_parts import section_of, stored_rows

from ltls.features.rows import Rows
from ltls.model.examples import Examples
from ltls.parts.base import Sizes
from ltls.parts.memory import LATE_ROWS, StoredRows, row_keys

N_FEATURES, N_LABELS = 30, 7
ARRAYS = ("ptr", "features", "values", "scales", "label_ptr", "labels", "weights", "strata", "keys")
single = st.lists(st.integers(0, 6).map(lambda label: [label]), min_size=1, max_size=80)
several = st.lists(st.lists(st.integers(0, 6), max_size=3, unique=True), min_size=1, max_size=80)


class Data:
    """Rows with labels."""

    def __init__(self, label_lists, n_labels=N_LABELS, weights=None, dense=False):
        rng = np.random.default_rng(0)
        shape = (len(label_lists), N_FEATURES)
        X = random_array(shape, density=0.3, format="csr", rng=rng, dtype=np.float32)
        self.rows = Rows(X.toarray() if dense else X, True, False)
        self.lists, self.weights = label_lists, weights
        self.counts = np.bincount([c for row in label_lists for c in row], minlength=n_labels)

    def __len__(self):
        return len(self.lists)

    def kept(self, capacity, first_late=N_LABELS, first=0, last=None):
        """The memory of some of the rows."""
        some = slice(first, len(self) if last is None else last)
        lists = self.lists[some]
        labels = np.array([label for row in lists for label in row], np.int64)
        ptr = np.cumsum([0, *map(len, lists)])
        weights = None if self.weights is None else self.weights[some]
        examples = Examples(self.rows[some], ptr, labels, weights, True)
        return StoredRows.of(examples, capacity, self.counts, first_late, first)

    def numbers(self, memory):
        """The rows that a memory has, by their keys."""
        number = {int(key): row for row, key in enumerate(row_keys(np.arange(len(self))))}
        return {number[int(key)] for key in memory.keys}


def assert_same(one, other):
    """Two memories have the same rows, in any order."""
    ours, theirs = (each.take(np.argsort(each.keys)) for each in (one, other))
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
        if name not in ("features", "labels"):  # which stay as a file has them
            assert getattr(ours, name).dtype == getattr(theirs, name).dtype


@given(single | several, st.integers(1, 40), st.integers(0, 7))
def test_the_rows_are_those_of_the_oracle(label_lists, capacity, first_late):
    data = Data(label_lists)
    memory = data.kept(capacity, first_late)
    keys = row_keys(np.arange(len(data))).tolist()
    wanted = reference.kept_rows(label_lists, keys, data.counts, capacity, first_late, LATE_ROWS)
    assert data.numbers(memory) == wanted
    assert len(memory) == min(capacity, len(data))


@settings(max_examples=50)
@given(single | several, st.integers(1, 40), st.lists(st.integers(1, 30), max_size=5))
def test_batches_do_not_matter(label_lists, capacity, sizes):
    data, merged = Data(label_lists), None
    ends = np.clip(np.cumsum([0, *sizes]), 0, len(data)).tolist()
    for first, last in zip(ends, [*ends[1:], len(data)], strict=True):
        part = data.kept(capacity, first=first, last=last)
        merged = part if merged is None else merged.merge(part, capacity)
    assert_same(merged, data.kept(capacity))


@settings(max_examples=50)
@given(single | several, st.integers(1, 40), st.integers(0, 40))
def test_a_smaller_memory_is_a_part_of_a_larger_one(label_lists, capacity, fewer):
    data = Data(label_lists)
    large, small = data.kept(capacity), data.kept(min(fewer, capacity))
    assert data.numbers(small) <= data.numbers(large)
    assert_same(large.shrink(fewer), small)


@given(several, st.data())
def test_rows_are_taken_with_all_that_they_have(label_lists, data):
    memory = Data(label_lists).kept(1000)
    rows = data.draw(st.lists(st.integers(0, len(memory) - 1), max_size=10))
    taken = memory.take(np.array(rows, np.int64))
    like = Rows(csr_array((0, N_FEATURES), dtype=np.float32), True, False)
    wanted = memory.rows_like(like).X.toarray()[rows]
    np.testing.assert_array_equal(taken.rows_like(like).X.toarray(), wanted)
    for name in ("scales", "weights", "strata", "keys"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(memory, name)[rows])
    ends = zip(taken.label_ptr[:-1], taken.label_ptr[1:], strict=True)
    assert [taken.labels[a:b].tolist() for a, b in ends] == [label_lists[row] for row in rows]


def test_no_label_keeps_more_than_another_that_would_have_more():
    rng = np.random.default_rng(0)
    data = Data([[label] for label in rng.choice(5, 1000, p=[0.7, 0.2, 0.07, 0.02, 0.01])], 5)
    kept = np.bincount(data.kept(200, 5).labels, minlength=5)
    assert kept.sum() == 200
    full = kept == data.counts
    assert full[-1]
    assert np.ptp(kept[~full]) <= 1
    assert kept[~full].min() >= kept[full].max()


def test_every_row_of_a_label_is_equally_likely():
    """Over many blocks of row numbers, the places of the kept rows are uniform."""
    hits, n_blocks = np.zeros(20), 2000
    labels = np.arange(21), np.zeros(20, np.int64)
    examples = Examples(Data([[0]] * 20).rows, *labels, None, False)
    for block in range(n_blocks):
        memory = StoredRows.of(examples, 5, np.array([20]), 1, 20 * block)
        hits += np.isin(row_keys(20 * block + np.arange(20)), memory.keys)
    expected = n_blocks * 5 / 20
    assert ((hits - expected) ** 2 / expected).sum() < 36.2  # χ² of 19 degrees of freedom, 99 %


def test_late_labels_keep_more_rows_in_half_of_the_places():
    data = Data([[label] for label in [*range(50)] * 20 + [50] * 300 + [51] * 300], 52)
    kept = np.bincount(data.kept(400, 50).labels, minlength=52)
    assert (kept[50:] >= LATE_ROWS).all()
    assert kept[:50].sum() >= 200
    few = np.bincount(data.kept(60, 50).labels, minlength=52)
    assert few.sum() == 60
    assert few[50:].sum() <= 32


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_rows_are_rounded_to_8_bits_and_those_of_weight_0_never_kept(dense):
    data = Data([[0], [1], [1], [0]], weights=np.array([1, 0, 2, 3], np.float32), dense=dense)
    memory = data.kept(10)
    found = memory.rows_like(data.rows)
    assert (found.sparse, found.intercept, found.unit_length) == (not dense, True, False)
    given_rows = reference.scored_rows(data.rows.X)[[0, 2, 3]]
    tolerance = np.abs(given_rows).max(axis=1, keepdims=True) / 254 + 1e-6
    assert (np.abs(reference.scored_rows(found.X) - given_rows) <= tolerance).all()
    assert memory.weights.tolist() == [1, 2, 3]
    assert memory.labels.tolist() == [0, 1, 0]


def test_new_features_come_before_the_last_column():
    data = Data([[0]] * 5)
    memory = data.kept(5)
    wider = Rows(csr_array((5, N_FEATURES + 3), dtype=np.float32), True, False)
    moved = memory.grow(3, N_FEATURES - 1).rows_like(wider).X.toarray()
    before = memory.rows_like(data.rows).X.toarray()
    assert before[:, -1].any()
    np.testing.assert_array_equal(moved[:, : N_FEATURES - 1], before[:, :-1])
    np.testing.assert_array_equal(moved[:, -1], before[:, -1])
    assert not moved[:, N_FEATURES - 1 : -1].any()


# Files


def sizes_of(multilabel):
    return Sizes(30, 9, intercept=True, unit_length=False, multilabel=multilabel)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_state_has_all_rows(multilabel, weighted, sparse):
    memory = stored_rows(np.random.default_rng(0), multilabel=multilabel, sparse=sparse)
    if weighted:
        memory.weights[3] = 2
    description, tensors = memory.state(multilabel, N_STORED)
    assert ("weights" in tensors) == weighted
    section = section_of(description, tensors)
    found = StoredRows.from_state(section, sizes_of(multilabel))
    section.check_all_read()
    section.check_all_taken()
    assert_same(found, memory)
    assert found.first_late == memory.first_late


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("counts", lambda t: t + 1, "must add up to n_values|must have shape"),
        ("counts", lambda t: t[:-1], "must have shape"),
        ("features", lambda t: np.full_like(t, 8), "at most 7, got 8"),
        ("features", lambda t: t[::-1].copy(), "values that increase"),
        ("values", lambda t: t.astype(np.int16), "must be int8, got int16"),
        ("scales", lambda t: -t, "values of at least 0"),
        ("scales", lambda t: t * np.nan, "not finite"),
        ("labels", lambda t: np.full_like(t, 30), "at most 29, got 30"),
        ("labels", lambda t: t[:-1], "must have shape"),
        ("label_counts", lambda t: t[:-1], "must have shape"),
        ("label_counts", None, "'label_counts' is missing"),
        ("strata", lambda t: np.full_like(t, 31), "at most 30, got 31"),
        ("strata", None, "'strata' is missing"),
        ("keys", lambda t: t.astype(np.uint64), "must be uint32"),
        ("keys", None, "'keys' is missing"),
    ],
)
def test_states_that_are_not_as_declared_are_refused(name, change, message):
    description, tensors = stored_rows(np.random.default_rng(0)).state(True, N_STORED)
    changed = {key: tensor for key, tensor in tensors.items() if key != name}
    if change is not None:
        changed[name] = change(tensors[name])
    with pytest.raises(ValueError, match=message):
        StoredRows.from_state(section_of(description, changed), sizes_of(True))


def test_rows_of_one_label_have_one_each():
    description, tensors = stored_rows(np.random.default_rng(0)).state(True, N_STORED)
    with pytest.raises(ValueError, match="must have label counts if they may have several"):
        StoredRows.from_state(section_of(description, tensors), sizes_of(False))
    description, tensors = stored_rows(np.random.default_rng(0), multilabel=False).state(
        False, N_FEATURES
    )
    fewer = {**tensors, "labels": tensors["labels"][:-1]}
    with pytest.raises(ValueError, match="40 rows must have a label each, got 39"):
        StoredRows.from_state(section_of(description, fewer), sizes_of(False))
    for wrong in (-1, 1.5, None):
        with pytest.raises(ValueError, match="first_late must be an integer"):
            StoredRows.from_state(section_of({"first_late": wrong}, tensors), sizes_of(False))
