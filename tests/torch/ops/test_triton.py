"""The Triton kernels, in Triton's interpreter: it needs no GPU, but a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: run make test-all")
pytest.importorskip("triton", reason="needs triton: run make test-all")

CASES = Path(__file__).with_name("test_gpu_kernels.py")


def test_kernels_in_the_interpreter():
    options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "--noconftest", "-m", "gpu"]
    environment = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--import-mode=importlib", *options, CASES],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
