"""Training on rows in memory: all epochs of a fit, or one pass of a partial fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..features.mapping import FeatureMap, used_features
from ..features.scaling import Standardizer, sum_of_squares, typical_length
from ..model.examples import Examples
from ..model.fitted import FittedModel
from ..model.labels import Labels, Targets
from ..structure.policies import LabelStats
from .auto import DatasetSize, Plan, plan_for, plan_for_first_batch
from .batches import InMemory, RowsToHoldOut
from .build import (
    check_same_kind,
    label_vectors,
    make_trainable,
    new_model,
    paths_of_new_labels,
    warm_started,
)
from .calibration import calibrate, usual_calibration
from .checkpoint import Checkpoint
from .config import TrainConfig
from .embedding import EmbeddingTrainer
from .examples import check_class_weight_labels, make_examples
from .label_weights import (
    choose_weight,
    learn_late_labels,
    train_label_weights,
    update_label_weights,
)
from .propensity import choose_propensity, given_propensity
from .pruning import choose_density, prune
from .replay import keep_rows, mixed_order, replayed_rows
from .state import TrainerState
from .trainer import Trainer

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]

_LONGEST_CURVE = 10_000  # passes of partial_fit whose loss is kept
_MIN_SCALED_ROWS = 100  # of a first batch that tells whether features are unscaled


def fit(
    config: TrainConfig,
    X: Any,
    targets: Targets,
    sample_weight: Floats | None,
    rng: Any,
    *,
    checkpoint: Checkpoint | None = None,
    previous: FittedModel | None = None,
) -> FittedModel:
    """Train a model on all rows; with `previous`, continue from that model's weights."""
    labels = Labels.sorted(targets)
    check_class_weight_labels(config.class_weight, labels)
    feature_map = None
    if previous is None and (used := used_features(X)) is not None:
        feature_map = FeatureMap.of(X.shape[1], used)
    compact = X if feature_map is None else feature_map.compact(X)
    plan = plan_for(config, DatasetSize.of(compact, len(labels), targets.multilabel))
    standardizer = _standardizer(config, X) if previous is None else None
    if standardizer is not None:
        compact = X = standardizer(X)
    if previous is not None:
        model = warm_started(previous, config, labels, targets, X.shape[1])
        model.label_weights = model.threshold = model.calibration = None
        model.add_features(X)
        compact = model.compact(X)
    elif len(labels) < 2:
        raise ValueError(
            f"y must hold at least 2 classes, got 1 class: {labels.values[0]!r}; "
            "partial_fit can begin with one"
        )
    else:
        model = _new_model(config, plan, labels, compact, targets, rng, feature_map)
        model.standardizer = standardizer
    examples = _examples(model, config, compact, targets, sample_weight)
    model.propensity = given_propensity(config)
    if plan.small_dense:
        assert model.trainable is not None
        length = typical_length(sum_of_squares(compact), len(compact)) if previous is None else 1.0
        model.trainable.start_average(length)
    state = TrainerState()
    held_out = _held_out_rows(plan, examples, rng)
    if checkpoint is not None:
        checkpoint.add_rows(compact, examples.indptr, examples.labels, examples.weights)
        if checkpoint.resume:
            state, held_out, rng = checkpoint.restore(model)
    source = InMemory(examples, held_out, plan.early_stopping, config.shuffle, rng)
    trainer = Trainer(model, config)
    trainer.fit(source, plan, state, checkpoint)
    _use_held_out_rows(trainer, source, plan)
    if plan.label_weights or model.shares_paths:
        with trainer.guard():
            _train_label_weights(trainer, source, plan)
    if model.multilabel and model.threshold is None:
        model.threshold = trainer.choose_threshold(source.evaluation_rows())
    if config.calibrate and model.calibration is None:
        model.calibration = usual_calibration(model)
    if plan.small_dense:
        trainer.trainable.end_average()
    model.reservoir = None
    keep_rows(model, examples, config.replay_size)
    state.completed = not trainer.guard.interrupted
    return model


