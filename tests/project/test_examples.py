"""The examples that need no torch run, and find what they claim to find."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "figure", "at_least"),
    [
        ("text_tagging.py", r"held-out texts: (0\.\d+)", 0.7),
        ("embeddings.py", r"ltls: (0\.\d+)", 0.5),
        ("next_item.py", r"next item: (0\.\d+)", 0.5),
        ("online_labels.py", r"day 9: 10 classes, .* accuracy (0\.\d+)", 0.9),
    ],
)
def test_example(name, figure, at_least, tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(figure, done.stdout)
    assert found, done.stdout
    assert float(found[1]) >= at_least
