"""Accuracy, time and size of ltls beside real peers on real data, all with their defaults.

The data sets are looked for in the folder that LTLS_DATA names; `sets.find` says under which names.
Every run is a process of its own, a peer's in an environment that is made below build/peers. What
was found goes to docs/benchmarks/accuracy/SET/METHOD.json and is not run again unless --fresh says
so, or settings or pinned versions are others; the tables of all that is known go to
docs/benchmarks/accuracy.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import accuracy_report
import environments
import machine
import numpy as np
import results
import sets
from methods import METHODS, PEERS, Method

from ltls.atomic import replacing

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "accuracy"
BUILD = ROOT / "build"
CONTENDER = Path(__file__).with_name("contender.py")


class RunError(Exception):
    """A run ended without a result; says why."""


def say(words: str) -> None:
    print(time.strftime("%H:%M:%S"), words, flush=True)


def compete(
    command: list[str], variables: dict[str, str], out: Path, limit: float
) -> dict[str, Any]:
    """Run a contender's process, within a time limit; return its measures.

    What it prints goes to a log beside the folder `out`.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    log = out.with_suffix(".log")
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, env=variables, stdout=stream, stderr=stream, start_new_session=True
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise RunError(f"took longer than {limit:.0f} s") from None
        finally:
            if process.poll() is None:  # with all that it has started
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise RunError(f"exit status {code}: {lines[-1] if lines else 'no message'}")
    measures: dict[str, Any] = json.loads((out / "measures.json").read_text())
    return measures


def settings(method: Method, name: str, seed: int) -> dict[str, Any]:
    """Return what the contender is told: of ours the seed, and how small a peer's model is."""
    told = dict(method.settings)
    if not method.is_peer:
        told["random_state"] = seed
    if method.as_small_as:
        size = results.summary(results.read(RESULTS, name, method.as_small_as), "model_bytes")
        if size is None:
            raise RunError(f"no model of {method.as_small_as} to be as small as")
        told["size_budget"] = f"{size / 1e6:.6f}MB"
    return told


def run(method: Method, name: str, folder: Path, seed: int, limit: float) -> dict[str, Any]:
    """Run a method once on a prepared set and judge what it answers."""
    Y, Y_test = sets.labels(folder)
    if reason := method.refuses(*Y.shape):
        raise RunError(reason)
    start, variables = [sys.executable], dict(os.environ)
    if method.is_peer:
        start, variables = environments.command(method.contender, BUILD / "peers")
    told = json.dumps(settings(method, name, seed))
    out = BUILD / "accuracy" / "runs" / f"{name}-{method.name}-{seed}"
    command = [*start, str(CONTENDER), method.contender, str(folder), str(out), told]
    measures = compete(command, variables, out, limit)
    found = {**measures, **results.figures(Y, Y_test, np.load(out / "top5.npy"))}
    shutil.rmtree(out)
    return found


def run_missing(
    method: Method, name: str, folder: Path, seeds: int, limit: float, fresh: bool
) -> None:
    """Run a method on a set with all seeds that no result is known of, and keep the results."""
    versions = environments.versions(method.contender) if method.is_peer else {}
    as_now = {"settings": method.settings, "versions": versions}
    known = {} if fresh else results.read(RESULTS, name, method.name)
    if any(known.get(key) != value for key, value in as_now.items()):
        known = {}
    runs = known.get("runs", {})
    n_rows = sets.labels(folder)[0].shape[0]
    for seed in range(min(seeds, method.runs(n_rows))):
        if str(seed) in runs:
            continue
        try:
            found = run(method, name, folder, seed, limit)
        except (RunError, environments.SetupError) as error:
            say(f"{name}, {method.name}: not run: {error}")
            if not runs:
                failed = {**as_now, "not_run": str(error), "about": machine.description()}
                results.write(RESULTS, name, method.name, failed)
            return
        runs[str(seed)] = found
        known = {**as_now, "runs": runs, "about": machine.description()}
        results.write(RESULTS, name, method.name, known)
        words = f"{name}, {method.name}, seed {seed}: P@1 {found['p1']:.4f}, "
        words += f"trained in {found['train_seconds']:.1f} s, {found['model_bytes']:,} bytes"
        say(words)


def main() -> None:
    every = (*sets.MULTI_LABEL, *sets.SINGLE_LABEL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=every, choices=every, metavar="SET")
    parser.add_argument(
        "--methods", nargs="+", default=list(METHODS), metavar="METHOD", choices=[*METHODS, "peers"]
    )
    parser.add_argument("--seeds", type=int, default=5, help="at most so many runs of a method")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that a run may take")
    parser.add_argument("--fresh", action="store_true", help="run what is known again")
    args = parser.parse_args()
    if "LTLS_DATA" not in os.environ:
        parser.error("LTLS_DATA must name the folder with the data sets")
    names = [peer.name for peer in PEERS] if "peers" in args.methods else []
    chosen = [METHODS[name] for name in dict.fromkeys([*names, *args.methods]) if name in METHODS]
    for name in args.sets:
        folder = sets.prepare(Path(os.environ["LTLS_DATA"]), name, BUILD / "accuracy" / "sets")
        if folder is None:
            say(f"{name}: no such data set in {os.environ['LTLS_DATA']}")
            continue
        results.write(RESULTS, name, "set", sets.describe(folder))
        for method in chosen:
            if method.is_for(single_label=name in sets.SINGLE_LABEL):
                run_missing(method, name, folder, args.seeds, args.limit, args.fresh)
    with replacing(RESULTS.parent / "accuracy.md") as path:
        path.write_text(accuracy_report.report(RESULTS, every))


if __name__ == "__main__":
    main()
