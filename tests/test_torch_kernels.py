"""The GPU kernels: on a GPU where there is one, else in Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch, which `make test-all` installs")
pytest.importorskip("triton", reason="needs triton, which `make test-all` installs")

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "check_gpu_kernels.py"


def run(*options, **environment):
    return subprocess.run(
        [sys.executable, SCRIPT, *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_kernels_agree_with_the_enumeration_of_all_paths_in_the_interpreter():
    done = run("--device", "cpu", "--quick", TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 of 25 agree" in done.stdout


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernels_agree_with_the_enumeration_of_all_paths_on_the_gpu():
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
