"""Rows of features: from a matrix of all features to the rows that a model has weights for.

Sparse features that never occur in training need no weights; of 2**20 hashed features, for example,
often only a few thousand are used. Dense features may be standardized. Rows of sparse features may
have dense features beside them, which only parts for dense features read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from mmap import mmap
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import coo_array, csr_array, vstack

from ..core import _engine
from ..core.arrays import (
    AnyArray,
    Doubles,
    Floats,
    Ints,
    Tensors,
    as_floats,
    as_frame,
    check_unmasked,
    has_vectors,
    smallest,
    unlisted,
)
from ..core.caching import cached_property
from ..core.declarations import Array, Described
from .blocks import Blocks, given_blocks, listed, united

LARGEST_VALUE = 1e15  # of a feature
_FLOATS = [np.float64, np.float32]
_NUMBERS = [*_FLOATS, np.float16, *map(np.dtype, "bBhHiIlLqQ")]
_MAX_TABLE = 1 << 22  # number of features up to which a table of them is small
_SAMPLED = 64  # features of a sample row
# Features are unscaled if a mean is far from 0, or a standard deviation far from the median.
_FAR_MEAN, _FAR_SCALE = 4.0, 10.0
# Median standard deviations outside of this range are far from the 1 of the intercept. Those of
# unit-length embeddings are at least 0.01.
_SMALL, _LARGE = 0.01, 30.0


class MappedRows:
    """Memory-mapped rows that are converted when some of them are taken.

    Parameters
    ----------
    mapped : array
    convert : callable
        Returns rows as float32 or float64.
    """

    ndim: ClassVar[int] = 2

    def __init__(self, mapped: AnyArray, convert: Callable[[Any], AnyArray]) -> None:
        self.mapped, self._convert = mapped, convert
        self.shape, self.size = mapped.shape, mapped.size
        self.dtype = np.promote_types(mapped.dtype, np.float32)

    def __len__(self) -> int:
        return len(self.mapped)

    def __getitem__(self, rows: slice | int | Ints) -> AnyArray:
        """Return some of the rows."""
        return self._convert(self.mapped[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """Return all rows."""
        return np.asarray(self[:], dtype)


def is_mapped(X: Any) -> bool:
    """Return whether an array is memory-mapped, so that a copy would read it into memory."""
    base: Any = X.dense if isinstance(X, Blocks) else X
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return isinstance(base, mmap)


class Rows:
    """Rows of features, dense or sparse, with intermediate results of the parts of a model.

    Parameters
    ----------
    X : array or CSR matrix without duplicates
    intercept : bool
        Whether there is an additional feature that is always 1.
    unit_length : bool
        Whether rows are scaled to unit length.
    beside : Rows, optional
        Dense features of the same rows, beside sparse ones.
    """

    def __init__(
        self, X: Any, intercept: bool, unit_length: bool, beside: Rows | None = None
    ) -> None:
        self.X, self.intercept, self.unit_length = X, intercept, unit_length
        self.beside = beside
        self.memo: dict[Any, Any] = {}

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        """The number of features, with the intercept."""
        return int(self.X.shape[1]) + self.intercept

    @property
    def sparse(self) -> bool:
        """Whether the rows are sparse."""
        return hasattr(self.X, "indptr")

    @property
    def converts(self) -> bool:
        """Whether rows are converted when some of them are taken: all would take much memory."""
        return isinstance(self.X, MappedRows)

    @property
    def n_values(self) -> int:
        """The number of values that are stored."""
        return int(self.X.nnz if self.sparse else self.X.size)

    def __getitem__(self, rows: slice | Ints) -> Rows:
        """Return some of the rows."""
        beside = None if self.beside is None else self.beside[rows]
        return Rows(self.X[rows], self.intercept, self.unit_length, beside)

    def like(self, X: Any, beside: Any = None) -> Rows:
        """Return other rows of the same features."""
        others = None if self.beside is None else self.beside.like(beside)
        return Rows(X, self.intercept, self.unit_length, others)

    @staticmethod
    def concatenate(parts: list[Rows]) -> Rows:
        """Return the rows of several parts as one."""
        features = [part.X for part in parts]
        X = vstack(features, "csr") if parts[0].sparse else np.concatenate(features)
        others = [part.beside.X for part in parts if part.beside is not None]
        return parts[0].like(X, np.concatenate(others) if others else None)

    @property
    def vectors(self) -> Rows:
        """The features that label vectors are compared with: the dense ones, if there are both."""
        return self if self.beside is None else self.beside

    @property
    def first_beside(self) -> int:
        """The column of the first feature beside these, as explanations number them."""
        return 0 if self.beside is None else self.n_columns

    @cached_property
    def engine(self) -> _engine.Features:
        """The rows as the engine takes them, without a copy."""
        X = self.X
        if not self.sparse:
            values = np.require(X, requirements=["C", "A"])
            return _engine.Features.dense(values, self.intercept, self.unit_length)
        index = X.indices.dtype if X.indices.dtype == X.indptr.dtype else np.int64
        data = np.require(X.data, requirements=["C", "A"])
        indices, indptr = (np.require(part, index, ["C", "A"]) for part in (X.indices, X.indptr))
        return _engine.Features.csr(
            data, indices, indptr, X.shape[1], self.intercept, self.unit_length
        )

    def dense(self) -> Floats:
        """Return the rows as they are scored, without the intercept, as a new float32 array."""
        X = self.X.toarray() if self.sparse else self.X
        found = np.array(X, np.float32)
        if self.unit_length:
            lengths = np.linalg.norm(found, axis=1, keepdims=True)
            np.divide(found, lengths, out=found, where=lengths > 0)
        return found

    @cached_property
    def lengths(self) -> Floats:
        """The lengths of the rows as they are scored; 1 for a row without features."""
        from scipy.sparse.linalg import norm  # slow to import, and only needed here

        if self.unit_length:
            return np.ones(len(self), np.float32)
        lengths = np.linalg.norm(self.X, axis=1) if not self.sparse else norm(self.X, axis=1)
        return np.where(lengths > 0, lengths, 1).astype(np.float32)

    def usual_length(self) -> float:
        """Return the root mean square length of the rows as they are scored."""
        if self.unit_length or not len(self):
            return 1.0
        values = self.X.data if self.sparse else self.X
        return float(np.sqrt(np.square(values, dtype=np.float64).sum() / len(self))) or 1.0

    def all_columns(self, row: int) -> Ints:
        """Return the non-zero features of a row, including those beside them."""
        own = self.entries(row)[0]
        if self.beside is None:
            return own
        return np.concatenate([own, self.first_beside + self.beside.entries(row)[0]])

    def entries(self, row: int) -> tuple[Ints, AnyArray]:
        """Return the non-zero features of a row, and their values as they are scored."""
        X = self.X[[row]]
        features = X.indices if self.sparse else np.flatnonzero(X[0])
        values = np.asarray(X.data if self.sparse else X[0][features], np.float64)
        length = np.linalg.norm(values)
        if self.unit_length and length > 0:
            values = values / length
        return np.asarray(features, np.int64), values


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Subtracts the mean of every feature and divides by its standard deviation."""

    mean: Doubles
    scale: Doubles

    @property
    def is_needed(self) -> bool:
        """Whether the features are unscaled."""
        varying = self.scale != 1  # the scale of a constant feature is 1
        if not varying.any():
            return False
        mean, scale = np.abs(self.mean[varying]), self.scale[varying]
        return bool((mean > _FAR_MEAN * scale).any() or scale.max() > _FAR_SCALE * np.median(scale))

    @property
    def has_one_scale(self) -> bool:
        """Whether it only divides all features by the same number."""
        return not self.mean.any()

    def with_one_scale(self) -> Standardizer | None:
        """Return one that divides all features by the median deviation; None if that is near 1.

        Otherwise, an intercept of 1 would outweigh very small features, and very large features
        would outweigh it: the optimizer has one step size, and rows are rounded to 14 bits.
        """
        varying = self.scale != 1
        usual = float(np.median(self.scale[varying])) if varying.any() else 1.0
        if _SMALL <= usual <= _LARGE:
            return None
        return Standardizer(np.zeros_like(self.mean), np.full_like(self.scale, usual))

    def __call__(self, X: Any) -> AnyArray:
        """Return rows as float32 or float64, standardized; sparse ones become dense."""
        rows = as_floats(X.toarray() if hasattr(X, "toarray") else X)
        with np.errstate(over="ignore"):  # non-finite scores raise an error later
            standardized: AnyArray = ((rows - self.mean) / self.scale).astype(rows.dtype)
        return standardized

    def fold(self, coef: Any, intercept: Any) -> tuple[Any, Any]:
        """Return weights of the original features, given those of the standardized ones."""
        own = coef / self.scale
        return own, intercept - own @ self.mean


