"""Explanations: what every feature of a row adds to the score of a label, exactly.

A model is a sum of parts, and every part is linear in the features before its own formula is
applied: a trellis adds up the edges of the label's path, label weights are a linear classifier, an
embedding is an inner product. The contributions of a part, feature value times weight, and its
intercept add up to its linear score; a part's formula turns that into the part's score; the scores
of all parts add up to the score of the label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..linear.weights import AnyWeights
from .embedding import Embedding
from .fitted import FittedModel
from .label_weights import LabelWeights

Ints: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]

_FEATURES_PER_BLOCK = 4096


@dataclass(frozen=True)
class Edge:
    """An edge of a label's path: its number, the vertices it connects, and its score."""

    edge: int
    tail: int
    head: int
    score: float


@dataclass(frozen=True, eq=False)
class PartExplanation:
    """What one part of a model says about a label.

    Parameters
    ----------
    name : str
        "trellis 1", …, "label weights" or "embedding".
    weight : float
        The weight of the part in the score of the label. Contributions, intercept and scores are
        multiplied by it.
    contributions : float64 array, one per feature of the explanation
    intercept : float
    score : float
        What the part adds to the score of the label.
    formula : str
        How `score` follows from the linear score and the numbers in `terms`.
    terms : dict of str to float
    path : int or None
        The label's path, for a trellis.
    edges : list of Edge
        The edges of that path.
    """

    name: str
    weight: float
    contributions: Doubles
    intercept: float
    score: float
    formula: str
    terms: dict[str, float] = field(default_factory=dict)
    path: int | None = None
    edges: list[Edge] = field(default_factory=list)

    @property
    def linear_score(self) -> float:
        """The sum of contributions and intercept."""
        return math.fsum([*self.contributions.tolist(), self.intercept])


@dataclass(frozen=True, eq=False)
class LabelExplanation:
    """Why a label has its score for a row.

    Parameters
    ----------
    label : int
        The id of the label.
    score : float
    features : int64 array
        The features of the row, in the order of all contributions.
    parts : list of PartExplanation
    offset : float
        What the score has beyond the sum of its parts: the bonus of a rare label, or the limit of
        a label that is no candidate.
    formula : str
        How `score` follows from the scores of the parts.
    probability : float or None
        None if the loss has no probabilities.
    """

    label: int
    score: float
    features: Ints
    parts: list[PartExplanation]
    offset: float
    formula: str
    probability: float | None = None

    @property
    def contributions(self) -> Doubles:
        """What every feature adds to `linear_score`, over all parts."""
        total: Doubles = np.sum([part.contributions for part in self.parts], axis=0)
        return total

    @property
    def intercept(self) -> float:
        """The sum of the intercepts of all parts."""
        return math.fsum(part.intercept for part in self.parts)

    @property
    def linear_score(self) -> float:
        """The sum of the linear scores of all parts."""
        return math.fsum(part.linear_score for part in self.parts)


def explain_row(
    model: FittedModel, X: Any, labels: Ints, n_jobs: int | None
) -> list[LabelExplanation]:
    """Explain the scores of some labels for the only row of X, as `compact` returns it.

    It takes O(nnz · log C) for every label.
    """
    features, values = _features_of(X)
    row = _Row(model, features, _scaled(values, model.weights))
    found = [_explain(row, int(label)) for label in labels]
    limited = [part for part in model.rerankers if part.for_candidates_only]
    if limited:
        ids, scores = model.topk(X, max(part.n_candidates for part in limited), n_jobs)
        known = set(ids[0].tolist())
        lowest = float(scores[0].min())
        found = [each if each.label in known else _below(each, lowest) for each in found]
    if model.loss.probabilistic:
        proba = model.proba_of(X, labels[None, :], n_jobs)[0].tolist()
        found = [replace(each, probability=p) for each, p in zip(found, proba, strict=True)]
    return found


def explain_label(model: FittedModel, label: int) -> LabelExplanation:
    """Return what a value of 1 of every feature adds to the linear score of a label.

    The scores are those of a row without features.
    """
    n = model.weights.n_features - (model.feature_map is not None)
    every = _explain(_Row(model, np.arange(n), np.ones(n)), label)
    none = _explain(_Row(model, np.empty(0, np.int64), np.empty(0)), label)
    parts = [
        replace(part, contributions=own.contributions)
        for part, own in zip(none.parts, every.parts, strict=True)
    ]
    return replace(none, features=every.features, parts=parts)


class _Row:
    """The features of a row, and their weights in all trellises, for any label."""

    def __init__(self, model: FittedModel, features: Ints, values: Doubles) -> None:
        self.model, self.features, self.values = model, features, values
        weights = model.weights
        # Few rows of W are kept for the next label.
        self._kept = [weights.rows(features)] if len(features) <= _FEATURES_PER_BLOCK else None
        self.intercept = np.zeros(weights.stride)
        if weights.intercept:
            self.intercept += weights.rows(np.array([weights.n_features]))[0]
        self.h = self.intercept.copy()
        for some, W in self._blocks():
            self.h += values[some] @ W

    def weights_of_edges(self, columns: Ints) -> Doubles:
        """Return the sum of the weights of some edges, for every feature."""
        sums = [W[:, columns].sum(axis=1, dtype=np.float64) for _, W in self._blocks()]
        return np.concatenate([np.empty(0), *sums])

    def _blocks(self) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        for number, some in enumerate(_blocks(len(self.features))):
            weights = self.model.weights
            yield some, self._kept[number] if self._kept else weights.rows(self.features[some])


