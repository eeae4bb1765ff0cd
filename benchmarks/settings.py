"""What settings of LTLSClassifier do, on real data sets.

    python -m benchmarks.settings codebooks   random, similarity and learned, by width and trellises
    python -m benchmarks.settings views       one to three views, and the size of their clusters
    python -m benchmarks.settings rounding    float32, float16 and int8
    python -m benchmarks.settings density     weights of the trellises that are kept
    python -m benchmarks.settings compare --sets bibtex -- trellises.width=2 views=false,n_jobs=1

All of them hold out a fifth of the training rows and never read test rows. `compare` prints P@1 of
the defaults and of any other settings, and stores nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
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
    for width, n in ((2, 1), (2, 3), (8, 1), (8, 3))
}
SEVERAL = ("bibtex", "stackex_cs", "debtags")
ONE = ("banking77", "icd10cm", "wordnet_hyper", "debsrc")


def column(name: str, *values: Any) -> dict[str, Settings]:
    """Return a column for every value of a setting."""
    return {str(value): {name: value} for value in values}


# Of every benchmark: its data sets, the models of its rows, and the settings of its columns.
SWEEPS: dict[str, tuple[tuple[str, ...], dict[str, Settings], dict[str, Settings]]] = {
    "codebooks": (
        (*SEVERAL, "banking77", "icd10cm"),
        SHAPES,
        column("trellises__assignment", "random", "similarity", "learned"),
    ),
    "views": (
        ONE,
        {f"clusters of {n}": {"views__cluster_size": n} for n in (50, 100, 200)},
        column("views__n_views", 1, 2, 3),
    ),
    "rounding": (
        (*SEVERAL, *ONE),
        {name: SHAPES[name] for name in ("2 × 1", "8 × 3")},
        column("trellises__dtype", "float32", "float16", "int8"),
    ),
    "density": (
        (*SEVERAL, *ONE, "rcv1sub1", "makupalat", "amazon_video_next"),
        {"defaults": {}},
        column("trellises__density", 1.0, 0.3, 0.1, 0.03),
    ),
}


def held_out(name: str, seed: int, settings: Settings) -> dict[str, float]:
    """Return P@1 and P@5 on a fifth of the training rows, processor seconds and file size."""
    X, y, _, _ = datasets.problem(name)
    rows, others = train_test_split(np.arange(X.shape[0]), test_size=0.2, random_state=seed)
    model = LTLSClassifier(random_state=seed, n_jobs=-1).set_params(**settings)
    start = time.process_time()
    model.fit(X[rows], y[rows])
    seconds = time.process_time() - start
    best = model.predict_topk(X[others], 5)[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ltls")
        model.save(path)
        size = path.stat().st_size
    p1, p5 = (precision_at_k(y[others], best, k) for k in (1, 5))
    return {"p1": p1, "p5": p5, "seconds": seconds, "bytes": size}


def sweep(options: argparse.Namespace) -> None:
    """Measure all rows and columns of a benchmark, and store them."""
    _, models, columns = SWEEPS[options.name]
    rows = []
    for name in options.sets:
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
    print("\n".join(tables.sweep(result)))


def parsed(text: str) -> Settings:
    """Read settings such as "trellises.width=8,views=false"."""
    words = {"true": True, "false": False, "none": None}
    settings: Settings = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        number = next((kind for kind in (int, float) if _is(kind, value)), None)
        settings[name.replace(".", "__")] = number(value) if number else words.get(value, value)
    return settings


def _is(kind: type, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def compare(options: argparse.Namespace) -> None:
    """Print P@1 of any settings beside the defaults."""
    rows = []
    for text in ["", *options.settings]:
        found = [held_out(name, 0, parsed(text)) for name in options.sets]
        cells = [f"{of['p1']:.4f}, {of['bytes'] / 1e6:.1f} MB" for of in found]
        rows.append([text or "defaults", *cells, f"{sum(of['seconds'] for of in found):.1f}"])
    print("\n".join(machine.table(["settings", *options.sets, "processor seconds"], rows)))


def main() -> None:
    parser = machine.parser(__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    for command in [*SWEEPS, "compare"]:
        own = commands.add_parser(command)
        sets = SWEEPS[command][0] if command in SWEEPS else ("bibtex", "stackex_cs", "banking77")
        own.add_argument("--sets", nargs="+", default=sets, metavar="SET")
        own.add_argument("--seeds", type=int, default=3)
        own.add_argument("--output", type=Path, default=machine.RESULTS)
    commands.choices["compare"].add_argument("settings", nargs="*")
    options = parser.parse_args()
    (compare if options.name == "compare" else sweep)(options)


if __name__ == "__main__":
    main()
