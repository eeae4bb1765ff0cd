"""Rescoring: vectors of features and labels that rank the trellises' best candidates anew.

The score of a label is the inner product of its vector and the row's, plus a bias. It takes
D × rank and C × rank numbers, so it is no longer logarithmic in C, but a step of learning and an
answer are: only the candidates of the trellises and a few labels drawn from one are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import _engine
from ..core.arrays import threads
from ..core.prefetch import prefetch
from ..linear.weights import LinearModel, aligned, aligned_zeros, padded
from ..features.rows import engine_features
from ..training.trainer import Training, check_time, interruptible
from ..model.examples import Examples

if TYPE_CHECKING:
    from .fitted import Model

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

CANDIDATES = 8  # of the trellises that are rescored, at least
_NEGATIVES = 10  # of the trellises' best that every row learns to tell apart from its own labels
_SAMPLES = 30  # labels beside them that are drawn from a trellis
_TEMPERATURE = 4.0  # of the draws: it is sure of the rows that it learned from
_SQUARES_START = np.float32(1e-3)
_RATES = {False: 0.1, True: 0.05}  # the step for one label a row, for several
_STEPS, _FEWEST_PASSES, _MOST_PASSES = 230_000, 2, 8
_ROWS_AT_A_TIME = 4096


@dataclass(frozen=True)
class Embedding:
    """Vectors that rescore candidates.

    `labels` has a row for every label: its vector, its bias, and padding. `features` maps a row of
    X to a vector with a place left for the bias.
    """

    features: LinearModel
    labels: npt.NDArray[Any]  # float32; float16 on its way to a file
    rank: int
    weight: float = 0.0  # of its scores beside the sum over the trellises

    def row_vectors(
        self, features: _engine.Features, first: int, count: int, n_jobs: int | None
    ) -> Floats:
        """Return the vectors of some rows, with a 1 where the bias is."""
        vectors = self.features.edge_scores(features, first, count, n_jobs)
        vectors[:, self.rank] = 1
        return vectors

    def engine_features(self, X: Any) -> _engine.Features:
        """Hand X to the engine as the embedding takes it."""
        return engine_features(X, False, self.features.unit_length)

    def rescore(self, vectors: Floats, ids: Ints, scores: Floats, n_jobs: int | None) -> None:
        """Add to the scores of candidates, and sort them, in place."""
        _engine.rescore(vectors, self.labels, self.rank, self.weight, ids, scores, threads(n_jobs))

    def all_scores(self, vectors: Floats) -> Floats:
        """Return what all labels of some rows get in addition, (rows, n_labels)."""
        scores: Floats = vectors @ self.labels.T
        return np.float32(self.weight) * scores

    def weighed(
        self, examples: Examples, rows: Ints, ids: Ints, scores: Floats, n_trellises: int
    ) -> Embedding:
        """Return the same with a weight that makes the best candidate right often.

        It counts as much as all trellises together: a weight that is good nearly everywhere. A
        fourth of that, or four times as much, has to be better by more than a standard error, and
        the weight so found has to be so against 0, which it is otherwise.

        Parameters
        ----------
        examples, rows
            Rows that neither the embedding nor the trellises have learned from.
        ids, scores : arrays of shape (n_rows, n_candidates)
            Their candidates, with the trellises' scores.
        """
        vectors = self.row_vectors(self.engine_features(examples.X[rows]), 0, len(rows), None)
        own = np.einsum("ij,ikj->ik", vectors, self.labels[ids])
        hits = examples.contains(rows, ids)

        def found(weight: float) -> npt.NDArray[np.float64]:
            """Return which rows are answered rightly, as numbers."""
            best = (scores + weight * own).argmax(axis=1)
            return np.take_along_axis(hits, best[:, None], axis=1)[:, 0].astype(float)

        def surely(gain: npt.NDArray[np.float64]) -> bool:
            """Return whether the mean is more than a standard error above 0."""
            return bool(gain.mean() > gain.std() / np.sqrt(len(gain)))

        weight = float(n_trellises)
        for other in (weight / 4, weight * 4):
            if surely(found(other) - found(weight)):
                weight = other
        return replace(self, weight=weight if surely(found(weight) - found(0)) else 0.0)

    def stored_as(self, dtype: str) -> Embedding:
        """Return the same with smaller numbers."""
        labels = self.labels if dtype == "float32" else self.labels.astype(np.float16)
        return replace(self, features=self.features.stored_as(dtype), labels=labels)


class Proposal:
    """A model's first trellis as an exact sampler: labels that a row may be taken for."""

    def __init__(self, model: Model) -> None:
        linear = model.linear
        weights = aligned(linear.weights[:, : padded(linear.n_edges)])
        self.linear = replace(linear, weights=weights, n_trellises=1)
        self.decoder = replace(model.decoder(None), codebooks=model.codebooks[:1])

    def draws(self, X: Any, order: Ints, rng: Any) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Yield some rows of X at a time, labels for each, and what each stands for.

        The latter is the log of a number of labels, see `Decoder.sample`.
        """
        for first in range(0, len(order), _ROWS_AT_A_TIME):
            some = order[first : first + _ROWS_AT_A_TIME]
            features = engine_features(X[some], self.linear.intercept, self.linear.unit_length)
            h = self.linear.edge_scores(features, 0, len(some), None)
            yield some, *self.decoder.sample(h, _SAMPLES, _TEMPERATURE, rng)


class EmbeddingLearner:
    """An embedding while it is learned: AdaGrad on a softmax over sampled labels."""

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        rank: int,
        unit_length: bool,
        rng: Any,
        n_jobs: int | None,
    ) -> None:
        stride = padded(rank + 1)
        self.rank = rank
        self.n_jobs = n_jobs
        self.unit_length = unit_length
        self.features = aligned_zeros((n_features, stride), np.float32)
        self.features[:, :rank] = rng.standard_normal((n_features, rank)) / np.sqrt(rank)
        self.labels = aligned_zeros((n_labels, stride), np.float32)
        self.feature_squares = np.full_like(self.features, _SQUARES_START)
        self.label_squares = np.full_like(self.labels, _SQUARES_START)

    def run(
        self, examples: Examples, rows: Ints, candidates: Ints, proposal: Proposal, rng: Any
    ) -> None:
        """Pass over rows several times; `candidates` has the likely labels of every example."""
        for _ in range(min(max(_STEPS // len(rows), _FEWEST_PASSES), _MOST_PASSES)):
            self.learn(examples, rng.permutation(rows), candidates, proposal, rng)

    def learn(
        self, examples: Examples, order: Ints, candidates: Ints, proposal: Proposal, rng: Any
    ) -> None:
        """Learn from rows in this order, some at a time, so that Ctrl-C is heard."""
        features = engine_features(examples.X, False, self.unit_length)
        draws = proposal.draws(examples.X, order, rng)
        several = _engine.threads_for(threads(self.n_jobs)) > 1
        for some, samples, stands_for in prefetch(draws) if several else draws:
            check_time()
            _engine.train_embedding(
                features,
                self.features,
                self.feature_squares,
                self.labels,
                self.label_squares,
                self.rank,
                some,
                examples.indptr,
                examples.labels,
                candidates,
                samples,
                stands_for,
                examples.weights,
                _RATES[examples.multilabel],
            )

    def embedding(self) -> Embedding:
        """Return what was learned so far, not yet weighed."""
        linear = LinearModel(
            self.features, None, self.features.shape[1], 1, False, self.unit_length
        )
        return Embedding(linear, self.labels, self.rank)


def learn_embedding(
    model: Model,
    examples: Examples,
    rows: Ints,
    held_out: Ints,
    rank: int,
    rng: Any,
    n_jobs: int | None,
    training: Training | None,
    epochs: int,
) -> None:
    """Give a model whose trellises have learned an embedding that rescores their candidates.

    The rows held out say what it counts beside the trellises; it is dropped if that is nothing.
    With `training`, the trellises' own, they then learn from these rows too, as often as from the
    others, and so does the embedding, once.
    """
    linear = model.linear
    with interruptible():
        learner = EmbeddingLearner(
            linear.n_features, len(model.labels), rank, linear.unit_length, rng, n_jobs
        )
        ids, scores = model.candidates(examples.X, 2 * _NEGATIVES, n_jobs)
        negatives = np.ascontiguousarray(ids[:, :_NEGATIVES])
        proposal = Proposal(model)
        learner.run(examples, rows, negatives, proposal, rng)
        embedding = learner.embedding().weighed(
            examples, held_out, ids[held_out], scores[held_out], len(model.codebooks)
        )
        if training is not None:
            for _ in range(epochs):
                training.pass_over([(examples, rng.permutation(held_out))])
            learner.learn(examples, held_out, negatives, proposal, rng)
        if embedding.weight > 0:
            model.embedding = embedding
