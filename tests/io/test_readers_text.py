"""The engine's parser of text against a slow one: any text, any number, any block, any thread."""

import gzip
import io
import os
import sys
import threading
from decimal import Decimal, localcontext

import numpy as np
import pytest
import slow_reader
from hypothesis import example, given, settings
from hypothesis import strategies as st
from slow_reader import nearest_float32

from ltls.core import _engine
from ltls.readers import Stream, read

THREADS = [1, 2, 5]


def parsed(text, first=0, last=2**31 - 2, labels=range(-(10**15), 10**15), blank_rows=0, n_jobs=1):
    """What the engine makes of a text, in the form of the slow parser's answer."""
    rows = _engine.TextRows.parse(text, first, last, labels[0], labels[-1], blank_rows, n_jobs)
    if rows.error is not None:
        return rows.error[:2]
    features = np.split(rows.features, rows.feature_ends[:-1])
    values = np.split(rows.values, rows.feature_ends[:-1])
    own = np.split(rows.labels, rows.label_ends[:-1])
    if not len(rows.feature_ends):
        assert not len(rows.features)
        assert not len(rows.labels)
        return []
    return [
        (label.tolist(), list(zip(index.tolist(), value, strict=True)))
        for label, index, value in zip(own, features, values, strict=True)
    ]


def assert_same(found, expected):
    assert repr(found) == repr(expected)  # also tells 0.0 from -0.0


digits = st.text("0123456789", max_size=25)
numbers = st.builds("".join, st.tuples(st.sampled_from(["", "-", "+"]), digits))
decimals = st.builds(
    lambda *parts: "".join(parts),
    numbers,
    st.sampled_from(["", "."]),
    digits,
    st.sampled_from(["", "", "e", "E-", "e+"]),
    st.text("0123456789", max_size=3),
)
pairs = st.builds(lambda *parts: "".join(parts), numbers, st.sampled_from(":::, "), decimals)
tidy = st.builds(
    lambda index, value: f"{index}:{value!r}", st.integers(0, 30), st.floats(-1e6, 1e6, width=32)
)
odd = st.sampled_from(
    ["#", "\0", "qid", "qid:3", "7:7:7", "1_0:2", "\t", "\r", "x:1", ",", ":", "é"]
)
words = tidy | pairs | decimals | odd | st.text(max_size=4)
lines = st.lists(st.lists(tidy, max_size=6) | st.lists(words, max_size=4), max_size=8)


@settings(max_examples=100, deadline=None)
@given(lines, st.sampled_from([" ", "\t ", " \v"]), st.booleans(), st.integers(0, 4))
@example([["1", "2:1"], ["3:1", "3:2"]], " ", False, 0)
@example([["1.0,1e2,-0", "2:1e-46", "1:5."], [""], ["1,1,0.10e1"]], " ", True, 9)
def test_any_text_is_parsed_as_the_slow_way(rows, blank, ends, blank_rows):
    text = "\n".join(blank.join(row) for row in rows).encode() + b"\n" * ends
    for labels in (range(-(10**15), 10**15), range(3)):
        expected = slow_reader.parse(text, 0, 30, labels, blank_rows)
        for n_jobs in (1, 3):
            assert_same(parsed(text, 0, 30, labels, blank_rows, n_jobs), expected)


def value_of(word):
    rows = parsed(b"0 1:%s" % word)
    return rows if isinstance(rows, tuple) else rows[0][1][0][1]


@settings(max_examples=500, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(-3, 3), st.data())
def test_numbers_between_two_floats_go_to_the_nearer_one(number, nudge, data):
    start = np.float32(number)
    below = np.nextafter(start, np.float32(0))
    with localcontext() as context:
        context.prec = 200
        middle = (Decimal(float(start)) + Decimal(float(below))) / 2
        middle += nudge * abs(middle) * Decimal(10) ** -data.draw(st.integers(8, 60))
        word = data.draw(st.sampled_from(["f", "e"]))
        text = format(middle, word).encode()
    expected = nearest_float32(text)
    if np.isfinite(expected):
        assert_same(value_of(text), expected)
    else:
        assert value_of(text) == (0, "value")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (b"16777217", 16777216),
        (b"16777219", 16777220),
        (b"3.4028235e38", np.finfo(np.float32).max),
        (b"340282356779733661637539395458142568447", np.finfo(np.float32).max),
        (b"1e-45", np.float32(1.4e-45)),
        (b"1e-46", 0),
        (b"-1e-999999999999999999999", 0),
        (b"0e999999999999999999999", 0),
        (b"0." + b"0" * 5000 + b"25e5000", 0.25),
        (b"25" + b"0" * 5000 + b"e-5002", 0.25),
        (b"1.17549429e-38", np.float32(1.17549429e-38)),
    ],
)
def test_numbers_at_the_ends_of_the_range(word, value):
    assert value_of(word) == np.float32(value)


@pytest.mark.parametrize("word", [b"3.4028236e38", b"1e39", b"-1e400", b"1" + b"0" * 39, b"inf"])
def test_numbers_out_of_range_are_refused(word):
    assert value_of(word) == (0, "value")


# Blocks, streams and threads


