"""Weights while they are trained, with the optimizer's state."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.arrays import AnyArray, Floats, Ints, aligned_zeros, available_memory
from ..structure.trellis import Trellis
from .edge_weights import AnyWeights, Weights, aligned, padded
from .trellises import Trellises

# Initial value of AdaGrad's accumulators. With 0, the first step of every weight would have full
# size, however small its gradient, and rare features would count too much.
INITIAL_SQUARES = np.float32(0.3)
_LARGEST_SQUARES = 1e30  # leaves room to add to them in float32


class TrainableWeights:
    """The matrix W during training.

    Attributes
    ----------
    values : float32 array of shape (n_rows, n_trellises · padded(n_edges))
    squares : array like `values`, or None
        AdaGrad's sums of squared gradients; None for plain SGD.
    sums : float64 array like `values`, or None
        Updates weighted by their step number, for averaging over all steps; None without averaging.
    step : int
        Examples seen so far, plus one.
    epochs : int
        Passes over the data so far.
    row_length : float
        What the learning rate is divided by.
    """

    def __init__(
        self,
        settings: Trellises,
        trellis: Trellis,
        n_trellises: int,
        n_features: int,
        intercept: bool,
        unit_length: bool,
    ) -> None:
        check_memory(settings, trellis, n_trellises, n_features)
        shape = (n_features + intercept, n_trellises * padded(trellis.n_edges))
        self.intercept = intercept
        self.unit_length = unit_length
        self.n_edges = trellis.n_edges
        self.n_trellises = n_trellises
        self.values = reusable_zeros(shape, np.float32)
        adagrad = settings.optimizer == "adagrad"
        self.squares = reusable_zeros(shape, np.float32) if adagrad else None
        if self.squares is not None:
            self.squares += INITIAL_SQUARES
        self.sums = reusable_zeros(shape, np.float64) if settings.average else None
        self.step = 1
        self.epochs = 0
        self.row_length = 1.0
        self._cached: tuple[int, float, Weights] | None = None
        self._shared = False
        self._spares: dict[str, Spare | None] = {}

    def tensors(self) -> dict[str, AnyArray]:
        """Return the arrays that training changes, by name; not copies."""
        arrays = {"weights": self.values, "squares": self.squares, "sums": self.sums}
        return {name: array for name, array in arrays.items() if array is not None}

    def _replace(self, arrays: Mapping[str, Any]) -> None:
        """Continue with other arrays, by name; drop all references to earlier ones."""
        self.values, self.squares = arrays["weights"], arrays.get("squares")
        self.sums, self._cached = arrays.get("sums"), None

    def set_tensors(self, arrays: Mapping[str, AnyArray], step: int, epochs: int) -> None:
        """Continue from arrays that `tensors` has returned."""
        for name, array in self.tensors().items():
            array[:] = arrays[name]
        self.step, self.epochs = step, epochs
        self._cached = None

    def branch(self) -> TrainableWeights:
        """Return a copy that shares the arrays until it grows, or until `unshare`."""
        other = copy(self)
        other._shared, other._spares = True, self._spares
        return other

    def some(self, first: int, last: int) -> TrainableWeights:
        """Return the weights of some trellises, which share the arrays until `unshare`."""
        other = self.branch()
        own = {name: array[:, self._columns(first, last)] for name, array in self.tensors().items()}
        other._replace(own)
        other.n_trellises, other._spares = last - first, {}
        return other

    def replace_some(self, first: int, last: int, trained: TrainableWeights) -> None:
        """Continue from weights of some trellises, which `some` has returned."""
        for name, array in trained.tensors().items():
            self.tensors()[name][:, self._columns(first, last)] = array
        self.step, self.epochs, self._cached = trained.step, trained.epochs, None

    def _columns(self, first: int, last: int) -> slice:
        block = padded(self.n_edges)
        return slice(first * block, last * block)

    def unshare(self, rows: Ints | None) -> None:
        """Take copies of the shared arrays, to change some rows and the intercept.

        `rows` may be None for all. The weights that this branched from, and predictors that use
        them, do not see the changes.
        """
        if not self._shared:
            return
        if rows is not None and self.intercept:
            rows = np.append(rows, len(self.values) - 1)
        shared, spares = self.tensors(), self._spares
        self._replace(
            {name: self._copied(array, spares.get(name)) for name, array in shared.items()}
        )
        self._spares = {name: Spare.of(array, rows) for name, array in shared.items()}
        self._shared = False

    def _copied(self, array: AnyArray, spare: Spare | None) -> AnyArray:
        copied = None if spare is None else spare.copy_of(array)
        if copied is None:
            available = available_memory()
            if available is not None and array.nbytes > available:
                raise MemoryError(
                    f"further training needs {array.nbytes / 1e9:.1f} GB for a copy of the "
                    f"weights, and {available / 1e9:.1f} GB are available"
                )
            copied = reusable_zeros(array.shape, array.dtype)
            copied[:] = array
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_spares": {}}

    def grow(self, trellis: Trellis, edge_map: Ints) -> None:
        """Move to a larger trellis: old edges keep their weights, new ones start at 0."""
        block, old_block = padded(trellis.n_edges), padded(self.n_edges)

        def copy_to(new: AnyArray, old: AnyArray) -> None:
            for r in range(self.n_trellises):
                of_trellis = old[:, r * old_block : r * old_block + self.n_edges]
                new[:, r * block + edge_map] = of_trellis

        self._enlarge((len(self.values), self.n_trellises * block), copy_to)
        self.n_edges = trellis.n_edges

    def add_features(self, n: int) -> None:
        """Add rows of 0 for new features, before the intercept."""
        if n == 0:
            return
        last = len(self.values) - self.intercept

        def copy_to(new: AnyArray, old: AnyArray) -> None:
            new[:last], new[last + n :] = old[:last], old[last:]

        self._enlarge((len(self.values) + n, self.values.shape[1]), copy_to)

    def _enlarge(
        self, shape: tuple[int, int], copy_to: Callable[[AnyArray, AnyArray], None]
    ) -> None:
        """Continue with larger arrays, to which the present ones are copied."""
        arrays = {}
        for name, old in self.tensors().items():
            arrays[name] = reusable_zeros(shape, old.dtype)
            if name == "squares":
                arrays[name] += INITIAL_SQUARES
            copy_to(arrays[name], old)
        self._replace(arrays)
        self._shared, self._spares = False, {}

    def load(self, weights: AnyWeights, l1: float) -> None:
        """Continue from given weights, undoing soft-thresholding; averages restart."""
        values = weights.to_float32()
        if values.shape != self.values.shape:
            raise ValueError(
                f"the model has weights of shape {values.shape}, but its parameters expect "
                f"{self.values.shape}"
            )
        self.values[:] = values
        if l1 > 0:
            self.values += np.float32(l1) * np.sign(values)
        if self.sums is not None:
            self.sums[:] = 0
            self.step = 1
        self._cached = None

    def start_average(self, row_length: float) -> None:
        """Average the weights over all steps from now on.

        Steps are scaled: those on rows of length `row_length` change the scores as much as steps
        on rows of unit length do otherwise.
        """
        self.sums = reusable_zeros(self.values.shape, np.float64)
        self.step, self.row_length, self._cached = 1, row_length, None
        if self.squares is not None:
            self.squares *= np.float32(row_length**2)

    def end_average(self) -> None:
        """Continue from the average, without averaging."""
        self.values[:] = self._make_weights(0.0).values
        self.sums, self._cached = None, None

    def keep_step_size(self) -> None:
        """Keep the size of the steps when rows are no longer divided by `row_length`."""
        factor = self.row_length**2
        # For very long rows the squares would overflow: the learning rate stays divided.
        if self.squares is not None and factor * float(self.squares.max()) < _LARGEST_SQUARES:
            self.squares *= np.float32(factor)
            self.row_length = 1.0

    def for_prediction(self, l1: float) -> Weights:
        """Return the weights to predict with: averaged, and soft-thresholded under L1.

        Without either they are a view of the arrays that are trained.
        """
        if self._cached is None or self._cached[:2] != (self.step, l1):
            self._cached = self.step, l1, self._make_weights(l1)
        return self._cached[2]

    def wrap(self, values: Floats) -> Weights:
        """Return other values of the same shape as weights to predict with."""
        return Weights(
            values, None, self.n_edges, self.n_trellises, self.intercept, self.unit_length
        )

    def _make_weights(self, l1: float) -> Weights:
        values = self.values
        if self.sums is not None:
            values = aligned((values - self.sums / self.step).astype(np.float32))
        if l1 > 0:
            limit = np.float32(l1)
            values = aligned(values - np.clip(values, -limit, limit))
        return self.wrap(values)


def check_memory(settings: Trellises, trellis: Trellis, n_trellises: int, n_features: int) -> None:
    """Raise an error if the weights will not fit into memory, before they are allocated."""
    available = available_memory()
    per_weight = 4 + 4 * (settings.optimizer == "adagrad") + 8 * bool(settings.average)
    per_trellis = (n_features + 1) * padded(trellis.n_edges) * per_weight
    if available is None or n_trellises * per_trellis <= available:
        return
    fits = available // per_trellis
    hint = f"n_trellises={fits} would fit" if fits else "use a smaller width or fewer features"
    raise MemoryError(
        f"training needs {n_trellises * per_trellis / 1e9:.1f} GB for the weights of "
        f"{n_features:,} features, {n_trellises} trellises and {trellis.n_edges:,} edges, and "
        f"{available / 1e9:.1f} GB are available; {hint}"
    )


# Reusing memory
#
# A model that was handed out never changes: threads that predict with it or save it see one state.
# So further training needs arrays of its own. Copying all weights would take far longer than
# training on a few rows. But the arrays of the model before the last differ from the last ones in
# only a few rows, and usually nothing refers to them any more.


class ArrayMemory:
    """The memory of one array at a time, which starts on a cache line."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._numbers = aligned_zeros(shape, dtype)
        self._lock = threading.Lock()
        self._array: Callable[[], AnyArray | None] = lambda: None
        self.n_arrays = 0

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._numbers.__array_interface__

    def array(self, n_before: int = 0) -> AnyArray | None:
        """Return the next array.

        None if there were not exactly `n_before` arrays before, or if the last one is still in use;
        a view of it counts, since views refer to the array whose base is this object.
        """
        with self._lock:
            if self.n_arrays != n_before or self._array() is not None:
                return None
            array = np.asarray(self)
            self._array = weakref.ref(array)
            self.n_arrays += 1
            return array