@dataclass(frozen=True, eq=False)
class Columns:
    """Turns a matrix of all features into rows of the features that a model has weights for.

    Parameters
    ----------
    n_features : int
        The number of features, used or not.
    intercept, unit_length : bool
        See `Rows`.
    used : int64 array, optional
        The features that occur in training, in the order of their columns; None means all. An
        additional column stands for all others: nothing is dropped, so that rows keep their length.
    standardizer : Standardizer, optional
        The scaling of dense features.
    beside : Columns, optional
        The columns of the last features, if these are dense and the others sparse.
    """

    n_features: int
    intercept: bool
    unit_length: bool
    used: Ints | None = None
    standardizer: Standardizer | None = None
    beside: Columns | None = None

    @property
    def n_columns(self) -> int:
        """The number of columns, with the intercept and without those beside them."""
        own = self._n_own if self.used is None else len(self.used) + 1
        return own + self.intercept

    @property
    def n_beside(self) -> int:
        """The number of dense features beside sparse ones."""
        return 0 if self.beside is None else self.beside.n_features

    @property
    def _n_own(self) -> int:
        return self.n_features - self.n_beside

    @property
    def are_dense(self) -> bool:
        """Whether the features look like those of dense rows: every row has all of them."""
        scaled_as_sparse = self.unit_length or self.used is not None or self.beside is not None
        return not scaled_as_sparse

    def alone(self) -> Columns:
        """Return the columns without those beside them."""
        return replace(self, n_features=self._n_own, beside=None)

    def rows(self, X: Any) -> Rows:
        """Return the rows of a matrix of all features, or of blocks."""
        X, others = self._blocks(X)
        # Dense features beside sparse ones are converted a few rows at a time.
        beside = None if self.beside is None else self.beside._rows(others)
        return self._rows(X if is_mapped(X) else as_floats(X), beside)

    def _rows(self, X: Any, beside: Rows | None = None) -> Rows:
        if is_mapped(X) and self.used is None:
            plain = X.dtype in _FLOATS and X.flags.c_contiguous and self.standardizer is None
            X = X if plain else MappedRows(X, self.standardizer or as_floats)
        elif self.standardizer is not None:
            X = self.standardizer(X)
        elif self.used is not None:
            X = self._compact(as_floats(X))
        return Rows(X, self.intercept, self.unit_length, beside)

    def sample_row(self, dense: bool = False) -> Rows:
        """Return a row of unit length with some of the features, to try a model on."""
        n = self.n_columns - self.intercept
        some = np.unique(np.linspace(0, n - 1, min(n, _SAMPLED), dtype=np.int64))
        values = np.full(len(some), len(some) ** -0.5, np.float32)
        X = csr_array((values, some, [0, len(some)]), shape=(1, n))
        dense = dense or self.standardizer is not None
        beside = None if self.beside is None else self.beside.sample_row(dense=True)
        return Rows(X.toarray() if dense else X, self.intercept, self.unit_length, beside)

    def _blocks(self, X: Any) -> tuple[Any, Any]:
        """Return the features of these columns, and those beside them."""
        if self.beside is None:
            return X.joined() if isinstance(X, Blocks) else X, None
        if not isinstance(X, Blocks):
            X = Blocks.split(X, self.n_beside)
        if X.dense.shape[1] != self.n_beside:
            own, given = self._n_own, [X.sparse.shape[1], X.dense.shape[1]]
            raise ValueError(
                f"X must have blocks of {own} sparse and {self.n_beside} dense features, as in "
                f"training, got {listed(given)}"
            )
        return X.sparse, X.dense

    def _compact(self, X: Any) -> Any:
        assert self.used is not None
        if not hasattr(X, "indptr"):
            others = np.ones(self._n_own, bool)
            others[self.used] = False
            rest = np.linalg.norm(X[:, others], axis=1).astype(X.dtype)
            return np.column_stack([X[:, self.used], rest])
        indptr = X.indptr if X.nnz >= 2**31 else X.indptr.astype(np.int32)
        places = self._places(_indices(X)).astype(indptr.dtype, copy=False)
        shape = (X.shape[0], len(self.used) + 1)
        return csr_array((X.data[: len(places)], places, indptr), shape=shape)

    @cached_property
    def _table(self) -> AnyArray | None:
        """The column of every feature, if a table of them is small enough."""
        if self._n_own > _MAX_TABLE:
            return None
        assert self.used is not None
        places = np.full(self._n_own, len(self.used), np.int32)
        places[self.used] = np.arange(len(self.used), dtype=np.int32)
        return places

    @cached_property
    def _order(self) -> Ints:
        assert self.used is not None
        return np.argsort(self.used)

    def _places(self, features: AnyArray) -> AnyArray:
        """Return the columns of features."""
        assert self.used is not None
        if self._table is not None:
            return self._table[features]
        if not len(self.used):
            return np.zeros(len(features), np.int64)
        at = np.minimum(
            np.searchsorted(self.used, features, sorter=self._order), len(self.used) - 1
        )
        places = self._order[at]
        return np.where(self.used[places] == features, places, len(self.used))

    def grow(self, X: Any) -> tuple[Columns, int]:
        """Return the columns extended by the new features of a batch, and the number of these.

        New columns follow the old ones; the column of unknown features moves behind them.
        """
        X = self._blocks(X)[0]
        if self.used is None or not hasattr(X, "indptr"):
            return self, 0
        new = np.setdiff1d(used_features(X), self.used)
        return replace(self, used=np.concatenate([self.used, new])), len(new)

    def features_of(self, columns: Ints) -> Ints:
        """Return the features of some columns; −1 for the column of features that do not occur."""
        own = np.minimum(columns, self.n_columns - self.intercept - 1)
        found = own if self.used is None else np.append(self.used, -1)[own]
        others = columns - self.n_columns
        return np.where(others < 0, found, self._n_own + others)

    def of_all_features(self, coef: Any) -> Any:
        """Return weights of all features, given those of the columns without the intercept.

        Features beside these have weight 0.
        """
        if self.standardizer is not None:
            dense = coef.toarray() if hasattr(coef, "toarray") else coef
            return self.standardizer.fold(dense, 0)[0].astype(np.float32)
        if self.used is None:
            return np.pad(coef, ((0, 0), (0, self.n_beside))) if self.n_beside else coef
        found = coo_array(coef[:, :-1])
        shape = (coef.shape[0], self.n_features)
        return csr_array((found.data, (found.row, self.used[found.col])), shape=shape)

    def folded_intercept(self, coef: Any, intercept: AnyArray) -> AnyArray:
        """Return the intercepts for the original features."""
        if self.standardizer is None:
            return intercept
        dense = coef.toarray() if hasattr(coef, "toarray") else coef
        return self.standardizer.fold(dense, intercept)[1].astype(np.float32)  # type: ignore[no-any-return]

    # Files

    TENSORS: ClassVar[dict[str, Array]] = {
        "used": Array("uint", ("n_used",), high="n_features - 1", distinct=True, group="used"),
        "mean": Array("f8", ("n_features",), group="standardize"),
        "scale": Array("f8", ("n_features",), low=1e-300, group="standardize"),
    }

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        described: dict[str, Any] = {
            "n_features": self.n_features,
            "intercept": self.intercept,
            "unit_length": self.unit_length,
        }
        tensors: Tensors = {}
        if self.used is not None:
            tensors["used"] = smallest(self.used)
        if self.standardizer is not None:
            tensors |= {"mean": self.standardizer.mean, "scale": self.standardizer.scale}
        if self.beside is not None:
            described["beside"], others = self.beside.state()
            tensors |= {f"beside.{name}": tensor for name, tensor in others.items()}
        return described, tensors

    @classmethod
    def from_state(cls, section: Described) -> Columns:
        """Restore columns from their `state`."""
        made = cls(
            section.integer("n_features", 1, 2**40),
            section.flag("intercept"),
            section.flag("unit_length"),
        )
        if section.has("beside"):
            beside = cls.from_state(section.section("beside"))
            if beside.used is not None or beside.intercept or beside.n_beside:
                raise ValueError("features beside others must be dense, without an intercept")
            if beside.n_features >= made.n_features:
                raise ValueError(f"{beside.n_features} of {made.n_features} features are dense")
            made = replace(made, beside=beside)
        tensors = section.tensors(cls.TENSORS, {"n_features": made._n_own})
        if "used" in tensors:
            made = replace(made, used=tensors["used"].astype(np.int64))
        if "mean" in tensors:
            standardizer = Standardizer(np.array(tensors["mean"]), np.array(tensors["scale"]))
            made = replace(made, standardizer=standardizer)
        if made.standardizer is not None and (made.used is not None or made.n_beside):
            raise ValueError("only dense features are standardized")
        return made


