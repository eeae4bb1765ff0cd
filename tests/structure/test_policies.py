"""Codebook policies: what every assignment must satisfy, and what each policy promises."""

import copy
import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Graph
from toy_policy import ToyPolicy

from ltls import LTLSClassifier, Trellis
from ltls.settings import Trellises
from ltls.structure.codebook import RandomCodebook, TableCodebook, make_codebook
from ltls.structure.policies import (
    POLICIES,
    CodebookPolicy,
    FrequencyPolicy,
    Identity,
    KeyedPermutation,
    LabelStats,
    LearnedPolicy,
    PathTable,
    RandomPolicy,
    RankingPolicy,
    SimilarityPolicy,
    exit_ends,
    register_policy,
)

sizes = st.integers(2, 300)
widths = st.integers(2, 12)


@st.composite
def problems(draw):
    """A trellis, label statistics with fewer labels than paths, and a number of trellises."""
    n_paths, width = draw(sizes), draw(widths)
    n_labels = draw(st.integers(2, n_paths))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = rng.geometric(0.3, n_labels) - 1  # many ties, and labels without rows
    vectors = rng.normal(size=(n_labels, draw(st.integers(1, 8))))
    if draw(st.booleans()):
        vectors = sp.csr_array(vectors * (rng.random(vectors.shape) < 0.5))
    stats = LabelStats(n_labels, counts if draw(st.booleans()) else None, vectors)
    return Trellis(n_paths, width), stats, draw(st.integers(1, 4))


def assignments(policy, trellis, n_trellises, stats, seed=0):
    return policy.initial(trellis, n_trellises, stats, np.random.RandomState(seed))


def paths_of(assignment, trellis, n_labels):
    """The paths of all labels; −1 for labels that have none yet."""
    book = make_codebook(assignment, trellis.n_classes)
    known = min(book.n_labels, n_labels)
    return np.append(book.path_of(np.arange(known)), np.full(n_labels - known, -1))


def exits_of(n_classes, width):
    """For every path, the number of edges: paths of one exit have the same length."""
    return np.array([len(path) for path in Graph(n_classes, width).paths])


# All policies

BUILT_IN = ["random", "ranking", "similarity", "frequency", "learned"]
ALL = {**{name: POLICIES[name] for name in BUILT_IN}, "within exits": SimilarityPolicy(True)}
every_policy = pytest.mark.parametrize("policy", ALL.values(), ids=ALL)


@every_policy
@settings(max_examples=50)
@given(problem=problems(), seed=st.integers(0, 99))
def test_initial_paths_are_distinct_in_range_and_those_of_the_seed(policy, problem, seed):
    trellis, stats, n_trellises = problem
    before = copy.deepcopy(stats)
    found, again = (assignments(policy, trellis, n_trellises, stats, seed) for _ in range(2))
    np.testing.assert_array_equal(stats.counts, before.counts)
    assert abs(stats.vectors - before.vectors).max() == 0
    assert len(found) == n_trellises
    for assignment, same in zip(found, again, strict=True):
        paths = paths_of(assignment, trellis, stats.n_labels)
        assert paths.shape == (stats.n_labels,)
        np.testing.assert_array_equal(paths_of(same, trellis, stats.n_labels), paths)
        if isinstance(policy, RankingPolicy):
            assert (paths == -1).all()
            continue
        assert paths.min() >= 0
        assert paths.max() < trellis.n_classes
        assert len(set(paths.tolist())) == stats.n_labels


@pytest.mark.parametrize("name", ["random", "similarity", "frequency", "learned"])
def test_trellises_have_different_codebooks(name):
    rng = np.random.default_rng(0)
    stats = LabelStats(100, rng.geometric(0.1, 100), rng.normal(size=(100, 5)))
    trellis = Trellis(100, 4)
    found = assignments(POLICIES[name], trellis, 3, stats)
    tables = {tuple(paths_of(each, trellis, 100)) for each in found}
    assert len(tables) == 3


# Frequency


