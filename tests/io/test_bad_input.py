"""Inputs that once crashed, looped or failed with a foreign error: each has one clear error now."""

import datetime
import gzip
import json
from decimal import Decimal

import pytest

from ltls.io import formats
from ltls.io.errors import FormatError, RowError
from ltls.io.tables import Columns, Table, labels_of
from ltls.readers import FileTooLargeError, SizeLimits, Stream, TableStream, read


def test_bad_rows_after_a_header_with_a_comment_are_skipped(put, command):
    path = put("2 10 10 # head\n9 9:1.5\nbad x\n", "h.xmc")  # once an endless loop
    skipped = []
    assert read(path, on_bad_row=skipped.append).n_rows == 1
    assert [error.line for error in skipped] == [3]
    result = command("train", path, "-o", path.with_name("z.ltls"), "--skip-bad-rows")
    assert result.code == 2
    assert "at least 2" in result.err


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
def test_labels_of_other_types_are_texts(value, label):
    assert labels_of(value) == [label]
    assert labels_of([value, "x"]) == [label, "x"]


@pytest.mark.parametrize("value", [b"\xff\xfe", datetime.timedelta(1), object()])
def test_labels_that_are_no_text_are_bad(value):
    with pytest.raises(RowError, match="is neither a text nor a number") as error:
        labels_of(value)
    assert error.value.kind == "type"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("svmlight", "bad x\nworse y\n", "line 1: label 'bad' is not an integer"),
        ("xmc", "2 3 3\nbad\n9 1:1\n", "line 2: label 'bad' is not an integer from 0 to 2"),
        ("csv", "text,kind\n1,2,3\n4,5,6\n", "line 2: 3 fields, but the header has 2"),
        ("jsonl", "bad\n[]\n", "line 1: not JSON: Expecting value at character 1"),
    ],
)
def test_a_file_of_bad_rows_only_is_an_error_that_says_so(put, name, content, reason):
    path, skipped = put(content), []
    options = {"on_bad_row": skipped.append}

    def read_all():
        if formats.get(name).kind == "sparse":
            return read(path, name, **options)
        return list(Table(path, name, Columns("text", "kind"), **options).batches(10))

    with pytest.raises(FormatError) as error:
        read_all()
    assert str(error.value) == (
        f"{path}: none of its 2 rows can be read; the first error is: {reason}"
    )
    assert [error.n_before for error in skipped] == [0, 1]


def test_predicting_a_table_of_bad_rows_only_is_an_error(put, command, tmp_path):
    good = put("text,kind\na,x\nb,y\n", "good.csv")
    model = tmp_path / "model.ltls"
    assert command("train", good, "--text", "text", "--label", "kind", "-q", "-o", model).code == 0
    bad = put("text,kind\n1,2,3\n4,5,6\n", "bad.csv")
    result = command("predict", model, bad, "--skip-bad-rows", "-q")
    assert result.code == 2
    assert "none of its 2 rows can be read; the first error is: line 2: 3 fields" in result.err


@pytest.mark.parametrize(("max_bytes", "fits"), [(100_000, True), (5999, False)])
def test_limits_reach_every_reader(put, max_bytes, fits):
    rows = put(gzip.compress(b"1 1:1\n2 2:1\n" * 500), "rows.gz")
    table = put(gzip.compress(json.dumps({"text": "a" * 6000, "kind": "x"}).encode()), "t.gz")
    limits = SizeLimits(max_bytes=max_bytes)
    for reader in (
        lambda: read(rows, limits=limits),
        lambda: list(Stream(rows, limits=limits)),
        lambda: list(Table(table, "jsonl", Columns("text", "kind"), limits=limits).batches(10)),
        lambda: list(TableStream(table, "text", "kind", limits=limits)),
    ):
        if fits:
            assert reader()
        else:
            with pytest.raises(FileTooLargeError):
                reader()


@pytest.mark.parametrize(
    ("indices", "n_numbers"),
    [("[1, null]", 0), ("[1, [2]]", 0), ('[1, "2"]', 4), ("[2, 1]", 4), ("[0]", 3)],
)
def test_lists_that_are_no_indices_are_numbers_or_bad_values(put, indices, n_numbers):
    """Once a TypeError, where a list began with an integer."""
    path = put(
        f'{{"i": {indices}, "v": [1, 2], "kind": "x"}}\n{{"i": [2], "v": [1], "kind": "x"}}\n'
    )
    skipped = []
    table = Table(path, "jsonl", Columns(None, "kind", ("i", "v")), on_bad_row=skipped.append)
    (rows,) = table.batches(10)
    assert len(rows.inputs[0]) == (n_numbers or 2)
    assert [error.kind for error in skipped] == (["fields"] if n_numbers else ["value"])
