"""The naive baselines of table 3: the oracle counts rows, the regressions are scikit-learn's."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from benchmarks.baselines import TopLabelsLR, oracle

label_sets = st.lists(st.sets(st.integers(0, 6), max_size=3), min_size=1, max_size=15)


def matrix_of(label_sets, n_labels):
    dense = np.zeros((len(label_sets), n_labels), dtype=bool)
    for row, labels in enumerate(label_sets):
        dense[row, list(labels)] = True
    return sp.csr_matrix(dense)


@pytest.fixture(scope="module")
def rows():
    """600 rows with up to three of eight labels, the last ones rare, told by noisy features."""
    rng = np.random.default_rng(0)
    Y = rng.random((600, 8)) < np.array([0.5, 0.4, 0.3, 0.25, 0.2, 0.1, 0.05, 0.02])
    X = Y @ rng.normal(size=(8, 20)) + rng.normal(size=(600, 20))
    X[np.abs(X) < 0.3] = 0
    return sp.csr_matrix(X), sp.csr_matrix(Y.astype(np.float32))


@given(label_sets.filter(any), label_sets, st.integers(1, 9))
def test_oracle_counts_the_rows_that_have_a_frequent_label(train, test, n_labels):
    counts = [sum(label in row for row in train) for label in range(7)]
    ranked = sorted((label for label in range(7) if counts[label]), key=lambda i: (-counts[i], i))
    known = set(ranked[:n_labels])
    expected = sum(bool(known & row) for row in test) / len(test)
    assert oracle(matrix_of(train, 7), matrix_of(test, 7), n_labels) == pytest.approx(expected)


@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_oracle_of_label_ids_is_that_of_the_indicator(train, test):
    as_matrix = [matrix_of([{i} for i in ids], 6) for ids in (train, test)]
    for n_labels in (1, 3, 6):
        assert oracle(train, test, n_labels) == oracle(*as_matrix, n_labels)
    assert oracle(train, train, 6) == 1.0


def test_the_models_are_scikit_learns(rows):
    X, Y = rows
    model = TopLabelsLR(3, C_grid=[0.5]).fit(X, Y)
    assert model.labels_.tolist() == np.argsort(-Y.toarray().sum(axis=0))[:3].tolist()
    scores = np.empty((600, 3))
    for j, label in enumerate(model.labels_):
        one = LogisticRegression(C=0.5, solver="liblinear").fit(X, Y[:, [label]].toarray().ravel())
        scores[:, j] = one.decision_function(X)
    labels, got = model.predict_topk(X, 3)
    assert got == pytest.approx(-np.sort(-scores, axis=1))
    assert np.array_equal(labels, model.labels_[np.argsort(-scores, axis=1)])


def test_it_learns_and_stays_below_the_oracle(rows):
    X, Y = rows
    model = TopLabelsLR(4, random_state=0).fit(X[:400], Y[:400])
    score = model.score(X[400:], Y[400:])
    most_frequent = oracle(Y[:400], Y[400:], 1)
    assert most_frequent < score <= oracle(Y[:400], Y[400:], 4)


def test_the_constant_is_the_best_on_held_out_rows(rows):
    X, Y = rows
    model = TopLabelsLR(4, C_grid=(1, 1e-6, 100), random_state=3).fit(X, Y)
    assert sorted(model.validation_scores_) == [1e-6, 1, 100]
    best = max(model.validation_scores_.values())
    tied = [c for c, score in model.validation_scores_.items() if score == best]
    assert min(tied) == model.C_ > 1e-6
    again = clone(model).fit(X, Y)
    assert again.validation_scores_ == model.validation_scores_
    assert np.array_equal(again.coef_, model.coef_)


def test_label_ids_indicator_sparse_and_dense_give_the_same(rows):
    X = rows[0]
    y = np.asarray(rows[1].argmax(axis=1)).ravel()
    wanted = TopLabelsLR(3, random_state=0).fit(X, y)
    for features in (X, X.toarray(), sp.coo_matrix(X)):
        for labels in (y, np.eye(8)[y], sp.csr_matrix(np.eye(8)[y])):
            model = TopLabelsLR(3, random_state=0).fit(features, labels)
            assert model.predict_topk(X, 2)[0].tolist() == wanted.predict_topk(X, 2)[0].tolist()
            assert model.score(X, labels) == wanted.score(X, y)


def test_more_features_than_rows(rows):
    X = sp.hstack([rows[0], sp.csr_matrix((600, 1000))]).tocsr()
    wide, narrow = (TopLabelsLR(3, C_grid=[0.1]).fit(x, rows[1]) for x in (X, rows[0]))
    assert wide.predict_topk(X, 3)[1] == pytest.approx(narrow.predict_topk(rows[0], 3)[1], abs=0.01)


def test_answers_that_do_not_exist_are_minus_one(rows):
    X, Y = rows
    labels, scores = TopLabelsLR(50, C_grid=[1]).fit(X, Y).predict_topk(X, 10)
    assert (labels[:, 8:] == -1).all()
    assert np.isneginf(scores[:, 8:]).all()
    assert (np.sort(labels[:, :8], axis=1) == np.arange(8)).all()
    assert (np.diff(scores[:, :8], axis=1) <= 0).all()


def test_a_label_of_all_rows_comes_first_and_one_missing_from_a_part_does_no_harm():
    X = np.eye(12)
    Y = np.zeros((12, 3))
    Y[:, 2], Y[3, 0], Y[:6, 1] = 1, 1, 1
    model = TopLabelsLR(3, random_state=0).fit(X, Y)
    assert (model.predict_topk(X, 1)[0] == 2).all()
    assert model.score(X, Y) == 1.0
