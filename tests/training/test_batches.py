"""Sources of training rows, and rows to hold out."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ltls import LTLSClassifier
from ltls.model.examples import Examples
from ltls.training.batches import InMemory, RowsToHoldOut, Streamed


def examples_of(labels, first=0):
    """Rows whose only feature is their number."""
    X = np.arange(first, first + len(labels), dtype=float)[:, None]
    indptr = np.cumsum([0, *map(len, labels)])
    flat = np.array([label for row in labels for label in row], np.int64)
    return Examples(X, indptr, flat, None, True)


rows_of_labels = st.lists(
    st.lists(st.integers(0, 8), max_size=4, unique=True), min_size=1, max_size=30
)


def counts_of(labels, n_labels=9):
    return np.bincount([label for row in labels for label in row], minlength=n_labels)


# Rows to hold out


@given(labels=rows_of_labels, data=st.data())
def test_every_label_keeps_a_training_row(labels, data):
    wanted = sorted(data.draw(st.sets(st.integers(0, len(labels) - 1))))
    examples, counts = examples_of(labels), counts_of(labels)
    before = counts.copy()
    held_out = RowsToHoldOut(counts).select(examples, np.array(wanted, np.int64)).tolist()
    assert set(held_out) <= set(wanted)
    assert held_out == sorted(set(held_out))
    np.testing.assert_array_equal(counts, before)
    kept = {label for i, row in enumerate(labels) if i not in held_out for label in row}
    assert kept == {label for row in labels for label in row}
    # No other wanted row could be held out as well.
    for row in set(wanted) - set(held_out):
        others = [labels[i] for i in range(len(labels)) if i not in (*held_out, row)]
        assert not set(labels[row]) <= {label for other in others for label in other}


@given(labels=rows_of_labels, size=st.integers(1, 7), data=st.data())
def test_selecting_batch_by_batch_is_the_same(labels, size, data):
    wanted = np.array(sorted(data.draw(st.sets(st.integers(0, len(labels) - 1)))), np.int64)
    at_once = RowsToHoldOut(counts_of(labels)).select(examples_of(labels), wanted)
    rows, found = RowsToHoldOut(counts_of(labels)), []
    for first in range(0, len(labels), size):
        part = labels[first : first + size]
        here = wanted[(wanted >= first) & (wanted < first + size)] - first
        found += (rows.select(examples_of(part), here) + first).tolist()
    assert found == at_once.tolist()


# Sources


def flat_rows(batches):
    """The first feature of all rows in the order of training."""
    return [float(examples.X[row, 0]) for examples, rows in batches for row in rows]


@given(labels=rows_of_labels, shuffle=st.booleans(), validate=st.booleans(), data=st.data())
def test_an_epoch_in_memory_has_every_training_row_once(labels, shuffle, validate, data):
    held_out = np.array(sorted(data.draw(st.sets(st.integers(0, len(labels) - 1)))), np.int64)
    source = InMemory(examples_of(labels), held_out, validate, shuffle, np.random.RandomState(0))
    expected = [float(row) for row in range(len(labels)) if row not in held_out]
    assert source.n_rows == len(expected)
    assert flat_rows(source.in_order()) == expected
    epoch = flat_rows(source.epoch())
    assert sorted(epoch) == expected
    assert shuffle or epoch == expected
    assert (source.validation_rows() is not None) == (validate and len(held_out) > 0)
    evaluated = flat_rows([source.evaluation_rows()])
    assert evaluated == (held_out.tolist() if source.validation_rows() else expected)


@given(
    labels=rows_of_labels,
    size=st.integers(1, 7),
    share=st.floats(0, 0.9),
    shuffle=st.booleans(),
    seed=st.integers(0, 99),
)
def test_an_epoch_of_a_stream_has_every_training_row_once(labels, size, share, shuffle, seed):
    parts = [(labels[i : i + size], i) for i in range(0, len(labels), size)]
    source = Streamed(
        lambda: (examples_of(*part) for part in parts),
        len(labels),
        int(share * len(labels)),
        counts_of(labels),
        shuffle,
        np.random.RandomState(seed),
    )
    assert source.validation_rows() is source.evaluation_rows() is None
    first = flat_rows(source.epoch())
    held_out = flat_rows([source.validation_rows()]) if source.validation_rows() else []
    assert sorted(first + held_out) == list(range(len(labels)))
    trained = {label for row in first for label in labels[int(row)]}
    assert trained == {label for row in labels for label in row}
    # Without validation rows, few rows are evaluated on in full.
    evaluated = flat_rows([source.evaluation_rows()])
    assert evaluated == (held_out or list(range(len(labels))))
    for _ in range(2):
        assert sorted(flat_rows(source.epoch())) == sorted(first)
    assert flat_rows(source.in_order()) == sorted(first)
    assert flat_rows([source.evaluation_rows()]) == evaluated


def test_rows_for_evaluation_are_the_same_when_training_is_resumed():
    labels = [[i % 5] for i in range(60)]
    parts = [(labels[i : i + 7], i) for i in range(0, 60, 7)]

    def source():
        return Streamed(
            lambda: (examples_of(*part) for part in parts),
            60, 12, counts_of(labels), True, np.random.RandomState(0),
        )  # fmt: skip

    trained, resumed = source(), source()
    list(trained.epoch())
    resumed.keep_evaluation_rows()
    one, other = trained.evaluation_rows()[0], resumed.evaluation_rows()[0]
    np.testing.assert_array_equal(one.X, other.X)
    np.testing.assert_array_equal(one.labels, other.labels)


# Early stopping where labels are rare


def one_row_per_class(n):
    rng = np.random.default_rng(0)
    noise = sp.random(n, n, 2 / n, "csr", np.float32, rng)
    return (sp.identity(n, np.float32, "csr") + 0.1 * noise).tocsr(), np.arange(n)


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_one_row_per_class_is_trained_on_in_full(stream):
    X, y = one_row_per_class(3000)
    model = LTLSClassifier(
        epochs=4, validation_fraction=0.1, n_trellises=3, embedding_dim=0, random_state=0
    )
    if stream:
        model.fit_stream([(X[i : i + 700], y[i : i + 700]) for i in range(0, 3000, 700)])
    else:
        model.fit(X, y)
    assert model.n_iter_ == 4  # no row can be held out, so nothing stops training early
    assert model.model_.trainable.step == 1 + 4 * 3000
    assert model.score(X, y) > 0.99


def test_one_row_per_class_with_an_embedding():
    X, y = one_row_per_class(300)
    model = LTLSClassifier(epochs=4, validation_fraction=0.1, embedding_dim=8, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.99


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_rare_labels_are_trained_on_beside_frequent_ones(stream):
    X, y = one_row_per_class(400)
    frequent = np.tile(np.arange(10), 200)
    order = np.random.default_rng(1).permutation(2400)
    X, y = sp.vstack([X, X[frequent]], "csr")[order], np.concatenate([y, frequent])[order]
    model = LTLSClassifier(
        epochs=30, validation_fraction=0.2, n_iter_no_change=2, n_trellises=3, random_state=0
    )
    if stream:
        model.fit_stream([(X[i : i + 500], y[i : i + 500]) for i in range(0, 2400, 500)])
    else:
        model.fit(X, y)
    assert model.n_iter_ < 30  # stopped early, by the frequent labels
    rare = y >= 10
    assert model.score(X[rare], y[rare]) > 0.95


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_multilabel_rows_that_cannot_be_held_out(stream):
    X, y = one_row_per_class(100)
    y = [[f"label {i}"] for i in y]
    model = LTLSClassifier(epochs=10, validation_fraction=0.1, random_state=0)
    model = model.fit_stream([(X[:50], y[:50]), (X[50:], y[50:])]) if stream else model.fit(X, y)
    assert np.isfinite(model.threshold_)
    assert model.score(X, y) > 0.9
