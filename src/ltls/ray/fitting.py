"""Training of an estimator on a Ray dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from sklearn.utils import check_random_state

from ..core.arrays import as_integer
from ..estimators.classifier import LTLSClassifier
from ..io.tables import Columns, check_columns
from ..model.labels import Targets
from ..model.model import Fitted
from ..training.checkpoint import Checkpoint
from ..training.data import Problem, Source
from ..training.fit import ROWS_FOR_VECTORS, Encoder, fit_stream
from ..training.recipes import Plan
from ..training.trainer import TrainOptions
from .chunks import Chunks, fit_front_end, tables_of
from .cluster import Tasks, check_nodes, values_of
from .workers import ClusterWorkers

Estimator = TypeVar("Estimator", bound=LTLSClassifier)


def fit(
    estimator: Estimator,
    dataset: Any,
    *,
    label: str,
    features: str | Sequence[str] | None = None,
    text: str | None = None,
    n_workers: int = 2,
    n_features: int | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
) -> Estimator:
    """Fit an estimator on a Ray dataset.

    Rows stay in Ray's object store, which spills to disk, in chunks of at most 65,536. Every worker
    trains some of the trellises, then label weights of some clusters. The result depends on the
    data, the parameters and `random_state`, but not on the number of workers, on timing or on the
    nodes of the cluster. Workers that die are replaced, and nodes that join later are used. The
    fitted estimator does not need Ray.

    Parameters
    ----------
    estimator : LTLSClassifier, TextClassifier or TableClassifier
        Fitted in place. `n_jobs` is the number of CPUs of a worker, at least 1.
    dataset : ray.data.Dataset
        Rows in random order; use `Dataset.random_shuffle` if they are sorted.
    label : str
        The column of labels: one per row, or lists of them.
    features : str or sequence of str, optional
        The columns of features; see `BatchPredictor`.
    text : str, optional
        The column of texts, for a text classifier. A table classifier knows its columns.
    n_workers : int, default=2
        Maximum number of concurrent tasks: at most one per trellis, and for label weights at most
        one per cluster of labels. If the Ray cluster has fewer CPUs, tasks take turns.
    n_features : int, optional
        The number of features of sparse rows; by default one more than the largest index.
    checkpoint : path-like or Checkpoint, optional
        File that the caller saves the training state to after every epoch. If the caller dies, pass
        a `Checkpoint` to resume from it, with any number of workers.

    Returns
    -------
    estimator
        The estimator that was passed, fitted.

    Notes
    -----
    With a single chunk, the model is that of `LTLSClassifier.fit`. With several, rows are shuffled
    within their chunk, and clusters of labels depend on the first rows of every label, as in
    `fit_stream`. Vocabularies, means and categories are learned from the first 16 chunks.

    Examples
    --------
    ``ltls.ray.fit(LTLSClassifier(), ray.data.read_parquet("train/"), label="tag",
    features=["indices", "values"], n_workers=8)``
    """
    n_workers = as_integer("n_workers", n_workers, at_least=1)
    n_jobs = estimator.n_jobs or 1
    if n_jobs < 1:
        raise ValueError(
            "n_jobs must be at least 1 on a cluster, where it is the number of CPUs of a worker, "
            f"got {n_jobs}; for more CPUs, raise n_workers"
        )
    with estimator._restored_on_error():
        options = estimator._train_options()
        given = estimator.front_end_settings().named_columns(features, text)
        columns = Columns(label=label, **given)
        schema = dataset.schema()
        if schema is None:
            raise ValueError("dataset must have at least one row, got none")
        check_columns(columns.names, schema.names)
        saved = estimator._checkpoint(checkpoint)
        check_nodes()
        tasks = Tasks(n_workers, n_jobs)
        # Workers are idle while this process clusters labels and evaluates held-out rows.
        n_threads = max(n_jobs, min(n_workers * n_jobs, os.cpu_count() or 1))
        options = replace(options, n_jobs=n_threads, workers=ClusterWorkers(tasks))
        with estimator._phase("reading rows"):
            tables = tables_of(dataset, columns.names)
        estimator.fitted_ = _fitted(estimator, options, tables, columns, n_features, tasks, saved)
    return estimator


def _fitted(
    estimator: LTLSClassifier,
    options: TrainOptions,
    tables: list[Any],
    columns: Columns,
    n_features: int | None,
    tasks: Tasks,
    checkpoint: Checkpoint | None,
) -> Fitted:
    """Train on a list of tables, which is emptied."""
    with estimator._phase("features"):
        front_end = fit_front_end(estimator.front_end_settings(), tables, columns, options.n_jobs)
    with estimator._phase("features of all rows"):
        rows = Chunks.of(tables, columns, front_end, n_features, tasks)
    tables.clear()  # the object store may free them
    rng = check_random_state(estimator.random_state)
    # As for rows in memory, label vectors are computed from all rows of a single chunk.
    rows_for_vectors = ROWS_FOR_VECTORS if len(rows.sizes) > 1 else int(rows.sizes[0])

    def batches(first: bool) -> Iterator[tuple[Any, Targets]]:
        for X, targets in rows.batches():
            yield estimator._checked_pair(X, targets, reset=first)
            first = False

    def new_source(encoder: Encoder, plan: Plan, problem: Problem, rng: Any) -> Source:
        chunks = partial(values_of, rows.encoded(encoder, tasks))
        source = Source(chunks, problem, plan, rng, at_once=len(rows.sizes) == 1)
        source.held_out_rows()  # before tasks start, which iterate over the chunks themselves
        return source

    return fit_stream(options, batches, front_end, rng, checkpoint, new_source, rows_for_vectors)
