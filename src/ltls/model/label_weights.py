"""Label weights: a sparse linear classifier for every label, which reranks the candidates.

The trellises find candidates in logarithmic time, and where labels share paths they cannot tell
all of them apart. A label's own weights can: its score is −max(0, 1 − s)³ + weight · b, where s is
the output of its classifier and b what the trellises say. A row is scored with the weights of its
features and candidates alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..core import _engine
from ..core.arrays import threads
from ..features.rows import engine_features
from ..linear.weights import int8_scales

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

ROWS_PER_CALL = 4096  # of the engine: Ctrl-C is handled between calls


@dataclass(frozen=True, eq=False)
class LabelWeights:
    """A reranker with sparse weights for every label, stored by feature.

    Parameters
    ----------
    row_ptr : int64 array of shape (n_features + 2,)
        Feature i has entries row_ptr[i] … row_ptr[i + 1] − 1 of `labels` and `values`; the last
        row is the intercept.
    labels : uint16 or uint32 array
        The labels that have a weight for a feature, increasing.
    values : int8 array
    scales : float32 array of shape (n_features + 1,)
        What the values of a feature are multiplied by.
    n_labels : int
    unit_length : bool
        Whether rows of X are scaled to unit length.
    weight : float
        What the scores of the trellises are multiplied by.
    n_candidates : int
        How many candidates to rerank, at least.
    """

    row_ptr: Ints
    labels: npt.NDArray[Any]
    values: npt.NDArray[np.int8]
    scales: Floats
    n_labels: int
    unit_length: bool
    weight: float
    n_candidates: int

    @classmethod
    def of_matrix(
        cls, W: csr_array, *, unit_length: bool, weight: float, n_candidates: int
    ) -> LabelWeights:
        """Round a matrix of shape (n_labels, n_features + 1) to int8."""
        by_feature = W.tocsc()
        by_feature.sort_indices()
        feature = np.repeat(np.arange(W.shape[1]), np.diff(by_feature.indptr))
        largest = np.zeros(W.shape[1], np.float32)
        np.maximum.at(largest, feature, np.abs(by_feature.data))
        scales = int8_scales(largest)
        return cls(
            by_feature.indptr.astype(np.int64),
            by_feature.indices.astype(_label_type(W.shape[0])),
            np.rint(by_feature.data / scales[feature]).astype(np.int8),
            scales,
            W.shape[0],
            unit_length,
            weight,
            n_candidates,
        )

    def matrix(self) -> csr_array:
        """Return the weights as float32, shape (n_labels, n_features + 1)."""
        feature = np.repeat(np.arange(len(self.scales)), np.diff(self.row_ptr))
        values = self.values * self.scales[feature]
        shape = (len(self.scales), self.n_labels)
        by_feature = csr_array((values, self.labels.astype(np.int64), self.row_ptr), shape=shape)
        return by_feature.T.tocsr()

    def of_label(self, label: int, features: Ints) -> Floats:
        """Return the weights of a label for some features, 0 where it has none."""
        found = np.zeros(len(features), np.float32)
        for place, feature in enumerate(features.tolist()):
            begin, end = self.row_ptr[feature], self.row_ptr[feature + 1]
            at = begin + np.searchsorted(self.labels[begin:end], self.labels.dtype.type(label))
            if at < end and self.labels[at] == label:
                found[place] = self.values[at] * self.scales[feature]
        return found

    @cached_property
    def engine(self) -> _engine.LabelWeights:
        """The weights as the engine takes them, validated once."""
        return _engine.LabelWeights(
            self.row_ptr, self.labels, self.values, self.scales, self.n_labels
        )

    @property
    def for_candidates_only(self) -> bool:
        """A classifier has not seen the rows for which its label is no candidate."""
        return True

    def rerank(self, X: Any, ids: Ints, scores: Floats, n_jobs: int | None) -> None:
        """Replace the scores of candidates and sort them, in place."""
        features = engine_features(X, True, self.unit_length)
        for first in range(0, len(ids), ROWS_PER_CALL):
            some = slice(first, first + ROWS_PER_CALL)
            self.engine.rerank(
                features, first, self.weight, ids[some], scores[some], threads(n_jobs)
            )

    def with_weight(self, weight: float) -> LabelWeights:
        """Return the weights with another weight of the trellises' scores."""
        return replace(self, weight=weight)

    def add_labels(self, n: int) -> LabelWeights:
        """Return the weights with n more labels, which have none yet."""
        n_labels = self.n_labels + n
        return replace(self, n_labels=n_labels, labels=self.labels.astype(_label_type(n_labels)))

    def add_features(self, n: int) -> LabelWeights:
        """Return the weights with n more features before the intercept, which have none yet."""
        at = len(self.scales) - 1
        return replace(
            self,
            row_ptr=np.insert(self.row_ptr, [at] * n, self.row_ptr[at]),
            scales=np.insert(self.scales, [at] * n, 1).astype(np.float32),
        )

    def replace_labels(
        self, labels: Ints, counts: Ints, features: npt.NDArray[np.int32], values: Floats
    ) -> LabelWeights:
        """Return the weights with other ones for some labels.

        The weights of other labels stay the same bit for bit, unless a larger one comes to their
        feature.

        Parameters
        ----------
        labels : array
        counts : array like `labels`
            How many weights each of them has.
        features, values : arrays
            These weights, one label after the other.
        """
        feature_of = np.repeat(np.arange(len(self.scales)), np.diff(self.row_ptr))
        kept = ~np.isin(self.labels, labels)
        of_kept = feature_of[kept]
        largest = np.zeros(len(self.scales), np.float32)
        np.maximum.at(largest, features, np.abs(values))
        scales = int8_scales(largest)
        in_use = np.isin(np.arange(len(scales)), of_kept)
        scales[in_use] = np.where(largest > 0, np.maximum(scales, self.scales), self.scales)[in_use]
        old = np.rint(self.values[kept] * (self.scales / scales)[of_kept])
        all_features = np.concatenate([of_kept, features])
        all_labels = np.concatenate([self.labels[kept].astype(np.int64), np.repeat(labels, counts)])
        all_values = np.concatenate([old, np.rint(values / scales[features])]).astype(np.int8)
        order = np.lexsort((all_labels, all_features))
        sizes = np.bincount(all_features, minlength=len(scales))
        return replace(
            self,
            row_ptr=np.concatenate([[0], np.cumsum(sizes)]),
            labels=all_labels[order].astype(self.labels.dtype),
            values=all_values[order],
            scales=scales,
        )

    def prune(self, density: float) -> LabelWeights:
        """Return the weights with only the largest ones kept, a fraction `density`."""
        W = self.matrix()
        if density < 1 and W.nnz:
            smallest = np.quantile(np.abs(W.data), 1 - density)
            W.data[np.abs(W.data) < smallest] = 0
            W.eliminate_zeros()
        return self.of_matrix(
            W,
            unit_length=self.unit_length,
            weight=self.weight,
            n_candidates=self.n_candidates,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "engine"}


def _label_type(n_labels: int) -> type[np.unsignedinteger[Any]]:
    return np.uint16 if n_labels <= 1 << 16 else np.uint32
