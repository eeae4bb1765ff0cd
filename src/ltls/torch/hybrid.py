"""Hybrids: the stages of an `EncoderClassifier`, which are the only part of its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core.arrays import AnyArray, Floats, Ints
from ..estimators.classifier import LTLSClassifier
from ..model.examples import Examples
from ..model.labels import Labels
from ..model.model import CANDIDATES, Model, united
from ..parts.calibration import Calibrator, best_threshold
from . import functional
from .adaptive_head import AdaptiveHead
from .head_files import Head
from .stage_weights import best_weights

_FLOOR = 1e-9  # the smallest probability that a stage gives to a label
_LEAST = 1e-6  # the smallest weight: of labels that the head does not know, the others must decide
_BATCH = 1024


class HeadStage:
    """The labels that a head proposes for vectors, and their log-probabilities."""

    def __init__(self, head: Head, multilabel: bool) -> None:
        self.trained, self._multilabel = head, multilabel

    @torch.no_grad()
    def _each(self, vectors: AnyArray, call: Callable[[Tensor, slice], Tensor]) -> AnyArray:
        found, weight = [], next(self.trained.parameters())
        for first in range(0, len(vectors), _BATCH):
            some = slice(first, first + _BATCH)
            rows = torch.from_numpy(np.array(vectors[some], np.float32))
            with torch.cuda.device_of(weight):  # Triton uses the current device
                found.append(call(rows.to(weight.device), some).cpu().numpy())
        return np.concatenate(found)

    def rows(self, texts: Any, vectors: AnyArray) -> AnyArray:
        """Return rows in the form that this stage takes."""
        return vectors

    def best(self, vectors: AnyArray, k: int) -> Ints:
        """Return the k best labels of every row."""
        k = min(k, self.trained.n_classes)
        found: Ints = self._each(vectors, lambda rows, _: self.trained.topk(rows, k)[0])
        return found

    def log_proba(self, vectors: AnyArray, ids: Ints) -> Floats:
        """Return log-probabilities, NaN for labels that the head does not have.

        With loss="logistic" and several labels per row, they are not normalized over the labels.
        """
        head, known = self.trained, (ids >= 0) & (ids < self.trained.n_classes)

        def scores(rows: Tensor, some: slice) -> Tensor:
            labels = torch.from_numpy(np.where(known, ids, 0)[some]).to(rows.device)
            if isinstance(head, AdaptiveHead):
                return head.log_prob(rows, labels)
            if head.loss_name != "logistic" or not self._multilabel:
                return head.log_prob(rows, labels)
            g = functional.logistic_scores(head.edge_scores(rows)[:, 0], head.layout)
            return functional.path_scores(g, head.codebooks[0].path_of(labels), head.layout)

        found: Floats = np.maximum(self._each(vectors, scores), np.float32(np.log(_FLOOR)))
        return np.where(known, found, np.float32(np.nan))


class EstimatorStage:
    """The labels that an estimator proposes for texts or vectors; its labels are ids."""

    def __init__(self, estimator: LTLSClassifier, takes_texts: bool) -> None:
        self.trained, self._takes_texts = estimator, takes_texts
        self._ids = np.asarray(estimator.model_.labels.values, np.int64)  # of its own ids

    def rows(self, texts: Any, vectors: AnyArray) -> Any:
        """Return rows in the form that this stage takes."""
        return self.trained._rows(texts if self._takes_texts else vectors)[0]

    def best(self, rows: Any, k: int) -> Ints:
        """Return the k best labels of every row."""
        own = self.trained.model_.topk(rows, k, self.trained.n_jobs)[0]
        found: Ints = np.where(own >= 0, self._ids[np.maximum(own, 0)], -1)
        return found

    def log_proba(self, rows: Any, ids: Ints) -> Floats:
        """Return log-probabilities of labels."""
        place = np.full(max(int(self._ids.max()), int(ids.max(initial=0))) + 1, -1, np.int64)
        place[self._ids] = np.arange(len(self._ids))
        own = np.ascontiguousarray(np.where(ids >= 0, place[np.maximum(ids, 0)], -1))
        found = self.trained.model_.proba_of(rows, own, self.trained.n_jobs)
        logarithms: Floats = np.log(np.maximum(found, _FLOOR)).astype(np.float32)
        return logarithms


@dataclass(frozen=True, eq=False)
class StageRows:
    """Rows in the form that each stage takes, by the name of the stage."""

    of: dict[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.of.values())))

    def __getitem__(self, some: slice | Ints) -> StageRows:
        """Return some of the rows."""
        return StageRows({name: rows[some] for name, rows in self.of.items()})


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages of an `EncoderClassifier`, the only part of its model.

    The score of a label is the weighted mean of its log-probabilities. It is one part, and not one
    per stage: a stage that does not know a label does not count for it.

    Parameters
    ----------
    by_name : dict of str to HeadStage or EstimatorStage
    weights : dict of str to float
        They sum to 1.
    """

    name: ClassVar[str] = "stages"

    by_name: dict[str, HeadStage | EstimatorStage]
    weights: dict[str, float]

    @classmethod
    def of(
        cls,
        head: Head | None,
        vectors: LTLSClassifier | None,
        text: LTLSClassifier | None,
        multilabel: bool,
        weights: dict[str, float] | None = None,
    ) -> Stages:
        """Return those stages that are not None, by default with equal weights."""
        found: dict[str, HeadStage | EstimatorStage] = {}
        if head is not None:
            found["head"] = HeadStage(head, multilabel)
        for name, estimator in (("vectors", vectors), ("text", text)):
            if estimator is not None:
                found[name] = EstimatorStage(estimator, takes_texts=name == "text")
        return cls(found, weights or dict.fromkeys(found, 1 / len(found)))

    def trained(self, name: str) -> Any:
        """Return the head or the estimator of a stage, None if there is no such stage."""
        return self.by_name[name].trained if name in self.by_name else None

    def rows(self, texts: Any, vectors: AnyArray) -> StageRows:
        """Return rows in the form that the stages take."""
        return StageRows({name: each.rows(texts, vectors) for name, each in self.by_name.items()})

    def candidates(self, rows: StageRows, n: int, n_jobs: int | None) -> Ints:
        """Return n labels of every stage, padded with −1."""
        return united([each.best(rows.of[name], n) for name, each in self.by_name.items()])

    def log_probas(self, rows: StageRows, ids: Ints) -> dict[str, Floats]:
        """Return the log-probabilities of labels in every stage, NaN for unknown labels."""
        return {name: each.log_proba(rows.of[name], ids) for name, each in self.by_name.items()}

    def known_weights(self, log_probas: dict[str, Floats]) -> dict[str, Floats]:
        """Return the weights of the stages that know a label, which sum to 1."""
        own: dict[str, Floats] = {
            name: np.where(np.isnan(each), 0, max(self.weights[name], _LEAST)).astype(np.float32)
            for name, each in log_probas.items()
        }
        total = np.maximum(sum(own.values()), np.float32(_LEAST))
        return {name: np.divide(each, total, dtype=np.float32) for name, each in own.items()}

    def score(self, rows: StageRows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the scores of labels: weighted means of their log-probabilities."""
        return self.weighted(self.log_probas(rows, ids))

    def weighted(self, log_probas: dict[str, Floats]) -> Floats:
        """Return the weighted means of log-probabilities, among the stages that know a label."""
        weights = self.known_weights(log_probas)
        total: Any = sum(weights[name] * np.nan_to_num(log_probas[name]) for name in weights)
        found: Floats = total
        return found

    def chosen(
        self, examples: Examples, vectors: AnyArray
    ) -> tuple[dict[str, float], float | None]:
        """Return the best weights of the stages, and the best threshold, on held-out rows."""
        several = examples.multilabel
        if not len(examples):
            return self.weights, float(np.log(0.5)) if several else None
        rows = self.rows(examples.rows, vectors)
        ids = self.candidates(rows, CANDIDATES, None)
        log_probas, hits = self.log_probas(rows, ids), examples.contains(ids)
        n_true = np.diff(examples.indptr)
        weights = best_weights(log_probas, hits, n_true)
        if not several:
            return weights, None
        scores = Stages(self.by_name, weights).weighted(log_probas)
        scores[ids < 0] = -np.inf
        return weights, best_threshold(scores, hits, int(n_true.sum()))

    def model(
        self, labels: Labels, calibration: Calibrator, target_format: str, typical_labels: int
    ) -> Model:
        """Return a model of these stages, whose rows come from `rows`."""
        unused: Any = None
        return Model(
            labels,
            front_end=unused,
            columns=unused,
            parts=(self,),
            weights=(1.0,),
            multilabel=target_format != "single",
            target_format=target_format,
            probabilistic=True,
            calibration=calibration,
            typical_labels=typical_labels,
        )
