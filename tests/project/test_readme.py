"""The first ten minutes: every command of the README, in a fresh clone of the repository."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tickets import TICKETS

ROOT = Path(__file__).parents[2]


def commands(readme):
    """Return (language, code) of all that is run in a clone: what installs it comes first."""
    found = re.findall(r"^```(sh|python)\n(.*?)^```", readme, re.M | re.S)
    inline = re.findall(r"`((?:make \w+|pip install '\.)[^`\n]*)`", readme)
    found += [("sh", code) for code in inline]
    return sorted(found, key=lambda each: not each[1].startswith(("make", "pip")))


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
    found = commands((ROOT / "README.md").read_text("utf-8"))
    shell = "\n".join(code for language, code in found if language == "sh")
    for wanted in ("make demo", "make test", "make docs", "pip install", "ltls train"):
        assert re.search(rf"^{wanted}\b", shell, re.M)
    assert sum(language == "python" for language, _ in found) == 3


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
        here = code.startswith(("make", "pip"))  # what is done in the clone itself
        done = subprocess.run(
            ["sh", "-e", "-c", code] if language == "sh" else [python, "-c", code],
            cwd=clone if here else folder,
            env=environment(clone),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=600,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        if "make test" in code:
            assert "passed" in done.stdout
    for made in ("demo/path.png", "demo/accuracy.png", "build/docs/index.html"):
        assert (clone / made).exists()
    assert (folder / "report.html").exists()
    left = subprocess.run(["git", "status", "--short"], cwd=clone, capture_output=True, text=True)
    assert left.stdout == ""  # what is made there is what git ignores
