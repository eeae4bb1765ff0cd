"""The values of "auto", and the largest model within a size budget."""

import os

import numpy as np
import pytest
from scipy.sparse import random_array

from ltls import LTLSClassifier, RandomCodebook
from ltls.training.auto import LADDER, DatasetSize, parse_bytes, plan_for
from ltls.training.config import TrainConfig


def size(n_rows=5000, n_features=2000, nnz=100_000, n_labels=500):
    return DatasetSize(n_rows, n_features, nnz, n_labels)


def test_more_data_means_fewer_epochs_and_trellises():
    plans = [
        plan_for(TrainConfig(), size(n_rows=n, nnz=20 * n))
        for n in (2000, 50_000, 200_000, 2_000_000)
    ]
    assert [plan.epochs for plan in plans] == [5, 5, 3, 3]
    trellises = [plan.n_trellises for plan in plans]
    assert trellises == sorted(trellises, reverse=True)
    assert (trellises[0], trellises[-1]) == (12, 3)
    assert [plan.embedding_dim for plan in plans] == [128, 128, 128, 0]
    assert [plan.early_stopping for plan in plans] == [False, True, True, True]


def test_many_labels_mean_wider_trellises_and_fewer_of_them():
    few, many = (plan_for(TrainConfig(), size(10**6, 10**5, 10**8, n)) for n in (10**4, 10**5))
    assert (few.width, few.n_trellises) == (8, 3)
    assert (many.width, many.n_trellises) == (16, 2)


def test_small_problems_have_no_embedding():
    assert plan_for(TrainConfig(), size(n_rows=900)).embedding_dim == 0
    assert plan_for(TrainConfig(), size(n_labels=60)).embedding_dim == 0
    few_features = size(n_features=10, n_labels=50_000)  # the embedding would be larger than W
    assert plan_for(TrainConfig(), few_features).embedding_dim == 0


def test_explicit_values_are_kept():
    given = TrainConfig(width=3, n_trellises=2, epochs=7, embedding_dim=5, validation_fraction=0.1)
    plan = plan_for(given, size())
    assert (plan.width, plan.n_trellises, plan.epochs, plan.embedding_dim) == (3, 2, 7, 5)
    assert (plan.n_held_out, plan.early_stopping) == (500, True)
    assert plan_for(TrainConfig(assignment=RandomCodebook(600)), size()).n_trellises == 1


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("5MB", 5e6), ("300 kB", 3e5), ("1.5GiB", 1.5 * 2**30), (1234, 1234)]
)
def test_parse_bytes(text, n_bytes):
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "5", "MB", "-3MB", "0MB", "5 parsecs", 0, True])
def test_parse_bytes_rejects_other_texts(text):
    with pytest.raises(ValueError, match="size_budget must be"):
        parse_bytes(text)


def test_the_ladder_is_sorted_by_size():
    for n_labels in (500, 10**6):
        steps = [size(n_labels=n_labels).int8_bytes(*rung) for rung in LADDER]
        assert steps == sorted(steps)


@pytest.mark.parametrize("budget", ["60kB", "200kB", "1MB"])
def test_a_model_fits_its_budget(tmp_path, budget):
    rng = np.random.default_rng(0)
    X = random_array((400, 500), density=0.05, random_state=rng, format="csr")
    model = LTLSClassifier(size_budget=budget, epochs=1, random_state=0)
    model.fit(X, rng.integers(0, 300, 400)).save(tmp_path / "model.ltls")
    n_bytes, allowed = os.path.getsize(tmp_path / "model.ltls"), parse_bytes(budget)
    assert n_bytes < allowed + 10_000  # labels and a description come on top
    next_rung = LADDER.index((model.trellis_.width, len(model.codebooks_))) + 1
    assert (
        next_rung == len(LADDER) or DatasetSize.of(X, 300).int8_bytes(*LADDER[next_rung]) > allowed
    )


def test_invalid_budgets_are_rejected():
    X, y = np.eye(50), np.arange(50)
    with pytest.raises(ValueError, match="is too small: the smallest model of 50 features"):
        LTLSClassifier(size_budget="100B").fit(X, y)
    with pytest.raises(ValueError, match="give either the budget or these"):
        LTLSClassifier(size_budget="1MB", width=2).fit(X, y)
    with pytest.raises(ValueError, match="size_budget needs all rows at once"):
        LTLSClassifier(size_budget="1MB").partial_fit(X, y)
