"""The GPU kernels: on a GPU where there is one, else in Triton's interpreter."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch, which `make test-all` installs")
pytest.importorskip("triton", reason="needs triton, which `make test-all` installs")


def test_kernels_agree_with_the_enumeration_of_all_paths_in_the_interpreter():
    kernels = next(Path(__file__).parent.rglob("test_gpu_kernels.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", "-q", "-m", "gpu", kernels],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 30


def count_work():
    """Print what training steps ask of the GPU, and how far their results are from plain torch.

    In Triton's interpreter, with kernels as if the tensors were on a GPU.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from triton.runtime.interpreter import GridExecutor

    from ltls.torch import TrellisSoftmax, operators

    class Count(TorchDispatchMode):
        names, launching = [], False

        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if not self.launching:
                self.names.append(str(operator))
            return operator(*args, **(kwargs or {}))

    launch = GridExecutor.__call__

    def counted(kernel, *args, **kwargs):
        Count.names.append(f"triton {kernel.fn.__name__}")
        Count.launching = True
        launch(kernel, *args, **kwargs)
        Count.launching = False

    GridExecutor.__call__ = counted
    operators._on_gpu = lambda values: True
    y = torch.arange(9) * 100
    y[3] = -100
    for assignment in ("frequency", "random", torch.arange(999, -1, -1)):
        grads, names = [], None
        for fused in (True, False):
            torch.manual_seed(0)
            head = TrellisSoftmax(16, 1000, 8, assignment=assignment, fused=fused)
            x = torch.randn(9, 16, requires_grad=True)
            Count.names = []
            with Count():
                head(x, y).loss.backward()
            names = names or Count.names
            grads.append(torch.cat([x.grad, head.edges.weight.grad]))
        print(json.dumps({"names": names, "off": (grads[0] - grads[1]).abs().max().item()}))


def test_a_training_step_asks_little_of_the_host():
    # The host, which launches kernels one by one, is slower than a GPU that runs them.
    done = subprocess.run(
        [sys.executable, "-c", "import test_torch_kernels; test_torch_kernels.count_work()"],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    kernels = [sum(name.startswith("triton") for name in step["names"]) for step in found]
    assert kernels == [3, 4, 3]  # a random codebook has one of its own
    for step in found:
        assert step["off"] < 1e-5
        assert len(step["names"]) <= 36, step["names"]
