"""Training and scoring on Ray: speed, accuracy, messages and faults, on this machine.

    python -m benchmarks.cluster training     1, 2, 4 and 8 workers; cost of every message; a plan
    python -m benchmarks.cluster scoring      Parquet to Parquet, with a worker killed on the way
    python -m benchmarks.cluster faults       20 trainings, each with a worker killed

--rows limits the rows of a data set, or says how many are scored: 100,000,000 is the full run. It
needs Ray, and a quiet machine for its seconds: processor time is stored beside them.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from benchmarks import datasets, machine
from benchmarks.cost_model import Measured
from ltls import LTLSClassifier
from ltls.linear.weights import padded
from ltls.metrics import precision_at_k
from ltls.ray import fitting, score_parquet
from ltls.readers import Dataset

SETS = ("debsrc", "debfiles")
WORKERS = (1, 2, 4, 8)
OUR_TASKS = ("ray::train", "ray::reduce", "ray::candidates")


class RecordedJob(fitting.Job):
    """A job that can be looked at when it is done."""

    last: Any = None

    def run(self, *arguments: Any) -> Any:
        RecordedJob.last = self
        return super().run(*arguments)


def table(data: Dataset, rows: np.ndarray) -> Any:
    """Return rows of a data set as a table of lists."""
    X = data.X[rows]
    offsets = pa.array(X.indptr, pa.int64())
    labels = [own.tolist() for own in data.labels()]
    chosen = [labels[row] for row in rows]
    single = all(len(own) == 1 for own in chosen)
    return pa.table(
        {
            "indices": pa.LargeListArray.from_arrays(offsets, pa.array(X.indices)),
            "values": pa.LargeListArray.from_arrays(offsets, pa.array(X.data)),
            "label": [own[0] for own in chosen] if single else chosen,
        }
    )


class Problem:
    """A data set as a table in the object store, and how to judge a model of it."""

    def __init__(self, name: str, n_rows: int | None) -> None:
        train, self.test = datasets.train_and_test(name)
        rows = np.random.default_rng(0).permutation(train.n_rows)[:n_rows]
        self.rows = table(train, rows)
        self.n_features = train.X.shape[1]
        self.y = datasets.targets(self.test, train.single_label)

    def fit(self, n_workers: int, split: str, **settings: Any) -> tuple[LTLSClassifier, float]:
        """Return a model, and the seconds that it took."""
        model = LTLSClassifier(random_state=0, **settings)
        start = time.perf_counter()
        fitting.fit(
            model,
            ray.data.from_arrow(self.rows),
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
    fitting.Job = RecordedJob  # type: ignore[misc]
    result: dict[str, Any] = {"about": machine.description("ray"), "sets": {}}
    for name in options.sets:
        problem = Problem(name, options.rows)
        problem.fit(1, "rows", epochs=1)  # so that processes are started
        runs = []
        for n_workers in WORKERS:
            for split in ("rows", "trellises") if n_workers == 2 else ("rows",):
                model, seconds = problem.fit(n_workers, split)
                runs.append(run_of(RecordedJob.last, model, n_workers, split, seconds))
                runs[-1]["p1"] = problem.p1(model)
                machine.say(f"{name}: {runs[-1]}")
        trellises = len(model.codebooks_)
        measured = measured_costs(runs, model, trellises, problem.rows)
        result["sets"][name] = {
            "rows": len(problem.rows),
            "features": problem.n_features,
            "labels": len(model.classes_),
            "edges": model.trellis_.n_edges,
            "trellises": trellises,
            "runs": runs,
            "measured": measured.as_dict(),
            "plan": measured.plan(),
        }
    return result


def run_of(
    job: Any, model: LTLSClassifier, n_workers: int, split: str, seconds: float
) -> dict[str, Any]:
    """Return what a run has cost; the critical path has the slowest task of every round."""
    rounds = job.trainer.reports
    per_round = [sum(report.n_bytes for report in tasks) for tasks in rounds]
    work = job.trainer._split
    return {
        "workers": n_workers,
        "split": split,
        "groups": work.groups,
        "shards": work.shards,
        "epochs": model.n_iter_,
        "rounds": len(rounds),
        "seconds": seconds,
        "phases": job.seconds,
        "labels_s": job.label_seconds,
        "processor_s": sum(report.seconds for tasks in rounds for report in tasks),
        "critical_s": sum(max(report.seconds for report in tasks) for tasks in rounds),
        "message_bytes": statistics.median(report.n_bytes for tasks in rounds for report in tasks),
        "round_bytes": statistics.median(per_round),
    }


def measured_costs(
    runs: list[dict[str, Any]], model: LTLSClassifier, trellises: int, rows: Any
) -> Measured:
    """Return the numbers of the cost model, from the runs of one worker and of two shards."""
    one = runs[0]
    features = model.model_.trainable.values.shape[0]
    stride = padded(model.trellis_.n_edges)
    size = features * trellises * stride * 8
    state = {"weights": np.zeros(size // 8, np.float32), "squares": np.zeros(size // 8, np.float32)}
    copying = machine.seconds(lambda: [array.copy() for array in state.values()])
    task = ray.remote(lambda: None)
    start_s = machine.seconds(lambda: ray.get(task.remote()))
    return Measured(
        epochs=one["epochs"],
        trellises=trellises,
        features=features,
        stride=stride,
        epoch_s=one["processor_s"] / one["epochs"],
        labels_s=one["labels_s"],
        reading_s=one["phases"]["reading"],
        memory=size / copying / 3,  # copied in, subtracted, added up
        start_s=start_s,
        nnz=len(rows["values"].combine_chunks().flatten()),
        row_bytes=rows.nbytes,
    )


def scoring(options: argparse.Namespace) -> dict[str, Any]:
    n_rows = options.rows or 100_000_000
    rng = np.random.default_rng(0)
    n_labels, n_features, nnz = 1000, 10_000, 10
    centers = rng.integers(n_features, size=(n_labels, nnz))
    X = np.zeros((4000, n_features), np.float32)
    labels = rng.integers(n_labels, size=4000)
    np.put_along_axis(X, centers[labels], 1.0, axis=1)
    model = LTLSClassifier(random_state=0).fit(X, labels)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "model.ltls")
        model.save(path)
        Path(folder, "in").mkdir()
        truth = write_rows(Path(folder, "in"), centers, n_rows)
        killer = Killer("ray::MapWorker")
        start = time.perf_counter()
        with killer:
            written = score_parquet(path, Path(folder, "in"), Path(folder, "out"), k=1,
                                    features=["indices", "values"])  # fmt: skip
        seconds = time.perf_counter() - start
        seen = np.zeros(n_rows, np.uint8)
        right = 0
        for file in Path(folder, "out").iterdir():
            part = pq.read_table(file)
            ids = part["id"].to_numpy()
            np.add.at(seen, ids, 1)
            best = part["labels"].combine_chunks().flatten().to_numpy()
            right += int((best == truth[ids]).sum())
    return {
        "about": machine.description("ray"),
        "rows": n_rows,
        "labels": n_labels,
        "written": written,
        "killed": len(killer.killed),
        "lost": int((seen == 0).sum()),
        "twice": int((seen > 1).sum()),
        "p1": right / n_rows,
        "seconds": seconds,
        "rows_per_second": n_rows / seconds,
    }


def write_rows(folder: Path, centers: np.ndarray, n_rows: int) -> np.ndarray:
    """Write rows of random labels, a million per file; return the labels."""
    rng = np.random.default_rng(1)
    truth = rng.integers(len(centers), size=n_rows).astype(np.int32)
    for first in range(0, n_rows, 1_000_000):
        own = centers[truth[first : first + 1_000_000]]
        offsets = pa.array(np.arange(len(own) + 1) * own.shape[1], pa.int32())
        values = np.ones(own.size, np.float32)
        rows = pa.table(
            {
                "id": np.arange(first, first + len(own)),
                "indices": pa.ListArray.from_arrays(offsets, pa.array(own.ravel().astype("i4"))),
                "values": pa.ListArray.from_arrays(offsets, pa.array(values)),
            }
        )
        pq.write_table(rows, folder / f"{first:012}.parquet", row_group_size=50_000)
    return truth


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
    model, _ = problem.fit(2, "rows", **settings)
    model, seconds = problem.fit(2, "rows", **settings)
    undisturbed, reference = problem.p1(model), model.coef_
    rng = np.random.default_rng(0)
    runs = []
    for moment in sorted(rng.uniform(0, 0.9, options.kills) * seconds):
        killer = Killer(*OUR_TASKS, after=moment)
        with killer:
            model, took = problem.fit(2, "rows", **settings)
        same = bool((model.coef_ != reference).sum() == 0)
        runs.append({"moment": moment, "killed": len(killer.killed), "seconds": took,
                     "p1": problem.p1(model), "same": same})  # fmt: skip
        machine.say(str(runs[-1]))
    return {
        "about": machine.description("ray"),
        "set": options.sets[0],
        "rows": len(problem.rows),
        "p1": undisturbed,
        "seconds": seconds,
        "runs": runs,
    }


COMMANDS = {"training": training, "scoring": scoring, "faults": faults}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=COMMANDS)
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="data sets")
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=None, help="for the files of scoring")
    parser.add_argument("--store", type=int, default=1_000_000_000, help="bytes of object store")
    options = parser.parse_args()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.init(num_cpus=2, object_store_memory=options.store, include_dashboard=False,
             log_to_driver=False, logging_level="ERROR")  # fmt: skip
    try:
        machine.write(f"cluster_{options.name}", COMMANDS[options.name](options))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
