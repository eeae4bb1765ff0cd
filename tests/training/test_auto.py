"""What "auto" chooses, and the largest model that fits a budget."""

import os

import numpy as np
import pytest
from scipy.sparse import random_array

from ltls import LTLSClassifier, RandomCodebook
from ltls.training.auto import LADDER, Size, parsed_bytes, plan_for


def size(n_rows=5000, n_features=2000, n_values=100_000, n_labels=500):
    return Size(n_rows, n_features, n_values, n_labels)


def test_more_data_means_fewer_passes_and_trellises():
    plans = [
        plan_for(LTLSClassifier(), size(n_rows=n, n_values=20 * n))
        for n in (2000, 50_000, 200_000, 2_000_000)
    ]
    assert [plan.epochs for plan in plans] == [5, 5, 3, 3]
    trellises = [plan.n_trellises for plan in plans]
    assert trellises == sorted(trellises, reverse=True)
    assert (trellises[0], trellises[-1]) == (12, 3)
    assert [plan.rank for plan in plans] == [128, 128, 128, 0]
    assert [plan.stops_early for plan in plans] == [False, True, True, True]


def test_many_labels_mean_wider_trellises_and_fewer_of_them():
    few, many = (plan_for(LTLSClassifier(), size(10**6, 10**5, 10**8, n)) for n in (10**4, 10**5))
    assert (few.width, few.n_trellises) == (8, 3)
    assert (many.width, many.n_trellises) == (16, 2)


def test_small_problems_are_not_rescored():
    assert plan_for(LTLSClassifier(), size(n_rows=900)).rank == 0
    assert plan_for(LTLSClassifier(), size(n_labels=60)).rank == 0
    few_features = size(n_features=10, n_labels=50_000)  # the embedding would be larger than W
    assert plan_for(LTLSClassifier(), few_features).rank == 0


def test_what_is_given_stays():
    given = LTLSClassifier(width=3, n_trellises=2, epochs=7, rescore=5, validation_fraction=0.1)
    plan = plan_for(given, size())
    assert (plan.width, plan.n_trellises, plan.epochs, plan.rank) == (3, 2, 7, 5)
    assert (plan.n_held_out, plan.stops_early) == (500, True)
    assert plan_for(LTLSClassifier(assignment=RandomCodebook(600)), size()).n_trellises == 1


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("5MB", 5e6), ("300 kB", 3e5), ("1.5GiB", 1.5 * 2**30), (1234, 1234)]
)
def test_sizes_in_words(text, n_bytes):
    assert parsed_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "5", "MB", "-3MB", "0MB", "5 parsecs", 0, True])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="size_budget must be"):
        parsed_bytes(text)


def test_the_ladder_only_rises():
    for n_labels in (500, 10**6):
        steps = [size(n_labels=n_labels).bytes_of(*rung) for rung in LADDER]
        assert steps == sorted(steps)


@pytest.mark.parametrize("budget", ["60kB", "200kB", "1MB"])
def test_a_model_within_its_budget(tmp_path, budget):
    rng = np.random.default_rng(0)
    X = random_array((400, 500), density=0.05, random_state=rng, format="csr")
    model = LTLSClassifier(size_budget=budget, epochs=1, random_state=0)
    model.fit(X, rng.integers(0, 300, 400)).save(tmp_path / "model.ltls")
    n_bytes, allowed = os.path.getsize(tmp_path / "model.ltls"), parsed_bytes(budget)
    assert n_bytes < allowed + 10_000  # labels and a description come on top
    wider = LADDER.index((model.trellis_.width, len(model.codebooks_))) + 1
    assert wider == len(LADDER) or Size.of(X, 300).bytes_of(*LADDER[wider]) > allowed


def test_budgets_that_cannot_be():
    X, y = np.eye(50), np.arange(50)
    with pytest.raises(ValueError, match="is too small: the smallest model of 50 features"):
        LTLSClassifier(size_budget="100B").fit(X, y)
    with pytest.raises(ValueError, match="give it or them, not both"):
        LTLSClassifier(size_budget="1MB", width=2).fit(X, y)
    with pytest.raises(ValueError, match="size_budget needs all rows at once"):
        LTLSClassifier(size_budget="1MB").partial_fit(X, y)
