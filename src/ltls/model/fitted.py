"""The fitted model: labels, structure, weights and rerankers, and how they predict."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..features.mapping import FeatureMap, used_features
from ..features.rows import engine_features
from ..features.scaling import Standardizer
from ..linear.squares import SquaresSketch
from ..linear.trainable import TrainableWeights
from ..linear.weights import AnyWeights
from ..structure.codebook import BucketCodebook, Codebook
from ..structure.losses import Loss
from ..structure.trellis import Trellis
from .calibration import Calibration
from .decoder import Decoder
from .embedding import Embedding
from .examples import Examples
from .label_weights import LabelWeights
from .labels import Labels
from .predictor import Predictor
from .propensity import PropensityReranker
from .reservoir import Reservoir
from .restricted import AllowedLabels, LabelScorer
from .topk import ROWS_PER_CALL, Reranker, TopK

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

_MAX_CELLS = 1 << 22  # rows × labels scored at a time, when only a few labels are needed
_FEW_CANDIDATES = 100  # of models without label weights, whose probabilities sum to 1
_MANY_LABELS = 10_000  # above it, the probabilities of a few labels are computed one by one


@dataclass
class FittedModel:
    """One or several trellises over the same features, their codebooks and weights, and rerankers.

    It owns everything that predicting needs; `ltls.storage` turns it into a file and back.

    Parameters
    ----------
    labels : Labels
    trellis : Trellis
        The graph; all trellises have the same.
    codebooks : list of Codebook
        One per trellis.
    loss : Loss
    l1 : float
        Soft threshold of the weights when they score.
    multilabel : bool
    target_format : str
        Format of multi-label predictions, see `labels.Targets.format`.
    typical_labels : int
        The 99th percentile of the number of labels per training row.
    trainable : TrainableWeights or None
        The state to continue training from; None for a model from a file.
    frozen : Weights, PrunedWeights or None
        Weights to predict with, if not those of `trainable`.
    embedding : Embedding or None
        Reranks the trellises' candidates.
    label_weights : LabelWeights or None
        Reranks them after that.
    propensity : float
        Labels are ranked by score − propensity · log of their propensities. Probabilities are not
        changed.
    calibration : Calibration or None
        Turns scores into probabilities.
    threshold : float or None
        Multi-label only: the score from which a label is predicted.
    loss_curve : list of float
        The mean loss of every epoch.
    n_epochs : int
        Passes over the data.
    n_rows : int
        Training rows.
    counts : array of shape (n_labels,), or None
        Training rows per label; None if unknown.
    zero_based : bool or None
        Whether the svmlight file it was trained on numbers features from 0, if known.
    columns : dict or None
        The columns of the table it was trained on, by their role.
    feature_map : FeatureMap or None
        The features that occur in training, if they are few of all. Rows are passed to the model
        as `compact` returns them.
    standardizer : Standardizer or None
        Of dense features; also applied by `compact`.
    reservoir : Reservoir or None
        Training rows to replay when the model is trained further.
    squares : SquaresSketch or None
        The optimizer's state, roughly, of a model from a file.
    density : float
        The fraction of its weights that a file holds.
    """

    labels: Labels
    trellis: Trellis
    codebooks: list[Codebook]
    loss: Loss
    l1: float
    multilabel: bool
    target_format: str
    typical_labels: int = 1
    trainable: TrainableWeights | None = None
    frozen: AnyWeights | None = None
    embedding: Embedding | None = None
    label_weights: LabelWeights | None = None
    propensity: float = 0.0
    calibration: Calibration | None = None
    threshold: float | None = None
    loss_curve: list[float] = field(default_factory=list)
    n_epochs: int = 0
    n_rows: int = 0
    counts: Ints | None = None
    zero_based: bool | None = None
    columns: dict[str, Any] | None = None
    feature_map: FeatureMap | None = None
    standardizer: Standardizer | None = None
    reservoir: Reservoir | None = None
    squares: SquaresSketch | None = None
    density: float = 1.0

    def __post_init__(self) -> None:
        if self.trellis.n_classes < len(self.labels) and not self.shares_paths:
            raise ValueError(
                f"the trellis must have a path for each of the {len(self.labels)} labels, "
                f"it has {self.trellis.n_classes}"
            )

    @property
    def weights(self) -> AnyWeights:
        """The weights to predict with."""
        if self.frozen is not None:
            return self.frozen
        assert self.trainable is not None
        return self.trainable.for_prediction(self.l1)

    @property
    def shares_paths(self) -> bool:
        """Whether labels are in buckets that share a path."""
        return isinstance(self.codebooks[0], BucketCodebook)

    @property
    def rerankers(self) -> list[Reranker]:
        """The parts that rerank the trellises' candidates, in this order."""
        bonus = self.bonus
        return self._scorers if bonus is None else [*self._scorers, PropensityReranker(bonus)]

    @property
    def bonus(self) -> Floats | None:
        """What propensities add to the score of every label; None if nothing."""
        if not self.propensity or self.counts is None:
            return None
        counts = np.pad(self.counts, (0, len(self.labels) - len(self.counts)))
        return PropensityReranker.of(self.propensity, counts, self.n_rows).bonus

    @property
    def _scorers(self) -> list[Reranker]:
        """The rerankers that have been trained, whose scores become probabilities."""
        return [part for part in (self.embedding, self.label_weights) if part is not None]

    @property
    def n_features(self) -> int:
        """The number of features, whether they occur in training or not."""
        return self.weights.n_features if self.feature_map is None else self.feature_map.n_features

    def compact(self, X: Any) -> Any:
        """Return rows with the features that the model has weights for, standardized if need be."""
        if self.standardizer is not None:
            return self.standardizer(X)
        return X if self.feature_map is None else self.feature_map.compact(X)

    def expand(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return one row per feature, given a row for each that the model has weights for."""
        return rows if self.feature_map is None else self.feature_map.expand(rows[:-1])

    @property
    def n_candidates(self) -> int:
        """Number of candidates for multi-label prediction."""
        return min(len(self.labels), 2 * self.typical_labels + 1)

    def decoder(self, n_jobs: int | None = None) -> Decoder:
        """Return the decoder of the model's trellises."""
        return Decoder(self.trellis, self.codebooks, len(self.labels), self.loss, n_jobs)

    # Growing

    def branch(self) -> FittedModel:
        """Return a model to train further, which shares labels, codebooks and weights with it.

        New labels and features change only the new model, and so does training after the weights
        have been unshared.
        """
        trainable = None if self.trainable is None else self.trainable.branch()
        return replace(self, trainable=trainable)

    def count(self, ids: Ints, n_rows: int) -> None:
        """Add training rows and their labels to the counts."""
        self.n_rows += n_rows
        counts = np.bincount(ids, minlength=len(self.labels))
        if self.counts is not None:
            counts[: len(self.counts)] += self.counts
        elif self.n_epochs:  # earlier rows were not counted
            return
        self.counts = counts

    def add_labels(self, labels: list[Hashable], paths: Ints | None = None) -> None:
        """Add new labels; the trellis grows until each can have a path.

        Old labels keep their paths and the weights of their edges. If the trellis cannot grow,
        neither does the model. If labels share paths, the trellis does not grow, and `paths` of
        shape (n_trellises, n_labels) are those of the new labels. What
        grows is copied: another model may share it (see `branch`).
        """
        assert self.trainable is not None
        if not labels:
            return
        trellis, growth = self.trellis, []
        while paths is None and trellis.n_classes < len(self.labels) + len(labels):
            trellis, edge_map = trellis.grow()
            growth.append((trellis, edge_map))
        self.labels = self.labels.extended(labels)
        if self.label_weights is not None:
            self.label_weights = self.label_weights.add_labels(len(labels))
        books = self.codebooks
        if paths is None:  # copies of tables
            self.codebooks = [book.grow(book.n_paths) for book in books]  # type: ignore[union-attr]
        else:
            pairs = zip(books, paths, strict=True)
            self.codebooks = [book.extend(new) for book, new in pairs]  # type: ignore[union-attr]
        for trellis, edge_map in growth:
            size = trellis.n_classes
            self.trellis = trellis
            self.codebooks = [book.grow(size) for book in self.codebooks]  # type: ignore[union-attr]
            self.trainable.grow(trellis, edge_map)

    def add_features(self, X: Any) -> None:
        """Add the features of rows that did not occur before, with weights of 0."""
        assert self.trainable is not None
        used = used_features(X)
        if self.feature_map is not None and used is not None:
            before = self.feature_map.n_columns
            self.feature_map = self.feature_map.extend(used)
            n_new = self.feature_map.n_columns - before
            self.trainable.add_features(n_new)
            if self.label_weights is not None:
                self.label_weights = self.label_weights.add_features(n_new)
            if self.reservoir is not None:
                self.reservoir = self.reservoir.add_features(n_new, before)

    # Predicting

    def edge_scores(
        self, X: Any, n_jobs: int | None, weights: AnyWeights | None = None
    ) -> Iterator[tuple[slice, Floats]]:
        """Yield the edge scores of the rows of X, a block of rows at a time."""
        weights = self.weights if weights is None else weights
        features = engine_features(X, weights.intercept, weights.unit_length)
        for first in range(0, X.shape[0], ROWS_PER_CALL):
            rows = slice(first, min(first + ROWS_PER_CALL, X.shape[0]))
            yield rows, weights.edge_scores(features, first, rows.stop - first, n_jobs)

    def topk(
        self, X: Any, k: int, n_jobs: int | None, weights: AnyWeights | None = None
    ) -> tuple[Ints, Floats]:
        """Return the ids and scores of the k best labels of every row, reranked."""
        return self._search(k, n_jobs, self.rerankers, weights)(X, n_jobs)

    def candidates(
        self, X: Any, k: int, n_jobs: int | None, weights: AnyWeights | None = None
    ) -> tuple[Ints, Floats]:
        """Return the ids and scores of the trellises' k best labels, not reranked."""
        return self.searcher(k, n_jobs, weights)(X, n_jobs)

    def searcher(self, k: int, n_jobs: int | None, weights: AnyWeights | None = None) -> TopK:
        """Return the search for the trellises' k best labels, to use for several batches."""
        return self._search(k, n_jobs, [], weights)

    def topk_among(
        self, X: Any, k: int, allowed: AllowedLabels | None, n_jobs: int | None
    ) -> tuple[Ints, Floats]:
        """Return the ids and scores of the k best of the allowed labels of every row, exactly.

        Rows with fewer end with −1 and −inf. None allows all labels, and is `topk`.
        """
        if allowed is None:
            return self.topk(X, k, n_jobs)
        k = min(k, int(allowed.sizes.max(initial=0)))
        found, scores = np.full((X.shape[0], k), -1), np.full((X.shape[0], k), -np.inf, np.float32)
        scorer = LabelScorer(self.weights, self.decoder(n_jobs), self.rerankers)
        for rows, ids in allowed.blocks(X.shape[0]):
            best, best_scores = scorer(X[rows], ids, n_jobs, k)
            found[rows, : best.shape[1]], scores[rows, : best.shape[1]] = best, best_scores
        return found, scores

    def above(self, X: Any, threshold: float, n_jobs: int | None) -> tuple[Ints, Ints]:
        """Return the number of labels per row whose score reaches a threshold, and their ids."""
        k = max(self.n_candidates, *(part.n_candidates for part in self.rerankers), 1)
        k = min(k, len(self.labels))
        found: list[Ints] = [np.empty(0, np.int64)] * X.shape[0]
        rows = np.arange(X.shape[0])
        while len(rows):
            ids, scores = self.topk(X[rows], k, n_jobs)
            reached = scores >= threshold
            done = ~reached[:, -1] if k < len(self.labels) else np.ones(len(rows), bool)
            for i in np.flatnonzero(done):
                found[rows[i]] = ids[i][reached[i]]
            rows = rows[~done]
            k *= 4
        return np.array([len(each) for each in found], np.int64), np.concatenate(found)

    def predictor(self, k: int) -> Predictor:
        """Return a low-latency predictor with a snapshot of the model."""
        books = [copy(book) for book in self.codebooks]
        decoder = replace(self.decoder(), codebooks=books)
        topk = TopK(self.weights, decoder, self.rerankers, k)
        return Predictor(self.labels.array, topk, self.feature_map or self.standardizer)

    def precision(
        self, examples: Examples, rows: Ints, n_jobs: int | None, weights: AnyWeights
    ) -> float:
        """Return P@1 on some rows."""
        ids, _ = self.topk(examples.X[rows], 1, n_jobs, weights)
        return float(examples.contains(rows, ids).any(axis=1).mean())

    # Scores and probabilities of all labels

    def all_scores(self, X: Any, n_jobs: int | None, reranked: bool = True) -> Floats:
        """Return the scores of all labels, shape (n_rows, n_labels)."""
        return self._all_scores(X, n_jobs, self.rerankers if reranked else [])

    def _all_scores(self, X: Any, n_jobs: int | None, rerankers: Sequence[Reranker]) -> Floats:
        """Return the scores of all labels by the trellises and some rerankers.

        Label weights are trained to rerank candidates. Other labels score at most as high as the
        lowest of these, so that the best label is the one that is predicted.
        """
        decoder = self.decoder(n_jobs)
        embedding = self.embedding if self.embedding in rerankers else None
        features = None if embedding is None else embedding.engine_features(X)
        scores = np.empty((X.shape[0], len(self.labels)), np.float32)
        for rows, h in self.edge_scores(X, n_jobs):
            scores[rows] = decoder.all_scores(h)
            if embedding is not None and features is not None:
                vectors = embedding.row_vectors(features, rows.start, len(h), n_jobs)
                scores[rows] += embedding.all_scores(vectors)
        limited = [part for part in rerankers if part.for_candidates_only]
        if limited:
            ids = np.tile(np.arange(len(self.labels)), (len(scores), 1))
            for part in limited:
                part.rerank(X, ids, scores, n_jobs)
            by_label = np.empty_like(scores)
            np.put_along_axis(by_label, ids, scores, axis=1)
            n_candidates = max(part.n_candidates for part in rerankers)
            candidates, _ = self.candidates(X, n_candidates, n_jobs)
            theirs = np.take_along_axis(by_label, candidates, axis=1)
            scores = np.minimum(by_label, theirs.min(axis=1, keepdims=True))
            np.put_along_axis(scores, candidates, theirs, axis=1)
        return scores

    def best_scores(self, X: Any, k: int, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return the k best labels of every row and the scores that probabilities depend on."""
        return self._search(k, n_jobs, self._scorers)(X, n_jobs)

    def calibrated_scores(self, X: Any, n_jobs: int | None) -> Floats:
        """Return the scores of all labels that probabilities depend on: without propensities."""
        return self._all_scores(X, n_jobs, self._scorers)

    def to_proba(self, scores: Floats) -> Floats:
        """Return the probabilities of labels with these scores, a row of them for every row.

        Without a calibration, scores are log-probabilities: means over the trellises and the
        embedding if there are no label weights. Those of one label per row are up to a constant.
        """
        calibration = self.calibration
        if calibration is not None:
            return calibration(scores)
        if self.loss.independent_edges and self.multilabel:
            divisor = len(self.codebooks) if self.label_weights is None else 1
            proba: Floats = np.exp(np.minimum(scores / np.float32(divisor), 0))
            return proba
        usual = 1.0
        if self.label_weights is None and self.embedding is not None:
            usual /= len(self.codebooks) + self.embedding.weight
        return Calibration(False, usual)(scores)

    def proba(self, X: Any, n_jobs: int | None) -> Floats:
        """Return the probabilities of all labels, shape (n_rows, n_labels)."""
        if not self._in_log_time:
            return self.to_proba(self._all_scores(X, n_jobs, self._proba_parts))
        decoder = self.decoder(n_jobs)
        scores = [decoder.all_log_proba(h) for _, h in self.edge_scores(X, n_jobs)]
        return Calibration(False)(np.concatenate(scores))

    @property
    def _proba_parts(self) -> list[Reranker]:
        """The rerankers that probabilities depend on."""
        independent = self.loss.independent_edges and self.multilabel
        only_trellises = independent and self.calibration is None and self.label_weights is None
        return [] if only_trellises else self._scorers

    @property
    def _in_log_time(self) -> bool:
        """Whether probabilities are means over the trellises, which take O(log C) for a label.

        That is so if there is nothing but trellises.
        """
        return self.loss.normalized and self.calibration is None and not self._scorers

    def log_proba(self, X: Any, ids: Ints, n_jobs: int | None) -> Floats:
        """Return log-probabilities of labels in O(log C) each; `ids` has one or more per row.

        If labels share paths, the trellises cannot tell them apart, and all labels are scored; so
        they are for a calibrated model.
        """
        if self.shares_paths or self.calibration is not None:
            columns = ids.reshape(len(ids), -1)
            with np.errstate(divide="ignore"):
                chosen = np.take_along_axis(self.proba(X, n_jobs), columns, axis=1)
                return np.log(chosen).reshape(ids.shape)
        decoder, columns = self.decoder(n_jobs), ids.reshape(len(ids), -1)
        found = np.empty(columns.shape, np.float32)
        for rows, h in self.edge_scores(X, n_jobs):
            for column in range(columns.shape[1]):
                found[rows, column] = decoder.log_proba(h, columns[rows, column])
        return found.reshape(ids.shape)

    def proba_of(self, X: Any, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the probabilities of the labels `ids` of every row, an array like `ids`.

        If labels are many, those that are no candidates have probability 0.
        """
        n_labels = len(self.labels)
        if self._in_log_time and n_labels > _MANY_LABELS:
            return np.exp(self.log_proba(X, ids, n_jobs))
        calibrated = self.label_weights is not None or self.calibration is not None
        if calibrated and n_labels > _MANY_LABELS:
            return self._proba_of_candidates(X, ids, n_jobs)
        found = np.empty(ids.shape, np.float32)
        step = max(1, _MAX_CELLS // n_labels)
        for first in range(0, len(ids), step):
            some = slice(first, first + step)
            found[some] = np.take_along_axis(self.proba(X[some], n_jobs), ids[some], axis=1)
        return found

    def proba_among(
        self, X: Any, ids: Ints, allowed: AllowedLabels | None, n_jobs: int | None
    ) -> Floats:
        """Return the probabilities of `ids`, given that the label is one of those allowed.

        None allows all labels, and is `proba_of`.
        """
        if allowed is None:
            return self.proba_of(X, ids, n_jobs)
        found = np.zeros(ids.shape, np.float32)
        scorer = LabelScorer(self.weights, self.decoder(n_jobs), self._proba_parts)
        for rows, some in allowed.blocks(X.shape[0]):
            if not some.shape[1]:
                continue  # no row of the block has allowed labels
            if self._in_log_time:
                h = next(self.edge_scores(X[rows], n_jobs))[1]
                scores = scorer.decoder.log_proba_of(h, some)
            else:
                some, scores = scorer(X[rows], some, n_jobs)
            scores = np.where((some < 0).all(axis=1, keepdims=True), 0, scores)
            to_proba = Calibration(False) if self._in_log_time else self.to_proba
            row = len(self.labels) * np.arange(len(some))[:, None]
            keys = np.where(some < 0, -1, some + row).reshape(-1)
            order = np.argsort(keys)
            place = order[np.searchsorted(keys, ids[rows] + row, sorter=order) % len(order)]
            chosen = to_proba(scores).reshape(-1)[place]
            found[rows] = np.where(ids[rows] < 0, 0, chosen)
        return found

    def _proba_of_candidates(self, X: Any, ids: Ints, n_jobs: int | None) -> Floats:
        n = _FEW_CANDIDATES if self.label_weights is None else self.label_weights.n_candidates
        found, scores = self.best_scores(X, max(n, ids.shape[1]), n_jobs)
        scores = self.to_proba(scores)
        order = np.argsort(found, axis=1)
        probabilities = np.zeros(ids.shape, np.float32)
        for row, wanted in enumerate(ids):
            place = np.searchsorted(found[row], wanted, sorter=order[row])
            place = order[row][np.minimum(place, found.shape[1] - 1)]
            probabilities[row] = np.where(found[row, place] == wanted, scores[row, place], 0)
        return probabilities

    def _search(
        self,
        k: int,
        n_jobs: int | None,
        rerankers: Sequence[Reranker],
        weights: AnyWeights | None = None,
    ) -> TopK:
        weights = self.weights if weights is None else weights
        return TopK(weights, self.decoder(n_jobs), rerankers, k)
