"""What an estimator has learned: labels, trellis, codebooks and weights, and how they answer."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core.arrays import threads
from ..structure.policies import Codebook
from .decoder import Decoder
from .labels import Labels
from ..linear.weights import LinearModel
from ..linear.trainable import Learner
from ..features.rows import engine_features
from .predictor import Predictor
from .embedding import CANDIDATES, Embedding
from ..model.examples import Examples
from ..structure.trellis import Trellis

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

_ROWS_AT_A_TIME = 4096  # so that Ctrl-C is heard


@dataclass
class Model:
    """One or several trellises over the same features, a codebook for each, and their weights.

    `learner` is what goes on learning; a model from a file has none until it does. `scoring` are
    the weights to predict with where they are not simply the learner's.
    """

    labels: Labels
    trellis: Trellis
    codebooks: list[Codebook]
    loss: str
    l1: float
    multilabel: bool
    form: str  # how to give multi-label predictions back, see `labels.Targets`
    usual_labels: int = 1  # that all but a few rows had at most
    learner: Learner | None = None
    scoring: LinearModel | None = None
    embedding: Embedding | None = None
    threshold: float | None = None
    zero_based: bool | None = None  # where the features of its svmlight file counted from, if known
    loss_curve: list[float] = field(default_factory=list)
    n_passes: int = 0
    n_rows: int = 0  # seen, each pass of a fit counted once
    counts: Ints | None = None  # how many of them had each label; None in a file of older days
    columns: dict[str, Any] | None = None  # of the table it was trained on, by what they are

    @property
    def linear(self) -> LinearModel:
        """The weights that score."""
        if self.scoring is not None:
            return self.scoring
        assert self.learner is not None
        return self.learner.model(self.l1)

    @property
    def n_candidates(self) -> int:
        """How many labels a row may be expected to have at most."""
        return min(len(self.labels), 2 * self.usual_labels + 1)

    def decoder(self, n_jobs: int | None) -> Decoder:
        """Return what turns edge scores into labels."""
        return Decoder(self.trellis, self.codebooks, len(self.labels), self.loss, n_jobs)

    def count(self, ids: Ints, n_rows: int) -> None:
        """Take note of rows to learn from and their labels: metrics weigh rare labels by it."""
        self.n_rows += n_rows
        counts = np.bincount(ids, minlength=len(self.labels))
        if self.counts is not None:
            counts[: len(self.counts)] += self.counts
        elif self.n_passes:  # it was not counted from the beginning
            return
        self.counts = counts

    def make_room(self) -> None:
        """Grow the trellis until every label can have a path; no old label's score changes."""
        assert self.learner is not None
        while self.trellis.n_classes < len(self.labels):
            self.trellis, edge_map = self.trellis.grow()
            self.codebooks = [book.grow(self.trellis.n_classes) for book in self.codebooks]
            self.learner.grow(self.trellis, edge_map)

    def edge_scores(
        self, X: Any, n_jobs: int | None, linear: LinearModel | None = None
    ) -> Iterator[tuple[slice, Floats]]:
        """Yield edge scores of the rows of X, some rows at a time."""
        linear = self.linear if linear is None else linear
        features = engine_features(X, linear.intercept, linear.unit_length)
        for first in range(0, X.shape[0], _ROWS_AT_A_TIME):
            rows = slice(first, min(first + _ROWS_AT_A_TIME, X.shape[0]))
            yield rows, linear.edge_scores(features, first, rows.stop - first, n_jobs)

    def topk(
        self, X: Any, k: int, n_jobs: int | None, linear: LinearModel | None = None
    ) -> tuple[Ints, Floats]:
        """Return the ids and scores of the k best labels of every row, rescored if need be."""
        embedding = self.embedding
        if embedding is None:
            return self.candidates(X, k, n_jobs, linear)
        ids, scores = self.candidates(X, max(k, CANDIDATES), n_jobs, linear)
        features = embedding.engine_features(X)
        for first in range(0, len(ids), _ROWS_AT_A_TIME):
            some = slice(first, first + _ROWS_AT_A_TIME)
            vectors = embedding.row_vectors(features, first, len(ids[some]), n_jobs)
            embedding.rescore(vectors, ids[some], scores[some], n_jobs)
        return np.ascontiguousarray(ids[:, :k]), np.ascontiguousarray(scores[:, :k])

    def above(self, X: Any, threshold: float, k: int, n_jobs: int | None) -> tuple[Ints, Ints]:
        """Return the labels whose score reaches a threshold: how many in each row, and their ids.

        `k` is a guess of how many that will be; rows where it is too few are searched wider.
        """
        given: list[Ints] = [np.empty(0, np.int64)] * X.shape[0]
        rows = np.arange(X.shape[0])
        while len(rows):
            ids, scores = self.topk(X[rows], k, n_jobs)
            enough = scores >= threshold
            done = ~enough[:, -1] if k < len(self.labels) else np.ones(len(rows), bool)
            for i in np.flatnonzero(done):
                given[rows[i]] = ids[i][enough[i]]
            rows = rows[~done]
            k *= 4
        return np.array([len(each) for each in given], np.int64), np.concatenate(given)

    def candidates(
        self, X: Any, k: int, n_jobs: int | None, linear: LinearModel | None = None
    ) -> tuple[Ints, Floats]:
        """Return the ids and scores of the trellises' k best labels of every row."""
        linear = self.linear if linear is None else linear
        decoder = self.decoder(n_jobs)
        k = min(k, decoder.n_labels)
        ids = np.full((X.shape[0], k), -1, np.int64)
        scores = np.empty((X.shape[0], k), np.float32)
        if not decoder.needs_all(k):
            engine = decoder.predictor(linear, k)
            features = engine_features(X, linear.intercept, linear.unit_length)
            for first in range(0, len(ids), _ROWS_AT_A_TIME):
                some = slice(first, first + _ROWS_AT_A_TIME)
                engine.predict(features, first, ids[some], scores[some], threads(n_jobs))
        lacking = np.flatnonzero(ids[:, -1] < 0)
        rest = X if len(lacking) == len(ids) else X[lacking]
        for rows, h in self.edge_scores(rest, n_jobs, linear) if len(lacking) else ():
            ids[lacking[rows]], scores[lacking[rows]] = decoder.topk(h, k)
        return ids, scores

    def predictor(self, k: int) -> Predictor:
        """Return what answers single rows, as the model is now."""
        linear = self.linear if self.scoring is not None else self.linear.copy()
        books = [copy(book) for book in self.codebooks]
        decoder = Decoder(self.trellis, books, len(self.labels), self.loss)
        return Predictor(self.labels.array, decoder, linear, self.embedding, k)

    def precision(
        self, examples: Examples, rows: Ints, n_jobs: int | None, linear: LinearModel
    ) -> float:
        """Return how often the best label of a row is one of its own."""
        ids, _ = self.topk(examples.X[rows], 1, n_jobs, linear)
        return float(examples.contains(rows, ids).any(axis=1).mean())


FittedModel = Model  # temporary: the new name
