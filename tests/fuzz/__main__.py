"""Fuzzing: changed inputs for everything that reads what others wrote.

    python -m tests.fuzz [--seconds 30 | --inputs 100000] [--seed 0] [target ...]
    python -m tests.fuzz --replay FOLDER

The second form runs the inputs of a folder that has a folder per target, such as a corpus. Every
generated input is a function of the seed and its number, so that a run is repeated exactly. A
target runs in a process of its own, with limits for every input: 5 s of processor time and a minute
in all, 4 times its size plus 64 MiB of memory, and 64 MiB more of addresses, for the stacks of
threads. What crashes, hangs, takes more, or raises a foreign error is written to build/fuzz; once
it is fixed, it belongs into the corpus.
"""

import argparse
import collections
import functools
import importlib
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

TARGETS = (
    "model_files", "checkpoints", "readers", "vectors", "matrices", "degenerate", "state_dicts",
    "http_requests",
)  # fmt: skip
NEEDS = {"state_dicts": "torch", "http_requests": "starlette"}
FINDINGS = Path("build", "fuzz")
LIMIT_S = 5  # of processor time: other processes may be running
LONGEST_S = 60  # for those that wait
SLACK = 64 << 20  # of memory
ADDRESSES = 64 << 20  # that need not be memory
MEASURED = sys.platform == "linux" and "ASAN_OPTIONS" not in os.environ
IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a file system without a disk


def missing(name):
    """Return the package that a target needs and that is not there; None if it can run."""
    package = NEEDS.get(name)
    return package if package and importlib.util.find_spec(package) is None else None


def target_of(name):
    return importlib.import_module(f"tests.fuzz.{name}")


@functools.cache
def warm_up(name):
    """Import what a target needs and start its threads, which takes memory once."""
    _ = np.ones((600, 600)) @ np.ones((600, 600))  # OpenBLAS has buffers for every thread
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        for number in range(20):
            rng = np.random.default_rng([10**6, number])
            suffix, content = target_of(name).generate(rng, folder)
            with suppress(Exception):
                target_of(name).run(content, Path(folder, f"input{suffix}"))


class TooSlowError(Exception):
    """An input took too long."""


class TooMuchMemoryError(Exception):
    """An input took memory that its size does not justify."""


def _too_slow(*_):
    raise TooSlowError


def _limit_memory(n_bytes):
    """Limit what this process may allocate from now on; None removes the limit."""
    import resource

    if n_bytes is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        n_bytes += used
    unlimited = resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_AS, (unlimited if n_bytes is None else n_bytes, unlimited))


