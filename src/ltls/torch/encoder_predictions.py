"""What `EncoderClassifier` predicts: the candidates of its parts, ranked by their weighted mean."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

from ..core.arrays import AnyArray, Bools, Floats, Ints, as_integer, pointers
from ..estimators.classifier import LTLSClassifier
from ..estimators.explain import Explanation
from ..model.examples import subset_accuracy
from ..model.labels import Labels, Targets, as_targets
from ..model.model import united
from .devices import as_device, enough_memory
from .encoding import Encoder
from .head_files import Head
from .hybrid import EstimatorScores, HeadScores, known_weights, weighted

_CANDIDATES = 50  # of every part
_MAX_CELLS = 1 << 28  # of a dense result


@dataclass(frozen=True)
class PartScore:
    """The log-probability of a label in one stage of an `EncoderClassifier`.

    Parameters
    ----------
    part : {"head", "vectors", "text"}
        The stage.
    weight : float
        The weight of the stage in the score of the label.
    log_probability : float
    """

    part: str
    weight: float
    log_probability: float


@dataclass(frozen=True)
class EncoderExplanation:
    """Why a label has its score for a row.

    Parameters
    ----------
    label : object
    score : float
        As from `EncoderClassifier.predict_topk`: the sum of weight · log_probability over the
        parts.
    parts : list of PartScore
        One per stage. A label that `partial_fit` has added is unknown to the head, which is then
        left out.
    text : Explanation or None
        What every word adds to the score of the part "text"; None if there is no such part.
    """

    label: Any
    score: float
    parts: list[PartScore]
    text: Explanation | None


@dataclass(frozen=True)
class Ranking:
    """The candidates of rows, best first, and their log-probabilities in each part.

    Parameters
    ----------
    ids : int64 array of shape (n_rows, m)
        −1 where a row has fewer candidates.
    scores : float32 array of shape (n_rows, m)
    parts : dict of str to array of shape (n_rows, m)
        Log-probabilities.
    """

    ids: Ints
    scores: Floats
    parts: dict[str, Floats]


class EncoderPredictions:
    """The predicting half of `EncoderClassifier`."""

    device: Any
    batch_size: int
    mixed_precision: str
    text: Any
    encoder_: Encoder
    head_: Head | None
    vectors_: LTLSClassifier | None
    text_: LTLSClassifier | None
    labels_: Labels
    weights_: dict[str, float]
    _targets: Targets
    _threshold: float

    @property
    def classes_(self) -> AnyArray:
        """The labels."""
        self._check_fitted()
        return self.labels_.array

    @property
    def threshold_(self) -> float:
        """Multi-label only: `predict` returns labels that score at least this much; can be set."""
        self._check_fitted()
        return self._threshold

    @threshold_.setter
    def threshold_(self, threshold: float) -> None:
        self._threshold = float(threshold)

    def __sklearn_is_fitted__(self) -> bool:
        return "weights_" in self.__dict__

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this EncoderClassifier is not fitted yet: call fit first")

    def encode(self, X: Any) -> Floats:
        """Return the vectors of rows, shape (n_rows, n_features)."""
        self._check_fitted()
        X = as_rows(X, self.encoder_.tokenizer, self.text, training=False)
        device = as_device(self.device)
        less = f"use a smaller batch_size than {self.batch_size}, or a smaller max_length"
        with enough_memory("encoding", device, less):
            out = np.empty((len(X), self.encoder_.size(X[0], device)), np.float32)
            self.encoder_.vectors(X, self.batch_size, device, out, self.mixed_precision)
        return out

    def _parts(self) -> dict[str, Any]:
        """Return the parts by name."""
        found = {"head": self.head_, "vectors": self.vectors_, "text": self.text_}
        return {name: part for name, part in found.items() if part is not None}

    def _candidates(self, X: Any, vectors: AnyArray) -> tuple[Ints, dict[str, Floats]]:
        """Return the candidates of all parts, padded with −1, and each part's log-probabilities."""
        scorers: dict[str, Any] = {
            name: HeadScores(part, vectors, self._targets.multilabel)
            if name == "head"
            else EstimatorScores(part, X if name == "text" else vectors)
            for name, part in self._parts().items()
        }
        k = min(_CANDIDATES, len(self.labels_))
        ids = united([each.best(k) for each in scorers.values()])
        return ids, {name: each.log_proba(ids) for name, each in scorers.items()}

    def _ranking(self, X: Any) -> Ranking:
        """Return the candidates of rows, best first."""
        self._check_fitted()
        X = as_rows(X, self.encoder_.tokenizer, self.text, training=False)
        needs = self.vectors_ is not None or self.head_ is not None
        vectors = self.encode(X) if needs else np.zeros((len(X), 0), np.float32)
        ids, parts = self._candidates(X, vectors)
        scores = weighted(parts, self.weights_, ids)
        order = np.argsort(-scores, axis=1, kind="stable")
        return Ranking(
            np.take_along_axis(ids, order, axis=1),
            np.take_along_axis(scores, order, axis=1),
            {name: np.take_along_axis(each, order, axis=1) for name, each in parts.items()},
        )

    def predict_topk(self, X: Any, k: int = 5, proba: bool = False) -> tuple[AnyArray, Floats]:
        """Return the k best labels of every row and their scores, best first.

        Parameters
        ----------
        X
            As in `fit`.
        k : int, default=5
            At most the number of candidates: 50 of each part.
        proba : bool, default=False
            Return probabilities instead of scores, see `predict_proba`.

        Returns
        -------
        labels, scores : arrays of shape (n_rows, k)
            None with score −inf, or probability 0, where a row has fewer candidates.
        """
        k, ranking = as_integer("k", k, at_least=1), self._ranking(X)
        ids, scores = ranking.ids[:, :k], ranking.scores
        labels = self.labels_.array[np.maximum(ids, 0)]
        if (ids < 0).any():
            labels = labels.astype(object)
            labels[ids < 0] = None
        return labels, (self._proba(scores) if proba else scores)[:, :k]

    def _proba(self, scores: Floats) -> Floats:
        """Return probabilities; those of one label per row sum to 1 over all candidates."""
        if self._targets.multilabel:
            return np.exp(np.minimum(scores, 0))
        exponents = np.exp(scores - scores[:, :1])
        found: Floats = exponents / exponents.sum(axis=1, keepdims=True)
        return found

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of all labels, shape (n_rows, n_classes).

        They are the weighted geometric means of the parts' probabilities; for one label per row,
        normalized over the candidates. All other labels have probability 0.
        """
        ranking, n_labels = self._ranking(X), len(self.labels_)
        if len(ranking.ids) * n_labels > _MAX_CELLS:
            raise ValueError(
                f"predict_proba would return {len(ranking.ids)} rows × {n_labels} classes; use "
                "predict_topk, or fewer rows"
            )
        found = np.zeros((len(ranking.ids), n_labels), np.float32)
        row, column = np.nonzero(ranking.ids >= 0)
        found[row, ranking.ids[row, column]] = self._proba(ranking.scores)[row, column]
        return found

    def predict(self, X: Any) -> Any:
        """Return the best label of every row.

        For several labels per row, those with a score of at least `threshold_`: as lists if `fit`
        was given lists, else as an indicator matrix.
        """
        ranking = self._ranking(X)
        if not self._targets.multilabel:
            return self.labels_.array[ranking.ids[:, 0]]
        chosen = self._chosen(ranking)
        ids, indptr = ranking.ids[chosen], pointers(chosen.sum(axis=1))
        if self._targets.format == "lists":
            labels = [self.labels_.values[each] for each in ids]
            return [labels[first:end] for first, end in pairwise(indptr.tolist())]
        # `partial_fit` may have added columns.
        shape = (len(chosen), len(self.labels_))
        matrix = csr_array((np.ones(len(ids), np.int64), ids, indptr), shape=shape)
        matrix.sort_indices()
        return matrix if self._targets.format == "sparse" else matrix.toarray()

    def _chosen(self, ranking: Ranking) -> Bools:
        """Return which candidates are predicted for several labels per row."""
        return (ranking.ids >= 0) & (ranking.scores >= self._threshold)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`; for several labels per row, the subset accuracy.

        Parameters
        ----------
        X, y
            As in `fit`. Labels may be unknown.
        sample_weight : array of shape (n_rows,), optional
            Weights of the rows.
        """
        self._check_fitted()
        X = as_rows(X, self.encoder_.tokenizer, self.text, training=False)
        targets = as_targets(y)
        targets.check_rows(len(X))
        targets.check_kind(self._targets.multilabel)
        ranking = self._ranking(X)
        several = self._targets.multilabel
        found = np.where(self._chosen(ranking), ranking.ids, -1) if several else ranking.ids[:, :1]
        return subset_accuracy(self.labels_, targets, found, sample_weight)

    def explain(self, X: Any, k: int = 5) -> list[list[EncoderExplanation]]:
        """Explain the k best labels of every row by their log-probabilities in each stage.

        Parameters
        ----------
        X
            As in `fit`.
        k : int, default=5

        Returns
        -------
        list of list of EncoderExplanation
            One list per row, with an explanation for each label, best first.
        """
        self._check_fitted()
        X = as_rows(X, self.encoder_.tokenizer, self.text, training=False)
        k, ranking = as_integer("k", k, at_least=1), self._ranking(X)
        weights = known_weights(ranking.parts, self.weights_)
        found = []
        for row, own in enumerate(ranking.ids[:, :k]):
            ids = own[own >= 0]
            words: list[Any] = [None] * len(ids)
            if self.text_ is not None:
                explained = self.text_.explain([X[row]], labels=ids.tolist())[0]
                by_label = {each.label: each for each in explained}
                words = [by_label[each] for each in ids.tolist()]
            found.append(
                [
                    EncoderExplanation(
                        self.labels_.values[each],
                        float(ranking.scores[row, at]),
                        [
                            PartScore(name, float(weight[row, at]), float(logarithms[row, at]))
                            for name, logarithms in ranking.parts.items()
                            if (weight := weights[name])[row, at]
                        ],
                        words[at],
                    )
                    for at, each in enumerate(ids)
                ]
            )
        return found


def as_rows(X: Any, tokenizer: Any, text: Any, training: bool = True) -> Any:
    """Return texts as a list, or rows as they are; empty texts can only be predicted."""
    if isinstance(X, str) or not hasattr(X, "__len__"):
        kind = "texts" if tokenizer is not None or text else "rows"
        raise TypeError(f"X must be a list or array of {kind}, got {type(X).__name__}: pass [x]")
    if not len(X):
        raise ValueError("X must have at least one row, got none")
    if tokenizer is None and not text:
        return X
    texts = list(X)
    for number, each in enumerate(texts):
        if not isinstance(each, str):
            hint = "" if tokenizer is not None else "; other rows need text=False"
            raise TypeError(f"X must be texts, got {type(each).__name__} as X[{number}]{hint}")
        if training and not each.strip():
            raise ValueError(f"X must be texts to learn from, got an empty one as X[{number}]")
    return texts
