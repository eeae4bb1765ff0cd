"""Calls of the C library that fail or are the last ones: writes, maps of files, allocations.

`test_crash.py` does so for calls from Python. Here it is a library between the process and the C
library (`shim.c`), which also sees what NumPy, safetensors and the engine call.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or COMPILER is None or "LD_PRELOAD" in os.environ,
    reason="needs Linux, a C compiler and a build without sanitizers",
)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    path = tmp_path_factory.mktemp("shim") / "shim.so"
    words = ("-O1", "-shared", "-fPIC", "-Wno-attributes", HERE / "shim.c", "-o", path)
    subprocess.run([COMPILER, *words], check=True)
    return path


def try_points(shim, folder, most, *chosen):
    """Return what `points.py` found."""
    done = subprocess.run(
        [sys.executable, HERE / "points.py", folder, str(most), *chosen],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "most", [2, pytest.param(sys.maxsize, marks=pytest.mark.long)], ids=["some", "every"]
)
def test_files_are_the_old_ones_or_the_new_ones_whichever_call_is_the_last(
    tmp_path, record_property, shim, most
):
    results = try_points(shim, tmp_path, most)
    record_property("calls", sum(each["tried"] for each in results))
    wrong = [
        f"{each['work']}, {each['fault']}: {each['wrong']}" for each in results if each["wrong"]
    ]
    assert not wrong, "\n".join(wrong)
    seen = {each["fault"] for each in results if each["calls"]}
    assert seen == {each["fault"] for each in results}  # each fault occurs in some work
    if most == sys.maxsize:
        assert all(each["tried"] == each["calls"] for each in results)


def test_failed_allocations_of_the_engine_are_memory_errors(tmp_path, shim):
    fault = "an allocation of the engine fails"
    (result,) = try_points(shim, tmp_path, 40, "use", fault)
    assert result["tried"] == 40
    assert not result["wrong"]
