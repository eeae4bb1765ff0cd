"""Columns of a table as estimator input: sparse rows, dense vectors, texts, labels.

Ray passes batches as Arrow tables, pandas data frames or dicts of NumPy arrays. All are converted
to Arrow, whose lists have the layout of a CSR matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array

from ..core.arrays import AnyArray, Floats, Ints, as_frame, pointers
from ..model.labels import Targets, as_targets
from .tables import Columns, check_columns, label_text

INDICES, VALUES = "indices", "values"


def read_inputs(columns: Columns, table: Any, n_features: int | None = None) -> Any:
    """Return texts, a dense matrix, a CSR matrix or, for mixed columns, a list of dicts.

    Vectors in mixed columns are arrays. Dense features are one column of vectors, or numeric
    columns, one per feature. Sparse features are a column of structs with the fields ``indices``
    and ``values``, or two columns with these lists.
    """
    names = columns.inputs
    check_columns(names, table.column_names)
    if columns.mixed is not None:
        cells = [
            vector_cells(_joined(table, name))
            if name in columns.mixed.vectors
            else table.column(name).to_pylist()
            for name in names
        ]
        return [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
    if columns.text:
        return _texts(table, columns.text)
    parts = [_array(table, name) for name in names]
    if len(parts) == 1 and pa.types.is_struct(parts[0].type):
        check_columns((INDICES, VALUES), [field.name for field in parts[0].type])
        parts = [parts[0].field(INDICES), parts[0].field(VALUES)]
    lists = [_is_list(part.type) for part in parts]
    if lists == [True, True]:
        return _sparse(parts[0], parts[1], names, n_features)
    if lists == [True]:
        return _vectors(parts[0], names[0])
    numbers = [_numbers(part, name) for name, part in zip(names, parts, strict=True)]
    return np.stack(numbers, axis=1, dtype=np.float32, casting="unsafe")


def as_table(batch: Any) -> Any:
    """Return a batch of Ray Data as an Arrow table."""
    if isinstance(batch, pa.Table):
        return batch
    if (frame := as_frame("a batch", batch)) is not None:
        return pa.table({str(each.name): _column(each.to_numpy()) for each in frame.iter_columns()})
    if isinstance(batch, dict):
        return pa.table({name: _column(np.asarray(values)) for name, values in batch.items()})
    raise TypeError(f"a batch must be a data frame or a dict of arrays, got {type(batch).__name__}")


def read_targets(table: Any, label: str) -> Targets:
    """Return the labels of a column: one value per row, or lists of them."""
    check_columns((label,), table.column_names)
    column = _array(table, label, "label")
    if _is_list(column.type):
        rows = [list(dict.fromkeys(row)) for row in column.to_pylist()]
        labels = [each for row in rows for each in row]
        if None in labels:
            raise ValueError(f"the labels in the lists of column {label!r} must not be null")
        return Targets(pointers(np.array([len(row) for row in rows])), labels, True, "lists")
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return as_targets(column.to_numpy(zero_copy_only=False))
    return as_targets(np.array(column.to_pylist(), object))


def with_text_labels(table: Any, label: str) -> Any:
    """Return a table whose labels are strings, as ``ltls train`` reads them from files."""
    column = table.column(label)
    several = _is_list(column.type)
    kind = pa.list_(pa.string()) if several else pa.string()
    if column.type == kind:
        return table
    texts = [
        [*map(_text_or_null, cell)] if several and cell is not None else _text_or_null(cell)
        for cell in column.to_pylist()
    ]
    return table.set_column(table.column_names.index(label), label, pa.array(texts, kind))


def _text_or_null(label: Any) -> str | None:
    return None if label is None else label_text(label)


def list_column(values: AnyArray, counts: AnyArray) -> Any:
    """Return an Arrow column of lists; list i has ``counts[i]`` of the values."""
    return pa.LargeListArray.from_arrays(pa.array(pointers(counts)), pa.array(values))


def _column(values: AnyArray) -> Any:
    if values.ndim == 1:
        # pandas has NaN for missing texts, Arrow has null.
        return pa.array(values, from_pandas=values.dtype == object)
    flat = values.reshape(len(values), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), max(flat.shape[1], 1))


def _array(table: Any, name: str, kind: str = "feature") -> Any:
    """Return a column as one array without nulls."""
    array = _joined(table, name)
    if array.null_count:
        row = array.is_null().index(True).as_py()
        raise ValueError(f"the {kind} column {name!r} must not have nulls, row {row} is null")
    return array


def _joined(table: Any, name: str) -> Any:
    """Return a column as one array; Ray's tensors become lists."""
    column = table.column(name)
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def vector_cells(lists: Any) -> list[Any]:
    """Return the cells of an array; lists of numbers become arrays, which take less memory."""
    if not _is_list(lists.type) or not _is_number(lists.type.value_type):
        return list(lists.to_pylist())
    numbers, ptr = lists.flatten().to_numpy(zero_copy_only=False), pointers(_lengths(lists))
    if numbers.dtype.kind == "f":  # a null is NaN
        with np.errstate(over="ignore"):  # rows with too large numbers are rejected later
            numbers = numbers.astype(np.float32, copy=False)
    return [
        numbers[ptr[row] : ptr[row + 1]] if known else None
        for row, known in enumerate(lists.is_valid().to_pylist())
    ]


