"""Two whole tasks: raw text beside a linear SVM, and the demo.

    python -m benchmarks.tasks text            TextClassifier on the text of banking77
    python -m benchmarks.tasks demo [--quick]  the next token of Python code, by width, and PECOS

With --check each ends with status 1 where it has become worse than we want: P@1 of the text at
least 0.90 for every seed; the demo within two minutes, of which the first training 30 seconds, with
P@1 of at least 0.50. The demo's times are processor time, which other work on the machine disturbs
little; --quick stores nothing and runs no peer.
"""

from __future__ import annotations

import argparse
import csv
import io
import lzma
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from rich.console import Console

from benchmarks import machine, tables
from benchmarks.accuracy import environments
from ltls import TextClassifier
from ltls.cli import demo_model, demo_report
from ltls.cli.demo import N_HELD_OUT, WIDTH

N_EXAMPLES = 1_000_000
CONTENDER = Path(__file__).parent / "accuracy" / "contender.py"

Texts = tuple[list[str], list[str]]


def read(part: str) -> Texts:
    """Return the texts and labels of banking77."""
    path = machine.data_folder() / f"banking77_text_{part}.csv.xz"
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["category"] for row in rows]


def text(options: argparse.Namespace) -> dict[str, Any]:
    train, test = read("train"), read("test")
    own: dict[str, Any] = {"precision": [], "train_s": [], "row_us": []}
    for seed in range(5):
        start = time.perf_counter()
        model = TextClassifier(random_state=seed).fit(*train)
        own["train_s"].append(time.perf_counter() - start)
        start = time.perf_counter()
        own["precision"].append(model.score(*test))
        own["row_us"].append(1e6 * (time.perf_counter() - start) / len(test[0]))
    own["features"], own["edges"] = model.n_features_in_, model.trellis_.n_edges
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("float32", "int8"):
            path = Path(folder, dtype)
            model.save(path, dtype)
            own[f"{dtype}_bytes"] = path.stat().st_size
    about = machine.description("numpy", "scipy", "scikit-learn")
    return {"about": about, "TextClassifier": own, "LinearSVC": svm(train, test)}


def svm(train: Texts, test: Texts) -> dict[str, float]:
    """Learn one-vs-all on the same features."""
    from sklearn.svm import LinearSVC

    vectorizer = TextClassifier(epochs=1).fit(*train).vectorizer_
    X, Z = vectorizer.transform(train[0]), vectorizer.transform(test[0])
    start = time.perf_counter()
    model = LinearSVC(random_state=0).fit(X, train[1])
    return {"train_s": time.perf_counter() - start, "precision": model.score(Z, test[1])}


def check_text(result: dict[str, Any]) -> list[str]:
    least = min(result["TextClassifier"]["precision"])
    return [f"P@1 is {least:.4f}, below 0.90"] if least < 0.90 else []


def demo(options: argparse.Namespace) -> dict[str, Any]:
    start = time.process_time()
    train, test = demo_model.corpus(None, N_EXAMPLES, N_HELD_OUT)
    models, first = [], None
    with tempfile.TemporaryDirectory() as folder:
        for width in (WIDTH, *demo_report.WIDTHS):
            began = time.process_time()
            one = demo_model.train_and_measure(width, train, test, Path(folder, f"{width}.ltls"))
            first = first or one.model
            models.append(
                {
                    "width": width,
                    "classes": len(one.model.classes_),
                    "edges": one.model.trellis_.n_edges,
                    "precision": one.scores.precision,
                    "recall": one.scores.recall,
                    "train_s": time.process_time() - began,
                    "predict_us": one.predict_us,
                    "bytes": one.n_bytes,
                }
            )
    demo_report.show_completions(Console(file=io.StringIO()), first)
    majority = demo_model.majority(train, test)
    bigrams = demo_model.bigrams(train, test)
    seconds = time.process_time() - start
    return {
        "about": machine.description("numpy", "scipy", "scikit-learn"),
        "train_rows": len(train),
        "test_rows": len(test),
        "seconds": seconds,
        "models": models,
        **({} if options.quick else {"pecos": demo_peer("pecos", train, test)}),
        "majority": [majority.precision, majority.recall],
        "bigrams": [bigrams.precision, bigrams.recall],
    }


def demo_peer(name: str, train: demo_model.Examples, test: demo_model.Examples) -> dict[str, Any]:
    """Run a peer on the rows of the demo."""
    labels, ids = np.unique(np.concatenate([train.y, test.y]), return_inverse=True)
    parts = {"": (train, ids[: len(train)]), "_test": (test, ids[len(train) :])}
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "data"), Path(folder, "out")
        data.mkdir()
        for suffix, (rows, of_rows) in parts.items():
            ends = np.arange(len(rows) + 1)
            shape = (len(rows), len(labels))
            Y = sp.csr_matrix((np.ones(len(rows), np.float32), of_rows, ends), shape=shape)
            sp.save_npz(data / f"X{suffix}.npz", sp.csr_matrix(rows.X))
            sp.save_npz(data / f"Y{suffix}.npz", Y)
        measures = environments.run(CONTENDER, name, data, out, {}, limit=3600)
        right = np.load(out / "top5.npy") == ids[len(train) :, None]
    return {
        "precision": float(right[:, 0].mean()),
        "recall": float(right.any(axis=1).mean()),
        "train_s": measures["train_cpu_seconds"],
        "predict_us": 1e6 * measures["predict_cpu_seconds"] / len(test),
        "bytes": measures["model_bytes"],
    }


def check_demo(result: dict[str, Any]) -> list[str]:
    first, failures = result["models"][0], []
    if result["seconds"] > 120:
        failures.append(f"the demo took {result['seconds']:.0f} s, over 120")
    if first["train_s"] > 30:
        failures.append(f"training took {first['train_s']:.0f} s, over 30")
    if first["precision"] < 0.5:
        failures.append(f"P@1 is {first['precision']:.3f}, below 0.5")
    return failures


CHECKS = {text: check_text, demo: check_demo}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="name", required=True)
    for command in CHECKS:
        own = commands.add_parser(command.__name__)
        own.set_defaults(run=command)
        own.add_argument("--check", action="store_true")
    commands.choices["demo"].add_argument("--quick", action="store_true")
    options = parser.parse_args()
    result = options.run(options)
    print("\n".join(tables.TABLES[options.name](result)))
    if not getattr(options, "quick", False):
        machine.write(options.name, result)
    if options.check and (failures := CHECKS[options.run](result)):
        sys.exit("; ".join(failures))


if __name__ == "__main__":
    main()
