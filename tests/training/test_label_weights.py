"""Training of label weights, against scikit-learn's LinearSVC and the primal problem."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array, random_array
from sklearn.svm import LinearSVC

from ltls import LTLSClassifier
from ltls.core import _engine
from ltls.features.rows import engine_features
from ltls.model.examples import Examples
from ltls.model.label_weights import LabelWeights
from ltls.training import label_weights as training

N_LABELS, N_FEATURES = 7, 12
# Weights are float32: with a smaller tolerance, rows that were left out would not be checked again.
EXACT = {"cost": 1.0, "passes": 5000, "tolerance": 1e-5, "threshold": 0.0, "initial": None}


class Problem:
    """Rows with labels and candidates, some of which are missing."""

    def __init__(self, seed, multilabel=False, weighted=False, n_rows=80):
        rng = np.random.default_rng(seed)
        self.X = random_array((n_rows, N_FEATURES), density=0.4, rng=rng, dtype=np.float32).tocsr()
        own = [1 + multilabel * rng.integers(0, 3) for _ in range(n_rows)]
        self.own = [sorted(rng.permutation(N_LABELS)[:n].tolist()) for n in own]
        self.candidates = np.array([rng.permutation(N_LABELS)[:4] for _ in range(n_rows)], np.int32)
        self.candidates[rng.random(self.candidates.shape) < 0.2] = -1
        self.weights = None
        if weighted:
            self.weights = rng.choice([0, 0.3, 1, 2.5], n_rows).astype(np.float32)

    def task(self, unit_length=False, intercept=True):
        return _engine.LabelTask(
            engine_features(self.X, intercept, unit_length),
            np.cumsum([0, *map(len, self.own)]),
            np.concatenate(self.own).astype(np.int64),
            self.candidates,
            self.weights,
            n_labels=N_LABELS,
        )

    def rows_of(self, label):
        """The rows that a label is trained on, 1 or −1 for each, and their weights."""
        weights = np.ones(len(self.own)) if self.weights is None else self.weights
        signs = {}
        for row, own in enumerate(self.own):
            if weights[row] > 0 and label in own:
                signs[row] = 1
            elif weights[row] > 0 and label in self.candidates[row]:
                signs[row] = -1
        rows = np.array(list(signs), int)
        return rows, np.array(list(signs.values())), weights[rows]


def run(task, n_jobs=1, first=0, last=N_LABELS, n_columns=N_FEATURES + 1, **options):
    """Train some labels. Returns a matrix with a row for each."""
    labels = np.arange(first, last)
    counts, features, values = task.run(labels, **(EXACT | options), n_jobs=n_jobs)
    assert len(counts) == last - first
    indptr = np.concatenate([[0], np.cumsum(counts)])
    W = csr_array((values, features, indptr), shape=(last - first, n_columns))
    assert W.has_sorted_indices
    return W


def linear_svc(x, y, weights, cost=1.0, fit_intercept=True):
    """The weights that scikit-learn finds, the intercept last."""
    svc = LinearSVC(C=cost, loss="squared_hinge", dual=True, tol=1e-9, intercept_scaling=1,
                    fit_intercept=fit_intercept, max_iter=100_000, random_state=0)  # fmt: skip
    svc.fit(x, y, sample_weight=weights)
    return np.append(svc.coef_[0], svc.intercept_) if fit_intercept else svc.coef_[0]


def minimum(x, y, weights, cost, start):
    """The minimum of ½ ‖w − start‖² + cost · Σ weight · max(0, 1 − y x·w)²."""

    def objective(w):
        gap = np.maximum(0, 1 - y * (x @ w))
        gradient = w - start - 2 * cost * x.T @ (weights * gap * y)
        return 0.5 * ((w - start) ** 2).sum() + cost * (weights * gap**2).sum(), gradient

    options = {"maxiter": 10_000, "ftol": 1e-12, "gtol": 1e-7}
    return minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x


@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("multilabel", [False, True], ids=["one label", "several labels"])
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_are_those_of_linear_svc(instruction_set, seed, multilabel, weighted, cost):
    problem = Problem(seed, multilabel, weighted)
    found = run(problem.task(), cost=cost).toarray()
    for label in range(N_LABELS):
        rows, signs, weights = problem.rows_of(label)
        assert set(signs) == {-1, 1}
        expected = linear_svc(problem.X[rows], signs, weights, cost)
        np.testing.assert_allclose(found[label], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("seed", range(2))
def test_weights_minimize_the_distance_from_initial_ones(seed, weighted):
    problem = Problem(seed, multilabel=True, weighted=weighted)
    rng = np.random.default_rng(seed)
    shape = (N_LABELS, N_FEATURES + 1)
    start = (rng.normal(size=shape) * (rng.random(shape) < 0.5)).astype(np.float32)
    sparse = csr_array(start)
    initial = sparse.indptr.astype(np.int64), sparse.indices.astype(np.int32), sparse.data
    found = run(problem.task(), initial=initial).toarray()
    for label in range(N_LABELS):
        rows, signs, weights = problem.rows_of(label)
        x = np.column_stack([problem.X[rows].toarray().astype(float), np.ones(len(rows))])
        expected = minimum(x, signs, weights, 1.0, start[label].astype(float))
        np.testing.assert_allclose(found[label], expected, rtol=1e-3, atol=1e-3)


def test_rows_of_unit_length_and_no_intercept():
    problem = Problem(3)
    lengths = np.linalg.norm(problem.X.toarray(), axis=1, keepdims=True)
    x = problem.X.toarray().astype(float) / np.maximum(lengths, 1e-30)
    scaled = run(problem.task(unit_length=True)).toarray()
    plain = run(problem.task(unit_length=True, intercept=False), n_columns=N_FEATURES).toarray()
    for label in range(N_LABELS):
        rows, signs, weights = problem.rows_of(label)
        expected = linear_svc(x[rows], signs, weights)
        np.testing.assert_allclose(scaled[label], expected, rtol=1e-3, atol=1e-3)
        expected = linear_svc(x[rows], signs, weights, fit_intercept=False)
        np.testing.assert_allclose(plain[label], expected, rtol=1e-3, atol=1e-3)


def test_dense_rows_give_the_same_weights():
    problem = Problem(4)
    sparse = run(problem.task())
    problem.X = problem.X.toarray()
    np.testing.assert_allclose(run(problem.task()).toarray(), sparse.toarray(), atol=1e-5)


def test_a_row_of_weight_0_is_left_out():
    problem = Problem(5, multilabel=True)
    problem.weights = np.ones(80, np.float32)
    problem.weights[::3] = 0
    found = run(problem.task())
    kept = np.flatnonzero(problem.weights)
    problem.X, problem.weights = problem.X[kept], None
    problem.own = [problem.own[row] for row in kept]
    problem.candidates = problem.candidates[kept]
    task = problem.task()
    np.testing.assert_array_equal(run(task).toarray(), found.toarray())
    n_pairs = sum(len(problem.rows_of(label)[0]) for label in range(N_LABELS))
    assert task.n_pairs == n_pairs


def test_a_weight_counts_as_so_many_rows():
    problem = Problem(6)
    problem.weights = np.where(np.arange(80) % 4 == 0, 2, 1).astype(np.float32)
    weighted = run(problem.task()).toarray()
    again = np.repeat(np.arange(80), problem.weights.astype(int))
    problem.X, problem.weights = problem.X[again], None
    problem.own = [problem.own[row] for row in again]
    problem.candidates = problem.candidates[again]
    np.testing.assert_allclose(run(problem.task()).toarray(), weighted, atol=1e-3)


def test_a_label_without_rows_keeps_its_initial_weights():
    problem = Problem(7)
    problem.own = [[0]] * 80
    problem.candidates[:] = 1
    initial = csr_array(np.full((N_LABELS, N_FEATURES + 1), 0.5, np.float32))
    start = (initial.indptr.astype(np.int64), initial.indices.astype(np.int32), initial.data)
    W = run(problem.task(), initial=start).toarray()
    np.testing.assert_array_equal(W[2:], 0.5)
    assert run(problem.task())[2:].nnz == 0
    assert (W[0] != 0.5).any()


def test_a_label_that_a_row_has_twice_counts_once():
    problem = Problem(8, multilabel=True)
    expected = run(problem.task())
    problem.own = [own + own[:1] for own in problem.own]
    np.testing.assert_array_equal(run(problem.task()).toarray(), expected.toarray())


@pytest.mark.parametrize("threshold", [0.05, 0.2, 100.0])
def test_small_weights_are_dropped(threshold):
    task = Problem(9).task()
    every, kept = run(task).toarray(), run(task, threshold=threshold)
    np.testing.assert_array_equal(
        kept.toarray(), np.where(np.abs(every) < np.float32(threshold), 0, every)
    )
    assert kept.nnz == (np.abs(every) >= np.float32(threshold)).sum()


def test_parts_and_threads_change_nothing():
    rng = np.random.default_rng(0)
    X = random_array((600, 40), density=0.2, rng=rng, dtype=np.float32).tocsr()
    task = _engine.LabelTask(
        engine_features(X, True, False), np.arange(601), rng.integers(0, 100, 600),
        rng.integers(-1, 100, (600, 5)).astype(np.int32), None, n_labels=100,
    )  # fmt: skip
    options = {"passes": 10, "tolerance": 0.1, "n_columns": 41}
    whole = run(task, last=100, **options).toarray()
    np.testing.assert_array_equal(run(task, n_jobs=2, last=100, **options).toarray(), whole)
    np.testing.assert_array_equal(run(task, n_jobs=3, last=100, **options).toarray(), whole)
    parts = [run(task, 2, first, last, **options) for first, last in ((0, 37), (37, 37), (37, 100))]
    np.testing.assert_array_equal(np.vstack([part.toarray() for part in parts]), whole)


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_weights_are_returned_in_the_order_of_the_given_labels(n_jobs):
    task = Problem(5).task()
    whole = run(task).toarray()
    labels = np.array([5, 0, 6, 2])
    counts, features, values = task.run(labels, **EXACT, n_jobs=n_jobs)
    W = csr_array((values, features, np.append(0, np.cumsum(counts))), shape=(4, N_FEATURES + 1))
    np.testing.assert_array_equal(W.toarray(), whole[labels])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_exception_of_the_check_ends_training(n_jobs):
    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Problem(5).task().run(np.arange(N_LABELS), **EXACT, check=check, n_jobs=n_jobs)


# Malformed arguments


def task_with(**changes):
    arguments = {
        "features": engine_features(csr_array(np.eye(3, dtype=np.float32)), True, False),
        "label_ptr": np.arange(4),
        "labels": np.array([0, 1, 0]),
        "candidates": np.array([[0, 1], [1, 0], [-1, 1]], np.int32),
        "example_weights": None,
        "n_labels": 2,
    }
    return _engine.LabelTask(**(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_ptr": np.arange(3)}, "label_ptr"),
        ({"label_ptr": np.array([0, 1, 2, 4])}, "label_ptr"),
        ({"label_ptr": np.array([-1, 1, 2, 3])}, "label_ptr"),
        ({"labels": np.array([0, 2, 0])}, "labels"),
        ({"labels": np.array([0, -1, 0])}, "labels"),
        ({"candidates": np.zeros((2, 2), np.int32)}, "candidates"),
        ({"candidates": np.full((3, 2), 2, np.int32)}, "candidates"),
        ({"candidates": np.full((3, 2), -2, np.int32)}, "candidates"),
        ({"example_weights": np.ones(2, np.float32)}, "example_weights"),
    ],
)
def test_malformed_examples_are_rejected(changes, message):
    assert task_with().n_pairs == 6
    with pytest.raises(ValueError, match=message):
        task_with(**changes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": np.array([0, -1])}, "labels must be between 0 and 1, got -1"),
        ({"labels": np.array([2, 0])}, "labels must be between 0 and 1, got 2"),
        ({"initial": (np.zeros(2, np.int64), [], [])}, "pointers of initial"),
        ({"initial": (np.array([0, 2, 1]), [0, 1], [1, 1])}, "must be a CSR matrix"),
        ({"initial": (np.array([0, 1, 3]), [0, 1], [1, 1])}, "must be a CSR matrix"),
        ({"initial": (np.array([0, 1, 2]), [0, 4], [1, 1])}, "features of initial"),
        ({"initial": (np.array([0, 1, 2]), [0, -1], [1, 1])}, "features of initial"),
        ({"initial": (np.array([0, 1, 2]), [0, 1], [1])}, "values of initial"),
    ],
)
def test_malformed_options_are_rejected(options, message):
    if "initial" in options:
        ptr, features, values = options["initial"]
        arrays = (ptr, np.array(features, np.int32), np.array(values, np.float32))
        options = {"initial": arrays}
    with pytest.raises(ValueError, match=message):
        task_with().run(**({"labels": np.arange(2), "n_jobs": 1} | EXACT | options))


# From a model


def fitted(multilabel=False, **settings):
    rng = np.random.default_rng(0)
    prototypes = random_array((30, 50), density=0.15, rng=rng, dtype=np.float32).tocsr()
    y = rng.integers(0, 30, 400)
    noise = random_array((400, 50), density=0.03, rng=rng, dtype=np.float32)
    X = csr_array(prototypes[y] + noise)
    names = [sorted({int(a), int(a) // 2}) for a in y] if multilabel else y
    model = LTLSClassifier(label_weights=True, bucket_size=3, random_state=0, **settings)
    return X, names, model.fit(X, names).model_


def examples_of(model, X, y, weights=None):
    lists = [np.atleast_1d(label).tolist() for label in y]
    indptr = np.cumsum([0, *map(len, lists)])
    return Examples(X, indptr, np.concatenate(lists).astype(np.int64), weights, model.multilabel)


@pytest.mark.parametrize("multilabel", [False, True], ids=["one label", "several labels"])
def test_labels_are_told_from_the_candidates_of_the_trellises(multilabel):
    X, y, model = fitted(multilabel)
    examples = examples_of(model, X, y)
    candidates, _ = model.candidates(X, len(model.labels), None)
    problem = Problem(0)
    problem.own = [examples.labels[a:b].tolist() for a, b in zip(
        examples.indptr[:-1], examples.indptr[1:], strict=True)]  # fmt: skip
    problem.candidates = candidates
    found = model.label_weights.matrix().toarray()
    x = X.toarray().astype(float)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    cost = 0.5 if multilabel else 1.0
    for label in range(0, 30, 6):
        rows, signs, weights = problem.rows_of(label)
        assert len(rows) == 400  # all labels are candidates
        expected = linear_svc(x[rows], signs, weights, cost)
        # A tolerance of 0.1, weights below 0.1 dropped, and rounding.
        assert np.abs(found[label] - expected).max() < 0.25
        assert np.abs(found[label] - expected).mean() < 0.06


def test_rows_that_are_left_out_are_not_used():
    X, y, model = fitted()
    examples = examples_of(model, X, y)
    left_out = np.arange(0, 400, 2)
    found = training.train_label_weights(model, examples, None, left_out=left_out)
    rest = examples_of(model, X[1::2], y[1::2])
    expected = training.train_label_weights(model, rest, None)
    np.testing.assert_array_equal(found.matrix().toarray(), expected.matrix().toarray())
    assert examples.weights is None
    weights = np.full(400, 2, np.float32)
    training.train_label_weights(model, examples_of(model, X, y, weights), None, left_out=left_out)
    assert (weights == 2).all()


def test_the_given_weight_of_the_trellises_is_used():
    X, y, model = fitted()
    examples = examples_of(model, X, y)
    assert training.train_label_weights(model, examples, None, 0.125).weight == 0.125
    usual = training.train_label_weights(model, examples, None).weight
    assert usual == pytest.approx(0.5 / len(model.codebooks))


def test_an_update_starts_from_the_weights_of_the_model():
    X, y, model = fitted()
    before = model.label_weights
    nothing = examples_of(model, X[:1], y[:1], np.zeros(1, "f4"))
    model.reservoir = None
    training.update_label_weights(model, nothing, nothing, None)
    after = model.label_weights
    # No row counts: only weights that rounding took below the threshold are dropped.
    changed = np.abs(after.matrix().toarray() - before.matrix().toarray())
    assert changed.max() < 0.11
    assert (changed > 0.01).mean() < 0.01
    everything = examples_of(model, X, y)
    training.update_label_weights(model, everything, everything, None)
    assert isinstance(model.label_weights, LabelWeights)
    assert (model.label_weights.matrix().toarray() != after.matrix().toarray()).any()
    for name in ("weight", "n_candidates", "unit_length", "n_labels"):
        assert getattr(model.label_weights, name) == getattr(before, name)


def test_the_chosen_weight_is_one_of_three():
    X, y, model = fitted(multilabel=True)
    usual = model.label_weights.weight
    examples = examples_of(model, X, y)
    labels = model.label_weights.values.copy()
    training.choose_weight(model, (examples, np.arange(400)), None)
    assert model.label_weights.weight / usual in (0.5, 1.0, 2.0)
    np.testing.assert_array_equal(model.label_weights.values, labels)


@pytest.mark.parametrize(
    ("n_rows", "n_labels", "expected"),
    [
        (1000, 100, 100),  # as many as there are candidates
        (1 << 18, 1 << 16, 64),  # as many as there is time for
        (1 << 22, 1 << 10, 16),  # the fewest
        (1 << 22, 1 << 20, 32),  # for four rows per label, 128 negatives
        (1 << 22, 1 << 24, 100),
    ],
)
def test_labels_with_few_rows_get_negatives_even_if_rows_are_many(n_rows, n_labels, expected):
    assert training.n_negatives(n_rows, n_labels) == expected
