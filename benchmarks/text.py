"""TextClassifier with its defaults on raw text, beside scikit-learn's linear SVM on its features.

Reads banking77_text_{train,test}.csv.xz from the folder that the argument or the environment
variable LTLS_DATA names. Writes docs/benchmarks/text.{json,md}.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
from sklearn.svm import LinearSVC

from ltls import TextClassifier
from ltls.tables import Columns, Table

OUT = Path(__file__).parent.parent / "docs" / "benchmarks"
SEEDS = range(5)
LEAST = 0.90  # P@1 with defaults


def read(path: Path) -> tuple[list[str], list[str]]:
    (rows,) = Table(path, "csv", Columns("text", "category")).batches(10**9)
    return rows.texts, [label for (label,) in rows.labels]


def ours(train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, Any]:
    """Learn with several seeds; return the figures of each, and the size of a model file."""
    result: dict[str, Any] = {"precision": [], "train_s": [], "row_us": []}
    for seed in SEEDS:
        start = time.perf_counter()
        model = TextClassifier(random_state=seed).fit(*train)
        result["train_s"].append(time.perf_counter() - start)
        start = time.perf_counter()
        result["precision"].append(model.score(*test))
        result["row_us"].append(1e6 * (time.perf_counter() - start) / len(test[0]))
    result["features"], result["edges"] = model.n_features_in_, model.trellis_.n_edges
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("float32", "int8"):
            path = Path(folder, dtype)
            model.save(path, dtype)
            result[f"{dtype}_bytes"] = path.stat().st_size
    return result


def svm(train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, Any]:
    """Learn one-vs-all on the same features."""
    vectoriser = TextClassifier(epochs=1).fit(*train).vectoriser_
    X, Z = vectoriser.transform(train[0]), vectoriser.transform(test[0])
    start = time.perf_counter()
    model = LinearSVC(random_state=0).fit(X, train[1])
    return {"train_s": time.perf_counter() - start, "precision": model.score(Z, test[1])}


def report(result: dict[str, Any]) -> str:
    about, own, peer = (result[key] for key in ("about", "TextClassifier", "LinearSVC"))
    p = own["precision"]
    sizes = [f"{own[f'{dtype}_bytes'] / 1e6:.0f} MB as {dtype}" for dtype in ("float32", "int8")]
    cells = [
        f"`TextClassifier()`, {len(p)} seeds",
        f"{statistics.mean(p):.4f} ({min(p):.4f}–{max(p):.4f})",
        f"{statistics.median(own['train_s']):.1f} s",
        f"{statistics.median(own['row_us']):.0f} µs",
        f"{own['features']:,} features, {', '.join(sizes)}",
    ]
    peer_cells = [
        "`LinearSVC()` on the same features",
        f"{peer['precision']:.4f}",
        f"{peer['train_s']:.1f} s without vectorising",
        "",
        "",
    ]
    lines = [
        "# Raw text: banking77",
        "",
        f"{about['machine']}, {about['date']}; `{about['command']}`.",
        "10,003 training texts, 3,080 test texts, 77 classes.",
        "",
        "| model | P@1 | training | per test row | model file |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in (cells, peer_cells)),
        "",
        f"P@1 of at least {LEAST:.2f} with defaults, whatever the seed: "
        f"{'holds' if min(p) >= LEAST else 'does not hold'}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("LTLS_DATA")
    if folder is None:
        sys.exit("name the folder of the data sets, as argument or in LTLS_DATA")
    names = [Path(folder, f"banking77_text_{part}.csv.xz") for part in ("train", "test")]
    train, test = map(read, names)
    about = machine.description("numpy", "scipy", "scikit-learn")
    about["command"] = "python benchmarks/text.py"
    own, peer = ours(train, test), svm(train, test)
    OUT.mkdir(parents=True, exist_ok=True)
    result = {"about": about, "TextClassifier": own, "LinearSVC": peer}
    (OUT / "text.json").write_text(json.dumps(result, indent=1) + "\n")
    text = report(result)
    (OUT / "text.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
