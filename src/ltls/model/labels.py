"""Labels of any hashable type and their ids, and targets in every accepted format."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.exceptions import DataConversionWarning

from ..core.arrays import (
    AnyArray,
    Bools,
    Ints,
    available_memory,
    check_unmasked,
    pointers,
    unframed,
)
from ..features.rows import check_sparse

_BYTES_PER_LABEL = 150  # as a Python object with an id
_LONG, _TIMES_USUAL = 64, 4  # a very long label: characters, and multiple of the median length
_MIN_FOR_INDEX, _LABELS_PER_LOOKUP = 1000, 16  # lookups that make an index worthwhile
_SMALL_RANGE = 1 << 16  # of integer labels, for which a table of all values is small


@dataclass(frozen=True)
class Targets:
    """The labels of rows in CSR layout: row i has labels[indptr[i]:indptr[i + 1]].

    Parameters
    ----------
    indptr : array of shape (n_rows + 1,)
    labels : sequence
        All labels, row by row. For an indicator matrix they are column indices.
    multilabel : bool
    format : {"single", "lists", "sparse", "dense"}
        Format of y. If it is a dense indicator matrix, so is the result of `predict`.
    n_columns : int, optional
        The number of columns of an indicator matrix.
    """

    indptr: Ints
    labels: Any
    multilabel: bool
    format: str
    n_columns: int | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.indptr) - 1

    def check_rows(self, n_rows: int) -> None:
        """Raise an error unless there is an entry per row of X."""
        if self.n_rows != n_rows:
            raise ValueError(
                f"y must have one entry per row of X: X has {n_rows} rows, y {self.n_rows}"
            )

    def check_kind(self, multilabel: bool) -> None:
        """Raise an error unless both these targets and the model are multi-label, or neither."""
        if self.multilabel != multilabel:
            kinds = ("one label per row", "several labels per row")
            raise ValueError(
                f"y must have {kinds[multilabel]}, as in training, got {kinds[self.multilabel]}"
            )


def as_targets(y: Any) -> Targets:
    """Convert y: 1-d labels, an indicator matrix (sparse or dense), or a list of label lists.

    A list whose elements are lists, sets or arrays is multi-label; a tuple is a single label. Rows
    of equal length above 1 that hold only 0 and 1 form an indicator matrix. An array or DataFrame
    with a single column holds one label per row.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    if isinstance(y, Targets):
        return y
    check_unmasked("y", y)
    if hasattr(y, "tocsr"):
        check_sparse(y, "y")
        return _indicator(y.tocsr(), "sparse")
    y = unframed("y", y)
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of "
            "y to (n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=2,
        )
        y = y.ravel()
    if isinstance(y, (str, bytes, set, dict)) or not (
        hasattr(y, "__len__") or hasattr(y, "__array__")
    ):
        raise ValueError(f"y must be an array or a list of labels, got {type(y).__name__}")
    if isinstance(y, (list, tuple)) or (isinstance(y, np.ndarray) and y.dtype.kind == "O"):
        if any(isinstance(row, (list, set, frozenset, np.ndarray)) for row in y):
            return _indicator_rows(y) if _are_indicator_rows(y) else _label_lists(y)
        y = list(y)
        _check_present(y)
        if any(isinstance(label, tuple) for label in y):
            return _single(y)
    array = _plain_array(y)
    if array.ndim == 2:
        return _indicator_rows(array)
    if array.dtype.kind in "mM":  # keep NumPy scalars: Python's have other units
        if np.isnat(array).any():
            raise ValueError("y must not hold missing labels, got NaT: leave out such rows")
        return _single(list(array.ravel()))
    if array.ndim != 1:
        raise ValueError(f"y must have one or two dimensions, got shape {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("Input y contains NaN or infinity; labels must be finite")
    if array.dtype.kind == "f" and not np.equal(array, np.round(array)).all():
        raise ValueError(
            "Unknown label type: y holds continuous values; classes must be discrete labels"
        )
    return _single(array)


def warn_of_joined_labels(labels: Sequence[Any], counts: Ints) -> None:
    """Warn if most labels seem to be several labels joined by a separator, such as "a;b".

    That is so if splitting at the separator gives fewer distinct labels; or if most rows have a
    label of their own, but pieces occur in several rows, and the number of pieces varies.
    """
    texts = {label: int(n) for label, n in zip(labels, counts, strict=True) if type(label) is str}
    n_rows = int(counts.sum())
    for separator in ";|,":
        several = {label: n for label, n in texts.items() if separator in label}
        n_several = sum(several.values())
        if 2 * n_several <= n_rows:
            continue
        n_pieces: Counter[str] = Counter()
        for label, n in texts.items():
            n_pieces.update({piece.strip(): n for piece in label.split(separator)})
        own = 2 * len(texts) > n_rows and len({each.count(separator) for each in texts}) > 2
        recurs = n_pieces.total() * len(texts) > n_rows * len(n_pieces)
        if len(n_pieces) < len(texts) or (own and recurs):
            warnings.warn(
                f"{n_several:,} of {n_rows:,} rows have {separator!r} in their label, such as "
                f"{next(iter(several))!r}; each of the {len(texts):,} labels is one class. To "
                f"split them into {len(n_pieces):,} classes, several per row, use --separator "
                f"'{separator}' or, in Python, [label.split({separator!r}) for label in y]",
                UserWarning,
                stacklevel=2,
            )
            return


def _check_present(labels: list[Any]) -> None:
    """Raise an error for None, NaN and the missing values of pandas."""
    for number, label in enumerate(labels):
        if (
            label is None
            or (isinstance(label, (float, np.floating)) and np.isnan(label))
            or type(label).__name__ in ("NAType", "NaTType")
        ):
            raise ValueError(
                f"y must not hold missing labels, entry {number} is {label!r}: leave out such rows"
            )


def _plain_array(y: Any) -> AnyArray:
    """Return y as an array, of dtype object if a conversion would change the labels."""
    array = np.asarray(y)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: y must hold discrete labels")
    if isinstance(y, list) and array.ndim == 1 and array.tolist() != y:
        array = np.empty(len(y), object)
        array[:] = y
    return array


def _single(labels: Any) -> Targets:
    return Targets(np.arange(len(labels) + 1), labels, False, "single")


def _are_indicator_rows(y: Any) -> bool:
    """Return whether y is an indicator matrix given as rows, not lists of labels."""
    if any(isinstance(row, (set, frozenset)) or not hasattr(row, "__len__") for row in y):
        return False
    lengths = {len(row) for row in y}
    if len(lengths) != 1 or lengths <= {0, 1}:
        return False
    kinds = (int, float, np.number, np.bool_)
    return all(isinstance(label, kinds) and label in (0, 1) for row in y for label in row)


def _indicator_rows(y: Any) -> Targets:
    array = np.asarray(y)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"y with two dimensions must be an indicator matrix of 0 and 1, got dtype {array.dtype}"
        )
    _check_indicator_values(array)
    return _indicator(csr_array(array), "dense")


