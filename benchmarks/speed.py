"""Latency of single rows, and the time to load a model, beside the peers of accuracy.

    python -m benchmarks.speed [--sets SET …] [--methods METHOD …]

The data sets are looked for in the folder that LTLS_DATA names. Each contender learns and answers
in a process of its own. What is measured replaces what benchmarks/results/speed.json holds of the
same set and method.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import datasets, machine, tables
from benchmarks.accuracy import environments
from benchmarks.accuracy.__main__ import CONTENDER
from benchmarks.accuracy.methods import METHODS, Method

SETS = ("icd10cm", "debtags", "debsrc", "debfiles")
CHOICE = {name: METHODS[name] for name in ("omikuji", "napkinxc", "pecos", "default")}
NARROW = {"label_weights": False, "trellises__width": 2, "trellises__n_trellises": 1}
CHOICE["width2"] = Method("width2", "one trellis of width 2", "width 2", "ltls", NARROW)


def run(method: Method, name: str, folder: Path, limit: float) -> dict[str, Any]:
    """Measure a contender on a prepared set; {"not_run": why} where that does not end well."""
    given = {"speed": True, **method.settings}
    if not method.is_peer:
        given["random_state"] = 0
    out = machine.BUILD / "speed" / f"{name}-{method.name}"
    try:
        return environments.run(CONTENDER, method.contender, folder, out, given, limit)
    except environments.RunError as error:
        return {"not_run": str(error)}


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--methods", nargs="+", default=list(CHOICE), choices=CHOICE)
    parser.add_argument("--limit", type=float, default=3600, help="seconds that a run may take")
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    args = parser.parse_args()
    found = machine.read("speed", args.output).get("sets", {})
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
    machine.write("speed", result, args.output)
    print("\n".join(tables.speed(result)))


if __name__ == "__main__":
    main()
