"""Training by Ray tasks: every task trains some trellises, or label weights of some clusters.

The work of a worker is a Ray task, a pure function of weights and rows. Ray runs the task wherever
there is room and reruns it if a process dies. Trellises are trained independently of each other,
and so are clusters of labels. So the result does not depend on timing, faults or the number of
workers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from ..core.arrays import Ints, pointers
from ..model.examples import Examples
from ..parts.label_trainer import LabelTrainer
from ..parts.label_weights import LabelWeights, train_clusters
from ..parts.trellis_training import TrellisTraining
from ..training.data import Source
from ..training.progress import EpochStats, InterruptGuard, signals_deferred
from ..training.trainer import Trainer
from .cluster import Tasks, values_of

_SHARD_ROWS = 1 << 21  # approximate rows that a task trains label weights on


class ClusterWorkers:
    """Ray tasks that train; see `ltls.training.trainer.Workers`.

    Parameters
    ----------
    tasks : Tasks
        Each task has as many threads as CPUs.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def run_epoch(self, training: TrellisTraining, source: Source, count_hits: bool) -> EpochStats:
        """Train all trellises on all rows, some in every task."""
        n = len(training.codebooks)
        n_groups = min(self._tasks.n_workers, n)
        groups = list(pairwise(n * group // n_groups for group in range(n_groups + 1)))
        parts = (
            (training.some(*group), source, count_hits, self._tasks.n_cpus) for group in groups
        )
        found = self._tasks.map(train_trellises, parts)
        total = EpochStats()
        for (first, last), ((stats, _), _) in zip(groups, found, strict=True):
            share = (last - first) / n  # sums are means over trellises
            total.add(share * stats.loss, share * stats.hits, 0)
            total.examples = stats.examples
        values = zip(groups, values_of([each for _, each in found]), strict=True)
        with signals_deferred():
            for group, trained in values:
                training.replace_some(*group, trained)
            source.rng = found[0][0][1]
        return total

    def train_clusters(
        self,
        given: LabelWeights,
        source: Source,
        clusters: list[tuple[Ints, Ints]],
        counts: Ints,
        row_length: float,
        without_held_out: bool,
        groups: Ints | None = None,
    ) -> list[tuple[csr_array, csr_array | None]]:
        """Train label weights, those of some clusters in every task."""
        n_shards = max(self._tasks.n_workers, len(clusters) * source.n_rows // _SHARD_ROWS)
        arguments = (
            (
                given,
                source,
                shard,
                len(counts),
                row_length,
                without_held_out,
                groups,
                self._tasks.n_cpus,
            )
            for shard in shards_of(clusters, counts, n_shards)
        )
        found = list(values_of([each for _, each in self._tasks.map(train_shard, arguments)]))
        both = not without_held_out and len(source.held_out) > 0
        return [
            (
                vstack([shard[number][0] for shard in found], "csr"),
                vstack([shard[number][1] for shard in found], "csr") if both else None,
            )
            for number in range(len(clusters))
        ]

    def label_trainer(self, trainer: LabelTrainer) -> LabelTrainer:
        """Train label vectors in this process, since steps depend on one another."""
        return trainer


def train_trellises(
    training: TrellisTraining, source: Source, count_hits: bool, n_jobs: int
) -> tuple[Any, TrellisTraining]:
    """Train some trellises for one epoch; also return its sums and the random generator."""
    training.weights.unshare(None)  # objects in the store are read-only
    trainer = Trainer(training, InterruptGuard(False), n_jobs, count_hits)
    stats = trainer.run_epoch(source.epoch())
    return (stats, source.rng), training


def shards_of(
    clusters: list[tuple[Ints, Ints]], counts: Ints, n_shards: int
) -> list[list[tuple[Ints, Ints]]]:
    """Cut clusterings into at most `n_shards` shards of about equal work, with whole clusters.

    A shard has some clusters, or none, of every clustering. `counts` are the rows per label.
    """
    work = []
    for ptr, labels in clusters:
        rows = pointers(counts[labels])
        work.append((rows[ptr[1:]] - rows[ptr[:-1]]) * np.diff(ptr))
    done = np.cumsum(np.concatenate(work))
    cuts = np.searchsorted(done, np.arange(1, n_shards) * done[-1] / n_shards) + 1
    bounds = np.unique(np.concatenate([[0], cuts, [len(done)]]))
    starts = pointers([len(each) for each in work])
    shards = []
    for first, last in pairwise(bounds):
        shard = []
        for (ptr, labels), start, end in zip(clusters, starts[:-1], starts[1:], strict=True):
            own = ptr[np.clip(first, start, end) - start : np.clip(last, start, end) - start + 1]
            shard.append((own - own[0], labels[own[0] : own[-1]]))
        shards.append(shard)
    return shards


def train_shard(
    given: LabelWeights,
    source: Source,
    clusters: list[tuple[Ints, Ints]],
    n_labels: int,
    row_length: float,
    without_held_out: bool,
    groups: Ints | None,
    n_jobs: int,
) -> tuple[None, list[tuple[csr_array, csr_array]]]:
    """Train the label weights of some clusters on the rows that have one of their labels."""
    own = np.zeros(n_labels, bool)
    for _, labels in clusters:
        own[labels] = True
    parts, held_out = [], []
    for batch, trained in source.in_order():
        examples = batch if groups is None else batch.grouped(groups)
        needed = np.zeros(len(examples), bool)
        row_of = np.repeat(np.arange(len(examples)), np.diff(examples.indptr))
        needed[row_of[own[examples.labels]]] = True
        if without_held_out:
            needed &= np.isin(np.arange(len(examples)), trained)
        rows = np.flatnonzero(needed)
        parts.append(examples.take(rows))
        held_out.append(~np.isin(rows, trained))
    examples = Examples.concatenate(parts)
    found = train_clusters(
        given,
        examples,
        clusters,
        n_labels=n_labels,
        held_out=np.flatnonzero(np.concatenate(held_out)),
        row_length=row_length,
        n_jobs=n_jobs,
    )
    return None, [(W, W if without is None else without) for W, without in found]
