"""Training of the trellises on a cluster.

Groups of workers train their own trellises, which is exact: trellises are trained independently.
Within a group, every worker trains on its own shard of the rows, and their weights are averaged at
least once per epoch (see `split` and `averaging`).

A worker is a number, not a process. Its work in a round is one Ray task, a pure function of its
group's state and its rows. Ray runs the task wherever there is room and reruns it if a process
dies, so neither timing nor faults change the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, starmap
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..core.version import __version__
from ..features.mapping import used_features
from ..linear.trainable import TrainableWeights
from ..linear.weights import padded
from ..model.examples import Batch
from ..model.fitted import FittedModel
from ..model.labels import Labels
from ..training.config import TrainConfig
from ..training.progress import EpochStats
from ..training.trainer import Trainer
from .averaging import Change, Tensors, averaged, change
from .chunks import ChunkSource
from .cluster import check_version, import_ray
from .split import Split
from .tasks import Tasks, fetched

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """What a task needs besides weights and rows: a model without weights, and how to train."""

    model: FittedModel
    config: TrainConfig
    n_features: int
    unit_length: bool
    seed: int  # of an epoch
    version: str

    @classmethod
    def of(cls, model: FittedModel, config: TrainConfig, seed: int, version: str) -> Recipe:
        """Return the recipe for a model."""
        trainable = model.trainable
        assert trainable is not None
        # Tasks work with label ids: of the labels, they need only the number.
        labels = cast(Labels, range(len(model.labels)))
        bare = replace(model, labels=labels, trainable=None, frozen=None, counts=None)
        quiet = replace(config, keep_on_interrupt=False)
        n_features = len(trainable.values) - trainable.intercept
        return cls(bare, quiet, n_features, trainable.unit_length, seed, version)

    def trainer(self, trellises: slice, state: list[Tensors], step: int, epochs: int) -> Trainer:
        """Return a trainer of some trellises, with a copy of their state."""
        books = self.model.codebooks[trellises]
        config = self.config
        trainable = TrainableWeights(
            self.model.trellis,
            len(books),
            self.n_features,
            intercept=config.fit_intercept,
            unit_length=self.unit_length,
            adagrad=config.optimizer == "adagrad",
            average=config.average,
            settings=config.fixed,
        )
        for name, array in trainable.tensors().items():
            np.concatenate([part[name] for part in state], out=array)
        trainable.step, trainable.epochs = step, epochs
        return Trainer(replace(self.model, codebooks=books, trainable=trainable), config)

    def order(self, chunk: int, n_rows: int) -> Ints:
        """Return the order of the rows of a chunk."""
        if not self.config.shuffle:
            return np.arange(n_rows)
        return np.random.default_rng([self.seed, chunk]).permutation(n_rows)


@dataclass(frozen=True)
class TaskReport:
    """What a task has done: mean loss, hits, rows, processor seconds, bytes sent, and where."""

    loss: float
    hits: float
    n_rows: int
    seconds: float
    n_bytes: int
    node: str


@dataclass(frozen=True)
class Work:
    """What one worker does in one round: chunks, by their numbers, for some trellises."""

    trellises: slice
    epoch: int
    step: int
    chunks: list[tuple[int, Any]]
    bounds: tuple[int, ...]  # of the slices of the state


def train(recipe: Recipe, work: Work, *state: Tensors) -> tuple[TaskReport, Any]:
    """Train some trellises on some chunks; return their new state."""
    report, trainer, _ = _trained(recipe, work, list(state))
    return report, trainer.trainable.tensors()


def train_shard(recipe: Recipe, work: Work, *state: Tensors) -> tuple[Any, ...]:
    """Train on one shard; return the changes of every slice of the state."""
    report, trainer, used = _trained(recipe, work, list(state))
    after, changes = trainer.trainable.tensors(), []
    for before, (first, last) in zip(state, pairwise(work.bounds), strict=True):
        rows = used[(used >= first) & (used < last)] - first
        own = {name: array[first:last] for name, array in after.items()}
        changes.append(change(before, own, rows))
    size = sum(each.n_bytes for each in changes)
    return replace(report, n_bytes=size), *changes


def reduce_slice(state: Tensors, *changes: Change) -> Tensors:
    """Return a slice of the state after a round."""
    return averaged(state, changes)


def _trained(recipe: Recipe, work: Work, state: list[Tensors]) -> tuple[TaskReport, Trainer, Ints]:
    """Train on the chunks; also return the rows of W that belong to their features."""
    check_version(recipe.version)
    start = time.process_time()
    trainer = recipe.trainer(work.trellises, state, work.step, work.epoch)
    trainable = trainer.trainable
    used = np.zeros(len(trainable.values), bool)
    used[-1:] = trainable.intercept

    def batches() -> Iterator[Batch]:
        for number, examples in fetched(work.chunks):
            features = used_features(examples.X)
            used[slice(None) if features is None else features] = True
            yield examples, recipe.order(number, len(examples))

    losses, passes = [0.0], [EpochStats()]
    trainer.run_epoch(batches(), losses, lambda stats, _: passes.append(stats))
    n_rows = trainable.step - work.step
    node = import_ray().get_runtime_context().get_node_id()
    seconds = time.process_time() - start
    report = TaskReport(losses[0], passes[-1].hits, n_rows, seconds, 0, node)
    return report, trainer, np.flatnonzero(used)


class ClusterTrainer(Trainer):
    """Trains a model with Ray tasks: `Trainer` with another way to run an epoch.

    Parameters
    ----------
    model : FittedModel
    config : TrainConfig
    source : ChunkSource
    split : Split
    sync_rows : int or None
        Rows of a shard between two averages; None is as many as keep averages cheap.
    nnz : int
        Non-zeros of all rows.
    n_jobs : int or None
        Threads of a task; those of `config` are for this process.
    tasks : Tasks
    """

    def __init__(
        self,
        model: FittedModel,
        config: TrainConfig,
        source: ChunkSource,
        split: Split,
        sync_rows: int | None,
        nnz: int,
        n_jobs: int | None,
        tasks: Tasks,
    ) -> None:
        super().__init__(model, config)
        self._source, self._split, self._tasks, self._n_jobs = source, split, tasks, n_jobs
        self._state: list[list[Any]] = []  # the slices of every group's state
        self._chunks_per_round = self._chunks_between_averages(sync_rows, nnz)
        n_rows = len(self.trainable.values)
        self._bounds = tuple(i * n_rows // split.shards for i in range(split.shards + 1))
        self.reports: list[list[TaskReport]] = []  # of every round

    def run_epoch(
        self,
        batches: Iterable[Batch],
        losses: list[float],
        show: Callable[[EpochStats, int], None] = lambda _stats, _rows: None,
    ) -> EpochStats:
        """Train on all chunks, round by round; set the last loss."""
        if not self._state:
            self._state = self._initial_state()
        seed = int(self._source.rng.randint(2**31 - 1)) if self.config.shuffle else 0
        # Codebooks may have changed since the last epoch.
        config = replace(self.config, n_jobs=self._n_jobs)
        recipe = self._tasks.put(Recipe.of(self.model, config, seed, __version__))
        stats = EpochStats()
        try:
            for chunks in self._rounds(seed):
                reports = self._run_round(recipe, chunks)
                self.reports.append(reports)
                groups = self._split.groups  # which all have the same rows
                loss = sum(report.loss * report.n_rows for report in reports)
                hits = sum(report.hits for report in reports)
                n_rows = sum(report.n_rows for report in reports) // groups
                stats.add(loss / groups, hits / groups, n_rows)
                self.trainable.step += n_rows
                show(stats, n_rows)
            self._fetch_state()
        except BaseException:
            self._tasks.cancel()
            raise
        finally:
            losses[-1] = float(f"{stats.mean_loss:.8g}")
            self.trainable.epochs += 1
        return stats

    def _chunks_between_averages(self, sync_rows: int | None, nnz: int) -> int:
        if sync_rows is not None:
            return max(1, round(sync_rows / max(int(self._source.sizes.max(initial=1)), 1)))
        per_shard = -(-len(self._source.chunks) // self._split.shards)
        n_features = len(self.trainable.values)
        return -(-per_shard // max(self._split.averages(nnz, n_features), 1))

    def _rounds(self, seed: int) -> list[list[list[int]]]:
        """Return the chunks of every shard in every round of an epoch."""
        n_chunks, shards, size = (
            len(self._source.chunks),
            self._split.shards,
            self._chunks_per_round,
        )
        order = np.arange(n_chunks)
        if self.config.shuffle:
            order = np.random.default_rng(seed).permutation(n_chunks)
        own = [
            [int(chunk) for chunk in order if chunk % shards == shard] for shard in range(shards)
        ]
        if shards == 1:
            return [own]
        longest = max(map(len, own))
        return [
            [chunks[first : first + size] for chunks in own] for first in range(0, longest, size)
        ]

    def _run_round(self, recipe: Any, shards: list[list[int]]) -> list[TaskReport]:
        """Train one round, of all groups at the same time."""
        tasks, split = self._tasks, self._split
        n_trellises = len(self.model.codebooks)
        reports, new = [], []
        for group, state in enumerate(self._state):
            changes = []
            for chunks in shards:
                if not any(self._source.sizes[chunk] for chunk in chunks):
                    continue  # an empty shard
                work = Work(
                    split.trellises(group, n_trellises),
                    self.trainable.epochs,
                    self.trainable.step,
                    [(chunk, self._source.chunks[chunk]) for chunk in chunks],
                    self._bounds,
                )
                if split.shards == 1:
                    report, result = tasks.run(train, recipe, work, *state, n_returns=2)
                    new.append([result])
                else:
                    n_returns = 1 + split.shards
                    report, *parts = tasks.run(
                        train_shard, recipe, work, *state, n_returns=n_returns
                    )
                    changes.append(parts)
                reports.append(report)
            if split.shards > 1:
                columns = zip(state, *changes, strict=True)
                new.append([tasks.run(reduce_slice, *column) for column in columns])
        found: list[TaskReport] = tasks.get(reports)
        self._state = new
        return found

    def _initial_state(self) -> list[list[Any]]:
        """Put the weights into the object store, by groups and slices."""
        return [
            [
                self._tasks.put({name: part.copy() for name, part in self._part(group, rows)})
                for rows in starmap(slice, pairwise(self._bounds))
            ]
            for group in range(self._split.groups)
        ]

    def _fetch_state(self) -> None:
        """Get the weights from the object store."""
        for group, state in enumerate(self._state):
            for rows, reference in zip(starmap(slice, pairwise(self._bounds)), state, strict=True):
                tensors = self._tasks.get(reference)
                for name, part in self._part(group, rows):
                    part[:] = tensors[name]
        self._tasks.finished()

    def _part(self, group: int, rows: slice) -> list[tuple[str, npt.NDArray[Any]]]:
        """Return views of the weights of a group in some rows."""
        trellises = self._split.trellises(group, len(self.model.codebooks))
        block = padded(self.trainable.n_edges)
        columns = slice(trellises.start * block, trellises.stop * block)
        tensors = self.trainable.tensors()
        return [(name, array[rows, columns]) for name, array in tensors.items()]
