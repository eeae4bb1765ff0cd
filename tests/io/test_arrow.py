"""Columns of Arrow tables as rows and labels, against the lists that they were made of."""

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: run make test-all")

from ltls.features.columns import TableColumns  # noqa: E402
from ltls.io.arrow import (  # noqa: E402
    as_table,
    list_column,
    read_inputs,
    read_targets,
    with_text_labels,
)
from ltls.io.errors import ColumnError  # noqa: E402
from ltls.io.tables import Columns  # noqa: E402

INDICES = [[0, 3], [], [2], [1, 3]]
VALUES = [[1.0, 2.0], [], [0.5], [4.0, -1.0]]
MATRIX = np.array([[1, 0, 0, 2], [0, 0, 0, 0], [0, 0, 0.5, 0], [0, 4, 0, -1]], np.float32)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
@pytest.mark.parametrize("index", [pa.int8(), pa.int32(), pa.uint32(), pa.int64()])
def test_sparse_rows_of_any_type_and_slice(kind, index):
    table = pa.table(
        {
            "i": pa.array(INDICES, kind(index)),
            "v": pa.array(VALUES, kind(pa.float64())),
        }
    )
    columns = Columns(features=("i", "v"))
    for part in (slice(0, 4), slice(1, 3), slice(2, 2), slice(3, 4)):
        X = read_inputs(columns, table.slice(part.start, part.stop - part.start), 4)
        np.testing.assert_array_equal(X.toarray(), MATRIX[part])
    chunked = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    np.testing.assert_array_equal(read_inputs(columns, chunked, 4).toarray(), MATRIX)
    assert read_inputs(columns, table).shape == (4, 4)  # one more than the largest index


def test_labels():
    table = pa.table(
        {
            "one": ["b", "a", "b"],
            "codes": pa.array(["x", "y", "x"]).dictionary_encode(),
            "numbers": [3, 1, 2],
            "several": [["a", "b", "a"], [], ["c"]],
            "flags": [[0, 1], [1, 0], [1, 1]],  # labels, not an indicator matrix
        }
    )
    assert list(read_targets(table, "one").labels) == ["b", "a", "b"]
    assert list(read_targets(table, "codes").labels) == ["x", "y", "x"]
    assert read_targets(table, "numbers").labels.tolist() == [3, 1, 2]
    several = read_targets(table, "several")
    assert several.multilabel
    assert (several.indptr.tolist(), several.labels) == ([0, 2, 2, 3], ["a", "b", "c"])
    assert read_targets(table, "flags").labels == [0, 1, 1, 0, 1]
    for name, text in [
        ("null", "'null' must not have nulls, row 1"),
        ("lists", "must not be null"),
    ]:
        bad = pa.table({"null": ["a", None], "lists": [["a"], [None]]})
        with pytest.raises(ValueError, match=text):
            read_targets(bad, name)
    with pytest.raises(ColumnError, match="no column 'tag'"):
        read_targets(table, "tag")


def test_batches_of_other_types():
    np.testing.assert_array_equal(
        read_inputs(Columns(features=("x",)), as_table({"x": MATRIX, "id": np.arange(4)})), MATRIX
    )
    pandas = pytest.importorskip("pandas", reason="needs pandas: run make test-all")
    frame = pandas.DataFrame({"a": MATRIX[:, 0], "b": MATRIX[:, 3]})
    found = read_inputs(Columns(features=("a", "b")), as_table(frame))
    np.testing.assert_array_equal(found, MATRIX[:, [0, 3]])


def test_lists_of_different_lengths():
    column = list_column(np.array(["a", "b", "c"]), np.array([2, 0, 1]))
    assert column.to_pylist() == [["a", "b"], [], ["c"]]


def test_missing_texts_of_pandas_and_numpy():
    """NaN and None among texts are missing ones, not numbers."""
    given = np.array(["FR", np.nan, None, "DE"], object)
    table = as_table({"country": given, "n": np.arange(4)})
    assert table["country"].to_pylist() == ["FR", None, None, "DE"]
    pandas = pytest.importorskip("pandas", reason="needs pandas: run make test-all")
    assert as_table(pandas.DataFrame({"country": given}))["country"].null_count == 2


def test_labels_as_texts():
    table = pa.table({"one": [3, None], "some": [[1, None], []], "text": ["a", "b"]})
    assert with_text_labels(table, "one")["one"].to_pylist() == ["3", None]
    assert with_text_labels(table, "some")["some"].to_pylist() == [["1", None], []]
    assert with_text_labels(table, "text") is table


@pytest.mark.parametrize("kind", [pa.list_(pa.float16()), pa.large_list(pa.int8()),
                                  pa.list_(pa.float32(), 2)], ids=str)  # fmt: skip
def test_vectors_beside_texts_are_arrays(kind):
    mixed = TableColumns(text=("t",), vectors=("v",))
    columns, rows = Columns(mixed=mixed), [[1, 2], None, [3, 4], [5, 6]]
    values = [None if row is None else np.array(row, kind.value_type.to_pandas_dtype())
              for row in rows]  # fmt: skip
    table = pa.table({"v": pa.array(values, kind), "t": list("abcd")})
    for given in (table, pa.concat_tables([table[:2], table[2:]])):
        for part in (slice(0, 4), slice(1, 4), slice(2, 2)):
            found = read_inputs(columns, given[part])
            assert [each["t"] for each in found] == list("abcd")[part]
            for each, row in zip(found, rows[part], strict=True):
                assert (each["v"] is None) == (row is None)
                if row is not None:
                    assert isinstance(each["v"], np.ndarray)
                    assert each["v"].tolist() == row
    words = pa.table({"v": [["a"]], "t": ["b"]})
    assert read_inputs(columns, words) == [{"t": "b", "v": ["a"]}]
