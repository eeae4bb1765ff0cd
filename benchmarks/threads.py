"""Speed-up of a second thread in every part of training and prediction.

    python -m benchmarks.threads [--sets SET ...] [--repeats N]

The parts are timed within whole fits, with one and two threads in turn. The models must be the same
bit for bit. Beside them stand two ceilings, measured before and after each set: a loop that only
computes, and one that only moves memory. Results of other sets stay as they are stored.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import lzma
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import datasets, machine, tables
from ltls import LTLSClassifier, TextClassifier
from ltls.training import build, fit, label_weights, trainer

SETS = ("debtags", "icd10cm", "wordnet_hyper", "debfiles")
TEXTS = "banking77"
MAX_ROWS = 200_000

# What is timed in a fit; functions that are called by one another are not.
PARTS: dict[str, list[tuple[Any, str]]] = {
    "clustering of labels": [(fit, "label_vectors"), (build, "similar_buckets")],
    "trellises": [(trainer.Trainer, "run_epoch")],
    "search for negatives": [(label_weights, "candidates_of")],
    "label weights": [(label_weights, "label_task"), (label_weights, "_run")],
}

Seconds = dict[str, float]


@contextmanager
def clocks() -> Iterator[Seconds]:
    """Add up the seconds of every part."""
    spent: Seconds = {}

    def timed(part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return work(*arguments, **options)
            finally:
                spent[part] = spent.get(part, 0.0) + time.perf_counter() - start

        return call

    with ExitStack() as stack:
        for part, places in PARTS.items():
            for owner, name in places:
                stack.enter_context(patch.object(owner, name, timed(part, getattr(owner, name))))
        yield spent


def time_fit(X: Any, y: Any, X_test: Any, n_jobs: int) -> tuple[Seconds, str]:
    """Return the seconds of a fit, its parts and a prediction, and what tells models apart."""
    model = LTLSClassifier(random_state=0, n_jobs=n_jobs)
    with clocks() as spent:
        start = time.perf_counter()
        model.fit(X, y)
        spent["the whole fit"] = time.perf_counter() - start
    start = time.perf_counter()
    labels, scores = model.predict_topk(X_test, 5)
    spent["prediction"] = time.perf_counter() - start
    return spent, digest(file_of(model), labels, scores)


def time_texts(texts: list[str], n_jobs: int) -> tuple[Seconds, str]:
    """Return the seconds of the vectorizer, and what tells its results apart."""
    model, spent = TextClassifier(n_jobs=n_jobs), {}
    start = time.perf_counter()
    rows, _ = model.to_features(texts)
    spent["vectorizer, learning"] = time.perf_counter() - start
    start = time.perf_counter()
    known = model.vectorizer_.transform(texts, n_jobs)
    spent["vectorizer, known n-grams"] = time.perf_counter() - start
    names = "\n".join(model.vectorizer_.feature_names()).encode()
    return spent, digest(names, *(part for X in (rows, known) for part in (X.data, X.indices)))


def file_of(model: LTLSClassifier) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ltls")
        model.set_params(n_jobs=None).save(path)
        return path.read_bytes()


def digest(content: bytes, *arrays: Any) -> str:
    found = hashlib.sha256(content)
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def compare(run: Callable[[int], tuple[Seconds, str]], repeats: int) -> dict[str, Any]:
    """Return the median seconds of every part with one and two threads, and the ceilings."""
    times: dict[int, list[Seconds]] = {1: [], 2: []}
    digests = set()
    found = ceilings()
    for _ in range(repeats):
        for n_jobs, own in times.items():
            spent, same = run(n_jobs)
            own.append(spent)
            digests.add(same)
    after = ceilings()
    parts = {
        part: {
            f"{n}": statistics.median(each.get(part, 0.0) for each in own)
            for n, own in times.items()
        }
        for part in times[1][0]
    }
    return {
        "parts": parts,
        "identical": len(digests) == 1,
        "repeats": repeats,
        "ceilings": {name: statistics.mean((found[name], after[name])) for name in found},
    }


def ceilings() -> dict[str, float]:
    """Return the speed-up of two threads that only compute, and that only move memory."""
    a = np.ones(1 << 23, np.float32)

    def move() -> None:
        np.add(a, a, out=np.empty_like(a))

    def compute() -> None:
        hashlib.pbkdf2_hmac("sha512", b"password", b"salt", 20_000)

    return {"computing": speed_up(compute, 6), "moving memory": speed_up(move, 6)}


def speed_up(call: Callable[[], object], n_calls: int) -> float:
    """Return the throughput of two threads that call, over that of one; medians in turn."""

    def seconds(n_threads: int) -> float:
        def work(_: int) -> None:
            for _ in range(n_calls // n_threads):
                call()

        with ThreadPoolExecutor(n_threads) as pool:
            start = time.perf_counter()
            list(pool.map(work, range(n_threads)))
            return time.perf_counter() - start

    seconds(2)
    return statistics.median(seconds(1) / seconds(2) for _ in range(3))


def predictor_calls(name: str) -> dict[str, float]:
    """Return the speed-up of two threads that call one predictor."""
    train, test = datasets.train_and_test(name)
    y = datasets.targets(train, train.single_label)
    predictor = LTLSClassifier(random_state=0, epochs=1, n_jobs=2).fit(train.X, y).predictor(k=5)
    row, rows = test.X[:1], test.X[:64]
    return {
        "1 row per call": speed_up(lambda: predictor(row), 20_000),
        "64 rows per call": speed_up(lambda: predictor(rows), 2000),
    }


def texts_of_set() -> list[str]:
    path = machine.data_folder() / f"{TEXTS}_text_train.csv.xz"
    with io.TextIOWrapper(lzma.open(path), "utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [TEXTS, *SETS]
    parser.add_argument("--sets", nargs="+", default=every, choices=every, metavar="SET")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    machine.data_folder()
    stored = machine.read("threads")
    result: dict[str, Any] = {"about": {}, "sets": stored.get("sets", {})}
    for name in options.sets:
        if name == TEXTS:
            found = compare(partial(time_texts, texts_of_set()), options.repeats)
        else:
            train, test = datasets.train_and_test(name)
            X, y = train.X[:MAX_ROWS], datasets.targets(train, train.single_label)[:MAX_ROWS]
            found = compare(partial(time_fit, X, y, test.X), options.repeats)
            if train.n_rows <= MAX_ROWS:
                found["predictor"] = predictor_calls(name)
        result["sets"][name] = found
        machine.say(f"{name}: {found}")
        result["sets"] = {each: result["sets"][each] for each in every if each in result["sets"]}
        result["about"] = {**machine.description(), "command": "python -m benchmarks.threads"}
        machine.write("threads", result)
    print("\n".join([*tables.threads(result), "", *tables.threads_predicting(result)]))


if __name__ == "__main__":
    main()
