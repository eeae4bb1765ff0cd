"""What settings of LTLSClassifier do, on real data sets.

    python -m benchmarks.settings views       one to three views, and the size of their clusters
    python -m benchmarks.settings codebooks   random, similarity and learned, by width and trellises
    python -m benchmarks.settings rounding    float32, float16 and int8

All of them hold out a fifth of the training rows and never read test rows.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks import datasets, machine, tables
from ltls import LTLSClassifier
from ltls.metrics import precision_at_k

Settings = dict[str, Any]
# Trellises alone, a path for every label, trained as long as one another.
ALONE: Settings = {
    "label_weights": False,
    "calibration": False,
    "memory": False,
    "validation_fraction": 0.0,
    "trellises__epochs": 5,
    "trellises__density": 1.0,
}
SHAPES: dict[str, Settings] = {
    f"{width} × {n}": {**ALONE, "trellises__width": width, "trellises__n_trellises": n}
    for width, n in ((2, 1), (8, 3))
}


def column(name: str, *values: Any) -> dict[str, Settings]:
    """Return a column for every value of a setting."""
    return {str(value): {name: value} for value in values}


# Of every benchmark: its data sets, the models of its rows, and the settings of its columns.
SWEEPS: dict[str, tuple[tuple[str, ...], dict[str, Settings], dict[str, Settings]]] = {
    "views": (
        ("banking77", "icd10cm", "wordnet_hyper"),
        {f"clusters of {n}": {"views__cluster_size": n} for n in (50, 100, 200)},
        column("views__n_views", 1, 2, 3),
    ),
    "codebooks": (
        ("stackex_cs", "debtags", "banking77", "icd10cm"),
        SHAPES,
        column("trellises__assignment", "random", "similarity", "learned"),
    ),
    "rounding": (
        ("bibtex", "stackex_cs", "debtags", "banking77", "icd10cm", "wordnet_hyper", "debsrc"),
        SHAPES,
        column("trellises__dtype", "float32", "float16", "int8"),
    ),
}


def held_out(name: str, seed: int, settings: Settings) -> dict[str, float]:
    """Return P@1 on a fifth of the training rows, and the size of the file."""
    X, y, _, _ = datasets.problem(name)
    rows, others = train_test_split(np.arange(X.shape[0]), test_size=0.2, random_state=seed)
    model = LTLSClassifier(random_state=seed, n_jobs=-1).set_params(**settings)
    best = model.fit(X[rows], y[rows]).predict_topk(X[others], 1)[0]
    return {"p1": precision_at_k(y[others], best, 1), "bytes": machine.saved_bytes(model)}


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("name", choices=SWEEPS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    options = parser.parse_args()
    sets, models, columns = SWEEPS[options.name]
    rows = []
    for name in sets:
        for title, settings in models.items():
            cells = {}
            for word, changed in columns.items():
                runs = [held_out(name, s, {**settings, **changed}) for s in range(options.seeds)]
                cells[word] = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
                machine.say(f"{name}, {title}, {word}: {cells[word]}")
            rows.append({"set": name, "model": title, "cells": cells})
    about = machine.description("numpy", "scipy", "scikit-learn")
    result = {"about": about, "seeds": options.seeds, "rows": rows}
    machine.write(options.name, result, options.output)
    print("\n".join(tables.views(result)))


if __name__ == "__main__":
    main()
