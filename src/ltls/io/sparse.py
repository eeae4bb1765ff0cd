"""Formats of sparse rows: what a format provides, and how its rows become a `Dataset`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from ..core.arrays import AnyArray, Ints
from .dataset import Dataset
from .errors import OnBadRow as OnBadRow
from .files import OpenFile
from .formats import Format

Base: TypeAlias = bool | Literal["auto"]


@dataclass(frozen=True)
class SparseOptions:
    """How to read sparse rows; see `ltls.readers.read`."""

    format: str | None = None
    n_features: int | None = None
    zero_based: Base = "auto"
    n_jobs: int = 1


class SparseReader(ABC):
    """One pass over a file of sparse rows.

    Attributes
    ----------
    file : OpenFile
        The file; ``file.n_good`` counts the rows that were read.
    n_features : int or None
        As given or as the header says; else known after `finish`.
    zero_based : bool or "auto"
        Likewise.
    n_labels : int or None
        The number of labels, if the format declares it: then label j is column j of `Y`.
    """

    file: OpenFile
    n_features: int | None
    zero_based: Base
    n_labels: int | None = None

    @property
    def first(self) -> int:
        """The index of the first feature; 0 while it is unknown."""
        return 0 if self.zero_based else 1

    @abstractmethod
    def blocks(self, size: int) -> Iterator[Sequence[Any]]:
        """Yield parsed rows, from about `size` bytes of the file at a time.

        A block has the attributes ``features``, ``values`` and ``labels`` of all its rows, of which
        row i ends at ``feature_ends[i]`` and ``label_ends[i]``. Features are numbered as in the
        file. Those of a row are sorted and distinct, as are its labels.
        """

    @abstractmethod
    def finish(self) -> None:
        """Do the checks that need all rows, and set the attributes found in the rows."""


class SparseFormat(Format, ABC):
    """A format of sparse features with integer labels."""

    kind = "sparse"

    @abstractmethod
    def open(self, file: OpenFile, options: SparseOptions) -> SparseReader:
        """Begin to read a file."""

    @abstractmethod
    def write(self, stream: IO[bytes], X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Write features and an indicator matrix of labels; both are canonical."""


def as_dataset(
    blocks: Sequence[Any], n_features: int, zero_based: bool, n_labels: int | None
) -> Dataset:
    """Join parsed rows; see `SparseReader`."""
    indices = _joined([block.features for block in blocks])
    indices -= 0 if zero_based else 1
    indptr = _row_bounds([block.feature_ends for block in blocks])
    values = _joined([block.values for block in blocks])
    X = sp.csr_matrix((values, indices, indptr), shape=(len(indptr) - 1, n_features))
    # A view of NumPy's own int64: the engine's may be a distinct type of the same size.
    columns = _joined([block.labels for block in blocks]).view(np.int64)
    classes = None
    if n_labels is None:
        classes, columns = np.unique(columns, return_inverse=True)
        n_labels = len(classes)
    indptr = _row_bounds([block.label_ends for block in blocks])
    # float32 and not a smaller type: products of indicators are sums, and must not overflow.
    ones = np.ones(len(columns), np.float32)
    Y = sp.csr_matrix((ones, columns, indptr), shape=(X.shape[0], n_labels))
    X.has_canonical_format = Y.has_canonical_format = True
    return Dataset(X, Y, classes, zero_based)


def _joined(arrays: list[AnyArray]) -> AnyArray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _row_bounds(ends: list[Ints]) -> Ints:
    """Return the indptr of a matrix from the row ends of its blocks."""
    totals = np.cumsum([0, *(block[-1] if len(block) else 0 for block in ends)])
    return np.concatenate([[0], *map(np.add, ends, totals)])
