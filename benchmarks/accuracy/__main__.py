"""Accuracy, time and size of ltls beside its peers on real data, all with their defaults.

    python -m benchmarks.accuracy                                  all that is not stored yet
    python -m benchmarks.accuracy --methods ours --fresh           ours again, beside stored peers
    python -m benchmarks.accuracy --methods default --sets bibtex --seeds 1 --fresh

The data sets are looked for in the folder that LTLS_DATA names; `datasets.find` says under which
names. Every run is a process of its own, a peer's in an environment that is made below build/peers.
What was found is kept in benchmarks/results/accuracy/SET/METHOD.json and does not run again unless
--fresh says so, or settings or pinned versions differ. All of it takes hours.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import datasets, machine
from benchmarks.accuracy import environments, report, results
from benchmarks.accuracy.environments import RunError
from benchmarks.accuracy.methods import METHODS, OURS, PEERS, SEEDS, Method

CONTENDER = Path(__file__).with_name("contender.py")
GROUPS = {"ours": OURS, "peers": PEERS}


def settings(method: Method, name: str, seed: int) -> dict[str, Any]:
    """Return the contender's settings: of ours with the seed and the size of a peer's model."""
    given = dict(method.settings)
    if not method.is_peer:
        given["random_state"] = seed
    if method.as_small_as:
        size = results.summary(results.read(name, method.as_small_as), "model_bytes")
        if size is None:
            raise RunError(f"no model of {method.as_small_as} to be as small as")
        given["size_budget"] = int(size)
    return given


def run(method: Method, name: str, folder: Path, seed: int, limit: float) -> dict[str, Any]:
    """Run a method once on a prepared set and score its predictions."""
    Y, Y_test = datasets.labels(folder)
    if reason := method.refuses(*Y.shape):
        raise RunError(reason)
    out = machine.BUILD / "accuracy" / "runs" / f"{name}-{method.name}-{seed}"
    given = settings(method, name, seed)
    measures = environments.run(CONTENDER, method.contender, folder, out, given, limit)
    top = np.load(out / "top5.npy")
    shutil.rmtree(out)
    return {**measures, **results.figures(Y, Y_test, top)}


def run_missing(
    method: Method, name: str, folder: Path, seeds: int, limit: float, fresh: bool
) -> None:
    """Run a method on a set for all seeds without a stored result."""
    versions = environments.versions(method.contender) if method.is_peer else {}
    as_now = {"settings": method.settings, "versions": versions}
    known = {} if fresh else results.read(name, method.name)
    if any(known.get(key) != value for key, value in as_now.items()):
        known = {}
    runs = known.get("runs", {})
    n_rows = datasets.labels(folder)[0].shape[0]
    for seed in range(min(seeds, method.runs(n_rows))):
        if str(seed) in runs:
            continue
        try:
            found = run(method, name, folder, seed, limit)
        except RunError as error:
            machine.say(f"{name}, {method.name}: not run: {error}")
            if not runs:
                failed = {**as_now, "not_run": str(error), "about": machine.description()}
                results.write(name, method.name, failed)
            return
        runs[str(seed)] = found
        results.write(name, method.name, {**as_now, "runs": runs, "about": machine.description()})
        words = f"{name}, {method.name}, seed {seed}: P@1 {found['p1']:.4f}, "
        words += f"trained in {found['train_seconds']:.1f} s, {found['model_bytes']:,} bytes"
        machine.say(words)


def main() -> None:
    parser = machine.parser(__doc__)
    every, names = results.SETS, [*GROUPS, *METHODS]
    parser.add_argument("--sets", nargs="+", default=every, choices=every, metavar="SET")
    parser.add_argument("--methods", nargs="+", default=list(GROUPS), choices=names, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="at most so many runs of a method")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that a run may take")
    parser.add_argument("--fresh", action="store_true", help="run again what is stored")
    args = parser.parse_args()
    source = machine.data_folder()
    chosen = [method for name in args.methods for method in GROUPS.get(name, (METHODS.get(name),))]
    for name in args.sets:
        folder = datasets.prepare(source, name, machine.BUILD / "accuracy" / "sets")
        if folder is None:
            machine.say(f"{name}: no such data set in {source}")
            continue
        results.write(name, "set", datasets.describe(folder))
        for method in chosen:
            if method.for_one_label or name not in datasets.SINGLE_LABEL:
                run_missing(method, name, folder, args.seeds, args.limit, args.fresh)
        of = results.read_all([name]).get(name, {})
        print("\n".join([f"{name}", *report.set_table(of), "", *report.cost_table(of)]))


if __name__ == "__main__":
    main()
