"""Label weights are those of an L2-regularized squared hinge loss against the rows of siblings."""

import numpy as np
import pytest
import reference_parts as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from ltls.core import _engine
from ltls.features.rows import Rows
from ltls.model.examples import Examples
from ltls.parts.label_weights import LabelWeights, train_clusters

N_LABELS, N_FEATURES = 9, 12
# Weights are float32: with a smaller tolerance, rows that were left out would not be checked again.
EXACT = {"cost": 1.0, "passes": 5000, "tolerance": 1e-5, "threshold": 0.0}
CLUSTERS = np.array([0, 4, 4, 7, 8, 9]), np.array([3, 0, 7, 5, 1, 8, 2, 4, 6])  # one is empty


class Problem:
    """Rows with labels and weights. Label 6 has no rows."""

    def __init__(self, seed, several=True, weighted=False, n_rows=70, intercept=True):
        rng = np.random.default_rng(seed)
        X = random_array((n_rows, N_FEATURES), density=0.4, rng=rng, format="csr")
        self.rows = Rows(X.astype(np.float32), intercept, bool(seed % 2))
        known = np.delete(np.arange(N_LABELS), 6)
        n = rng.integers(0, 4, n_rows) if several else np.ones(n_rows, int)
        self.own = [rng.permutation(known)[:each].tolist() for each in n]
        self.weights = None
        if weighted:
            self.weights = rng.choice([0, 0.3, 1, 2.5], n_rows).astype(np.float32)

    @property
    def label_ptr(self):
        return np.cumsum([0, *map(len, self.own)])

    @property
    def labels(self):
        return np.concatenate([*self.own, []]).astype(np.int64)

    def examples(self, **changes):
        labels = {"indptr": self.label_ptr, "labels": self.labels, "weights": self.weights}
        return Examples(**{"rows": self.rows, **labels, "multilabel": True, **changes})

    def take(self, rows):
        """The same problem with some of the rows."""
        other = Problem(0)
        other.rows, other.own = self.rows[rows], [self.own[row] for row in rows]
        other.weights = None if self.weights is None else self.weights[rows]
        return other

    def train(self, clusters=CLUSTERS, n_jobs=1, **options):
        """Weights of the labels of the clusters; and those that have not seen held-out rows."""
        task = _engine.SiblingTask(
            self.rows.engine, self.label_ptr, self.labels, self.weights, n_labels=N_LABELS
        )
        found = task.run(*clusters, **(EXACT | options), n_jobs=n_jobs)
        return [None if each is None else self.matrix(*each) for each in found]

    def matrix(self, counts, features, values):
        indptr = np.concatenate([[0], np.cumsum(counts)])
        W = csr_array((values, features, indptr), shape=(len(counts), self.rows.n_columns))
        assert W.has_sorted_indices
        assert (W.data != 0).all()
        return W.toarray()

    def expected(self, cost=1.0, start=None, clusters=CLUSTERS):
        """The weights by a general solver, label by label."""
        x = reference.scored_rows(self.rows.X, self.rows.intercept, self.rows.unit_length)
        start = np.zeros((N_LABELS, x.shape[1])) if start is None else start
        weights = np.ones(len(x)) if self.weights is None else self.weights.astype(float)
        found = []
        for first, last in zip(clusters[0][:-1], clusters[0][1:], strict=True):
            cluster = clusters[1][first:last].tolist()
            trained = [
                row for row, own in enumerate(self.own) if weights[row] > 0 and {*own} & {*cluster}
            ]
            for label in cluster:
                signs = np.array([1 if label in self.own[row] else -1 for row in trained])
                some = x[trained].astype(float), signs, weights[trained]
                found.append(reference.separating_weights(*some, cost, start[label].astype(float)))
        return np.array(found)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 999),
    several=st.booleans(),
    weighted=st.booleans(),
    intercept=st.booleans(),
    cost=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_weights_minimize_the_loss_against_siblings(seed, several, weighted, intercept, cost):
    problem = Problem(seed, several, weighted, intercept=intercept)
    found, without = problem.train(cost=cost)
    assert without is None
    np.testing.assert_allclose(found, problem.expected(cost), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_every_instruction_set_finds_them(instruction_set, seed):
    problem = Problem(seed, weighted=True)
    np.testing.assert_allclose(problem.train()[0], problem.expected(), rtol=1e-3, atol=1e-3)


@settings(max_examples=10)
@given(seed=st.integers(0, 999), weighted=st.booleans())
def test_weights_stay_near_initial_ones(seed, weighted):
    """Those of features that no row has, and of a label without rows and siblings, stay."""
    problem = Problem(seed, weighted=weighted)
    rng = np.random.default_rng(seed)
    shape = (N_LABELS, problem.rows.n_columns)
    start = (rng.normal(size=shape) * (rng.random(shape) < 0.5)).astype(np.float32)
    problem.rows.X.data[problem.rows.X.indices == 3] = 0
    problem.rows.X.eliminate_zeros()
    sparse = csr_array(start)
    initial = sparse.indptr.astype(np.int64), sparse.indices.astype(np.int32), sparse.data
    found, _ = problem.train(initial=initial)
    np.testing.assert_allclose(found, problem.expected(start=start), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found[:, 3], start[CLUSTERS[1], 3])
    np.testing.assert_array_equal(found[-1], start[6])


@settings(max_examples=10)
@given(seed=st.integers(0, 999), weighted=st.booleans())
def test_weights_without_held_out_rows_never_depend_on_them(seed, weighted):
    problem = Problem(seed, weighted=weighted)
    held_out = np.random.default_rng(seed).random(len(problem.own)) < 0.3
    options = {"passes": 5, "tolerance": 0.1}
    _, without = problem.train(held_out=held_out, **options)
    np.testing.assert_array_equal(
        without, problem.take(np.flatnonzero(~held_out)).train(**options)[0]
    )
    with_them, without = problem.train(held_out=held_out)
    wanted = problem.expected()  # which a few passes over them come near to
    assert np.linalg.norm(with_them - wanted) < 0.8 * np.linalg.norm(without - wanted)


def test_held_out_rows_that_change_nothing_change_nothing():
    problem = Problem(0)
    none = np.zeros(len(problem.own), bool)
    for each in problem.train(held_out=none):
        np.testing.assert_array_equal(each, problem.train()[0])
    problem.own = [[] if row < 9 else own for row, own in enumerate(problem.own)]
    with_them, without = problem.train(held_out=np.arange(len(problem.own)) < 9)
    np.testing.assert_array_equal(with_them, without)


@pytest.mark.parametrize("threshold", [0.05, 0.2, 100.0])
def test_small_weights_are_dropped(threshold):
    problem = Problem(1)
    every, kept = problem.train()[0], problem.train(threshold=threshold)[0]
    small = np.abs(every) < np.float32(threshold)
    np.testing.assert_array_equal(kept, np.where(small, 0, every))


def test_a_row_of_weight_0_is_left_out_and_others_count_as_so_many_rows():
    problem = Problem(2)
    n = len(problem.own)
    problem.weights = np.where(np.arange(n) % 3 == 0, 0, 1).astype(np.float32)
    kept = problem.take(np.flatnonzero(problem.weights))
    kept.weights = None
    np.testing.assert_array_equal(problem.train()[0], kept.train()[0])
    problem.weights += 1
    again = problem.take(np.repeat(np.arange(n), problem.weights.astype(int)))
    again.weights = None
    np.testing.assert_allclose(problem.train()[0], again.train()[0], atol=1e-3)


def test_a_label_that_a_row_has_twice_counts_once():
    problem = Problem(3)
    expected = problem.train()[0]
    problem.own = [own + own[:1] for own in problem.own]
    np.testing.assert_array_equal(problem.train()[0], expected)


def test_dense_rows_give_the_same_weights():
    problem = Problem(4)
    expected = problem.train()[0]
    problem.rows = problem.rows.like(problem.rows.X.toarray())
    np.testing.assert_array_equal(problem.train()[0], expected)


ONE_CLUSTER = np.array([0, N_LABELS]), np.arange(N_LABELS)


@pytest.mark.parametrize("clusters", [CLUSTERS, ONE_CLUSTER], ids=["several", "one, split"])
@pytest.mark.parametrize("n_jobs", [2, 3, 8])
def test_threads_give_the_same_bits(clusters, n_jobs):
    problem = Problem(5, n_rows=300)
    held_out = np.arange(300) % 5 == 0
    options = {"passes": 5, "tolerance": 0.1, "held_out": held_out}
    for ours, theirs in zip(
        problem.train(clusters, n_jobs, **options), problem.train(clusters, **options), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_a_label_has_the_same_weights_wherever_its_cluster_is():
    problem = Problem(6)
    found, _ = problem.train()
    reverse, _ = problem.train((np.array([0, 1, 2, 5, 9]), CLUSTERS[1][::-1].copy()))
    np.testing.assert_allclose(reverse, found[::-1], atol=1e-4)


def test_nothing_to_train():
    problem = Problem(0)
    assert problem.train((np.array([0]), np.empty(0, np.int64)))[0].shape == (0, 13)
    assert problem.train((np.zeros(4, int), np.empty(0, np.int64)), n_jobs=2)[0].shape == (0, 13)
    problem.own = [[] for _ in problem.own]
    assert not problem.train()[0].any()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_exception_of_the_check_ends_training(n_jobs):
    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Problem(5).train(check=check, n_jobs=n_jobs)


# Several clusterings


def test_train_clusters_passes_its_arguments_on(monkeypatch):
    problem, rng = Problem(7, weighted=True), np.random.default_rng(0)
    n_columns = problem.rows.n_columns
    initial = random_array((N_LABELS, n_columns), density=0.3, rng=rng, format="csr")
    start = initial.indptr.astype(np.int64), initial.indices.astype(np.int32), initial.data
    options = {"cost": 2.0, "passes": 3, "tolerance": 0.1, "threshold": 0.05}
    options["initial"] = (*start[:2], start[2].astype(np.float32))
    calls = []
    monkeypatch.setattr("ltls.parts.label_weights.check_signals", lambda: calls.append(1))
    found = list(train_clusters(
        LabelWeights(cost=2.0, passes=3, threshold=0.1),
        problem.examples(), [CLUSTERS, ONE_CLUSTER],
        n_labels=N_LABELS, held_out=np.array([3, 8]), initial=initial, scale=0.5, n_jobs=2,
    ))  # fmt: skip
    assert calls
    held_out = np.isin(np.arange(len(problem.own)), [3, 8])
    for clusters, pair in zip((CLUSTERS, ONE_CLUSTER), found, strict=True):
        expected = problem.train(clusters, held_out=held_out, **options)
        for ours, theirs in zip(pair, expected, strict=True):
            np.testing.assert_array_equal(ours.toarray(), theirs)
    [(_, without)] = train_clusters(
        LabelWeights(cost=1.0), problem.examples(weights=None), [CLUSTERS],
        n_labels=N_LABELS, held_out=np.empty(0, np.int64),
    )  # fmt: skip
    assert without is None


@pytest.mark.parametrize("factor", [1 / 64, 0.01, 3.0, 100.0, 4096.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_multiplying_all_rows_changes_nothing_but_rounding(factor, intercept):
    problem, rng = Problem(8, intercept=intercept), np.random.default_rng(0)
    initial = random_array((N_LABELS, problem.rows.n_columns), density=0.3, rng=rng, format="csr")

    def trained(times, start):
        rows = problem.rows.like(problem.rows.X * np.float32(times))
        return next(train_clusters(
            LabelWeights(cost=2.0, threshold=0.03), problem.examples(rows=rows), [CLUSTERS],
            n_labels=N_LABELS, held_out=np.array([3, 8]), initial=start,
            row_length=rows.usual_length(),
        ))  # fmt: skip

    columns = np.full(problem.rows.n_columns, factor)
    columns[-1] = 1 if intercept else factor
    found = trained(factor, csr_array(initial / columns))
    exact = np.log2(factor).is_integer()
    for ours, theirs in zip(found, trained(1.0, initial), strict=True):
        assert 0 < ours.nnz == theirs.nnz
        tolerance = 0 if exact else 1e-3
        np.testing.assert_allclose(ours.toarray() * columns, theirs.toarray(), rtol=tolerance)


# Malformed arguments


def task_with(**changes):
    arguments = {
        "features": Rows(csr_array(np.eye(3, dtype=np.float32)), True, False).engine,
        "label_ptr": np.arange(4),
        "labels": np.array([0, 1, 0]),
        "example_weights": None,
        "n_labels": 2,
    }
    return _engine.SiblingTask(**(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_ptr": np.arange(3)}, "label_ptr must have 4 entries"),
        ({"label_ptr": np.array([0, 1, 2, 4])}, "label_ptr must be between 0 and 3, got 4"),
        ({"label_ptr": np.array([-1, 1, 2, 3])}, "label_ptr must be between 0 and 3, got -1"),
        ({"labels": np.array([0, 2, 0])}, "labels must be between 0 and 1, got 2"),
        ({"labels": np.array([0, -1, 0])}, "labels must be between 0 and 1, got -1"),
        ({"example_weights": np.ones(2, np.float32)}, "example_weights must have 3 entries"),
    ],
)
def test_malformed_rows_are_rejected(changes, message):
    task_with()
    with pytest.raises(ValueError, match=message):
        task_with(**changes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": np.array([0, -1])}, "labels must be between 0 and 1, got -1"),
        ({"labels": np.array([2, 0])}, "labels must be between 0 and 1, got 2"),
        ({"cluster_ptr": np.array([], np.int64)}, "cluster_ptr must be at least 1"),
        ({"cluster_ptr": np.array([0, 2, 1])}, "cluster_ptr must be that of a CSR matrix"),
        ({"cluster_ptr": np.array([0, 3])}, "cluster_ptr must be that of a CSR matrix"),
        ({"cluster_ptr": np.array([-1, 2])}, "cluster_ptr must be that of a CSR matrix"),
        ({"held_out": np.zeros(2, bool)}, "held_out must have 3 entries"),
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
        options = {"initial": (ptr, np.array(features, np.int32), np.array(values, np.float32))}
    usual = {"cluster_ptr": np.array([0, 2]), "labels": np.arange(2), "n_jobs": 1}
    with pytest.raises(ValueError, match=message):
        task_with().run(**(usual | EXACT | options))
