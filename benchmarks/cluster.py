"""Training and scoring on Ray, on this machine.

    python -m benchmarks.cluster training     one and two workers, each with a CPU
    python -m benchmarks.cluster scoring      Parquet to Parquet

--rows limits the rows of a data set, or says how many are scored: 100,000,000 is the full run.
Both stop after --minutes, and go on from there when they are called again. It needs Ray, and a
quiet machine for its seconds: processor time is stored beside them.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data

from benchmarks import datasets, machine, tables
from ltls import LTLSClassifier, load
from ltls.metrics import precision_at_k
from ltls.ray import fit, score_parquet

SETS = ("debsrc", "debfiles")
WORKERS, BLOCKS, CPUS = (1, 2), 8, 2
SCORED, ROWS_PER_JOB, ROWS_PER_FILE = "banking77", 10_000_000, 1_000_000
LISTS = ["indices", "values"]


class Problem:
    """A data set as a table in the object store, and how to judge a model of it."""

    def __init__(self, name: str, n_rows: int | None) -> None:
        X, y, self.X_test, self.y_test = datasets.problem(name)
        rows = np.random.default_rng(0).permutation(X.shape[0])[:n_rows]
        self.n_rows, self.n_features = len(rows), X.shape[1]
        labels = y[rows]
        if hasattr(labels, "indptr"):
            labels = [part.tolist() for part in np.split(labels.indices, labels.indptr[1:-1])]
        whole = pa.table({**lists_of(X[rows]), "label": pa.array(labels)})
        cuts = [len(rows) * i // BLOCKS for i in range(BLOCKS + 1)]
        # A cluster reads blocks in parallel, as from Parquet files.
        self.blocks = [whole.slice(a, b - a) for a, b in pairwise(cuts)]

    def fit(self, n_workers: int) -> tuple[LTLSClassifier, float, float]:
        """Return a model, the seconds that it took, and the processor seconds of the workers."""
        model = LTLSClassifier(random_state=0)
        rows = ray.data.from_arrow(self.blocks)
        start, before = time.perf_counter(), worker_seconds()
        options = {"n_features": self.n_features, "n_workers": n_workers}
        fit(model, rows, label="label", features=LISTS, **options)
        return model, time.perf_counter() - start, worker_seconds() - before

    def p1(self, model: LTLSClassifier) -> float:
        return float(precision_at_k(self.y_test, model.predict_topk(self.X_test, 1)[0]))


def lists_of(X: Any) -> dict[str, Any]:
    """Return sparse rows as columns of lists."""
    offsets = pa.array(X.indptr, pa.int64())
    columns = {"indices": X.indices.astype(np.int32), "values": X.data.astype(np.float32)}
    return {
        name: pa.LargeListArray.from_arrays(offsets, pa.array(column))
        for name, column in columns.items()
    }


@contextmanager
def cluster(n_cpus: int, store: int) -> Iterator[None]:
    """Run Ray on this machine, with some of its CPUs."""
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.init(
        num_cpus=n_cpus,
        object_store_memory=store,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        yield
    finally:
        ray.shutdown()


def workers_of_ray() -> Iterator[Path]:
    """Yield the folders in /proc of all workers of our Ray."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            if parent(parent(path)).name == str(os.getpid()):
                yield path


def parent(path: Path) -> Path:
    return Path("/proc", (path / "stat").read_text().rpartition(")")[2].split()[1])