def used_features(X: Any) -> Ints:
    """Return the features that occur in a sparse matrix, sorted."""
    if X.shape[1] > _MAX_TABLE:
        return np.unique(_indices(X)).astype(np.int64)
    occurs = np.zeros(X.shape[1], bool)
    occurs[_indices(X)] = True
    return np.flatnonzero(occurs)


def _indices(X: Any) -> AnyArray:
    """Return the features of all rows, without unused space at the end of the arrays."""
    indices: AnyArray = X.indices[: X.indptr[-1]]
    return indices


# Checks


def check_features(owner: Any, X: Any, reset: bool) -> Any:
    """Return X as an array of numbers, or as CSR without duplicates.

    `owner` is the estimator; `reset` says whether it learns the number and names of features. A
    list of blocks becomes one matrix, or `Blocks` of sparse and dense features. Arrays of numbers
    are not copied, so that memory-mapped ones stay so; `Columns.rows` converts them.
    """
    if isinstance(X, (Blocks, list, tuple)) and (blocks := given_blocks(X)) is not None:
        return _checked_blocks(owner, blocks, reset)
    check_unmasked("X", X)
    X = unlisted("X", X)
    if hasattr(X, "tocsr"):
        check_sparse(X, "X")
    elif getattr(X, "ndim", 1) == 1 and hasattr(X, "__len__") and isinstance(next(iter(X), 0), str):
        raise ValueError("X must contain numbers, got texts; use TextClassifier for texts")
    known = not reset and "feature_names_in_" not in owner.__dict__
    if not (known and _is_plain(X, owner.n_features_in_)):  # plain arrays need few checks
        from sklearn.utils.validation import validate_data  # slow to import, and only needed here

        frame = as_frame("X", X)  # an error if it is lazy
        try:
            X = validate_data(owner, X, accept_sparse="csr", dtype=_kinds(X), reset=reset)
        except ValueError as error:
            if cause := _cause(owner, X, frame, reset):
                raise ValueError(cause) from error
            raise
    return checked_values(X)