def text_of(n_rows, seed=0):
    """Rows of an svmlight file, with comments and blank lines between."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        features = np.sort(rng.choice(50, rng.integers(0, 8), replace=False)) + 1
        labels = rng.integers(0, 9, rng.integers(1, 3))
        pairs = " ".join(
            f"{j}:{x:.4g}" for j, x in zip(features, rng.normal(size=50), strict=False)
        )
        lines.append(f"{','.join(map(str, labels))} {pairs} # a comment: x\n")
        if rng.random() < 0.1:
            lines.append(rng.choice(["\n", "# nothing\n"]))
    return "".join(lines)


def assert_same_rows(stream, whole):
    parts = list(stream)
    X = np.concatenate([part.X.toarray() for part in parts])
    assert np.array_equal(X, whole.X.toarray())
    labels = [row.tolist() for part in parts for row in part.labels()]
    assert labels == [row.tolist() for row in whole.labels()]
    assert stream.n_rows == whole.n_rows
    assert {part.zero_based for part in parts} == {whole.zero_based}
    return parts


@pytest.mark.parametrize("chunk_size", [1, 100, 1000, 10**6])
@pytest.mark.parametrize("n_jobs", THREADS)
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_stream_gives_the_rows_of_the_file_in_parts(tmp_path, chunk_size, n_jobs, compress):
    path = tmp_path / "rows"
    path.write_bytes(compress(text_of(200).encode()))
    whole = read(path)
    stream = Stream(path, chunk_size=chunk_size, n_jobs=n_jobs)
    assert (stream.n_features, stream.zero_based) == (50, False)
    for _ in range(2):
        parts = assert_same_rows(stream, whole)
    assert (len(parts) > 1) == (chunk_size < 10**6)


def test_a_stream_of_an_xmc_file_knows_blank_rows(tmp_path):
    path = tmp_path / "rows"
    path.write_text("5 4 3\n0,1 0:1\n\n \n2 3:1\n\n")
    whole = read(path)
    for chunk_size in (1, 3, 100):
        assert_same_rows(Stream(path, chunk_size=chunk_size), whole)
    assert whole.labels_per_row.tolist() == [2, 0, 0, 1, 0]


def test_a_stream_names_the_line_that_is_wrong(tmp_path):
    path = tmp_path / "rows"
    text = text_of(300)
    path.write_text(text + "1 1:x\n")
    line = text.count("\n") + 1
    for chunk_size in (50, 1000):
        with pytest.raises(ValueError, match=f"rows, line {line}: value 'x' of feature 1"):
            list(Stream(path, n_features=60, zero_based=False, chunk_size=chunk_size))
        with pytest.raises(ValueError, match=f"rows, line {line}: value 'x' of feature 1"):
            Stream(path, chunk_size=chunk_size)
    path.write_text("3 4 3\n0 0:1\n")
    with pytest.raises(ValueError, match="the header says 3 rows, but there are 1"):
        list(Stream(path))
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        Stream(path, chunk_size=0)


def test_a_feature_that_is_one_too_many_when_they_count_from_zero(tmp_path):
    path = tmp_path / "rows"
    path.write_text("1 1:1\n\n1 4:1\n1 2:1\n")
    assert read(path, n_features=4).X.shape == (3, 4)
    path.write_text("1 1:1\n\n1 4:1\n1 0:1\n")
    with pytest.raises(ValueError, match="line 3: feature index '4' is not an integer from 0 to 3"):
        read(path, n_features=4)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("reader", [read, Stream])
def test_what_can_be_read_only_once(tmp_path, reader):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    text = text_of(500)
    writer = threading.Thread(target=fifo.write_text, args=(text,))
    writer.start()
    data = reader(fifo)
    writer.join()
    (tmp_path / "rows").write_text(text)
    assert_same_rows(data if reader is Stream else _Once(data), read(tmp_path / "rows"))


class _Once:
    def __init__(self, data):
        self.data, self.n_rows = data, data.n_rows

    def __iter__(self):
        return iter([self.data])


@pytest.mark.parametrize("reader", [read, Stream])
def test_standard_input(monkeypatch, reader):
    packed = io.BufferedReader(io.BytesIO(gzip.compress(b"1 1:1\n2 2:1\n")))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(packed))
    data = reader("-")
    assert (data.n_rows, data.zero_based) == (2, False)


def test_the_limits_of_the_engine_are_checked():
    with pytest.raises(ValueError, match="features must be from 0"):
        parsed(b"", last=2**31)
    with pytest.raises(ValueError, match="features must be from 0"):
        parsed(b"", first=-1)
    with pytest.raises(ValueError, match="labels must be from"):
        parsed(b"", labels=range(10**18 + 2))
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        parsed(b"", n_jobs=0)
    assert parsed(b"") == []
    assert parsed(io.BytesIO(b"\n\n#x").read()) == []


@pytest.mark.parametrize("chunk_size", [100, 1 << 20])
@pytest.mark.parametrize("header", ["", "40 9 3\n"], ids=["svmlight", "xmc"])
def test_bad_rows_are_skipped_and_reported_once(tmp_path, chunk_size, header):
    first = 1 + bool(header)
    bad = {1: "x 1:1", 7: "1 1:x", 8: "1 2:1 2:1", 23: "1 99:1", 40: "1 word"}
    lines = [bad.get(number, f"{number % 3} {number % 7 + 1}:1") for number in range(1, 41)]
    path = tmp_path / "rows"
    path.write_text(header + "\n".join(lines) + "\n")
    skipped = []
    stream = Stream(path, n_features=9, chunk_size=chunk_size, on_bad_row=skipped.append)
    for _ in range(2):
        assert sum(chunk.n_rows for chunk in stream) == 35
    assert [error.line for error in skipped] == [number + first - 1 for number in bad]
    assert [error.kind for error in skipped] == ["label", "value", "duplicate", "feature", "pair"]
    again = []
    data = read(path, n_features=9, on_bad_row=again.append)
    assert data.n_rows == 35
    assert [error.line for error in again] == [error.line for error in skipped]
