"""Settings that all front ends share, and the front end of numeric features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Ints, Tensors, as_floats, as_frame, unlisted
from ..core.declarations import Described
from ..core.settings import AUTO, FLAG, Integer, Settings, setting, settings
from ..core.shortened import shortened
from .blocks import Blocks, block_names, given_blocks
from .ngrams import Span
from .rows import Columns, Standardizer, used_features

_MAX_USED = 0.5  # fraction of features: beyond it, a mapping costs more than it saves
_ROWS_PER_BLOCK = 256  # converted at a time


@settings
class FeatureSettings(Settings):
    """Settings of features that all front ends share."""

    takes_matrix: ClassVar[bool] = False  # whether inputs are rows of features already
    fewer: ClassVar[str] = "fewer features"  # what makes a model smaller

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
        help='Scale dense features to mean 0 and standard deviation 1. "auto" does so if a '
        "mean is more than 4 standard deviations from 0, or a standard deviation more than 10 "
        "times the median of all. Otherwise it divides all features by that median if the "
        "median is below 0.01 or above 30.",
    )
    fit_intercept: bool = setting(FLAG, default=True, help="Add a feature that is always 1.")

    def may_standardize(self, X: Any) -> bool:
        """Return whether features like X may be standardized: dense ones, unless disabled."""
        X = X.dense if isinstance(X, Blocks) else X
        if hasattr(X, "indptr") and self.standardize is True:
            raise ValueError(
                "standardize=True would make sparse features dense: use 'auto' or False, or "
                "scale them with sklearn.preprocessing.MaxAbsScaler"
            )
        return not hasattr(X, "indptr") and self.standardize is not False


class FeatureStats:
    """Statistics of features, over batches of rows."""

    def __init__(self) -> None:
        from sklearn.preprocessing import StandardScaler  # slow to import, and only needed here

        self.n_rows = self.n_features = self.n_values = 0
        self.sparse = False
        self._used: Ints | None = None
        self._scaler = StandardScaler()
        self._squares = 0.0  # sum of squared row lengths
        self.beside: FeatureStats | None = None  # of dense features beside sparse ones

    def add(self, X: Any, scale: bool) -> None:
        """Add a batch; with `scale`, also means and deviations of dense features."""
        if self.n_rows and isinstance(X, Blocks) != (self.beside is not None):
            raise ValueError(
                "batches must either all be lists of sparse and dense blocks, or none of them; "
                "pass the same blocks in every batch"
            )
        self.n_rows, self.n_features = self.n_rows + X.shape[0], X.shape[1]
        if isinstance(X, Blocks):
            self.beside = self.beside or FeatureStats()
            if self.beside.n_rows and self.beside.n_features != X.dense.shape[1]:
                raise ValueError(
                    f"batches must all have {self.beside.n_features} dense features, like the "
                    f"first one, got {X.dense.shape[1]}"
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
            some = as_floats(X[first : first + _ROWS_PER_BLOCK])
            self._squares += float(np.einsum("ij,ij->i", some, some).sum(dtype=np.float64))
            if scale:
                self._scaler.partial_fit(some)

    def columns(self, given: FeatureSettings) -> Columns:
        """Return the columns of a model for these features."""
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
        """Return the root mean square length of rows as model input."""
        if columns.unit_length:
            return 1.0
        scaling, length = columns.standardizer, (self._squares / max(self.n_rows, 1)) ** 0.5
        if scaling is None:
            return length or 1.0
        if scaling.has_one_scale:
            return length / float(scaling.scale[0]) or 1.0
        return float((scaling.scale != 1).sum()) ** 0.5 or 1.0


# The front end


@settings
class Numbers(FeatureSettings):
    """Rows of numeric features, dense or sparse.

    ``n_dense`` is for matrices that have sparse and dense features side by side, such as those of a
    ``ColumnTransformer``. A list of blocks does not need it.

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
        help="Number of dense features, such as an embedding, at the end of a matrix. They "
        "become a block of their own.",
    )

    def named_columns(
        self, features: str | Sequence[str] | None, text: str | None
    ) -> dict[str, Any]:
        """Return the columns of a table to read: the features, which must be named."""
        if text or not features:
            raise ValueError("the model takes features: name their columns with features=")
        return {"features": (features,) if isinstance(features, str) else tuple(features)}

    def columns_among(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the columns of a table to read by default: all of them."""
        return {"features": tuple(names)}

    def fit(self, X: Any, n_jobs: int | None = None) -> tuple[NumberInputs, Any]:
        """Return the fitted front end, and the features of X, named if X is a data frame."""
        front_end = NumberInputs(self)
        front_end.learn_names(X)
        return front_end, X

    def fit_batches(self, batches: Iterable[Any], n_jobs: int | None = None) -> NumberInputs:
        """Return the front end of batches, without a pass over them: it learns names later."""
        return NumberInputs(self)


class NumberInputs:
    """The front end of numbers, fitted."""

    name: ClassVar[str] = "features"
    sparse: ClassVar[bool] = False
    columns: ClassVar[None] = None
    arrays: ClassVar[dict[str, str]] = {"indptr": "int64", "indices": "int64", "values": "float32"}

    def __init__(self, given: Numbers, feature_names: Sequence[str] = ()) -> None:
        self.settings, self.given_names = given, list(feature_names)

    def learn_names(self, X: Any) -> None:
        """Take the names of the features from a data frame, or from blocks with one."""
        names: Sequence[Any]
        if isinstance(X, (list, tuple)):
            blocks = given_blocks(X)
            names = [] if blocks is None else block_names(blocks)
        else:
            frame = as_frame("X", unlisted("X", X))
            names = [] if frame is None else frame.columns
        if all(isinstance(name, str) for name in names):
            self.given_names = list(names)

    def matrix(self, X: Any, n_jobs: int | None = None) -> Any:
        """Return the features of rows."""
        return X

    def feature_names(self) -> Mapping[int, tuple[str, tuple[Span, ...]]]:
        """Return the name of every feature, with no positions in a text."""
        return _Named({number: (name, ()) for number, name in enumerate(self.given_names)})

    def places(self, X: Any) -> Iterable[Mapping[int, tuple[str, Any]]]:
        """Yield the names of the features of every row, with their positions."""
        blocks = given_blocks(X)
        return repeat(self.feature_names(), np.shape(blocks[0] if blocks else X)[0])

    def read(self, items: Sequence[Any], n_features: int) -> Any:
        """Return rows from JSON: lists of numbers, or objects with indices and values, or names."""
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
        """Return a row without features, in the form that `read` takes."""
        return {"indices": [], "values": []}

    def describe(self) -> dict[str, Any]:
        """Describe the input for callers."""
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
    """Names of features; those without one are called x0, x1 and so on."""

    def __missing__(self, feature: int) -> tuple[str, tuple[Span, ...]]:
        return f"x{feature}", ()


def _dense(items: Sequence[Any], n_features: int) -> Any:
    for number, item in enumerate(items):
        known = isinstance(item, (list, tuple, np.ndarray))
        if not known or len(item) != n_features:
            got = f"{len(item)} entries" if known else shortened(item)
            raise ValueError(f"row {number} must be a list of {n_features} numbers, got {got}")
    return csr_array(_numbers(items, "rows", ndim=2))


def _sparse(rows: Sequence[tuple[Any, Any]], n_features: int) -> csr_array:
    ends, places, numbers = [0], [np.empty(0, np.int64)], [np.empty(0)]
    for number, (indices, values) in enumerate(rows):
        if not (isinstance(indices, (list, np.ndarray)) and isinstance(values, (list, np.ndarray))):
            raise ValueError(f"row {number} must have lists of indices and values")
        if len(indices) != len(values):
            raise ValueError(
                f"row {number} must have as many indices as values, got {len(indices)} and "
                f"{len(values)}"
            )
        ends.append(ends[-1] + len(indices))
        places.append(_places(indices, n_features))
        numbers.append(_numbers(values, "values", ndim=1))
    flat = np.concatenate(numbers), np.concatenate(places), np.array(ends)
    X = csr_array(flat, shape=(len(rows), n_features))
    X.sum_duplicates()
    return X


def _places(indices: Any, n_features: int) -> Ints:
    """Return the indices of features as an array."""
    try:
        array = np.asarray(indices)
    except (ValueError, OverflowError):
        array = np.array([None])
    known = array.dtype.kind in "iu" and array.ndim == 1
    if array.size and not (known and array.min() >= 0 and array.max() < n_features):
        raise ValueError(f"indices must be integers from 0 to {n_features - 1}")
    return array.astype(np.int64)


def _numbers(values: Any, name: str, ndim: int) -> Any:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.array(None)
    if array.size and not (array.dtype.kind in "iuf" and array.ndim == ndim):
        raise ValueError(f"{name} must be numbers")
    return array.astype(np.float64)
