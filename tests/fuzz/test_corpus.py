"""Inputs that once crashed, hung, took memory or raised a foreign error, and others like them.

`make fuzz` looks for more (see `tests/fuzz/__main__.py`).
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.__main__ import TARGETS, limited, missing, target_of, warm_up

CORPUS = Path(__file__).parent / "corpus"
SAMPLES = {
    "model_files": 500,
    "checkpoints": 100,
    "readers": 100,
    "vectors": 60,
    "matrices": 60,
    "degenerate": 60,
    "state_dicts": 60,
    "http_requests": 100,
}
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


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in TARGETS])
def test_a_sample_of_changed_inputs(name, tmp_path):
    """Every input is a function of the seed and its number, so that a run is repeated exactly."""
    target, accepted = target_of(name), []
    warm_up(name)
    for number in range(SAMPLES[name]):
        suffix, content = target.generate(np.random.default_rng([1, number]), str(tmp_path))
        if number < 5:
            again = target.generate(np.random.default_rng([1, number]), str(tmp_path))
            assert (suffix, content) == again
        with limited(len(content)):
            accepted.append(bool(target.run(content, tmp_path / f"input{suffix}")))
    assert True in accepted
    assert False in accepted


@pytest.mark.parametrize("name", ["model_files", "checkpoints"])
def test_changes_reach_every_section(name):
    """What is declared is known to the mutator: it changes all of that."""
    for contents, _ in target_of(name).contents():
        assert set(contents.declared.arrays) == set(contents.tensors)
        declared = (*contents.declared.values, *contents.declared.arrays)
        others = set(contents.description) - {place.split(".")[0] for place in declared}
        assert others <= {"parameters", "threshold", "codebooks", "rows"}
