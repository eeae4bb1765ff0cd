"""The values of "auto", and models within a size budget."""

import os
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import random_array

from ltls import LTLSClassifier, RandomCodebook, load
from ltls.training.auto import DatasetSize, parse_bytes, plan_for
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
    assert (trellises[0], trellises[-1]) == (6, 3)
    without = plan_for(TrainConfig(label_weights=False), size(n_rows=2000, nnz=40_000))
    assert without.n_trellises == 12
    assert [plan.early_stopping for plan in plans] == [False, True, True, True]


def test_many_paths_mean_wider_trellises_and_fewer_of_them():
    config = TrainConfig(label_weights=False)
    few, many = (plan_for(config, size(10**6, 10**5, 10**8, n)) for n in (10**4, 10**5))
    assert (few.width, few.n_trellises) == (8, 3)
    assert (many.width, many.n_trellises) == (16, 2)


def test_labels_share_paths_if_they_are_many_and_have_weights():
    assert plan_for(TrainConfig(), size(n_labels=900)).bucket_size == 1
    many = size(n_labels=2000)
    assert plan_for(TrainConfig(), many).bucket_size == 16
    for other in (
        {"label_weights": False},
        {"embedding_dim": 8},
        {"assignment": "similarity"},
        {"loss": "separation"},
        {"bucket_size": 1},
    ):
        assert plan_for(TrainConfig(**other), many).bucket_size == 1


def test_small_problems_have_no_label_weights():
    assert plan_for(TrainConfig(), size()).label_weights
    assert not plan_for(TrainConfig(), size(n_rows=900)).label_weights
    assert not plan_for(TrainConfig(), size(n_labels=60)).label_weights
    assert plan_for(TrainConfig(label_weights=True), size(n_rows=900)).label_weights


def test_small_dense_problems_are_one_vs_all():
    dense = DatasetSize(1500, 64, 1500 * 64, 100, dense=True)
    plan = plan_for(TrainConfig(), dense)
    assert plan.small_dense
    assert (plan.width, plan.n_trellises, plan.epochs) == (100, 1, 20)
    assert not plan.label_weights
    assert plan_for(TrainConfig(epochs=3), dense).epochs == 3
    assert plan_for(TrainConfig(), replace(dense, n_rows=2000)).epochs == 5
    for changed in ({"dense": False}, {"n_labels": 129}, {"n_rows": 99}):
        assert not plan_for(TrainConfig(), replace(dense, **changed)).small_dense
    for given in (
        {"width": 8},
        {"n_trellises": 2},
        {"label_weights": True},
        {"average": True},
        {"loss": "logistic"},
        {"assignment": "similarity"},
        {"size_budget": "1MB"},
        {"normalize": False},
    ):
        plan = plan_for(TrainConfig(**given), dense)
        assert not plan.small_dense
        assert plan.epochs == 5


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"assignment": "similarity"}, "takes no assignment, got 'similarity'"),
        ({"label_weights": False}, "needs label_weights=True"),
        ({"embedding_dim": 8}, "needs a path for every label: use bucket_size=1"),
    ],
)
def test_buckets_that_cannot_be_are_rejected(other, message):
    with pytest.raises(ValueError, match=message):
        plan_for(TrainConfig(bucket_size=4, **other), size())


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


@pytest.mark.parametrize("budget", ["40kB", "100kB", "1MB"])
@pytest.mark.parametrize("parts", [{}, {"label_weights": True, "bucket_size": 4}])
def test_a_file_never_exceeds_its_budget_and_a_large_one_changes_nothing(tmp_path, budget, parts):
    rng = np.random.default_rng(0)
    X = random_array((400, 500), density=0.05, random_state=rng, format="csr")
    y = rng.integers(0, 300, 400)
    path, allowed = tmp_path / "model.ltls", parse_bytes(budget)
    whole = LTLSClassifier(epochs=1, random_state=0, **parts).fit(X, y)
    whole.save(tmp_path / "whole.ltls")
    fits = os.path.getsize(tmp_path / "whole.ltls") < 0.9 * allowed
    model = LTLSClassifier(size_budget=budget, epochs=1, random_state=0, **parts).fit(X, y)
    model.save(path)
    assert os.path.getsize(path) <= allowed
    if fits:
        np.testing.assert_array_equal(model.coef_, whole.coef_)
        expected = load(tmp_path / "whole.ltls")  # both are rounded to int8
    else:
        assert os.path.getsize(path) > 0.4 * allowed
        expected = model
    for ours, theirs in zip(
        load(path).predict_topk(X, 3), expected.predict_topk(X, 3), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    model.partial_fit(X[:20], y[:20]).save(path)
    assert os.path.getsize(path) <= allowed


def test_a_budget_drops_no_more_of_a_pruned_model_than_it_must(tmp_path):
    rng = np.random.default_rng(0)
    X = random_array((400, 500), density=0.05, random_state=rng, format="csr")
    y = rng.integers(0, 300, 400)
    settings = {"density": 0.5, "epochs": 1, "random_state": 0}
    LTLSClassifier(**settings).fit(X, y).save(tmp_path / "whole.ltls")
    allowed = os.path.getsize(tmp_path / "whole.ltls") - 100
    LTLSClassifier(size_budget=allowed, **settings).fit(X, y).save(tmp_path / "model.ltls")
    assert 0.7 * allowed < os.path.getsize(tmp_path / "model.ltls") <= allowed


def test_invalid_budgets_are_rejected():
    X, y = np.eye(50), np.arange(50)
    with pytest.raises(ValueError, match="is too small: the smallest model of 50 features"):
        LTLSClassifier(size_budget="100B").fit(X, y)
    with pytest.raises(ValueError, match="dtype must be 'int8' with a size_budget"):
        LTLSClassifier(size_budget="1MB", epochs=1).fit(X, y).save("model", dtype="float32")
    with pytest.raises(ValueError, match="size_budget needs all rows at once"):
        LTLSClassifier(size_budget="1MB").partial_fit(X, y)
