"""Parameter averaging: what several workers have learned from different rows, as one state.

All workers start from the same weights W and the same AdaGrad accumulators G. Worker i returns its
changes ΔWᵢ and ΔGᵢ. The new state is

    G' = G + Σ ΔGᵢ
    W' = W + Σ (ΔGᵢ / Σ ΔG) · ΔWᵢ

so that every weight is a mean over the workers that have changed it, weighted by their squared
gradients. A plain mean would shrink the weights of rare features, which only some workers see.
Without AdaGrad it is the mean over the workers that have changed a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# Non-zeros per feature on which a worker trains in the time of an average.
_VALUES_PER_FEATURE = 36
_MIN_WORK = 4  # training between two averages, in times of an average
_AVERAGES, _MIN_AVERAGES = 16, 4  # per epoch, at most: of all shards together, and of each

Floats: TypeAlias = npt.NDArray[np.float32]
Tensors: TypeAlias = dict[str, npt.NDArray[Any]]


def average_cost(nnz: int, n_features: int) -> float:
    """Return the time of an average, as a share of an epoch of one worker with all non-zeros."""
    return _VALUES_PER_FEATURE * max(n_features, 1) / max(nnz, 1)


def averages_per_epoch(nnz: int, n_features: int, n_shards: int) -> int:
    """Return how often the weights of some shards are averaged, given all non-zeros."""
    affordable = int(1 / (n_shards * _MIN_WORK * average_cost(nnz, n_features)))
    return min(max(affordable, 1), max(_AVERAGES // n_shards, _MIN_AVERAGES))


@dataclass(frozen=True, eq=False)
class Change:
    """The changes of some rows of a state: those of features that a worker has seen.

    Parameters
    ----------
    rows : int64 array
    values : array of shape (len(rows), n_columns)
        ΔW.
    squares : array like `values`, or None
        ΔG; None without AdaGrad.
    """

    rows: npt.NDArray[np.int64]
    values: Floats
    squares: Floats | None

    @property
    def n_bytes(self) -> int:
        """The size of the message."""
        squares = 0 if self.squares is None else self.squares.nbytes
        return self.rows.nbytes + self.values.nbytes + squares


def change(before: Tensors, after: Tensors, rows: npt.NDArray[np.int64]) -> Change:
    """Return the changes of some rows."""
    squares = None
    if "squares" in before:
        squares = after["squares"][rows] - before["squares"][rows]
    return Change(rows, after["weights"][rows] - before["weights"][rows], squares)


def averaged(state: Tensors, changes: Sequence[Change]) -> Tensors:
    """Return the state after the changes of all workers, added up in their order."""
    total = np.zeros_like(state["weights"])
    weighted = np.zeros_like(total)
    for each in changes:
        weight = each.squares
        if weight is None:
            weight = (each.values != 0).astype(np.float32)
        total[each.rows] += weight
        weighted[each.rows] += weight * each.values
    np.divide(weighted, total, out=weighted, where=total > 0)
    new = {"weights": state["weights"] + weighted}
    if "squares" in state:
        new["squares"] = state["squares"] + total
    return new
