"""Training of label weights: one squared-hinge classifier per label, on the rows that matter to it.

A label's classifier tells its own rows from those that have it among the trellises' best
candidates; for all others, the trellises decide. It is trained by dual coordinate descent, which
has no learning rate and converges in a few passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

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
Lists: TypeAlias = "tuple[Ints, npt.NDArray[np.int32], Floats]"

# Chosen on held-out rows, see docs/what_was_tried.md. Where rows have several labels, margins are
# violated more often by labels that are merely missing.
_SEVERAL = 1.1  # labels per row, on average
_COST = {False: 1.0, True: 0.5}  # True if rows have several labels
_TRELLIS_WEIGHT = {False: 0.5, True: 1.0}  # of the trellises' mean score
_OTHER_WEIGHTS = (0.5, 2.0, 4.0)  # times that
_TOP = 5
_PASSES, _TOLERANCE, _THRESHOLD = 10, 0.1, 0.1
_FEW_PASSES, _FEW_NEGATIVES = 5, 50  # enough to calibrate scores
_NEGATIVES, _MIN_NEGATIVES = 100, 16  # candidates of a row that it is a negative row for
_NEGATIVES_PER_LABEL = 128  # on average, as far as rows have as many candidates
_MAX_PAIRS = 1 << 24  # of rows and labels, in all
_CANDIDATES = {False: 20, True: 100}  # to rerank in prediction; True if labels share paths
_LATE_NEGATIVES = 3.0  # total weight of the negative rows of late labels, per positive row
_FOUND = 0.8  # of the late labels of a batch, for the trellises to stay as they are
_MAX_RERANKED = 1024  # labels that are all candidates once there are late ones
_MANY_ROWS = 0.5  # of a label in a batch, for each that came before
_SECONDS = 0.1  # between two looks at the time


def n_candidates(model: FittedModel) -> int:
    """Return how many of the trellises' candidates are reranked."""
    return _CANDIDATES[model.shares_paths]


