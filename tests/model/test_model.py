"""A model of toy parts against brute force: scores, candidates, the best labels, probabilities."""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from table_part import TablePart

from ltls.features.rows import Rows
from ltls.model import model as model_module
from ltls.model.among import AllowedLabels
from ltls.model.labels import Labels
from ltls.model.model import Model
from ltls.parts.calibration import Calibrator, ScoreCurve

N_ROWS, FEW = 4, 6  # up to so many labels are scored whatever parts propose


@dataclass(frozen=True, eq=False)
class Toy(TablePart):
    """A part that proposes candidates."""

    proposed: np.ndarray  # labels of every row, −1 is none
    ranks_only: bool = False

    def candidates(self, rows, n, n_jobs):
        return np.ascontiguousarray(self.proposed[rows.X[:, 0].astype(int), :n])


class Problem:
    """A model of one to three parts, and what its definition says of every label.

    Scores are small integers, so that sums are exact and many are equal.
    """

    def __init__(self, n_labels, n_parts, multilabel, missed, seed):
        rng = np.random.default_rng(seed)
        self.n_labels, self.multilabel, self.missed = n_labels, multilabel, missed
        parts = []
        for number in range(n_parts):
            table = rng.integers(-3, 4, (N_ROWS, n_labels)).astype(np.float32)
            proposed = np.full((N_ROWS, n_labels), -1)
            for row in proposed:
                # Labels may be repeated, as by several views.
                own = rng.integers(0, n_labels, rng.integers(number == 0, n_labels + 1))
                row[: len(own)] = own
            parts.append(Toy(f"part {number}", table, proposed, ranks_only=number == 2))
        weights = (1.0, 0.5, 2.0)[:n_parts]
        curve = ScoreCurve(np.array([-4, 4], np.float32), np.array([0.1, 0.9], np.float32))
        calibration = Calibrator(multilabel, 0.5, curve if multilabel else None, missed, 0.0)
        self.model = Model(
            Labels(range(n_labels)), None, None, tuple(parts), weights, multilabel, "lists", True,
            calibration,
        )  # fmt: skip
        self.rows = Rows(np.arange(N_ROWS, dtype=np.float32)[:, None], False, False)

    def candidates(self, row):
        if self.n_labels <= FEW:
            return set(range(self.n_labels))
        proposed = (part.proposed[row, : model_module.CANDIDATES] for part in self.model.parts)
        return {label for own in proposed for label in own.tolist() if label >= 0}

    def scores(self, row, ranking=True):
        """The score of every label; of those that nothing proposes, below the lowest."""
        pairs = zip(self.model.parts, self.model.weights, strict=True)
        total = sum(
            weight * part.table[row] for part, weight in pairs if ranking or not part.ranks_only
        ).tolist()
        known = self.candidates(row)
        lowest = min(total[label] for label in known)
        most = float(np.nextafter(np.float32(lowest), np.float32(-np.inf)))

        def below(score):
            excess = score - (most - 4)
            return score if excess <= 0 else float(np.float32(most - 16 / (4 + excess)))

        return [s if label in known else below(s) for label, s in enumerate(total)]

    def order(self, row):
        """All labels, the best first: candidates before others, equal scores by id."""
        scores, known = self.scores(row), self.candidates(row)
        return sorted(range(self.n_labels), key=lambda c: (c not in known, -scores[c], c))

    def probabilities(self, row):
        scores, known = self.scores(row, ranking=False), self.candidates(row)
        own = sorted(known)
        if self.multilabel:
            found = {c: float(np.interp(scores[c], [-4, 4], [0.1, 0.9])) for c in own}
            for c in own:
                below, above = -4 - scores[c], scores[c] - 4
                found[c] *= math.exp(-max(below, 0))
                found[c] += (1 - found[c]) * (1 - math.exp(-max(above, 0)))
        else:
            total = math.fsum(math.exp(0.5 * scores[c]) for c in own)
            found = {c: math.exp(0.5 * scores[c]) / total for c in own}
        kept = 1 if self.multilabel else 1 - self.missed
        others = self.missed / max(self.n_labels - len(known), 1)
        return {c: kept * found[c] if c in known else others for c in range(self.n_labels)}

    def probabilities_given(self, row, among):
        """P(label) / P(among); labels that are not candidates share theirs by their scores."""
        scores, known = self.scores(row, ranking=False), self.candidates(row)
        found = {c: p for c, p in self.probabilities(row).items() if c in among}
        if self.multilabel:
            return found
        others = [c for c in among if c not in known]
        total = math.fsum(math.exp(0.5 * scores[c]) for c in others)
        mass = math.fsum(found[c] for c in others)
        if not any(found.values()):
            mass = 1.0
        found |= {c: mass * math.exp(0.5 * scores[c]) / total for c in others}
        return {c: p / math.fsum(found.values()) for c, p in found.items()}


@pytest.fixture(autouse=True, scope="module")
def few_labels():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "FEW_LABELS", FEW)
        patch.setattr(model_module, "CANDIDATES", 4)
        yield


