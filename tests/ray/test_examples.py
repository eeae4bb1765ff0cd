"""The examples of Ray run on this machine and on a cluster, and find what they claim to find."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs ray: run make test-all")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "local", "figure", "at_least"),
    [
        ("ray_score.py", True, r"20000 rows scored, (\d+) of them different", 20_000),
        ("ray_train.py", False, r"accuracy on 1000 other rows: (0\.\d+|1\.0+)", 0.9),
        ("ray_deep_head.py", False, r"held-out accuracy: (0\.\d+)", 0.85),
    ],
)
def test_example(cluster, name, local, figure, at_least, tmp_path):
    if name == "ray_deep_head.py":
        pytest.importorskip("torch", reason="needs torch: run make test-all")
    address = [] if local else ["--address", cluster.get_runtime_context().gcs_address]
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *address], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = re.search(figure, done.stdout)
    assert found, done.stdout
    assert float(found[1]) >= at_least
