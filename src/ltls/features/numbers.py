"""Features are numbers: what is done with all of them, and the front end that takes them as is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from mmap import mmap
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from sklearn.preprocessing import StandardScaler

from ..core.arrays import Ints, Tensors, as_frame
from ..core.declarations import Described
from ..core.settings import AUTO, FLAG, Integer, Settings, setting, settings
from .blocks import Blocks, block_names, given_blocks
from .rows import Columns, Standardizer, used_features

Span = tuple[int, int]

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
        "times the median of all. It divides all by that median if it is below 0.01 or above 30. "
        'Memory-mapped features are never scaled by "auto".',
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
            raise ValueError(
                "batches must all be lists of sparse and dense blocks, or none; pass the same "
                "blocks in every batch"
            )
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
            needed = given.standardize is True or standardizer.is_needed
            return replace(
                made, standardizer=standardizer if needed else standardizer.with_one_scale()
            )
        return made

    def row_length(self, columns: Columns) -> float:
        """Return the root mean square length of rows, as the model takes them."""
        if columns.unit_length:
            return 1.0
        scaling, length = columns.standardizer, (self._squares / max(self.n_rows, 1)) ** 0.5
        if scaling is None:
            return length or 1.0
        if scaling.has_one_scale:
            return length / float(scaling.scale[0]) or 1.0
        return float((scaling.scale != 1).sum()) ** 0.5 or 1.0


def is_mapped(X: Any) -> bool:
    """Return whether an array is memory-mapped, so that a copy would read it into memory."""
    base: Any = X.dense if isinstance(X, Blocks) else X
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return isinstance(base, mmap)


# The front end


@settings
class Numbers(FeatureSettings):
    """Rows of numbers, dense or sparse, are the features.

    ``n_dense`` is for matrices that have sparse and dense features side by side, as those of a
    ``ColumnTransformer`` do. A list of blocks says by itself what is dense.

    Examples
    --------
    >>> from ltls import LTLSClassifier
    >>> from ltls.settings import Numbers
    >>> LTLSClassifier(features=Numbers(normalize=False)).get_params()["features__normalize"]
    False
    """

    takes_matrix: ClassVar[bool] = True

    n_dense: int = setting(
        Integer(0),
        default=0,
        help="Number of columns at the end of a matrix that are dense features, such as an "
        "embedding. They become a block of their own.",
    )

    def named_columns(
        self, features: str | Sequence[str] | None, text: str | None
    ) -> dict[str, Any]:
        """Return which columns of a table are read: the features, which must be named."""
        if text or not features:
            raise ValueError("the model takes features: name the columns with features")
        return {"features": (features,) if isinstance(features, str) else tuple(features)}

    def columns_among(self, names: Sequence[str]) -> dict[str, Any]:
        """Return which columns of a table are read, if nothing says so: all of them."""
        return {"features": tuple(names)}

    def fit(self, X: Any, n_jobs: int | None = None) -> tuple[NumberInputs, Any]:
        """Return the fitted front end, and the features of X, which a data frame has names for."""
        if isinstance(X, (list, tuple)):
            blocks = given_blocks(X)
            names = [] if blocks is None else block_names(blocks)
        else:
            frame = as_frame("X", X)
            names = [] if frame is None else frame.columns
        named = all(isinstance(name, str) for name in names)
        return NumberInputs(self, names if named else ()), X

    def fit_batches(self, batches: Iterable[Any], n_jobs: int | None = None) -> NumberInputs:
        """Return the front end fitted on batches; no pass over them is needed."""
        return NumberInputs(self)


class NumberInputs:
    """The front end of numbers, fitted."""

    name: ClassVar[str] = "features"
    arrays: ClassVar[dict[str, str]] = {"indptr": "int64", "indices": "int64", "values": "float32"}

    def __init__(self, given: Numbers, feature_names: Sequence[str] = ()) -> None:
        self.settings, self.given_names = given, list(feature_names)

    def matrix(self, X: Any, n_jobs: int | None = None) -> Any:
        """Return the features of rows."""
        return X

    def feature_names(self) -> Mapping[int, tuple[str, tuple[Span, ...]]]:
        """Return the name of every feature, and where it is in a text: nowhere."""
        return _Named({number: (name, ()) for number, name in enumerate(self.given_names)})

    def places(self, X: Any) -> Iterable[Mapping[int, tuple[str, Any]]]:
        """Yield the names of the features of every row, with their places in it."""
        blocks = given_blocks(X)
        return repeat(self.feature_names(), np.shape(blocks[0] if blocks else X)[0])

    def read(self, items: Sequence[Any], n_features: int) -> Any:
        """Return rows from JSON: lists of numbers, objects of indices and values, or of names."""
        if not all(isinstance(item, dict) for item in items):
            return _dense(items, n_features)
        if all(item.keys() == {"indices", "values"} for item in items):
            return _sparse([(item["indices"], item["values"]) for item in items], n_features)
        places = {name: number for number, name in enumerate(self.given_names)}
        if not places:
            raise ValueError(
                f"the features have no names: send lists of {n_features} numbers, or objects with "
                "indices and values"
            )
        for item in items:
            for name in item:
                if name not in places:
                    raise ValueError(f"there is no feature {name!r}"[:200])
        rows = [([places[name] for name in item], list(item.values())) for item in items]
        return _sparse(rows, n_features)

    def empty(self) -> Any:
        """Return a row without features, as `read` takes it."""
        return {"indices": [], "values": []}

    def describe(self) -> dict[str, Any]:
        """Return what someone has to know to pass rows."""
        return {"input": self.name, "feature_names": self.given_names or None}

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        return {"names": self.given_names, "settings": self.settings.get_params()}, {}

    @classmethod
    def from_state(cls, section: Described) -> NumberInputs:
        """Restore the front end from its `state`."""
        given = section.get("settings", "settings", lambda v: isinstance(v, dict))
        return cls(Numbers.from_dict(given), section.texts("names"))


class _Named(dict[int, tuple[str, tuple[Span, ...]]]):
    """Names of features, of which some have none."""

    def __missing__(self, feature: int) -> tuple[str, tuple[Span, ...]]:
        return f"x{feature}", ()


def _dense(items: Sequence[Any], n_features: int) -> Any:
    for number, item in enumerate(items):
        if not isinstance(item, (list, tuple)) or len(item) != n_features:
            got = f"{len(item)} entries" if isinstance(item, (list, tuple)) else repr(item)[:40]
            raise ValueError(f"row {number} must be a list of {n_features} numbers, got {got}")
    return csr_array(_numbers(items, "rows"))


def _sparse(rows: Sequence[tuple[Any, Any]], n_features: int) -> csr_array:
    for number, (indices, values) in enumerate(rows):
        if not (isinstance(indices, (list, np.ndarray)) and isinstance(values, (list, np.ndarray))):
            raise ValueError(f"row {number} must have lists of indices and values")
        if len(indices) != len(values):
            raise ValueError(
                f"row {number} must have as many indices as values, got {len(indices)} and "
                f"{len(values)}"
            )
    indptr = np.cumsum([0, *(len(indices) for indices, _ in rows)])
    flat = [index for indices, _ in rows for index in indices]
    if not all(isinstance(index, (int, np.integer)) and 0 <= index < n_features for index in flat):
        raise ValueError(f"indices must be integers from 0 to {n_features - 1}")
    values = _numbers([value for _, values in rows for value in values], "values")
    X = csr_array((values, np.array(flat, np.int64), indptr), shape=(len(rows), n_features))
    X.sum_duplicates()
    return X


def _numbers(values: Sequence[Any], name: str) -> Any:
    try:
        array = np.array(values)
    except ValueError:
        array = np.array(None)
    if array.size and array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be numbers")
    return array.astype(np.float64)
