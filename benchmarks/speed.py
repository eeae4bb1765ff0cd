"""Speed of ltls beside the peers of the accuracy benchmark, and against what memory allows.

    python benchmarks/speed.py [--sets SET …] [--methods METHOD …]

The data sets are looked for in the folder that LTLS_DATA names, as benchmarks/accuracy.py does.
Each contender learns and answers in a process of its own. What is measured replaces what
docs/benchmarks/speed.json holds of the same set and method; the tables go to
docs/benchmarks/speed.md. Without data sets only the roofline is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import accuracy
import environments
import machine
import roofline
import sets
from methods import METHODS, Method

BUILD = Path(__file__).parent.parent / "build"
CONTENDER = Path(__file__).with_name("speed_contender.py")
SETS = ("icd10cm", "debtags", "debsrc", "debfiles")
NARROW = Method("width2", "`LTLSClassifier(width=2, n_trellises=1, rescore=0)`", "ltls",
                {"width": 2, "n_trellises": 1, "rescore": 0})  # fmt: skip
CHOICE = {name: METHODS[name] for name in ("omikuji", "napkinxc", "pecos", "default")}
CHOICE["width2"] = NARROW
# What must hold against the fastest peer: figure, method, factor.
TARGETS = [
    ("one_core_seconds", "width2", 20, SETS),
    ("one_core_seconds", "default", 5, SETS),
    ("p50_seconds", "width2", 10, SETS),
    ("train_seconds", "default", 3, ("debfiles",)),
]
COLUMNS = {
    "training, rows/s": lambda r: f"{r['train_rows'] / r['train_seconds']:,.0f}",
    "batch, one core, µs/row": lambda r: f"{r['one_core_seconds'] / r['test_rows'] * 1e6:,.2f}",
    "two cores": lambda r: f"{r['two_cores_seconds'] / r['test_rows'] * 1e6:,.2f}",
    "one row, p50 µs": lambda r: f"{r['p50_seconds'] * 1e6:,.1f}",
    "p99 µs": lambda r: f"{r['p99_seconds'] * 1e6:,.1f}",
    "load and first answer, ms": lambda r: f"{r['load_seconds'] * 1e3:,.1f}",
    "training's peak, MB": lambda r: f"{r['peak_bytes'] / 1e6:,.0f}",
    "model, MB": lambda r: f"{r['model_bytes'] / 1e6:,.1f}",
}


def run(method: Method, name: str, folder: Path, limit: float) -> dict[str, Any]:
    """Measure a contender on a prepared set; {"not_run": why} where that does not end well."""
    try:
        start, variables = [sys.executable], dict(os.environ)
        if method.is_peer:
            start, variables = environments.command(method.contender, BUILD / "peers")
        told = json.dumps(method.settings if method.is_peer else
                          {**method.settings, "random_state": 0})  # fmt: skip
        out = BUILD / "speed" / f"{name}-{method.name}"
        command = [*start, str(CONTENDER), method.contender, str(folder), str(out), told]
        return accuracy.compete(command, variables, out, limit)
    except (accuracy.RunError, environments.SetupError) as error:
        return {"not_run": str(error)}


def targets(results: dict[str, Any]) -> list[str]:
    """Say how many times faster than the fastest peer we are, and whether that is enough."""
    lines = []
    for figure, method, factor, names in TARGETS:
        for name in names:
            found = results.get(name, {})
            peers = [r[figure] for m, r in found.items() if m in METHODS and METHODS[m].is_peer
                     and figure in r]  # fmt: skip
            if not peers or figure not in found.get(method, {}):
                continue
            times = min(peers) / found[method][figure]
            what = figure.removesuffix("_seconds").replace("_", " ")
            verdict = "yes" if times >= factor else "**no**"
            lines.append(f"| {what} | {CHOICE[method].title} | {name} | {factor} | {times:,.1f} "
                         f"| {verdict} |")  # fmt: skip
    return lines


def report(result: dict[str, Any]) -> str:
    lines = [
        "# Speed",
        "",
        "Every contender with its defaults, in a process of its own; the peers'",
    ]
    lines += ["versions are pinned in `benchmarks/peers`. Times are the shortest of several.", ""]
    lines += [f"- {key}: {value}" for key, value in result["about"].items()]
    for name, found in result["sets"].items():
        lines += ["", f"## {name}", "", "| | " + " | ".join(COLUMNS) + " |"]
        lines += ["|---|" + "---:|" * len(COLUMNS)]
        for method, r in found.items():
            if "not_run" in r:
                lines.append(f"| {CHOICE[method].title} | not run: {r['not_run']} |")
                continue
            cells = " | ".join(cell(r) for cell in COLUMNS.values())
            lines.append(f"| {CHOICE[method].title} | {cells} |")
    if verdicts := targets(result["sets"]):
        lines += ["", "## Times faster than the fastest peer", ""]
        lines += [
            "| of | model | set | wanted | found | |",
            "|---|---|---|---:|---:|---|",
            *verdicts,
        ]
    lines += ["", "## Against what memory allows", ""]
    lines += [
        "A row of 50 non-zeros, a million classes, weights that no cache holds; µs per row. *read*",
        "only reads the weights that scoring needs, as early and as widely.",
        "",
        "| | |",
        "|---|---:|",
    ]
    lines += [f"| {key} | {value:,.2f} |" for key, value in result["roofline"].items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS, metavar="SET")
    parser.add_argument("--methods", nargs="+", default=list(CHOICE), choices=CHOICE)
    parser.add_argument("--limit", type=float, default=3600, help="seconds that a run may take")
    args = parser.parse_args()
    path = machine.RESULTS / "speed.json"
    known = json.loads(path.read_text()) if path.exists() else {"sets": {}}
    result: dict[str, Any] = {
        "about": machine.description("numpy", "scipy"),
        "sets": known["sets"],
        "roofline": roofline.measure(),
    }
    source = os.environ.get("LTLS_DATA")
    for name in args.sets if source else ():
        folder = sets.prepare(Path(source), name, BUILD / "accuracy" / "sets")
        if folder is None:
            accuracy.say(f"{name}: no such data set in {source}")
            continue
        for method in args.methods:
            found = run(CHOICE[method], name, folder, args.limit)
            result["sets"].setdefault(name, {})[method] = found
            accuracy.say(f"{name}, {method}: {found}")
    machine.write(machine.RESULTS, "speed", result, report(result))
    print(report(result))


if __name__ == "__main__":
    main()