def _cause(owner: Any, X: Any, frame: Any, reset: bool) -> str:
    """Return why X is refused, for causes that scikit-learn's message does not name; else ""."""
    texts = (
        [] if frame is None else [c for c, kind in frame.schema.items() if str(kind) == "String"]
    )
    if texts:
        return (
            f"X must hold numbers, column {texts[0]!r} has texts; TableClassifier takes tables of "
            "texts, numbers and categories"
        )
    lists = [] if frame is None else [c for c in frame.columns if has_vectors(frame, c)]
    if lists:
        return (
            f"X must hold numbers, column {lists[0]!r} has vectors; pass this column alone, or use "
            "TableClassifier, which takes columns of vectors"
        )
    fitted = None if reset else owner.__dict__.get("fitted_")  # there is none within fit_stream
    n_beside = 0 if fitted is None else fitted.model.columns.n_beside
    if n_beside and getattr(X, "shape", ())[1:] == (owner.n_features_in_ - n_beside,):
        return (
            f"X has the {X.shape[1]} sparse features alone, without the dense block of {n_beside} "
            "columns; give both, as [sparse, dense]"
        )
    return ""


def _checked_blocks(owner: Any, given: list[Any], reset: bool) -> Any:
    """Return blocks as the engine takes them."""
    widths = [block.shape[1] for block in given]
    if reset:
        owner.n_features_in_ = sum(widths)
        owner.__dict__.pop("feature_names_in_", None)
    elif sum(widths) != owner.n_features_in_:
        raise ValueError(
            f"X has {sum(widths)} features in {len(widths)} blocks ({listed(widths)}), but "
            f"{type(owner).__name__} is expecting {owner.n_features_in_} features as input"
        )
    return united([_checked_block(block, f"X[{n}]") for n, block in enumerate(given)])