def worker_seconds() -> float:
    """Return the processor seconds of all workers of our Ray so far."""
    ticks = 0
    for path in workers_of_ray():
        with suppress(OSError, IndexError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def training(options: argparse.Namespace) -> dict[str, Any]:
    """Make the runs that are not stored yet, each with as many CPUs as it has workers."""
    result = {
        "about": {**machine.description("ray"), "command": "python -m benchmarks.cluster training"},
        "sets": machine.read("cluster_training", options.output).get("sets", {}),
    }
    end = time.perf_counter() + 60 * options.minutes
    for name in options.sets:
        problem = Problem(name, options.rows)
        found = result["sets"].get(name)
        if not found or found["rows"] != problem.n_rows:
            found = result["sets"][name] = {"rows": problem.n_rows, "runs": []}
        for n_workers in options.workers:
            known = {run["workers"] for run in found["runs"]}
            if n_workers in known or time.perf_counter() > end:
                continue
            n_cpus, times = min(n_workers, CPUS), []
            with cluster(n_cpus, options.store):
                for repeat in range(options.repeats + 1):
                    model, *spent = problem.fit(n_workers)
                    if repeat:  # the first starts processes and imports packages
                        times.append(spent)
            seconds, processor = sorted(times)[len(times) // 2]
            run = {
                "workers": n_workers,
                "cpus": n_cpus,
                "seconds": seconds,
                "p1": problem.p1(model),
            }
            found["runs"].append({**run, "workers_s": processor, "repeats": options.repeats})
            found["runs"].sort(key=lambda each: each["workers"])
            found["labels"] = len(model.classes_)
            machine.say(f"{name}: {run}")
            machine.write("cluster_training", result, options.output)
    return result


def scoring(options: argparse.Namespace) -> dict[str, Any]:
    """Score the test rows of a set again and again, in jobs of some million rows."""
    wanted = options.rows or 100_000_000
    X, y, X_test, _ = datasets.problem(SCORED)
    about = {**machine.description("ray"), "command": "python -m benchmarks.cluster scoring"}
    result = {"about": about, "set": SCORED, "wanted": wanted, "jobs": []}
    before = machine.read("cluster_scoring", options.output)
    if before.get("set") == SCORED and before.get("wanted") == wanted:
        result["jobs"] = before["jobs"]
    end = time.perf_counter() + 60 * options.minutes
    with cluster(CPUS, options.store), tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "model.ltls")
        LTLSClassifier(random_state=0).fit(X, y).save(path)
        expected = load(path).predict(X_test)
        while time.perf_counter() < end:
            first = sum(job["rows"] for job in result["jobs"])
            n_rows = min(wanted - first, ROWS_PER_JOB)
            if not n_rows:
                break
            work = Path(folder, str(first))
            write_rows(work / "in", X_test, first, n_rows)
            start = time.perf_counter()
            score_parquet(path, work / "in", work / "out", k=1, features=LISTS)
            seconds = time.perf_counter() - start
            found = checked(work / "out", first, n_rows, expected)
            result["jobs"].append({"rows": n_rows, "seconds": seconds, **found})
            shutil.rmtree(work)
            machine.say(str(result["jobs"][-1]))
            machine.write("cluster_scoring", result, options.output)
    return result


def write_rows(folder: Path, X: Any, first: int, n_rows: int) -> None:
    """Write rows with their numbers, a million per file; row i is row i % len(X) of a matrix."""
    folder.mkdir(parents=True)
    for start in range(first, first + n_rows, ROWS_PER_FILE):
        ids = np.arange(start, min(start + ROWS_PER_FILE, first + n_rows))
        rows = pa.table({"id": ids, **lists_of(X[ids % X.shape[0]])})
        path = folder / f"{start:012}.parquet"
        pq.write_table(rows, path, row_group_size=100_000, compression="zstd")


def checked(folder: Path, first: int, n_rows: int, expected: np.ndarray) -> dict[str, int]:
    """Count the rows that are not there, or there twice, or have another label than expected."""
    seen, wrong = np.zeros(n_rows, np.uint8), 0
    for file in folder.iterdir():
        part = pq.read_table(file)
        ids = part["id"].to_numpy()
        np.add.at(seen, ids - first, 1)
        best = part["labels"].combine_chunks().flatten().to_numpy()
        wrong += int((best != expected[ids % len(expected)]).sum())
    return {"lost": int((seen == 0).sum()), "twice": int((seen > 1).sum()), "wrong": wrong}


COMMANDS = {"training": training, "scoring": scoring}


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("name", choices=COMMANDS)
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="data sets")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--repeats", type=int, default=3, help="of a run; the median counts")
    parser.add_argument("--minutes", type=float, default=1e6, help="to stop after")
    parser.add_argument("--folder", type=Path, help="for the files of scoring")
    parser.add_argument("--store", type=int, default=1_000_000_000, help="bytes of object store")
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    options = parser.parse_args()
    result = COMMANDS[options.name](options)
    print("\n".join(getattr(tables, f"cluster_{options.name}")(result)))


if __name__ == "__main__":
    main()
