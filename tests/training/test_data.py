"""Rows to train on: in memory and in batches, those that are held out, and statistics of all."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from problems import in_batches

from ltls import LTLSClassifier
from ltls.features.numbers import NumberInputs, Numbers
from ltls.features.rows import Rows
from ltls.model.examples import Examples
from ltls.model.labels import as_targets
from ltls.parts.label_matrix import MOST_FEATURES
from ltls.settings import Trellises
from ltls.training.data import DatasetStats, RowsToHoldOut, Source

N_LABELS = 6

label_rows = st.lists(
    st.lists(st.integers(0, N_LABELS - 1), max_size=4, unique=True), min_size=1, max_size=12
)
layouts = st.sampled_from(["dense", "sparse"])


# Rows with labels


def examples_of(labels, layout="dense", weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (len(labels), 4)).astype(np.float32)
    weights = rng.random(len(labels)).astype(np.float32) if weighted else None
    indptr = np.cumsum([0, *map(len, labels)])
    flat = np.array([label for row in labels for label in row], np.int64)
    rows = Rows(sp.csr_array(X) if layout == "sparse" else X, False, False)
    return Examples(rows, indptr, flat, weights, True)


def as_lists(examples):
    """Every row as its features, labels and weight."""
    X = examples.rows.X.toarray() if examples.rows.sparse else examples.rows.X
    ends = zip(examples.indptr[:-1], examples.indptr[1:], strict=True)
    labels = [examples.labels[begin:end].tolist() for begin, end in ends]
    weights = [None] * len(labels) if examples.weights is None else examples.weights.tolist()
    return list(zip(X.tolist(), labels, weights, strict=True))


@given(labels=label_rows, layout=layouts, weighted=st.booleans(), data=st.data())
def test_take_copies_rows(labels, layout, weighted, data):
    examples = examples_of(labels, layout, weighted)
    rows = data.draw(st.lists(st.integers(0, len(labels) - 1), max_size=15))
    taken, everything = examples.take(np.array(rows, np.int64)), as_lists(examples)
    assert as_lists(taken) == [everything[row] for row in rows]
    assert taken.multilabel == examples.multilabel
    taken.labels[:] = 5
    (taken.rows.X.data if layout == "sparse" else taken.rows.X)[:] = 9
    assert as_lists(examples) == everything


@given(parts=st.lists(label_rows, min_size=1, max_size=4), layout=layouts, weighted=st.booleans())
def test_concatenate_joins_parts_and_those_without_rows(parts, layout, weighted):
    examples = [examples_of(part, layout, weighted, seed) for seed, part in enumerate(parts)]
    empty = examples[0].take(np.empty(0, np.int64))
    whole = Examples.concatenate([empty, *examples])
    assert as_lists(whole) == [row for part in examples for row in as_lists(part)]
    assert whole.rows.sparse == (layout == "sparse")


@given(labels=label_rows, k=st.integers(1, 4), data=st.data())
def test_contains(labels, k, data):
    examples = examples_of(labels)
    unknown = data.draw(st.sets(st.integers(0, N_LABELS - 1)))
    examples.labels[np.isin(examples.labels, list(unknown))] = -1
    # −1 is no label, and labels may be larger than any that occurs.
    candidates = st.lists(st.integers(-1, N_LABELS + 3), min_size=k, max_size=k)
    ids = [data.draw(candidates) for _ in labels]
    assert examples.contains(np.array(ids, np.int64)).tolist() == [
        [label in row and label not in unknown for label in some]
        for row, some in zip(labels, ids, strict=True)
    ]


@given(labels=label_rows, layout=layouts, unit_length=st.booleans(), seed=st.integers(0, 99))
def test_sums_of_the_rows_of_labels(labels, layout, unit_length, seed):
    examples = examples_of(labels, layout, seed=seed)
    X = examples.rows.X.toarray() if examples.rows.sparse else examples.rows.X
    length = np.linalg.norm(X, axis=1, keepdims=True)
    rows = X / np.where(length > 0, length, 1) if unit_length else X
    sums, counts = examples.label_sums(N_LABELS, unit_length)
    for label in range(N_LABELS):
        own = [number for number, row in enumerate(labels) if label in row]
        assert counts[label] == len(own)
        found = sums(slice(label, label + 1)).toarray()[0]
        np.testing.assert_allclose(found, rows[own].sum(axis=0), rtol=1e-6)


def test_rows_of_weight_0_are_in_no_sum_and_keep_their_labels():
    examples = examples_of([[3], [1, 2], [2]])
    examples.weights = np.array([0, 1, 1], np.float32)
    before = as_lists(examples)
    assert examples.label_sums(N_LABELS)[1].tolist() == [0, 1, 2, 0, 0, 0]
    assert as_lists(examples) == before


# Rows to hold out


def numbered(labels, first=0):
    """Rows whose only feature is their number."""
    X = np.arange(first, first + len(labels), dtype=float)[:, None]
    indptr = np.cumsum([0, *map(len, labels)])
    flat = np.array([label for row in labels for label in row], np.int64)
    return Examples(Rows(X, False, False), indptr, flat, None, True)


def counts_of(labels):
    return np.bincount([label for row in labels for label in row], minlength=N_LABELS)


@given(labels=label_rows, data=st.data())
def test_every_label_keeps_a_training_row(labels, data):
    wanted = sorted(data.draw(st.sets(st.integers(0, len(labels) - 1))))
    examples, counts = numbered(labels), counts_of(labels)
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


@given(labels=label_rows, size=st.integers(1, 7), data=st.data())
def test_selecting_batch_by_batch_is_the_same(labels, size, data):
    wanted = np.array(sorted(data.draw(st.sets(st.integers(0, len(labels) - 1)))), np.int64)
    at_once = RowsToHoldOut(counts_of(labels)).select(numbered(labels), wanted)
    rows, found = RowsToHoldOut(counts_of(labels)), []
    for first in range(0, len(labels), size):
        part = labels[first : first + size]
        here = wanted[(wanted >= first) & (wanted < first + size)] - first
        found += (rows.select(numbered(part), here) + first).tolist()
    assert found == at_once.tolist()


# Where rows come from


def described(labels, shuffle, n_held_out=0):
    """What a source has to know of its rows, and of the plan."""
    size = SimpleNamespace(n_rows=len(labels))
    problem = SimpleNamespace(size=size, counts=counts_of(labels))
    trellises = SimpleNamespace(shuffle=shuffle)
    return problem, SimpleNamespace(n_held_out=n_held_out, trellises=trellises)


def flat_rows(batches):
    """The numbers of all rows in the order of training."""
    return [float(examples.rows.X[row, 0]) for examples, rows in batches for row in rows]


def numbers_of(examples):
    return [] if examples is None else examples.rows.X[:, 0].tolist()


@given(
    labels=label_rows,
    size=st.integers(1, 7),
    whole=st.booleans(),
    shuffle=st.booleans(),
    data=st.data(),
)
def test_an_epoch_has_every_training_row_once(labels, size, whole, shuffle, data):
    parts = [(labels[i : i + size], i) for i in range(0, len(labels), size)]
    wanted = np.array(sorted(data.draw(st.sets(st.integers(0, len(labels) - 1)))), np.int64)

    def source():
        arguments = (*described(labels, shuffle), np.random.RandomState(0))
        batches = lambda: (numbered(*part) for part in parts)  # noqa: E731
        found = (
            Source.in_memory(numbered(labels), *arguments) if whole else Source(batches, *arguments)
        )
        found.held_out = wanted  # as that of a checkpoint
        return found

    trained = source()
    first = flat_rows(trained.epoch())
    held_out = numbers_of(trained.held_out_rows())
    expected = RowsToHoldOut(counts_of(labels)).select(numbered(labels), wanted).tolist()
    assert held_out == trained.held_out.tolist() == expected
    assert sorted(first + held_out) == list(range(len(labels)))
    assert trained.n_rows == len(first)
    assert shuffle or first == sorted(first)
    # Without held-out rows, few rows are evaluated on in full.
    evaluated = numbers_of(trained.evaluation_rows())
    assert evaluated == (held_out or list(range(len(labels))))
    for _ in range(2):
        assert sorted(flat_rows(trained.epoch())) == sorted(first)
    assert flat_rows(trained.in_order()) == sorted(first)
    assert numbers_of(trained.evaluation_rows()) == evaluated
    assert [n for part in trained.all_rows() for n in numbers_of(part)] == list(range(len(labels)))
    # Training that is resumed after its last epoch has not seen a row yet.
    assert numbers_of(source().evaluation_rows()) == evaluated


def test_a_pass_that_is_not_finished_keeps_nothing():
    labels = [[0], [0], [1], [1]]
    parts = [(labels[:2], 0), (labels[2:], 2)]
    batches = lambda: (numbered(*part) for part in parts)  # noqa: E731
    source = Source(batches, *described(labels, False), None)
    source.held_out = np.array([1, 3])
    next(source.in_order())
    assert numbers_of(source.held_out_rows()) == [1, 3]


@pytest.mark.parametrize("at_once", [True, False])
def test_rows_to_hold_out_are_random(at_once):
    labels = [[0], [1]] * 20
    found = [
        Source(None, *described(labels, True, 9), np.random.RandomState(seed), at_once).held_out
        for seed in (0, 0, 1)
    ]
    assert found[0].tolist() == found[1].tolist() == sorted(set(found[0].tolist()))
    assert len(found[0]) == 9
    assert found[0].tolist() != found[2].tolist()


# Statistics of a first pass over batches


named = st.lists(
    st.lists(st.sampled_from("abcde"), max_size=4, unique=True), min_size=1, max_size=30
)


def stats_of(rows, size, X, per_label=0):
    stats = DatasetStats(per_label)
    for first in range(0, len(rows), size):
        part = slice(first, first + size)
        stats.add(X[part], as_targets(rows[part]), False)
    return stats, stats.problem(NumberInputs(Numbers()))


@given(rows=named, size=st.integers(1, 7))
def test_counts_are_those_of_all_rows(rows, size):
    stats, problem = stats_of(rows, size, np.ones((len(rows), 3)))
    flat = [label for row in rows for label in row]
    assert (problem.size.n_rows, problem.size.n_values) == (len(rows), 3 * len(rows))
    assert (problem.size.n_pairs, problem.size.multilabel) == (len(flat), True)
    assert problem.labels.values == sorted(set(flat))
    assert problem.counts.tolist() == [flat.count(label) for label in problem.labels.values]
    typical = np.quantile(list(map(len, rows)), 0.99, method="higher")
    assert problem.typical_labels == stats.typical_labels == max(typical, 1)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_intercept_is_not_one_of_the_dense_features(fit_intercept):
    stats = DatasetStats(0)
    stats.add(np.ones((2, MOST_FEATURES)), as_targets(["a", "b"]), False)
    size = stats.problem(NumberInputs(Numbers(fit_intercept=fit_intercept))).size
    assert size.n_vector_features == MOST_FEATURES
    assert size.few_vector_features


@given(rows=named, size=st.integers(1, 7), per_label=st.integers(1, 9), seed=st.integers(0, 99))
def test_sums_are_of_rows_that_are_among_the_first_of_a_label(rows, size, per_label, seed):
    X = np.random.default_rng(seed).random((len(rows), 4)) + 0.1
    stats, problem = stats_of(rows, size, X, per_label)
    seen, kept = dict.fromkeys("abcde", 0), []
    for row in rows:
        kept.append(any(seen[label] < per_label for label in row))
        for label in row:
            seen[label] += 1
    sums = stats.label_sums(problem, False).toarray()
    for label, vector in zip(problem.labels.values, sums, strict=True):
        own = [x for x, row, is_kept in zip(X, rows, kept, strict=True) if is_kept and label in row]
        np.testing.assert_allclose(vector[:4], np.sum(own, axis=0), rtol=1e-5)


# Early stopping where labels are rare


def one_row_per_class(n):
    rng = np.random.default_rng(0)
    noise = sp.random(n, n, 2 / n, "csr", np.float32, rng)
    return (sp.identity(n, np.float32, "csr") + 0.1 * noise).tocsr(), np.arange(n)


def fitted(model, X, y, stream, size):
    if not stream:
        return model.fit(X, y)
    return model.fit_stream(in_batches(X, y, size))


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_labels_of_one_row_are_trained_on(stream):
    X, y = one_row_per_class(3000)
    given_ = Trellises(epochs=4, n_trellises=3)
    model = LTLSClassifier(trellises=given_, validation_fraction=0.1, random_state=0)
    model = fitted(model.set_params(label_weights=False), X, y, stream, 700)
    assert model.n_iter_ == 4  # no row can be held out, so nothing stops training early
    assert model.fitted_.training.weights.step == 1 + 4 * 3000
    assert model.score(X, y) > 0.99
    # Beside frequent labels, which stop training early.
    few, frequent = X[:400], np.tile(np.arange(10), 200)
    order = np.random.default_rng(1).permutation(2400)
    rows, y = sp.vstack([few, few[frequent]], "csr")[order], np.append(y[:400], frequent)[order]
    model.set_params(trellises__epochs=30, trellises__n_iter_no_change=2, validation_fraction=0.2)
    assert fitted(model, rows, y, stream, 500).n_iter_ < 30
    assert model.score(rows[y >= 10], y[y >= 10]) > 0.95
    lists = [[f"label {i}"] for i in range(100)]
    model.set_params(trellises__epochs=10)
    assert fitted(model, X[:100], lists, stream, 50).score(X[:100], lists) > 0.9
    assert np.isfinite(model.threshold_)