def reusable_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
    """Return zeros in reusable memory."""
    array = ArrayMemory(shape, dtype).array()
    assert array is not None
    return array


@dataclass(frozen=True)
class Spare:
    """The memory of an array that was handed out.

    Parameters
    ----------
    memory : ArrayMemory
    n_arrays : int
        Number of arrays that the memory has held.
    rows : int64 array or None
        Where the next array differs; None means everywhere.
    """

    memory: ArrayMemory
    n_arrays: int
    rows: Ints | None

    @classmethod
    def of(cls, array: AnyArray, rows: Ints | None) -> Spare | None:
        """Return the memory of an array, None if it cannot be reused."""
        memory = array.base
        return cls(memory, memory.n_arrays, rows) if isinstance(memory, ArrayMemory) else None

    def copy_of(self, current: AnyArray) -> AnyArray | None:
        """Return a copy of the next array, None if this one is still used."""
        array = self.memory.array(self.n_arrays)
        if array is not None:
            rows = slice(None) if self.rows is None else self.rows
            array[rows] = current[rows]
        return array


_STEPS = 8  # of a feature's share, per factor of 2
_HIGHEST = 255


@dataclass(frozen=True, eq=False)
class SquaresSketch:
    """The product of sums over rows and over columns, as in Adafactor (Shazeer and Stern 2018).

    It suffices for step sizes of the right magnitude when training continues from a small file.

    Parameters
    ----------
    features : uint8 array of shape (n_rows,)
        The share of every row of W, on a logarithmic scale; 0 is a share of 0.
    edges : float32 array of shape (stride,)
        The sum of every column.
    """

    features: AnyArray
    edges: Floats

    @classmethod
    def of(cls, squares: Floats) -> SquaresSketch:
        """Return a sketch of AdaGrad's accumulators."""
        initial = np.float64(INITIAL_SQUARES)
        rows, edges = (
            np.maximum(squares.sum(axis=axis, dtype=np.float64) - initial * squares.shape[axis], 0)
            for axis in (1, 0)
        )
        codes = np.zeros(len(rows))
        used = rows > 0
        codes[used] = _HIGHEST + np.rint(_STEPS * np.log2(rows[used] / rows.max()))
        edges = np.minimum(edges, np.finfo(np.float32).max)
        return cls(np.maximum(codes, 0).astype(np.uint8), edges.astype(np.float32))

    def expand(self) -> Floats:
        """Return accumulators of the full shape."""
        shares = np.exp2((self.features.astype(np.float64) - _HIGHEST) / _STEPS)
        shares[self.features == 0] = 0
        shares /= max(shares.sum(), 1e-30)
        return np.outer(shares.astype(np.float32), self.edges) + INITIAL_SQUARES
