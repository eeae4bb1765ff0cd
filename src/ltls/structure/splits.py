"""Shared-axis splits: similar labels get paths that share edges.

Every slice splits the labels along one axis, a singular vector of the vectors of the labels.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..core.arrays import Doubles, Ints


class Shape(Protocol):
    """The shape of a trellis, with the attributes that codebook policies use; needs no engine."""

    @property
    def n_classes(self) -> int: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def n_slices(self) -> int: ...  # noqa: D102
    @property
    def digits(self) -> tuple[int, ...]: ...  # noqa: D102


def label_axes(vectors: Any, n_axes: int, rng: Any) -> Doubles:
    """Return the coordinates of every label on the leading axes of the vectors.

    Parameters
    ----------
    vectors : array or sparse matrix of shape (n_labels, n_dimensions)
    n_axes : int
        Axes are repeated if there are fewer labels or dimensions.
    rng : RandomState

    Returns
    -------
    axes : array of shape (n_labels, n_axes)
        Left singular vectors. They all have the same length, so that after a rotation every axis
        still depends on all of them.
    """
    from sklearn.utils.extmath import randomized_svd  # slow to import, and only needed here

    rank = min(n_axes, *vectors.shape)
    axes: Doubles = randomized_svd(vectors, rank, random_state=rng)[0]
    return axes[:, np.arange(n_axes) % rank]


def random_rotation(n: int, rng: Any) -> Doubles:
    """Return a random orthogonal matrix of shape (n, n)."""
    rotation: Doubles = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return rotation


def split_along_axes(trellis: Shape, axes: Doubles) -> Ints:
    """Return a path for every label such that similar labels have common prefixes.

    The labels are split among the states of slice 0 by quantiles of axis 0, each part among the
    states of slice 1 by axis 1, and so on. All parts of a slice use the same axis, so that an edge
    has the same meaning in all paths. A state gets labels in proportion to its number of paths.
    """
    paths = np.empty(len(axes), np.int64)
    left = np.arange(len(axes))  # labels whose path continues
    part = np.zeros(len(axes), np.int64)  # groups of labels with the same prefix
    states_so_far = np.zeros(len(axes), np.int64)  # Σ state · width**slice
    first_path = 0
    for slice_, exits in enumerate(trellis.digits):
        sizes = _paths_through_states(trellis, slice_)
        order = np.lexsort((axes[left, slice_], part))
        left, part, states_so_far = left[order], part[order], states_so_far[order]
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        counts = np.diff(np.append(starts, len(part)))
        rank = np.arange(len(part)) - np.repeat(starts, counts)
        # If there are fewer labels than paths, they are spread evenly.
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


def _paths_through_states(trellis: Shape, slice_: int) -> Ints:
    """Count the paths from each state of a slice to the sink."""
    onward = 0
    for i in range(trellis.n_slices, slice_ - 1, -1):
        exits = trellis.digits[i]
        states = trellis.width if i < trellis.n_slices else exits
        sizes = onward + (np.arange(states) < exits).astype(np.int64)
        onward = int(sizes.sum())
    return sizes
