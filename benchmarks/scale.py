"""Many labels, many rows, and many vectors.

    python -m benchmarks.scale labels    ltls, omikuji and PECOS at 10⁴, 10⁵ and 10⁶ labels (hours)
    python -m benchmarks.scale rows      `fit_stream` on a million to ten million rows
    python -m benchmarks.scale vectors   `fit` on a million vectors in a memory-mapped file
    python -m benchmarks.scale vectors --size 100000 10000 --dtype float16

The first needs the sets of `benchmarks.debian_contents` in the folder that LTLS_DATA names, the
second debfiles, whose first million rows it reads again and again.
Vectors are a mixture that is generated: labels are in groups, and a row is the centre of its label
with noise, scaled to unit length. Their file in build/ is deleted at the end.

Each run has a process of its own, and what was measured is stored after each; it does not run again
unless --fresh says so. A tool that takes more than an hour or 12 GB of memory is stopped, which is
a result, too.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import multiprocessing
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import datasets, machine
from benchmarks.accuracy import environments, results
from benchmarks.accuracy.__main__ import CONTENDER
from benchmarks.accuracy.methods import METHODS
from benchmarks.debian_contents import SETS
from ltls import LTLSClassifier
from ltls.readers import Stream

TOOLS = ("default", "omikuji", "pecos")  # names of `benchmarks.accuracy.methods`
SECONDS, BYTES = 3600, 12 * 10**9  # that a tool may take
KEPT = (
    "p1", "p5", "train_seconds", "train_cpu_seconds", "train_peak_bytes", "predict_cpu_seconds",
    "model_bytes",
)  # fmt: skip

MILLION = 1_000_000
ROWS = (1, 3, 10)  # millions

DIMENSIONS, TEST_VECTORS = 256, 2000
OWN, NOISE = 0.5, 1.5  # deviations of a label from its group, and of a row from its label
BLOCK = 1 << 14  # rows that are generated at a time


def run_tool(tool: str, name: str, folder: Path) -> dict[str, Any]:
    """Train and test one tool on one set, or say why that failed."""
    method = METHODS[tool]
    Y, Y_test = datasets.labels(folder)
    out = machine.BUILD / "scale" / f"{name}-{tool}"
    settings = {} if method.is_peer else {"random_state": 0}
    try:
        measures = environments.run(
            CONTENDER, method.contender, folder, out, settings, SECONDS, BYTES
        )
    except environments.RunError as error:
        return {"not_run": str(error)}
    top = np.load(out / "top5.npy")
    shutil.rmtree(out)
    found = {**measures, **results.figures(Y, Y_test, top)}
    return {key: found[key] for key in KEPT}


def labels(options: argparse.Namespace) -> None:
    for name, tool in itertools.product(options.sets, options.tools):
        known = machine.read("scale_labels").get("sets", {})
        if tool in known.get(name, {}).get("tools", {}) and not options.fresh:
            continue
        folder = datasets.prepare(machine.data_folder(), name, machine.BUILD / "scale" / "sets")
        if folder is None:
            raise SystemExit(f"{name} is not in the folder that LTLS_DATA names")
        found = run_tool(tool, name, folder)
        machine.say(f"{name}, {tool}: {found}")
        known = machine.read("scale_labels").get("sets", {})  # another process may have written
        tools = known.get(name, {}).get("tools", {})
        of = {"set": datasets.describe(folder), "tools": {**tools, tool: found}}
        sets = {each: {**known, name: of}[each] for each in SETS if each in {*known, name}}
        store("scale_labels", {"sets": sets}, "scikit-learn")


def million_rows() -> Path:
    """Write the first million rows of debfiles to a file, unless it is there."""
    path = machine.BUILD / "scale" / "million_rows.txt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        files = datasets.find(machine.data_folder(), "debfiles")
        if files is None:
            raise SystemExit("debfiles is not in the folder that LTLS_DATA names")
        part = path.with_suffix(".part")
        with lzma.open(files[0], "rt") as lines, open(part, "w") as out:
            _, n_features, n_labels = next(lines).split()
            out.write(f"{MILLION} {n_features} {n_labels}\n")
            out.writelines(itertools.islice(lines, MILLION))
        part.replace(path)
    return path


def time_stream(path: Path, millions: int) -> dict[str, Any]:
    """Train one trellis of width 2 for an epoch on a file that is read again and again."""
    stream = Stream([path] * millions, n_jobs=1)
    model = LTLSClassifier(label_weights=False, calibration=False, memory=False, random_state=0)
    model.set_params(trellises__width=2, trellises__n_trellises=1, trellises__epochs=1)
    wall, processor = time.perf_counter(), time.process_time()
    model.fit_stream(stream)
    return {
        "rows": millions * MILLION,
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - processor,
        "peak_bytes": machine.peak_bytes(),
        "labels": len(model.classes_),
    }


def rows(options: argparse.Namespace) -> None:
    fits = machine.read("scale_rows").get("fits", {})
    for millions in ROWS:
        if str(millions) in fits and not options.fresh:
            continue
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            fits[str(millions)] = pool.apply(time_stream, (million_rows(), millions))
        machine.say(f"{millions} million rows: {fits[str(millions)]}")
        store("scale_rows", {"fits": fits}, "numpy")


def write_vectors(path: Path, n_rows: int, n_labels: int, dtype: str) -> Any:
    """Write vectors to a file; return their labels, and vectors and labels of test rows."""
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(round(n_labels**0.5), DIMENSIONS)).astype(np.float32)
    centres = groups[rng.integers(len(groups), size=n_labels)]
    centres += OWN * rng.standard_normal(centres.shape, np.float32)

    def vectors(labels: Any) -> Any:
        rows = centres[labels] + NOISE * rng.standard_normal((len(labels), DIMENSIONS), np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    y = rng.permutation(np.arange(n_rows) % n_labels)
    file = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), (n_rows, DIMENSIONS))
    for first in range(0, n_rows, BLOCK):
        file[first : first + BLOCK] = vectors(y[first : first + BLOCK])
    file.flush()
    y_test = rng.integers(n_labels, size=TEST_VECTORS)
    return y, vectors(y_test), y_test


def watched(work: Callable[[], Any]) -> tuple[Any, int]:
    """Return what a call returns, and the most memory meanwhile, without that of mapped files."""
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, machine.memory("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return work(), peak
    finally:
        done.set()
        watcher.join()


def fit_vectors(path: Path, y: Any, X_test: Any, y_test: Any) -> dict[str, Any]:
    """Train the defaults on the vectors of a file."""
    X = np.load(path, mmap_mode="r")
    before, wall, processor = machine.memory("RssAnon"), time.perf_counter(), time.process_time()
    model, peak = watched(lambda: LTLSClassifier(random_state=0, n_jobs=-1).fit(X, y))
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - processor
    processor = time.process_time()
    best = model.predict(X_test)
    predicted = time.process_time() - processor
    file = path.with_suffix(".ltls")
    model.save(file)
    return {
        "rows": len(X),
        "labels": len(model.classes_),
        "dtype": str(X.dtype),
        "file_bytes": path.stat().st_size,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_bytes": peak - before,
        "p1": float((best == y_test).mean()),
        "predict_us": 1e6 * predicted / len(X_test),
        "model_bytes": file.stat().st_size,
    }


def vectors(options: argparse.Namespace) -> None:
    n_rows, n_labels = options.size
    fits = machine.read("scale_vectors").get("fits", {})
    name = f"{n_rows} {n_labels} {options.dtype}"
    if name in fits and not options.fresh:
        return
    machine.BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=machine.BUILD) as folder:
        path = Path(folder, "vectors.npy")
        known = write_vectors(path, n_rows, n_labels, options.dtype)
        machine.say(f"{path} has {path.stat().st_size / 1e6:,.0f} MB")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            fits[name] = pool.apply(fit_vectors, (path, *known))
    machine.say(f"{name}: {fits[name]}")
    store("scale_vectors", {"fits": fits}, "numpy")


def store(name: str, measured: dict[str, Any], *packages: str) -> None:
    about = machine.description(*packages)
    command, _, _ = about["command"].partition(" --")  # in pieces or at once
    machine.write(name, {"about": {**about, "command": command}, **measured})


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("name", choices=["labels", "rows", "vectors"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=TOOLS)
    parser.add_argument("--size", nargs=2, type=int, default=[MILLION, MILLION // 10])
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16"])
    parser.add_argument("--fresh", action="store_true", help="run again what is stored")
    options = parser.parse_args()
    {"labels": labels, "rows": rows, "vectors": vectors}[options.name](options)


if __name__ == "__main__":
    main()