@given(problem=problems())
def test_frequent_labels_have_the_smaller_paths(problem):
    trellis, stats, n_trellises = problem
    counts = np.arange(stats.n_labels)[::-1] if stats.counts is None else stats.counts
    found = assignments(FrequencyPolicy(), trellis, n_trellises, stats)
    first = paths_of(found[0], trellis, stats.n_labels)
    assert sorted(first) == list(range(stats.n_labels))
    by_path = counts[np.argsort(first)]
    assert (np.diff(by_path) <= 0).all()
    assert counts[np.argmin(first)] == counts.max()
    # Labels that are equally frequent keep their order.
    order = np.argsort(first)
    ties = np.diff(by_path) == 0
    assert (np.diff(order)[ties] > 0).all()


@given(problem=problems())
def test_further_trellises_shuffle_labels_within_exits(problem):
    trellis, stats, n_trellises = problem
    if stats.counts is None and stats.n_labels < trellis.n_classes:
        return  # without counts, all paths are permuted, and free ones among them
    exits = exits_of(trellis.n_classes, trellis.width)
    found = assignments(FrequencyPolicy(), trellis, n_trellises, stats)
    first, *others = (exits[paths_of(each, trellis, stats.n_labels)] for each in found)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_no_table_is_stored_without_counts():
    trellis = Trellis(10**12 + 7, 8)
    first, *others = assignments(FrequencyPolicy(), trellis, 3, LabelStats(trellis.n_classes))
    assert first == Identity()
    assert all(isinstance(other, KeyedPermutation) for other in others)
    assert others[0] != others[1]
    assert others[0].sizes[-1] == trellis.n_classes


@given(n_classes=st.integers(1, 400), width=widths)
def test_exit_ends_are_where_paths_get_longer(n_classes, width):
    lengths = exits_of(n_classes, width)
    ends = exit_ends(Trellis(n_classes, width))
    longer = (np.flatnonzero(np.diff(lengths)) + 1).tolist()
    # The longest early exit and the auxiliary vertex may be equally long.
    assert set(longer) <= set(ends)
    assert ends[-1] == n_classes
    assert ends == sorted(set(ends))


# Similarity


@given(problem=problems())
def test_within_exits_keeps_the_frequency_order_of_exits(problem):
    trellis, stats, n_trellises = problem
    counts = np.arange(stats.n_labels)[::-1] if stats.counts is None else stats.counts
    ends = exit_ends(trellis)
    found = assignments(SimilarityPolicy(within_exits=True), trellis, n_trellises, stats)
    for assignment in found:
        paths = paths_of(assignment, trellis, stats.n_labels)
        exit_ = np.searchsorted(ends, paths, side="right")
        # Exits are filled in order, and no label of a later exit is more frequent.
        filled = np.bincount(exit_, minlength=len(ends))
        room = np.diff([0, *ends])
        before_last = np.flatnonzero(filled)[-1]
        np.testing.assert_array_equal(filled[:before_last], room[:before_last])
        for this in range(before_last):
            assert counts[exit_ == this].min() >= counts[exit_ > this].max()


@given(problem=problems())
def test_within_exits_splits_the_last_slice_by_frequency(problem):
    """Among labels that share all states before it."""
    trellis, stats, n_trellises = problem
    counts = np.arange(stats.n_labels)[::-1] if stats.counts is None else stats.counts
    found = assignments(SimilarityPolicy(within_exits=True), trellis, n_trellises, stats)
    for assignment in found:
        paths = paths_of(assignment, trellis, stats.n_labels)
        first = 0
        for i, digit in enumerate(trellis.digits):
            labels = np.flatnonzero((paths >= first) & (paths < first + digit * trellis.width**i))
            state, before = np.divmod(paths[labels] - first, trellis.width**i)
            order = np.lexsort((state, before))
            for one, other in itertools.pairwise(order):
                assert before[one] != before[other] or counts[labels[one]] >= counts[labels[other]]
            first += digit * trellis.width**i


def test_similar_labels_share_edges():
    rng = np.random.default_rng(0)
    groups = np.arange(64) // 8
    vectors = rng.normal(size=(8, 30))[groups] + 0.05 * rng.normal(size=(64, 30))
    trellis, graph = Trellis(64, 4), Graph(64, 4)
    found = assignments(SimilarityPolicy(), trellis, 2, LabelStats(64, None, vectors))
    for assignment in found:
        edges = [set(graph.paths[path]) for path in assignment.paths]
        shared = np.array([[len(one & other) for other in edges] for one in edges])
        same = groups[:, None] == groups
        others = ~np.eye(64, dtype=bool)
        assert shared[same & others].mean() > 1.3 * shared[~same].mean()


