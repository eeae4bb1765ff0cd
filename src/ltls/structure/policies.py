"""Codebooks before learning begins: by a policy, or given."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .codebook import RandomCodebook, TableCodebook
from .splits import split_along_axes
from .trellis import Trellis

Codebook: TypeAlias = RandomCodebook | TableCodebook
Ints: TypeAlias = npt.NDArray[np.int64]
POLICIES = ("ranking", "random", "similarity", "frequency", "learned")


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
    `ranking`, the paper's, leaves all paths free: labels take theirs while learning. `learned`
    begins as `similarity`; see `relocation`.

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


def given_codebooks(
    given: Codebook | list[Codebook], n_trellises: int, n_labels: int
) -> list[Codebook]:
    """Return copies of the codebooks that an estimator was given, checked."""
    codebooks = [deepcopy(book) for book in (given if isinstance(given, list) else [given])]
    kinds = {type(book) for book in codebooks}
    if len(kinds) != 1 or not kinds <= {TableCodebook, RandomCodebook}:
        raise ValueError(f"assignment must be a policy or codebooks of one kind, got {given}")
    sizes = {book.n_paths for book in codebooks}
    if len(codebooks) != n_trellises or len(sizes) != 1:
        raise ValueError(
            f"assignment must have one codebook for each of {n_trellises} trellises, "
            f"all of the same size, got {len(codebooks)} with {sorted(sizes)} paths"
        )
    if min(sizes) < n_labels:
        raise ValueError(f"assignment has {min(sizes)} paths, y has {n_labels} labels")
    return codebooks


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
