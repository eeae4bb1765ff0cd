"""Memory of arrays that is used again, but never while anything has the array."""

import copy
import pickle

import numpy as np
import pytest

from ltls.core import _engine
from ltls.linear.reuse import Spare, reusable_zeros

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
