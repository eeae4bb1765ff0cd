"""What codebooks do for P@1, at random, by similarity, and learned; and how long a large one takes.

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
from scipy.sparse import csr_matrix
from sets import find
from sklearn.model_selection import train_test_split

from ltls import LTLSClassifier, Trellis, readers
from ltls.assignment import assign
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


def at_scale(
    n_labels: int = 10**6, n_values: int = 10**7, n_features: int = 100_000
) -> list[float]:
    """Return processor seconds of similarity codebooks for three trellises of width 8."""
    rng = np.random.default_rng(0)
    indices = (n_features * rng.random(n_values) ** 3).astype(np.int32)
    rows = np.arange(n_labels + 1) * (n_values // n_labels)
    X = csr_matrix((rng.random(n_values, np.float32), indices, rows), (n_labels, n_features))
    X.sum_duplicates()
    each = np.arange(n_labels + 1)
    seconds = []
    for seed in SEEDS:
        start = time.process_time()
        state = np.random.RandomState(seed)
        ones = np.ones(n_labels, np.int64)
        assign("similarity", Trellis(n_labels, 8), 3, X, each, each[:-1], ones, state)
        seconds.append(time.process_time() - start)
    return seconds


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
    median = statistics.median(result["at scale"])
    lines += ["", *machine.table(heads, rows, 2), "", "## A million labels", ""]
    lines += [
        "Similarity codebooks of three trellises of width 8 for 10⁶ labels, a row each, from 10⁷ "
        f"values: {median:.1f} s of processor time, the median of {len(result['at scale'])} runs."
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    folder = os.environ.get("LTLS_DATA")
    if not folder:
        sys.exit("LTLS_DATA must name the folder of the data sets")
    about = machine.description("numpy", "scipy", "scikit-learn")
    files = {name: find(Path(folder), name) for name in SETS}
    results = [r for name, found in files.items() if found for r in run(name, found[0])]
    result = {"about": about, "results": results, "at scale": at_scale()}
    text = report(result)
    machine.write(machine.RESULTS, "codebooks", result, text)
    print(text, flush=True)


if __name__ == "__main__":
    main()