problems = st.builds(
    Problem,
    n_labels=st.integers(1, 20),
    n_parts=st.integers(1, 3),
    multilabel=st.booleans(),
    missed=st.sampled_from([0.0, 0.25]),
    seed=st.integers(0, 2**32 - 1),
)
sizes = st.sampled_from([1, 2, 512])  # rows per block


@given(problem=problems, k=st.integers(1, 25), per_block=sizes)
def test_the_best_labels_are_candidates_first_and_ties_go_to_the_smaller_id(problem, k, per_block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "ROWS_PER_BLOCK", per_block)
        ids, scores = problem.model.topk(problem.rows, k, None)
    assert ids.shape == scores.shape == (N_ROWS, min(k, problem.n_labels))
    for row in range(N_ROWS):
        expected = problem.order(row)[:k]
        assert ids[row].tolist() == expected
        assert scores[row].tolist() == [problem.scores(row)[label] for label in expected]


@given(problem=problems)
def test_all_scores_are_those_of_the_candidates_and_others_stay_below(problem):
    found = problem.model.all_scores(problem.rows, None)
    assert found.tolist() == [problem.scores(row) for row in range(N_ROWS)]


@given(problem=problems)
def test_labels_that_nothing_proposes_rank_by_their_own_scores(problem):
    own, found = problem.model.score, problem.model.all_scores(problem.rows, None)
    every = np.tile(np.arange(problem.n_labels), (N_ROWS, 1))
    own = own(problem.rows, every, None)
    for row in range(N_ROWS):
        others = sorted(set(range(problem.n_labels)) - problem.candidates(row))
        np.testing.assert_array_equal(
            np.argsort(found[row, others], kind="stable"),
            np.argsort(own[row, others], kind="stable"),
        )


@given(
    scores=st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=20),
    most=st.floats(-1e4, 1e4, width=32),
)
def test_limited_scores_keep_their_order_and_stay_below(scores, most):
    scores, most = np.sort(np.float32(scores)), np.float32(most)
    found = model_module.below(scores, most)
    assert found.dtype == np.float32
    assert (found <= most).all()
    assert (np.diff(found) >= 0).all()
    far = scores < most - 4.1
    np.testing.assert_array_equal(found[far], scores[far])


@given(problem=problems)
def test_the_highest_of_all_scores_is_that_of_the_best_label(problem):
    found = problem.model.all_scores(problem.rows, None)
    best, _ = problem.model.topk(problem.rows, 1, None)
    np.testing.assert_array_equal(found.max(axis=1), found[np.arange(N_ROWS), best[:, 0]])


def test_a_label_that_nothing_proposes_is_never_the_first_of_all_scores():
    problem = Problem(10, 1, False, 0.0, seed=0)
    [part] = problem.model.parts
    only = np.full((N_ROWS, 10), -1)
    only[:, 0] = 7
    model = problem.model.with_parts([replace(part, table=np.zeros((N_ROWS, 10)), proposed=only)])
    assert model.topk(problem.rows, 1, None)[0].tolist() == [[7]] * N_ROWS
    assert model.all_scores(problem.rows, None).argmax(axis=1).tolist() == [7] * N_ROWS


@given(problem=problems, threshold=st.integers(-8, 8))
def test_labels_above_a_threshold(problem, threshold):
    counts, ids = problem.model.above(problem.rows, threshold, None)
    parts = np.split(ids, np.cumsum(counts)[:-1])
    for row, found in enumerate(parts):
        scores = problem.scores(row)
        assert found.tolist() == [c for c in problem.order(row) if scores[c] >= threshold]


# Restricted answers


def sets_of(problem, data):
    label = st.integers(0, problem.n_labels - 1)
    n_sets = data.draw(st.sampled_from([1, N_ROWS]))
    return [sorted(data.draw(st.sets(label, min_size=i == 0))) for i in range(n_sets)]


def allowed_of(sets):
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in sets])])
    flat = [label for each in sets for label in reversed(each)]
    return AllowedLabels.of(indptr, np.array(flat, np.int64))


@given(problem=problems, k=st.integers(1, 12), per_block=sizes, data=st.data())
def test_the_best_of_one_set_or_of_a_set_per_row(problem, k, per_block, data):
    sets = sets_of(problem, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "ROWS_PER_BLOCK", per_block)
        ids, scores = problem.model.topk_among(problem.rows, k, allowed_of(sets), None)
    assert ids.shape == scores.shape == (N_ROWS, min(k, max(map(len, sets))))
    for row in range(N_ROWS):
        allowed, every = sets[row % len(sets)], problem.scores(row)
        expected = sorted(allowed, key=lambda label: (-every[label], label))[:k]
        padding = ids.shape[1] - len(expected)
        assert ids[row].tolist() == expected + [-1] * padding
        assert scores[row].tolist() == [every[c] for c in expected] + [-math.inf] * padding


