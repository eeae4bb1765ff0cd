"""Models before their first epoch: new ones, and models to train further."""

from __future__ import annotations

from collections.abc import Hashable
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

from ..core.memory import available_memory
from ..features.mapping import FeatureMap
from ..linear.trainable import TrainableWeights
from ..linear.weights import padded
from ..model.fitted import FittedModel
from ..model.labels import Labels, Targets
from ..structure.buckets import similar_buckets
from ..structure.codebook import BucketCodebook, Codebook, copy_codebooks, make_codebook
from ..structure.losses import resolve_loss
from ..structure.policies import LabelStats
from ..structure.trellis import Trellis
from .auto import Plan
from .config import TrainConfig

Ints: TypeAlias = npt.NDArray[np.int64]


def new_model(
    config: TrainConfig,
    plan: Plan,
    labels: Labels,
    stats: LabelStats,
    *,
    n_features: int,
    feature_map: FeatureMap | None = None,
    sparse: bool,
    multilabel: bool,
    target_format: str,
    rng: Any,
    min_paths: int = 0,
) -> FittedModel:
    """Return a model with weights of 0.

    `min_paths` is the minimum number of paths, to leave free ones for new labels.
    """
    codebooks: list[Codebook]
    if plan.bucket_size > 1:
        trellis = Trellis(-(-len(labels) // plan.bucket_size), plan.width)
        _check_memory(config, trellis, plan.n_trellises, n_features)  # before the work
        codebooks = _random_buckets(trellis, plan.n_trellises, stats, rng, config.n_jobs)
    elif config.policy is not None:
        trellis = Trellis(max(len(labels), min_paths), plan.width)
        assignments = config.policy.initial(trellis, plan.n_trellises, stats, rng)
        codebooks = [make_codebook(each, trellis.n_classes) for each in assignments]
    else:
        assert not isinstance(config.assignment, str)
        codebooks = copy_codebooks(config.assignment, plan.n_trellises, len(labels))
        trellis = Trellis(codebooks[0].n_paths, plan.width)
    loss = resolve_loss(config.loss, multilabel)
    model = FittedModel(labels, trellis, codebooks, loss, config.l1, multilabel, target_format)
    model.feature_map = feature_map
    model.trainable = _new_weights(config, model, n_features, config.use_unit_length(sparse))
    return model


def _random_buckets(
    trellis: Trellis, n_trellises: int, stats: LabelStats, rng: Any, n_jobs: int | None
) -> list[Codebook]:
    """Return buckets of similar labels on random paths, for every trellis."""
    n_paths = trellis.n_classes
    starts = [(int(rng.randint(2**31)), rng.permutation(n_paths)) for _ in range(n_trellises)]
    buckets = similar_buckets(stats.vectors, n_paths, [seed for seed, _ in starts], n_jobs)
    pairs = zip(starts, buckets, strict=True)
    return [BucketCodebook(n_paths, paths[own]) for (_, paths), own in pairs]


def paths_of_new_labels(
    model: FittedModel, labels: list[Hashable], X: Any, targets: Targets
) -> Ints:
    """Return paths for new labels of a model whose labels share paths.

    A label joins the bucket that its rows score highest in each trellis; one without rows joins a
    small one. Returns an array of shape (n_trellises, n_labels).
    """
    row_of = np.repeat(np.arange(targets.n_rows), np.diff(targets.indptr))
    column = Labels(labels).ids(targets)
    new = column >= 0
    shape = (len(labels), targets.n_rows)
    indicator = csr_array((np.ones(new.sum(), np.float32), (column[new], row_of[new])), shape=shape)
    rows = np.unique(row_of[new])
    n_trellises, n_edges = len(model.codebooks), model.trellis.n_edges
    sums = np.zeros((len(labels), n_trellises * n_edges), np.float32)
    for part, h in model.edge_scores(model.compact(X[rows]), None):
        sums += indicator[:, rows[part]] @ model.weights.without_padding(h)
    with_rows = np.asarray(indicator.sum(axis=1)).ravel() > 0
    paths = np.empty((n_trellises, len(labels)), np.int64)
    for r, book in enumerate(model.codebooks):
        block = np.ascontiguousarray(sums[:, r * n_edges : (r + 1) * n_edges])
        paths[r] = model.trellis.viterbi(model.decoder().decode_scores(block))[0]
        sizes = np.bincount(book.path_of(np.arange(book.n_labels)), minlength=book.n_paths)
        for label in np.flatnonzero(~with_rows):
            paths[r, label] = sizes.argmin()
            sizes[paths[r, label]] += 1
    return paths


def label_vectors(X: Any, indptr: Ints, ids: Ints, n_labels: int) -> Any:
    """Return the normalized mean of every label's rows, shape (n_labels, n_features)."""
    indicator = csr_array(
        (np.ones(len(ids), X.dtype), ids, indptr), shape=(len(indptr) - 1, n_labels)
    )
    return normalize(indicator.T @ X)


def warm_started(
    model: FittedModel, config: TrainConfig, labels: Labels, targets: Targets, n_features: int
) -> FittedModel:
    """Return a copy of a fitted model, to train further on rows of the same classes."""
    check_same_kind(model, targets)
    _check_same_classes(model.labels, labels)
    if n_features != model.n_features:
        raise ValueError(
            f"X must have {model.n_features} features, as in the last fit, got "
            f"{n_features}; use warm_start=False for others"
        )
    model = deepcopy(model)  # the estimator keeps the old one if training fails
    model.n_rows, model.counts, model.density = 0, np.zeros(0, np.int64), 1.0
    make_trainable(model, config)
    return model


def _check_same_classes(before: Labels, now: Labels) -> None:
    for label in now.values:
        if label not in before:
            raise ValueError(
                f"y must have the classes of the last fit, got {label!r}, which is new; use "
                "partial_fit for new labels, or warm_start=False"
            )
    for label in before.values:
        if label not in now:
            raise ValueError(
                f"y must have the classes of the last fit, got no row of {label!r}; use "
                "partial_fit for some of the labels, or warm_start=False"
            )


def make_trainable(model: FittedModel, config: TrainConfig) -> None:
    """Make sure that a model can be trained further, with the hyperparameters it has."""
    if model.trainable is None:
        weights = model.weights
        trainable = _new_weights(config, model, weights.n_features, weights.unit_length)
        trainable.load(weights, config.l1)
        trainable.epochs = model.n_epochs
        if trainable.squares is not None and model.squares is not None:
            trainable.squares[:] = model.squares.expand()
        model.trainable = trainable
    for name, value in model.trainable.settings.items():
        if getattr(config, name) != value:
            raise ValueError(
                f"{name} must stay {value!r} while a model is trained further, got "
                f"{getattr(config, name)!r}; fit without warm_start starts from scratch"
            )


def check_same_kind(model: FittedModel, targets: Targets) -> None:
    """Raise an error if targets are multi-label and the model is not, or the other way round."""
    if targets.multilabel != model.multilabel:
        kinds = ("one label per row", "several labels per row")
        raise ValueError(
            f"y must have {kinds[model.multilabel]}, as before, got {kinds[targets.multilabel]}"
        )


def _new_weights(
    config: TrainConfig, model: FittedModel, n_features: int, unit_length: bool
) -> TrainableWeights:
    _check_memory(config, model.trellis, len(model.codebooks), n_features)
    return TrainableWeights(
        model.trellis,
        len(model.codebooks),
        n_features,
        intercept=config.fit_intercept,
        unit_length=unit_length,
        adagrad=config.optimizer == "adagrad",
        average=config.average,
        settings=config.fixed,
    )


def _check_memory(config: TrainConfig, trellis: Trellis, n_trellises: int, n_features: int) -> None:
    """Raise an error before weights are allocated that do not fit into memory."""
    available = available_memory()
    per_weight = 4 + 4 * (config.optimizer == "adagrad") + 8 * config.average
    per_trellis = (n_features + config.fit_intercept) * padded(trellis.n_edges) * per_weight
    if available is None or n_trellises * per_trellis <= available:
        return
    fits = available // per_trellis
    hint = f"n_trellises={fits} would fit" if fits else "use a smaller width or fewer features"
    needed = n_trellises * per_trellis
    raise MemoryError(
        f"training needs {needed / 1e9:.1f} GB for the weights of {n_features:,} features, "
        f"{n_trellises} trellises and {trellis.n_edges:,} edges, and "
        f"{available / 1e9:.1f} GB are available; {hint}"
    )