def _label_lists(y: Any) -> Targets:
    rows = []
    for number, row in enumerate(y):
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
            raise ValueError(
                f"y must contain either labels or lists of labels, but row {number} is {row!r}"
            )
        try:
            rows.append(list(dict.fromkeys(_in_order(row))))
        except TypeError as error:
            raise TypeError(f"labels must be hashable: {error}, in row {number}") from None
    labels = [label for row in rows for label in row]
    _check_present(labels)
    indptr = pointers([len(row) for row in rows])
    return Targets(indptr, labels, True, "lists")


def _in_order(row: Iterable[Any]) -> Iterable[Any]:
    """Return a row; sets are sorted, since their order differs between processes."""
    if isinstance(row, np.ndarray) and row.dtype.kind not in "mM":  # as a list has them
        return row.tolist()  # type: ignore[no-any-return]
    if not isinstance(row, (set, frozenset)):
        return row
    try:
        return sorted(row)
    except TypeError:
        return sorted(row, key=lambda label: (type(label).__name__, repr(label)))


def _check_indicator_values(values: AnyArray) -> None:
    others = values[~np.isin(values, (0, 1))]
    if others.size:
        raise ValueError(
            f"y with two dimensions must be an indicator matrix of 0 and 1, got {others[0]}"
        )


