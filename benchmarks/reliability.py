"""How much was tried of what docs/reliability.md guarantees: inputs, crash points, forks, rows.

    python -m benchmarks.reliability [--minutes 9] [part ...]

A part continues where it stopped, until it has as many as it should; nothing is counted of a run
that finds something, or of files that are in no commit. Counts of earlier commits are kept; the
commit of the last run is stored with them. With a build that has sanitizers (`make reliability`),
the parts that change inputs are counted apart.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import machine

NAME = "reliability"
LIBFUZZER = machine.BUILD / "libfuzzer"
SEED = 17
PIECE_S = 120
IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a file system without a disk
EVERY_CALL = "test_files_are_the_old_ones_or_the_new_ones_whichever_call_is_the_last"
# The counts, and the page that shows them.
RESULTS = ("benchmarks/results/", "docs/")
SANITIZED = "ASAN_OPTIONS" in os.environ


# What a run measured: how many were "tried", and perhaps how long that took. Numbers add up over
# runs, but for those of the slowest.
Measured = dict[str, float]
# (first, most, seconds) to what was measured.
Run = Callable[[int, int, float], Measured]


@dataclass(frozen=True)
class Part:
    """Something of which as many as `target` are to be tried."""

    what: str
    how: str
    target: int
    run: Run
    with_sanitizers: bool = False  # whether a build with sanitizers is to be tried too


def changed_inputs(name: str) -> Run:
    """Return a run of a target of `tests.fuzz`."""

    def run(first: int, most: int, seconds: float) -> Measured:
        from tests.fuzz.__main__ import campaign

        outcome = campaign(name, SEED, min(seconds, PIECE_S), first, most)
        if outcome.findings:
            sys.exit(f"{name}: see build/fuzz; nothing is counted")
        return {"tried": outcome.inputs}

    return run


def guided_inputs(name: str, length: int) -> Run:
    """Return a run of a libFuzzer target, which keeps its corpus in build/libfuzzer."""

    def run(first: int, most: int, seconds: float) -> Measured:
        from tests.fuzz.readers import SEEDS

        program, corpus = LIBFUZZER / name, LIBFUZZER / f"{name}.corpus"
        if not program.exists():
            sys.exit(f"{program} is missing: make build/libfuzzer/{name}, which needs clang")
        corpus.mkdir(exist_ok=True)
        for number, suffix in enumerate((".svm", ".xmc") if name == "text" else ()):
            (corpus / f"seed{number}").write_bytes(SEEDS[suffix] + b"\0")
        limits = (f"-runs={most}", f"-max_total_time={int(seconds)}", f"-max_len={length}")
        words = (*limits, "-timeout=5", f"-seed={SEED + first}", "-print_final_stats=1")
        done = subprocess.run(
            [program, *words, corpus], capture_output=True, text=True, cwd=LIBFUZZER, check=False
        )
        if done.returncode:
            sys.exit(f"{name}: {done.stderr[-3000:]}\nnothing is counted")
        (count,) = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
        return {"tried": int(count)}

    return run


def tests(words: str, noun: str, *others: str) -> Run:
    """Return a run of tests that record how many of something they tried, and other numbers."""

    def run(first: int, most: int, seconds: float) -> Measured:
        path = machine.BUILD / "reliability.xml"
        chosen = (*words.split(), "-m", "not perf and not gpu and not clone")
        command = [sys.executable, "-m", "pytest", "-q", *chosen, "-o", "junit_family=xunit1"]
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            command += [f"--junitxml={path}", f"--basetemp={folder}/tests"]
            limited = {**os.environ, "LTLS_SOAK_SECONDS": str(max(seconds - 30, 1))}
            if subprocess.run(command, env=limited, check=False).returncode:
                sys.exit("a test failed; nothing is counted")
        measured: Measured = {}
        for each in ElementTree.parse(path).iter("property"):
            name, value = each.get("name", ""), each.get("value", "")
            if name in (noun, *others):
                add(measured, {"tried" if name == noun else name: json.loads(value)})
        return measured

    return run


PARTS = {
    "model_files": Part(
        "changed and resealed model files", "tests/fuzz", 10**5, changed_inputs("model_files"), True
    ),
    "checkpoints": Part(
        "changed and resealed checkpoints", "tests/fuzz", 10**4, changed_inputs("checkpoints"), True
    ),
    "readers": Part(
        "changed data files of all formats", "tests/fuzz", 10**5, changed_inputs("readers"), True
    ),
    "vectors": Part(
        "changed npy files and columns of vectors",
        "tests/fuzz",
        10**4,
        changed_inputs("vectors"),
        True,
    ),
    "text": Part(
        "texts for the parser of svmlight and XMC files",
        "libFuzzer, with sanitizers",
        10**7,
        guided_inputs("text", 256),
    ),
    "matrices": Part("changed CSR matrices", "tests/fuzz", 10**4, changed_inputs("matrices"), True),
    "degenerate": Part("degenerate data", "tests/fuzz", 10**4, changed_inputs("degenerate"), True),
    "rows": Part(
        "CSR arrays for the kernels",
        "libFuzzer, with sanitizers",
        10**5,
        guided_inputs("rows", 1024),
    ),
    "state_dicts": Part(
        "changed state dicts", "tests/fuzz", 10**4, changed_inputs("state_dicts"), True
    ),
    "http_requests": Part(
        "changed requests to a server", "tests/fuzz", 10**5, changed_inputs("http_requests"), True
    ),
    # All of them, in half an hour: a run that has counted any has tried every call.
    "crash": Part(
        "calls that failed or were the last one",
        "tests/crash",
        1,
        tests(
            "tests/crash --deselect tests/crash/test_interrupts.py"
            f" --deselect tests/crash/test_points.py::{EVERY_CALL}[some]",
            "calls",
        ),
    ),
    "interrupts": Part(
        "calls that Ctrl-C interrupted",
        "tests/crash",
        3000,
        tests("tests/crash/test_interrupts.py", "interrupts"),
    ),
    "calls": Part(
        "calls in random order",
        "tests/fuzz",
        10**4,
        tests("tests/fuzz/test_stateful.py --hypothesis-profile=explore", "calls"),
    ),
    "forks": Part(
        "forks beside predicting threads",
        "tests/model",
        10 * 100,
        tests("tests/model/test_predictor_threads.py -k child", "forks"),
    ),
    "soak": Part(
        "predictions within a budget of memory",
        "tests/soak",
        10**6,
        tests("tests/soak/test_soak.py", "predictions"),
    ),
    "server": Part(
        "requests beside hostile clients",
        "tests/soak",
        10**5,
        tests(
            "tests/soak/test_server.py",
            "requests",
            "seconds",
            "health_checks",
            "slowest_health_check_s",
        ),
    ),
}


def counted(key: str) -> int:
    """Return how many were tried in earlier runs."""
    return int(machine.read(NAME).get("counts", {}).get(key, {}).get("tried", 0))


def add(measured: Measured, more: Measured) -> None:
    """Add what another run measured."""
    for name, value in more.items():
        merge = max if name.startswith("slowest") else operator.add
        measured[name] = merge(measured.get(name, 0), value)


def count(key: str, measured: Measured) -> None:
    """Add to what is stored, which another process may have changed meanwhile."""
    counts = machine.read(NAME).get("counts", {})
    about = {**machine.description(), "command": "python -m benchmarks.reliability"}
    # Only results may have changed since that commit.
    last = {"date": about["date"], "commit": about["commit"].removesuffix("-dirty")}
    add(entry := {**counts.get(key, {}), **last}, measured)
    machine.write(NAME, {"about": about, "counts": dict(sorted({**counts, key: entry}.items()))})


def changed_files() -> list[str]:
    """Return the files that are not those of a commit, but for the results."""
    git = ["git", "-C", str(machine.ROOT), "status", "--porcelain"]
    done = subprocess.run(git, capture_output=True, text=True, check=True)
    changed = [line[3:] for line in done.stdout.splitlines()]
    return [path for path in changed if not path.startswith(RESULTS)]


def run_part(name: str, part: Part, end: float) -> None:
    """Run a part until it has enough or time is up, and store what was done."""
    key = f"{name}+sanitizers" if SANITIZED else name
    while (done := counted(key)) < part.target and (left := end - time.monotonic()) > 5:
        machine.say(f"{key}: {done:,} of {part.target:,}")
        count(key, part.run(done, part.target - done, left))
    machine.say(f"{key}: {done:,} of {part.target:,}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--minutes", type=float, default=9)
    options = parser.parse_args()
    if changed := changed_files():
        sys.exit(f"commit or remove {', '.join(changed)}: counts are stored with their commit")
    end = time.monotonic() + 60 * options.minutes
    for name in options.parts or PARTS:
        if PARTS[name].with_sanitizers or not SANITIZED:
            run_part(name, PARTS[name], end)


if __name__ == "__main__":
    main()
