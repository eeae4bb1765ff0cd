"""Speed of ltls beside the peers of the accuracy comparison.

    python -m benchmarks.speed [--sets SET …] [--methods METHOD …] [--check]

The data sets are looked for in the folder that LTLS_DATA names. Each contender learns and answers
in a process of its own. What is measured replaces what benchmarks/results/speed.json holds of the
same set and method. `--check` measures nothing: it compares what is stored with the fastest peer,
and fails where a factor is below what we want.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks import datasets, machine, tables
from benchmarks.accuracy import environments
from benchmarks.accuracy.methods import METHODS, Method

CONTENDER = Path(__file__).with_name("contender.py")
SETS = ("icd10cm", "debtags", "debsrc", "debfiles")
CHOICE = {name: METHODS[name] for name in ("omikuji", "napkinxc", "pecos", "default")}
CHOICE["width2"] = Method(
    "width2", tables.WIDTH2, "ltls", {"width": 2, "n_trellises": 1, "embedding_dim": 0}
)
# How many times as fast as the fastest peer we want to be: figure, method, factor, sets.
WANTED = [
    ("one_core_seconds", "width2", 20, SETS),
    ("one_core_seconds", "default", 5, SETS),
    ("p50_seconds", "width2", 10, SETS),
    ("train_seconds", "default", 3, ("debfiles",)),
]


def run(method: Method, name: str, folder: Path, limit: float) -> dict[str, Any]:
    """Measure a contender on a prepared set; {"not_run": why} where that does not end well."""
    given = method.settings if method.is_peer else {**method.settings, "random_state": 0}
    out = machine.BUILD / "speed" / f"{name}-{method.name}"
    try:
        return environments.run(CONTENDER, method.contender, folder, out, given, limit)
    except environments.RunError as error:
        return {"not_run": str(error)}


def check(found: dict[str, Any]) -> int:
    """Print how many times as fast as the fastest peer we are; return 1 if too little."""
    failed = 0
    for figure, method, wanted, names in WANTED:
        for name in names:
            of = found.get(name, {})
            peers = [r[figure] for m, r in of.items() if CHOICE[m].is_peer and figure in r]
            if not peers or figure not in of.get(method, {}):
                continue
            times = min(peers) / of[method][figure]
            failed |= times < wanted
            verdict = "ok" if times >= wanted else "TOO SLOW"
            words = f"{name}, {method}, {figure}: {times:.1f} times as fast"
            print(f"{verdict:9} {words}, wanted {wanted}")
    return int(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS, metavar="SET")
    parser.add_argument("--methods", nargs="+", default=list(CHOICE), choices=CHOICE)
    parser.add_argument("--limit", type=float, default=3600, help="seconds that a run may take")
    parser.add_argument("--check", action="store_true", help="only check what is stored")
    args = parser.parse_args()
    found = machine.read("speed").get("sets", {})
    if args.check:
        sys.exit(check(found))
    source = machine.data_folder()
    for name in args.sets:
        folder = datasets.prepare(source, name, machine.BUILD / "accuracy" / "sets")
        if folder is None:
            machine.say(f"{name}: no such data set in {source}")
            continue
        for method in args.methods:
            measures = run(CHOICE[method], name, folder, args.limit)
            found.setdefault(name, {})[method] = measures
            machine.say(f"{name}, {method}: {measures}")
    about = machine.description("numpy", "scipy")
    about["command"] = "python -m benchmarks.speed"  # some of it may be of earlier runs
    result = {"about": about, "sets": found}
    machine.write("speed", result)
    print("\n".join(tables.speed(result)))


if __name__ == "__main__":
    main()
