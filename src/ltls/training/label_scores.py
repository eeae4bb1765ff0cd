"""Edge scores summed over the training rows of every label, for codebook policies that learn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..model.examples import Batch
from ..model.fitted import FittedModel

Floats: TypeAlias = npt.NDArray[np.float32]


def label_score_sums(model: FittedModel, batches: Iterable[Batch], n_jobs: int | None) -> Floats:
    """Return the sums, shape (n_trellises, n_labels, n_edges).

    A row counts with its weight, divided among its labels if the loss does so.
    """
    n_trellises, n_edges = len(model.codebooks), model.trellis.n_edges
    sums = np.zeros((len(model.labels), n_trellises * n_edges), np.float32)
    weights_of_model = model.weights
    for examples, rows in batches:
        per_row = np.diff(examples.indptr)
        weights = np.zeros(len(examples), np.float32)
        weights[rows] = 1 if examples.weights is None else examples.weights[rows]
        if model.loss.averages_positives:
            weights /= np.maximum(per_row, 1)
        for part, h in model.edge_scores(examples.X, n_jobs, weights_of_model):
            indptr = examples.indptr[part.start : part.stop + 1]
            labels, column = np.unique(examples.labels[indptr[0] : indptr[-1]], return_inverse=True)
            values = np.repeat(weights[part], per_row[part])
            shape = (len(h), len(labels))
            indicator = csr_array((values, column.reshape(-1), indptr - indptr[0]), shape=shape)
            sums[labels] += indicator.T @ weights_of_model.without_padding(h)
    return np.ascontiguousarray(sums.reshape(len(sums), n_trellises, n_edges).transpose(1, 0, 2))
