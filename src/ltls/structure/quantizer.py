"""Residual k-means: vectors to codes of a few digits, each code used at most once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Doubles, Ints

_MAX_SHARE = 2  # largest share of a first digit, relative to an even share


class ResidualQuantizer:
    """Turns vectors into codes: each digit is the centroid nearest to the residual of the vector.

    Digit i is a state of slice i of a trellis, so similar vectors share edges. All codes are
    distinct: a prefix of digits goes to at most as many vectors as there are codes with it, the
    nearest ones, and the others get their next nearest centroid. No value of the first digit goes
    to more than twice its share of the vectors.

    Parameters
    ----------
    centroids : sequence of arrays of shape (width, n_dimensions)
        One array per digit, the first digit first.
    """

    def __init__(self, centroids: Any) -> None:
        self.centroids: Doubles = np.asarray(centroids, np.float64)

    @property
    def width(self) -> int:
        """The number of values of a digit."""
        return int(self.centroids.shape[1])

    @property
    def n_dimensions(self) -> int:
        """The number of dimensions of a vector."""
        return int(self.centroids.shape[2])

    @property
    def n_digits(self) -> int:
        """The number of digits of a code."""
        return int(self.centroids.shape[0])

    @classmethod
    def fit(cls, vectors: Doubles, width: int, n_digits: int, rng: Any) -> ResidualQuantizer:
        """Learn the centroids, one digit after the other, from the residuals of balanced codes."""
        from sklearn.cluster import MiniBatchKMeans  # slow to import, and only needed here

        quantizer = cls(np.empty((0, width, vectors.shape[1])))
        residual = vectors
        group = np.zeros(len(vectors), np.int64)
        for digit in range(n_digits):
            seed = rng.randint(2**31 - 1)
            # With fewer distinct vectors than centroids, some centroids are the same.
            n_centroids = min(width, len(np.unique(residual, axis=0)))
            means = MiniBatchKMeans(n_centroids, random_state=seed, n_init=1, batch_size=4096)
            centroids = means.fit(residual).cluster_centers_[np.arange(width) % n_centroids]
            quantizer.centroids = np.concatenate([quantizer.centroids, centroids[None]])
            room = quantizer._room(digit, n_digits, len(vectors))
            nothing = np.empty(0, np.int64)
            chosen = _balanced(_distances(residual, centroids), group, nothing, room)
            residual = residual - centroids[chosen]
            group = group * width + chosen
        return quantizer

    def codes(self, vectors: Doubles, taken: Ints) -> Ints:
        """Return distinct codes Σ digit · width**i that are not taken, close to the vectors."""
        vectors = np.asarray(vectors, np.float64)
        if len(vectors) + len(taken) > self.width**self.n_digits:
            raise ValueError(
                f"vectors must be at most {self.width**self.n_digits - len(taken)}, the number of "
                f"free paths, got {len(vectors)}; a codebook with a larger spare has more"
            )
        result, group = np.zeros(len(vectors), np.int64), np.zeros(len(vectors), np.int64)
        begun = np.zeros(len(taken), np.int64)  # the digits so far of codes that are taken
        for digit, centroids in enumerate(self.centroids):
            begun = begun * self.width + taken // self.width**digit % self.width
            room = self._room(digit, self.n_digits, len(vectors) + len(taken))
            chosen = _balanced(_distances(vectors, centroids), group, begun, room)
            vectors = vectors - centroids[chosen]
            group = group * self.width + chosen
            result += chosen * self.width**digit
        return result

    def _room(self, digit: int, n_digits: int, n_vectors: int) -> int:
        """Return how many vectors with the same previous digits may share a value of this digit."""
        n_codes: int = self.width ** (n_digits - 1 - digit)
        return n_codes if digit else min(n_codes, -(-_MAX_SHARE * n_vectors // self.width))


def _distances(vectors: Doubles, centroids: Doubles) -> Doubles:
    """Return squared distances minus the squared vector lengths, (n_vectors, n_centroids)."""
    distances: Doubles = (centroids**2).sum(1) - 2 * vectors @ centroids.T
    return distances


def _balanced(cost: Doubles, group: Ints, taken: Ints, capacity: int) -> Ints:
    """Choose a column for every row; each is chosen at most `capacity` times within a group.

    Deferred acceptance: a row proposes to the cheapest column that has not rejected it; a column
    keeps its cheapest rows. `taken` holds ``group * n_columns + column`` of earlier choices.
    """
    width = cost.shape[1]
    keys, counts = np.unique(taken, return_counts=True)

    def room(key: Ints) -> Ints:
        at = np.searchsorted(keys, key).clip(max=max(len(keys) - 1, 0))
        known = keys[at] == key if len(keys) else np.zeros(key.shape, bool)
        return capacity - np.where(known, counts[at] if len(keys) else 0, 0)

    cost = np.where(room(group[:, None] * width + np.arange(width)) > 0, cost, np.inf)
    result = np.zeros(len(cost), np.int64)
    rows = np.arange(len(cost))  # of groups that are not settled
    while len(rows):
        chosen = cost[rows].argmin(1)
        result[rows] = chosen
        key = group[rows] * width + chosen
        order = np.lexsort((cost[rows, chosen], key))
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        sizes = np.diff(np.append(starts, len(rows)))
        rank = np.arange(len(rows)) - np.repeat(starts, sizes)
        rejected = order[rank >= np.repeat(room(key[order][starts]), sizes)]
        cost[rows[rejected], chosen[rejected]] = np.inf
        rows = rows[np.isin(group[rows], group[rows[rejected]])]
    return result
