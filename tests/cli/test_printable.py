"""Labels, columns and versions in a file cannot send escape sequences to a terminal."""

import json
import os
import subprocess
import sys

import pytest

from ltls import TextClassifier
from ltls.cli.output import printable

ESCAPE = "\x1b]0;title\x07\x9b31m\u202e"  # a title, a color by a C1 character, reversed text
pty = pytest.importorskip("pty", reason="needs pseudo-terminals")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nżółć ☃", "plain\ttext\nżółć ☃"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\rb\x08c\x7fd\x00", r"a\rb\x08c\x7fd\x00"),
        ("\x9b31m\u202e\u2066", r"\x9b31m\u202e\u2066"),
    ],
)
def test_control_characters_are_shown_as_escapes(text, shown):
    assert printable(text) == shown


@pytest.fixture
def folder(tmp_path):
    texts = ["one card", "two cards", "three fees", "four fees"]
    model = TextClassifier(random_state=0)
    model.fit(texts, [f"card{ESCAPE}", f"card{ESCAPE}", f"fee{ESCAPE}", f"fee{ESCAPE}"])
    model.record_source(columns={"text": f"text{ESCAPE}", "label": "label", "features": []})
    model.save(tmp_path / "model.ltls")
    (tmp_path / "rows.txt").write_text("a card\na fee\n")
    (tmp_path / "table.csv").write_text(f"word{ESCAPE},label\na card,card\n")
    return tmp_path


def on_terminal(folder, *words):
    """Run a command on a terminal; return what it wrote to it."""
    shown, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ltls", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "200", "NO_COLOR": "1"},
    ):
        os.close(terminal)
        parts = []
        while True:
            try:
                part = os.read(shown, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            parts.append(part)
    os.close(shown)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("predict", "model.ltls", "rows.txt", "--text", "-q"), r"card\x1b]0;title\x07\x9b31m"),
        (("info", "model.ltls"), r"text=text\x1b]0;title\x07\x9b31m\u202e"),
        (("predict", "model.ltls", "table.csv", "-q"), r"word\x1b]0;title\x07"),
    ],
    ids=["labels", "info", "an error"],
)
def test_nothing_from_a_file_controls_the_terminal(folder, words, expected):
    shown = on_terminal(folder, *words)
    assert not set(shown) & set(ESCAPE) - set("[]0;title31m")
    assert expected in shown


def test_a_pipe_gets_labels_as_they_are(folder, command):
    words = ("predict", folder / "model.ltls", folder / "rows.txt", "--text", "-q", "-k", 1)
    lines = command(*words).out.splitlines()
    assert lines[0].startswith(f"card{ESCAPE}:")
    assert json.loads(command(*words, "--json").out.splitlines()[1])["labels"] == [f"fee{ESCAPE}"]
