"""From features to the best labels, against brute force over all paths and labels."""

from unittest import mock

import numpy as np
import pytest
import reference_parts as reference
from hypothesis import given
from hypothesis import strategies as st
from reference import Graph
from small_parts import label_weight_part, make_rows, trellis_part

from ltls import TableCodebook, Trellis
from ltls.core import _engine
from ltls.features.rows import Rows
from ltls.parts import trellises
from ltls.structure.codebook import BucketCodebook
from ltls.structure.losses import LOSSES

N_ROWS = 4
KINDS = ("random", "table", "buckets")


class Problem:
    """Trellises, rows, and the scores of all paths and labels by enumeration."""

    def __init__(self, kind, n_labels, n_paths, width, loss, n_trellises, seed):
        rng = np.random.default_rng(seed)
        self.kind, self.n_labels, self.loss = kind, n_labels, loss
        self.part = trellis_part(
            rng, kind, n_labels, n_paths, width, loss, n_trellises, exact=loss != "logistic"
        )
        self.label_weights = label_weight_part(rng, n_labels=n_labels)
        self.rows = make_rows(rng, N_ROWS, sparse=bool(seed % 2))
        self.x = reference.scored_rows(self.rows.X, intercept=True)
        self.tables = [book.path_of(np.arange(n_labels)) for book in self.part.codebooks]
        graph = Graph(n_paths, width)
        h = (self.x @ self.part.weights.dense()).reshape(N_ROWS, n_trellises, -1)
        self.path_scores = np.array(
            [[reference.path_scores(graph, each.tolist(), loss) for each in row] for row in h]
        )
        self.path_scores = self.path_scores.round(6)  # what ties in the engine, ties here
        self.scores = sum(self.path_scores[:, r, own] for r, own in enumerate(self.tables)).round(6)

    def best(self, row, n_paths, k, scores=None):
        """The k best of the labels on the n_paths best paths of every trellis."""
        candidates = set()
        for own, table in zip(self.path_scores[row], self.tables, strict=True):
            paths = np.lexsort((np.arange(len(own)), -own))[:n_paths]
            candidates |= set(np.flatnonzero(np.isin(table, paths)).tolist())
        own = (self.scores if scores is None else scores)[row]
        return sorted(candidates, key=lambda label: (-own[label], label))[:k]

    def ties_go_to_labels(self, n_paths):
        """Whether the smaller label wins, not that of the smaller path."""
        every = len(self.tables) > 1 and n_paths >= self.part.trellis.n_classes
        return self.kind == "buckets" or every

    def predict(self, n_paths, k, n_jobs=1, **options):
        predictor = self.part.predictor(k, n_paths, **options)
        found = np.empty((N_ROWS, k), np.int64), np.empty((N_ROWS, k), np.float32)
        predictor.predict(self.rows.engine, 0, *found, n_jobs)
        return found


@st.composite
def problems(draw, kinds=KINDS, losses=tuple(LOSSES), max_trellises=3, max_paths=60):
    kind, n_paths = draw(st.sampled_from(kinds)), draw(st.integers(1, max_paths))
    return Problem(
        kind,
        draw(st.integers(1, 150 if kind == "buckets" else n_paths)),
        n_paths,
        draw(st.integers(2, 6)),
        draw(st.sampled_from(losses)),
        draw(st.integers(1, max_trellises)),
        draw(st.integers(0, 2**32 - 1)),
    )


