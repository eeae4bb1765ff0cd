"""Training of an estimator on a Ray dataset."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from ..core.arrays import as_integer, threads
from ..core.version import __version__
from ..estimators.classifier import LTLSClassifier
from ..estimators.table_classifier import TableClassifier
from ..features.vectorizer import Vectorizer
from ..io.arrow import InputColumns, as_table, check_columns
from ..model.examples import Batch
from ..model.fitted import FittedModel
from ..training.auto import Plan
from ..training.batches import RowsToHoldOut
from ..training.calibration import calibrate, usual_calibration
from ..training.checkpoint import Checkpoint
from ..training.config import TrainConfig
from ..training.fit import pruned
from ..training.label_weights import choose_weight
from ..training.propensity import choose_propensity
from ..training.pruning import choose_density, prune
from ..training.state import TrainerState
from ..training.stream import MAX_CALIBRATED, MAX_HELD_OUT, model_for, sample_per_label
from ..training.trainer import Trainer
from .chunks import Blocks, Chunks, ChunkSource, Encoder, Reader, sample
from .cluster import causes_raised, check_nodes, set_options
from .label_weights import train_label_weights
from .split import Split
from .tasks import Tasks
from .training import ClusterTrainer

Estimator = TypeVar("Estimator", bound=LTLSClassifier)

Ints: TypeAlias = npt.NDArray[np.int64]

_TEXTS = 1 << 16  # from which vocabulary and TF-IDF weights are learned
_SHUFFLED = 1 << 26  # rows whose numbers may be shuffled in memory


def fit(
    estimator: Estimator,
    dataset: Any,
    *,
    label: str,
    features: str | Sequence[str] | None = None,
    text: str | None = None,
    n_workers: int = 2,
    split: str = "auto",
    sync_rows: int | None = None,
    n_features: int | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
) -> Estimator:
    """Fit an estimator on a Ray dataset.

    Rows stay in Ray's object store, which spills to disk, and every worker reads its own. The
    result depends on the data, the parameters, `random_state` and `n_workers`, but neither on
    timing nor on the nodes of the cluster. A worker that dies is replaced, and does its work since
    the last average again; nodes that join later are used. The fitted estimator is an ordinary
    one and needs no Ray.

    Parameters
    ----------
    estimator : LTLSClassifier or TextClassifier
        Fitted in place. `n_jobs` is the number of CPUs of a worker, at least 1.
    dataset : ray.data.Dataset
        Rows in random order: `Dataset.random_shuffle` shuffles one that is sorted.
    label : str
        The column of labels: one per row, or lists of them.
    features : str or sequence of str, optional
        The columns of the features, see `BatchPredictor`.
    text : str, optional
        The column of texts, for a `TextClassifier`. Its vocabulary is that of the first 65,536
        texts.
    n_workers : int, default=2
        The most tasks that train at the same time. Where the cluster has fewer CPUs, they take
        turns; where groups of trellises do not divide them evenly, some are not used.
    split : {"auto", "rows", "trellises"}, default="auto"
        "trellises" gives each worker some of the trellises and all rows; the result does not depend
        on the number of workers, of which at most one per trellis is used. "rows" gives each worker
        a share of the rows and averages the weights. "auto" combines both: groups of workers share
        the trellises, and the workers of a group share the rows, in the way that is estimated to be
        fastest. Averaging is expensive with many features and few rows.
    sync_rows : int, optional
        Rows of a worker between two averages, rounded to whole chunks: at least one average per
        epoch. By default 1 to 8 averages per epoch, as many as cost little beside training.
    n_features : int, optional
        The number of features of sparse rows; by default one more than the largest index.
    checkpoint : path-like or Checkpoint, optional
        Where the caller saves the state after every epoch. A `Checkpoint` can also resume from
        there, if the caller itself has died.

    Returns
    -------
    estimator
        As after `LTLSClassifier.fit`, but for the order of rows, and for averaging.

    Examples
    --------
    ``ltls.ray.fit(LTLSClassifier(), ray.data.read_parquet("train/"), label="tag",
    features=["indices", "values"], n_workers=8)``
    """
    columns = InputColumns.of(features, text)
    n_workers = as_integer("n_workers", n_workers, at_least=1)
    if sync_rows is not None:
        sync_rows = as_integer("sync_rows", sync_rows, at_least=1)
    Split.of(split, n_workers, 1, 0, 0)  # raises an error for another name
    _check_input(estimator, columns)
    with estimator._restored_on_error():
        config = estimator._config()
        _check_config(config)
        names = dataset.schema().names if dataset.schema() is not None else []
        check_columns([*columns.names, label], names)
        saved = estimator._checkpoint(checkpoint)
        if saved is not None:
            saved.begin({**estimator.get_params(deep=False), "n_workers": n_workers,
                         "split": split, "sync_rows": sync_rows})  # fmt: skip
        check_nodes()
        if text is not None:
            estimator.vectorizer_ = _vectorizer(estimator, dataset, columns)
        rng = check_random_state(estimator.random_state)
        job = Job(estimator, config, n_workers, split, sync_rows, saved, rng)
        estimator.model_ = job.run(dataset, columns, label, n_features)
        estimator.n_features_in_ = estimator.model_.n_features
        estimator._keep_budget()
    return estimator


class Job:
    """One fit, from a dataset to a model.

    For benchmarks, `seconds` has the time of its phases, `trainer` reports of its tasks, and
    `label_seconds` the processor time of those of label weights, for every time these are trained.
    """

    def __init__(
        self,
        estimator: LTLSClassifier,
        config: TrainConfig,
        n_workers: int,
        split: str,
        sync_rows: int | None,
        checkpoint: Checkpoint | None,
        rng: Any,
    ) -> None:
        self.estimator, self.rng, self.checkpoint = estimator, rng, checkpoint
        self.n_workers, self.split, self.sync_rows = n_workers, split, sync_rows
        self.n_jobs = config.n_jobs  # of a task
        self.tasks = Tasks(config.n_jobs or 1)
        # Workers wait while this process clusters labels and evaluates held-out rows.
        n_threads = min(n_workers * threads(config.n_jobs), os.cpu_count() or 1)
        self.config = replace(config, n_jobs=max(n_threads, threads(config.n_jobs)))
        self.seconds: dict[str, float] = {}
        self.label_seconds: list[list[float]] = []

    def run(
        self, dataset: Any, columns: InputColumns, label: str, n_features: int | None
    ) -> FittedModel:
        """Read the dataset, and train."""
        start = time.perf_counter()
        config, tasks, rng = self.config, self.tasks, self.rng
        vectorizer = getattr(self.estimator, "vectorizer_", None) if columns.text else None
        if vectorizer is not None:
            n_features = vectorizer.n_features
        blocks = Blocks.of(dataset, columns, label, vectorizer, n_features, tasks)
        if not blocks.n_rows:
            raise ValueError("the dataset has no rows")
        bare = LTLSClassifier(**_plain_parameters(self.estimator))
        reader = tasks.put(Reader(bare, blocks.n_features, __version__))
        # Statistics must not depend on the number of workers, as the chunks of training do.
        stats, digest = Chunks(blocks.cut(1), reader, tasks).statistics(sample_per_label(config))
        # Held-out rows are trained on in the end, so that all is chosen as by `fit` in memory.
        model, plan, class_weight = model_for(config, stats, rng, in_memory=True)
        split = Split.of(
            self.split, self.n_workers, plan.n_trellises, stats.nnz, model.weights.n_features
        )
        chunks = Chunks(blocks.cut(split.shards), reader, tasks)
        counts = model.counts
        assert counts is not None
        encoder = tasks.put(
            Encoder(
                model.labels, model.feature_map, stats.multilabel, stats.target_format, class_weight
            )
        )
        state, saved = TrainerState(), self.checkpoint
        if saved is not None:
            saved.add_rows(np.frombuffer(digest, np.uint8), counts)
        if saved is not None and saved.resume:
            state, held_out, rng = saved.restore(model)
            evaluation = chunks.rows(encoder, held_out)
        else:
            numbers = _some_rows(stats.n_rows, min(plan.n_held_out, MAX_HELD_OUT), rng)
            evaluation = chunks.rows(encoder, numbers)
            held_out = numbers
            if plan.early_stopping and evaluation is not None:
                kept = RowsToHoldOut(counts).select(evaluation, np.arange(len(numbers)))
                held_out, evaluation = numbers[kept], evaluation.take(kept)
        if model.multilabel and not len(held_out):
            evaluation = sample(chunks, encoder, stats.n_rows)
        sizes, references, reservoir = chunks.without(encoder, held_out, config.replay_size, counts)
        model.reservoir = reservoir if config.replay_size else None
        source = ChunkSource(sizes, references, evaluation, held_out, rng, tasks)
        self.rng = rng
        trainer = ClusterTrainer(
            model, config, source, split, self.sync_rows, stats.nnz, self.n_jobs, tasks
        )
        self.trainer = trainer
        read = time.perf_counter()
        trainer.fit(source, plan, state, saved)
        trained = time.perf_counter()
        self._finish(model, source, plan, trainer, stats.nnz)
        self.seconds = {
            "reading": read - start,
            "trellises": trained - read,
            "label weights": time.perf_counter() - trained,
        }
        state.completed = not trainer.guard.interrupted
        return model

    def _finish(
        self, model: FittedModel, source: ChunkSource, plan: Plan, trainer: ClusterTrainer, nnz: int
    ) -> None:
        """Choose on held-out rows what is not trained, drop small weights, train label weights.

        As in `LTLSClassifier.fit`: held-out rows that are not for early stopping are trained on
        in the end.
        """
        config, n_jobs, guard = self.config, self.config.n_jobs, trainer.guard
        batch, density = source.validation_rows(), plan.density
        with_labels = plan.label_weights or model.shares_paths
        chooses_weight = model.multilabel or config.propensity == "auto" or plan.early_stopping
        if batch is not None and not guard.interrupted:
            if density is None:
                density = choose_density(model, batch, plan.label_weights, n_jobs)
            if not with_labels:
                with pruned(model, density):
                    self._choose(model, trainer, plan, batch)
            elif (chooses_weight or plan.calibrate) and not plan.early_stopping:
                with pruned(model, density):
                    self._train_label_weights(model, source, nnz, thorough=chooses_weight)
                    self._choose(model, trainer, plan, batch)
            if not plan.early_stopping:
                examples, rows = batch
                for _ in range(plan.epochs):
                    order = self.rng.permutation(rows)
                    Trainer.run_epoch(trainer, [(examples, order)], [0.0])
                source.add(examples)
        if density is not None and density < 1:
            prune(model, density)
        if with_labels:
            self._train_label_weights(model, source, nnz)
            if batch is not None and plan.early_stopping:
                self._choose(model, trainer, plan, batch)
        if model.multilabel and model.threshold is None:
            model.threshold = trainer.choose_threshold(source.evaluation_rows())
        if config.calibrate and model.calibration is None:
            model.calibration = usual_calibration(model)

    def _train_label_weights(
        self, model: FittedModel, source: ChunkSource, nnz: int, thorough: bool = True
    ) -> None:
        """Train label weights; the weight of the trellises' scores stays if it is chosen."""
        known = model.label_weights
        model.label_weights, seconds = train_label_weights(
            model,
            source,
            nnz,
            self.n_workers,
            self.n_jobs,
            self.tasks,
            None if known is None else known.weight,
            thorough,
        )
        self.label_seconds.append(seconds)

    def _choose(
        self, model: FittedModel, trainer: ClusterTrainer, plan: Plan, batch: Batch
    ) -> None:
        """Choose weight of the trellises' scores, propensities, calibration and threshold."""
        config, n_jobs = self.config, self.config.n_jobs
        by_propensity = config.propensity == "auto"
        if model.label_weights is not None and (
            model.multilabel or by_propensity or plan.early_stopping
        ):
            choose_weight(model, batch, n_jobs)
        if by_propensity:
            choose_propensity(model, batch, n_jobs)
        if plan.calibrate:
            examples, rows = batch
            calibrate(model, (examples, rows[:: -(-len(rows) // MAX_CALIBRATED)]), n_jobs)
        if model.multilabel:
            model.threshold = trainer.choose_threshold(batch)


def _some_rows(n_rows: int, n: int, rng: Any) -> Ints:
    """Return the numbers of n random rows, the same ones as `fit` in memory holds out."""
    if n_rows > _SHUFFLED:
        return np.sort(sample_without_replacement(n_rows, n, random_state=rng)).astype(np.int64)
    return np.sort(rng.permutation(n_rows)[:n]) if n else np.empty(0, np.int64)


def _plain_parameters(estimator: LTLSClassifier) -> dict[str, Any]:
    names = LTLSClassifier._get_param_names()
    return {name: getattr(estimator, name) for name in names if name != "random_state"}


def _vectorizer(estimator: Any, dataset: Any, columns: InputColumns) -> Vectorizer:
    """Learn vocabulary and TF-IDF weights from the first texts."""
    with causes_raised():
        first = dataset.select_columns(list(columns.names)).limit(_TEXTS)
        set_options(first, preserve_order=True)
        texts = [text for batch in first.iter_batches(batch_format="pyarrow")
                 for text in columns.read(as_table(batch))]  # fmt: skip
    if not texts:
        raise ValueError("the dataset has no rows")
    vectorizer = Vectorizer(estimator._settings(texts))
    vectorizer.fit_transform(texts)
    return vectorizer


def _check_input(estimator: Any, columns: InputColumns) -> None:
    """Raise an error for texts where an estimator takes features, and the other way round."""
    if isinstance(estimator, TableClassifier):
        raise ValueError("a TableClassifier is not trained on a cluster: use its fit_stream")
    if hasattr(estimator, "_settings") != bool(columns.text):
        kind, name = type(estimator).__name__, "features" if columns.text else "text"
        raise ValueError(f"a {kind} takes {name}: name the columns with {name}")


def _check_config(config: TrainConfig) -> None:
    if config.n_jobs is not None and config.n_jobs < 1:
        raise ValueError(
            f"n_jobs must be at least 1 on a cluster, where it is the number of CPUs of a worker, "
            f"got {config.n_jobs}; for more CPUs, raise n_workers"
        )
    policy = config.policy
    if policy is not None and policy.needs_training:
        raise ValueError(
            f"assignment={policy.name!r} gives paths to labels while it trains, in the order of "
            'the rows, and needs one machine; use "random"'
        )
    if config.average:
        raise ValueError("average=True needs all steps in one order; use average=False")
    if config.embedding_dim:
        raise ValueError(
            f"embedding_dim={config.embedding_dim} needs all rows in memory and one machine; use 0"
        )
    if config.standardize is True:
        raise ValueError("standardize=True needs one machine; scale the features of the dataset")
