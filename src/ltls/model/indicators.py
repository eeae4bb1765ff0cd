"""Indicator matrices: the labels of rows as a sparse matrix of 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import check_unmasked
from ..features.rows import check_sparse


def label_matrix(y: Any, name: str = "y") -> sp.csr_matrix:
    """Convert the labels of some rows, in any of the accepted forms, to a boolean CSR matrix.

    Parameters
    ----------
    y : array-like of int of shape (n_rows,), or indicator matrix of shape (n_rows, n_labels)
        One label id per row, or a sparse or dense matrix that is non-zero where a row has a label.
    name : str, default="y"
        The name of `y` in error messages.

    Returns
    -------
    scipy.sparse.csr_matrix of bool, shape (n_rows, n_labels)
        Canonical, without stored zeros. For label ids, n_labels is the largest id + 1.

    Examples
    --------
    >>> from ltls.metrics import label_matrix
    >>> label_matrix([2, 0]).toarray().astype(int)
    array([[0, 0, 1],
           [1, 0, 0]])
    """
    forms = f"{name} must be a 1-d array of label ids or a matrix of shape (n_rows, n_labels)"
    check_unmasked(name, y)
    if not sp.issparse(y):
        try:
            y = np.asarray(y)
        except ValueError:
            raise ValueError(
                f"{forms}, got rows of different lengths; scikit-learn's MultiLabelBinarizer turns "
                "lists of labels into a matrix"
            ) from None
        if y.dtype.kind not in "biuf":
            raise ValueError(f"{forms}, got values of type {y.dtype}")
    else:
        check_sparse(y, name)
    if y.ndim not in (1, 2):
        raise ValueError(f"{forms}, got {y.ndim} dimensions")
    if y.shape[0] == 0:
        raise ValueError(f"{name} must have at least one row, got none")
    if y.ndim == 1:
        if sp.issparse(y) or y.dtype.kind not in "iu" or y.min() < 0:
            got = f"{y.min()} ({y.dtype})"
            raise ValueError(f"{name} must hold label ids (integers from 0), got {got}")
        ids = y.astype(np.int64)
        parts = (np.ones(ids.size, dtype=bool), ids, np.arange(ids.size + 1))
        return sp.csr_matrix(parts, shape=(ids.size, int(ids.max()) + 1))
    matrix = sp.csr_matrix(y, copy=True)
    if matrix.dtype.kind == "f" and not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} must hold 0 and 1, got NaN or infinity")
    matrix = matrix.astype(bool)
    matrix.eliminate_zeros()
    matrix.sum_duplicates()
    return matrix
