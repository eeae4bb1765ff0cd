"""Files for the commands to read, models that they have written, and what they say of mistakes."""

import os
import re
import shlex
from pathlib import Path

import pytest

import ltls

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """The working directory, with the rows of the module in all of its `FORMS`."""
    monkeypatch.chdir(tmp_path)
    for name, text in request.module.FORMS.items():
        (tmp_path / f"rows.{name}").write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def model_file():
    """What the first training wrote, for all tests that only need a model."""
    return []


@pytest.fixture
def assert_golden():
    """Compare a text with a file; ``UPDATE_GOLDEN=1`` writes the file, review the difference."""

    def check(name, text):
        path, text = GOLDEN / name, text.replace(ltls.__version__, "VERSION")
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        # The words and their order; how lines are broken is the business of typer.
        assert text.split() == path.read_text(encoding="utf-8").split()

    return check


@pytest.fixture
def assert_mistakes(command, assert_golden):
    """Run the commands in a golden file: each is an error of one line, and changes no file.

    In the file, "..." stands for words of the system or of another package.
    """

    def check(name):
        before, text = sorted(os.listdir()), ""
        for block in re.split(r"^\$ ltls ", (GOLDEN / name).read_text("utf-8"), flags=re.M)[1:]:
            words, known = block.split("\n", 1)
            result = command(*shlex.split(words))
            assert (result.code, result.out) == (2, ""), words
            assert result.err.startswith("ltls: ")
            assert result.err.index("\n") == len(result.err) - 1 < 600
            pattern = re.escape(known).replace(re.escape("..."), ".*")
            text += f"$ ltls {words}\n{known if re.fullmatch(pattern, result.err) else result.err}"
        assert_golden(name, text)
        assert sorted(os.listdir()) == before

    return check
