"""A sparse vector for every label, stored by feature, as int8 with one scale per label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, vstack

from ..core import _engine
from ..core.arrays import (
    MOST_SCALE,
    AnyArray,
    Floats,
    Ints,
    Tensors,
    as_int8,
    pointers,
    smallest,
    threads,
)
from ..core.caching import cached_property
from ..core.declarations import Array, Described
from ..features.rows import Rows
from .base import Sizes


@dataclass(frozen=True, eq=False)
class SparseLabels:
    """A sparse vector for every label.

    Parameters
    ----------
    ptr : int64 array of shape (n_columns + 1,)
        Feature i has entries ptr[i] … ptr[i + 1] − 1 of `labels` and `values`.
    labels : uint16 or uint32 array
        The labels that have a value for a feature, increasing.
    values : int8 array
    scales : float32 array of shape (n_labels,)
        What the values of a label are multiplied by.
    intercept : bool
        Whether the last feature is the intercept.
    """

    ptr: Ints
    labels: AnyArray
    values: AnyArray
    scales: Floats
    intercept: bool

    @classmethod
    def of_matrix(cls, W: csr_array, intercept: bool) -> SparseLabels:
        """Round a matrix of shape (n_labels, n_columns)."""
        return cls.of_rounded([round_rows(W)], intercept)

    @classmethod
    def of_rounded(
        cls, blocks: list[tuple[csr_array, Floats]], intercept: bool, order: Ints | None = None
    ) -> SparseLabels:
        """Return the vectors that `round_rows` has rounded, block by block.

        `order` has the place of every label among the rows of the blocks; by default, they are in
        the order of labels.
        """
        matrix = vstack([block for block, _ in blocks], "csr")
        scales = np.concatenate([scales for _, scales in blocks])
        blocks.clear()  # the matrix is a copy
        if order is not None:
            matrix, scales = matrix[order], scales[order]
        by_feature = matrix.tocsc()
        by_feature.sort_indices()
        return cls(
            by_feature.indptr.astype(np.int64),
            by_feature.indices.astype(_id_type(len(scales))),
            by_feature.data,
            scales,
            intercept,
        )

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return len(self.scales)

    @cached_property
    def engine(self) -> _engine.SparseVectors:
        """The vectors as the engine takes them, validated once."""
        return _engine.SparseVectors(self.ptr, self.labels, self.values, self.scales)

    def products(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the inner products of rows with the vectors of labels, an array like `ids`."""
        found = np.empty(ids.shape, np.float32)
        self.engine.products(rows.engine, 0, ids, found, threads(n_jobs))
        return found

    def largest_products(
        self, rows: Rows, n: int, n_jobs: int | None, known: Ints | None = None
    ) -> tuple[Ints, Floats, Floats]:
        """Return the labels with the n largest inner products above 0; −1 if there are fewer.

        Also return these products, and those of `known` labels at no extra cost.
        """
        ids = np.empty((len(rows), min(n, self.n_labels)), np.int64)
        known = np.empty((len(rows), 0), np.int64) if known is None else known
        products, others = np.empty(ids.shape, np.float32), np.empty(known.shape, np.float32)
        self.engine.largest_products(rows.engine, 0, ids, products, threads(n_jobs), known, others)
        return ids, products, others

    def matrix(self) -> csr_array:
        """Return the vectors as float32, shape (n_labels, n_columns)."""
        values = self.values * self.scales[self.labels]
        shape = (len(self.ptr) - 1, self.n_labels)
        by_feature = csr_array((values, self.labels.astype(np.int64), self.ptr), shape=shape)
        return by_feature.T.tocsr()

    def pruned(self, density: float) -> SparseLabels:
        """Return the vectors with the largest values only, a fraction `density` of them."""
        if density >= 1 or not len(self.values):
            return self
        sizes = np.abs(self.values * self.scales[self.labels])
        kept = sizes >= np.quantile(sizes, 1 - density)
        ptr = np.concatenate([[0], np.cumsum(kept)])[self.ptr]
        return replace(self, ptr=ptr, labels=self.labels[kept], values=self.values[kept])

    def of_label(self, label: int, features: Ints) -> Floats:
        """Return the values of a label for some features, 0 where it has none."""
        found = np.zeros(len(features), np.float32)
        for place, feature in enumerate(features.tolist()):
            begin, end = self.ptr[feature], self.ptr[feature + 1]
            at = begin + np.searchsorted(self.labels[begin:end], self.labels.dtype.type(label))
            if at < end and self.labels[at] == label:
                found[place] = self.values[at] * self.scales[label]
        return found

    def grow(self, n_labels: int, n_new_columns: int) -> SparseLabels:
        """Return the vectors with more labels and features, which have no values yet.

        New features are inserted before the last one, which all unknown columns share, and before
        the intercept.
        """
        at = len(self.ptr) - 2 - self.intercept
        return replace(
            self,
            ptr=np.insert(self.ptr, [at] * n_new_columns, self.ptr[at]),
            scales=np.pad(self.scales, (0, n_labels - self.n_labels), constant_values=1),
            labels=self.labels.astype(_id_type(n_labels)),
        )

    # Files

    TENSORS: ClassVar[dict[str, Array]] = {
        "counts": Array("uint", ("n_columns",), total="n_values"),
        "labels": Array("uint", ("n_values",), high="n_labels - 1", increasing="counts"),
        "values": Array("i1", ("n_values",)),
        "scales": Array("f4", ("n_labels",), low=0, high=MOST_SCALE),
    }

    def tensors(self) -> Tensors:
        """Return what a file holds."""
        return {
            "counts": smallest(np.diff(self.ptr)),
            "labels": smallest(self.labels),
            "values": self.values,
            "scales": self.scales,
        }

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes) -> SparseLabels:
        """Restore vectors from their `tensors`."""
        known = {"n_columns": sizes.n_columns, "n_labels": sizes.n_labels}
        tensors = section.tensors(cls.TENSORS, known)
        labels = tensors["labels"].astype(_id_type(sizes.n_labels), copy=False)
        scales = np.array(tensors["scales"])
        return cls(pointers(tensors["counts"]), labels, tensors["values"], scales, sizes.intercept)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "engine"}


def round_rows(W: csr_array) -> tuple[csr_array, Floats]:
    """Return a matrix rounded to int8, and what the rows are multiplied by."""
    row = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    rounded, scales = as_int8(W.data, row, W.shape[0])
    return csr_array((rounded, W.indices, W.indptr), shape=W.shape), scales


def _id_type(n: int) -> Any:
    return np.uint16 if n <= 1 << 16 else np.uint32
