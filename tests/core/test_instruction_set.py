"""The environment selects the instruction set of the engine."""

import os
import subprocess
import sys

import pytest

from ltls.core import _engine

SHOW = "from ltls.core import _engine; print(_engine.instruction_set())"


def run(name):
    return subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**os.environ, "LTLS_INSTRUCTION_SET": name},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["", *_engine.instruction_sets()])
def test_the_environment_selects_one_that_the_machine_has(name):
    shown = run(name)
    assert shown.stdout.strip() == (name or _engine.instruction_sets()[-1])


def test_another_one_is_an_error_that_names_those_there_are():
    shown = run("avx1024")
    assert shown.returncode != 0
    known = ", ".join(_engine.instruction_sets())
    assert (
        f"LTLS_INSTRUCTION_SET must be one of this machine's instruction sets ({known}), "
        "got 'avx1024'"
    ) in shown.stderr


def test_it_can_be_changed_in_a_process():
    before = _engine.instruction_set()
    assert _engine.use_instruction_set("baseline") == before
    assert _engine.instruction_set() == "baseline"
    _engine.use_instruction_set(before)
    with pytest.raises(ValueError, match="name must be one of this machine's instruction sets"):
        _engine.use_instruction_set("none")
