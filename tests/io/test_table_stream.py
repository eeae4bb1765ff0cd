"""Streams of tables: every format, several files, patterns, pipes and bad rows."""

import gzip
import io
import os
import threading
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from ltls.io.errors import EmptyFileError, FormatError, RowError
from ltls.io.files import expand
from ltls.io.tables import Columns, table_format
from ltls.readers import Stream, TableStream, read, write

ROWS = [(f"text {i}", [f"label {i % 7}"]) for i in range(100)]
SEVERAL = [(text, [*labels, "all"] if i % 5 else []) for i, (text, labels) in enumerate(ROWS)]
FORMATS = ["csv", "tsv", "jsonl", "fasttext", "parquet"]


def file_of(path, name, rows, separator=None):
    if name == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is missing; make test-all installs it")
    stream = io.BytesIO()
    table_format(name).write(stream, rows, Columns("text", "kind", separator=separator))
    path.write_bytes(stream.getvalue())
    return path


def rows_of(stream):
    """All texts and labels, and the number of batches."""
    rows, n_batches = [], 0
    for texts, targets in stream:
        n_batches += 1
        ends = targets.indptr.tolist()
        labels = [targets.labels[a:b] for a, b in pairwise(ends)]
        rows += zip(texts, labels, strict=True)
    return rows, n_batches


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_streams_any_number_of_times(tmp_path, name):
    path = file_of(tmp_path / f"rows.{name}", name, ROWS)
    stream = TableStream(path, "text", "kind", chunk_size=100)
    expected = [(text, [label.replace(" ", "_")]) for text, (label,) in ROWS]
    for _ in range(2):
        rows, n_batches = rows_of(stream)
        assert rows == (expected if name == "fasttext" else ROWS)
        assert n_batches > 5
    assert stream.n_rows == 100


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_rows_of_several_labels_make_their_batch_multilabel(tmp_path, name):
    path = file_of(tmp_path / f"rows.{name}", name, SEVERAL, ";")
    stream = TableStream(path, "text", "kind", separator=";", chunk_size=100)
    assert rows_of(stream)[0] == SEVERAL
    kinds = {(targets.multilabel, targets.format) for _, targets in stream}
    assert kinds == {(True, "lists")}
    single = TableStream(file_of(tmp_path / "single.csv", "csv", ROWS), "text", "kind")
    assert [(targets.multilabel, targets.format) for _, targets in single] == [(False, "single")]


def test_several_files_and_patterns_are_one_data_set(tmp_path):
    for number in range(3):
        part = file_of(tmp_path / f"part{number}.csv", "csv", ROWS[40 * number : 40 * number + 40])
        if number == 1:
            (tmp_path / "part1.csv").rename(tmp_path / "raw")
            part.write_bytes(gzip.compress((tmp_path / "raw").read_bytes()))
    names = [tmp_path / f"part{number}.csv" for number in range(3)]
    for paths in (names, str(tmp_path / "part*.csv"), [names[0], str(tmp_path / "part[12].csv")]):
        assert rows_of(TableStream(paths, "text", "kind"))[0] == ROWS
    with pytest.raises(FileNotFoundError, match=r"none\*\.csv: no file matches"):
        expand(str(tmp_path / "none*.csv"))
    with pytest.raises(ValueError, match="at least one file"):
        expand([])


def test_numeric_columns(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("a,b,kind\n" + "".join(f"{i},{i / 2},{i % 3}\n" for i in range(20)))
    batches = list(TableStream(path, label="kind", features=["b", "a"], chunk_size=10))
    assert len(batches) == 4
    X = np.concatenate([X for X, _ in batches])
    assert X.dtype == np.float32
    np.testing.assert_array_equal(X, [[i / 2, i] for i in range(20)])


def test_a_pipe_is_read_again(tmp_path):
    content = file_of(tmp_path / "rows.csv", "csv", ROWS).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    stream = TableStream(pipe, "text", "kind", format="csv")
    writer.join()
    assert rows_of(stream)[0] == rows_of(stream)[0] == ROWS


def test_bad_rows_are_reported_once_with_the_name_of_their_file(tmp_path):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("text,kind\na,x\nb,y\n")
    bad.write_text("text,kind\nc,x,y\nd,y\n")
    with pytest.raises(RowError, match=r"bad\.csv, line 2: 3 fields"):
        list(TableStream([good, bad], "text", "kind"))
    errors = []
    stream = TableStream([good, bad], "text", "kind", on_bad_row=errors.append)
    for _ in range(3):
        assert [text for text, _ in rows_of(stream)[0]] == ["a", "b", "d"]
    assert [(error.path, error.line) for error in errors] == [(bad, 2)]


def test_wrong_arguments(tmp_path):
    path = file_of(tmp_path / "rows.csv", "csv", ROWS)
    with pytest.raises(ValueError, match="needs a label column and a text column"):
        TableStream(path, "text")
    with pytest.raises(ValueError, match="must not both be given"):
        TableStream(path, "text", "kind", ["a"])
    with pytest.raises(ValueError, match="format must be one of"):
        TableStream(path, "text", "kind", format="svmlight")
    with pytest.raises(FormatError, match="no column 'txt'"):
        list(TableStream(path, "txt", "kind"))
    (tmp_path / "empty.csv").write_text("text,kind\n")
    with pytest.raises(EmptyFileError):
        list(TableStream(tmp_path / "empty.csv", "text", "kind"))


def test_several_sparse_files(tmp_path):
    X = sp.random(90, 30, 0.3, "csr", np.float32, random_state=0)
    y = np.arange(90) % 11
    Y = sp.csr_matrix((np.ones(90), y, np.arange(91)))
    names = [tmp_path / f"part{number}.svm" for number in range(3)]
    for number, name in enumerate(names):
        rows = slice(30 * number, 30 * number + 30)
        write(name, X[rows], Y[rows], "svmlight")
    whole = tmp_path / "whole.svm"
    whole.write_bytes(b"".join(name.read_bytes() for name in names))
    expected = read(whole)
    stream = Stream(str(tmp_path / "part*.svm"), chunk_size=200)
    assert (stream.n_features, stream.zero_based, stream.n_rows) == (30, False, 90)
    for found in (stream.read(), Stream(whole).read()):
        assert (found.X != expected.X).nnz == 0
        assert (found.Y != expected.Y).nnz == 0
        assert found.classes.tolist() == expected.classes.tolist()
    chunks = list(stream)
    assert len(chunks) > 3
    assert (sp.vstack([chunk.X for chunk in chunks]) != expected.X).nnz == 0
    assert np.concatenate([chunk.y for chunk in chunks]).tolist() == expected.y.tolist()


def test_sparse_files_start_at_0_if_one_of_them_does(tmp_path):
    (tmp_path / "one").write_text("1 1:1 3:1\n2 2:1\n")
    (tmp_path / "two").write_text("1 0:1\n")
    stream = Stream([tmp_path / "one", tmp_path / "two"])
    assert (stream.n_features, stream.zero_based) == (4, True)
    expected = [[0, 1, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert stream.read().X.toarray().tolist() == expected
