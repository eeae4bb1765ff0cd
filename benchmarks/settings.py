"""What settings of LTLSClassifier do, on real data sets.

    python -m benchmarks.settings codebooks   random, similarity and learned, by width and trellises
    python -m benchmarks.settings density     accuracy and size of pruned models
    python -m benchmarks.settings rounding    accuracy and file size of float32, float16 and int8
    python -m benchmarks.settings tuning      the defaults beside what a minute of tuning finds
    python -m benchmarks.settings compare --sets bibtex -- width=2 embedding_dim=0,normalize=False

`compare` prints P@1 of the defaults and of any other settings, and stores nothing. It and
`codebooks` hold out a fifth of the training rows and never read test rows.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks import datasets, machine, tables
from ltls import LTLSClassifier, Trellis, load
from ltls.metrics import precision_at_k
from ltls.structure.policies import POLICIES, LabelStats
from ltls.training.build import label_vectors
from ltls.tuning import SEARCH_SPACE, precision_at_1, tune


def fitted(X: Any, y: Any, seed: int = 0, **settings: Any) -> tuple[LTLSClassifier, float]:
    """Return a model, and the processor seconds that it took."""
    model = LTLSClassifier(**{"random_state": seed, "n_jobs": -1, **settings})
    start = time.process_time()
    model.fit(X, y)
    return model, time.process_time() - start


def held_out(name: str, seed: int, **settings: Any) -> tuple[float, float]:
    """Return P@1 on a fifth of the training rows, and the processor seconds of training."""
    train = datasets.train_and_test(name)[0]
    y = datasets.targets(train, train.single_label)
    rows, others = train_test_split(np.arange(train.n_rows), test_size=0.2, random_state=seed)
    model, seconds = fitted(train.X[rows], y[rows], seed, **settings)
    return precision_at_k(y[others], model.predict_topk(train.X[others], 1)[0]), seconds


# Codebooks


def codebooks(options: argparse.Namespace) -> dict[str, Any]:
    how = {
        "embedding_dim": 0,
        "epochs": 5,
        "learning_rate": 0.3,
        "validation_fraction": 0,
        "n_jobs": 1,
    }
    shapes = [
        {"set": name, "width": width, "n_trellises": n, "codebook": policy}
        for name in options.sets
        for width, n in ((2, 1), (2, 3), (8, 1), (8, 3))
        for policy in ("random", "similarity", "learned")
    ]
    results = []
    for shape in shapes:
        wanted = {"width": shape["width"], "n_trellises": shape["n_trellises"]}
        found = [
            held_out(shape["set"], seed, assignment=shape["codebook"], **wanted, **how)
            for seed in range(3)
        ]
        precisions, seconds = map(list, zip(*found, strict=True))
        results.append({**shape, "precisions": precisions, "seconds": seconds})
        machine.say(f"{shape} P@1 {statistics.mean(precisions):.4f}")
    about = machine.description("numpy", "scipy", "scikit-learn")
    return {"about": about, "results": results, "at scale": a_million_labels()}


def a_million_labels(n_labels: int = 10**6, n_values: int = 10**7) -> list[float]:
    """Return processor seconds of similarity codebooks for three trellises of width 8."""
    n_features = 100_000
    rng = np.random.default_rng(0)
    indices = (n_features * rng.random(n_values) ** 3).astype(np.int32)
    rows = np.arange(n_labels + 1) * (n_values // n_labels)
    X = csr_matrix((rng.random(n_values, np.float32), indices, rows), (n_labels, n_features))
    X.sum_duplicates()
    each = np.arange(n_labels + 1)
    seconds = []
    for seed in range(3):
        start = time.process_time()
        # Without training, which the estimator would do.
        stats = LabelStats(n_labels, vectors=label_vectors(X, each, each[:-1], n_labels))
        POLICIES["similarity"].initial(Trellis(n_labels, 8), 3, stats, np.random.RandomState(seed))
        seconds.append(time.process_time() - start)
    return seconds


# Rounding: one model, stored in every way


def rounding(options: argparse.Namespace) -> dict[str, Any]:
    models: dict[str, dict[str, Any]] = {
        "defaults": {"density": 1.0},
        "width 2": {"width": 2, "n_trellises": 1, "embedding_dim": 0, "density": 1.0},
    }
    result: dict[str, Any] = {"about": machine.description("numpy"), "sets": {}}
    for name in options.sets:
        train, test = datasets.train_and_test(name)
        y, y_test = (datasets.targets(part, train.single_label) for part in (train, test))
        result["sets"][name] = {
            title: stored(fitted(train.X, y, **settings)[0], test.X, y_test)
            for title, settings in models.items()
        }
    return result


def stored(model: LTLSClassifier, X: Any, y: Any) -> dict[str, Any]:
    """Return P@1 and bytes of a model for every type of number in its file."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ltls")
        for dtype in ("float32", "float16", "int8"):
            model.save(path, dtype)
            best = load(path, mmap=False).predict_topk(X, 1)[0]
            found[dtype] = {"p1": precision_at_k(y, best), "bytes": path.stat().st_size}
    return found


