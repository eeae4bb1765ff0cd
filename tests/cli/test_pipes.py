"""Pipes, devices, encodings and bad rows: the terminal in a pipeline."""

import json
import logging
import os
import re
import signal
import subprocess
import sys

import pytest
from tickets import TICKETS

import ltls
from ltls import LTLSClassifier

ROWS = ("rows.csv", "--text", "text", "--label", "category", "--random-state", 0)
FASTTEXT = "".join(
    f"__label__{line.rsplit(',', 1)[1]} {line.rsplit(',', 1)[0]}\n"
    for line in TICKETS.splitlines()[1:]
)


@pytest.fixture(scope="module")
def model_bytes():
    return {}


@pytest.fixture
def folder(tmp_path, monkeypatch, command, model_bytes):
    """A folder with rows, a model of a table and one of fastText lines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(TICKETS)
    (tmp_path / "rows.ft").write_text(FASTTEXT)
    if not model_bytes:
        assert command("train", *ROWS, "-o", "table.ltls", "-q").code == 0
        assert command("train", "rows.ft", "-o", "lines.ltls", "-q").code == 0
        for name in ("table.ltls", "lines.ltls"):
            model_bytes[name] = (tmp_path / name).read_bytes()
    for name, content in model_bytes.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def labels(out):
    return [line.partition(":")[0] for line in out.splitlines()]


def start(*words, **options):
    """Start a command line in another process."""
    command = [sys.executable, "-m", "ltls", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, **options)


LINES = {
    "csv": (("--format", "csv"), [b"text\nlost my card\n", b"what fee\n"]),
    "jsonl": (("--format", "jsonl"), [b'{"text": "my card"}\n', b'{"text": "what fee"}\n']),
}


@pytest.mark.parametrize("name", LINES)
def test_a_row_is_answered_before_the_next_one_is_written(folder, name):
    options, (first, second) = LINES[name]
    process = start("predict", "table.ltls", "-", "-k", 1, *options)
    answers = []
    for line in (first, second):
        process.stdin.write(line)
        process.stdin.flush()
        answers.append(process.stdout.readline().decode())  # would wait for ever otherwise
    process.stdin.close()
    assert labels("".join(answers)) == ["card", "fee"]
    assert process.wait(60) == 0
    assert process.stdout.read() + process.stderr.read() == b""
    process.stdout.close()
    process.stderr.close()


def test_the_end_of_a_process_does_not_wait_for_its_input(folder):
    process = start("predict", "table.ltls", "-", "-k", 1, "--format", "text")
    process.stdin.write(b"lost my card\n")
    process.stdin.flush()
    assert process.stdout.readline().startswith(b"card")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert process.stderr.read() == b""
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def test_bad_rows_leave_a_line_and_rows_are_numbered(folder, command):
    (folder / "bad.csv").write_text(
        "text,category\na,b,c\nlost my card,card\nd,e,f\nwhat fee,fee\n1\n"
    )
    words = ("predict", "table.ltls", "bad.csv", "-k", 1, "--skip-bad-rows")
    result = command(*words)
    assert result.code == 0
    assert labels(result.out) == ["", "card", "", "fee", ""]
    assert "3 bad rows were skipped" in result.err
    numbered = command(*words, "--row-numbers").out.splitlines()
    assert [line.split("\t")[0] for line in numbered] == ["1", "2", "3", "4", "5"]
    rows = [
        json.loads(line) for line in command(*words, "--json", "--row-numbers").out.splitlines()
    ]
    assert [row["row"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[1]["labels"] == ["card"]
    assert rows[2]["error"] == "bad.csv, line 4: 3 fields, but the header has 2"


def test_bad_sparse_rows_leave_a_line(folder, command):
    X = [[1.0, 0.0], [0.0, 1.0]] * 20
    LTLSClassifier(random_state=0).fit(X, [7, 8] * 20).save("sparse.ltls")
    (folder / "rows.txt").write_text("7 1:1\n7 1:x\n# a comment\n8 2:1\n7 9:1\n7 1:1\n")
    words = ("predict", "sparse.ltls", "rows.txt", "-k", 1, "--skip-bad-rows", "--one-based", "-q")
    assert labels(command(*words).out) == ["7", "", "8", "", "7"]


def test_text_without_a_column_does_not_take_the_file_for_one(folder, command):
    (folder / "lines").write_text("lost my card\nwhat fee\n")
    for words in (("lines", "--text"), ("--text", "-k", 1, "lines"), ("lines", "--text", "-q")):
        result = command("predict", "table.ltls", *words)
        assert [line.partition(":")[0] for line in result.out.splitlines()] == ["card", "fee"]
    result = command("predict", "table.ltls", "--text", "text", "rows.csv", "-k", 1)
    assert labels(result.out)[:2] == ["card", "card"]
    result = command("predict", "table.ltls", "--text", "lines")  # the name of a column
    assert (result.code, result.err.startswith("ltls: Missing argument")) == (2, True)


def test_a_model_of_fasttext_lines_reads_plain_lines(folder, command):
    (folder / "plain").write_text("lost my card, please\n12\nwhat fee\n")
    result = command("predict", "lines.ltls", "plain", "-k", 1)
    assert (result.code, result.err) == (0, "")
    assert labels(result.out)[::2] == ["card", "fee"]
    result = command("predict", "lines.ltls", "rows.ft", "-k", 1)
    assert labels(result.out)[:2] == ["card", "card"]
    result = command("predict", "lines.ltls", "rows.csv", "--text", "text", "-k", 1)
    assert labels(result.out)[:2] == ["card", "card"]
    assert command("predict", "lines.ltls", "rows.csv", "-k", 1).code == 2  # which column?


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings(folder, command, encoding):
    text = "text,category\n" + "lost my çard,çard\nwhat fée,fée\n" * 10
    (folder / "rows.csv").write_bytes(text.encode(encoding))
    assert command("train", *ROWS, "-o", "m.ltls", "-q", "--encoding", encoding).code == 0
    assert ltls.load("m.ltls").classes_.tolist() == ["fée", "çard"]
    words = ("train", *ROWS, "-o", "m.ltls", "-q", "--stream", "--encoding", encoding)
    assert command(*words).code == 0
    assert ltls.load("m.ltls").classes_.tolist() == ["fée", "çard"]
    result = command("predict", "m.ltls", "rows.csv", "-k", 1, "--encoding", encoding)
    assert labels(result.out)[:2] == ["çard", "fée"]


def test_wrong_encodings(folder, command):
    for name in ("klingon", "hex", "zlib", "rot13", "undefined"):  # the others are not of texts
        result = command("train", *ROWS, "-o", "m.ltls", "--encoding", name)
        assert (result.code, "--encoding must be an encoding" in result.err) == (2, True)
    (folder / "rows.csv").write_text("text,category\na,x\n")
    for name in ("utf-16", "utf-32", "punycode"):
        result = command("train", *ROWS, "-o", "m.ltls", "--encoding", name)
        assert (result.code, f"rows.csv: not {name}: " in result.err) == (2, True)
    (folder / "rows.csv").write_bytes("text,category\nçard,x\n".encode("latin-1"))
    result = command("train", *ROWS, "-o", "m.ltls", "--encoding", "ascii")
    assert (result.code, "rows.csv: not ascii" in result.err) == (2, True)
    (folder / "rows.csv").write_bytes("text,category\na,x\n".encode("utf-16"))
    result = command("train", *ROWS, "-o", "m.ltls")
    assert (result.code, "give --encoding utf-16" in result.err) == (2, True)


@pytest.mark.skipif(os.name == "nt", reason="needs devices and named pipes")
def test_a_model_goes_to_standard_output(folder, command):
    expected = (folder / "table.ltls").read_bytes()
    assert start("train", *ROWS, "-o", "-").communicate()[0] == expected
    result = command("train", *ROWS, "-o", "/dev/null", "--resume")
    assert (result.code, "--resume needs --checkpoint" in result.err) == (2, True)


def test_a_line_per_phase_and_epoch_where_there_is_no_terminal(folder, command, caplog):
    with caplog.at_level(logging.INFO, logger="ltls"):
        result = command("train", *ROWS, "-o", "m.ltls", "--epochs", 3)
    lines = result.err.splitlines()
    first = [line.split("  ")[0] for line in lines]
    before = ["reading", "features", "clusters and paths of labels"]
    epochs = ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    after = ["trellises", "finishing trellises", "rows to remember", "saving"]
    plan = first.pop(3)
    assert plan.startswith("trellises: ")
    assert first == [*before, *epochs, *after]
    del lines[3]
    parts = ("loss", "P@1 of labels on training rows", "30 rows")
    assert all(part in line for line in lines[3:6] for part in parts)
    assert all(re.search(r"  \d+\.\d s$", line) for line in lines)
    records = [record.getMessage() for record in caplog.records]
    assert records.pop(3).startswith("trellises: ")
    assert records == lines
    assert command("train", *ROWS, "-o", "m.ltls", "-q").err == ""
