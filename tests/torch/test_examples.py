"""The examples run, on a small part of their data."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: run make test-all")

EXAMPLES = Path(__file__).parents[2] / "examples"


def output_of(name, *options):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_transformer_head():
    lines = output_of("transformer_head.py", "--steps", "1", "--files", "3").splitlines()
    assert len(lines) == 4
    assert all("held-out loss" in line for line in lines[1:])


def test_skorch_head():
    pytest.importorskip("skorch", reason="needs skorch: run make test-all")
    accuracy = output_of("skorch_head.py").split()[-1]
    assert float(accuracy) > 0.9


def test_replace_softmax():
    lines = output_of("replace_softmax.py", "--steps", "100", "--files", "12").splitlines()
    before, fitted, trained = (float(line.split()[-1]) for line in lines)
    assert trained < fitted
    assert trained < before + 0.1
