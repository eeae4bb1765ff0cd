"""Hierarchies of classes, such as categories: every node is an interval of paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..core.arrays import AnyArray


@dataclass(frozen=True)
class Nodes:
    """The nodes of a hierarchy of labels, each an interval of paths.

    Parameters
    ----------
    leaf : int64 array of shape (n_labels,)
        The node of the last level of every label, numbered in the order of paths.
    intervals : dict
        From a tuple of values, one per level down to the node's, to its first path and the end.
    """

    leaf: Any
    intervals: dict[tuple[Any, ...], tuple[int, int]]

    def interval(self, within: Any) -> tuple[int, int]:
        """Return the paths of a node: its first path and the end."""
        node = within if isinstance(within, tuple) else (within,)
        if any(isinstance(value, (list, Tensor, np.ndarray)) for value in node):
            raise TypeError(
                "within must be a value of the hierarchy, or a tuple of them, for all rows, got "
                f"{type(within).__name__}"
            )
        if node not in self.intervals:
            raise ValueError(f"within must be a category of the hierarchy, got {within!r}")
        return self.intervals[node]

    def check_saved(self, name: str, paths: Tensor | None, complete: bool) -> None:
        """Raise an error if nodes have other labels in a saved codebook.

        If the saved state is `complete`, a codebook without a table of paths is from a layer
        without a hierarchy. Tables of an incomplete state may be missing; torch reports these, and
        tables of another shape.
        """
        is_other = complete and paths is None
        if paths is not None and not paths.is_meta and paths.shape == self.leaf.shape:
            ends = sorted({end for _, end in self.intervals.values()})
            leaves = np.searchsorted(ends, paths.cpu().numpy(), side="right")
            is_other = not np.array_equal(leaves, self.leaf)
        if is_other:
            raise RuntimeError(
                f"{name} was saved by a layer with another hierarchy or none: load it into a layer "
                "that was built without hierarchy"
            )

    def paths(self, counts: Any, n_trellises: int) -> list[Any]:
        """Return a table of paths per trellis; the first is by frequency within the leaves."""
        rng = np.random.RandomState(0)
        first = np.arange(len(self.leaf)) if counts is None else -counts
        keys = [first, *(rng.random_sample(len(self.leaf)) for _ in range(n_trellises - 1))]
        tables = []
        for key in keys:
            table = np.empty(len(self.leaf), np.int64)
            table[np.lexsort((key, self.leaf))] = np.arange(len(self.leaf))
            tables.append(table)
        return tables


def nodes_of(hierarchy: Any, n_classes: int) -> Nodes:
    """Return the nodes of a hierarchy, given as one value per label and level."""
    values = _values(hierarchy)
    if values.ndim not in (1, 2) or len(values) != n_classes or not values.size:
        raise ValueError(
            f"hierarchy must have shape ({n_classes},) or ({n_classes}, n_levels), got "
            f"{values.shape}"
        )
    columns = [
        np.asarray(column.tolist()) if column.dtype == object else column
        for column in values.reshape(n_classes, -1).T
    ]
    leaf = np.zeros(n_classes, np.int64)
    intervals: dict[tuple[Any, ...], tuple[int, int]] = {}
    for level, column in enumerate(columns):
        names, codes = np.unique(column, return_inverse=True)
        pairs, leaf = np.unique(leaf * len(names) + codes, return_inverse=True)
        ends = np.bincount(leaf, minlength=len(pairs)).cumsum()
        member = np.empty(len(pairs), np.int64)
        member[leaf] = np.arange(n_classes)  # a label of every node
        for node, label in enumerate(member):
            named = (each[label] for each in columns[: level + 1])
            name = tuple(each.item() if isinstance(each, np.generic) else each for each in named)
            intervals[name] = (int(ends[node - 1]) if node else 0, int(ends[node]))
    return Nodes(leaf, intervals)


def _values(hierarchy: Any) -> AnyArray:
    """Return the values of a hierarchy as an array; columns of texts leave others as they are."""
    if isinstance(hierarchy, Tensor):
        if hierarchy.is_meta:
            raise ValueError("hierarchy must have values, got a tensor on meta: pass a NumPy array")
        hierarchy = hierarchy.cpu()
    values = np.asarray(hierarchy)
    mixes = values.ndim == 2 and values.dtype.kind in "US" and isinstance(hierarchy, (list, tuple))
    return np.asarray(hierarchy, object) if mixes else values
