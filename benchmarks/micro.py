"""Small measurements of parts of the engine.

    python -m benchmarks.micro readers        reading text files beside scikit-learn's parser
    python -m benchmarks.micro programs       dynamic programs to 10¹² classes, and torch-struct
    python -m benchmarks.micro growth         time and memory against classes, rows and non-zeros
    python -m benchmarks.micro rows           training rate through `fit`, to ten million rows
    python -m benchmarks.micro hashed         peak memory behind 2²⁰ hashed columns
    python -m benchmarks.micro checksums      rate of checksums, and loading with and without them
    python -m benchmarks.micro one_text       latency of single texts of banking77
    python -m benchmarks.micro instructions   instructions per row; fails where they grew by a tenth

`growth --quick` measures fewer points and stores nothing. `instructions` counts under callgrind,
which gives the same every time; `--update` makes its counts the baseline of this compiler.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import multiprocessing
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import machine, tables
from ltls import LTLSClassifier, RandomCodebook, TextClassifier, Trellis, load
from ltls.core import _engine
from ltls.features.rows import engine_features
from ltls.linear.trainable import TrainableWeights
from ltls.model.decoder import Decoder
from ltls.readers import Dataset, read
from ltls.structure.losses import LOSSES

# Readers: plain files of the XMC format into CSR matrices

FILES = ("debtags", "debfiles")


def generate(path: Path) -> None:
    """Write 100,000 rows of 30 features with four digits each, two labels per row."""
    rng = np.random.default_rng(0)
    n_rows, n_features, n_labels = 100_000, 100_000, 10_000
    with open(path, "w") as file:
        file.write(f"{n_rows} {n_features} {n_labels}\n")
        for _ in range(n_rows):
            features = np.unique((n_features * rng.random(30) ** 2).astype(int))
            values = rng.random(len(features))
            pairs = " ".join(f"{j}:{x:.4g}" for j, x in zip(features, values, strict=True))
            file.write("{},{} {}\n".format(*rng.integers(0, n_labels, 2), pairs))


def scikit_learn(path: Path) -> Any:
    from sklearn.datasets import load_svmlight_file

    with open(path, "rb") as file:
        file.readline()  # it does not know the header
        return load_svmlight_file(file, dtype=np.float32, multilabel=True, zero_based=True)


READERS: dict[str, Callable[[Path], object]] = {
    "scikit-learn": scikit_learn,
    "ltls, 1 thread": lambda path: read(path, n_jobs=1),
    "ltls, 2 threads": lambda path: read(path, n_jobs=2),
}


def checked(path: Path) -> Dataset:
    """Check that both read the same: scikit-learn rounds twice, so the last bit may differ."""
    ours, (X, labels) = read(path), scikit_learn(path)
    assert np.array_equal(ours.X.indptr, X.indptr)
    assert np.array_equal(ours.X.indices, X.indices)
    np.testing.assert_allclose(ours.X.data, X.data, rtol=1.2e-7)
    assert all(set(row) == set(own) for row, own in zip(ours.labels(), labels, strict=True))
    return ours


def time_readers(name: str, path: Path, repeats: int = 3) -> dict[str, Any]:
    """Take the readers in turn, so that other work on the machine disturbs all of them alike."""
    data = checked(path)
    times: dict[str, list[float]] = {reader: [] for reader in READERS}
    for _ in range(repeats):
        for reader, work in READERS.items():
            start = time.perf_counter()
            work(path)
            times[reader].append(time.perf_counter() - start)
    size = path.stat().st_size
    medians = {reader: statistics.median(each) for reader, each in times.items()}
    return {
        "data": name,
        "rows": data.n_rows,
        "values": data.X.nnz,
        "size": size,
        "seconds": medians,
    }


def readers(options: argparse.Namespace) -> dict[str, Any]:
    files = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.txt")
        generate(path)
        files.append(time_readers("generated", path))
        for name in FILES if "LTLS_DATA" in os.environ else ():
            packed = Path(os.environ["LTLS_DATA"], f"{name}_train.txt.xz")
            with lzma.open(packed) as packed_file, open(path, "wb") as file:
                shutil.copyfileobj(packed_file, file)
            files.append(time_readers(name, path))
    return {"about": machine.description("numpy", "scikit-learn"), "files": files}


# Dynamic programs: nanoseconds per row of a batch, one thread

PROGRAMS = ("viterbi", "topk 5", "log_partition", "marginals")


def time_programs(n_classes: int, width: int, n_rows: int = 1024) -> dict[str, Any]:
    trellis = Trellis(n_classes, width)
    h = np.random.default_rng(0).normal(size=(n_rows, trellis.n_edges)).astype(np.float32)
    row: dict[str, Any] = {"width": width, "C": n_classes, "edges": trellis.n_edges}
    for program in PROGRAMS:
        name, *k = program.split()
        work = getattr(trellis, name)
        spent = machine.seconds(lambda work=work, k=k: work(h, *map(int, k)), 3)
        row[program] = spent / n_rows * 1e9
    print("  ".join(f"{key} {value:,.0f}" for key, value in row.items()), flush=True)
    return row


def fits(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fit time = start + slope · log10 C for every width and program."""
    result = []
    for width in sorted({row["width"] for row in rows}):
        chosen = [row for row in rows if row["width"] == width]
        x = np.log10([row["C"] for row in chosen])
        for program in PROGRAMS:
            y = np.array([row[program] for row in chosen])
            slope, start = np.polyfit(x, y, 1)
            r2 = 1 - np.var(y - start - slope * x) / np.var(y)
            fit = {"start": float(start), "slope": float(slope), "r2": float(r2)}
            result.append({"width": width, "program": program, **fit})
    return result


