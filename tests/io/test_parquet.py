"""Parquet files: all types, compressed ones, and those that become too large."""

import datetime
import gzip
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pytest

from ltls.io.errors import ColumnError, DataError, FormatError, RowError
from ltls.io.tables import Columns, Table
from ltls.readers import FileTooLargeError, SizeLimits, TableStream

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: run make test-all")
pq = pytest.importorskip("pyarrow.parquet")

COLUMNS = Columns("text", "kind")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.parquet"


def rows_of(path, columns=COLUMNS, **options):
    batches = list(Table(path, "parquet", columns, **options).batches(5000))
    texts = [text for batch in batches for text in batch.inputs]
    return texts, [row for batch in batches for row in batch.labels]


def test_texts_numbers_and_lists(path):
    columns = {"text": ["a", "b"], "kind": [["x", "y"], []], "n": [1, 2], "v": [[0.5, 1], [2, 3]]}
    pq.write_table(pa.table(columns), path)
    assert rows_of(path) == (["a", "b"], [["x", "y"], []])
    (rows,) = Table(path, "parquet", Columns(None, "kind", ("v", "n"))).batches(9)
    np.testing.assert_array_equal(rows.X, np.float32([[0.5, 1, 1], [2, 3, 2]]))
    message = r"no column 'txt', only 'text', 'kind', .* mean 'text'\?"
    with pytest.raises(ColumnError, match=message):
        rows_of(path, Columns("txt"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["list", "large_list", "fixed"])
def test_vectors(path, kind, dtype):
    X = np.random.default_rng(0).normal(size=(5000, 3)).astype(dtype)
    numbers = pa.array(X.ravel())
    column = pa.FixedSizeListArray.from_arrays(numbers, 3)
    if kind != "fixed":
        column = column.cast((pa.list_ if kind == "list" else pa.large_list)(numbers.type))
    pq.write_table(pa.table({"v": column, "kind": ["x"] * 5000}), path)
    batches = list(Table(path, "parquet", Columns(None, "kind", ("v",))).batches(3000))
    assert [len(rows) for rows in batches] == [3000, 2000]
    found = np.concatenate([rows.X for rows in batches])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, X.astype(np.float32))


def test_bad_vectors_are_skipped(path):
    for dtype in (pa.float64(), pa.float32(), pa.float16()):
        rows = [[1, 2], [1, None], [1, np.nan], [1, 2, 3], [], [3, 4], [1, 1e300], None]
        if dtype == pa.float16():
            rows = [row and [each if each is None else np.float16(each) for each in row]
                    for row in rows[:-2]]  # fmt: skip
        for some in (rows, rows[:-1]):  # a column with a null is read in another way
            pq.write_table(pa.table({"v": pa.array(some, pa.list_(dtype))}), path)
            bad = []
            table = Table(path, "parquet", Columns(None, None, ("v",)), on_bad_row=bad.append)
            (good,) = table.batches(99)
            kept = [place for place in range(len(some)) if some[place] in ([1, 2], [3, 4])]
            assert good.X.tolist() == [some[place] for place in kept]
            assert [error.row - 1 for error in bad] == sorted({*range(len(some))} - {*kept})


