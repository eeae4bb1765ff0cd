"""Codebook policies: which path each label gets before learning begins."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .codebook import RandomCodebook, TableCodebook
from .trellis import Trellis

Codebook: TypeAlias = RandomCodebook | TableCodebook
Ints: TypeAlias = npt.NDArray[np.int64]
POLICIES = ("ranking", "random", "similarity", "frequency")


def assign(
    policy: str,
    trellis: Trellis,
    n_trellises: int,
    X: Any,
    indptr: Ints,
    labels: Ints,
    counts: Ints,
    rng: Any,
) -> list[Codebook]:
    """Make a policy's codebooks for labels that occur `counts` times, from rows that have them.

    `random` is a keyed permutation without memory. `frequency` gives the most frequent label the
    smallest path: short paths are used most. `similarity` lets similar labels share edges.
    `ranking`, the paper's, leaves all paths free: labels take theirs while learning.

    The codebooks of several trellises differ: by their seed, by the order of labels that leave a
    slice together, or by a rotation of the axes along which labels are similar.
    """
    if policy == "random":
        return [
            RandomCodebook(trellis.n_classes, int(rng.randint(2**31))) for _ in range(n_trellises)
        ]
    if policy == "ranking":
        return [TableCodebook(trellis.n_classes) for _ in range(n_trellises)]
    if policy == "frequency":
        return [_by_frequency(trellis, counts, rng if r else None) for r in range(n_trellises)]
    axes = label_axes(X, indptr, labels, len(counts), trellis.n_slices + 1, rng)
    rotations = [np.eye(axes.shape[1])] + [
        _rotation(axes.shape[1], rng) for _ in range(n_trellises - 1)
    ]
    return [
        TableCodebook(trellis.n_classes, split_along_axes(trellis, axes @ rotation))
        for rotation in rotations
    ]


def _by_frequency(trellis: Trellis, counts: Ints, rng: Any) -> TableCodebook:
    """Give the most frequent labels the smallest paths; with `rng`, mixed within every exit."""
    order = np.argsort(-counts, kind="stable")
    if rng is not None:
        ends = np.cumsum([d * trellis.width**i for i, d in enumerate(trellis.digits)])
        for part in np.split(order, np.unique(np.minimum(ends, len(order)))):
            part[:] = rng.permutation(part)
    paths = np.empty(len(counts), np.int64)
    paths[order] = np.arange(len(counts))
    return TableCodebook(trellis.n_classes, paths)


def _rotation(n: int, rng: Any) -> npt.NDArray[np.float64]:
    rotation: npt.NDArray[np.float64] = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return rotation


def label_axes(
    X: Any, indptr: Ints, labels: Ints, n_labels: int, n_axes: int, rng: Any
) -> npt.NDArray[np.float64]:
    """Return coordinates of every label, (n_labels, n_axes): an SVD of its examples' mean."""
    from scipy.sparse import csr_array
    from sklearn.preprocessing import normalize
    from sklearn.utils.extmath import randomized_svd

    indicator = csr_array(
        (np.ones(len(labels), X.dtype), labels, indptr), shape=(len(indptr) - 1, n_labels)
    )
    means = normalize(indicator.T @ X)
    rank = min(n_axes, *means.shape)
    axes: npt.NDArray[np.float64] = randomized_svd(means, rank, random_state=rng)[0]
    return axes[:, np.arange(n_axes) % rank]  # few features: axes are used again


def split_along_axes(trellis: Trellis, axes: npt.NDArray[np.float64]) -> Ints:
    """Return a path for every label such that labels close on the axes share prefixes.

    The labels are split among the states of slice 0 by quantiles of axis 0, each part among the
    states of slice 1 by axis 1, and so on: all parts of a slice use the same axis, so that an edge
    means the same wherever it is used. Every state takes as many labels as paths go through it.
    """
    paths = np.empty(len(axes), np.int64)
    left = np.arange(len(axes))  # labels whose path goes on
    part = np.zeros(len(axes), np.int64)  # which labels came the same way
    states_so_far = np.zeros(len(axes), np.int64)  # Σ state · width**slice
    first_path = 0
    for slice_, exits in enumerate(trellis.digits):
        sizes = _paths_through_states(trellis, slice_)
        order = np.lexsort((axes[left, slice_], part))
        left, part, states_so_far = left[order], part[order], states_so_far[order]
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        counts = np.diff(np.append(starts, len(part)))
        rank = np.arange(len(part)) - np.repeat(starts, counts)
        # Where there are fewer labels than paths, the labels spread over all of them.
        spread = np.repeat(sizes.sum() / counts, counts)
        place = np.minimum((rank * spread).astype(np.int64), sizes.sum() - 1)
        state = np.searchsorted(np.cumsum(sizes), place, side="right")
        within = place - (np.cumsum(sizes) - sizes)[state]
        states_so_far += state * trellis.width**slice_
        leaves = (within == 0) & (state < exits)
        paths[left[leaves]] = first_path + states_so_far[leaves]
        first_path += exits * trellis.width**slice_
        goes_on = ~leaves
        left, states_so_far = left[goes_on], states_so_far[goes_on]
        part = np.unique(part[goes_on] * trellis.width + state[goes_on], return_inverse=True)[1]
    return paths


def _paths_through_states(trellis: Trellis, slice_: int) -> Ints:
    """Count the ways from each state of a slice to the sink."""
    onward = 0
    for i in range(trellis.n_slices, slice_ - 1, -1):
        exits = trellis.digits[i]
        states = trellis.width if i < trellis.n_slices else exits
        sizes = onward + (np.arange(states) < exits).astype(np.int64)
        onward = int(sizes.sum())
    return sizes
