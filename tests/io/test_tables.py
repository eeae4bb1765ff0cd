import bz2
import gzip
import io
import json
import lzma
import sys

import numpy as np
import pytest

from ltls.core.streams import CorruptFileError
from ltls.io.errors import ColumnError, FormatError, RowError
from ltls.io.tables import Columns, Table

ROWS = [("card, lost", ["card"]), ('he said "fee"\nagain', ["fee"]), ("", ["a b"])]
ONE = Columns("text", "kind")
SEVERAL = Columns("text", "kind", separator=";")


def csv_of(rows, delimiter=","):
    import csv

    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([("text", "kind"), *rows])
    return out.getvalue()


def read(path, kind, columns, size=100, **options):
    table = Table(path, kind, columns, **options)
    batches = list(table.batches(size))
    texts = [text for batch in batches for text in batch.inputs]
    labels = [row for batch in batches for row in batch.labels]
    return list(zip(texts, labels, strict=True)) if labels else texts


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize(("kind", "delimiter"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_delimited(put, kind, delimiter, compress):
    content = csv_of([(text, label) for text, (label,) in ROWS], delimiter)
    assert read(put(compress(content.encode())), kind, ONE) == ROWS


@pytest.mark.parametrize(
    ("kind", "content"),
    [("csv", "text,kind\n,x\n"), ("jsonl", '{"text": null, "kind": "x"}\n')],
)
def test_a_missing_text_is_empty(put, kind, content):
    assert read(put(content), kind, ONE) == [("", ["x"])]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("csv", "text,kind\na,null;b;\n"),
        ("jsonl", '{"text": "a", "kind": ["null", null, "b", ""]}\n'),
    ],
)
def test_null_is_a_label_if_it_is_a_text(put, kind, content):
    assert read(put(content), kind, SEVERAL) == [("a", ["null", "b"])]


def test_a_mark_of_utf8_and_other_line_ends_are_no_text(put):
    path = put("\ufefftext,kind\r\na ß,x\r\n\r\nb,y\r\n")
    assert read(path, "csv", ONE) == [("a ß", ["x"]), ("b", ["y"])]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1", "UTF8", "cp1252"])
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("csv", "text,kind\né,x\n"),
        ("jsonl", '{"text": "é", "kind": "x"}\n'),
        ("fasttext", "__label__x é\n"),
    ],
)
def test_text_of_other_encodings(put, kind, content, encoding):
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    path = put((mark + content).encode(encoding))
    assert read(path, kind, ONE, encoding=encoding) == [("é", ["x"])]


