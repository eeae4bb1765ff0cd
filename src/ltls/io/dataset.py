"""Sparse rows with integer labels, as svmlight and xmc files hold them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Ints
from ..model.labels import Targets


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of sparse features with their labels.

    Parameters
    ----------
    X : scipy.sparse.csr_matrix of float32, shape (n_rows, n_features)
        The features.
    Y : scipy.sparse.csr_matrix of float32, shape (n_rows, n_labels)
        1 where a row has a label.
    classes : ndarray of int64, shape (n_labels,), or None
        The label of each column of `Y`; None if column j is label j, as in xmc files.
    zero_based : bool
        Whether feature indices started at 0 in the file.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from ltls.readers import Dataset
    >>> rows = Dataset(sp.csr_matrix(np.eye(2)), sp.csr_matrix([[0, 1], [1, 1]]), None, True)
    >>> rows.n_labels, rows.labels_per_row, rows.single_label
    (2, array([1, 2]), False)
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    classes: Ints | None
    zero_based: bool

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return int(self.Y.shape[1])

    @property
    def labels_per_row(self) -> Ints:
        """The number of labels of each row."""
        counts: Ints = np.diff(self.Y.indptr).astype(np.int64)
        return counts

    @property
    def single_label(self) -> bool:
        """Whether every row has exactly one label."""
        return bool((self.labels_per_row == 1).all())

    @property
    def y(self) -> Ints:
        """The label of each row; a ValueError if a row has none or several."""
        if not self.single_label:
            row = int(np.argmax(self.labels_per_row != 1))
            count = self.labels_per_row[row]
            raise ValueError(f"y must have one label per row, got {count} in row {row}; use Y")
        return self._flat_labels

    @property
    def targets(self) -> Targets:
        """The labels of all rows in the form that `LTLSClassifier.fit` reads fastest."""
        single = self.single_label
        form = "single" if single else "lists"
        return Targets(self.Y.indptr.astype(np.int64), self._flat_labels, not single, form)

    def labels(self) -> list[Ints]:
        """Return the labels of every row."""
        return np.split(self._flat_labels, self.Y.indptr[1:-1])

    def indicator(self) -> sp.csr_matrix:
        """Return an indicator matrix whose column j is label j; a ValueError for negative labels.

        Unlike `Y`, it has a column for every integer up to the largest label.
        """
        if self.classes is None:
            return self.Y
        if self.classes.min(initial=0) < 0:
            raise ValueError(f"labels must be at least 0 to be columns, got {self.classes.min()}")
        shape = (self.n_rows, int(self.classes.max(initial=-1)) + 1)
        parts = (np.ones(self.Y.nnz, np.float32), self._flat_labels, self.Y.indptr)
        return sp.csr_matrix(parts, shape=shape)

    @property
    def _flat_labels(self) -> Ints:
        columns: Ints = self.Y.indices.astype(np.int64)
        return columns if self.classes is None else self.classes[columns]
