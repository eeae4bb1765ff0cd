"""Weights while they are trained: averages, soft thresholds, growth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltls import Trellis
from ltls.linear.trainable import INITIAL_SQUARES, TrainableWeights
from ltls.linear.weights import padded

N_FEATURES = 5


def trainable(trellis, n_trellises=2, adagrad=True, average=True, intercept=True, seed=0):
    """Weights as after some training, with 0 in the padding."""
    weights = TrainableWeights(
        trellis, n_trellises, N_FEATURES, intercept=intercept, unit_length=False,
        adagrad=adagrad, average=average, settings={"width": trellis.width},
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    real = np.tile(np.arange(padded(trellis.n_edges)) < trellis.n_edges, n_trellises)
    weights.values[:, real] = rng.normal(size=(len(weights.values), real.sum()))
    if weights.sums is not None:
        weights.sums[:, real] = 10 * rng.normal(size=(len(weights.values), real.sum()))
    weights.step = 17
    return weights


def blocks(array, n_trellises, n_edges):
    """The numbers of real edges, shape (n_rows, n_trellises, n_edges)."""
    return array.reshape(len(array), n_trellises, -1)[:, :, :n_edges]


def test_new_weights_are_0_and_aligned():
    weights = TrainableWeights(
        Trellis(22), 3, N_FEATURES, intercept=True, unit_length=False, adagrad=True, average=True,
        settings={},
    )  # fmt: skip
    assert weights.values.shape == (N_FEATURES + 1, 3 * 32)
    assert not weights.values.any()
    assert (weights.squares == INITIAL_SQUARES).all()
    assert not weights.sums.any()
    assert (weights.step, weights.epochs) == (1, 0)
    assert all(tensor.ctypes.data % 64 == 0 for tensor in weights.tensors().values())


@pytest.mark.parametrize("adagrad", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_tensors_are_those_that_training_changes(adagrad, average):
    tensors = trainable(Trellis(22), adagrad=adagrad, average=average).tensors()
    expected = {"weights"} | ({"squares"} if adagrad else set()) | ({"sums"} if average else set())
    assert set(tensors) == expected


@pytest.mark.parametrize("l1", [0.0, 0.5])
@pytest.mark.parametrize("average", [False, True])
def test_weights_to_predict_with_are_averaged_and_soft_thresholded(average, l1):
    weights = trainable(Trellis(22), average=average)
    expected = weights.values - (weights.sums / 17 if average else 0)
    expected = np.sign(expected) * np.maximum(np.abs(expected) - l1, 0)
    found = weights.for_prediction(l1)
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
    assert (found.n_edges, found.n_trellises, found.intercept) == (19, 2, True)
    assert found.n_features == N_FEATURES


def test_weights_to_predict_with_follow_training():
    weights = trainable(Trellis(22))
    before = weights.for_prediction(0.0)
    assert weights.for_prediction(0.0) is before
    weights.values += 1
    weights.step += 1
    assert not np.array_equal(weights.for_prediction(0.0).values, before.values)
    assert not np.array_equal(weights.for_prediction(0.5).values, before.values)


@given(
    n_classes=st.integers(2, 200),
    width=st.integers(2, 9),
    n_trellises=st.integers(1, 3),
    n_steps=st.integers(1, 4),
)
def test_growing_keeps_the_weights_of_old_edges(n_classes, width, n_trellises, n_steps):
    trellis = Trellis(n_classes, width)
    weights = trainable(trellis, n_trellises)
    before = {
        name: blocks(tensor, n_trellises, trellis.n_edges).copy()
        for name, tensor in weights.tensors().items()
    }
    place = np.arange(trellis.n_edges)
    for _ in range(n_steps):
        trellis, edge_map = trellis.grow()
        weights.grow(trellis, edge_map)
        place = edge_map[place]
    new = np.setdiff1d(np.arange(trellis.n_edges), place)
    start = {"weights": 0, "squares": INITIAL_SQUARES, "sums": 0}
    for name, tensor in weights.tensors().items():
        after = blocks(tensor, n_trellises, trellis.n_edges)
        np.testing.assert_array_equal(after[:, :, place], before[name])
        assert (after[:, :, new] == start[name]).all()
    assert weights.for_prediction(0.0).n_edges == trellis.n_edges


@pytest.mark.parametrize("l1", [0.0, 0.25])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_loaded_weights_are_predicted_with(dtype, average, l1):
    trellis = Trellis(22)
    given_weights = trainable(trellis, average=False, seed=1).for_prediction(l1).astype(dtype)
    weights = trainable(trellis, average=average)
    weights.load(given_weights, l1)
    found = weights.for_prediction(l1).values
    np.testing.assert_allclose(found, given_weights.astype("float32").values, atol=1e-6)


def test_weights_of_another_shape_are_not_loaded():
    weights = trainable(Trellis(22))
    with pytest.raises(ValueError, match=r"weights of shape \(6, 96\), its parameters expect"):
        weights.load(trainable(Trellis(22), 3).for_prediction(0.0), 0.0)


def snapshot(weights):
    return {name: tensor.copy() for name, tensor in weights.tensors().items()}


@settings(max_examples=50)
@given(st.data())
def test_a_branch_never_changes_what_it_came_from(data):
    adagrad, average = data.draw(st.booleans()), data.draw(st.booleans())
    trellis = Trellis(22)
    kept = [trainable(trellis, adagrad=adagrad, average=average)]
    expected = [snapshot(kept[0])]
    for step in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, len(kept) - 1))
        branch, state = (
            kept[at].branch(),
            {name: each.copy() for name, each in expected[at].items()},
        )
        rows = data.draw(st.none() | st.lists(st.integers(0, N_FEATURES - 1), unique=True))
        branch.unshare(None if rows is None else np.array(sorted(rows), np.int64))
        changed = [*(range(N_FEATURES) if rows is None else rows), N_FEATURES]  # and the intercept
        for name, tensor in branch.tensors().items():
            tensor[changed] = state[name][changed] = step + 1
        kept.append(branch)
        expected.append(state)
        if len(kept) > 1 and data.draw(st.booleans()):  # nobody has this one any more
            gone = data.draw(st.integers(0, len(kept) - 1))
            del kept[gone], expected[gone]
        del branch, tensor
        for weights, state in zip(kept, expected, strict=True):
            for name, tensor in weights.tensors().items():
                np.testing.assert_array_equal(tensor, state[name])
        del weights, tensor


def test_the_memory_of_the_last_but_one_is_used_again():
    weights, places = trainable(Trellis(22)), []
    for _ in range(6):
        branch = weights.branch()
        branch.unshare(np.array([1]))
        weights = branch
        del branch
        places.append({tensor.ctypes.data for tensor in weights.tensors().values()})
    assert places[0] != places[1]
    assert places[:2] * 2 == places[2:]


def test_a_branch_that_has_grown_shares_nothing():
    weights = trainable(Trellis(22))
    for grow in (lambda each: each.grow(*Trellis(22).grow()), lambda each: each.add_features(2)):
        branch = weights.branch()
        grow(branch)
        before = branch.values
        branch.unshare(None)
        assert branch.values is before
        assert not np.shares_memory(branch.values, weights.values)


def test_a_copy_needs_memory(monkeypatch):
    monkeypatch.setattr("ltls.linear.trainable.available_memory", lambda: 100)
    branch = trainable(Trellis(22)).branch()
    with pytest.raises(MemoryError, match=r"training further needs 0\.0 GB for a copy"):
        branch.unshare(None)
