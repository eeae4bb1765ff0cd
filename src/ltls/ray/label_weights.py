"""Training of label weights on a cluster: every task trains the classifiers of some labels.

Classifiers are trained independently. A label needs the rows that have it, and those that have it
among the trellises' candidates. So every chunk of rows finds its candidates and sends each row to
the shards that need it; then every shard trains its labels. Labels of a bucket are in the same
shard, since they are candidates of the same rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from ..core.version import __version__
from ..model.examples import Examples
from ..model.fitted import FittedModel
from ..model.label_weights import LabelWeights
from ..model.labels import Labels
from ..training.label_weights import (
    candidates_of,
    from_matrix,
    has_several,
    label_task,
    n_negatives,
    train_range,
)
from .chunks import ChunkSource
from .cluster import check_version
from .tasks import Tasks

Ints: TypeAlias = npt.NDArray[np.int64]

_SHARD_VALUES = 1 << 27  # non-zeros of the rows that a task trains on, about


@dataclass(frozen=True)
class Sharding:
    """Labels in an order where buckets are together, cut into shards of about equal work.

    Parameters
    ----------
    order : array of shape (n_labels,)
        The labels.
    places : array of shape (n_labels,)
        The place of every label in that order.
    bounds : array of shape (n_shards + 1,)
        Shard i has the places bounds[i] … bounds[i + 1] − 1.
    """

    order: Ints
    places: Ints
    bounds: Ints

    @classmethod
    def of(cls, model: FittedModel, n_shards: int) -> Sharding:
        """Return the shards of a model's labels."""
        n_labels = len(model.labels)
        order = np.arange(n_labels)
        if model.shares_paths:
            order = np.argsort(model.codebooks[0].path_of(order), kind="stable")
        counts = np.ones(n_labels) if model.counts is None else model.counts
        work = np.cumsum(counts[order] + counts.mean())
        cuts = np.searchsorted(work, np.arange(1, n_shards) * work[-1] / n_shards)
        bounds = np.concatenate([[0], cuts, [n_labels]])
        return cls(order, np.argsort(order), bounds)


@dataclass(frozen=True)
class Searcher:
    """Finds the candidates of rows, and which shards need them."""

    model: FittedModel
    sharding: Sharding
    n_negatives: int
    thorough: bool
    n_jobs: int | None
    version: str


def candidates_by_shard(searcher: Searcher, examples: Examples) -> tuple[Any, ...]:
    """Return the rows that each shard needs, labels and candidates as places; and the seconds."""
    check_version(searcher.version)
    start = time.process_time()
    sharding = searcher.sharding
    found = candidates_of(searcher.model, examples.X, searcher.n_negatives, searcher.n_jobs)
    candidates = np.where(found < 0, -1, sharding.places[found])
    labels = sharding.places[examples.labels]
    row_of = np.repeat(np.arange(len(examples)), np.diff(examples.indptr))
    parts = []
    for first, last in pairwise(sharding.bounds):
        own = (candidates >= first) & (candidates < last)
        has_label = (labels >= first) & (labels < last)
        needed = own.any(axis=1)
        needed[row_of[has_label]] = True
        rows = np.flatnonzero(needed)
        kept = has_label & needed[row_of]
        counts = np.bincount(row_of[kept], minlength=len(examples))[rows]
        part = Examples(
            examples.X[rows],
            np.concatenate([[0], np.cumsum(counts)]),
            labels[kept],
            None if examples.weights is None else examples.weights[rows],
            True,
        )
        parts.append((part, np.where(own[rows], candidates[rows], -1).astype(np.int32)))
    return *parts, time.process_time() - start


def train_shard(
    searcher: Searcher, shard: int, several: bool, *parts: tuple[Examples, Any]
) -> tuple[csr_array, float]:
    """Train the classifiers of one shard; return their weights, and the processor seconds."""
    check_version(searcher.version)
    start = time.process_time()
    bounds = searcher.sharding.bounds
    first, last = int(bounds[shard]), int(bounds[shard + 1])
    n_features = searcher.model.weights.n_features
    parts = tuple(part for part in parts if len(part[0]))
    if not parts or first == last:
        return csr_array((last - first, n_features + 1), dtype=np.float32), 0.0
    examples = Examples.concatenate([part for part, _ in parts])
    candidates = np.concatenate([candidates for _, candidates in parts])
    n_labels, unit_length = len(searcher.model.labels), searcher.model.weights.unit_length
    task = label_task(examples, candidates, n_labels, unit_length)
    W = train_range(task, first, last, n_features, several, searcher.n_jobs, searcher.thorough)
    return W, time.process_time() - start


def train_label_weights(
    model: FittedModel,
    source: ChunkSource,
    nnz: int,
    n_workers: int,
    n_jobs: int | None,
    tasks: Tasks,
    weight: float | None = None,
    thorough: bool = True,
) -> tuple[LabelWeights, list[float]]:
    """Return label weights for a model whose trellises are trained.

    Also returns the processor seconds of all searches for candidates together, then those of
    every shard. The parameters are those of `ltls.training.label_weights.train_label_weights`, and
    how many non-zeros all rows have.
    """
    n_shards = n_workers * max(1, -(-nnz // (n_workers * _SHARD_VALUES)))
    n = n_negatives(model.n_rows, len(model.labels))
    sharding = Sharding.of(model, n_shards)
    labels = cast(Labels, range(len(model.labels)))
    frozen = replace(
        model,
        labels=labels,
        trainable=None,
        frozen=model.weights,
        label_weights=None,
        counts=None,
        propensity=0.0,
    )
    used = n if thorough else n_negatives(model.n_rows, len(model.labels), thorough)
    searcher = tasks.put(Searcher(frozen, sharding, used, thorough, n_jobs, __version__))
    found = [
        tasks.run(candidates_by_shard, searcher, chunk, n_returns=n_shards + 1)
        for chunk, size in zip(source.chunks, source.sizes, strict=True)
        if size
    ]
    n_true = int(model.counts.sum()) if model.counts is not None else 0
    several = has_several(model.n_rows, n_true)
    blocks = [
        tasks.run(train_shard, searcher, shard, several, *(parts[shard] for parts in found))
        for shard in range(n_shards)
    ]
    trained = list(tasks.in_order(blocks))
    searching = sum(tasks.get([parts[-1] for parts in found]))
    seconds = [searching, *(took for _, took in trained)]
    tasks.finished()
    W = vstack([block for block, _ in trained], "csr")[sharding.places]
    return from_matrix(model, W, n, several, weight), seconds