def _checked_block(X: Any, name: str) -> Any:
    from sklearn.utils import check_array  # slow to import, and only needed here

    if hasattr(X, "tocsr"):
        check_sparse(X, name)
    as_frame(name, X)  # an error if it is lazy
    return checked_values(
        check_array(X, accept_sparse="csr", dtype=_kinds(X), order="C", input_name=name)
    )


def _kinds(X: Any) -> list[Any]:
    """Return the types of numbers that need no conversion yet; others become the first one."""
    return _FLOATS if hasattr(X, "tocsr") else _NUMBERS


def checked_values(X: Any) -> Any:
    """Return an array or a CSR matrix, without duplicates; raise an error for too large values."""
    sparse = hasattr(X, "tocsr")
    if sparse and not X.has_canonical_format:  # duplicate entries are summed
        X = X.copy()
        X.sum_duplicates()
    values = X.data if sparse else X
    if values.size and not max(float(values.max()), -float(values.min())) <= LARGEST_VALUE:
        at = int(np.abs(values, dtype=np.float64).argmax())
        row = np.searchsorted(X.indptr, at, "right") - 1 if sparse else at // values.shape[-1]
        raise ValueError(
            f"X must have values of at most {LARGEST_VALUE:g}, since weights are float32; "
            f"got {values.flat[at]:g} in row {row}: scale the features"
        )
    return X


