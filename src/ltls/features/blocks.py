"""Blocks: sparse and dense features of the same rows, such as words and an embedding of a text.

`scipy.sparse.hstack` would store a column index with every number of an embedding, and no single
scale suits both kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from ..core.arrays import AnyArray, Ints, as_floats, as_frame, check_unmasked, unlisted


class Blocks:
    """A sparse matrix and a dense array of the same rows.

    Features are numbered as if they were one matrix, the sparse ones first.

    Parameters
    ----------
    sparse : CSR matrix
    dense : array
        Of shape (n_rows, n_dense). Half precision is kept: rows are converted a few at a time.
    """

    def __init__(self, sparse: Any, dense: AnyArray) -> None:
        self.sparse, self.dense = sparse, dense

    @classmethod
    def split(cls, X: Any, n_dense: int) -> Blocks:
        """Return a matrix of all features as blocks; the last columns are dense."""
        first = X.shape[1] - n_dense
        if hasattr(X, "tocsr"):
            return cls(X[:, :first], X[:, first:].toarray())
        return cls(csr_array(as_floats(X[:, :first])), np.ascontiguousarray(X[:, first:]))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and of all features."""
        return self.sparse.shape[0], self.sparse.shape[1] + self.dense.shape[1]

    def __getitem__(self, rows: slice | Ints) -> Blocks:
        """Return some of the rows."""
        return Blocks(self.sparse[rows], self.dense[rows])

    def joined(self) -> csr_array:
        """Return all features as one sparse matrix."""
        dense = np.asarray(self.dense, self.sparse.dtype)
        return csr_array(hstack([self.sparse, csr_array(dense)], "csr"))


def given_blocks(X: Any) -> list[Any] | None:
    """Return the blocks of X, None if X is not a list or tuple of blocks.

    A block is a sparse matrix, a two-dimensional array, a data frame or, beside one of these, a
    column of vectors.
    """
    if isinstance(X, Blocks):
        return [X.sparse, X.dense]
    if not isinstance(X, (list, tuple)) or not any(map(_is_block, X)):
        return None
    blocks = [unlisted(f"X[{number}]", block) for number, block in enumerate(X)]
    for number, block in enumerate(blocks):
        if not _is_block(block):
            raise ValueError(
                "X must be a list of blocks, each a sparse matrix, a data frame, a column of "
                "vectors or an array of shape (n_rows, n_features); "
                f"X[{number}] is {_described(block)}"
            )
        check_unmasked(f"X[{number}]", X[number])
    n_rows = [block.shape[0] for block in blocks]
    if len(set(n_rows)) > 1:
        raise ValueError(f"the blocks of X must have the same rows, got {listed(n_rows)}")
    return blocks


def united(blocks: list[Any]) -> Any:
    """Return checked blocks in the form that the engine takes.

    Sparse blocks are joined to one CSR matrix, dense blocks to one array; if there are both, the
    result is `Blocks`.
    """
    sparse = [block for block in blocks if hasattr(block, "tocsr")]
    dense = [block for block in blocks if not hasattr(block, "tocsr")]
    array = dense[0] if len(dense) == 1 else np.concatenate(dense, axis=1) if dense else None
    if not sparse:
        return array
    matrix = sparse[0] if len(sparse) == 1 else csr_array(hstack(sparse, "csr"))
    return matrix if array is None else Blocks(matrix, array)


def block_names(blocks: list[Any]) -> list[str]:
    """Return the names of all features, sparse blocks first; empty if no data frame has names."""
    names: dict[bool, list[str]] = {True: [], False: []}
    named = False
    for block in blocks:
        sparse = hasattr(block, "tocsr")
        frame = None if sparse else as_frame("X", block)
        own = [] if frame is None else list(frame.columns)
        if not (own and all(isinstance(name, str) for name in own)):
            first = len(names[sparse])
            places = range(first, first + block.shape[1])
            own = [f"x{at}" if sparse else dense_name(at) for at in places]
        else:
            named = True
        names[sparse] += own
    return names[True] + names[False] if named else []


def dense_name(number: int) -> str:
    """Return the name of a dense feature in a model that also has sparse ones."""
    return f"dense[{number}]"


def listed(numbers: list[int]) -> str:
    """Return numbers as a text: 3, 4 and 5."""
    texts = list(map(str, numbers))
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _is_block(value: Any) -> bool:
    if hasattr(value, "tocsr") or hasattr(value, "columns"):
        return True
    return hasattr(value, "__array__") and getattr(value, "ndim", 0) == 2


def _described(value: Any) -> str:
    dimensions = getattr(value, "ndim", None)
    kind = type(value).__name__
    return kind if dimensions is None else f"{kind} of {dimensions} dimensions"
