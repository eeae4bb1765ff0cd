"""Fuzzing: changed inputs for everything that reads what others wrote.

    python -m tests.fuzz [--seconds 30 | --inputs 100000] [--seed 0] [target ...]

Every input is a function of the seed and its number, so that a run is repeated exactly. A target
runs in a process of its own, with limits of 5 s and of 4 times the input plus 16 MiB of memory (and
64 MiB for the interpreter) for every input. What crashes, hangs, takes more, or raises a foreign
error is written to build/fuzz; once it is fixed, it belongs into the corpus.
"""

import argparse
import collections
import functools
import importlib
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

TARGETS = ("model_files", "checkpoints", "readers", "matrices", "state_dicts", "http_requests")
NEEDS = {"state_dicts": "torch", "http_requests": "fastapi"}
FINDINGS = Path("build", "fuzz")
LIMIT_S = 5
SLACK = (16 + 64) << 20


def missing(name):
    """Return the package that a target needs and that is not there; None if it can run."""
    package = NEEDS.get(name)
    return package if package and importlib.util.find_spec(package) is None else None


def target_of(name):
    return importlib.import_module(f"tests.fuzz.{name}")


@functools.cache
def warm_up(name):
    """Import what a target needs and start its threads, which takes memory once."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(20):
            rng = np.random.default_rng([10**6, number])
            suffix, content = target_of(name).generate(rng, folder)
            with suppress(Exception):
                target_of(name).run(content, Path(folder, f"input{suffix}"))


class TooSlowError(Exception):
    """An input took too long."""


def _too_slow(*_):
    raise TooSlowError


def _limit_memory(n_bytes):
    """Limit what this process may allocate from now on; None removes the limit."""
    if sys.platform != "linux" or "ASAN_OPTIONS" in os.environ:
        return
    import resource

    if n_bytes is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        n_bytes += used
    unlimited = resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_AS, (unlimited if n_bytes is None else n_bytes, unlimited))


@contextmanager
def limited(n_bytes):
    """Raise an error in this block if an input of `n_bytes` takes too long or too much memory."""
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(LIMIT_S)
    _limit_memory(4 * n_bytes + SLACK)
    try:
        yield
    finally:
        signal.alarm(0)
        _limit_memory(None)
        signal.signal(signal.SIGALRM, before)


def work(name, seed, first, last, seconds, folder):
    """Run inputs of a target until the last, or the time is up; report findings as JSON lines."""
    warm_up(name)
    target, end = target_of(name), time.monotonic() + seconds
    number, accepted = first, 0
    while number < last and time.monotonic() < end:
        suffix, content = target.generate(np.random.default_rng([seed, number]), str(folder))
        path = folder / f"input{suffix}"
        (folder / "current").write_bytes(content)
        (folder / "current.name").write_text(f"{number}{suffix}")
        try:
            with limited(len(content)):
                accepted += bool(target.run(content, path))
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            where = [f"{Path(f.filename).name}:{f.lineno}" for f in frames][-3:]
            reason = f"{type(error).__name__}: {error}"
            _report(found=number, suffix=suffix, reason=reason[:300], where=where)
            _keep(name, number, suffix, content)
        number += 1
    _report(done=number - first, accepted=accepted)


def _report(**facts):
    print(json.dumps(facts), flush=True)


def _keep(name, number, suffix, content):
    FINDINGS.mkdir(parents=True, exist_ok=True)
    (FINDINGS / f"{name}-{number}{suffix}").write_bytes(content)


def campaign(name, seed, seconds, n_wanted):
    """Run a target, again after a crash; return the number of findings."""
    end, first, n_inputs, kinds = time.monotonic() + seconds, 0, 0, collections.Counter()
    accepted = 0
    with tempfile.TemporaryDirectory() as folder:
        while (left := end - time.monotonic()) > 0 and first < n_wanted:
            words = ("--worker", name, *map(str, (seed, first, n_wanted, left)), folder)
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz", *words], stdout=subprocess.PIPE, text=True
            )
            done = None
            for line in process.stdout:
                facts = json.loads(line)
                if "done" in facts:
                    done, accepted = facts["done"], accepted + facts["accepted"]
                else:
                    kinds[facts["reason"][:120], str(facts["where"])] += 1
            code = process.wait()
            if done is not None:
                n_inputs += done
                break
            current = Path(folder, "current.name")
            if not current.exists():
                sys.exit(f"{name}: the worker ended with {code} before its first input")
            number, _, suffix = current.read_text().partition(".")
            _keep(name, number, f".{suffix}", Path(folder, "current").read_bytes())
            kinds[f"the process ended with {code}", number] += 1
            n_inputs += int(number) + 1 - first
            first = int(number) + 1
    print(f"{name}: {n_inputs:,} inputs, {accepted:,} accepted, {sum(kinds.values()):,} findings")
    for (reason, where), count in kinds.most_common(20):
        print(f"  {count} × {reason} at {where}")
    return sum(kinds.values())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, help="for each target (default: 30)")
    parser.add_argument("--inputs", type=int, help="for each target, in place of seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, seed, first, last, seconds, folder = options.worker
        work(name, int(seed), int(first), int(last), float(seconds), Path(folder))
        return
    shutil.rmtree(FINDINGS, ignore_errors=True)
    names = options.targets or TARGETS
    usual = 30 if options.inputs is None else math.inf
    seconds = usual if options.seconds is None else options.seconds
    n_wanted = sys.maxsize if options.inputs is None else options.inputs
    n_found = 0
    for name in names:
        if missing(name):
            print(f"{name}: left out, {missing(name)} is missing (make test-all installs it)")
            continue
        n_found += campaign(name, options.seed, seconds, n_wanted)
    sys.exit(bool(n_found))


if __name__ == "__main__":
    main()