def train_label_weights(
    model: FittedModel,
    examples: Examples,
    n_jobs: int | None,
    weight: float | None = None,
    left_out: Ints | None = None,
    thorough: bool = True,
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
    thorough : bool, default=True
        False for fewer passes and negative rows, which are enough to calibrate scores.
    """
    if left_out is not None:
        given = examples.weights
        weights = np.ones(len(examples), np.float32) if given is None else given.copy()
        weights[left_out] = 0
        examples = replace(examples, weights=weights)
    n_labels, n_features = len(model.labels), model.weights.n_features
    n = n_negatives(len(examples), n_labels)
    negatives = candidates_of(
        model, examples.X, n_negatives(len(examples), n_labels, thorough), n_jobs
    )
    several = has_several(len(examples), len(examples.labels))
    task = label_task(examples, negatives, n_labels, model.weights.unit_length)
    W = train_range(task, 0, n_labels, n_features, several, n_jobs, thorough)
    return from_matrix(model, W, n, several, weight)


def n_negatives(n_rows: int, n_labels: int, thorough: bool = True) -> int:
    """Return how many candidates of a row it is a negative row for.

    The more rows, the fewer, but labels with few rows of their own need other ones.
    """
    affordable = _MAX_PAIRS // max(n_rows, 1)
    needed = _NEGATIVES_PER_LABEL * n_labels // max(n_rows, 1)
    most = _NEGATIVES if thorough else _FEW_NEGATIVES
    return min(max(affordable, needed, _MIN_NEGATIVES), most)


def from_matrix(
    model: FittedModel, W: csr_array, n_negatives: int, several: bool, weight: float | None = None
) -> LabelWeights:
    """Return label weights of shape (n_labels, n_features + 1) as a model takes them."""
    if weight is None:
        n_scores = len(model.codebooks) + (model.embedding.weight if model.embedding else 0)
        weight = _TRELLIS_WEIGHT[several] / n_scores
    return LabelWeights.of_matrix(
        W,
        unit_length=model.weights.unit_length,
        weight=weight,
        n_candidates=min(n_candidates(model), n_negatives),
    )


def train_range(
    task: _engine.LabelTask,
    first: int,
    last: int,
    n_features: int,
    several: bool,
    n_jobs: int | None,
    thorough: bool = True,
) -> csr_array:
    """Return the weights of labels first … last − 1, shape (last − first, n_features + 1)."""
    passes = _PASSES if thorough else _FEW_PASSES
    lists = _run(task, np.arange(first, last), several, None, passes, n_jobs)
    return _matrix(lists, last - first, n_features)


def train_in_blocks(
    model: FittedModel, blocks: Iterable[Examples], n_rows: int, n_jobs: int | None
) -> LabelWeights:
    """Return label weights, trained on blocks of rows that do not fit into memory together.

    Every block is trained to convergence from the weights of the blocks before: block coordinate
    descent in the dual problem (Yu, Hsieh, Chang and Lin 2010), once over all blocks. A single
    block gives the same weights as `train_label_weights`.

    Parameters
    ----------
    model : FittedModel
    blocks : iterable of Examples
    n_rows : int
        Rows of all blocks together.
    n_jobs : int or None
    """
    n_labels, n_features = len(model.labels), model.weights.n_features
    n = n_negatives(n_rows, n_labels)
    W, n_seen, n_labelled = csr_array((n_labels, n_features + 1), dtype=np.float32), 0, 0
    several = False
    for block in blocks:
        n_seen, n_labelled = n_seen + len(block), n_labelled + len(block.labels)
        several = has_several(n_seen, n_labelled)
        task = _task(model, block, n, n_jobs)
        # Weights grow from block to block: those that will be large are still small.
        threshold = _THRESHOLD * min(n_seen / max(n_rows, 1), 1.0)
        lists = _run(task, np.arange(n_labels), several, W, _PASSES, n_jobs, threshold)
        W = _matrix(lists, n_labels, n_features)
        del block, task  # before the next block is read
    return from_matrix(model, W, n, several)


def learn_late_labels(
    model: FittedModel, batch: Examples, examples: Examples, n_jobs: int | None
) -> bool:
    """Train label weights alone if all rows of a batch have late labels; return whether it is done.

    It needs rows of several labels, all of which are candidates. To train the trellises would cost
    old labels more: they see the same few rows of the past again and again. But a path whose edges
    score too low hides its label from the label weights: then the trellises have to learn it.
    """
    if not _reranks_all(model) or model.reservoir is None:
        return False
    is_late = batch.labels >= model.reservoir.first_late
    row_of = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
    if len(np.unique(row_of[is_late])) < len(batch):
        return False
    before = model.label_weights
    update_label_weights(model, batch, examples, n_jobs)
    ids, _ = model.topk(batch.X, int(np.diff(batch.indptr).max()), n_jobs)
    hits = batch.contains(np.arange(len(batch)), ids) & (ids >= model.reservoir.first_late)
    if hits.sum() >= _FOUND * is_late.sum():
        return True
    model.label_weights = before
    return False


def _reranks_all(model: FittedModel) -> bool:
    few = len(model.labels) <= _MAX_RERANKED
    return few and model.multilabel and model.label_weights is not None


def update_label_weights(
    model: FittedModel, batch: Examples, examples: Examples, n_jobs: int | None
) -> None:
    """Train label weights further on a batch, and on rows of the past that follow in `examples`.

    Labels that came after `fit` are trained from scratch on the batch and the model's reservoir,
    which has rows of theirs. Others make one pass if the batch has many rows of theirs: a few would
    cost more accuracy than they give. Without a reservoir, all labels make one pass over the batch.
    """
    if model.reservoir is None:
        _make_pass(model, batch, np.arange(len(model.labels)), n_jobs)
        return
    first_late = model.reservoir.first_late
    own = np.bincount(batch.labels, minlength=len(model.labels))
    late = np.flatnonzero(own[first_late:]) + first_late
    if len(late):
        rows = Examples.concatenate([batch, model.reservoir.examples_like(batch)])
        _train_late_labels(model, rows, late, n_jobs)
        if _reranks_all(model) and model.label_weights is not None:
            model.label_weights = replace(model.label_weights, n_candidates=len(model.labels))
    if model.counts is not None:
        many = own >= _MANY_ROWS * np.maximum(model.counts - own, 1)
        _make_pass(model, examples, np.flatnonzero(many[:first_late]), n_jobs)


def _make_pass(model: FittedModel, examples: Examples, labels: Ints, n_jobs: int | None) -> None:
    """Make one pass over rows, from the weights that some labels have."""
    old = model.label_weights
    assert old is not None
    if not len(labels):
        return
    task = _task(model, examples, _NEGATIVES, n_jobs)
    several = has_several(len(examples), len(examples.labels))
    lists = _run(task, labels, several, old.matrix(), 1, n_jobs)
    model.label_weights = old.replace_labels(labels, *lists)


def _train_late_labels(
    model: FittedModel, examples: Examples, labels: Ints, n_jobs: int | None
) -> None:
    """Train the weights of some labels from scratch: rows of other labels are negatives."""
    old = model.label_weights
    assert old is not None
    row_of = np.repeat(np.arange(len(examples)), np.diff(examples.indptr))
    own = np.zeros(len(examples), bool)
    own[row_of[np.isin(examples.labels, labels)]] = True
    weights = examples.row_weights().copy()
    several = has_several(len(examples), len(examples.labels))
    weights[~own] *= min(1, _LATE_NEGATIVES * own.sum() / max((~own).sum(), 1))
    examples = replace(examples, weights=weights)
    for some in np.array_split(labels, -(-len(labels) * len(examples) // _MAX_PAIRS)):
        negatives = np.tile(some.astype(np.int32), (len(examples), 1))
        task = label_task(examples, negatives, len(model.labels), old.unit_length)
        lists = _run(task, some, several, None, _PASSES, n_jobs)
        old = old.replace_labels(some, *lists)
    model.label_weights = old


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


def has_several(n_rows: int, n_labels: int) -> bool:
    """Return whether rows have several labels, given how many labels they have together."""
    return n_labels > _SEVERAL * n_rows


def candidates_of(model: FittedModel, X: Any, n: int, n_jobs: int | None) -> npt.NDArray[np.int32]:
    """Return the trellises' n best labels of every row."""
    candidates = np.empty((X.shape[0], min(n, len(model.labels))), np.int32)
    search = model.searcher(candidates.shape[1], n_jobs)
    for first in range(0, X.shape[0], ROWS_PER_CALL):
        check_time()
        some = slice(first, first + ROWS_PER_CALL)
        candidates[some] = search(X[some], n_jobs)[0]
    return candidates


def label_task(
    examples: Examples, candidates: npt.NDArray[np.int32], n_labels: int, unit_length: bool
) -> _engine.LabelTask:
    """Pass rows, labels and candidates to the engine; a candidate of −1 is none."""
    return _engine.LabelTask(
        engine_features(examples.X, True, unit_length),
        examples.indptr,
        examples.labels,
        candidates,
        examples.weights,
        n_labels=n_labels,
    )


def _task(
    model: FittedModel, examples: Examples, n_negatives: int, n_jobs: int | None
) -> _engine.LabelTask:
    candidates = candidates_of(model, examples.X, n_negatives, n_jobs)
    return label_task(examples, candidates, len(model.labels), model.weights.unit_length)


def _run(
    task: _engine.LabelTask,
    labels: Ints,
    several: bool,
    initial: csr_array | None,
    passes: int,
    n_jobs: int | None,
    threshold: float = _THRESHOLD,
) -> Lists:
    """Return how many weights some labels have, the features of these, and their values."""
    start = None
    if initial is not None and initial.nnz:
        start = (
            initial.indptr.astype(np.int64),
            initial.indices.astype(np.int32),
            initial.data.astype(np.float32),
        )
    counts, features, values = task.run(
        labels,
        cost=_COST[several],
        passes=passes,
        tolerance=_TOLERANCE,
        threshold=threshold,
        initial=start,
        check=check_time,  # there, Ctrl-C is handled too
        seconds=_SECONDS,
        n_jobs=threads(n_jobs),
    )
    return counts, features, values


def _matrix(lists: Lists, n_labels: int, n_features: int) -> csr_array:
    """Return the weights of consecutive labels, shape (n_labels, n_features + 1)."""
    counts, features, values = lists
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return csr_array((values, features, indptr), shape=(n_labels, n_features + 1))