def assert_found(problem, found, n_paths, k, scores=None):
    """Labels are distinct candidates with scores of their own, which are the best, in order."""
    every = problem.scores if scores is None else scores
    for row, (ids, values) in enumerate(zip(*found, strict=True)):
        wanted = problem.best(row, n_paths, k, scores)
        assert (ids[len(wanted) :] == -1).all()
        assert (values[len(wanted) :] == -np.inf).all()
        ids, values = ids[: len(wanted)], values[: len(wanted)]
        assert len(set(ids)) == len(wanted)
        assert set(ids) <= set(problem.best(row, n_paths, problem.n_labels))
        np.testing.assert_allclose(values, every[row, ids], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(values, every[row, wanted], rtol=1e-4, atol=1e-4)
        assert (np.diff(values) <= 0).all()
        if problem.ties_go_to_labels(n_paths) and problem.loss != "logistic":  # sums are exact
            assert ids.tolist() == wanted


n_paths_and_k = {"n_paths": st.integers(1, 70), "k": st.integers(1, 40)}


@given(problem=problems(), **n_paths_and_k, n_jobs=st.sampled_from([1, 2]))
def test_the_best_labels_of_the_best_paths(problem, n_paths, k, n_jobs):
    assert_found(problem, problem.predict(n_paths, k, n_jobs), n_paths, k)


@given(problem=problems(("random", "table"), ("separation",), 1), k=st.integers(1, 40))
def test_ties_of_one_trellis_go_to_the_smaller_path(problem, k):
    ids, _ = problem.predict(k, k)
    for row, own in enumerate(problem.path_scores[:, 0]):
        label_of = {path: label for label, path in enumerate(problem.tables[0].tolist())}
        paths = np.lexsort((np.arange(len(own)), -own))[:k].tolist()
        wanted = [label_of[path] for path in paths if path in label_of]
        assert ids[row].tolist() == wanted + [-1] * (k - len(wanted))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_instruction_set_finds_them(instruction_set, kind, loss):
    for width, n_trellises in ((2, 1), (5, 2), (9, 3)):
        problem = Problem(kind, 75, 75, width, loss, n_trellises, seed=width)
        for n_paths in (1, 7, 75):
            assert_found(problem, problem.predict(n_paths, 20), n_paths, 20)


@pytest.mark.parametrize("loss", LOSSES)
def test_many_paths_of_buckets_are_found_by_list_viterbi(instruction_set, loss):
    problem = Problem("buckets", 300, 2**13 + 100, 9, loss, 2, seed=0)
    assert_found(problem, problem.predict(1000, 10), 1000, 10)


@given(problem=problems(), n_ids=st.integers(1, 40), data=st.data())
def test_scores_of_given_labels(problem, n_ids, data):
    """Few labels are scored path by path, more of them with all paths at once."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    ids = rng.integers(-1, problem.n_labels, (N_ROWS, n_ids))
    wanted = np.take_along_axis(problem.scores, ids, axis=1)
    found = problem.part.score(problem.rows, ids, data.draw(st.sampled_from([None, 2])))
    np.testing.assert_allclose(found, np.where(ids < 0, -np.inf, wanted), rtol=1e-4, atol=1e-4)


@given(problem=problems(), k=st.integers(1, 70))
def test_topk_is_exact_for_one_trellis_and_where_paths_are_few(problem, k):
    k = min(k, problem.n_labels)
    found = problem.part.topk(problem.rows, k, None)
    assert_found(problem, found, problem.part.trellis.n_classes, k)
    np.testing.assert_array_equal(problem.part.candidates(problem.rows, k, None), found[0])


@given(problem=problems(max_trellises=3), k=st.integers(1, 70))
def test_topk_finds_labels_with_their_own_scores_where_paths_are_many(problem, k):
    with mock.patch.object(trellises, "_SCAN", 1):
        ids, scores = problem.part.topk(problem.rows, k, None)
    assert ids.shape == (N_ROWS, min(k, problem.n_labels))
    assert ids.min() >= 0
    assert all(len(set(row)) == len(row) for row in ids.tolist())
    own = np.take_along_axis(problem.scores, ids, axis=1)
    np.testing.assert_allclose(scores, own, rtol=1e-4, atol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize("kind", ["table", "buckets"])
@pytest.mark.parametrize("n_trellises", [1, 3])
@pytest.mark.parametrize("n_paths", [4000, 40_000])
def test_the_search_widens_until_enough_labels_are_found(kind, n_trellises, n_paths):
    """The best paths are nearly all free; of very many, all labels are scored."""
    rng = np.random.default_rng(0)
    part = trellis_part(rng, kind, 5, n_paths, 4, "softmax", n_trellises, exact=False)
    rows = make_rows(rng, 20)
    k = 3 if n_trellises == 1 else 5  # several trellises are exact if all labels are wanted
    ids, scores = part.topk(rows, k, None)
    every = part.score(rows, np.tile(np.arange(5), (20, 1)), None)
    np.testing.assert_array_equal(ids, np.argsort(-every, axis=1)[:, :k])
    np.testing.assert_allclose(scores, -np.sort(-every, axis=1)[:, :k], rtol=1e-4, atol=1e-4)


def test_one_path_for_all_labels():
    """A trellis of one path has no edges: all scores are 0, and labels are in their order."""
    part = trellis_part(np.random.default_rng(0), "buckets", 5, 1)
    ids, scores = part.topk(make_rows(np.random.default_rng(0), 2), 3, None)
    np.testing.assert_array_equal(ids, [[0, 1, 2]] * 2)
    assert not scores.any()


# Probabilities


@given(problem=problems(losses=("softmax",)))
def test_probabilities_of_paths_are_the_mean_over_trellises(problem):
    n_paths = problem.part.trellis.n_classes
    np.testing.assert_allclose(np.exp(problem.path_scores).sum(axis=2), 1, rtol=1e-6)
    each = [np.exp(problem.path_scores[:, r, table]) for r, table in enumerate(problem.tables)]
    ids = np.tile(np.arange(problem.n_labels), (N_ROWS, 1))
    found = np.exp(problem.part.path_log_proba(problem.rows, ids, None))
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-3, atol=1e-6)
    if problem.kind != "buckets":  # free paths have the rest
        assert (found.sum(axis=1) <= 1 + 1e-5).all()
        if problem.n_labels == n_paths:
            np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


# With label weights


def with_label_weights(problem, weight):
    """−max(0, 1 − s)³ + weight · b for all labels."""
    W = problem.label_weights.vectors.matrix().toarray()
    gap = np.maximum(0, 1 - problem.x.astype(float) @ W.T)
    return -(gap**3) + weight * problem.scores


@given(
    problem=problems(),
    **n_paths_and_k,
    n_more=st.integers(0, 60),
    weight=st.sampled_from([0.0, 0.25, 2.0]),
)
def test_label_weights_rerank_the_best_candidates(problem, n_paths, k, n_more, weight):
    options = {"weight": weight, "n_candidates": k + n_more}
    engine = problem.label_weights.vectors.engine
    ids, scores = problem.predict(n_paths, k, label_weights=engine, **options)
    candidates, _ = problem.predict(n_paths, k + n_more)
    every = with_label_weights(problem, weight)
    for row, known in enumerate(candidates):
        known = known[known >= 0]
        wanted = -np.sort(-every[row, known])[:k]
        n = len(wanted)
        assert (ids[row, n:] == -1).all()
        assert set(ids[row, :n]) <= set(known)
        assert len(set(ids[row, :n])) == n
        own = every[row, ids[row, :n]]
        np.testing.assert_allclose(scores[row, :n], own, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(-np.sort(-scores[row, :n]), wanted, rtol=1e-4, atol=1e-4)


@given(problem=problems(), n_ids=st.integers(1, 40), weight=st.sampled_from([0.0, 0.25, 2.0]))
def test_scores_of_given_labels_with_label_weights(problem, n_ids, weight):
    rng = np.random.default_rng(0)
    ids = np.array([rng.permutation(problem.n_labels)[:n_ids] for _ in range(N_ROWS)])
    ids[0, 0] = -1
    found = np.empty(ids.shape, np.float32)
    engine = problem.label_weights.vectors.engine
    given_weights = {"label_weights": engine, "weight": weight, "n_candidates": 1}
    predictor = problem.part.predictor(1, 1, **given_weights)
    predictor.score(problem.rows.engine, 0, ids, found, 2)
    wanted = np.take_along_axis(with_label_weights(problem, weight), ids, axis=1)
    np.testing.assert_allclose(found, np.where(ids < 0, -np.inf, wanted), rtol=1e-4, atol=1e-4)


# Arguments


def test_threads_and_parts_of_the_rows_change_nothing():
    rng = np.random.default_rng(0)
    part = trellis_part(rng, "buckets", 400, 50, 5, exact=False)
    rows = make_rows(rng, 300)
    one, two = part.topk(rows, 30, 1), part.topk(rows, 30, 2)
    some = part.topk(rows[np.arange(40, 300)[::-1]], 30, 2)
    for ours, others, reverse in zip(one, two, some, strict=True):
        np.testing.assert_array_equal(ours, others)
        np.testing.assert_array_equal(ours[40:], reverse[::-1])


def test_rows_whose_scores_are_not_finite_are_named():
    part = trellis_part(np.random.default_rng(0))
    part.weights.values[0] = np.inf
    rows = Rows(np.ones((1, 8), np.float32), True, False)
    with pytest.raises(ValueError, match="edge scores are not finite"):
        part.topk(rows, 1, None)
    with pytest.raises(ValueError, match="edge scores are not finite"):
        part.score(rows, np.array([[0]]), None)


def engine_predictor(books, n_labels=3, n_paths=1, k=1, label_weights=None, n_candidates=0):
    trellis = Trellis(6, 2)
    weights = _engine.Weights.dense(np.zeros((3, 16 * len(books)), np.float32), None)
    return _engine.Predictor(
        trellis.engine, [book.engine for book in books], weights, True, False, "softmax", n_labels,
        n_paths, k, label_weights, 1.0, n_candidates,
    )  # fmt: skip


def test_arguments_that_do_not_fit_are_rejected():
    book, rng = BucketCodebook(6, [0, 1, 0]), np.random.default_rng(0)
    with pytest.raises(ValueError, match="a path per class of the trellis"):
        engine_predictor([BucketCodebook(5, [0, 1, 0])])
    for other in (BucketCodebook(6, [0, 1]), TableCodebook(6, [0, 1, 2])):
        for books in ([book, other], [other, book]):
            with pytest.raises(ValueError, match="must all have buckets of the same labels"):
                engine_predictor(books, 2)
    with pytest.raises(ValueError, match=r"n_labels must be between 0 and 3.*got 4"):
        engine_predictor([book], 4)
    with pytest.raises(ValueError, match="n_paths must be between 1 and 6"):
        engine_predictor([book], n_paths=7)
    fits = label_weight_part(rng, n_labels=3, n_columns=3).vectors.engine
    engine_predictor([book], label_weights=fits, n_candidates=1)
    with pytest.raises(ValueError, match="n_candidates must be at least k = 2, got 1"):
        engine_predictor([book], k=2, label_weights=fits, n_candidates=1)
    for n_labels, n_columns in ((2, 3), (3, 4)):
        wrong = label_weight_part(rng, n_labels=n_labels, n_columns=n_columns).vectors.engine
        with pytest.raises(ValueError, match="label_weights must have the features of weights"):
            engine_predictor([book], label_weights=wrong, n_candidates=1)
    rows = Rows(np.ones((1, 2), np.float32), True, False).engine
    for wrong in (3, -2):
        with pytest.raises(ValueError, match=f"labels must be between -1 and 2, got {wrong}"):
            engine_predictor([book]).score(rows, 0, np.array([[wrong]]), np.empty((1, 1), "f4"), 1)
    other = Rows(np.ones((1, 2), np.float32), True, True).engine
    with pytest.raises(ValueError, match="X must be scaled and have an intercept as in training"):
        engine_predictor([book]).score(other, 0, np.array([[0]]), np.empty((1, 1), "f4"), 1)
