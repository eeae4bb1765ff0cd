"""Training of label weights: one squared-hinge classifier per label, on the rows that matter to it.

A label's classifier tells its own rows from those that have it among the trellises' best
candidates; for all others, the trellises decide. It is trained by dual coordinate descent, which
has no learning rate and converges in a few passes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..core import _engine
from ..core.arrays import threads
from ..features.rows import engine_features
from ..model.examples import Batch, Examples
from ..model.fitted import FittedModel
from ..model.label_weights import ROWS_PER_CALL, LabelWeights
from .interrupt import check_time

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

# Chosen on held-out rows, see docs/what_was_tried.md. Where rows have several labels, margins are
# violated more often by labels that are merely missing.
_SEVERAL = 1.1  # labels per row, on average
_COST = {False: 1.0, True: 0.5}  # True if rows have several labels
_TRELLIS_WEIGHT = {False: 0.5, True: 1.0}  # of the trellises' mean score
_OTHER_WEIGHTS = (0.5, 2.0, 4.0)  # times that
_TOP = 5
PASSES, _TOLERANCE, _THRESHOLD = 10, 0.1, 0.1
FEW_PASSES, FEW_NEGATIVES = 5, 50  # enough to calibrate scores
_NEGATIVES, _MIN_NEGATIVES = 100, 16  # candidates of a row that it is a negative row for
_MAX_PAIRS = 1 << 24  # of rows and labels, in all
_CANDIDATES = {False: 20, True: 100}  # to rerank in prediction; True if labels share paths
_SLICES = 16  # of the labels: Ctrl-C is handled between them


def n_candidates(model: FittedModel) -> int:
    """Return how many of the trellises' candidates are reranked."""
    return _CANDIDATES[model.shares_paths]


def train_label_weights(
    model: FittedModel,
    examples: Examples,
    n_jobs: int | None,
    weight: float | None = None,
    left_out: Ints | None = None,
    negatives: npt.NDArray[np.int32] | None = None,
    passes: int = PASSES,
) -> LabelWeights:
    """Return label weights for a model whose trellises are trained.

    Parameters
    ----------
    model : FittedModel
    examples : Examples
    n_jobs : int or None
    weight : float, optional
        Of the trellises' scores; by default one that is good nearly everywhere.
    left_out : array, optional
        Rows that are not used.
    negatives : array of shape (n_rows, n_negatives), optional
        Labels that every row is a negative row for, from `find_negatives`.
    passes : int, default=10
        Over all rows, at most.
    """
    if left_out is not None:
        given = examples.weights
        weights = np.ones(len(examples), np.float32) if given is None else given.copy()
        weights[left_out] = 0
        examples = replace(examples, weights=weights)
    if negatives is None:
        negatives = find_negatives(model, examples, n_jobs)
    task = _task(model, examples, negatives)
    W = _run(task, len(model.labels), model.weights.n_features, examples, None, passes, n_jobs)
    if weight is None:
        n_scores = len(model.codebooks) + (model.embedding.weight if model.embedding else 0)
        weight = _TRELLIS_WEIGHT[_has_several(examples)] / n_scores
    return LabelWeights.of_matrix(
        W,
        unit_length=model.weights.unit_length,
        weight=weight,
        n_candidates=min(n_candidates(model), negatives.shape[1]),
    )


def update_label_weights(model: FittedModel, examples: Examples, n_jobs: int | None) -> None:
    """Make one pass over more rows, from the label weights that a model has."""
    old = model.label_weights
    assert old is not None
    task = _task(model, examples, _candidates(model, examples, _NEGATIVES, n_jobs))
    W = _run(task, len(model.labels), model.weights.n_features, examples, old.matrix(), 1, n_jobs)
    model.label_weights = LabelWeights.of_matrix(
        W, unit_length=old.unit_length, weight=old.weight, n_candidates=old.n_candidates
    )


def choose_weight(model: FittedModel, batch: Batch, n_jobs: int | None) -> None:
    """Choose the weight of the trellises' scores on held-out rows, by P@1 and recall@5.

    Neither trellises nor label weights may have been trained on them. Other weights than the usual
    one must be better by more than a standard error.
    """
    examples, rows = batch
    label_weights = model.label_weights
    assert label_weights is not None
    X = examples.X[rows]
    n_true = np.clip(examples.indptr[rows + 1] - examples.indptr[rows], 1, _TOP)

    def quality(weight: float) -> npt.NDArray[np.float64]:
        """Return P@1 + recall@5 of every row."""
        model.label_weights = label_weights.with_weight(weight)
        ids, _ = model.topk(X, _TOP, n_jobs)
        hits = examples.contains(rows, ids)
        found: npt.NDArray[np.float64] = hits[:, 0] + hits.sum(axis=1) / n_true
        return found

    chosen = label_weights.weight
    best = quality(chosen)
    for factor in _OTHER_WEIGHTS:
        found = quality(factor * label_weights.weight)
        gain = found - best
        if gain.mean() > gain.std() / np.sqrt(len(gain)):
            best, chosen = found, factor * label_weights.weight
    model.label_weights = label_weights.with_weight(chosen)


def _has_several(examples: Examples) -> bool:
    return len(examples.labels) > _SEVERAL * len(examples)


def find_negatives(
    model: FittedModel, examples: Examples, n_jobs: int | None
) -> npt.NDArray[np.int32]:
    """Return the candidates of every row: it is a negative row for those that are not true."""
    n_negatives = min(max(_MAX_PAIRS // max(len(examples), 1), _MIN_NEGATIVES), _NEGATIVES)
    return _candidates(model, examples, n_negatives, n_jobs)


def _candidates(
    model: FittedModel, examples: Examples, n: int, n_jobs: int | None
) -> npt.NDArray[np.int32]:
    n = min(n, len(model.labels))
    candidates = np.empty((len(examples), n), np.int32)
    search = model.searcher(n, n_jobs)
    for first in range(0, len(examples), ROWS_PER_CALL):
        check_time()
        some = slice(first, first + ROWS_PER_CALL)
        candidates[some] = search(examples.X[some], n_jobs)[0]
    return candidates


def _task(
    model: FittedModel, examples: Examples, candidates: npt.NDArray[np.int32]
) -> _engine.LabelTask:
    """Pass rows, labels and candidates to the engine."""
    return _engine.LabelTask(
        engine_features(examples.X, True, model.weights.unit_length),
        examples.indptr,
        examples.labels,
        candidates,
        examples.weights,
        n_labels=len(model.labels),
    )


def _run(
    task: _engine.LabelTask,
    n_labels: int,
    n_features: int,
    examples: Examples,
    initial: csr_array | None,
    passes: int,
    n_jobs: int | None,
) -> csr_array:
    """Return the weights as a matrix of shape (n_labels, n_features + 1)."""
    start = None
    if initial is not None:
        start = (
            initial.indptr.astype(np.int64),
            initial.indices.astype(np.int32),
            initial.data.astype(np.float32),
        )
    bounds = np.linspace(0, n_labels, _SLICES + 1).astype(int)
    parts = []
    for first, last in pairwise(bounds):
        check_time()
        parts.append(
            task.run(
                int(first),
                int(last),
                cost=_COST[_has_several(examples)],
                passes=passes,
                tolerance=_TOLERANCE,
                threshold=_THRESHOLD,
                initial=start,
                n_jobs=threads(n_jobs),
            )
        )
    counts, features, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return csr_array((values, features, indptr), shape=(n_labels, n_features + 1))
