"""Axes along which labels are similar: the input of shared-axis splits."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.extmath import randomized_svd

from ..core.arrays import Doubles


def label_axes(vectors: Any, n_axes: int, rng: Any) -> Doubles:
    """Return the coordinates of every label on the leading axes of the vectors.

    Parameters
    ----------
    vectors : array or sparse matrix of shape (n_labels, n_dimensions)
    n_axes : int
        Axes beyond the rank of `vectors` repeat the first ones.
    rng : RandomState

    Returns
    -------
    axes : array of shape (n_labels, n_axes)
        Left singular vectors, so that every axis has the same variance and a rotation mixes all
        of them.
    """
    rank = min(n_axes, *vectors.shape)
    axes: Doubles = randomized_svd(vectors, rank, random_state=rng)[0]
    return axes[:, np.arange(n_axes) % rank]


def random_rotation(n: int, rng: Any) -> Doubles:
    """Return a random orthogonal matrix of shape (n, n)."""
    rotation: Doubles = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return rotation