def _indicator(matrix: Any, format_: str) -> Targets:
    _check_indicator_values(matrix.data)
    if not matrix.has_canonical_format or (matrix.nnz and not matrix.data.all()):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return Targets(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int64),
        True,
        format_,
        matrix.shape[1],
    )


class Labels:
    """Labels in the order of their ids, with lookups in both directions.

    The object that `extended` returns shares memory with this one, which ignores the labels added.
    """

    def __init__(self, values: Iterable[Hashable] = ()) -> None:
        self._values = list(values)
        self._ids = {label: number for number, label in enumerate(self._values)}
        self._n = len(self._values)
        self._array: AnyArray | None = None

    _integers: _Integers | None = None

    def __len__(self) -> int:
        return self._n

    def __contains__(self, label: Hashable) -> bool:
        return self._ids.get(label, self._n) < self._n

    def id(self, label: Hashable) -> int:
        """Return the id of a known label."""
        return self._ids[label]

    @property
    def values(self) -> list[Hashable]:
        """The labels as Python objects."""
        return self._values if len(self._values) == self._n else self._values[: self._n]

    @property
    def array(self) -> AnyArray:
        """The labels as an array.

        Its dtype is object unless all are numbers, dates, or strings that are not very long.
        """
        if self._array is None or len(self._array) != self._n:
            self._array = _as_array(self.values)
        return self._array

    def add(self, targets: Targets) -> None:
        """Add the new labels among those of targets, in order of appearance."""
        self.extend(self._distinct_unknown(targets))

    def extend(self, labels: Iterable[Hashable]) -> None:
        """Add the new labels among the given ones, in order of appearance."""
        for label in labels:
            if label not in self._ids:
                self._ids[label] = len(self._values)
                self._values.append(label)
        self._n = len(self._values)

    def extended(self, labels: Iterable[Hashable]) -> Labels:
        """Return these labels and the new ones; this object does not change.

        The time depends only on the new labels, unless this object was extended before.
        """
        longer = copy(self) if len(self._values) == self._n else Labels(self.values)
        longer._array = None
        longer.extend(labels)
        return longer

    def unseen(self, targets: Targets, classes: Iterable[Hashable] = ()) -> list[Hashable]:
        """Return the new labels among `classes` and those of targets, in order of appearance."""
        found = dict.fromkeys([*classes, *self._distinct_unknown(targets)])
        return [label for label in found if label not in self]

    def _distinct_unknown(self, targets: Targets) -> Iterable[Hashable]:
        """Return distinct labels of targets; integers that are known are left out."""
        return _distinct(targets, self._unknown_integers)

    def _unknown_integers(self, labels: AnyArray) -> Bools | None:
        """Return which labels of a sorted array are new, None if each must be looked up."""
        index = self._index_of_integers(labels)
        return None if index is None else index.ids(labels) < 0

    def ids(self, targets: Targets) -> Ints:
        """Return the ids of all labels of targets, −1 for an unknown one."""
        labels = targets.labels
        if isinstance(labels, np.ndarray) and labels.dtype != object:
            distinct, inverse = _factorize(labels)
            index = self._index_of_integers(distinct)
            ids = self._ids_of(distinct.tolist()) if index is None else index.ids(distinct)
            return ids[inverse] if len(ids) else np.empty(0, np.int64)
        return self._ids_of(labels)

    def _index_of_integers(self, labels: AnyArray) -> _Integers | None:
        """Return an index for an array of many integers, None if lookups are better."""
        if labels.dtype.kind != "i":
            return None
        if self._integers is None or self._integers.n_labels != self._n:
            if len(labels) < max(_MIN_FOR_INDEX, self._n // _LABELS_PER_LOOKUP):
                return None
            self._integers = _Integers.of(self.values)
        return self._integers

    def _ids_of(self, labels: Any) -> Ints:
        ids = np.fromiter((self._ids.get(label, -1) for label in labels), np.int64, len(labels))
        ids[ids >= self._n] = -1
        return ids

    def first_unknown(self, targets: Targets) -> Hashable | None:
        """Return the first label of targets that has no id, None if all have one."""
        unknown = np.flatnonzero(self.ids(targets) < 0)
        label: Hashable = targets.labels[unknown[0]] if len(unknown) else None
        return label.item() if isinstance(label, np.generic) else label

    @classmethod
    def sorted(cls, targets: Targets) -> Labels:
        """Return the labels of targets sorted, or in order of appearance if not comparable."""
        distinct: list[Any] = list(_distinct(targets))
        try:
            return cls(sorted(distinct))
        except TypeError:
            return cls(distinct)


@dataclass(frozen=True)
class _Integers:
    """An index of integer labels, much faster than single lookups."""

    values: Ints  # sorted
    order: Ints  # their ids

    @property
    def n_labels(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, labels: list[Any]) -> _Integers | None:
        """Return the index of some labels, None unless all are 64-bit integers."""
        if not labels or set(map(type, labels)) != {int}:
            return None
        values = np.array(labels)
        if values.dtype != np.int64:
            return None
        order = np.argsort(values)
        return cls(values[order], order)

    def ids(self, labels: AnyArray) -> Ints:
        """Return the ids of some labels, −1 for an unknown one."""
        at = np.minimum(np.searchsorted(self.values, labels), len(self.values) - 1)
        ids: Ints = np.where(self.values[at] == labels, self.order[at], -1)
        return ids


def _check_memory(n_labels: int) -> None:
    """Raise an error if the labels will not fit into memory, before they are allocated."""
    needed, available = _BYTES_PER_LABEL * n_labels, available_memory()
    if available is not None and needed > available:
        raise MemoryError(
            f"training needs {needed / 1e9:.1f} GB for {n_labels:,} labels (columns of y), and "
            f"{available / 1e9:.1f} GB are available; leave out columns without labels"
        )


def _distinct(
    targets: Targets,
    is_wanted: Callable[[AnyArray], Bools | None] = lambda _: None,
) -> Iterable[Hashable]:
    """Return the distinct labels of targets in order of appearance.

    For an array of numbers or strings, only the wanted ones.
    """
    if targets.n_columns is not None:
        _check_memory(targets.n_columns)
        return range(targets.n_columns)
    labels = targets.labels
    if isinstance(labels, np.ndarray) and labels.dtype != object:
        distinct, inverse = _factorize(labels)
        first = np.full(len(distinct), len(labels))
        np.minimum.at(first, inverse, np.arange(len(labels)))
        if (wanted := is_wanted(distinct)) is not None:
            distinct, first = distinct[wanted], first[wanted]
        ordered: list[Hashable] = distinct[np.argsort(first)].tolist()
        return ordered
    try:
        return dict.fromkeys(labels)
    except TypeError as error:
        raise TypeError(f"labels must be hashable: {error}") from None


def _factorize(values: AnyArray) -> tuple[AnyArray, Ints]:
    """Return the distinct values, sorted, and the index of each value among them.

    Like `np.unique`, but without sorting all values if they are integers of a limited range.
    """
    if len(values) and values.dtype.kind in "iu":
        lowest, highest = int(values.min()), int(values.max())
        if highest - lowest <= max(4 * len(values), _SMALL_RANGE) and highest < 2**63:
            offsets = values.astype(np.int64) - lowest
            occurs = np.bincount(offsets) > 0
            index = np.cumsum(occurs) - 1
            distinct = np.flatnonzero(occurs) + lowest
            return distinct.astype(values.dtype), index[offsets]
    distinct, inverse = np.unique(values, return_inverse=True)
    return distinct, inverse.reshape(-1)


def _as_array(values: list[Any]) -> AnyArray:
    kinds = {type(value) for value in values}
    plain = len(kinds) == 1 and kinds <= {int, float, bool, str, np.datetime64, np.timedelta64}
    if kinds == {str}:  # in an array of strings, every label takes as much space as the longest
        lengths = [len(value) for value in values]
        plain = max(lengths) <= max(_LONG, _TIMES_USUAL * np.median(lengths))
    if plain and kinds <= {np.datetime64, np.timedelta64}:
        return np.array(values)
    if plain:
        array = np.array(values)
        if array.tolist() == values:
            return array
    array = np.empty(len(values), object)
    array[:] = values
    return array
