"""Training on batches that do not fit into memory together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from ..features.mapping import FeatureMap
from ..model.examples import Examples
from ..model.fitted import FittedModel
from ..model.labels import Targets
from .auto import DatasetSize, plan_for
from .batches import Streamed
from .build import new_model
from .checkpoint import Checkpoint
from .config import TrainConfig
from .examples import balanced_weights, class_weights, make_examples
from .label_weights import train_label_weights
from .propensity import given_propensity
from .pruning import choose_density, prune
from .replay import keep_rows
from .state import TrainerState
from .stats import ROWS_FOR_VECTORS, ROWS_FOR_WEIGHTS, DatasetStats
from .trainer import Trainer

# Returns an iterator over all batches; the argument is True for the first pass.
Batches: TypeAlias = Callable[[bool], Iterator[tuple[Any, Targets]]]

_MAX_HELD_OUT = 50_000  # rows: P@1 has a standard error of at most 0.0023


def fit_stream(
    config: TrainConfig, batches: Batches, rng: Any, checkpoint: Checkpoint | None = None
) -> FittedModel:
    """Train a model: one pass that collects statistics, then all epochs."""
    stats = DatasetStats(_sample_per_label(config))
    for X, targets in batches(True):
        stats.add(X, targets)
        if checkpoint is not None:
            checkpoint.add_rows(X, targets.indptr)
    if stats.n_labels < 2:
        raise ValueError(f"training needs at least 2 different labels, got {stats.n_labels}")
    labels, label_stats = stats.labels()
    feature_map = None
    if stats.used is not None:
        feature_map = FeatureMap.of(stats.n_features, stats.used)
    n_features = stats.n_features if feature_map is None else feature_map.n_columns
    size = DatasetSize(stats.n_rows, n_features, stats.nnz, len(labels))
    plan = plan_for(config, size, in_memory=False)
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
    counts = label_stats.counts
    assert counts is not None
    model.propensity = given_propensity(config)
    model.typical_labels = max(1, stats.typical_labels())
    model.n_rows, model.counts = stats.n_rows, counts
    class_weight = config.class_weight
    if class_weight == "balanced":
        weights = balanced_weights(counts, stats.n_rows)
        class_weight = dict(zip(labels.values, weights.tolist(), strict=True))

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

    n_held_out = min(plan.n_held_out, _MAX_HELD_OUT)
    source = Streamed(examples, stats.n_rows, n_held_out, counts, config.shuffle, rng)
    state = TrainerState()
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
    if plan.label_weights and stats.sample is not None:
        sample = replace(stats.sample, X=model.compact(stats.sample.X))
        if class_weight is not None:
            sample.weights = class_weights(class_weight, labels, sample.labels, sample.indptr)
        with trainer.guard():
            model.label_weights = train_label_weights(model, sample, config.n_jobs)
    if model.multilabel:
        model.threshold = trainer.choose_threshold(source.evaluation_rows())
    state.completed = not trainer.guard.interrupted
    return model


def _sample_per_label(config: TrainConfig) -> int:
    """Return how many rows of every label to keep in memory."""
    if config.label_weights:
        return ROWS_FOR_WEIGHTS
    policy = config.policy
    return ROWS_FOR_VECTORS if policy is not None and policy.needs_sample else 0
