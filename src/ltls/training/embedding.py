"""Training of the embedding reranker: AdaGrad on a sampled softmax.

Every row contrasts its own labels with hard negatives, the trellises' best candidates, and with
labels drawn from the first trellis, corrected for their sampling probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core import _engine
from ..core.arrays import threads
from ..core.prefetch import prefetch
from ..features.rows import engine_features
from ..linear.weights import Weights, aligned, aligned_zeros, padded
from ..model.embedding import Embedding
from ..model.examples import Examples
from ..model.fitted import FittedModel
from .batches import InMemory
from .interrupt import check_time

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

_HARD_NEGATIVES = 10  # per row, from the trellises' best candidates
_SAMPLED_NEGATIVES = 30  # per row, drawn from the first trellis
_TEMPERATURE = 4.0  # of the draws: the trellis is overconfident on training rows
_INITIAL_SQUARES = np.float32(1e-3)
_LEARNING_RATES = {False: 0.1, True: 0.05}  # for one label per row, for several
_STEPS, _MIN_EPOCHS, _MAX_EPOCHS = 230_000, 2, 8
_ROWS_PER_CALL = 4096


class NegativeSampler:
    """Draws negatives from a model's first trellis, with exact log-probabilities."""

    def __init__(self, model: FittedModel) -> None:
        weights = model.weights
        values = aligned(weights.values[:, : padded(weights.n_edges)])
        self.weights = replace(weights, values=values, n_trellises=1)
        self.decoder = replace(model.decoder(), codebooks=model.codebooks[:1])

    def draw(self, X: Any, order: Ints, rng: Any) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Yield some rows at a time, labels for each, and their log importance weights."""
        for first in range(0, len(order), _ROWS_PER_CALL):
            rows = order[first : first + _ROWS_PER_CALL]
            features = engine_features(X[rows], self.weights.intercept, self.weights.unit_length)
            h = self.weights.edge_scores(features, 0, len(rows), None)
            yield rows, *self.decoder.sample(h, _SAMPLED_NEGATIVES, _TEMPERATURE, rng)


class EmbeddingTrainer:
    """Trains an embedding that reranks the candidates of a model whose trellises are trained.

    Parameters
    ----------
    model : FittedModel
        Gets the embedding, if that helps.
    dim : int
    rng : RandomState
    n_jobs : int or None
    """

    def __init__(self, model: FittedModel, dim: int, rng: Any, n_jobs: int | None) -> None:
        stride, weights = padded(dim + 1), model.weights
        self.model, self.dim, self.rng, self.n_jobs = model, dim, rng, n_jobs
        self.unit_length = weights.unit_length
        self.features = aligned_zeros((weights.n_features, stride), np.float32)
        self.features[:, :dim] = rng.standard_normal((weights.n_features, dim)) / np.sqrt(dim)
        if model.feature_map is not None:
            self.features[-1] = 0  # features that do not occur say nothing
        self.labels = aligned_zeros((len(model.labels), stride), np.float32)
        self.feature_squares = np.full_like(self.features, _INITIAL_SQUARES)
        self.label_squares = np.full_like(self.labels, _INITIAL_SQUARES)

    def fit(self, source: InMemory) -> None:
        """Train for some epochs, and choose the weight of the embedding on the held-out rows."""
        model, examples, held_out = self.model, source.examples, source.held_out
        ids, scores = model.candidates(examples.X, 2 * _HARD_NEGATIVES, self.n_jobs)
        self._hard_negatives = np.ascontiguousarray(ids[:, :_HARD_NEGATIVES])
        self._sampler = NegativeSampler(model)
        for _ in range(min(max(_STEPS // source.n_rows, _MIN_EPOCHS), _MAX_EPOCHS)):
            self.run_epoch(examples, self.rng.permutation(source.rows))
        embedding = with_chosen_weight(
            self.embedding(),
            examples,
            held_out,
            ids[held_out],
            scores[held_out],
            len(model.codebooks),
        )
        if embedding.weight > 0:
            model.embedding = embedding

    def run_epoch(self, examples: Examples, order: Ints) -> None:
        """Train on rows in this order, some at a time, so that Ctrl-C is handled."""
        task = _engine.EmbeddingTask(
            engine_features(examples.X, False, self.unit_length),
            examples.indptr,
            examples.labels,
            self._hard_negatives,
            examples.weights,
            n_labels=len(self.labels),
        )
        draws = self._sampler.draw(examples.X, order, self.rng)
        several = _engine.threads_for(threads(self.n_jobs)) > 1
        for rows, samples, log_importance in prefetch(draws) if several else draws:
            check_time()
            task.run(
                self.features,
                self.feature_squares,
                self.labels,
                self.label_squares,
                rows,
                samples,
                log_importance,
                rank=self.dim,
                learning_rate=_LEARNING_RATES[examples.multilabel],
            )

    def embedding(self) -> Embedding:
        """Return the embedding as trained so far, with weight 0."""
        weights = Weights(self.features, None, self.features.shape[1], 1, False, self.unit_length)
        return Embedding(weights, self.labels, self.dim)


def with_chosen_weight(
    embedding: Embedding,
    examples: Examples,
    rows: Ints,
    ids: Ints,
    scores: Floats,
    n_trellises: int,
) -> Embedding:
    """Return the embedding with the weight that is best for P@1 on held-out rows.

    The prior is that it counts as much as all trellises together, which is good nearly everywhere.
    A quarter of that, four times as much, or 0 must be better by more than a standard error.

    Parameters
    ----------
    embedding : Embedding
    examples, rows
        Rows that neither the embedding nor the trellises were trained on.
    ids, scores : arrays of shape (n_rows, n_candidates)
        Their candidates, with the trellises' scores.
    n_trellises : int
    """
    features = embedding.engine_features(examples.X[rows])
    vectors = embedding.row_vectors(features, 0, len(rows), None)
    own = np.einsum("ij,ikj->ik", vectors, embedding.labels[ids])
    hits = examples.contains(rows, ids)

    def correct(weight: float) -> npt.NDArray[np.float64]:
        """Return 1 for rows whose best candidate is a true label, else 0."""
        best = (scores + weight * own).argmax(axis=1)
        return np.take_along_axis(hits, best[:, None], axis=1)[:, 0].astype(float)

    def significant(gain: npt.NDArray[np.float64]) -> bool:
        """Return whether the mean gain is more than a standard error above 0."""
        return bool(gain.mean() > gain.std() / np.sqrt(len(gain)))

    weight = float(n_trellises)
    for other in (weight / 4, weight * 4):
        if significant(correct(other) - correct(weight)):
            weight = other
    return replace(embedding, weight=weight if significant(correct(weight) - correct(0)) else 0.0)