def _standardizer(config: TrainConfig, X: Any, min_rows: int = 0) -> Standardizer | None:
    """Return how dense features are standardized, None if they are not.

    "auto" needs `min_rows` to tell.
    """
    if not config.may_standardize(X):
        return None
    if config.standardize == "auto" and (Standardizer.copies(X) or X.shape[0] < min_rows):
        return None
    return Standardizer.of(X).if_wanted(config.standardize)


def _use_held_out_rows(trainer: Trainer, source: InMemory, plan: Plan) -> None:
    """Choose on the held-out rows what is not trained, then train the trellises on them too.

    They stay held out if they are for early stopping.
    """
    model, config = trainer.model, trainer.config
    batch = source.examples, source.held_out
    density, embedding = plan.density, None
    with trainer.guard():
        if len(source.held_out) and not trainer.guard.interrupted:
            if plan.embedding_dim:
                embedding = EmbeddingTrainer(model, plan.embedding_dim, source.rng, config.n_jobs)
                embedding.fit(source)
            if density is None:
                density = choose_density(model, batch, plan.label_weights, config.n_jobs)
            if plan.label_weights and _chooses(trainer, plan) and not plan.early_stopping:
                with pruned(model, density):
                    _train_label_weights(trainer, source, plan)
            elif not plan.label_weights:
                if config.propensity == "auto":
                    choose_propensity(model, batch, config.n_jobs)
                if plan.calibrate:
                    with pruned(model, density):
                        calibrate(model, batch, config.n_jobs)
                        if model.multilabel:
                            model.threshold = trainer.choose_threshold(batch)
            if not plan.early_stopping:
                for _ in range(plan.epochs):
                    order = source.rng.permutation(source.held_out)
                    trainer.run_epoch([(source.examples, order)], [0.0])
                if embedding is not None:
                    embedding.run_epoch(source.examples, source.held_out)
    if density is not None and density < 1:
        prune(model, density)


@contextmanager
def pruned(model: FittedModel, density: float | None) -> Iterator[None]:
    """Prune a model for a while."""
    if density is not None and density < 1:
        prune(model, density)
    try:
        yield
    finally:
        model.frozen = None


def _chooses(trainer: Trainer, plan: Plan) -> bool:
    """Return whether label weights are needed that have not seen the held-out rows."""
    return trainer.model.multilabel or plan.calibrate or trainer.config.propensity == "auto"


def _train_label_weights(trainer: Trainer, source: InMemory, plan: Plan) -> None:
    """Train label weights; choose calibration, threshold and weight of the trellises' scores.

    On rows that it was trained on, a model is too sure of itself, so that is done on held-out rows.
    If these are for early stopping, they stay held out. Otherwise label weights are trained once
    more on all rows.
    """
    model, examples, n_jobs = trainer.model, source.examples, trainer.config.n_jobs
    known = model.label_weights
    if known is not None or not (plan.early_stopping or _chooses(trainer, plan)):
        weight = None if known is None else known.weight
        model.label_weights = train_label_weights(model, examples, n_jobs, weight)
        return
    chooses_weight = model.multilabel or plan.early_stopping or trainer.config.propensity == "auto"
    model.label_weights = train_label_weights(
        model,
        examples,
        n_jobs,
        left_out=source.held_out,
        thorough=chooses_weight,
    )
    batch = examples, source.held_out
    if len(source.held_out):
        if chooses_weight:
            choose_weight(model, batch, n_jobs)
        if trainer.config.propensity == "auto":
            choose_propensity(model, batch, n_jobs)
        if plan.calibrate:
            calibrate(model, batch, n_jobs)
        if model.multilabel:
            model.threshold = trainer.choose_threshold(batch)


