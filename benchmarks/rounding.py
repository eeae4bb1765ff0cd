"""What smaller numbers in the model file cost: P@1 and size of float32, float16 and int8.

    python benchmarks/rounding.py [--sets SET …]

The defaults, and a single trellis of width 2; test rows. The data sets are looked for in the folder
that LTLS_DATA names. Writes docs/benchmarks/rounding.{json,md}.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import machine
import sets

from ltls import LTLSClassifier, load, readers
from ltls.metrics import precision_at_k

SETS = ("bibtex", "stackex_cs", "debtags", "banking77", "icd10cm", "debsrc")
DTYPES = ("float32", "float16", "int8")
MODELS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "width 2": {"width": 2, "n_trellises": 1, "rescore": 0},
}


def run(train: readers.Dataset, test: readers.Dataset, settings: dict[str, Any]) -> dict[str, Any]:
    """Return P@1 and bytes of one model, stored in every way."""
    y, y_test = (data.y if train.single_label else data.Y for data in (train, test))
    model = LTLSClassifier(random_state=0, n_jobs=-1, **settings).fit(train.X, y)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ltls")
        for dtype in DTYPES:
            model.save(path, dtype)
            best = load(path, mmap=False).predict_topk(test.X, 1)[0]
            found[dtype] = {"p1": precision_at_k(y_test, best, 1), "bytes": path.stat().st_size}
    return found


def report(result: dict[str, Any]) -> str:
    lines = ["# Smaller numbers in the file", ""]
    lines += [f"- {key}: {value}" for key, value in result["about"].items()]
    rows = []
    for name, models in result["sets"].items():
        for model, found in models.items():
            exact = found["float32"]["p1"]
            cells = [f"{found[d]['p1']:.4f}, {found[d]['bytes'] / 1e6:.1f} MB" for d in DTYPES]
            rows.append([name, model, *cells, f"{100 * (found['int8']['p1'] - exact):+.2f}"])
    heads = ["set", "model", *DTYPES, "int8, points of P@1"]
    return "\n".join([*lines, "", *machine.table(heads, rows, 2), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SET")
    args = parser.parse_args()
    if "LTLS_DATA" not in os.environ:
        parser.error("LTLS_DATA must name the folder with the data sets")
    result: dict[str, Any] = {"about": machine.description("numpy"), "sets": {}}
    for name in args.sets:
        files = sets.find(Path(os.environ["LTLS_DATA"]), name)
        if files is None:
            parser.error(f"{name} is not in the folder that LTLS_DATA names")
        train, test = map(readers.read, files)
        result["sets"][name] = {
            model: run(train, test, settings) for model, settings in MODELS.items()
        }
    text = report(result)
    machine.write(machine.RESULTS, "rounding", result, text)
    print(text)


if __name__ == "__main__":
    main()