def _is_plain(X: Any, n_features: int) -> bool:
    """Return whether X is non-empty and in the form that the engine takes."""
    if hasattr(X, "tocsr"):
        values = X.data if X.format == "csr" else None
    else:
        values = X if type(X) is np.ndarray and X.ndim == 2 and X.flags.c_contiguous else None
    if values is None or values.dtype not in _kinds(X):
        return False
    total = values.sum(dtype=np.promote_types(values.dtype, np.float32))
    return X.shape[0] > 0 and X.shape[1] == n_features and bool(np.isfinite(total))


def check_sparse(matrix: Any, name: str) -> None:
    """Raise an error if the arrays of a sparse matrix point outside of it.

    scipy trusts them: converting or sorting a malformed matrix accesses memory out of bounds.
    """
    if len(matrix.shape) != 2:
        raise ValueError(
            f"{name} must have 2 dimensions, got a sparse array of shape {matrix.shape}; make a "
            "row a matrix with reshape(1, -1)"
        )
    if hasattr(matrix, "indptr"):
        kind = matrix.format.upper()
        major, minor = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
        indptr, indices = matrix.indptr, matrix.indices
        if matrix.format == "bsr":
            return  # scipy checks blocks itself
        n_values = min(len(indices), len(matrix.data))
        if len(indptr) != major + 1 or indptr[0] != 0 or indptr[-1] > n_values:
            raise ValueError(
                f"{name} is not a valid {kind} matrix: indptr must have {major + 1} entries from 0 "
                f"to at most {n_values}"
            )
        if (indptr[1:] < indptr[:-1]).any():  # a difference could overflow
            raise ValueError(f"{name} is not a valid {kind} matrix: indptr must not decrease")
        _check_range(name, kind, "index", indices[: indptr[-1]], minor)
    elif getattr(matrix, "format", "") == "coo":
        for axis, coordinates in enumerate((matrix.row, matrix.col)):
            _check_range(name, "COO", "coordinate", coordinates, matrix.shape[axis])


def _check_range(name: str, kind: str, what: str, values: AnyArray, n: int) -> None:
    if len(values) and (values.min() < 0 or values.max() >= n):
        bad = values.min() if values.min() < 0 else values.max()
        raise ValueError(
            f"{name} is not a valid {kind} matrix: it has {what} {bad}, which is not from 0 to "
            f"{n - 1}"
        )
