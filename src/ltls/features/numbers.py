"""The front end of numbers: rows of features are taken as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Tensors
from ..core.declarations import Described
from ..core.frames import as_frame
from ..core.settings import Integer, setting, settings
from .blocks import block_names, given_blocks
from .statistics import FeatureSettings

Span = tuple[int, int]


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
        help="So many of the last columns of a matrix are dense features, such as an embedding, "
        "and a block of their own.",
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
        frame, blocks = as_frame("X", X), given_blocks(X)
        names = block_names(blocks) if blocks else [] if frame is None else frame.columns
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
