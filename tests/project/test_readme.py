"""The first ten minutes: every command of the README, in a fresh clone of the repository."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tickets import TICKETS

ROOT = Path(__file__).parents[2]
# Fenced blocks, and commands within sentences, in the order in which they are read.
COMMANDS = re.compile(
    r"^```(?P<language>sh|python)\n(?P<block>.*?)^```"
    r"|(?<!`)`(?P<inline>(?:make|pip|ltls|\.venv/bin/\w+) [^`\n]+)`(?!`)",
    re.M | re.S,
)


def commands(readme):
    """Return (language, code) of all that a reader is told to run."""
    for found in COMMANDS.finditer(readme):
        yield found["language"] or "sh", found["block"] or found["inline"]


def environment(clone):
    """Return that of a user's shell: nothing of the run that we are part of."""
    ours = ("MAKE", "MFLAGS", "PYTEST", "PYTHON", "VIRTUAL_ENV", "LTLS", "UPDATE_GOLDEN")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {
        **kept,
        "PATH": f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(clone / "constraints.txt"),
        # All the tests are what runs just now: those of one file show that `make test` works.
        "PYTEST_ADDOPTS": "-k test_metrics",
    }


def test_commands_are_found():
    found = list(commands((ROOT / "README.md").read_text("utf-8")))
    shell = (code for language, code in found if language == "sh")
    words = [line.split()[:2] for code in shell for line in code.splitlines()]
    for wanted in ("make demo", "make test", "make docs", "pip install", "ltls train"):
        assert wanted.split() in words
    assert sum(language == "python" for language, _ in found) == 2


@pytest.mark.clone
@pytest.mark.skipif(os.name == "nt", reason="the commands are written for a POSIX shell")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
@pytest.mark.skipif(not (shutil.which("git") and shutil.which("make")), reason="needs git and make")
def test_every_command_works_in_a_fresh_clone(tmp_path):
    clone, folder = tmp_path / "ltls", tmp_path / "elsewhere"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    folder.mkdir()
    for name in ("tickets.csv", "held_out.csv"):
        (folder / name).write_text(TICKETS)
    python = clone / ".venv" / "bin" / "python"
    for language, code in commands((clone / "README.md").read_text("utf-8")):
        here = re.match(r"make|pip|\.venv", code)  # what is done in the clone itself
        done = subprocess.run(
            ["sh", "-e", "-c", code] if language == "sh" else [python, "-c", code],
            cwd=clone if here else folder,
            env=environment(clone),
            input="for i in\n\n",  # typed into `ltls demo --interactive`
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=600,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        if "make demo" in code:
            assert float(re.search(r"ltls\s*│\s*(0\.\d+)", done.stdout)[1]) >= 0.5
            assert "passed" in done.stdout  # of make test
        if "--interactive" in code:
            assert re.search(r"%.* range\n", done.stdout)
    for made in ("demo/path.png", "demo/accuracy.png", "build/docs/index.html"):
        assert (clone / made).exists()
    assert (folder / "report.html").exists()
    left = subprocess.run(["git", "status", "--short"], cwd=clone, capture_output=True, text=True)
    assert left.stdout == ""  # what is made there is what git ignores