def _features_of(X: Any) -> tuple[Ints, Doubles]:
    """Return the features of a row that are not 0, and their values."""
    if X.shape[0] != 1:
        raise ValueError(f"X must be one row, got {X.shape[0]}")
    row = X.indices if hasattr(X, "indptr") else np.flatnonzero(X[0])
    values = X.data if hasattr(X, "indptr") else X[0][row]
    return np.asarray(row, np.int64), np.asarray(values, np.float64)


def _scaled(values: Doubles, weights: AnyWeights) -> Doubles:
    length = np.linalg.norm(values)
    return values / length if weights.unit_length and length > 0 else values


def _explain(row: _Row, label: int) -> LabelExplanation:
    model = row.model
    weight = 1.0 if model.label_weights is None else model.label_weights.weight
    parts = [_of_trellis(row, number, weight, label) for number in range(len(model.codebooks))]
    if model.embedding is not None:
        parts.append(_of_embedding(row, model.embedding, weight, label))
    if model.label_weights is not None:
        parts.append(_of_label_weights(row, model.label_weights, label))
    bonus = float(model.bonus[label]) if model.bonus is not None else 0.0
    formula = "score = sum of the scores of all parts"
    if bonus:
        formula += f" + {bonus:.6g} since the label is rare (propensity={model.propensity:g})"
    score = math.fsum([*(part.score for part in parts), bonus])
    return LabelExplanation(label, score, row.features, parts, bonus, formula)


def _below(explanation: LabelExplanation, lowest: float) -> LabelExplanation:
    """Limit the score of a label that is no candidate."""
    if explanation.score <= lowest:
        return explanation
    offset = explanation.offset + lowest - explanation.score
    formula = (
        f"score = {lowest:.6g}, that of the last candidate, since the trellises do not find the "
        "label among their candidates"
    )
    return replace(explanation, score=lowest, offset=offset, formula=formula)


def _of_trellis(row: _Row, number: int, weight: float, label: int) -> PartExplanation:
    model, trellis = row.model, row.model.trellis
    path = int(model.codebooks[number].path_of(np.array([label]))[0])
    edges = trellis.path_edges(path)
    first = number * (model.weights.stride // model.weights.n_trellises)
    h = row.h[first : first + trellis.n_edges]
    scores = h[None, :].astype(np.float32)
    linear, terms = float(h[edges].sum()), {}
    if model.loss.normalized:
        terms["log_partition"] = float(trellis.log_partition(scores)[0])
        own = linear - terms["log_partition"]
        formula = "linear_score − weight · log_partition"
    elif model.loss.independent_edges:
        g = model.decoder().decode_scores(scores)
        own = float(trellis.score(g, np.array([path]))[0])
        formula = "weight · sum of log σ(edge score) over the edges of the path"
        terms["log_sigma"] = float(-np.logaddexp(0, -h[edges]).sum())
        if abs(own - terms["log_sigma"]) > 1e-4 * max(1, abs(own)):
            # A path that leaves early is credited with the best edges of the slices that it skips.
            terms["skipped_slices"] = own - terms["log_sigma"]
            formula += ", and over the best edges of the slices that the path skips"
    else:
        own, formula = linear, "linear_score"
    ends = trellis.edges[edges].tolist()
    return PartExplanation(
        f"trellis {number + 1}",
        weight,
        weight * row.values * row.weights_of_edges(first + edges),
        weight * float(row.intercept[first + edges].sum()),
        weight * own,
        formula,
        terms,
        path,
        [
            Edge(edge, tail, head, float(h[edge]))
            for edge, (tail, head) in zip(edges.tolist(), ends, strict=True)
        ],
    )


def _of_embedding(row: _Row, embedding: Embedding, weight: float, label: int) -> PartExplanation:
    weight *= embedding.weight
    vector = embedding.labels[label, : embedding.dim].astype(np.float64)
    sums = [
        embedding.features.rows(row.features[some])[:, : embedding.dim] @ vector
        for some in _blocks(len(row.features))
    ]
    contributions = weight * row.values * np.concatenate([np.empty(0), *sums])
    bias = weight * float(embedding.labels[label, embedding.dim])
    score = math.fsum([*contributions.tolist(), bias])
    return PartExplanation("embedding", weight, contributions, bias, score, "linear_score")


def _of_label_weights(row: _Row, weights: LabelWeights, label: int) -> PartExplanation:
    contributions = row.values * weights.of_label(label, row.features)
    intercept = float(weights.of_label(label, np.array([len(weights.scales) - 1]))[0])
    linear = math.fsum([*contributions.tolist(), intercept])
    return PartExplanation(
        "label weights",
        1.0,
        contributions,
        intercept,
        -(max(0.0, 1.0 - linear) ** 3),
        "−max(0, 1 − linear_score)³",
    )


def _blocks(n: int) -> list[slice]:
    return [slice(at, at + _FEATURES_PER_BLOCK) for at in range(0, n, _FEATURES_PER_BLOCK)]
