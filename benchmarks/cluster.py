"""Training and scoring on Ray: speed, accuracy, messages and faults, on this machine.

    python -m benchmarks.cluster training     1, 2, 4 and 8 workers; cost of every message; a plan
    python -m benchmarks.cluster scoring      Parquet to Parquet, with a worker killed on the way
    python -m benchmarks.cluster faults       20 trainings, each with a worker killed

--rows limits the rows of a data set, or says how many are scored: 100,000,000 is the full run.
All stop after --minutes, and go on from there when they are called again. It needs Ray, and a
quiet machine for its seconds: processor time is stored beside them.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import sys
import tempfile
import threading
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

from benchmarks import datasets, machine
from benchmarks.cost_model import Measured
from ltls import LTLSClassifier, load
from ltls.linear.weights import padded
from ltls.metrics import precision_at_k
from ltls.ray import fitting, score_parquet
from ltls.ray.averaging import averaged, change
from ltls.readers import Dataset

SETS = ("debsrc", "debfiles")
WORKERS, BLOCKS, CPUS = (1, 2, 4, 8), 8, 2
SCORED, ROWS_PER_JOB, ROWS_PER_FILE = "banking77", 10_000_000, 1_000_000
OUR_TASKS = ("ray::train", "ray::reduce", "ray::candidates", "ray::_")


class RecordedJob(fitting.Job):
    """A job that can be looked at when it is done."""

    last: Any = None
    # Of processor time: in this thread, whose others run beside it, and in Ray's workers.
    driver_seconds = worker_seconds = 0.0

    def run(self, *arguments: Any) -> Any:
        RecordedJob.last = self
        start, theirs = time.thread_time(), worker_seconds()
        model = super().run(*arguments)
        self.driver_seconds = time.thread_time() - start
        self.worker_seconds = worker_seconds() - theirs
        return model


def worker_seconds() -> float:
    """Return the processor seconds of all workers of our Ray so far."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            if parent(parent(path)).name == str(os.getpid()):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def table(data: Dataset, rows: np.ndarray) -> Any:
    """Return rows of a data set as a table of lists."""
    X = data.X[rows]
    offsets = pa.array(X.indptr, pa.int64())
    if data.single_label:
        labels = pa.array(data.y[rows])
    else:
        lists = [own.tolist() for own in data.labels()]
        labels = pa.array([lists[row] for row in rows])
    return pa.table(
        {
            "indices": pa.LargeListArray.from_arrays(offsets, pa.array(X.indices)),
            "values": pa.LargeListArray.from_arrays(offsets, pa.array(X.data)),
            "label": labels,
        }
    )


