"""Training rows against plain lists."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ltls.model.examples import Examples

N_LABELS = 6

label_rows = st.lists(
    st.lists(st.integers(0, N_LABELS - 1), max_size=4, unique=True), min_size=1, max_size=12
)
layouts = st.sampled_from(["dense", "sparse"])


def examples_of(labels, layout, weighted, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (len(labels), 4)).astype(np.float32)
    weights = rng.random(len(labels)).astype(np.float32) if weighted else None
    indptr = np.cumsum([0, *map(len, labels)])
    flat = np.array([label for row in labels for label in row], np.int64)
    return Examples(sp.csr_array(X) if layout == "sparse" else X, indptr, flat, weights, True)


def as_lists(examples):
    """Every row as its features, labels and weight."""
    X = examples.X.toarray() if sp.issparse(examples.X) else examples.X
    ends = zip(examples.indptr[:-1], examples.indptr[1:], strict=True)
    labels = [examples.labels[begin:end].tolist() for begin, end in ends]
    weights = [None] * len(labels) if examples.weights is None else examples.weights.tolist()
    return list(zip(X.tolist(), labels, weights, strict=True))


@given(labels=label_rows, layout=layouts, weighted=st.booleans(), data=st.data())
def test_take(labels, layout, weighted, data):
    examples = examples_of(labels, layout, weighted)
    rows = data.draw(st.lists(st.integers(0, len(labels) - 1), max_size=15))
    taken = examples.take(np.array(rows, np.int64))
    everything = as_lists(examples)
    assert len(taken) == len(rows)
    assert as_lists(taken) == [everything[row] for row in rows]
    assert taken.multilabel == examples.multilabel


@given(parts=st.lists(label_rows, min_size=1, max_size=4), layout=layouts, weighted=st.booleans())
def test_concatenate(parts, layout, weighted):
    examples = [examples_of(part, layout, weighted, seed) for seed, part in enumerate(parts)]
    whole = Examples.concatenate(examples)
    assert as_lists(whole) == [row for part in examples for row in as_lists(part)]
    assert len(whole) == sum(map(len, parts))
    assert sp.issparse(whole.X) == (layout == "sparse")


@given(labels=label_rows, layout=layouts, seed=st.integers(0, 99), data=st.data())
def test_taking_all_parts_and_concatenating_them_is_the_whole(labels, layout, seed, data):
    examples = examples_of(labels, layout, True, seed)
    cut = data.draw(st.integers(0, len(labels)))
    parts = [examples.take(np.arange(cut)), examples.take(np.arange(cut, len(labels)))]
    assert as_lists(Examples.concatenate(parts)) == as_lists(examples)


@given(labels=label_rows, k=st.integers(1, 4), data=st.data())
def test_contains(labels, k, data):
    examples = examples_of(labels, "dense", False)
    rows = data.draw(st.lists(st.integers(0, len(labels) - 1), min_size=1, max_size=10))
    # −1 is no label, and labels may be larger than any that occurs.
    candidates = st.lists(st.integers(-1, N_LABELS + 3), min_size=k, max_size=k)
    ids = [data.draw(candidates) for _ in rows]
    found = examples.contains(np.array(rows, np.int64), np.array(ids, np.int64))
    assert found.tolist() == [
        [label >= 0 and label in labels[row] for label in some]
        for row, some in zip(rows, ids, strict=True)
    ]


@given(data=st.data(), labels=label_rows)
def test_unknown_labels_are_never_contained(labels, data):
    examples = examples_of(labels, "dense", False)
    unknown = data.draw(st.sets(st.integers(0, N_LABELS - 1)))
    examples.labels[np.isin(examples.labels, list(unknown))] = -1
    ids = np.tile(np.arange(-1, N_LABELS), (len(labels), 1))
    found = examples.contains(np.arange(len(labels)), ids)
    assert found.tolist() == [
        [label in row and label not in unknown for label in range(-1, N_LABELS)] for row in labels
    ]


def test_take_returns_a_copy():
    examples = examples_of([[0], [1, 2]], "dense", True)
    taken = examples.take(np.array([1, 0]))
    taken.X[:] = 9
    taken.labels[:] = 5
    assert examples.X.max() < 9
    assert examples.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_part_without_rows(layout):
    examples = examples_of([[0], [1, 2]], layout, False)
    empty = examples.take(np.empty(0, np.int64))
    assert len(empty) == 0
    assert as_lists(Examples.concatenate([empty, examples])) == as_lists(examples)
