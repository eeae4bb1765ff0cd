"""Training on batches that do not fit into memory together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from ..features.mapping import FeatureMap
from ..model.examples import Examples
from ..model.fitted import FittedModel
from ..model.labels import Targets
from .auto import DatasetSize, Plan, plan_for
from .batches import Streamed, blocks_of
from .build import new_model
from .calibration import calibrate, usual_calibration
from .checkpoint import Checkpoint
from .config import TrainConfig
from .examples import balanced_weights, check_class_weight_labels, make_examples
from .label_weights import choose_weight, train_in_blocks
from .propensity import choose_propensity, given_propensity
from .pruning import choose_density, prune
from .replay import keep_rows
from .state import TrainerState
from .stats import ROWS_FOR_BUCKETS, ROWS_FOR_VECTORS, DatasetStats
from .trainer import Trainer

# Returns an iterator over all batches; the argument is True for the first pass.
Batches: TypeAlias = Callable[[bool], Iterator[tuple[Any, Targets]]]

MAX_CALIBRATED = 5000  # rows
_N_BATCHES = 4  # that label weights are trained on at a time
_MIN_VALUES, _MAX_VALUES = 1 << 16, 1 << 24  # of them
MAX_HELD_OUT = 50_000  # rows: P@1 has a standard error of at most 0.0023


def fit_stream(
    config: TrainConfig, batches: Batches, rng: Any, checkpoint: Checkpoint | None = None
) -> FittedModel:
    """Train a model: one pass that collects statistics, then all epochs."""
    stats = DatasetStats(sample_per_label(config))
    for X, targets in batches(True):
        stats.add(X, targets, scale=config.may_standardize(X))
        if checkpoint is not None:
            checkpoint.add_rows(X, targets.indptr)
    model, plan, class_weight = model_for(config, stats, rng)
    labels = model.labels
    counts = model.counts
    assert counts is not None

    def examples() -> Iterator[Examples]:
        n_read = 0
        first_pass = model.reservoir is None
        for X, targets in batches(False):
            same = replace(targets, multilabel=stats.multilabel, format=stats.target_format)
            part = make_examples(labels, model.compact(X), same, None, class_weight)
            if part.labels.min(initial=0) < 0:
                raise ValueError(
                    "batches must be the same in every epoch, got the new label "
                    f"{labels.first_unknown(same)!r}"
                )
            if first_pass:
                keep_rows(model, part, config.replay_size, n_read)
            n_read += len(part)
            yield part

    n_held_out = min(plan.n_held_out, MAX_HELD_OUT)
    source = Streamed(examples, stats.n_rows, n_held_out, counts, config.shuffle, rng)
    state = TrainerState()
    if plan.small_dense:
        assert model.trainable is not None
        model.trainable.start_average(stats.row_length(model.standardizer))
    if checkpoint is not None:
        checkpoint.add_rows(counts)
        if checkpoint.resume:
            state, source.held_out, source.rng = checkpoint.restore(model)
            source.keep_evaluation_rows()
    trainer = Trainer(model, config)
    trainer.fit(source, plan, state, checkpoint)
    density, validation = plan.density, source.validation_rows()
    if density is None and validation is not None:
        density = choose_density(model, validation, plan.label_weights, config.n_jobs)
    if density is not None and density < 1:
        prune(model, density)
    if plan.label_weights:
        with trainer.guard():
            n_values = min(max(_N_BATCHES * stats.largest, _MIN_VALUES), _MAX_VALUES)
            blocks = blocks_of(source.in_order(), n_values)
            model.label_weights = train_in_blocks(model, blocks, source.n_rows, config.n_jobs)
    if validation is not None and not trainer.guard.interrupted:
        if plan.label_weights and (model.multilabel or plan.early_stopping):
            choose_weight(model, validation, config.n_jobs)
        if config.propensity == "auto":
            choose_propensity(model, validation, config.n_jobs)
        if plan.calibrate:
            held_out, rows = validation
            some = rows[:: -(-len(rows) // MAX_CALIBRATED)]
            calibrate(model, (held_out, some), config.n_jobs)
    if model.multilabel:
        model.threshold = trainer.choose_threshold(source.evaluation_rows())
    if config.calibrate and model.calibration is None:
        model.calibration = usual_calibration(model)
    if plan.small_dense:
        trainer.trainable.end_average()
    state.completed = not trainer.guard.interrupted
    return model


def model_for(
    config: TrainConfig, stats: DatasetStats, rng: Any, in_memory: bool = False
) -> tuple[FittedModel, Plan, dict[Any, float] | None]:
    """Return a model with weights of 0 for rows of which statistics were collected.

    Returns the plan, and the weights of labels, too.
    """
    if stats.n_labels < 2:
        raise ValueError(f"training needs at least 2 different labels, got {stats.n_labels}")
    feature_map = None
    if stats.used is not None:
        feature_map = FeatureMap.of(stats.n_features, stats.used)
    n_features = stats.n_features if feature_map is None else feature_map.n_columns
    # Shards of rows in memory have no average over all steps.
    dense = not (stats.sparse or stats.multilabel or in_memory)
    size = DatasetSize(stats.n_rows, n_features, stats.nnz, stats.n_labels, dense)
    plan = plan_for(config, size, in_memory)
    standardizer = stats.standardizer(config.standardize)
    labels, label_stats = stats.labels(standardizer)
    check_class_weight_labels(config.class_weight, labels)
    model = new_model(
        config,
        plan,
        labels,
        label_stats,
        n_features=n_features,
        feature_map=feature_map,
        sparse=stats.sparse,
        multilabel=stats.multilabel,
        target_format=stats.target_format,
        rng=rng,
    )
    model.standardizer = standardizer
    counts = label_stats.counts
    assert counts is not None
    stats.sample = None  # only needed for the codebooks, as are the vectors of labels
    del label_stats
    model.propensity = given_propensity(config)
    model.typical_labels = max(1, stats.typical_labels())
    model.n_rows, model.counts = stats.n_rows, counts
    class_weight = config.class_weight
    if isinstance(class_weight, str):
        weights = balanced_weights(counts, stats.n_rows)
        class_weight = dict(zip(labels.values, weights.tolist(), strict=True))
    return model, plan, class_weight


def sample_per_label(config: TrainConfig) -> int:
    """Return how many rows of every label to keep in memory."""
    if config.label_weights:
        return ROWS_FOR_BUCKETS
    policy = config.policy
    return ROWS_FOR_VECTORS if policy is not None and policy.needs_sample else 0
