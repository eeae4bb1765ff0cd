"""Inputs that once crashed, hung, took memory or raised a foreign error, and others like them.

`make fuzz` looks for more (see `tests/fuzz/__main__.py`).
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.__main__ import TARGETS, limited, missing, target_of, warm_up

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


def needs(name, path=None):
    """Return the conditions of a target, or of one of its inputs."""
    if missing(name):
        return [pytest.mark.skip(reason=f"needs {missing(name)}: run make test-all")]
    if path and path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        return [pytest.mark.skip(reason="pyarrow is missing; make test-all installs it")]
    return []


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, marks=needs(path.parent.name, path), id=f"{path.parent.name}/{path.name}"
        )
        for path in INPUTS
    ],
)
def test_an_input_is_accepted_or_rejected_in_time_and_memory(path, tmp_path):
    content, target = path.read_bytes(), target_of(path.parent.name)
    warm_up(path.parent.name)
    with limited(len(content)):
        target.run(content, tmp_path / f"input{''.join(path.suffixes)}")


def test_every_target_has_a_corpus():
    assert {path.parent.name for path in INPUTS} == set(TARGETS)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=needs(name)) for name in TARGETS],
)
def test_inputs_are_generated_from_their_number(name, tmp_path):
    target, accepted = target_of(name), set()
    for number in range(12):
        suffix, content = target.generate(np.random.default_rng([1, number]), str(tmp_path))
        again = target.generate(np.random.default_rng([1, number]), str(tmp_path))
        assert (suffix, content) == again
        accepted.add(bool(target.run(content, tmp_path / f"input{suffix}")))
    assert accepted
