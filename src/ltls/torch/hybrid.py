"""Hybrids: the log-probabilities of candidates in several models, and the models' weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.arrays import AnyArray, Bools, Floats, Ints
from . import functional
from .adaptive_head import AdaptiveHead
from .head import TrellisSoftmax

_FLOOR = 1e-9  # the smallest probability that a part gives to a label
_LEAST = 1e-6  # the smallest weight: of labels that the head does not know, the others must decide
_STEPS = 10  # of the weights between 0 and 1
_BATCH = 1024


class HeadScores:
    """The labels that a head proposes for rows, and their log-probabilities."""

    def __init__(
        self, head: TrellisSoftmax | AdaptiveHead, vectors: AnyArray, multilabel: bool
    ) -> None:
        self._head, self._vectors, self._multilabel = head, vectors, multilabel

    @torch.no_grad()
    def _each(self, call: Callable[[Tensor, slice], Tensor]) -> AnyArray:
        found, weight = [], next(self._head.parameters())
        for first in range(0, len(self._vectors), _BATCH):
            some = slice(first, first + _BATCH)
            rows = torch.from_numpy(np.array(self._vectors[some], np.float32))
            with torch.cuda.device_of(weight):  # Triton uses the current device
                found.append(call(rows.to(weight.device), some).cpu().numpy())
        return np.concatenate(found)

    def best(self, k: int) -> Ints:
        """Return the k best labels of every row."""
        k = min(k, self._head.n_classes)
        found: Ints = self._each(lambda rows, _: self._head.topk(rows, k)[0])
        return found

    def log_proba(self, ids: Ints) -> Floats:
        """Return log-probabilities, NaN for labels that the head does not have.

        With loss="logistic" and several labels per row, they are not normalized over the labels.
        """
        head, known = self._head, (ids >= 0) & (ids < self._head.n_classes)

        def scores(rows: Tensor, some: slice) -> Tensor:
            labels = torch.from_numpy(np.where(known, ids, 0)[some]).to(rows.device)
            if isinstance(head, AdaptiveHead):
                return head.log_prob(rows, labels)
            if head.loss_name != "logistic" or not self._multilabel:
                return head.log_prob(rows, labels)
            g = functional.logistic_scores(head.edge_scores(rows)[:, 0], head.layout)
            return functional.path_scores(g, head.codebooks[0].path_of(labels), head.layout)

        found: Floats = np.maximum(self._each(scores), np.float32(np.log(_FLOOR)))
        return np.where(known, found, np.float32(np.nan))


class EstimatorScores:
    """The labels that an estimator proposes for rows; its labels are ids."""

    def __init__(self, estimator: Any, X: Any) -> None:
        self._rows, self._model = estimator._rows(X)
        self._ids = np.asarray(self._model.labels.values, np.int64)  # of its own ids
        self._n_jobs = estimator.n_jobs

    def best(self, k: int) -> Ints:
        """Return the k best labels of every row."""
        own = self._model.topk(self._rows, k, self._n_jobs)[0]
        found: Ints = np.where(own >= 0, self._ids[np.maximum(own, 0)], -1)
        return found

    def log_proba(self, ids: Ints) -> Floats:
        """Return log-probabilities of labels."""
        place = np.full(max(int(self._ids.max()), int(ids.max(initial=0))) + 1, -1, np.int64)
        place[self._ids] = np.arange(len(self._ids))
        own = np.where(ids >= 0, place[np.maximum(ids, 0)], -1)
        found = self._model.proba_of(self._rows, np.ascontiguousarray(own), self._n_jobs)
        logarithms: Floats = np.log(np.maximum(found, _FLOOR)).astype(np.float32)
        return logarithms


def known_weights(scores: dict[str, Floats], weights: dict[str, float]) -> dict[str, Floats]:
    """Return the weights of the parts for every candidate: of those that know it, they sum to 1."""
    own: dict[str, Floats] = {
        name: np.where(np.isnan(each), 0, max(weights[name], _LEAST)).astype(np.float32)
        for name, each in scores.items()
    }
    total = np.maximum(sum(own.values()), np.float32(_LEAST))
    return {name: np.divide(each, total, dtype=np.float32) for name, each in own.items()}


def weighted(scores: dict[str, Floats], weights: dict[str, float], ids: Ints) -> Floats:
    """Return the weighted mean of the parts' log-probabilities, −inf where there is no candidate.

    A part whose log-probability is NaN does not know the label, and does not count.
    """
    own = known_weights(scores, weights)
    total = sum(own[name] * np.nan_to_num(each) for name, each in scores.items())
    found: Floats = np.where(ids >= 0, total, np.float32(-np.inf))
    return found


def best_weights(scores: dict[str, Floats], hits: Bools, n_true: Ints) -> dict[str, float]:
    """Return the weights, which sum to 1, that rank the true labels of rows highest.

    The quality of a row is the mean of P@1 and of the share of at most 5 true labels among the
    first 5. Of equally good weights, the most even ones are taken.

    Parameters
    ----------
    scores : dict of str to array of shape (n_rows, m)
        Log-probabilities of candidates, by part.
    hits : bool array of shape (n_rows, m)
        Which candidates are true.
    n_true : int array of shape (n_rows,)
    """
    names, n = list(scores), len(scores)
    grid = [w for w in product(range(_STEPS + 1), repeat=n) if sum(w) == _STEPS]
    grid.sort(key=lambda weights: sum(w * w for w in weights))
    most = np.clip(n_true, 1, min(5, hits.shape[1]))
    found: tuple[float, tuple[int, ...]] = (-1.0, grid[0])
    for weights in grid:
        total = sum(w / _STEPS * scores[name] for w, name in zip(weights, names, strict=True))
        first = np.argsort(-np.asarray(total), axis=1, kind="stable")[:, :5]
        right = np.take_along_axis(hits, first, 1)
        quality = float((right[:, 0] + right.sum(axis=1) / most).mean())
        if quality > found[0]:
            found = quality, weights
    return {name: w / _STEPS for name, w in zip(names, found[1], strict=True)}
