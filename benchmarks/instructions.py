"""Count the instructions of the three hot paths, and fail where one has grown by a tenth.

    python benchmarks/instructions.py [--update]

Times on a busy machine say little; counts under callgrind are the same every time. The kernels are
compiled for AVX2 with the flags of CMakeLists.txt. They depend on the compiler, so
benchmarks/instructions.json has a baseline for each that was used; --update writes one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BASELINE = Path(__file__).with_suffix(".json")
FLAGS = ["-std=c++20", "-O3", "-fno-math-errno", "-fno-trapping-math", "-w"]
FLAGS += ["-mavx2", "-mfma", "-mbmi", "-mbmi2"]
SOURCES = ["benchmarks/instructions.cpp", "cpp/kernels.cpp", "cpp/dispatch.cpp"]
PATHS = {"score": 200, "top5": 50, "update": 50}  # and how often to repeat each
ROWS = 64  # of every repeat
LIMIT = 1.1


def build(compiler: str) -> Path:
    program = ROOT / "build" / "instructions"
    program.parent.mkdir(exist_ok=True)
    subprocess.run([compiler, *FLAGS, *SOURCES, "-o", str(program)], cwd=ROOT, check=True)
    return program


def count(program: Path, path: str, repeats: int) -> int:
    """Return the instructions of a whole run."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*command, str(program), path, str(repeats)], capture_output=True, text=True, check=True
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise SystemExit(f"callgrind said nothing of instructions:\n{done.stderr}")
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="make the counts found the baseline")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is missing, instructions are not counted; on Debian: apt install valgrind")
        return
    compiler = os.environ.get("CXX", "c++")
    asked = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    version = asked.stdout.splitlines()[0]
    program = build(compiler)
    # What a run costs before and after the work falls out of the difference.
    found = {
        path: (count(program, path, 2 * n) - count(program, path, n)) / (n * ROWS)
        for path, n in PATHS.items()
    }
    baselines = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    known = baselines.get(version, {})
    print(f"instructions per row, AVX2, {version}")
    for path, instructions in found.items():
        before = f"baseline {known[path]:,.0f}" if path in known else "no baseline"
        print(f"  {path:8} {instructions:10,.0f}   {before}")
    if args.update:
        baselines[version] = {path: round(instructions) for path, instructions in found.items()}
        BASELINE.write_text(json.dumps(baselines, indent=1) + "\n")
    grown = [path for path in known if found[path] > LIMIT * known[path]]
    if grown and not args.update:
        sys.exit(f"more than a tenth above the baseline: {', '.join(grown)}")


if __name__ == "__main__":
    main()
