"""What the terminal shows: options, messages of mistakes, shell completion."""

import os
import subprocess
import sys

import pytest

from ltls import LTLSClassifier
from ltls.cli.app import COMMANDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    (folder / "tickets.csv").write_text("text,kind\nlost my card,card\nwhat fee,fee\n")
    (folder / "bad.csv").write_text("text,kind\nlost my card,card\nwhat, fee,fee\n")
    (folder / "latin.csv").write_bytes("text,kind\ncafé,card\n".encode("latin-1"))
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


def test_options(assert_golden):
    """All options of all commands, in the order of the help; their help is where they are."""
    lines = []
    for command in COMMANDS:
        if command.name == "serve":  # which has tests of its own
            continue
        loaded = command.load()
        names = [" ".join([*each.opts, *each.secondary_opts]) for each in loaded.params]
        assert all(each.help for each in loaded.params)
        lines.append(f"{command.name}: {', '.join(names)}\n")
    assert_golden("options.txt", "".join(lines))


@pytest.mark.parametrize("about", COMMANDS, ids=lambda about: about.name)
def test_help_has_examples(command, about):
    text = command(about.name, "--help").out
    assert about.help in text
    assert all(line in text for line in about.examples)


def test_mistakes_are_one_line_each(folder, monkeypatch, assert_mistakes):
    monkeypatch.chdir(folder)
    assert_mistakes("mistakes.txt")


def test_shell_completion(folder):
    """The variables that a shell sets, so that no shell has to be detected."""
    typed = {"_LTLS_COMPLETE": "complete_bash", "COMP_WORDS": "ltls ", "COMP_CWORD": "1"}
    assert set(shown(folder, [], **typed).split()) >= {command.name for command in COMMANDS}
    typed |= {"COMP_WORDS": "ltls train --wid", "COMP_CWORD": "2"}
    assert shown(folder, [], **typed).split() == ["--width"]
    typed |= {"COMP_WORDS": "ltls train --format js", "COMP_CWORD": "3"}
    assert shown(folder, [], **typed).split() == ["jsonl"]
    assert "_LTLS_COMPLETE" in shown(folder, [], _LTLS_COMPLETE="source_bash")
