"""AdaGrad's sums of squared gradients in few bytes: one per feature, and a number per edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .trainable import INITIAL_SQUARES

Floats: TypeAlias = npt.NDArray[np.float32]

_STEPS = 8  # of a feature's share, per factor of 2
_HIGHEST = 255


@dataclass(frozen=True, eq=False)
class SquaresSketch:
    """The product of sums over rows and over columns, as in Adafactor (Shazeer and Stern 2018).

    It is enough for step sizes of the right magnitude when training continues from a small file.

    Parameters
    ----------
    features : uint8 array of shape (n_rows,)
        The share of every row of W, on a logarithmic scale; 0 is a share of 0.
    edges : float32 array of shape (stride,)
        The sum of every column.
    """

    features: npt.NDArray[np.uint8]
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
        return cls(np.maximum(codes, 0).astype(np.uint8), edges.astype(np.float32))

    def expand(self) -> Floats:
        """Return accumulators of the full shape."""
        shares = np.exp2((self.features.astype(np.float64) - _HIGHEST) / _STEPS)
        shares[self.features == 0] = 0
        shares /= max(shares.sum(), 1e-30)
        return np.outer(shares.astype(np.float32), self.edges) + INITIAL_SQUARES
