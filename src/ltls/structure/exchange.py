"""Exchange of paths between labels, to increase the total score of a codebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import AnyArray, Doubles, Ints

if TYPE_CHECKING:
    from .trellis import Trellis


_CANDIDATES = 16  # best paths that a label may move to
_ROUNDS = 50  # most of the gain comes from the first ten
_PAIRS_PER_BLOCK = 1 << 16  # labels and paths that are scored at a time


def exchange_paths(
    trellis: Trellis, sums: AnyArray, paths: Ints, n_jobs: int | None = None
) -> Ints:
    """Permute the paths of labels to increase their total score.

    Greedy local search: a label swaps paths with the label on one of its own best paths, or takes
    that path if it is free, whenever the sum of both scores increases. Swaps are applied in order
    of gain until none is left. With one label per row, the softmax and logistic losses decrease by
    the same amount: their other terms do not depend on the codebook.

    Parameters
    ----------
    trellis : Trellis
    sums : array of shape (n_labels, n_edges)
        Edge scores of every label, summed over its training rows.
    paths : array of shape (n_labels,)
        The present path of every label.
    n_jobs : int, optional
        Number of threads; the result does not depend on it.

    Returns
    -------
    paths : array of shape (n_labels,)
    """
    candidates, _ = trellis.topk(sums, min(_CANDIDATES, trellis.n_classes), n_jobs)
    label, column = np.nonzero(candidates >= 0)
    target = candidates[label, column]
    reached = _scores(trellis, sums, label, target)
    paths = paths.copy()
    label_of = np.full(trellis.n_classes, -1)
    label_of[paths] = np.arange(len(paths))
    own = _scores(trellis, sums, np.arange(len(paths)), paths)
    gain = np.zeros(len(target))
    changed = np.ones(trellis.n_classes, bool)  # paths that got another label in the last round
    for _ in range(_ROUNDS):
        # Only labels whose own score would increase take part.
        active = np.flatnonzero(changed[paths[label]] | changed[target])
        gain[active] = reached[active] - own[label[active]]
        active = active[gain[active] > 0]
        other, back = label_of[target[active]], paths[label[active]]
        taken = other >= 0
        active, other, back = active[taken], other[taken], back[taken]
        gain[active] += _scores(trellis, sums, other, back) - own[other]
        worth = np.flatnonzero(gain > 1e-9 * np.abs(reached))  # more than rounding
        best_first = worth[np.argsort(-gain[worth], kind="stable")]
        here, there = _disjoint(paths[label[best_first]], target[best_first], trellis.n_classes)
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
    """Select pairs of paths greedily in order, skipping pairs that reuse a selected path."""
    chosen = []
    free = np.ones(n_paths, bool)
    first = np.empty(n_paths, np.int64)
    while len(here):
        # A pair that is the first one at both of its paths is always selected.
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


def _scores(trellis: Trellis, sums: AnyArray, labels: Ints, paths: Ints) -> Doubles:
    """Score pairs of a label and a path, in double precision."""
    scores = np.empty(len(labels))
    for first in range(0, len(labels), _PAIRS_PER_BLOCK):
        part = slice(first, first + _PAIRS_PER_BLOCK)
        edges = trellis.path_edges_batch(paths[part])
        values = sums[labels[part, None], edges]
        scores[part] = np.where(edges >= 0, values, 0).sum(axis=1, dtype=np.float64)
    return scores
