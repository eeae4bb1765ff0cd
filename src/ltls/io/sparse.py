"""Formats of sparse rows: what a format provides, and how its rows become a `Dataset`."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .dataset import Dataset
from .errors import PathLike, RowError
from .formats import Format

Base: TypeAlias = bool | Literal["auto"]
OnBadRow: TypeAlias = Callable[[RowError], None]


class SparseRows(Protocol):
    """Some parsed rows: row i ends at ``feature_ends[i]`` and at ``label_ends[i]``.

    Features are numbered as in the file; those of a row are sorted and distinct, as are labels.
    """

    @property
    def features(self) -> NDArray[np.int32]:
        """The feature indices of all rows."""

    @property
    def values(self) -> NDArray[np.float32]:
        """The values of these features."""

    @property
    def feature_ends(self) -> NDArray[np.int64]:
        """Where the features of each row end."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """The labels of all rows."""

    @property
    def label_ends(self) -> NDArray[np.int64]:
        """Where the labels of each row end."""


@dataclass(frozen=True)
class SparseOptions:
    """How to read sparse rows; see `ltls.readers.read`.

    `on_bad_row` is called with every row that cannot be read, which is then skipped; without it
    such a row is an error.
    """

    n_features: int | None = None
    zero_based: Base = "auto"
    n_jobs: int = 1
    on_bad_row: OnBadRow | None = None


class SparseReader(ABC):
    """One pass over a file of sparse rows.

    Attributes
    ----------
    n_features : int or None
        As given or as the header says; else known after `finish`.
    zero_based : bool or "auto"
        Likewise.
    n_labels : int or None
        The number of labels, if the format declares it: then label j is column j of `Y`.
    n_rows : int
        The number of rows read so far.
    """

    path: PathLike
    n_features: int | None
    zero_based: Base
    n_labels: int | None = None
    n_rows: int = 0

    @property
    def first(self) -> int:
        """The index of the first feature; 0 while it is unknown."""
        return 0 if self.zero_based else 1

    @abstractmethod
    def blocks(self, size: int) -> Iterator[Sequence[SparseRows]]:
        """Yield the rows, from about `size` bytes of the file at a time."""

    @abstractmethod
    def finish(self) -> None:
        """Do the checks that need all rows, and set the attributes found in the rows."""

    def dataset(self, blocks: Sequence[SparseRows]) -> Dataset:
        """Join parsed rows; call it after `finish`, or if all is known before."""
        indices = _joined([block.features for block in blocks])
        indices -= self.first
        indptr = _row_bounds([block.feature_ends for block in blocks])
        shape = (len(indptr) - 1, self.n_features)
        values = _joined([block.values for block in blocks])
        X = sp.csr_matrix((values, indices, indptr), shape=shape)
        # A view of NumPy's own int64: the engine's may be a distinct type of the same size.
        columns = _joined([block.labels for block in blocks]).view(np.int64)
        classes, n_labels = None, self.n_labels
        if n_labels is None:
            classes, columns = np.unique(columns, return_inverse=True)
            n_labels = classes.size
        indptr = _row_bounds([block.label_ends for block in blocks])
        # float32 and not a smaller type: products of indicators are sums, and must not overflow.
        ones = np.ones(columns.size, dtype=np.float32)
        Y = sp.csr_matrix((ones, columns, indptr), shape=(shape[0], n_labels))
        X.has_canonical_format = Y.has_canonical_format = True
        return Dataset(X, Y, classes, self.first == 0)


class SparseFormat(Format, ABC):
    """A format of sparse features with integer labels."""

    kind = "sparse"

    @abstractmethod
    def open(
        self, stream: io.BufferedReader, path: PathLike, options: SparseOptions
    ) -> SparseReader:
        """Open the file for reading; `path` is for messages."""

    @abstractmethod
    def write(self, stream: IO[bytes], X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Write features and an indicator matrix of labels; both are canonical."""


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _row_bounds(ends: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the indptr of a matrix from the row ends of its blocks."""
    totals = np.cumsum([0, *(block[-1] if len(block) else 0 for block in ends)])
    return np.concatenate(
        [[0], *(block + total for block, total in zip(ends, totals, strict=False))]
    )