def test_a_wrong_encoding_is_named(put):
    path = put("text,kind\né,x\n".encode("latin-1"))
    with pytest.raises(FormatError, match=r"rows: not ascii: .*; name another encoding"):
        read(path, "csv", ONE, encoding="ascii")


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_batches_hold_all_rows_in_order(put, size):
    path = put(csv_of([(f"t{i}", f"l{i}") for i in range(7)]))
    table = Table(path, "csv", ONE)
    batches = list(table.batches(size))
    assert [len(batch.inputs) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert [text for batch in batches for text in batch.inputs] == [f"t{i}" for i in range(7)]


def test_several_labels_in_a_cell(put):
    path = put("text,kind\na,x; y;x\nb,\nc,z\n")
    assert read(path, "csv", SEVERAL) == [("a", ["x", "y"]), ("b", []), ("c", ["z"])]


def test_json_lines(put):
    rows = [
        {"text": "a", "kind": "x", "more": None},
        {"kind": ["x", "y"], "text": "b"},
        {"text": "c", "kind": []},
        {"text": "d", "kind": 7},
        {"text": "e", "kind": [True, 1.5]},
    ]
    path = put("\n\n".join(map(json.dumps, rows)))
    labels = [["x"], ["x", "y"], [], ["7"], ["true", "1.5"]]
    assert read(path, "jsonl", ONE) == list(zip("abcde", labels, strict=True))


def test_fasttext(put):
    path = put("__label__x __label__y two words\n__label__z  b \nnone\n\n")
    expected = [("two words", ["x", "y"]), ("b", ["z"]), ("none", [])]
    assert read(path, "fasttext", Columns("text", "label"), labelled=False) == expected
    # fastText itself learns nothing from a line without labels.
    with pytest.raises(RowError, match="line 3: it has no __label__"):
        read(path, "fasttext", Columns("text", "label"))
    skipped = []
    table = Table(path, "fasttext", Columns("text", "label"), on_bad_row=skipped.append)
    assert [len(rows.inputs) for rows in table.batches(9)] == [2]
    assert [(error.line, error.kind) for error in skipped] == [(3, "label")]


def test_plain_lines(put):
    assert read(put("a,b\n\n c\r\n"), "text", Columns("text"), labelled=False) == [
        "a,b",
        "",
        " c",
    ]


def test_standard_input_compressed(monkeypatch):
    content = io.BytesIO(gzip.compress(b"a\nb\n"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
    assert read("-", "text", Columns("text"), labelled=False) == ["a", "b"]


def test_numbers(put):
    path = put("a,b,kind\n1,2e3,x\n-0.5,7,y\n")
    (rows,) = Table(path, "csv", Columns(None, "kind", ("b", "a"))).batches(9)
    np.testing.assert_array_equal(rows.X, np.float32([[2000, 1], [7, -0.5]]))
    assert rows.labels == [["x"], ["y"]]


def test_labels_are_not_needed_to_predict(put):
    path = put("text\na\nb\n")
    assert read(path, "csv", ONE, labelled=False) == ["a", "b"]


BAD = {
    "csv": [
        ("text,kind\na,x\nb\n", "line 3: 1 fields, but the header has 2"),
        ('text,kind\na,x\n"b"c,y\n', "line 3: ',' expected after '\"'"),
        ('text,kind\na,x\n"b,y\n', "line 3: a quote is never closed"),
        ("text,kind\na,x\nb,\n", "line 3: its label 'kind' is empty"),
        (b"text,kind\na,x\n\xff,y\n", "line 3: not UTF-8 at byte 1; .*--encoding latin-1"),
        ('text,kind\n"a\nb",x\nc\n', "line 4: 1 fields"),
    ],
    "jsonl": [
        ('{"text": "a", "kind": "x"}\n{"text"\n', "line 2: not JSON"),
        ('{"text": "a", "kind": "x"}\n[1]\n', "line 2: a line must be a JSON object"),
        ('{"text": "a", "kind": "x"}\n{"text": "b"}\n', "line 2: it has no 'kind'"),
        ('{"text": "a", "kind": "x"}\n{"text": 5, "kind": "x"}\n', "line 2: 'text' is 5, not a"),
        (
            '{"text": "a", "kind": "x"}\n{"text": "", "kind": {}}\n',
            r"line 2: label \{\} is",
        ),
        ('{"text": "a", "kind": "x"}\n{"text": "", "kind": null}\n', "line 2: its label 'kind'"),
        (
            b'{"text": "a", "kind": "x"}\n{"text": "\xff", "kind": "x"}\n',
            "line 2: not UTF-8 at byte 11",
        ),
    ],
}


@pytest.mark.parametrize(
    ("kind", "content", "message"), [(kind, *case) for kind, cases in BAD.items() for case in cases]
)
def test_a_bad_row_is_named_or_skipped(put, kind, content, message):
    path = put(content)
    with pytest.raises(RowError, match=f"rows, {message}"):
        read(path, kind, ONE)
    skipped = []
    (rows,) = Table(path, kind, ONE, on_bad_row=skipped.append).batches(100)
    assert (len(rows.inputs), len(rows.labels), len(skipped)) == (1, 1, 1)
    assert skipped[0].path == path
    assert f"line {skipped[0].line}" == message.split(":")[0]


@pytest.mark.parametrize("value", ["x", "", "nan", "inf", "1e39", "1" + "0" * 400])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_what_is_no_finite_number_is_a_bad_row(put, kind, value):
    content = {"csv": f"a,kind\n{value},y\n", "jsonl": json.dumps({"a": value, "kind": "y"})}
    with pytest.raises(RowError, match=r"line \d: 'a' is .* not a finite number") as error:
        list(Table(put(content[kind]), kind, Columns(None, "kind", ("a",))).batches(9))
    assert error.value.kind == "value"
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "NaN"])
def test_json_numbers_may_be_too_large_for_a_float(put, number):
    path = put(f'{{"a": {number}, "kind": "x"}}\n')
    with pytest.raises(RowError, match=r"line 1: 'a' is .*, not a finite number"):
        list(Table(path, "jsonl", Columns(None, "kind", ["a"])).batches(10))


def test_rows_after_bad_ones_are_read(put):
    rows = [f"t{i},l{i}" if i % 3 else "bad" for i in range(30)]
    path = put("\n".join(["text,kind", *rows]))
    skipped = []
    table = Table(path, "csv", ONE, on_bad_row=skipped.append)
    assert sum(len(batch) for batch in table.batches(4)) == 20
    assert [error.line for error in skipped] == list(range(2, 32, 3))
    assert {error.kind for error in skipped} == {"fields"}


@pytest.mark.parametrize(
    ("kind", "content"),
    [("csv", "text,kind\na,x\n"), ("tsv", "text\tkind\na\tx\n"), ("jsonl", '{"text":1,"kind":2}')],
)
def test_an_unknown_column_names_those_there_are(put, kind, content):
    path = put(content)
    with pytest.raises(ColumnError, match=r"'king', only 'text', 'kind'; did you mean 'kind'\?$"):
        read(path, kind, Columns("text", "king"), on_bad_row=print)


def test_columns_that_are_used_are_no_other_ones(put):
    path = put("text,kind,text\na,x,b\n")
    with pytest.raises(
        FormatError, match="column names must be unique, but the table has two columns 'text'"
    ):
        read(path, "csv", ONE)
    with pytest.raises(ValueError, match="column 'kind' must not also be an input column"):
        Columns(label="kind", features=["x", "kind"])


def test_sparse_rows_are_not_taken_for_dense_ones(put):
    columns = Columns(label="kind", features=["i", "v"])
    path = put('{"i": [3, 7], "v": [1.0, 2.0], "kind": "a"}\n')
    with pytest.raises(RowError, match="'i' and 'v' are the indices and values of a sparse row"):
        read(path, "jsonl", columns)
    path = put('{"i": [3, 1], "v": [1.0, 2.0], "kind": "a"}\n')
    (rows,) = Table(path, "jsonl", columns).batches(10)
    assert rows.inputs == [[3, 1, 1, 2]]


def test_many_columns_are_not_all_named(put):
    path = put(",".join(f"c{i}" for i in range(50)) + "\n")
    with pytest.raises(ColumnError, match=r"'c19' and 30 more$"):
        read(path, "csv", ONE)


def test_damaged_compression_is_named(put):
    path = put(gzip.compress(csv_of([("a" * 1000, "x")] * 99).encode())[:-9])
    with pytest.raises(CorruptFileError, match="rows: the compressed file is truncated"):
        read(path, "csv", ONE)
