"""Learned codebooks: between epochs, labels move to paths that their own examples score higher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .codebook import TableCodebook
from .trellis import Trellis

if TYPE_CHECKING:
    from ..linear.weights import LinearModel
    from ..model.fitted import Model
    from ..training.trainer import Examples

Ints = npt.NDArray[np.int64]

_WISHES = 16  # best paths of a label that it may move to
_ROUNDS = 50  # of exchanges; most of the gain is in the first ten
_PAIRS = 1 << 16  # labels and paths that are scored at a time


def move_labels(
    model: Model, examples: Examples, rows: Ints, linear: LinearModel, n_jobs: int | None
) -> None:
    """Replace the model's codebooks by better ones for the weights as they are.

    For one label a row, what is raised is the sum of the rows' scores on their labels' paths. The
    other terms of the softmax and logistic losses do not depend on the codebook, so the loss falls
    by as much.
    """
    sums = edge_score_sums(model, examples, rows, linear, n_jobs)
    for number, (of_trellis, book) in enumerate(zip(sums, model.codebooks, strict=True)):
        paths = book.path_of(np.arange(len(model.labels)))
        paths = exchange(model.trellis, of_trellis, paths, n_jobs)
        model.codebooks[number] = TableCodebook(book.n_paths, paths)


def edge_score_sums(
    model: Model, examples: Examples, rows: Ints, linear: LinearModel, n_jobs: int | None
) -> npt.NDArray[np.float32]:
    """Sum every label's edge scores over its examples, shape (n_trellises, n_labels, n_edges).

    A row counts by its weight, shared out among its labels as the loss shares it.
    """
    n_edges = model.trellis.n_edges
    sums = np.zeros((len(model.labels), len(model.codebooks) * n_edges), np.float32)
    per_row = np.diff(examples.indptr)
    weights = np.zeros(len(examples), np.float32)
    weights[rows] = 1 if examples.weights is None else examples.weights[rows]
    if model.loss == "softmax":
        weights /= np.maximum(per_row, 1)
    for part, h in model.edge_scores(examples.X, n_jobs, linear):
        indptr = examples.indptr[part.start : part.stop + 1]
        labels, column = np.unique(examples.labels[indptr[0] : indptr[-1]], return_inverse=True)
        values = np.repeat(weights[part], per_row[part])
        shape = (len(h), len(labels))
        indicator = csr_array((values, column.reshape(-1), indptr - indptr[0]), shape=shape)
        sums[labels] += indicator.T @ linear.without_padding(h)
    return np.ascontiguousarray(
        sums.reshape(len(sums), len(model.codebooks), n_edges).transpose(1, 0, 2)
    )


def exchange(
    trellis: Trellis, sums: npt.NDArray[Any], paths: Ints, n_jobs: int | None = None
) -> Ints:
    """Return paths whose total score is no lower, by exchanges between labels.

    A label that one of its best paths scores higher than its own changes places with the label
    there, or takes the path if it is free, where the sum of both scores rises by it. Exchanges are
    made in order of that gain until none is left.

    Parameters
    ----------
    trellis : Trellis
    sums : array of shape (n_labels, n_edges)
        Edge scores of every label, summed over its examples.
    paths : array of shape (n_labels,)
        The path of every label.
    n_jobs : int, optional
        Threads; the result is the same for any number.

    Returns
    -------
    paths : array of shape (n_labels,)
        Each of them once.
    """
    wishes, _ = trellis.topk(sums, min(_WISHES, trellis.n_classes), n_jobs)
    label, column = np.nonzero(wishes >= 0)
    wish = wishes[label, column]
    reached = _scores(trellis, sums, label, wish)
    paths = paths.copy()
    label_of = np.full(trellis.n_classes, -1)
    label_of[paths] = np.arange(len(paths))
    own = _scores(trellis, sums, np.arange(len(paths)), paths)
    gain = np.zeros(len(wish))
    changed = np.ones(trellis.n_classes, bool)  # paths whose label is another than a round ago
    for _ in range(_ROUNDS):
        # A label is only asked where it would rise itself.
        asked = np.flatnonzero(changed[paths[label]] | changed[wish])
        gain[asked] = reached[asked] - own[label[asked]]
        asked = asked[gain[asked] > 0]
        other, back = label_of[wish[asked]], paths[label[asked]]
        taken = other >= 0
        asked, other, back = asked[taken], other[taken], back[taken]
        gain[asked] += _scores(trellis, sums, other, back) - own[other]
        worth = np.flatnonzero(gain > 1e-9 * np.abs(reached))  # more than rounding
        best_first = worth[np.argsort(-gain[worth], kind="stable")]
        here, there = _disjoint(paths[label[best_first]], wish[best_first], trellis.n_classes)
        if not len(here):
            break
        label_of[here], label_of[there] = label_of[there], label_of[here]
        moved = np.concatenate([here, there])
        changed[:] = False
        changed[moved] = True
        moved = moved[label_of[moved] >= 0]
        paths[label_of[moved]] = moved
        own[label_of[moved]] = _scores(trellis, sums, label_of[moved], moved)
    return paths


def _disjoint(here: Ints, there: Ints, n_paths: int) -> tuple[Ints, Ints]:
    """Go through pairs of paths in order and choose those whose paths no chosen pair has."""
    chosen = []
    free = np.ones(n_paths, bool)
    first = np.empty(n_paths, np.int64)
    while len(here):
        # A pair that comes first at both its paths is chosen, whatever becomes of the others.
        rank = np.arange(len(here))
        for ends in (here, there):
            first[ends] = len(here)
        for ends in (here, there):
            np.minimum.at(first, ends, rank)
        best = (first[here] == rank) & (first[there] == rank)
        chosen.append(np.stack([here[best], there[best]]))
        free[chosen[-1]] = False
        left = free[here] & free[there]
        here, there = here[left], there[left]
    both = np.concatenate(chosen, axis=1) if chosen else np.empty((2, 0), np.int64)
    return both[0], both[1]


def _scores(
    trellis: Trellis, sums: npt.NDArray[Any], labels: Ints, paths: Ints
) -> npt.NDArray[np.float64]:
    """Score paths by the sums of labels, pair by pair, in double precision."""
    scores = np.empty(len(labels))
    for first in range(0, len(labels), _PAIRS):
        part = slice(first, first + _PAIRS)
        edges = trellis.path_edges_batch(paths[part])
        values = sums[labels[part, None], edges]
        scores[part] = np.where(edges >= 0, values, 0).sum(axis=1, dtype=np.float64)
    return scores
