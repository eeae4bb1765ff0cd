"""Weights while they are trained: averages, soft thresholds, growth, and memory used again."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltls import Trellis
from ltls.core import _engine
from ltls.parts.edge_weights import padded
from ltls.parts.trainable import (
    INITIAL_SQUARES,
    Spare,
    SquaresSketch,
    TrainableWeights,
    reusable_zeros,
)
from ltls.settings import Trellises

N_FEATURES = 5


def trainable(trellis, n_trellises=2, adagrad=True, average=True, intercept=True, seed=0):
    """Weights as after some training, with 0 in the padding."""
    chosen = Trellises(optimizer="adagrad" if adagrad else "sgd", average=average)
    weights = TrainableWeights(chosen, trellis, n_trellises, N_FEATURES, intercept, False)
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
    weights = TrainableWeights(Trellises(average=True), Trellis(22), 3, N_FEATURES, True, False)
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
    with pytest.raises(ValueError, match=r"weights of shape \(6, 96\), but its parameters expect"):
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
    branch = trainable(Trellis(22)).branch()
    monkeypatch.setattr("ltls.parts.trainable.available_memory", lambda: 100)
    with pytest.raises(MemoryError, match=r"further training needs 0\.0 GB for a copy"):
        branch.unshare(None)


# Memory that is used again

SHAPE = (4, 16)
HOLDERS = {
    "the array": lambda array: array,
    "a row": lambda array: array[1],
    "a view of a view": lambda array: array[1:].reshape(-1)[3:],
    "another type": lambda array: array.view(np.uint8),
    "the engine": lambda array: _engine.Weights.dense(array, None),
    "a buffer": memoryview,
}


def handed_out():
    array = reusable_zeros(SHAPE, np.float32)
    array[:] = np.arange(64).reshape(SHAPE)
    return array


def test_arrays_are_aligned_and_zero():
    array = reusable_zeros(SHAPE, np.float64)
    assert array.ctypes.data % 64 == 0
    assert array.shape == SHAPE
    assert array.dtype == np.float64
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert not array.any()


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_memory_is_used_again_when_nobody_has_the_array(hold):
    array = handed_out()
    place, current = array.ctypes.data, array.copy()
    current[[0, 2]] = -1
    spare = Spare.of(array, np.array([0, 2]))
    holder = hold(array)
    del array
    assert spare.copy_of(current) is None
    del holder
    again = spare.copy_of(current)
    np.testing.assert_array_equal(again, current)
    assert again.ctypes.data == place


def test_all_rows_are_copied_where_all_changed():
    array = handed_out()
    current = array[::-1].copy()
    spare = Spare.of(array, None)
    del array
    np.testing.assert_array_equal(spare.copy_of(current), current)


def test_memory_is_used_again_by_one_of_several():
    array = handed_out()
    current = array + 1
    spares = [Spare.of(array, None), Spare.of(array, None)]
    del array
    assert spares[0].copy_of(current) is not None  # and given up at once
    assert spares[1].copy_of(current) is None
    assert spares[0].copy_of(current) is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda array: pickle.loads(pickle.dumps(array))])
def test_copies_have_memory_of_their_own(copied):
    array = handed_out()
    other = copied(array)
    assert not np.shares_memory(array, other)
    assert Spare.of(other, None) is None


# A sketch of the optimizer's state


@given(seed=st.integers(0, 99), n_features=st.integers(1, 30))
def test_a_sketch_is_right_where_squares_are_a_product(seed, n_features):
    rng = np.random.default_rng(seed)
    rows, edges = rng.exponential(size=(n_features, 1)), rng.exponential(size=16)
    squares = (INITIAL_SQUARES + 50 * rows * edges).astype(np.float32)
    squares[rng.random(n_features) < 0.2] = INITIAL_SQUARES  # features that never occurred
    found = SquaresSketch.of(squares).expand()
    assert (found.shape, found.dtype) == (squares.shape, np.float32)
    np.testing.assert_allclose(found, squares, rtol=0.2, atol=0.05)


def test_a_sketch_of_nothing_is_the_start():
    start = np.full((3, 16), INITIAL_SQUARES, np.float32)
    np.testing.assert_allclose(SquaresSketch.of(start).expand(), start, rtol=1e-5)
