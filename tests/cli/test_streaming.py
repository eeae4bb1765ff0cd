"""ltls train on tables that are streamed, on several files and on patterns."""

import json
import re

import numpy as np
import pytest
from tickets import TICKETS

import ltls

ROWS = ("--text", "text", "--label", "category", "--random-state", 0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(TICKETS)
    header, *lines = TICKETS.splitlines(keepends=True)
    for number in range(3):
        (tmp_path / f"part{number}.csv").write_text(header + "".join(lines[number::3]))
    return tmp_path


def same_predictions(*paths):
    texts = ["lost my card", "what fee"]
    found = [ltls.load(path).predict_topk(texts, 2) for path in paths]
    for labels, scores in found[1:]:
        assert labels.tolist() == found[0][0].tolist()
        np.testing.assert_allclose(scores, found[0][1], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("hashed", [(), ("--set", "features.n_features=64")])
def test_a_streamed_table_gives_the_model_of_the_table(folder, command, hashed):
    words = ("rows.csv", *ROWS, *hashed, "--set", "trellises.shuffle=false", "-q", "-o")
    assert command("train", *words, "whole.ltls").code == 0
    result = command("train", *words, "streamed.ltls", "--stream")
    assert (result.code, result.out, result.err) == (0, "", "")
    same_predictions("whole.ltls", "streamed.ltls")
    assert ltls.load("streamed.ltls").fitted_.provenance.columns["text"] == "text"


def test_numbers_and_fasttext_lines_stream(folder, command):
    lines = "".join(f"{i % 3},{i % 2},{'abc'[i % 3]}\n" for i in range(60))
    (folder / "numbers.csv").write_text("x,y,kind\n" + lines)
    columns = ("--features", "x,y", "--label", "kind", "--epochs", 20, "--random-state", 0)
    assert command("train", "numbers.csv", *columns, "-o", "n.ltls", "--stream", "-q").code == 0
    report = json.loads(command("evaluate", "n.ltls", "numbers.csv", "--json").out)
    assert report["metrics"][0]["precision"] == 1
    lines = [line.rsplit(",", 1) for line in TICKETS.splitlines()[1:]]
    (folder / "rows.ft").write_text("".join(f"__label__{kind} {text}\n" for text, kind in lines))
    words = ("rows.ft", "-o", "ft.ltls", "--stream", "-q", "--random-state", 0)
    assert command("train", *words).code == 0
    report = json.loads(command("evaluate", "ft.ltls", "rows.ft", "--json").out)
    assert report["metrics"][0]["precision"] == 1


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_several_files_and_patterns_are_one_data_set(folder, command, way):
    for files in (["part0.csv", "part1.csv", "part2.csv"], ["part*.csv"]):
        result = command("train", *files, *ROWS, "-o", "m.ltls", "--json", way)
        assert json.loads(result.out)["rows"] == 30
    result = command("train", "party*.csv", *ROWS, "-o", "m.ltls")
    assert (result.code, result.err) == (2, "ltls: party*.csv: no file matches this pattern\n")
    (folder / "rows.jsonl").write_text('{"text": "a", "category": "b"}\n')
    result = command("train", "rows.csv", "rows.jsonl", *ROWS, "-o", "m.ltls")
    assert result.code == 2
    assert "rows.csv is csv and rows.jsonl is jsonl: files must have the same format" in result.err


def test_patterns_of_files_that_are_not_trained_on(folder, command):
    for number in range(2):
        (folder / f"rows{number}.svm").write_text("1 1:1\n2 2:1\n" * 9)
    assert command("train", "rows0.svm", "-o", "m.ltls", "-q").code == 0
    assert json.loads(command("evaluate", "m.ltls", "rows?.svm", "--json").out)["rows"] == 36
    result = command("predict", "m.ltls", "rows?.svm")
    assert "one file can be predicted at a time without --ray, got 2" in result.err
    assert command("predict", "m.ltls", "rows[0].svm").out.count("\n") == 18


def test_json_that_begins_like_a_model_file_is_data(folder, command):
    lines = [{"data": {"id": 1}, "text": f"w{n % 2}", "category": str(n % 2)} for n in range(30)]
    content = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / "rows.jsonl").write_text(content)
    assert command("train", "rows.jsonl", *ROWS, "-o", "m.ltls", "-q").code == 0


def test_the_terminal_says_why_it_streams(folder, command, monkeypatch):
    monkeypatch.setattr("ltls.cli.rows.available_memory", lambda: 1000)
    result = command("train", "rows.csv", *ROWS, "-o", "m.ltls", "--json")
    assert result.code == 0
    expected = (
        r"ltls: rows.csv is streamed: its rows need about [\d.]+ kB of memory, 1.0 kB is free; "
        r"--no-stream reads it into memory\n"
    )
    assert re.match(expected, result.err)
    result = command("train", "rows.csv", *ROWS, "-o", "m.ltls", "--json", "--no-stream", "-q")
    assert (result.code, result.err) == (0, "")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    result = command("train", "rows.csv", *ROWS, "-o", "m.ltls", "-v")
    assert "rows.csv is read into memory: its rows need about" in result.err
