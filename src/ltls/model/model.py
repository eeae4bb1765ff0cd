"""The model: the only place where parts are combined; and what it was trained on.

Parts propose candidates, and all parts score all candidates; the score of a label is the weighted
sum. A model is immutable, so that threads always see a consistent one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core import _engine
from ..core.arrays import AnyArray, Floats, Ints, Tensors, smallest
from ..core.caching import cached_property
from ..core.declarations import Array, Described
from ..features.front_ends import FrontEnd
from ..features.rows import Columns, Rows
from ..parts.calibration import Calibrator
from ..parts.memory import StoredRows
from ..parts.trellis_training import TrellisTraining
from ..parts.trellises import TrellisPart
from .among import AllowedLabels
from .labels import Labels

FEW_LABELS = 2048  # all of them are scored, whatever parts propose
CANDIDATES = 50  # proposed by every part
ROWS_PER_BLOCK = 512
_MAX_CELLS = 1 << 20  # rows × labels scored at a time
_ROOM = 4.0  # range below the candidates into which higher scores of other labels are mapped
_TINY = 1e-60  # below all positive probabilities
MOST_ROWS = 2**53  # training rows, and passes over them
_COLUMNS = {"text": str, "label": str, "separator": str, "features": list}


@dataclass(frozen=True, eq=False)
class Model:
    """Labels, a front end, weighted parts, and how scores become predictions.

    Parameters
    ----------
    labels : Labels
    front_end : FrontEnd
        Turns inputs into features.
    columns : Columns
        Turns features into rows.
    parts : tuple of Part
    weights : tuple of float
        Weights of the parts.
    multilabel : bool
        Whether rows may have several labels.
    target_format : str
        Format of the training targets, see `Targets.format`.
    probabilistic : bool
        Whether there are probabilities.
    calibration : Calibrator
    typical_labels : int
        The 99th percentile of the number of labels per training row.
    memory : StoredRows or None
        Training rows, for neighbours and for replay in further training.
    held_out_precision : float or None
        P@1 on the held-out rows that weights were chosen on; in a file, part of `Provenance`.
    """

    labels: Labels
    front_end: FrontEnd
    columns: Columns
    parts: tuple[Any, ...]
    weights: tuple[float, ...]
    multilabel: bool
    target_format: str
    probabilistic: bool
    calibration: Calibrator
    typical_labels: int = 1
    memory: StoredRows | None = None
    held_out_precision: float | None = None

    @cached_property
    def n_labels(self) -> int:
        """The number of labels."""
        return len(self.labels)

    @cached_property
    def classes(self) -> AnyArray:
        """The labels as an array; see `Labels.array`."""
        return self.labels.array

    def part(self, name: str) -> Any:
        """Return the part with a name, None if there is none."""
        return next((part for part in self.parts if part.name == name), None)

    def trellises(self) -> list[TrellisPart]:
        """Return the trellises of the model, one part per view."""
        found: list[TrellisPart] = next(
            part.trellis_parts() for part in self.parts if hasattr(part, "trellis_parts")
        )
        return found

    @property
    def needed_rows(self) -> StoredRows | None:
        """The stored training rows that predictions depend on, None if they depend on none."""
        parts = (part for part in self.parts if getattr(part, "needs_memory", False))
        return next((part.memory for part in parts if part.memory is not None), None)

    def with_parts(self, parts: Sequence[Any], **changes: Any) -> Model:
        """Return the model with other parts and the same weights."""
        return replace(self, parts=tuple(parts), **changes)

    def with_threshold(self, threshold: float) -> Model:
        """Return the model with another threshold, for several labels per row."""
        return replace(self, calibration=replace(self.calibration, threshold=threshold))

    def keeping(self, keep: Callable[[Any], bool]) -> Model:
        """Return the model with only the parts for which `keep` is true."""
        kept = [number for number, part in enumerate(self.parts) if keep(part)]
        parts, weights = ([each[n] for n in kept] for each in (self.parts, self.weights))
        return replace(self, parts=tuple(parts), weights=tuple(weights))

    # Scores

    def candidates(self, rows: Rows, n_jobs: int | None) -> Ints:
        """Return the labels that are scored for every row, padded with −1."""
        if self.n_labels <= FEW_LABELS:
            return np.tile(np.arange(self.n_labels), (len(rows), 1))
        n = min(CANDIDATES, self.n_labels)
        first, last = self._proposers
        known = united([part.candidates(rows, n, n_jobs) for part in first])
        if not last:
            return known
        return united([known, *(part.candidates(rows, n, n_jobs, known) for part in last)])

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None, ranking: bool = True) -> Floats:
        """Return the scores of labels, an array like `ids`, −inf for −1.

        Without `ranking`, return the scores that probabilities are computed from.
        """
        total = np.zeros(ids.shape, np.float32)
        for part, weight, ranks_only in self._scorers:
            if ranking or not ranks_only:
                scores = part.score(rows, ids, n_jobs)
                total += scores if weight == 1 else np.float32(weight) * scores
        total[ids < 0] = -np.inf
        return total

    def _scored(self, rows: Rows, n_jobs: int | None, ranking: bool = True) -> tuple[Ints, Floats]:
        ids = self.candidates(rows, n_jobs)
        return ids, self.score(rows, ids, n_jobs, ranking)

    def blocks(self, rows: Rows, n_labels: int = 1) -> Iterator[tuple[slice, Rows]]:
        """Yield blocks of rows, for scoring `n_labels` labels per row."""
        step = max(1, min(ROWS_PER_BLOCK, _MAX_CELLS // max(n_labels, 1)))
        if len(rows) <= step:
            yield slice(0, len(rows)), rows
            return
        for first in range(0, len(rows), step):
            some = slice(first, min(first + step, len(rows)))
            yield some, rows[some]

    @cached_property
    def _proposers(self) -> tuple[list[Any], list[Any]]:
        """The parts that propose candidates; and those that also take the candidates of others."""
        parts = [part for part in self.parts if hasattr(part, "candidates")]
        last = [part for part in parts if getattr(part, "takes_known", False)]
        return [part for part in parts if part not in last], last

    @cached_property
    def _scorers(self) -> list[tuple[Any, float, bool]]:
        """The parts that score labels, their weights, and whether probabilities leave them out."""
        pairs = zip(self.parts, self.weights, strict=True)
        return [
            (part, weight, getattr(part, "ranks_only", False))
            for part, weight in pairs
            if hasattr(part, "score")
        ]

    @cached_property
    def _alone(self) -> Any:
        """The only part, if it can find the best labels by itself, else None."""
        only = len(self.parts) == 1 and self.weights[0] == 1 and hasattr(self.parts[0], "topk")
        return self.parts[0] if only else None

    # The best labels

    def topk(self, rows: Rows, k: int, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return the ids and scores of the k best labels of every row, best first."""
        k = min(k, self.n_labels)
        alone = self._alone
        shape = (len(rows), k)
        found, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        n_labels = min(self.n_labels, FEW_LABELS)
        for some, block in self.blocks(rows, n_labels):
            if alone is not None:
                found[some], scores[some] = alone.topk(block, k, n_jobs)
                continue
            ids, theirs = self._scored(block, n_jobs)
            _engine.select(ids, theirs, found[some], scores[some])
            self._fill(block, ids, found[some], scores[some], n_jobs)
        return found, scores

    def _fill(self, rows: Rows, ids: Ints, found: Ints, scores: Floats, n_jobs: int | None) -> None:
        """Complete the best labels of rows that have fewer candidates, in place."""
        lacking = np.flatnonzero(found[:, -1] < 0)
        for row in lacking.tolist():
            every = np.arange(self.n_labels)[None]
            limited = self._limited(rows[np.array([row])], every, n_jobs, ids[[row]])
            limited[0, found[row][found[row] >= 0]] = np.inf  # keep their places
            order = np.argsort(-limited[0], kind="stable")[: found.shape[1]]
            n_known = int((found[row] >= 0).sum())
            found[row, n_known:] = order[n_known:]
            scores[row, n_known:] = limited[0][order[n_known:]]

    def _limited(
        self,
        rows: Rows,
        ids: Ints,
        n_jobs: int | None,
        known: Ints | None = None,
        ranking: bool = True,
    ) -> Floats:
        """Return the scores of any labels; those of candidates are always higher than others.

        A label that no part proposes never ranks above a candidate. Among themselves, such labels
        rank by their own scores.
        """
        scores = self.score(rows, ids, n_jobs, ranking)
        limit = self.limit_of_others(rows, n_jobs, known, ranking)
        if limit is None:
            return scores
        known, most = limit
        inside = np.empty(ids.shape, np.float32)
        _engine.look_up(ids, known, np.ones(known.shape, np.float32), 0.0, inside)
        return np.where(inside > 0, scores, below(scores, most))

    def limit_of_others(
        self, rows: Rows, n_jobs: int | None, known: Ints | None = None, ranking: bool = True
    ) -> tuple[Ints, Floats] | None:
        """Return the candidates, and the highest score that all other labels of a row may have.

        None if no label is limited.
        """
        if self.n_labels <= FEW_LABELS or self._alone is not None:
            return None
        if known is None:
            known = self.candidates(rows, n_jobs)
        scores = self.score(rows, known, n_jobs, ranking)
        scores[known < 0] = np.inf
        most: Floats = np.nextafter(scores.min(axis=1, keepdims=True), np.float32(-np.inf))
        return known, most

    def all_scores(self, rows: Rows, n_jobs: int | None) -> Floats:
        """Return the scores of all labels, shape (n_rows, n_labels)."""
        scores = np.empty((len(rows), self.n_labels), np.float32)
        for some, block in self.blocks(rows, self.n_labels):
            every = np.tile(np.arange(self.n_labels), (len(block), 1))
            scores[some] = self._limited(block, every, n_jobs)
        return scores

    def topk_among(
        self, rows: Rows, k: int, allowed: AllowedLabels | None, n_jobs: int | None
    ) -> tuple[Ints, Floats]:
        """Return the ids and scores of the k best of the allowed labels of every row, exactly.

        Rows with fewer labels are padded with −1 and −inf. With None, all labels are allowed, as in
        `topk`.
        """
        if allowed is None:
            return self.topk(rows, k, n_jobs)
        k = min(k, int(allowed.sizes.max(initial=0)))
        found = np.full((len(rows), k), -1)
        scores = np.full((len(rows), k), -np.inf, np.float32)
        for some, block in self.blocks(rows, int(allowed.sizes.max(initial=1))):
            ids = allowed.of_rows(some)
            theirs = self._limited(block, ids, n_jobs)
            _engine.select(ids, theirs, found[some], scores[some])
        return found, scores

    def above(self, rows: Rows, threshold: float, n_jobs: int | None) -> tuple[Ints, Ints]:
        """Return the number of labels per row whose score reaches a threshold, and their ids."""
        k = min(max(2 * self.typical_labels + 1, 16), self.n_labels)
        found: list[Ints] = [np.empty(0, np.int64)] * len(rows)
        left = np.arange(len(rows))
        while len(left):
            ids, scores = self.topk(rows if len(left) == len(rows) else rows[left], k, n_jobs)
            reached = scores >= threshold
            done = ~reached[:, -1] if k < self.n_labels else np.ones(len(left), bool)
            for i in np.flatnonzero(done):
                found[left[i]] = ids[i][reached[i]]
            left = left[~done]
            k = min(4 * k, self.n_labels)
        return np.array([len(each) for each in found], np.int64), np.concatenate(found)

    # Probabilities

    def proba(self, rows: Rows, n_jobs: int | None) -> Floats:
        """Return the probabilities of all labels, shape (n_rows, n_labels)."""
        n_labels = self.n_labels
        found = np.empty((len(rows), n_labels), np.float32)
        for some, block in self.blocks(rows, n_labels):
            ids, scores = self._scored(block, n_jobs, ranking=False)
            proba = self.calibration.of_candidates(scores)
            if n_labels <= FEW_LABELS:
                found[some] = proba
                continue
            dense = np.empty((len(block), n_labels + 1), np.float32)  # the last column is for −1
            dense[:] = self._of_others(ids)
            np.put_along_axis(dense, ids, proba, axis=1)
            found[some] = dense[:, :-1]
        return found

    def proba_of(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the probabilities of the labels `ids` of every row, an array like `ids`."""
        found = np.empty(ids.shape, np.float32)
        for some, block in self.blocks(rows, min(self.n_labels, FEW_LABELS)):
            known, scores = self._scored(block, n_jobs, ranking=False)
            wanted = np.ascontiguousarray(ids[some])
            proba = self.calibration.of_candidates(scores)
            _engine.look_up(wanted, known, proba, -1.0, found[some])
            found[some] = np.where(found[some] < 0, self._of_others(known), found[some])
        found[ids < 0] = 0
        return found

    def _of_others(self, ids: Ints) -> Floats:
        """Return the probability of a label that is not among the candidates of a row."""
        return self.calibration.of_others(self.n_labels - (ids >= 0).sum(axis=1, keepdims=True))

    def proba_among(
        self, rows: Rows, ids: Ints, allowed: AllowedLabels | None, n_jobs: int | None
    ) -> Floats:
        """Return the probabilities of `ids`, given that the label is one of those allowed.

        With several labels per row, which are independent, these are the results of `proba_of`.
        With one label per row, those are divided by their sum over the allowed labels; allowed
        labels that are not candidates divide their total in proportion to their scores.
        """
        if allowed is None or self.multilabel:
            return self.proba_of(rows, ids, n_jobs)
        found = np.zeros(ids.shape, np.float32)
        for some, block in self.blocks(rows, int(allowed.sizes.max(initial=1))):
            among = allowed.of_rows(some)
            if among.shape[1]:  # else no row of the block has allowed labels
                proba = self._conditional(block, among, n_jobs)
                _engine.look_up(np.ascontiguousarray(ids[some]), among, proba, 0.0, found[some])
        return found

    def _conditional(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the probabilities of labels, given that one of them is the label of the row."""
        known, scores = self._scored(rows, n_jobs, ranking=False)
        candidates = np.empty(ids.shape, np.float32)
        _engine.look_up(ids, known, self.calibration.of_candidates(scores), -1.0, candidates)
        theirs = self._limited(rows, ids, n_jobs, known, ranking=False)
        theirs[(ids < 0).all(axis=1)] = 0
        by_score = np.where(ids < 0, 0, self.calibration(theirs)).astype(np.float64)
        others = np.where(candidates < 0, by_score, 0)
        n_others = ((candidates < 0) & (ids >= 0)).sum(axis=1, keepdims=True)
        share = self._of_others(known) * n_others / np.maximum(others.sum(axis=1), _TINY)[:, None]
        # If none of them has a probability, only scores are left to tell them apart.
        proba = np.maximum(candidates, 0) + share * others + _TINY * by_score
        proba /= np.maximum(proba.sum(axis=1, keepdims=True), _TINY**2)
        found: Floats = proba.astype(np.float32)
        return found


def below(scores: Floats, most: Floats) -> Floats:
    """Return scores in the same order, all of them at most `most`.

    Scores that are lower by at least _ROOM do not change.
    """
    excess = np.maximum(scores.astype(np.float64) - most + _ROOM, 0)
    squeezed = (most - _ROOM**2 / (_ROOM + excess)).astype(np.float32)
    found: Floats = np.where(excess > 0, np.minimum(squeezed, most), scores)
    return found


def united(proposed: list[Ints]) -> Ints:
    """Return the distinct labels of every row, padded with −1; a part may repeat labels."""
    ids = np.empty((len(proposed[0]), sum(each.shape[1] for each in proposed)), np.int64)
    most = _engine.unite(proposed, ids)
    return np.ascontiguousarray(ids[:, :most])


# What it was trained on


@dataclass(frozen=True)
class Provenance:
    """What a model was trained on, and how.

    Parameters
    ----------
    n_rows : int
        Training rows.
    counts : array of shape (n_labels,)
        Training rows per label.
    loss_curve : list of float
        The mean loss of every epoch.
    n_epochs : int
        Passes over the data.
    recipe : str
        The plan and the reasons for it, as in `LTLSClassifier.plan_`.
    columns : dict or None
        The columns of the training table by role (text, label, features), and the separator.
    zero_based : bool or None
        Whether feature indices start at 0 in the svmlight file it was trained on, if known.
    held_out_precision : float or None
        P@1 on the rows that were held out to choose the weights of the parts, if there were any.
    """

    n_rows: int
    counts: Ints
    loss_curve: list[float] = field(default_factory=list)
    n_epochs: int = 0
    recipe: str = ""
    columns: dict[str, Any] | None = None
    zero_based: bool | None = None
    held_out_precision: float | None = None

    def facts(self) -> dict[str, Any]:
        """Return all but the counts, JSON-serializable."""
        return {name: value for name, value in vars(self).items() if name != "counts"}

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        return self.facts(), {"counts": smallest(self.counts)}

    @classmethod
    def from_state(cls, section: Described, n_labels: int) -> Provenance:
        """Restore provenance from its `state`."""
        n_rows = section.integer("n_rows", 0, MOST_ROWS)
        declared = {"counts": Array("uint", ("n_labels",), high="n_rows")}
        counts = section.tensors(declared, {"n_labels": n_labels, "n_rows": n_rows})["counts"]
        return cls(
            n_rows,
            counts.astype(np.int64),
            section.numbers("loss_curve"),
            section.integer("n_epochs", 0, MOST_ROWS),
            section.get("recipe", "a text", lambda v: isinstance(v, str)),
            section.get("columns", "columns of a table or null", _are_columns),
            section.get("zero_based", "true, false or null", lambda v: v in (True, False, None)),
            section.get(
                "held_out_precision",
                "a number from 0 to 1 or null",
                lambda v: v is None or (isinstance(v, float) and 0 <= v <= 1),
            ),
        )


def _are_columns(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and all(
        name in _COLUMNS
        and (each is None or isinstance(each, _COLUMNS[name]))
        and (not isinstance(each, list) or all(isinstance(column, str) for column in each))
        for name, each in value.items()
    )


@dataclass(frozen=True)
class Fitted:
    """A model, and the state from which it is trained further.

    Parameters
    ----------
    model : Model
    provenance : Provenance
    training : TrellisTraining or None
        The weights of the trellises in full precision; None for a model from a file.
    further : dict of str to (dict, dict)
        For a model from a file, its sections for further training: an approximate optimizer state,
        or weights and optimizer state in full precision.
    """

    model: Model
    provenance: Provenance
    training: TrellisTraining | None = None
    further: dict[str, tuple[dict[str, Any], Tensors]] = field(default_factory=dict)

    def sections(self, complete: bool) -> dict[str, tuple[dict[str, Any], Tensors]]:
        """Return the sections for further training; with `complete`, those of a resumable file."""
        found = self.further if self.training is None else self.training.sections()
        return {name: each for name, each in found.items() if complete or name != "resume"}

    def without_rows(self) -> Fitted:
        """Return the model without training rows, for ``memory=False``."""
        for part in self.model.parts:
            if getattr(part, "needs_memory", False):
                raise ValueError(
                    f"memory=False: the model has {part.name}, which need training rows; fit "
                    f"again with {part.name}=False"
                )
        return replace(self, model=replace(self.model, memory=None))