def test_identical_labels_still_have_paths_of_their_own():
    trellis = Trellis(50, 3)
    (assignment,) = assignments(
        SimilarityPolicy(), trellis, 1, LabelStats(50, None, np.ones((50, 2)))
    )
    assert sorted(assignment.paths) == list(range(50))


# Random and ranking


def test_random_codebooks_store_nothing():
    found = assignments(RandomPolicy(), Trellis(2**40, 8), 3, LabelStats(2**40))
    assert len({each.seed for each in found}) == 3
    assert all(each.sizes == (2**40,) for each in found)


def test_ranking_starts_without_paths():
    found = assignments(RankingPolicy(), Trellis(20, 2), 2, LabelStats(20))
    assert [len(each.paths) for each in found] == [0, 0]


# Learned


def test_learned_starts_as_similarity():
    rng = np.random.default_rng(0)
    stats = LabelStats(40, None, rng.normal(size=(40, 6)))
    trellis = Trellis(40, 2)
    learned, similar = (
        assignments(p, trellis, 2, stats) for p in (LearnedPolicy(), SimilarityPolicy())
    )
    for one, other in zip(learned, similar, strict=True):
        np.testing.assert_array_equal(one.paths, other.paths)


@settings(max_examples=30)
@given(n_paths=st.integers(2, 40), width=st.integers(2, 5), seed=st.integers(0, 99))
def test_learned_moves_labels_to_paths_with_a_higher_total_score(n_paths, width, seed):
    rng = np.random.default_rng(seed)
    trellis, graph = Trellis(n_paths, width), Graph(n_paths, width)
    sums = rng.normal(size=(2, n_paths, trellis.n_edges)).astype(np.float32)
    before = [rng.permutation(n_paths) for _ in range(2)]
    after = LearnedPolicy().between_epochs(trellis, before, lambda: sums, None)
    for of_trellis, old, new in zip(sums.astype(float), before, after, strict=True):
        assert sorted(new) == list(range(n_paths))
        scores = [graph.scores(row.tolist()) for row in of_trellis]
        total = [
            sum(score[path] for score, path in zip(scores, p, strict=True)) for p in (old, new)
        ]
        assert total[1] >= total[0] - 1e-4


@pytest.mark.parametrize("name", ["random", "ranking", "similarity", "frequency"])
def test_other_policies_move_no_label_and_make_no_pass(name):
    def no_pass():
        raise AssertionError("score_sums must not be called")

    paths = [np.arange(10)]
    assert POLICIES[name].between_epochs(Trellis(10), paths, no_pass, None) is None


# Assignments become codebooks


def test_codebooks_of_assignments():
    assert make_codebook(KeyedPermutation(7, (10,)), 10) == RandomCodebook(10, 7)
    grown = make_codebook(KeyedPermutation(7, (4, 10)), 10)
    assert grown == RandomCodebook(4, 7).grow(10)
    assert make_codebook(Identity(), 3) == TableCodebook(3, [0, 1, 2])
    assert make_codebook(PathTable(np.array([2, 0])), 3) == TableCodebook(3, [2, 0])


# Registration


@pytest.fixture
def toy_policy():
    policy = ToyPolicy()
    register_policy(policy)
    yield policy
    POLICIES.pop(policy.name)


def test_a_registered_policy_is_found_by_name(toy_policy):
    assert POLICIES["toy"] is toy_policy
    with pytest.raises(ValueError, match="there is already a codebook policy named 'toy'"):
        register_policy(ToyPolicy())


def test_unknown_policies_are_named_with_the_known_ones(toy_policy):
    model = LTLSClassifier(trellises=Trellises(assignment="best"))
    with pytest.raises(ValueError, match=r"'assignment' .*'toy'.* got 'best'"):
        model.fit(np.eye(3), [0, 1, 2])


def test_a_policy_needs_initial_paths():
    class Incomplete(CodebookPolicy):
        name = "incomplete"

    with pytest.raises(TypeError, match="initial"):
        Incomplete()
