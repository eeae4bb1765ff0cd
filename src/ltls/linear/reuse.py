"""Memory of arrays that is used again once nobody has the array any more.

A model that was handed out does not change: who predicts with it or saves it sees one state. So
further training needs arrays of its own. A copy of all weights would take far longer than training
on a few rows. But the arrays of the model before the last one differ from its arrays in few rows,
and usually nobody has them any more.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .weights import aligned_zeros


class Memory:
    """The memory of one array at a time, which starts on a cache line."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._numbers = aligned_zeros(shape, dtype)
        self._lock = threading.Lock()
        self._array: Callable[[], npt.NDArray[Any] | None] = lambda: None
        self.n_arrays = 0

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._numbers.__array_interface__

    def array(self, n_before: int = 0) -> npt.NDArray[Any] | None:
        """Return the next array.

        None if there were more than `n_before`, or if anything has the last one or a view of it:
        all of these refer to the one array whose base is this object.
        """
        with self._lock:
            if self.n_arrays != n_before or self._array() is not None:
                return None
            array = np.asarray(self)
            self._array = weakref.ref(array)
            self.n_arrays += 1
            return array


def reusable_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return zeros whose memory can be used again."""
    array = Memory(shape, dtype).array()
    assert array is not None
    return array


@dataclass(frozen=True)
class Spare:
    """The memory of an array that was handed out.

    Parameters
    ----------
    memory : Memory
    n_arrays : int
        How many arrays it has had.
    rows : int64 array or None
        Where the array that followed is different; None is everywhere.
    """

    memory: Memory
    n_arrays: int
    rows: npt.NDArray[np.int64] | None

    @classmethod
    def of(cls, array: npt.NDArray[Any], rows: npt.NDArray[np.int64] | None) -> Spare | None:
        """Return the memory of an array, None if it cannot be used again."""
        memory = array.base
        return cls(memory, memory.n_arrays, rows) if isinstance(memory, Memory) else None

    def copy_of(self, current: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
        """Return a copy of the array that followed, None if this one is still used."""
        array = self.memory.array(self.n_arrays)
        if array is not None:
            rows = slice(None) if self.rows is None else self.rows
            array[rows] = current[rows]
        return array
