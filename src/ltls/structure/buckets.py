"""Buckets: clusters of similar labels whose labels share a path."""

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
    """Assign every label to a bucket of similar labels, once per seed.

    Balanced spherical 2-means splits the labels in two, then each half again, until there are
    `n_buckets` parts. The sizes of buckets differ by at most one label. Different random starts
    give different buckets.

    Parameters
    ----------
    vectors : array or sparse matrix of shape (n_labels, n_dimensions)
        Vectors of unit length; similar labels have similar vectors.
    n_buckets : int
        From 1 to n_labels.
    seeds : sequence of int
        Seeds of the random starts.
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
