"""Inputs that once crashed, looped or failed with a foreign error: each has one clear error now."""

import datetime
import gzip
import json
from decimal import Decimal

import pytest

from ltls.io.errors import NoGoodRowsError, RowError
from ltls.io.tables import Columns, Table
from ltls.readers import FileTooLargeError, SizeLimits, Stream, read


@pytest.fixture
def write(tmp_path):
    def write(content, name="rows"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_bad_rows_after_a_header_with_a_comment_are_skipped(write, command):
    path = write("2 10 10 # head\n9 9:1.5\nbad x\n", "h.xmc")  # once an endless loop
    skipped = []
    assert read(path, on_bad_row=skipped.append).n_rows == 1
    assert [error.line for error in skipped] == [3]
    result = command("train", path, "-o", path.with_name("z.ltls"), "--skip-bad-rows")
    assert result.code == 2
    assert "training needs at least 2 different labels, got 1" in result.err


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (datetime.datetime(2024, 2, 29, 12, 30), "2024-02-29T12:30:00"),
        (datetime.time(12, 30), "12:30:00"),
        (Decimal("1.50"), "1.50"),
        (b"card", "card"),
        (2.5, "2.5"),
        (True, "true"),
    ],
)
def test_labels_of_other_types_are_texts(write, value, label):
    table = Table(write(""), "jsonl", Columns("text", "kind"))
    assert table._labels(value) == [label]
    assert table._labels([value, "x"]) == [label, "x"]


@pytest.mark.parametrize("value", [b"\xff\xfe", datetime.timedelta(1), object()])
def test_labels_that_are_no_text_are_bad(write, value):
    with pytest.raises(RowError, match="is neither a text nor a number") as error:
        Table(write(""), "jsonl", Columns("text", "kind"))._labels(value)
    assert error.value.kind == "type"


def test_parquet_labels_of_all_types(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is missing; make test-all installs it")
    parquet = pytest.importorskip("pyarrow.parquet")
    labels = {
        "2024-02-29": arrow.array([datetime.date(2024, 2, 29)]),
        "1.50": arrow.array([Decimal("1.50")]),
        "card": arrow.array([b"card"]),
    }
    for label, column in labels.items():
        parquet.write_table(arrow.table({"text": ["a"], "kind": column}), tmp_path / "rows")
        (rows,) = Table(tmp_path / "rows", "parquet", Columns("text", "kind")).batches(10)
        assert rows.labels == [[label]]


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "NaN"])
def test_numbers_too_large_for_a_float_are_bad_values(write, number):
    path = write(f'{{"a": {number}, "kind": "x"}}\n')
    table = Table(path, "jsonl", Columns(None, "kind", ["a"]))
    with pytest.raises(RowError, match=r"line 1: 'a' is .*, not a finite number") as error:
        list(table.batches(10))
    assert error.value.kind == "value"
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("svmlight", "bad x\nworse y\n", "line 1: label 'bad' is not an integer"),
        ("xmc", "2 3 3\nbad\n9 1:1\n", "line 2: label 'bad' is not an integer from 0 to 2"),
        ("csv", "text,kind\n1,2,3\n4,5,6\n", "line 2: 3 fields, the header has 2"),
        ("jsonl", "bad\n[]\n", "line 1: not JSON: Expecting value at character 1"),
    ],
)
def test_a_file_of_bad_rows_only_is_an_error_that_says_so(write, name, content, reason):
    path, skipped = write(content), []

    def read_all():
        if name in ("svmlight", "xmc"):
            return read(path, name, on_bad_row=skipped.append)
        return list(Table(path, name, Columns("text", "kind"), True, skipped.append).batches(10))

    with pytest.raises(NoGoodRowsError) as error:
        read_all()
    assert str(error.value) == (
        f"{path}: none of its 2 rows can be read; the first is bad: {reason}"
    )
    assert (error.value.n_bad_rows, len(skipped)) == (2, 2)


def test_predicting_a_table_of_bad_rows_only_is_an_error(write, command, tmp_path):
    good = write("text,kind\na,x\nb,y\n", "good.csv")
    model = tmp_path / "model.ltls"
    assert command("train", good, "--text", "text", "--label", "kind", "-q", "-o", model).code == 0
    bad = write("text,kind\n1,2,3\n4,5,6\n", "bad.csv")
    result = command("predict", model, bad, "--skip-bad-rows", "-q")
    assert result.code == 2
    assert "none of its 2 rows can be read; the first is bad: line 2: 3 fields" in result.err


def test_limits_reach_every_reader(write):
    rows = write(gzip.compress(b"1 1:1\n2 2:1\n" * 500), "rows.gz")
    table = write(gzip.compress(json.dumps({"text": "a" * 6000, "kind": "x"}).encode()), "t.gz")
    for limits, fits in (
        (SizeLimits(max_bytes=100_000), True),
        (SizeLimits(max_bytes=5999), False),
    ):
        readers = [
            lambda limits=limits: read(rows, limits=limits),
            lambda limits=limits: list(Stream(rows, limits=limits)),
            lambda limits=limits: list(
                Table(table, "jsonl", Columns("text", "kind"), limits=limits).batches(10)
            ),
        ]
        for reader in readers:
            if fits:
                assert reader()
            else:
                with pytest.raises(FileTooLargeError):
                    reader()
