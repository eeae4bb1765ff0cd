"""What features are like, and what is done with them: scaling, unit length, an intercept."""

from __future__ import annotations

from dataclasses import replace
from mmap import mmap
from typing import Any, ClassVar

import numpy as np
from sklearn.preprocessing import StandardScaler

from ..core.arrays import Ints
from ..core.settings import AUTO, FLAG, Settings, setting, settings
from .blocks import Blocks
from .rows import Columns, Standardizer, used_features

_MAX_USED = 0.5  # of the features: beyond it, a mapping costs more than it saves
_ROWS_PER_BLOCK = 1024  # that are converted at a time


@settings
class FeatureSettings(Settings):
    """What all front ends do with features."""

    takes_matrix: ClassVar[bool] = False  # whether inputs are rows of features already

    normalize: bool | str = setting(
        FLAG,
        AUTO,
        default=AUTO,
        help='Scale every row to unit length. "auto" does so for sparse rows.',
    )
    standardize: bool | str = setting(
        FLAG,
        AUTO,
        default=AUTO,
        help='Scale dense features to mean 0 and standard deviation 1. "auto" does so if they are '
        "unscaled: if a mean is beyond 4 standard deviations, or a standard deviation beyond 10 "
        "times the median of all. Memory-mapped features are taken as they are then.",
    )
    fit_intercept: bool = setting(FLAG, default=True, help="Add a feature that is always 1.")

    def may_standardize(self, X: Any) -> bool:
        """Return whether such features may be standardized: dense ones, unless told not to.

        Those on disk are only if that is asked for.
        """
        X = X.dense if isinstance(X, Blocks) else X
        if hasattr(X, "indptr") and self.standardize is True:
            raise ValueError(
                "standardize=True would make sparse features dense: use 'auto' or False, or "
                "scale them with sklearn.preprocessing.MaxAbsScaler"
            )
        if hasattr(X, "indptr") or self.standardize is False:
            return False
        return self.standardize is True or not is_mapped(X)


class FeatureStats:
    """What features are like, over batches of rows."""

    def __init__(self) -> None:
        self.n_rows = self.n_features = self.n_values = 0
        self.sparse = False
        self._used: Ints | None = None
        self._scaler = StandardScaler()
        self._squares = 0.0  # of the lengths of rows
        self.beside: FeatureStats | None = None  # of dense features beside sparse ones

    def add(self, X: Any, scale: bool) -> None:
        """Add a batch; with `scale`, also means and deviations of dense features."""
        if self.n_rows and isinstance(X, Blocks) != (self.beside is not None):
            raise ValueError("batches must all be lists of sparse and dense blocks, or none")
        self.n_rows, self.n_features = self.n_rows + X.shape[0], X.shape[1]
        if isinstance(X, Blocks):
            self.beside = self.beside or FeatureStats()
            if self.beside.n_rows and self.beside.n_features != X.dense.shape[1]:
                raise ValueError(
                    f"batches must all have {self.beside.n_features} dense features, as the first "
                    f"one, got {X.dense.shape[1]}"
                )
            self.beside.add(X.dense, scale)
            X = X.sparse
        self.sparse = hasattr(X, "indptr")
        self.n_values += int(X.nnz if self.sparse else X.size)
        if self.sparse:
            self._squares += float(np.einsum("i,i->", X.data, X.data))
            used = used_features(X)
            self._used = used if self._used is None else np.union1d(self._used, used)
            return
        for first in range(0, len(X), _ROWS_PER_BLOCK):
            some = X[first : first + _ROWS_PER_BLOCK]
            some = some.astype(np.float32) if some.dtype == np.float16 else some
            self._squares += float(np.einsum("ij,ij->i", some, some).sum(dtype=np.float64))
            if scale:
                self._scaler.partial_fit(some)

    def columns(self, given: FeatureSettings) -> Columns:
        """Return the columns of a model for such features."""
        unit_length = self.sparse if given.normalize == AUTO else bool(given.normalize)
        made = Columns(self.n_features, bool(given.fit_intercept), unit_length)
        if self.beside is not None:
            made = replace(made, beside=replace(self.beside.columns(given), intercept=False))
        if self._used is not None and len(self._used) <= _MAX_USED * made.n_columns:
            return replace(made, used=self._used)
        if hasattr(self._scaler, "mean_"):
            standardizer = Standardizer(self._scaler.mean_, self._scaler.scale_)
            if given.standardize is True or standardizer.is_needed:
                return replace(made, standardizer=standardizer)
        return made

    def row_length(self, columns: Columns) -> float:
        """Return the root mean square length of rows, as the model takes them."""
        if columns.unit_length:
            return 1.0
        if columns.standardizer is not None:
            return float((columns.standardizer.scale != 1).sum()) ** 0.5 or 1.0
        return (self._squares / max(self.n_rows, 1)) ** 0.5 or 1.0


def is_mapped(X: Any) -> bool:
    """Return whether an array is memory-mapped, so that a copy would read it into memory."""
    base: Any = X.dense if isinstance(X, Blocks) else X
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return isinstance(base, mmap)
