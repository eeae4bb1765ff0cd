"""Small measurements of parts of the engine.

    python -m benchmarks.micro readers        reading text files beside scikit-learn's parser
    python -m benchmarks.micro programs       dynamic programs to 10¹² classes, and torch-struct
    python -m benchmarks.micro growth         time and memory against the number of classes
    python -m benchmarks.micro instructions   instructions per row; fails where they grew by a tenth

`growth --quick` measures fewer points and stores nothing. `instructions` counts under callgrind,
which gives the same every time; `--update` makes its counts the baseline of this compiler.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import machine, tables
from ltls import Trellis
from ltls.features.rows import Columns, Rows
from ltls.model.examples import Examples
from ltls.parts.trellis_training import TrellisTraining
from ltls.readers import Dataset, read
from ltls.settings import Trellises
from ltls.training.recipes import Plan

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
    return {"about": about, "growth": rows, "torch_struct": peer}


# Growth: one trellis of width 2 under a random codebook, which needs no memory of its own

N_FEATURES, NON_ZEROS, ROWS = 50_000, 50, 20_000
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


def shortest(work: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of a call: other work on the machine disturbs it little."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


def time_step(n_classes: int, repeats: int) -> dict[str, Any]:
    """Return microseconds per row of a training step and of prediction, and bytes.

    The estimator keeps a table of its classes, which a billion of them would not fit into: this
    calls the layer below it.
    """
    rows = Rows(power_law_rows(ROWS, NON_ZEROS), intercept=True, unit_length=False)
    given = Trellises(width=2, n_trellises=1, average=False, learning_rate=0.3, loss="softmax")
    problem = SimpleNamespace(
        labels=range(n_classes),
        counts=None,
        columns=Columns(rows.n_columns - 1, intercept=True, unit_length=False),
        size=SimpleNamespace(multilabel=False),
        row_length=1.0,
    )
    plan, rng = Plan("trellises", "to be timed", given), np.random.RandomState(0)
    training = TrellisTraining.of_plan(plan, problem, lambda _: None, rng, None)
    labels = np.random.default_rng(1).integers(n_classes, size=ROWS)
    task = training.task(Examples(rows, np.arange(ROWS + 1), labels, None, False))
    step = shortest(lambda: training.run(task, np.arange(ROWS), False, 1), repeats)
    found: dict[str, Any] = {
        "C": n_classes,
        "edges": training.trellis.n_edges,
        "training step": step / ROWS * 1e6,
        "model bytes": training.weights.values.nbytes,
    }
    part, some = training.as_trained(), rows[:5000]
    for k in KS:
        seconds = shortest(lambda k=k: part.topk(some, k, 1), repeats)
        found[f"prediction, k = {k}"] = seconds / len(some) * 1e6
    return found


def growth(options: argparse.Namespace) -> dict[str, Any]:
    series = []
    for exponent in range(3, 10, 3 if options.quick else 1):
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # whose memory starts fresh
            series.append(pool.apply(time_step, (10**exponent, 3 if options.quick else 7)))
        print(series[-1], flush=True)
    return {"about": machine.description("numpy", "scipy"), "series": {"C": series}}


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


def main() -> None:
    parser = machine.parser(__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    for command in (readers, programs, growth, instructions):
        own = commands.add_parser(command.__name__)
        own.set_defaults(run=command)
        own.add_argument("--output", type=Path, default=machine.RESULTS)
    commands.choices["growth"].add_argument("--quick", action="store_true")
    commands.choices["instructions"].add_argument("--update", action="store_true")
    options = parser.parse_args()
    result = options.run(options)
    if result is None:
        return
    print("\n".join(getattr(tables, options.name)(result)))
    if not getattr(options, "quick", False):
        machine.write(options.name, result, options.output)


if __name__ == "__main__":
    main()
