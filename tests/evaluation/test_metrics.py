"""Metrics at k agree with scikit-learn, with a plain loop, and with the definitions."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, ndcg_score, top_k_accuracy_score

from ltls.metrics import (
    coverage_at_k,
    label_matrix,
    macro_f1_at_k,
    ndcg_at_k,
    precision_at_k,
    propensities,
    psp_at_k,
    recall_at_k,
)

METRICS = [precision_at_k, recall_at_k, ndcg_at_k, macro_f1_at_k]


@st.composite
def problems(draw):
    """Truth as a list of sets, answers as lists padded with -1, one weight per row, and k."""
    n_labels = draw(st.integers(1, 8))
    width = draw(st.integers(1, n_labels + 2))
    label = st.integers(0, n_labels - 1)
    truth, answers = [], []
    for _ in range(draw(st.integers(1, 6))):
        truth.append(draw(st.sets(label)))
        row = draw(st.lists(label, unique=True, max_size=width))
        gaps = draw(st.permutations([0] * len(row) + [1] * (width - len(row))))
        labels = iter(row)
        answers.append([-1 if gap else next(labels) for gap in gaps])
    weights = draw(st.lists(st.floats(0.1, 10), min_size=len(truth), max_size=len(truth)))
    return truth, answers, weights, n_labels, draw(st.integers(1, width))


def matrix_of(truth, n_labels):
    dense = np.zeros((len(truth), n_labels), dtype=np.float32)
    for row, labels in enumerate(truth):
        dense[row, list(labels)] = 1
    return sp.csr_matrix(dense)


def naive(truth, answers, weights, k, propensity):
    """Precision, recall, nDCG, macro-F1 and propensity-scored precision, in plain loops."""
    sums = dict.fromkeys(["precision", "recall", "ndcg", "gained", "possible"], 0.0)
    for true, row, weight in zip(truth, answers, weights, strict=True):
        found = [label in true for label in row[:k]]
        best = sum(1 / math.log2(r + 2) for r in range(min(k, len(true))))
        dcg = sum(1 / math.log2(r + 2) for r, hit in enumerate(found) if hit)
        sums["precision"] += weight * sum(found) / k
        sums["recall"] += weight * sum(found) / len(true) if true else 0
        sums["ndcg"] += weight * dcg / best if true else 0
        sums["gained"] += weight * sum(1 / propensity[i] for i in row[:k] if i in true)
        sums["possible"] += weight * sum(sorted(1 / propensity[i] for i in true)[::-1][:k])
    psp = sums["gained"] / sums["possible"] if sums["possible"] else 0.0
    total = sum(weights)
    macro, _ = naive_of_labels(truth, answers, weights, k)
    return sums["precision"] / total, sums["recall"] / total, sums["ndcg"] / total, macro, psp


def naive_of_labels(truth, answers, weights, k):
    """Macro-F1 and coverage, one label and one row at a time."""
    scores, covered = [], 0
    for label in set().union(*truth):
        tp = predicted_or_true = 0.0
        for true, row, weight in zip(truth, answers, weights, strict=True):
            tp += weight * (label in true and label in row[:k])
            predicted_or_true += weight * ((label in true) + (label in row[:k]))
        scores.append(2 * tp / predicted_or_true)
        covered += tp > 0
    return (sum(scores) / len(scores), covered / len(scores)) if scores else (0.0, 0.0)


@given(problems())
def test_equal_to_a_plain_loop(problem):
    truth, answers, weights, n_labels, k = problem
    y = matrix_of(truth, n_labels)
    p = propensities(y)
    got = [metric(y, answers, k, sample_weight=weights) for metric in METRICS]
    got.append(psp_at_k(y, answers, p, k, sample_weight=weights))
    assert got == pytest.approx(naive(truth, answers, weights, k, p))
    assert all(type(value) is float and 0 <= value <= 1 + 1e-9 for value in got)
    ones = [1.0] * len(truth)
    got = [metric(y, answers, k) for metric in METRICS] + [psp_at_k(y, answers, p, k)]
    assert got == pytest.approx(naive(truth, answers, ones, k, p))
    _, covered = naive_of_labels(truth, answers, ones, k)
    assert coverage_at_k(y, answers, k) == pytest.approx(covered)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_macro_f1_equals_scikit_learns_of_the_labels_with_a_row(k):
    rng = np.random.default_rng(3)
    truth = rng.random((50, 40)) < 0.03
    topk = np.argsort(-rng.random((50, 40)) - truth, axis=1)[:, :k]
    weights = rng.random(50)
    predicted = np.zeros_like(truth)
    np.put_along_axis(predicted, topk, True, axis=1)
    labels = np.flatnonzero(truth.any(axis=0))
    assert len(labels) < 40
    expected = f1_score(
        truth, predicted, labels=labels, average="macro", sample_weight=weights, zero_division=0
    )
    assert macro_f1_at_k(truth, topk, sample_weight=weights) == pytest.approx(expected)


def test_averages_over_labels_know_rare_ones():
    truth, topk = [0] * 98 + [1, 2], [[0, 1]] * 100
    assert precision_at_k(truth, topk, 1) == 0.98
    assert coverage_at_k(truth, topk, 1) == pytest.approx(1 / 3)
    assert coverage_at_k(truth, topk) == pytest.approx(2 / 3)
    assert macro_f1_at_k(truth, topk) == pytest.approx((2 * 98 / 198 + 2 / 101 + 0) / 3)


def test_no_true_label_scores_zero():
    nothing = sp.csr_matrix((2, 3))
    assert macro_f1_at_k(nothing, [[0], [1]]) == coverage_at_k(nothing, [[0], [1]]) == 0.0


def test_rows_of_weight_zero_do_not_count():
    assert macro_f1_at_k([0, 1], [[0], [0]], sample_weight=[1, 0]) == 1.0


@pytest.mark.parametrize("k", [1, 3, 10])
def test_ndcg_equals_scikit_learn(k):
    rng = np.random.default_rng(0)
    truth = rng.random((50, 20)) < 0.15
    scores = rng.random((50, 20))
    weights = rng.random(50)
    topk = np.argsort(-scores, axis=1)[:, :k]
    expected = ndcg_score(truth, scores, k=k, sample_weight=weights)
    assert ndcg_at_k(truth, topk, sample_weight=weights) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_recall_of_one_label_equals_scikit_learns_top_k_accuracy(k):
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 9, 80)
    scores = rng.random((80, 9))
    topk = np.argsort(-scores, axis=1)
    expected = top_k_accuracy_score(truth, scores, k=k, labels=np.arange(9))
    assert recall_at_k(truth, topk, k) == pytest.approx(expected)
    assert precision_at_k(truth, topk, k) == pytest.approx(expected / k)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_label_ids_and_indicator_are_the_same_truth(ids, random):
    topk = [random.sample(range(10), 4) for _ in ids]
    indicator = matrix_of([{i} for i in ids], 10)
    for metric in (*METRICS, coverage_at_k):
        assert metric(ids, topk) == metric(indicator, topk) == metric(indicator.toarray(), topk)
    assert np.array_equal(propensities(ids, n_labels=10), propensities(indicator))
    p = propensities(indicator)
    assert psp_at_k(ids, topk, p) == psp_at_k(indicator, topk, p)


def test_a_perfect_answer_scores_one():
    truth = matrix_of([{0, 3}, {1, 2}], 4)
    topk = [[3, 0], [1, 2]]
    p = propensities(truth)
    assert [m(truth, topk) for m in METRICS] + [psp_at_k(truth, topk, p)] == [1.0] * 5
    assert coverage_at_k(truth, topk) == 1.0


def test_label_ids_beyond_any_dense_matrix():
    big = 2**61
    topk = [[big, 0], [big, -1], [2**62, 3]]
    truth = [big, big + 1, 3]
    assert precision_at_k(truth, topk) == pytest.approx(1 / 3)
    assert coverage_at_k(truth, topk) == pytest.approx(2 / 3)
    assert macro_f1_at_k(truth, topk) == pytest.approx((2 / 3 + 0 + 1) / 3)


def test_duplicates_and_stored_zeros_of_a_sparse_matrix_are_what_scipy_means():
    truth = sp.csr_matrix(([1, 1, 0, 1], [2, 2, 1, 0], [0, 3, 4]), shape=(2, 3))
    before = truth.copy()
    assert recall_at_k(truth, [[1, 2], [2, 0]]) == 1.0
    assert precision_at_k(truth, [[1, 2], [2, 0]]) == 0.5
    assert np.array_equal(truth.indices, before.indices)
    assert np.array_equal(truth.data, before.data)
    assert label_matrix(truth).nnz == 2
    assert recall_at_k(sp.coo_array(truth), [[1, 2], [2, 0]]) == 1.0


def test_propensities_follow_the_formula_and_the_frequency():
    counts = np.array([40, 7, 1, 0])
    p = propensities(np.repeat(np.arange(4), counts), n_labels=4)
    c = (math.log(48) - 1) * 2.5**0.55
    assert p == pytest.approx(1 / (1 + c * np.exp(-0.55 * np.log(counts + 1.5))))
    assert (np.diff(p) < 0).all()
    assert propensities([0, 1]).tolist() == [1.0, 1.0]  # log N - 1 is negative here
    assert propensities([0, 1, 1, 1], a=0.5, b=0.4).shape == (2,)


def test_many_rows_and_labels_need_no_dense_matrix():
    rng = np.random.default_rng(2)
    where = rng.integers(0, 20_000, 40_000), rng.integers(0, 1_000_000, 40_000)
    truth = sp.csr_matrix((np.ones(40_000), where), shape=(20_000, 1_000_000))
    topk = rng.integers(0, 200_000, (20_000, 5)) + 200_000 * np.arange(5)
    topk[:, 0] = np.asarray(truth.argmax(axis=1)).ravel()
    topk[np.diff(truth.indptr) == 0] = -1
    assert precision_at_k(truth, topk, 1) == pytest.approx((np.diff(truth.indptr) > 0).mean())


@pytest.mark.parametrize(
    ("y_true", "topk", "keywords", "message"),
    [
        ([0, 1], [[0], [1]], {"k": 2}, "k must be an integer from 1 to 1.*got 2"),
        ([0, 1], [[0], [1]], {"k": 0}, "k must be.*got 0"),
        ([0, 1], [[0], [1]], {"k": 1.0}, "k must be.*got 1.0"),
        ([0, 1], [0, 1], {}, "topk must be a 2-d array.*1 dimension"),
        ([0, 1], [[0.0], [1.0]], {}, "topk must be.*float64"),
        ([0, 1], [[0]], {}, "topk must have 2 rows.*got 1"),
        ([0, 1], [[0], [-2]], {}, "topk must hold label ids, or -1.*got -2"),
        ([0, 1], [[0, 1], [1, 1]], {}, "topk must name a label at most once.*row=1"),
        ([[0, 1]], [[2]], {}, "topk must hold ids below 2.*got 2"),
        ([0, -1], [[0], [1]], {}, "y_true must hold label ids.*got -1"),
        ([0.5, 1], [[0], [1]], {}, "y_true must hold label ids.*float64"),
        (["a", "b"], [[0], [1]], {}, "y_true must be.*got values of type"),
        ([[0, 1], [1]], [[0], [1]], {}, "y_true must be.*different lengths; .*MultiLabelBinarizer"),
        ([[[1]]], [[0]], {}, "y_true must be.*got 3 dimensions"),
        ([[0.0, np.nan]], [[0]], {}, "y_true must hold 0 and 1.*NaN"),
        ([], [[0]], {}, "y_true must have at least one row|y_true must"),
        ([0, 1], [[0], [1]], {"sample_weight": [1]}, r"sample_weight must have shape \(2,\)"),
        ([0, 1], [[0], [1]], {"sample_weight": [1, -1]}, r"at least 0, got -1.0 in row=1"),
        ([0, 1], [[0], [1]], {"sample_weight": [0, 0]}, "sample_weight must have"),
    ],
)
def test_bad_arguments_are_named(y_true, topk, keywords, message):
    metrics = METRICS if "sample_weight" in keywords else [*METRICS, coverage_at_k]
    for metric in metrics:
        with pytest.raises(ValueError, match=message):
            metric(y_true, topk, **keywords)


def test_bad_propensities_are_named():
    with pytest.raises(ValueError, match="propensity must have one value for every label"):
        psp_at_k([0, 2], [[0], [1]], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"propensity must be positive .* got 0.0 for label=1"):
        psp_at_k([0, 1], [[0], [1]], [0.5, 0.0])
    with pytest.raises(ValueError, match="n_labels must be at least the 3 of y_train, got 2"):
        propensities([0, 2], n_labels=2)
    with pytest.raises(ValueError, match="a must be at least 0"):
        propensities([0, 2], a=-1)
    with pytest.raises(ValueError, match="b must be above 0"):
        propensities([0, 2], b=0)
