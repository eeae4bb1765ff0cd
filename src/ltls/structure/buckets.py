"""Buckets: groups of similar labels that share a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..core import _engine
from ..core.arrays import Ints, threads


def similar_buckets(
    vectors: Any, n_buckets: int, seeds: Sequence[int], n_jobs: int | None = None
) -> Ints:
    """Return a bucket for every label such that similar labels share one, for every seed.

    Balanced spherical 2-means splits the labels, then each half, and so on. All buckets are of the
    same size, up to one or two labels. Other random starts give other buckets.

    Parameters
    ----------
    vectors : array or sparse matrix of shape (n_labels, n_dimensions)
        Vectors of length 1; similar labels have similar ones.
    n_buckets : int
        From 1 to n_labels.
    seeds : sequence of int
        Of the random starts.
    n_jobs : int or None
        Number of threads; the result does not depend on it.

    Returns
    -------
    buckets : int64 array of shape (n_seeds, n_labels)

    Examples
    --------
    >>> import numpy as np
    >>> from ltls.structure.buckets import similar_buckets
    >>> vectors = np.array([[1, 0], [0, 1], [0.8, 0.6], [0.6, 0.8]])
    >>> [buckets] = similar_buckets(vectors, 2, [0])
    >>> bool(buckets[0] == buckets[2]), bool(buckets[1] == buckets[3])
    (True, True)
    """
    sparse = csr_array(vectors)
    buckets = np.empty((len(seeds), sparse.shape[0]), np.int64)
    _engine.similar_buckets(
        sparse.indptr.astype(np.int64),
        sparse.indices.astype(np.int64),
        sparse.data.astype(np.float32),
        sparse.shape[1],
        np.array(seeds, np.uint64),
        buckets,
        n_buckets=n_buckets,
        n_jobs=threads(n_jobs),
    )
    return buckets
