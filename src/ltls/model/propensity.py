"""Propensities: how likely it is that a label that applies was recorded.

Rare labels are missing more often than frequent ones. Ranking by score − strength · log propensity
makes up for that, at the cost of frequent labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]


def propensities_of(
    counts: npt.ArrayLike, n_rows: int, a: float = 0.55, b: float = 1.5
) -> npt.NDArray[np.float64]:
    """Return the propensities of labels with these numbers of training rows.

    1 / (1 + c · (count + b)^−a) with c = (log n_rows − 1) · (b + 1)^a: Jain, Prabhu and Varma 2016.
    """
    c = max(np.log(n_rows) - 1.0, 0.0) * (b + 1.0) ** a
    result: npt.NDArray[np.float64] = 1.0 / (1.0 + c * (np.asarray(counts) + b) ** -a)
    return result


@dataclass(frozen=True)
class PropensityReranker:
    """Ranks the candidates by score − strength · log propensity.

    Parameters
    ----------
    bonus : array of shape (n_labels,)
        −strength · log propensity of every label.
    """

    bonus: Floats
    n_candidates: ClassVar[int] = 20
    for_candidates_only: ClassVar[bool] = True

    @classmethod
    def of(cls, strength: float, counts: Ints, n_rows: int) -> PropensityReranker:
        """Return the reranker for labels with these numbers of training rows."""
        return cls((-strength * np.log(propensities_of(counts, max(n_rows, 1)))).astype(np.float32))

    def rerank(self, X: Any, ids: Ints, scores: Floats, n_jobs: int | None) -> None:
        """Add the bonus to the scores of candidates and sort them, in place."""
        scores += np.where(ids >= 0, self.bonus[ids], 0)
        order = np.argsort(-scores, axis=1, kind="stable")
        ids[:], scores[:] = (np.take_along_axis(each, order, axis=1) for each in (ids, scores))
