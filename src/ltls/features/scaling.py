"""Standardization of dense features: mean 0 and standard deviation 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from mmap import mmap
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import StandardScaler

Doubles: TypeAlias = npt.NDArray[np.float64]

# Features are unscaled if a mean is far from 0, or a standard deviation far from the usual one.
_FAR_MEAN, _FAR_SCALE = 4.0, 10.0
_ROWS_PER_BLOCK = 1024  # that are converted at a time


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Subtracts the mean of every feature and divides by its standard deviation.

    Parameters
    ----------
    mean, scale : float64 arrays of shape (n_features,)
    """

    mean: Doubles
    scale: Doubles

    @classmethod
    def of(cls, X: npt.NDArray[Any]) -> Standardizer:
        """Return the standardizer of dense rows; constant features have scale 1."""
        stats = ScaleStats()
        stats.add(X)
        return stats.standardizer()

    def if_wanted(self, standardize: bool | str) -> Standardizer | None:
        """Return it if features are to be standardized; "auto" is if they are unscaled."""
        return self if standardize is True or (standardize == "auto" and self.is_needed) else None

    @property
    def is_needed(self) -> bool:
        """Whether the features are unscaled."""
        varying = self.scale != 1  # that of a constant feature is 1
        if not varying.any():
            return False
        mean, scale = np.abs(self.mean[varying]), self.scale[varying]
        return bool((mean > _FAR_MEAN * scale).any() or scale.max() > _FAR_SCALE * np.median(scale))

    @staticmethod
    def copies(X: npt.NDArray[Any]) -> bool:
        """Return whether standardizing would read a memory-mapped matrix into memory."""
        base: Any = X
        while isinstance(base, np.ndarray):
            if isinstance(base, np.memmap):
                return True
            base = base.base
        return isinstance(base, mmap)

    def __call__(self, X: Any) -> npt.NDArray[Any]:
        """Return rows as float32 or float64, standardized; sparse ones become dense."""
        rows = X.toarray() if hasattr(X, "toarray") else X
        standardized: npt.NDArray[Any] = ((rows - self.mean) / self.scale).astype(rows.dtype)
        return standardized

    def fold(self, coef: Any, intercept: Any) -> tuple[Any, Any]:
        """Return weights of the features as they are, given those of standardized ones."""
        own = coef / self.scale
        return own, intercept - own @ self.mean


class ScaleStats:
    """Mean and standard deviation of features, over batches of dense rows."""

    def __init__(self) -> None:
        self._scaler = StandardScaler()

    def add(self, X: npt.NDArray[Any]) -> None:
        """Add a batch."""
        for first in range(0, len(X), _ROWS_PER_BLOCK):
            self._scaler.partial_fit(X[first : first + _ROWS_PER_BLOCK])

    def standardizer(self) -> Standardizer:
        """Return the standardizer of all rows."""
        return Standardizer(self._scaler.mean_, self._scaler.scale_)


def sum_of_squares(X: npt.NDArray[Any]) -> float:
    """Return the sum of the squared lengths of dense rows."""
    return float(np.einsum("ij,ij->i", X, X).sum(dtype=np.float64))


def typical_length(squares: float, n_rows: int) -> float:
    """Return the root mean square length of rows, as a power of 2 that rounding does not change."""
    return 2.0 ** round(math.log2(squares / n_rows) / 2) if squares > 0 else 1.0