# Density: one model, pruned more and more; and what the defaults choose

DENSITIES = (0.3, 0.1, 0.03)


def density(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"about": machine.description("numpy"), "sets": {}}
    for name in options.sets:
        train, test = datasets.train_and_test(name)
        y, y_test = (datasets.targets(part, train.single_label) for part in (train, test))
        model, _ = fitted(train.X, y, density=1.0)
        found = {"1": pruned(model, test.X, y_test, "float32")}
        whole = model.model_.weights
        for fraction in DENSITIES:
            model.model_.frozen = whole.prune(whole.magnitude_at(fraction))
            found[str(fraction)] = pruned(model, test.X, y_test, "int8")
        found["auto"] = pruned(fitted(train.X, y)[0], test.X, y_test, None)
        result["sets"][name] = found
        machine.say(f"{name} {found}")
    return result


def pruned(model: LTLSClassifier, X: Any, y: Any, dtype: str | None) -> dict[str, Any]:
    """Return P@1, P@5 and bytes of a model."""
    best = model.predict_topk(X, 5)[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ltls")
        model.save(path, dtype)
        size = path.stat().st_size
    return {"p1": precision_at_k(y, best, 1), "p5": precision_at_k(y, best, 5), "bytes": size}


# Tuning: the search sees training rows alone


def tuning(options: argparse.Namespace) -> dict[str, Any]:
    X, y = load_digits(return_X_y=True)
    results = {"digits": tuned(X[:1300] / 16, y[:1300], X[1300:] / 16, y[1300:], options.seconds)}
    for name in options.sets:
        train, test = datasets.train_and_test(name)
        y, y_test = (datasets.targets(part, train.single_label) for part in (train, test))
        results[name] = tuned(train.X, y, test.X, y_test, options.seconds)
        machine.say(f"{name}: {results[name]['tuned']:.4f}")
    return {"about": machine.description("numpy", "scipy", "scikit-learn"), "results": results}


def tuned(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> dict[str, Any]:
    default, fit_seconds = fitted(X, y, n_jobs=1)
    start = time.perf_counter()
    model, tried = tune(X, y, seconds, random_state=0)
    spent = time.perf_counter() - start
    most = max(each["rows"] for each in tried)
    scores = [each["score"] for each in tried if each["rows"] == most]
    return {
        "default": precision_at_1(default, X_test, y_test),
        "default_held_out": scores[0],
        "default_seconds": fit_seconds,
        "tuned": precision_at_1(model, X_test, y_test),
        "tuned_held_out": float(np.nanmax(scores)),
        "tuning_seconds": spent,
        "fits": len(tried),
        "settings": {name: model.get_params()[name] for name in SEARCH_SPACE},
    }


# Any settings


def parsed(text: str) -> dict[str, Any]:
    """Read settings such as "width=8,assignment=learned"."""
    settings: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            settings[name] = ast.literal_eval(value)
        except ValueError:
            settings[name] = value
    return settings


def compare(options: argparse.Namespace) -> None:
    rows = []
    for text in ["", *options.settings]:
        found = [held_out(name, 0, **parsed(text)) for name in options.sets]
        cells = [text or "defaults", *(f"{precision:.4f}" for precision, _ in found)]
        rows.append([*cells, f"{sum(seconds for _, seconds in found):.1f}"])
    print("\n".join(machine.table(["settings", *options.sets, "processor seconds"], rows)))


SETS = {
    codebooks: ("bibtex", "stackex_cs", "debtags", "banking77", "icd10cm"),
    rounding: ("bibtex", "stackex_cs", "debtags", "banking77", "icd10cm", "debsrc"),
    density: (
        "bibtex",
        "rcv1sub1",
        "makupalat",
        "debtags",
        "banking77",
        "icd10cm",
        "wordnet_hyper",
        "debsrc",
        "amazon_video_next",
    ),
    tuning: ("bibtex", "stackex_cs", "banking77", "icd10cm"),
    compare: ("bibtex", "stackex_cs", "banking77"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="name", required=True)
    for command, names in SETS.items():
        own = commands.add_parser(command.__name__)
        own.set_defaults(run=command)
        own.add_argument("--sets", nargs="+", default=names, metavar="SET")
    commands.choices["tuning"].add_argument("--seconds", type=float, default=60)
    commands.choices["compare"].add_argument("settings", nargs="*")
    options = parser.parse_args()
    machine.data_folder()
    result = options.run(options)
    if result is not None:
        print("\n".join(tables.TABLES[options.name](result)))
        machine.write(options.name, result)


if __name__ == "__main__":
    main()
