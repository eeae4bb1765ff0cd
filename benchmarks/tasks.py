"""Whole tasks: raw text beside a linear SVM, small dense problems, and the demo.

    python -m benchmarks.tasks text            TextClassifier on the text of banking77
    python -m benchmarks.tasks small_dense     few dense features beside logistic regression
    python -m benchmarks.tasks demo [--quick]  the next token of Python code, and PECOS

A small dense problem is split five times into 70 % to train on and 30 % to test; logistic
regression is scikit-learn's, with a `StandardScaler` before it, and the synthetic sets are
`make_classification`'s. With --check, the demo ends with status 1 unless its models take at most
two minutes of processor time, with P@1 of at least 0.40. --quick has fewer seeds, splits and
tokens, stores nothing and runs no peer.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets as toys
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks import datasets, machine, tables
from benchmarks.accuracy import environments
from examples import demo as example
from ltls import LTLSClassifier, TextClassifier

CONTENDER = Path(__file__).parent / "accuracy" / "contender.py"
N_SEEDS = 5

Texts = tuple[list[str], list[str]]


def text(options: argparse.Namespace) -> dict[str, Any]:
    train, test = (datasets.texts("banking77", part) for part in ("train", "test"))
    own: dict[str, Any] = {"precision": [], "train_s": []}
    for seed in range(1 if options.quick else N_SEEDS):
        start = time.perf_counter()
        model = TextClassifier(random_state=seed, n_jobs=-1).fit(*train)
        own["train_s"].append(time.perf_counter() - start)
        own["precision"].append(model.score(*test))
    own["bytes"] = machine.saved_bytes(model)
    about = machine.description("numpy", "scipy", "scikit-learn")
    return {"about": about, "TextClassifier": own, "LinearSVC": svm(model, train, test)}


def svm(model: TextClassifier, train: Texts, test: Texts) -> dict[str, float]:
    """Learn one-vs-all on the same features."""
    from sklearn.svm import LinearSVC

    X, Z = (model.model_.front_end.matrix(part[0]) for part in (train, test))
    start = time.perf_counter()
    peer = LinearSVC(random_state=0).fit(X, train[1])
    return {"train_s": time.perf_counter() - start, "precision": peer.score(Z, test[1])}


def small_dense_sets() -> dict[str, Any]:
    shapes = {
        "100 features, 50 classes": (5000, 100, 30, 50, 2.0),
        "100 features, 50 classes, hard": (10_000, 100, 60, 50, 1.0),
        "40 features, 20 classes": (4000, 40, 20, 20, 1.0),
    }
    synthetic = {
        name: toys.make_classification(
            n_rows,
            n_features,
            n_informative=n_informative,
            n_redundant=0,
            n_classes=n_classes,
            n_clusters_per_class=1,
            class_sep=apart,
            random_state=0,
        )
        for name, (n_rows, n_features, n_informative, n_classes, apart) in shapes.items()
    }
    known = ("digits", "wine", "breast_cancer", "iris")
    real = {name: getattr(toys, f"load_{name}")(return_X_y=True) for name in known}
    return {**synthetic, **real}


def small_dense(options: argparse.Namespace) -> dict[str, Any]:
    models = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
        "ltls": LTLSClassifier(random_state=0, n_jobs=1),
    }
    found: dict[str, Any] = {}
    for name, (X, y) in small_dense_sets().items():
        found[name] = {"rows": len(y)}
        for title, model in models.items():
            seconds, scores = [], []
            for split in range(1 if options.quick else 5):
                parts = train_test_split(X, y, test_size=0.3, random_state=split, stratify=y)
                start = time.process_time()
                with threadpool_limits(1):
                    fitted = clone(model).fit(parts[0], parts[2])
                seconds.append(time.process_time() - start)
                scores.append(fitted.score(parts[1], parts[3]))
            of = {"accuracy": statistics.mean(scores), "seconds": statistics.median(seconds)}
            found[name][title] = of
        machine.say(f"{name}: {found[name]}")
    return {"about": machine.description("numpy", "scikit-learn"), "sets": found}


def demo(options: argparse.Namespace) -> dict[str, Any]:
    scale = 10 if options.quick else 1
    files = example.library()
    test, train = example.take(files, 50_000 // scale), example.take(files, 500_000 // scale)
    X, X_test = example.rows_of(train), example.rows_of(test)
    y, y_test = (np.array([t for tokens in part for t in tokens], object) for part in (train, test))
    found: dict[str, dict[str, float]] = {}
    for name, model in example.models(verbose=0).items():
        start = time.process_time()
        model.fit(X, y)
        trained = time.process_time()
        precision, recall = example.scores_of(model.predict_topk(X_test, 5)[0], y_test)
        found[name] = {
            "precision": precision,
            "recall": recall,
            "train_s": trained - start,
            "predict_us": 1e6 * (time.process_time() - trained) / len(y_test),
            "bytes": machine.saved_bytes(model),
        }
    if not options.quick:
        found["PECOS"] = peer("pecos", X, y, X_test, y_test)
    for name, best in example.baselines(train, test).items():
        precision, recall = example.scores_of(best, y_test)
        found[name] = {"precision": precision, "recall": recall}
    return {
        "about": machine.description("numpy", "scipy", "scikit-learn"),
        "rows": len(y),
        "test_rows": len(y_test),
        "classes": len(set(y.tolist())),
        "models": found,
    }


def peer(name: str, X: Any, y: Any, X_test: Any, y_test: Any) -> dict[str, float]:
    """Run a peer on the rows of the demo."""
    labels, ids = np.unique(np.concatenate([y, y_test]), return_inverse=True)
    parts = {"": (X, ids[: len(y)]), "_test": (X_test, ids[len(y) :])}
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "data"), Path(folder, "out")
        data.mkdir()
        for suffix, (rows, of_rows) in parts.items():
            ends, ones = np.arange(len(of_rows) + 1), np.ones(len(of_rows), np.float32)
            Y = sp.csr_matrix((ones, of_rows, ends), shape=(len(of_rows), len(labels)))
            sp.save_npz(data / f"X{suffix}.npz", sp.csr_matrix(rows))
            sp.save_npz(data / f"Y{suffix}.npz", Y)
        measures = environments.run(CONTENDER, name, data, out, {}, limit=3600)
        precision, recall = example.scores_of(np.load(out / "top5.npy"), ids[len(y) :])
    return {
        "precision": precision,
        "recall": recall,
        "train_s": measures["train_cpu_seconds"],
        "predict_us": 1e6 * measures["predict_cpu_seconds"] / len(y_test),
        "bytes": measures["model_bytes"],
    }


def check_demo(result: dict[str, Any]) -> list[str]:
    ours = [of for name, of in result["models"].items() if name.startswith("ltls")]
    failures = []
    if (seconds := sum(of["train_s"] for of in ours)) > 120:
        failures.append(f"training took {seconds:.0f} s, over 120")
    if (precision := min(of["precision"] for of in ours)) < 0.4:
        failures.append(f"P@1 is {precision:.3f}, below 0.4")
    return failures


TASKS = {"text": text, "small_dense": small_dense, "demo": demo}


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("name", choices=TASKS)
    parser.add_argument("--check", action="store_true", help="of the demo")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    result = TASKS[options.name](options)
    print("\n".join(getattr(tables, options.name)(result)))
    if not options.quick:
        machine.write(options.name, result)
    if options.check and options.name == "demo" and (failures := check_demo(result)):
        sys.exit("; ".join(failures))


if __name__ == "__main__":
    main()
