"""P@1 on test rows with the default settings, and with those that `ltls.tuning.tune` finds.

The search sees training rows alone. Besides scikit-learn's digits, the data sets are looked for in
the folder that the environment variable LTLS_DATA names. Writes docs/benchmarks/tuning.{json,md}.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np
from sets import find, load
from sklearn.datasets import load_digits

from ltls import LTLSClassifier
from ltls.tuning import SEARCH_SPACE, precision_at_1, tune

SETS = ("bibtex", "stackex_cs", "banking77", "icd10cm")


def digits() -> list[Any]:
    X, y = load_digits(return_X_y=True)
    return [X[:1300] / 16, y[:1300], X[1300:] / 16, y[1300:]]


def from_files(files: list[Path]) -> list[Any]:
    X, Y, X_test, Y_test = load(files)
    single = all((np.diff(part.indptr) == 1).all() for part in (Y, Y_test))
    y, y_test = (Y.indices, Y_test.indices) if single else (Y, Y_test)
    return [X, y, X_test, y_test]


def run(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> dict[str, Any]:
    start = time.perf_counter()
    default = LTLSClassifier(random_state=0).fit(X, y)
    fit_seconds = time.perf_counter() - start
    start = time.perf_counter()
    model, tried = tune(X, y, seconds, random_state=0)
    spent = time.perf_counter() - start
    settings = {name: model.get_params()[name] for name in SEARCH_SPACE}
    most = max(each["rows"] for each in tried)
    held_out = [each["score"] for each in tried if each["rows"] == most]
    return {
        "default": precision_at_1(default, X_test, y_test),
        "default_held_out": held_out[0],
        "default_seconds": fit_seconds,
        "tuned": precision_at_1(model, X_test, y_test),
        "tuned_held_out": float(np.nanmax(held_out)),
        "tuning_seconds": spent,
        "fits": len(tried),
        "settings": settings,
        "tried": [each for each in tried if not np.isnan(each["score"])],
    }


def report(result: dict[str, Any]) -> str:
    about, results = result["about"], result["results"]
    rows = [
        [
            name,
            ", ".join(f"{key}={value!r}" for key, value in of["settings"].items()),
            f"{of['default_held_out']:.4f} → {of['tuned_held_out']:.4f}",
            f"{of['default']:.4f} → {of['tuned']:.4f}",
            f"{of['fits']} in {of['tuning_seconds']:.0f} s",
        ]
        for name, of in results.items()
    ]
    heads = ["data set", "settings found", "P@1 on held-out rows", "P@1 on test rows", "fits"]
    lines = ["# Tuning", "", *(f"- {key}: {value}" for key, value in about.items()), ""]
    lines += ["`LTLSClassifier()` → what `ltls.tuning.tune` finds, one run each."]
    return "\n".join([*lines, "", *machine.table(heads, rows, 2), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    about = machine.description("numpy", "scipy", "scikit-learn")
    folder = os.environ.get("LTLS_DATA")
    files = {name: find(Path(folder), name) for name in SETS} if folder else {}
    results = {"digits": run(*digits(), seconds)}
    for name, found in files.items():
        if found:
            print(f"{name}: {found[0].name}", flush=True)
            results[name] = run(*from_files(found), seconds)
    result = {"about": about, "results": results}
    text = report(result)
    machine.write(machine.RESULTS, "tuning", result, text)
    print(text, flush=True)


if __name__ == "__main__":
    main()
