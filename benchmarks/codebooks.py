"""What codebooks do for P@1: at random, by similarity, and learned; narrow and wide, one and three.

A fifth of the training rows is held out; test rows are never read. LTLS_DATA names the folder with
the data sets. Writes docs/benchmarks/codebooks.{json,md}.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np
from sets import find
from sklearn.model_selection import train_test_split

from ltls import LTLSClassifier, readers
from ltls.metrics import precision_at_k

SETS = ("bibtex", "stackex_cs", "debtags", "banking77", "icd10cm")
SHAPES = ((2, 1), (2, 3), (8, 1), (8, 3))  # width, trellises
POLICIES = ("random", "similarity", "learned")
SEEDS = range(3)


def run(name: str, train: Path) -> list[dict[str, Any]]:
    data = readers.read(train)
    X, Y = data.X, data.y if data.single_label else data.Y
    results = []
    for width, n_trellises in SHAPES:
        for policy in POLICIES:
            precisions, seconds = [], []
            for seed in SEEDS:
                rows, held_out = train_test_split(
                    np.arange(len(data.labels_per_row)), test_size=0.2, random_state=seed
                )
                model = LTLSClassifier(
                    width=width,
                    n_trellises=n_trellises,
                    assignment=policy,
                    rescore=0,
                    epochs=5,
                    learning_rate=0.3,
                    validation_fraction=0,
                    random_state=seed,
                )
                start = time.process_time()
                model.fit(X[rows], Y[rows])
                seconds.append(time.process_time() - start)
                best = model.predict_topk(X[held_out], 1)[0]
                precisions.append(precision_at_k(Y[held_out], best))
            shape = {"set": name, "width": width, "n_trellises": n_trellises, "codebook": policy}
            results.append({**shape, "precisions": precisions, "seconds": seconds})
            print(f"{shape} P@1 {statistics.mean(precisions):.4f}", flush=True)
    return results


def report(result: dict[str, Any]) -> str:
    about, results = result["about"], result["results"]
    found = {
        (r["set"], r["width"], r["n_trellises"], r["codebook"]): (
            f"{statistics.mean(r['precisions']):.4f} ({statistics.mean(r['seconds']):.1f} s)"
        )
        for r in results
    }
    rows = [
        [name, f"{width} × {n}", *(found[name, width, n, policy] for policy in POLICIES)]
        for name in dict.fromkeys(r["set"] for r in results)
        for width, n in SHAPES
    ]
    lines = ["# Codebooks", "", *(f"- {key}: {value}" for key, value in about.items()), ""]
    lines += [
        "P@1 on a fifth of the training rows that was held out, mean of three seeds, after 5 "
    ]
    lines[-1] += "epochs; in brackets the processor time of `fit`."
    heads = ["data set", "width × trellises", *POLICIES]
    return "\n".join([*lines, "", *machine.table(heads, rows, 2), ""])


def main() -> None:
    folder = os.environ.get("LTLS_DATA")
    if not folder:
        sys.exit("LTLS_DATA must name the folder of the data sets")
    about = machine.description("numpy", "scipy", "scikit-learn")
    files = {name: find(Path(folder), name) for name in SETS}
    results = [r for name, found in files.items() if found for r in run(name, found[0])]
    result = {"about": about, "results": results}
    text = report(result)
    machine.write(machine.RESULTS, "codebooks", result, text)
    print(text, flush=True)


if __name__ == "__main__":
    main()
