"""Prototypes: the mean row of every label. Labels whose prototype resembles a row are candidates.

Nothing is trained, so a label has a prototype from its first row on. Only the largest features of a
prototype are kept. The score of a label is log(max(0, cos) + 0.05), where cos is the cosine
similarity of row and prototype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from ..core import _engine
from ..core.arrays import Floats, Ints, Tensors, smallest
from ..core.declarations import Array, Described
from ..core.settings import Integer, Settings, setting, settings
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part
from .sparse_labels import SparseLabels, round_rows

_SMOOTHING = np.float32(0.05)
_LABELS_AT_ONCE = 1 << 11  # whose rows are added up


@settings
class Prototypes(Settings):
    """How large the prototypes of labels are."""

    n_features: int = setting(
        Integer(1), default=60, help="Number of largest features that a prototype keeps."
    )


@register_part
@dataclass(frozen=True, eq=False)
class PrototypePart:
    """The prototypes of all labels.

    Parameters
    ----------
    vectors : SparseLabels
    counts : int64 array of shape (n_labels,)
        Number of rows that every prototype is the mean of.
    n_kept : int
        See `Prototypes.n_features`.
    """

    name: ClassVar[str] = "prototypes"
    settings: ClassVar[type[Settings]] = Prototypes
    grid: ClassVar[tuple[float, ...]] = (0.5, 1.0, 2.0, 4.0, 8.0)
    helps_rare_labels: ClassVar[bool] = True
    takes_known: ClassVar[bool] = True

    vectors: SparseLabels
    counts: Ints
    n_kept: int

    @classmethod
    def of_sums(
        cls, sums: Callable[[slice], csr_array], counts: Ints, n_kept: int, intercept: bool
    ) -> PrototypePart:
        """Return prototypes of labels; `sums` returns the sums of the rows of some labels."""
        from scipy.sparse.linalg import norm  # slow to import, and only needed here

        blocks = []
        for first in range(0, len(counts), _LABELS_AT_ONCE):
            block = sums(slice(first, first + _LABELS_AT_ONCE))
            # The length includes dropped features: they make a prototype less similar.
            length = np.maximum(norm(block, axis=1), 1e-15).astype(np.float32)
            rounded, scales = round_rows(_largest(block, n_kept))
            blocks.append((rounded, scales / length))
        return cls(SparseLabels.of_rounded(blocks, intercept), counts, n_kept)

    def candidates(self, rows: Rows, n: int, n_jobs: int | None, known: Ints | None = None) -> Ints:
        """Return the labels of the n most similar prototypes.

        This compares all prototypes, so the scores of the `known` labels are memoized, too.
        """
        ids, products, others = self.vectors.largest_products(rows, n, n_jobs, known)
        if known is not None:
            both = np.concatenate([known, ids], axis=1), np.concatenate([others, products], axis=1)
            rows.memo[self] = both
        return ids

    def _products(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        if self in rows.memo:
            found = np.empty(ids.shape, np.float32)
            known, products = rows.memo[self]
            _engine.look_up(ids, known, products, np.nan, found)
            if not (np.isnan(found) & (ids >= 0)).any():
                return found
        return self.vectors.products(rows, ids, n_jobs)

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the scores of labels, an array like `ids`."""
        cosines = self._products(rows, ids, n_jobs) / rows.lengths[:, None]
        scores: Floats = np.log(np.maximum(cosines, 0) + _SMOOTHING)
        return scores

    def explain(self, rows: Rows, label: int) -> PartExplanation:
        """Return what every feature of the only row adds to the similarity of a label."""
        features, values = rows.entries(0)
        vector = self.vectors.of_label(label, features)
        contributions = values.astype(np.float64) * vector / float(rows.lengths[0])
        cosine = math.fsum(contributions.tolist())
        score = float(np.log(max(cosine, 0.0) + _SMOOTHING))
        formula = "log(max(0, linear_score) + 0.05)"
        return PartExplanation(self.name, features, contributions, 0.0, score, formula)

    # Training

    @classmethod
    def fit(cls, given: Prototypes, context: Any) -> PrototypePart:
        """Average the rows of every label."""
        sums, counts = context.label_sums()
        return cls.of_sums(sums, counts, given.n_features, context.intercept)

    def finish(self, context: Any) -> PrototypePart:
        """Return the prototypes of all rows, the held-out ones included."""
        sums, counts = context.label_sums(held_out=True)
        return self.of_sums(sums, counts, self.n_kept, self.vectors.intercept)

    def grow(self, n_labels: int, n_new_columns: int) -> PrototypePart:
        """Return the prototypes with more labels and features, which have none yet."""
        counts = np.pad(self.counts, (0, n_labels - len(self.counts)))
        return replace(self, vectors=self.vectors.grow(n_labels, n_new_columns), counts=counts)

    def learn(self, context: Any) -> PrototypePart:
        """Return the prototypes with the rows of a further batch."""
        more, counts = context.label_sums()
        # The sum of n rows is approximated by n times the prototype, which has unit length.
        times = csr_array((self.counts.astype(np.float32), (np.arange(len(self.counts)),) * 2))
        sums = csr_array(times @ self.vectors.matrix() + more(slice(None)))
        counts = self.counts + counts
        return self.of_sums(sums.__getitem__, counts, self.n_kept, self.vectors.intercept)

    def pruned(self, density: float) -> PrototypePart:
        """Return the prototypes with the largest features only, a fraction `density` of them."""
        return replace(self, vectors=self.vectors.pruned(density))

    # Files

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        return {"n_kept": self.n_kept}, {**self.vectors.tensors(), "rows": smallest(self.counts)}

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> PrototypePart:
        """Restore prototypes from their `state`."""
        declared = {"rows": Array("uint", ("n_labels",), high=2**62)}
        counts = section.tensors(declared, {"n_labels": sizes.n_labels})["rows"].astype(np.int64)
        return cls(SparseLabels.from_state(section, sizes), counts, section.integer("n_kept", 1))

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        return {"prototype_features": len(self.vectors.values)}


def _largest(matrix: csr_array, n: int) -> csr_array:
    """Return the n largest entries of every row, by magnitude; ties go to the first."""
    sizes = np.diff(matrix.indptr)
    if (sizes <= n).all():
        return matrix
    longer = np.flatnonzero(np.repeat(sizes > n, sizes))
    row = np.repeat(np.flatnonzero(sizes > n), sizes[sizes > n])
    order = np.lexsort((matrix.indices[longer], -np.abs(matrix.data[longer]), row))
    rank = np.concatenate([np.arange(size) for size in sizes[sizes > n]])
    kept = np.ones(matrix.nnz, bool)
    kept[longer[order[rank >= n]]] = False
    indptr = np.concatenate([[0], np.cumsum(np.minimum(sizes, n))])
    return csr_array((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)