@given(problem=problems, per_block=sizes, data=st.data())
def test_probabilities_given_the_allowed_labels(problem, per_block, data):
    sets = sets_of(problem, data)
    allowed = allowed_of(sets)
    ids, _ = problem.model.topk_among(problem.rows, problem.n_labels, allowed, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "ROWS_PER_BLOCK", per_block)
        found = problem.model.proba_among(problem.rows, ids, allowed, None)
    for row in range(N_ROWS):
        expected = problem.probabilities_given(row, sets[row % len(sets)])
        values = [expected.get(label, 0.0) for label in ids[row].tolist()]
        np.testing.assert_allclose(found[row], values, rtol=1e-5)
        if not problem.multilabel and sets[row % len(sets)]:
            assert found[row].sum() == pytest.approx(1, rel=1e-5)


@given(problem=problems)
def test_probabilities_of_candidates_are_the_same_if_all_labels_are_allowed(problem):
    curve = ScoreCurve(np.array([-3, -0.5], np.float32), np.array([0.1, 0.9], np.float32))
    calibration = Calibrator(problem.multilabel, 0.5, curve)
    model = replace(problem.model, calibration=calibration)
    every = np.tile(np.arange(problem.n_labels), (N_ROWS, 1))
    allowed = AllowedLabels.of(np.array([0, problem.n_labels]), np.arange(problem.n_labels))
    found = model.proba_among(problem.rows, every, allowed, None)
    expected = model.proba(problem.rows, None)
    for row in range(N_ROWS):
        if not problem.multilabel:
            expected[row] /= expected[row].sum()
        known = sorted(problem.candidates(row))
        np.testing.assert_allclose(found[row, known], expected[row, known], rtol=1e-5)


def test_sets_are_sorted_without_duplicates():
    allowed = AllowedLabels.of(np.array([0, 3, 3, 5]), np.array([5, 1, 5, 1, 0]))
    np.testing.assert_array_equal(allowed.indptr, [0, 2, 2, 4])
    np.testing.assert_array_equal(allowed.ids, [1, 5, 0, 1])
    np.testing.assert_array_equal(allowed.of_rows(slice(0, 3)), [[1, 5], [-1, -1], [0, 1]])


# Probabilities


@given(problem=problems, per_block=sizes, seed=st.integers(0, 99))
def test_probabilities_of_all_labels_and_of_some(problem, per_block, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "ROWS_PER_BLOCK", per_block)
        every = problem.model.proba(problem.rows, None)
        ids = np.random.default_rng(seed).integers(-1, problem.n_labels, (N_ROWS, 3))
        some = problem.model.proba_of(problem.rows, ids, None)
    for row in range(N_ROWS):
        expected = problem.probabilities(row)
        values = [expected[label] for label in range(problem.n_labels)]
        np.testing.assert_allclose(every[row], values, rtol=1e-5)
        wanted = [expected[label] if label >= 0 else 0 for label in ids[row].tolist()]
        np.testing.assert_allclose(some[row], wanted, rtol=1e-5)
        if not problem.multilabel and len(problem.candidates(row)) < problem.n_labels:
            assert every[row].sum() == pytest.approx(1, rel=1e-5)


@given(problem=problems)
def test_without_what_ranks_only_the_best_label_is_the_most_probable(problem):
    assume(len(problem.model.parts) < 3)
    model = replace(problem.model, calibration=replace(problem.model.calibration, missed=0.0))
    best = model.topk(problem.rows, 1, None)[0]
    probabilities = model.proba(problem.rows, None)
    own = np.take_along_axis(probabilities, best, axis=1)[:, 0]
    np.testing.assert_array_equal(own, probabilities.max(axis=1))


# A part alone


class Alone(Toy):
    """A part that finds the best labels by itself, whatever it would propose."""

    def topk(self, rows, k, n_jobs):
        scores = self.score(rows, np.tile(np.arange(self.table.shape[1]), (len(rows), 1)), n_jobs)
        ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return ids, np.take_along_axis(scores, ids, axis=1)


@settings(max_examples=30)
@given(n_labels=st.integers(1, 20), k=st.integers(1, 25), seed=st.integers(0, 2**32 - 1))
def test_a_part_alone_ranks_all_labels(n_labels, k, seed):
    problem = Problem(n_labels, 1, False, 0.0, seed)
    [part] = problem.model.parts
    alone = Alone(part.name, part.table, part.proposed)
    model = problem.model.with_parts([alone])
    ids, scores = model.topk(problem.rows, k, None)
    order = np.argsort(-part.table, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(part.table, order, axis=1))
    np.testing.assert_array_equal(model.all_scores(problem.rows, None), part.table)
    # With another weight, it is a part like others.
    halved = replace(model, weights=(0.5,))
    assert halved.topk(problem.rows, k, None)[0].tolist() == [
        problem.order(row)[:k] for row in range(N_ROWS)
    ]


def test_needed_rows_are_those_of_any_part():
    own, stored = (SimpleNamespace(needs_memory=True, memory=each) for each in (None, object()))
    model = Problem(3, 1, False, 0.0, 0).model
    assert model.needed_rows is None
    assert model.with_parts([own]).needed_rows is None
    assert model.with_parts([*model.parts, own, stored]).needed_rows is stored.memory