def against_torch_struct() -> dict[str, float]:
    """Time both, one thread each, at C = 2**20, width 2, 4,096 rows: nanoseconds per row."""
    import torch
    import torch_struct

    # torch-struct 0.5 predates a check of torch.distributions
    warnings.filterwarnings("ignore", message=".*arg_constraints.*")
    torch.set_num_threads(1)
    n_rows, slices = 4096, 20
    trellis = Trellis(2**slices, 2)
    h = np.random.default_rng(0).normal(size=(n_rows, trellis.n_edges)).astype(np.float32)
    # torch-struct's chain of 20 states has 19 transitions; source and auxiliary edges join them.
    b = trellis.width
    transitions = h[:, b : b + (slices - 1) * b * b].reshape(n_rows, slices - 1, b, b).copy()
    transitions[:, 0] += h[:, :b, None]
    transitions[:, -1] += h[:, None, -b - 1 : -1] + h[:, -1, None, None]
    potentials = torch.from_numpy(np.ascontiguousarray(transitions.swapaxes(2, 3)))

    def chain() -> Any:
        return torch_struct.LinearChainCRF(potentials)

    def both() -> tuple[object, object]:
        distribution = chain()
        return distribution.partition, distribution.marginals

    score = (chain().argmax * potentials).sum((1, 2, 3)).detach()
    np.testing.assert_allclose(trellis.viterbi(h)[1], score, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(trellis.log_partition(h), chain().partition.detach(), rtol=1e-4)
    works: dict[str, Callable[[], object]] = {
        "viterbi, ltls": lambda: trellis.viterbi(h),
        "viterbi, torch-struct": lambda: chain().argmax,
        "log-partition and marginals, ltls": lambda: (
            trellis.log_partition(h),
            trellis.marginals(h),
        ),
        "log-partition and marginals, torch-struct": both,
    }
    return {name: machine.seconds(work, 5) / n_rows * 1e9 for name, work in works.items()}


def programs(options: argparse.Namespace) -> dict[str, Any]:
    peer = against_torch_struct()
    rows = [time_programs(10**e, width) for width in (2, 8, 32) for e in range(3, 13)]
    about = machine.description("numpy", "torch", "torch-struct")
    return {"about": about, "growth": rows, "fits": fits(rows), "torch_struct": peer}


# Growth: one trellis of width 2 under a random codebook, which needs no memory of its own

N_FEATURES, NON_ZEROS, ROWS, N_CLASSES = 50_000, 50, 20_000, 100_000
KS = (1, 5, 50)


def power_law_rows(n_rows: int, non_zeros: int) -> sp.csr_matrix:
    """Return rows whose features are as rare and as frequent as those of text."""
    rng = np.random.default_rng(0)
    indices = np.minimum(N_FEATURES * rng.random((n_rows, non_zeros)) ** 3, N_FEATURES - 1)
    values = rng.random(indices.size, np.float32)
    indptr = np.arange(0, indices.size + 1, non_zeros, dtype=np.int64)
    X = sp.csr_matrix((values, indices.astype(np.int64).ravel(), indptr), (n_rows, N_FEATURES))
    X.sum_duplicates()
    return X


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def shortest(work: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of a call: other work on the machine disturbs it little."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


def time_step(n_classes: int, n_rows: int, non_zeros: int, repeats: int) -> dict[str, Any]:
    """Return microseconds per row of a training step and of prediction, and bytes.

    The estimator keeps a table of its classes, which a billion of them would not fit into: this
    calls the layer below it.
    """
    X = power_law_rows(n_rows, non_zeros)
    before = resident()
    trellis, book = Trellis(n_classes, 2), RandomCodebook(n_classes)
    weights = TrainableWeights(
        trellis, 1, N_FEATURES, intercept=True, unit_length=False,
        adagrad=True, average=False, settings={},
    )  # fmt: skip
    labels = np.random.default_rng(1).integers(n_classes, size=n_rows)
    paths = book.path_of(labels)[None]
    features = engine_features(X, True, False)
    order, ptr = np.arange(n_rows), np.arange(n_rows + 1)
    task = _engine.TrainTask(
        trellis.engine, features, ptr, labels, paths, None, [],
        loss="softmax", multilabel=False, ranking_multiplier=1,
    )  # fmt: skip

    def train() -> None:
        task.run(
            weights.values, weights.squares, weights.sums, order, step=1, learning_rate=0.3,
            threshold=0.0, count_hits=False, batch_size=1, n_jobs=1,
        )  # fmt: skip

    found: dict[str, Any] = {
        "C": n_classes,
        "N": n_rows,
        "nnz": non_zeros,
        "edges": trellis.n_edges,
        "training step": shortest(train, repeats) / n_rows * 1e6,
        "model bytes": weights.values.nbytes,
    }
    decoder = Decoder(trellis, [book], n_classes, LOSSES["softmax"])
    some = min(n_rows, 5000)
    for k in KS:
        predictor = decoder.predictor(weights.for_prediction(0), k)
        ids, scores = np.empty((some, k), np.int64), np.empty((some, k), np.float32)

        def predict(predictor: Any = predictor, ids: Any = ids, scores: Any = scores) -> None:
            predictor.predict(features, 0, ids, scores, 1)

        found[f"prediction, k = {k}"] = shortest(predict, repeats) / some * 1e6
    found["resident bytes"] = resident() - before
    return found


def time_steps(points: list[tuple[int, int, int]], repeats: int) -> list[dict[str, Any]]:
    """Measure each in a process of its own, whose memory starts fresh."""
    found = []
    for point in points:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(time_step, (*point, repeats)))
        print(found[-1], flush=True)
    return found


def growth(options: argparse.Namespace) -> dict[str, Any]:
    quick = options.quick
    repeats = 3 if quick else 7
    classes = [10**e for e in range(3, 10, 3 if quick else 1)]
    counts = [1_000, 10_000] if quick else [1_000, 3_000, 10_000, 30_000, 100_000]
    non_zeros = [10, 100] if quick else [10, 30, 100, 300, 1000]
    series = {
        "C": time_steps([(c, ROWS, NON_ZEROS) for c in classes], repeats),
        "N": time_steps([(N_CLASSES, n, NON_ZEROS) for n in counts], repeats),
        "nnz": time_steps([(N_CLASSES, ROWS // 4, n) for n in non_zeros], repeats),
    }
    return {"about": machine.description("numpy", "scipy"), "series": series}


# The training rate through `fit`, where everything that a user waits for counts

FIT_ROWS = (1_000_000, 2_000_000, 5_000_000, 10_000_000)


def time_fit(n_rows: int, repeats: int) -> dict[str, Any]:
    """Return rows per processor second of one epoch of `fit` on rows of ten non-zeros."""
    X = power_law_rows(n_rows, 10)
    y = np.random.default_rng(1).integers(1000, size=n_rows)
    seconds = []
    for _ in range(repeats):
        model = LTLSClassifier(2, 1, embedding_dim=0, epochs=1, validation_fraction=0)
        start = time.process_time()
        model.fit(X, y)
        seconds.append(time.process_time() - start)
    return {"rows": n_rows, "seconds": statistics.median(seconds)}


def rows(options: argparse.Namespace) -> dict[str, Any]:
    found = []
    for n_rows in FIT_ROWS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(time_fit, (n_rows, 3)))
        print(found[-1], flush=True)
    return {"about": machine.description("numpy", "scipy"), "fits": found}


# Memory of hashed features, most of which never occur


def hashed_peak() -> float:
    """Return the peak memory in bytes of training behind 2**20 hashed columns."""
    rng = np.random.default_rng(0)
    n_rows, non_zeros, n_used = 63_620, 40, 38_962
    used = np.sort(rng.choice(2**20, n_used, replace=False))
    y = rng.integers(58, size=n_rows)
    indices = used[(n_used * rng.random((n_rows, non_zeros)) ** 3).astype(int)]
    indptr = np.arange(0, indices.size + 1, non_zeros)
    X = sp.csr_matrix((np.ones(indices.size, np.float32), indices.ravel(), indptr), (n_rows, 2**20))
    X.sum_duplicates()
    LTLSClassifier(random_state=0).fit(X, y)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def hashed(options: argparse.Namespace) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(f"peak memory {pool.apply(hashed_peak) / 1e9:.2f} GB")


# What it costs to verify a model file


def checksums(options: argparse.Namespace) -> None:
    data = np.random.default_rng(0).integers(256, size=1 << 28, dtype=np.uint8)
    for name, checksum in {"SHA-256": hashlib.sha256, "CRC-32": zlib.crc32}.items():
        rate = data.nbytes / shortest(lambda checksum=checksum: checksum(data), 3)
        print(f"{name} {rate / 1e9:.2f} GB/s")
    with tempfile.TemporaryDirectory() as folder:
        for n_features in (10_000, 1_000_000):
            path = Path(folder, f"{n_features}.ltls")
            X = sp.csr_matrix(np.eye(100, n_features, dtype=np.float32))
            model = LTLSClassifier(n_trellises=1, width=8, embedding_dim=0, density=1, epochs=1)
            X.indices[:] = np.linspace(0, n_features - 1, 100)
            model.partial_fit(X, np.arange(100)).save(path)
            times = [shortest(partial(load, path, verify=verify), 5) for verify in (False, True)]
            print(
                f"a file of {path.stat().st_size / 1e6:.0f} MB loads in {1e3 * times[0]:.1f} ms, "
                f"verified in {1e3 * times[1]:.1f} ms"
            )


# Instructions of the hot paths. Kernels compiled for AVX2 with the flags of CMakeLists.txt; counts
# depend on the compiler, so that there is a baseline for each that was used.

BASELINE = Path(__file__).with_name("instructions.json")
FLAGS = ["-std=c++20", "-O3", "-fno-math-errno", "-fno-trapping-math", "-w"]
FLAGS += ["-mavx2", "-mfma", "-mbmi", "-mbmi2", "-Icpp"]
SOURCES = ["benchmarks/instructions.cpp", "cpp/kernels/kernels.cpp", "cpp/kernels/dispatch.cpp"]
HOT_PATHS = {"score": 200, "top5": 50, "update": 50}  # and how often to repeat each
ROWS_PER_REPEAT = 64
MAX_RATIO = 1.1  # times the baseline


def count(program: Path, path: str, repeats: int) -> int:
    """Return the instructions of a whole run."""
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*tool, str(program), path, str(repeats)], capture_output=True, text=True, check=True
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise SystemExit(f"callgrind did not count instructions:\n{done.stderr}")
    return int(found[1])


def instructions(options: argparse.Namespace) -> None:
    if shutil.which("valgrind") is None:
        print("valgrind is missing, instructions are not counted; on Debian: apt install valgrind")
        return
    compiler = os.environ.get("CXX", "c++")
    asked = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    version = asked.stdout.splitlines()[0]
    program = machine.BUILD / "instructions"
    program.parent.mkdir(exist_ok=True)
    built = [compiler, *FLAGS, *SOURCES, "-o", str(program)]
    subprocess.run(built, cwd=machine.ROOT, check=True)
    # The cost of starting and ending a run cancels out in the difference.
    found = {
        path: (count(program, path, 2 * n) - count(program, path, n)) / (n * ROWS_PER_REPEAT)
        for path, n in HOT_PATHS.items()
    }
    baselines = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    known = baselines.get(version, {})
    print(f"instructions per row, AVX2, {version}")
    for path, n in found.items():
        before = f"baseline {known[path]:,.0f}" if path in known else "no baseline"
        print(f"  {path:8} {n:10,.0f}   {before}")
    if options.update:
        baselines[version] = {path: round(n) for path, n in found.items()}
        machine.write_json(BASELINE, baselines)
    elif grown := [path for path in known if found[path] > MAX_RATIO * known[path]]:
        sys.exit(f"more than a tenth above the baseline: {', '.join(grown)}")


# Latency of single texts


def one_text(options: argparse.Namespace) -> None:
    """Print the time that one text takes a predictor of TextClassifier, and its parts."""
    from benchmarks.tasks import read as read_texts

    model = TextClassifier(random_state=0).fit(*read_texts("train"))
    texts = read_texts("test")[0]
    predict, vectorizer = model.predictor(5), model.vectorizer_
    rows = [vectorizer.row(text) for text in texts]
    parts: dict[str, tuple[Callable[..., object], list[Any]]] = {
        "a text": (predict, [(text,) for text in texts]),
        "its features": (vectorizer.row, [(text,) for text in texts]),
        "prediction from features": (LTLSClassifier.predictor(model, 5), rows),
    }
    for name, (call, arguments) in parts.items():
        times = []
        for given in arguments:  # each twice: the words of a text are known after the first time
            call(*given)
            start = time.perf_counter()
            call(*given)
            times.append(1e6 * (time.perf_counter() - start))
        low, median, high = np.quantile(times, [0.05, 0.5, 0.95])
        print(f"{name}: median {median:.0f} µs, 90 % of texts {low:.0f} to {high:.0f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="name", required=True)
    for command in (readers, programs, growth, rows, hashed, checksums, one_text, instructions):
        commands.add_parser(command.__name__).set_defaults(run=command)
    commands.choices["growth"].add_argument("--quick", action="store_true")
    commands.choices["instructions"].add_argument("--update", action="store_true")
    options = parser.parse_args()
    result = options.run(options)
    if result is None:
        return
    print("\n".join(tables.TABLES[options.name](result)))
    if not getattr(options, "quick", False):
        machine.write(options.name, result)


if __name__ == "__main__":
    main()
