"""What the terminal shows: options, messages of mistakes, shell completion.

``UPDATE_GOLDEN=1 pytest tests/cli/test_golden.py`` updates the files; review the difference.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ltls
from ltls import LTLSClassifier
from ltls.cli.app import COMMANDS

GOLDEN = Path(__file__).parent / "golden"
MISTAKES = [
    "train ticket.csv --text text --label kind -o m.ltls",
    "train nowhere/rows.csv --text text --label kind -o m.ltls",
    "train tickets.csv -o m.ltls",
    "train tickets.csv --text txt --label kind -o m.ltls",
    "train tickets.csv --text text --label kinds -o m.ltls",
    "train tickets.csv --text text --label text --features kind -o m.ltls",
    "train tickets.csv --text text --number kind --label kind -o m.ltls",
    "train tickets.csv --text text --category text --label kind -o m.ltls",
    "train bad.csv --text text --label kind -o m.ltls",
    "train bad.txt -o m.ltls",
    "train tickets.csv --text text --label kind -o nowhere/m.ltls",
    "train tickets.csv --text text --label kind -o m.ltls --set features.ngram_range=3,x",
    "train tickets.csv --text text --label kind -o m.ltls --resume",
    "predict newer.ltls tickets.csv",
    "predict tickets.csv tickets.csv",
    "predict features.ltls tickets.csv",
    "predict features.ltls bad.txt",
    "predict features.ltls wide.txt",
    "evaluate features.ltls wide.txt --report report.doc",
    "convert tickets.csv tickets.svm",
    "predict features.ltls lines.txt --text",
    "convert tickets.csv tickets",
    "train tickets.csv --text text --label kind -o m.ltls --n-jobs 0",
    "fly",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    (folder / "tickets.csv").write_text("text,kind\nlost my card,card\nwhat fee,fee\n")
    (folder / "bad.csv").write_text("text,kind\nlost my card,card\nwhat, fee,fee\n")
    (folder / "bad.txt").write_text("1 1:1\n2 2:two\n")
    (folder / "wide.txt").write_text("1 1:1\n2 9:1\n")
    (folder / "lines.txt").write_text("lost my card\n")
    LTLSClassifier().fit([[1, 0], [0, 1]], [1, 2]).save(folder / "features.ltls")
    content = (folder / "features.ltls").read_bytes()
    newer = content.replace(b'"format_version":"1"', b'"format_version":"9"')
    (folder / "newer.ltls").write_bytes(newer)
    return folder


def shown(folder, words, **environment):
    """Return what the real entry point shows."""
    settings = {"COLUMNS": "88", "TERM": "dumb", "NO_COLOR": "1", "LANG": "C.UTF-8", **environment}
    kept = {key: value for key, value in os.environ.items() if key not in settings}
    result = subprocess.run(
        [sys.executable, "-m", "ltls", *words],
        cwd=folder,
        env={**kept, **settings},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    return result.stdout + result.stderr


def check(name, text):
    path = GOLDEN / name
    text = text.replace(ltls.__version__, "VERSION")
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    # The words and their order; how lines are broken is the business of typer.
    assert text.split() == path.read_text(encoding="utf-8").split()


def test_options():
    """All options of all commands, in the order of the help; their help is where they are."""
    lines = []
    for command in COMMANDS:
        if command.name == "serve":  # which has tests of its own
            continue
        loaded = command.load()
        names = [" ".join([*each.opts, *each.secondary_opts]) for each in loaded.params]
        assert all(each.help for each in loaded.params)
        lines.append(f"{command.name}: {', '.join(names)}\n")
    check("options.txt", "".join(lines))


@pytest.mark.parametrize("about", COMMANDS, ids=lambda about: about.name)
def test_help_has_examples(command, about):
    text = command(about.name, "--help").out
    assert about.help in text
    assert all(line in text for line in about.examples)


def test_mistakes_are_one_line_each(folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    before, text = sorted(os.listdir(folder)), ""
    for words in MISTAKES:
        result = command(*words.split())
        assert (result.code, result.out) == (2, ""), words
        assert result.err.startswith("ltls: ")
        assert result.err.count("\n") == 1
        text += f"$ ltls {words}\n{result.err}"
    check("mistakes.txt", text)
    assert sorted(os.listdir(folder)) == before


def test_shell_completion(folder):
    """The variables that a shell sets, so that no shell has to be detected."""
    typed = {"_LTLS_COMPLETE": "complete_bash", "COMP_WORDS": "ltls ", "COMP_CWORD": "1"}
    assert set(shown(folder, [], **typed).split()) >= {command.name for command in COMMANDS}
    typed |= {"COMP_WORDS": "ltls train --wid", "COMP_CWORD": "2"}
    assert shown(folder, [], **typed).split() == ["--width"]
    typed |= {"COMP_WORDS": "ltls train --format js", "COMP_CWORD": "3"}
    assert shown(folder, [], **typed).split() == ["jsonl"]
    assert "_LTLS_COMPLETE" in shown(folder, [], _LTLS_COMPLETE="source_bash")