def _is_number(kind: Any) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _is_list(kind: Any) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )


def _texts(table: Any, name: str) -> list[str]:
    column = _array(table, name, "text")
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ValueError(f"the text column {name!r} must have strings, got {column.type}")
    texts: list[str] = column.to_pylist()
    return texts


def _numbers(array: Any, name: str) -> AnyArray:
    if not _is_number(array.type):
        raise ValueError(f"the feature column {name!r} must have numbers, got {array.type}")
    if array.null_count:
        raise ValueError(f"the numbers in feature column {name!r} must not be null")
    numbers: AnyArray = array.to_numpy(zero_copy_only=False)
    return numbers


def _lengths(lists: Any) -> Ints:
    """Return the length of every list, 0 for a null."""
    lengths = pc.list_value_length(lists).fill_null(0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


def _vectors(lists: Any, name: str) -> Floats:
    lengths = _lengths(lists)
    n_columns = int(lengths[0]) if len(lengths) else 0
    if (lengths != n_columns).any():
        row = int(np.flatnonzero(lengths != n_columns)[0])
        raise ValueError(
            f"the vectors in the column {name!r} must have the same length, but row {row} has "
            f"{lengths[row]} numbers and row 0 has {n_columns}; sparse rows need two columns, "
            "indices and values"
        )
    numbers = _numbers(lists.flatten(), name).astype(np.float32, copy=False)
    return numbers.reshape(len(lists), n_columns)


def _sparse(indices: Any, values: Any, names: Sequence[str], n_features: int | None) -> csr_array:
    where = " and ".join(map(repr, names))
    lengths = _lengths(indices)
    if not np.array_equal(lengths, _lengths(values)):
        raise ValueError(f"indices and values in {where} must have the same length in every row")
    columns = _numbers(indices.flatten(), names[0])
    if columns.dtype.kind not in "iu" and len(columns):
        raise ValueError(f"the indices in {where} must be integers, got {columns.dtype}")
    lowest, highest = (int(columns.min()), int(columns.max())) if len(columns) else (0, -1)
    if n_features is None:
        n_features = highest + 1
    if lowest < 0 or highest >= n_features:
        bad = lowest if lowest < 0 else highest
        raise ValueError(f"the indices in {where} must be from 0 to {n_features - 1}, got {bad}")
    index = np.int32 if max(len(columns), n_features) < 2**31 else np.int64
    numbers = _numbers(values.flatten(), names[-1]).astype(np.float32, copy=False)
    arrays = numbers, columns.astype(index, copy=False), pointers(lengths).astype(index)
    return csr_array(arrays, shape=(len(lengths), n_features))