@pytest.mark.parametrize("encoding", ["RLE_DICTIONARY", "PLAIN", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("page_size", [100, 1 << 20])  # of dictionaries
@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary", "string_view"])
def test_texts_of_every_type_and_encoding(path, kind, page_size, encoding):
    if kind == "dictionary" and encoding == "DELTA_BYTE_ARRAY":
        pytest.skip("pyarrow does not read it")
    if not hasattr(pa, kind):
        pytest.skip(f"pyarrow has no {kind}")
    kind = pa.dictionary(pa.int32(), pa.string()) if kind == "dictionary" else getattr(pa, kind)()
    texts = [f"text {i % 7} {i % 2000}" for i in range(9000)]
    labels = [[f"l{i % 900}"] * (i % 2) for i in range(9000)]
    columns = {"text": pa.array(texts).cast(kind), "kind": pa.array(labels, pa.list_(pa.string()))}
    encodings = {"text": encoding, "kind.list.element": encoding}
    dictionaries = encoding == "RLE_DICTIONARY"
    pq.write_table(
        pa.table(columns),
        path,
        row_group_size=5000,
        dictionary_pagesize_limit=page_size,
        write_batch_size=500,
        use_dictionary=dictionaries,
        column_encoding=None if dictionaries else encodings,
    )
    assert rows_of(path) == (texts, labels)


@pytest.mark.parametrize(
    ("label", "values"),
    [
        ("2024-02-29", [datetime.date(2024, 2, 29)]),
        ("1.50", [Decimal("1.50")]),
        ("card", [b"card"]),
        ("7", [7]),
        ("true", [True]),
    ],
)
def test_labels_of_all_types(path, label, values):
    pq.write_table(pa.table({"text": ["a"], "kind": pa.array(values)}), path)
    assert rows_of(path) == (["a"], [[label]])


def test_a_missing_text_is_empty(path):
    pq.write_table(pa.table({"text": ["a", None], "kind": ["x", "y"]}), path)
    assert rows_of(path) == (["a", ""], [["x"], ["y"]])


def test_bad_rows_are_numbered(path):
    pq.write_table(pa.table({"text": ["a", "b", "c"], "kind": ["x", None, ""]}), path)
    with pytest.raises(RowError, match="row 2: its label 'kind' is empty"):
        rows_of(path)
    skipped = []
    assert rows_of(path, on_bad_row=skipped.append) == (["a"], [["x"]])
    assert [(error.row, error.line) for error in skipped] == [(2, None), (3, None)]


def test_a_compressed_file_is_not_held_in_memory(path):
    noise = np.random.default_rng(0).bytes(1 << 23)  # of which nothing can be compressed
    pq.write_table(pa.table({"text": ["a"], "kind": ["x"], "noise": [noise]}), path)
    path.write_bytes(gzip.compress(path.read_bytes(), 1))
    stream = TableStream(path, "text", "kind", format="parquet")
    tracemalloc.start()
    for _ in range(2):
        assert [texts for texts, _ in stream] == [["a"]]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 22


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1", b"text"])
def test_what_is_no_parquet_file(path, content):
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"rows\.parquet: not a Parquet file"):
        rows_of(path)


@pytest.mark.parametrize("change", [0x01, 0x5A, 0xFF])
def test_a_damaged_byte_anywhere_is_an_error_or_another_value(path, change):
    """Once the end of the process, where pyarrow does not expect its metadata to be damaged."""
    pq.write_table(pa.table({"text": ["a", "b"], "kind": [["x"], ["y", "z"]]}), path)
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= change
        path.write_bytes(damaged)
        with suppress(DataError, FileTooLargeError):
            rows_of(path)


def test_without_pyarrow_the_error_says_what_to_install(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path.write_bytes(b"PAR1")
    with pytest.raises(FormatError, match=r"pip install 'ltls\[parquet\]'"):
        rows_of(path)


def repeated(value, n, kind=None):
    """An array of n equal values, which takes the memory of one."""
    return pa.array([value], kind).dictionary_encode().take(pa.array(np.zeros(n, np.int32)))


def one_list(items):
    return pa.LargeListArray.from_arrays(pa.array([0, len(items)]), items)


LONG = "a" * 5_000_000
BOMBS = {
    "text in a dictionary": lambda: {"text": repeated(LONG, 2000), "kind": repeated("x", 2000)},
    "labels in a dictionary": lambda: {"text": ["a"], "kind": one_list(repeated(LONG, 2000))},
    "texts of a fixed length": lambda: {
        "text": ["a"] * 400,
        "kind": repeated(b"a" * 1_000_000, 400, pa.binary(1_000_000)),
    },
    "a list of zeros": lambda: {"text": ["a"], "kind": one_list(pa.array(np.zeros(10**7)))},
    "many rows": lambda: {"text": repeated("a", 2 * 10**7), "kind": repeated("x", 2 * 10**7)},
    "pages of zeros": lambda: {"text": ["a" * 40_000_000] * 2, "kind": ["x", "y"]},
}


@pytest.mark.parametrize("store_schema", [False, True])
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_becomes_large_is_an_error(path, name, store_schema):
    table = pa.table(BOMBS[name]())
    pq.write_table(table, path, compression="zstd", store_schema=store_schema)
    assert path.stat().st_size < 1 << 18
    with pytest.raises(FileTooLargeError, match=r"250 times its size.*store it uncompressed") as e:
        rows_of(path)
    assert e.value.path == str(path)


def test_texts_stored_as_differences_are_limited(path):
    columns = {"text": [LONG] * 20, "kind": ["x"] * 20}
    encodings = dict.fromkeys(columns, "DELTA_BYTE_ARRAY")
    pq.write_table(pa.table(columns), path, use_dictionary=False, column_encoding=encodings)
    with pytest.raises(FileTooLargeError):
        rows_of(path)


def test_a_limit_of_bytes(path):
    pq.write_table(pa.table({"text": repeated("a" * 1000, 100), "kind": repeated("x", 100)}), path)
    assert len(rows_of(path, limits=SizeLimits(max_bytes=110_000))[0]) == 100
    with pytest.raises(FileTooLargeError, match="max_bytes=100,000"):
        rows_of(path, limits=SizeLimits(max_bytes=100_000))


def test_many_numbers_that_hardly_differ_are_not_too_large(path):
    """Encodings of columns that are mostly 0 save more than any bomb."""
    column = np.zeros(5000)
    column[::1000] = 1
    table = {f"f{i}": column for i in range(200)}
    pq.write_table(pa.table({**table, "kind": repeated("x", 5000)}), path, compression="zstd")
    limits = SizeLimits(max_bytes=8 * 5000 * 200 // 2)  # half of what they take
    stream = TableStream(path, label="kind", features=list(table), limits=limits)
    assert sum(len(X) for X, _ in stream) == 5000


LIMITED = """
import resource, sys
from pathlib import Path
from ltls.readers import FileTooLargeError, TableStream
import pyarrow.compute, pyarrow.parquet

pyarrow.set_memory_pool(pyarrow.system_memory_pool())
lines = Path("/proc/self/status").read_text().splitlines()
size = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 28), size + (1 << 28)))
try:
    list(TableStream(sys.argv[1], "text", "kind"))
except FileTooLargeError as error:
    print(error.path)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("name", ["text in a dictionary", "labels in a dictionary"])
def test_a_bomb_takes_little_memory(path, name):
    """10 GB of texts, within 256 MiB."""
    pq.write_table(pa.table(BOMBS[name]()), path, compression="zstd")
    command = [sys.executable, "-c", LIMITED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (str(path), "")