def partial_fit(
    config: TrainConfig,
    model: FittedModel | None,
    X: Any,
    targets: Targets,
    classes: list[Any],
    sample_weight: Floats | None,
    rng: Any,
) -> FittedModel:
    """Make one pass over a batch, which may have new labels; None starts a new model.

    Rows of the model's reservoir are mixed with those of the batch, see `ltls.training.replay`. The
    model is not changed: a new one is returned. The multi-label threshold is the mean of the
    batches' best ones; that of a model with label weights stays, since it was chosen on rows that
    they had not seen.
    """
    if model is None:
        labels = Labels(classes)
        labels.add(targets)
        plan = plan_for_first_batch(config)
        standardizer = _standardizer(config, X, _MIN_SCALED_ROWS)
        if standardizer is not None:
            X = standardizer(X)
        # A trellis keeps its width while it grows only if it has at least that many paths.
        model = _new_model(config, plan, labels, X, targets, rng, min_paths=plan.width)
        model.standardizer = standardizer
    else:
        check_same_kind(model, targets)
        model = model.branch()
        make_trainable(model, config)
        new = model.labels.unseen(targets, classes)
        paths = paths_of_new_labels(model, new, X, targets) if model.shares_paths else None
        model.add_labels(new, paths)
        model.add_features(X)
        X = model.compact(X)
    first_row = model.n_rows
    batch = _examples(model, config, X, targets, sample_weight)
    if not config.replay_size:
        model.reservoir = None
    past = replayed_rows(model, batch)
    examples = batch if past is None else Examples.concatenate([batch, past])
    _make_pass(model, config, batch, examples, rng)
    keep_rows(model, batch, config.replay_size, first_row)
    return model


def _make_pass(
    model: FittedModel, config: TrainConfig, batch: Examples, examples: Examples, rng: Any
) -> None:
    """Train on a batch, and on the rows of the past that follow it in `examples`."""
    trainer = Trainer(model, config)
    rows = np.arange(len(batch))
    order = rng.permutation(rows) if config.shuffle else rows
    with trainer.guard():
        if not learn_late_labels(model, batch, examples, config.n_jobs):
            assert model.trainable is not None
            model.trainable.unshare(used_features(examples.X))
            loss = [0.0]
            trainer.run_epoch([(examples, mixed_order(order, len(examples)))], loss)
            model.loss_curve = [*model.loss_curve[-_LONGEST_CURVE:], *loss]
            if model.label_weights is not None:
                update_label_weights(model, batch, examples, config.n_jobs)
    model.n_epochs += 1
    if model.multilabel and model.label_weights is None:
        best = trainer.choose_threshold((batch, rows))
        before = best if model.threshold is None else model.threshold
        model.threshold = before + (best - before) / model.n_epochs


def _new_model(
    config: TrainConfig,
    plan: Plan,
    labels: Labels,
    X: Any,
    targets: Targets,
    rng: Any,
    feature_map: FeatureMap | None = None,
    min_paths: int = 0,
) -> FittedModel:
    ids = labels.ids(targets)
    vectors = None
    policy = config.policy
    if plan.bucket_size > 1 or (policy is not None and policy.needs_sample):
        vectors = label_vectors(X, targets.indptr, ids, len(labels))
    stats = LabelStats(len(labels), np.bincount(ids, minlength=len(labels)), vectors)
    return new_model(
        config,
        plan,
        labels,
        stats,
        n_features=X.shape[1],
        feature_map=feature_map,
        sparse=hasattr(X, "indptr"),
        multilabel=targets.multilabel,
        target_format=targets.format,
        rng=rng,
        min_paths=min_paths,
    )


def _examples(
    model: FittedModel,
    config: TrainConfig,
    X: Any,
    targets: Targets,
    sample_weight: Floats | None,
) -> Examples:
    """Return the rows with their label ids, and count them in the model."""
    typical = int(np.quantile(np.diff(targets.indptr), 0.99, method="higher"))
    model.typical_labels = max(model.typical_labels, typical)
    examples = make_examples(model.labels, X, targets, sample_weight, config.class_weight)
    model.count(examples.labels, targets.n_rows)
    return examples


def _held_out_rows(plan: Plan, examples: Examples, rng: Any) -> Ints:
    if not plan.n_held_out:
        return np.empty(0, np.int64)
    rows = np.sort(rng.permutation(len(examples))[: plan.n_held_out])
    if not plan.early_stopping:
        return rows
    return RowsToHoldOut(np.bincount(examples.labels)).select(examples, rows)