class Problem:
    """A data set as a table in the object store, and how to judge a model of it."""

    def __init__(self, name: str, n_rows: int | None) -> None:
        train, self.test = datasets.train_and_test(name)
        rows = np.random.default_rng(0).permutation(train.n_rows)[:n_rows]
        whole = table(train, rows)
        cuts = [len(rows) * i // BLOCKS for i in range(BLOCKS + 1)]
        # A cluster reads blocks in parallel, as from Parquet files.
        self.blocks = [whole.slice(a, b - a) for a, b in pairwise(cuts)]
        self.rows = whole
        self.n_features = train.X.shape[1]
        self.y = datasets.targets(self.test, train.single_label)

    def fit(self, n_workers: int, split: str, **settings: Any) -> tuple[LTLSClassifier, float]:
        """Return a model, and the seconds that it took."""
        model = LTLSClassifier(random_state=0, **settings)
        start = time.perf_counter()
        fitting.fit(
            model,
            ray.data.from_arrow(self.blocks),
            label="label",
            features=["indices", "values"],
            n_features=self.n_features,
            n_workers=n_workers,
            split=split,
        )
        return model, time.perf_counter() - start

    def p1(self, model: LTLSClassifier) -> float:
        return float(precision_at_k(self.y, model.predict_topk(self.test.X, 1)[0]))


def training(options: argparse.Namespace) -> dict[str, Any]:
    """Make the runs that are not stored yet, each with as many CPUs as it has workers."""
    fitting.Job = RecordedJob  # type: ignore[misc]
    result = {
        "about": machine.description("ray"),
        "sets": machine.read("cluster_training").get("sets", {}),
    }
    end = time.perf_counter() + 60 * options.minutes
    for name in options.sets:
        problem = Problem(name, options.rows)
        found = result["sets"].get(name)
        if not found or found["rows"] != len(problem.rows):
            found = result["sets"][name] = {"rows": len(problem.rows), "runs": []}
        for n_workers in options.workers:
            for split in ("auto", "rows") if n_workers == 2 else ("auto",):
                done = {(run["workers"], run["split"]) for run in found["runs"]}
                if (n_workers, split) in done or time.perf_counter() > end:
                    continue
                with cluster(min(n_workers, CPUS), options.store):
                    warm_up(n_workers)
                    repeated = []
                    for _ in range(options.repeats):
                        model, seconds = problem.fit(n_workers, split)
                        repeated.append(run_of(RecordedJob.last, model, n_workers, split, seconds))
                    run = sorted(repeated, key=lambda each: each["seconds"])[len(repeated) // 2]
                    run["repeats"] = options.repeats
                    if n_workers == 1:
                        found["measured"] = measured_costs(run, model, problem.rows).as_dict()
                run["p1"] = problem.p1(model)
                machine.say(f"{name}: {run}")
                found["runs"] = sorted([*found["runs"], run], key=lambda each: each["workers"])
                found |= {
                    "features": problem.n_features,
                    "labels": len(model.classes_),
                    "edges": model.trellis_.n_edges,
                    "trellises": len(model.codebooks_),
                }
                if "measured" in found:
                    found["plan"] = Measured(**found["measured"]).plan()
                found["command"] = command("training", name, options)
                machine.write("cluster_training", result)
    commands = [found["command"] for found in result["sets"].values()]
    result["about"] = {**machine.description("ray"), "command": "; ".join(commands)}
    return result


def command(name: str, data_set: str, options: argparse.Namespace) -> str:
    """Return what makes all runs of a data set at once."""
    rows = f" --rows {options.rows}" if options.rows else ""
    return f"python -m benchmarks.cluster {name} --sets {data_set}{rows}"


@contextmanager
def cluster(n_cpus: int, store: int) -> Iterator[None]:
    """Run Ray on this machine, with some of its CPUs."""
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.init(num_cpus=n_cpus, object_store_memory=store, include_dashboard=False,
             log_to_driver=False, logging_level="ERROR")  # fmt: skip
    try:
        yield
    finally:
        ray.shutdown()


def warm_up(n_workers: int) -> None:
    """Train on a few rows, so that processes are started and packages imported."""
    X, y = np.eye(64, dtype=np.float32).repeat(20, axis=0), np.arange(64).repeat(20)
    blocks = [pa.table({"x": list(X[i::8]), "label": y[i::8]}) for i in range(8)]
    rows = ray.data.from_arrow(blocks)
    fitting.fit(LTLSClassifier(epochs=1), rows, label="label", features="x", n_workers=n_workers)


def run_of(
    job: Any, model: LTLSClassifier, n_workers: int, split: str, seconds: float
) -> dict[str, Any]:
    """Return what a run has cost.

    The critical path has the slowest task of every round, and the slowest shard of the labels; all
    other tasks are many and small, and share the workers evenly. `whole_s` is that of the whole
    fit, with the processor time of the caller's main thread.
    """
    rounds, work = job.trainer.reports, job.trainer._split
    per_round = [sum(report.n_bytes for report in tasks) for tasks in rounds]
    processor = sum(report.seconds for tasks in rounds for report in tasks)
    critical = sum(max(report.seconds for report in tasks) for tasks in rounds)
    shards = [shards for _, *shards in job.label_seconds]
    others = max(job.worker_seconds - processor - sum(map(sum, shards)), 0)
    slowest = sum(max(max(each), sum(each) / n_workers) for each in shards)
    return {
        "workers": n_workers,
        "cpus": min(n_workers, CPUS),
        "split": split,
        "groups": work.groups,
        "shards": work.shards,
        "epochs": model.n_iter_,
        "rounds": len(rounds),
        "seconds": seconds,
        "phases": job.seconds,
        "labels_s": sum(map(sum, job.label_seconds)),
        "driver_s": job.driver_seconds,
        "workers_s": job.worker_seconds,
        "processor_s": processor,
        "critical_s": critical,
        "whole_s": job.driver_seconds + others / n_workers + critical + slowest,
        "message_bytes": statistics.median(report.n_bytes for tasks in rounds for report in tasks),
        "round_bytes": statistics.median(per_round),
    }


def measured_costs(one: dict[str, Any], model: LTLSClassifier, rows: Any) -> Measured:
    """Return the numbers of the cost model, from a run with one worker."""
    trellises = len(model.codebooks_)
    features = model.model_.trainable.values.shape[0]
    stride = padded(model.trellis_.n_edges)
    some = np.arange(features // 8)
    state = {name: np.ones((len(some), trellises * stride), np.float32)
             for name in ("weights", "squares")}  # fmt: skip

    def average() -> None:
        after = {name: array.copy() for name, array in state.items()}
        averaged(state, [ray.get(ray.put(change(state, after, some)))])

    task = ray.remote(lambda: None)
    start_s = machine.seconds(lambda: ray.get(task.remote()))
    return Measured(
        epochs=one["epochs"],
        trellises=trellises,
        features=features,
        stride=stride,
        epoch_s=one["processor_s"] / one["epochs"],
        labels_s=one["labels_s"],
        reading_s=one["workers_s"] - one["processor_s"] - one["labels_s"],
        driver_s=one["driver_s"],
        memory=2 * sum(array.nbytes for array in state.values()) / machine.seconds(average),
        start_s=start_s,
        nnz=len(rows["values"].combine_chunks().flatten()),
        row_bytes=rows.nbytes,
    )


def scoring(options: argparse.Namespace) -> dict[str, Any]:
    """Score the test rows of a set again and again, in jobs of some million rows."""
    wanted = options.rows or 100_000_000
    train, test = datasets.train_and_test(SCORED)
    about = {**machine.description("ray"), "command": "python -m benchmarks.cluster scoring"}
    result = {"about": about, "set": SCORED, "wanted": wanted, "jobs": []}
    before = machine.read("cluster_scoring")
    if before.get("set") == SCORED and before.get("wanted") == wanted:
        result["jobs"] = before["jobs"]
    end = time.perf_counter() + 60 * options.minutes
    rng = np.random.default_rng(len(result["jobs"]))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "model.ltls")
        LTLSClassifier(random_state=0).fit(train.X, train.y).save(path)
        expected = load(path).predict(test.X)
        while time.perf_counter() < end:
            first = sum(job["rows"] for job in result["jobs"])
            n_rows = min(wanted - first, ROWS_PER_JOB)
            if not n_rows:
                break
            work = Path(folder, str(first))
            write_rows(work / "in", test.X, first, n_rows)
            start = time.perf_counter()
            with Killer("ray::MapWorker", after=rng.uniform(5, 30)) as killer:
                score_parquet(path, work / "in", work / "out", k=1, features=["indices", "values"])
            seconds = time.perf_counter() - start
            found = checked(work / "out", first, n_rows, expected)
            job = {"rows": n_rows, "seconds": seconds, "killed": len(killer.killed), **found}
            shutil.rmtree(work)
            machine.say(str(job))
            result["jobs"].append(job)
            machine.write("cluster_scoring", result)
    return result


def write_rows(folder: Path, X: Any, first: int, n_rows: int) -> None:
    """Write rows with their numbers, a million per file; row i is row i % len(X) of a matrix."""
    folder.mkdir(parents=True)
    for start in range(first, first + n_rows, ROWS_PER_FILE):
        ids = np.arange(start, min(start + ROWS_PER_FILE, first + n_rows))
        own = X[ids % X.shape[0]]
        offsets = pa.array(own.indptr, pa.int32())
        columns = {"indices": own.indices.astype(np.int32), "values": own.data.astype(np.float32)}
        lists = {name: pa.ListArray.from_arrays(offsets, pa.array(column))
                 for name, column in columns.items()}  # fmt: skip
        pq.write_table(pa.table({"id": ids, **lists}), folder / f"{start:012}.parquet",
                       row_group_size=100_000, compression="zstd")  # fmt: skip


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


class Killer(threading.Thread):
    """Kills one worker with SIGKILL, at a moment of a block."""

    def __init__(self, *titles: str, after: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.titles, self.after, self.killed = titles, after, []
        self.done = threading.Event()

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join()

    def run(self) -> None:
        self.done.wait(self.after)
        while not self.done.is_set() and not self.killed:
            for path in Path("/proc").glob("[0-9]*"):
                if self._is_ours(path):
                    os.kill(int(path.name), 9)
                    self.killed.append(int(path.name))
                    break
            self.done.wait(0.01)

    def _is_ours(self, path: Path) -> bool:
        try:
            title = (path / "cmdline").read_bytes().decode(errors="replace")
            return title.startswith(self.titles) and parent(parent(path)).name == str(os.getpid())
        except (OSError, IndexError):
            return False


def parent(path: Path) -> Path:
    return Path("/proc", (path / "stat").read_text().rpartition(")")[2].split()[1])


def faults(options: argparse.Namespace) -> dict[str, Any]:
    problem = Problem(options.sets[0], options.rows)
    settings = {"epochs": 3}
    problem.fit(2, "rows", **settings)  # so that processes are started
    model, seconds = problem.fit(2, "rows", **settings)
    undisturbed, reference = problem.p1(model), model.coef_
    about = {**machine.description("ray"), "command": command("faults", options.sets[0], options)}
    result = {
        "about": about,
        "set": options.sets[0],
        "rows": len(problem.rows),
        "p1": undisturbed,
        "seconds": seconds,
        "runs": [],
    }
    before = machine.read("cluster_faults")
    same_problem = all(before.get(name) == result[name] for name in ("set", "rows", "p1"))
    runs = result["runs"] = before["runs"] if same_problem else []
    end = time.perf_counter() + 60 * options.minutes
    while len(runs) < options.kills and time.perf_counter() < end:
        share = float(np.random.default_rng(len(runs)).uniform(0, 0.9))
        killer = Killer(*OUR_TASKS, after=share * seconds)
        with killer:
            model, took = problem.fit(2, "rows", **settings)
        if not killer.killed:  # it was done before the moment
            seconds = took
            continue
        same = bool((model.coef_ != reference).sum() == 0)
        runs.append({"moment": share, "killed": len(killer.killed), "seconds": took,
                     "p1": problem.p1(model), "same": same})  # fmt: skip
        machine.say(str(runs[-1]))
        machine.write("cluster_faults", result)
    return result


COMMANDS = {"training": training, "scoring": scoring, "faults": faults}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=COMMANDS)
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="data sets")
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--repeats", type=int, default=3, help="of a run; the median counts")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1e6, help="to stop after")
    parser.add_argument("--folder", type=Path, default=None, help="for the files of scoring")
    parser.add_argument("--store", type=int, default=1_000_000_000, help="bytes of object store")
    options = parser.parse_args()
    found = COMMANDS[options.name]
    if found is training:
        machine.write("cluster_training", training(options))
        return
    with cluster(2, options.store):
        machine.write(f"cluster_{options.name}", found(options))


if __name__ == "__main__":
    sys.exit(main())