def _peak_memory():
    """Return the most memory that this process had since the last call, in bytes."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) << 10


@contextmanager
def limited(n_bytes):
    """Raise an error in this block if an input of `n_bytes` takes too long or too much memory."""
    most = 4 * n_bytes + SLACK
    before = {each: signal.signal(each, _too_slow) for each in (signal.SIGALRM, signal.SIGPROF)}
    if MEASURED:
        _peak_memory()
        used = _peak_memory()
        _limit_memory(most + ADDRESSES)
    signal.alarm(LONGEST_S)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if MEASURED:
            _limit_memory(None)
        for each, handler in before.items():
            signal.signal(each, handler)
    if MEASURED and (taken := _peak_memory() - used) > most:
        raise TooMuchMemoryError(f"{taken:,} bytes for an input of {n_bytes:,}")


def attempt(name, number, suffix, content, folder):
    """Run one input within the limits; report and keep it if it is a finding."""
    path = folder / f"input{suffix}"
    (folder / "current").write_bytes(content)
    (folder / "current.name").write_text(f"{number}{suffix}")
    try:
        with limited(len(content)):
            return bool(target_of(name).run(content, path))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{Path(f.filename).name}:{f.lineno}" for f in frames][-3:]
        reason = f"{type(error).__name__}: {error}"
        _report(found=number, suffix=suffix, reason=reason[:300], where=where)
        _keep(name, number, suffix, content)
        return False


def work(name, seed, first, most, seconds, folder):
    """Run inputs of a target until time is up or there were enough; report as JSON lines."""
    warm_up(name)
    target, end = target_of(name), time.monotonic() + seconds
    number, accepted = first, 0
    while time.monotonic() < end and number < first + most:
        suffix, content = target.generate(np.random.default_rng([seed, number]), str(folder))
        accepted += attempt(name, number, suffix, content, folder)
        number += 1
    _report(done=number - first, accepted=accepted)


def replay(folder):
    """Run the inputs of a folder; return the number of findings."""
    findings = 0
    for name in TARGETS:
        inputs = sorted(path for path in Path(folder, name).glob("*") if path.is_file())
        if inputs and not missing(name):
            process = subprocess.run(
                [sys.executable, "-m", "tests.fuzz", "--worker-replay", name, folder],
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            print(process.stdout, end="")
            crashed = process.returncode != 0
            found = process.stdout.count('"found"') + crashed
            print(f"{name}: {len(inputs):,} inputs of {folder}, {found} findings")
            findings += found
    return findings


def work_replay(name, folder):
    """Run the inputs of a target in a folder."""
    warm_up(name)
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(Path(folder, name).glob("*")):
            suffix = "".join(path.suffixes)
            attempt(name, path.name.removesuffix(suffix), suffix, path.read_bytes(), Path(scratch))


def _report(**facts):
    print(json.dumps(facts), flush=True)


def _keep(name, number, suffix, content):
    FINDINGS.mkdir(parents=True, exist_ok=True)
    (FINDINGS / f"{name}-{number}{suffix}").write_bytes(content)


@dataclass
class Outcome:
    """What a campaign did: numbers of inputs, and the reasons of its findings."""

    inputs: int = 0
    accepted: int = 0
    kinds: collections.Counter = field(default_factory=collections.Counter)

    @property
    def findings(self):
        return sum(self.kinds.values())


def campaign(name, seed, seconds, first=0, most=sys.maxsize):
    """Run a target from input `first` on, again after a crash; print and return what happened."""
    end, outcome = time.monotonic() + seconds, Outcome()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        while (left := end - time.monotonic()) > 0 and outcome.inputs < most:
            start = first + outcome.inputs
            words = (name, str(seed), str(start), str(most - outcome.inputs), str(left), folder)
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz", "--worker", *words],
                stdout=subprocess.PIPE,
                text=True,
            )
            done = None
            for line in process.stdout:
                facts = json.loads(line)
                if "done" in facts:
                    done = facts["done"]
                    outcome.accepted += facts["accepted"]
                else:
                    outcome.kinds[facts["reason"][:120], str(facts["where"])] += 1
            code = process.wait()
            if done is not None:
                outcome.inputs += done
                break
            current = Path(folder, "current.name")
            if not current.exists():
                sys.exit(f"{name}: the worker ended with {code} before its first input")
            number, _, suffix = current.read_text().partition(".")
            _keep(name, number, f".{suffix}", Path(folder, "current").read_bytes())
            outcome.kinds[f"the process ended with {code}", number] += 1
            outcome.inputs = int(number) + 1 - first
    print(
        f"{name}: {outcome.inputs:,} inputs, {outcome.accepted:,} accepted, "
        f"{outcome.findings:,} findings"
    )
    for (reason, where), count in outcome.kinds.most_common(20):
        print(f"  {count} × {reason} at {where}")
    return outcome


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, help="for each target (default: 30)")
    parser.add_argument("--inputs", type=int, help="for each target, in place of seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", metavar="FOLDER")
    parser.add_argument("--worker", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--worker-replay", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, seed, first, most, seconds, folder = options.worker
        work(name, int(seed), int(first), int(most), float(seconds), Path(folder))
        return
    if options.worker_replay:
        work_replay(*options.worker_replay)
        return
    shutil.rmtree(FINDINGS, ignore_errors=True)
    if options.replay:
        sys.exit(bool(replay(options.replay)))
    usual = 30 if options.inputs is None else math.inf
    seconds = usual if options.seconds is None else options.seconds
    most = sys.maxsize if options.inputs is None else options.inputs
    n_found = 0
    for name in options.targets or TARGETS:
        if missing(name):
            print(f"{name}: left out, {missing(name)} is missing (make test-all installs it)")
            continue
        n_found += campaign(name, options.seed, seconds, most=most).findings
    sys.exit(bool(n_found))


if __name__ == "__main__":
    main()
