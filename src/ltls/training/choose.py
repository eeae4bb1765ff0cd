"""The choice on held-out rows: weights of the parts, propensity, calibration and threshold.

All are chosen from one table: the candidates of every held-out row, what each part says of them,
and which of them are true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core import _engine
from ..core.arrays import Bools, Doubles, Floats, Ints
from ..core.settings import AUTO
from ..model.model import FEW_LABELS, Model
from ..parts.base import can
from ..parts.calibration import Calibrator, best_threshold
from ..parts.propensity import propensities_of
from .data import Examples
from .recipes import Plan

_TOP = 5
_TRELLIS_WEIGHTS = (0.5, 0.25, 1.0, 2.0, 4.0)  # beside label weights, the usual one first
_WEAK_TRELLIS_WEIGHTS = (0.1, 0.01, 0.3, 1.0)  # beside a label matrix
_ROUNDS = 2
_NEW = 2.0  # standard errors that a part must be better by, to be added
_MAX_CELLS = 1 << 24  # rows × candidates of the table


@dataclass
class Column:
    """What a part says of the candidates, for every weight and variant that is tried."""

    options: list[tuple[Any, float]]  # a part and its weight, the usual one first
    scores: dict[int, Floats]  # by part


class Table:
    """The candidates of held-out rows, and what the parts of a model say of them.

    Parameters
    ----------
    model : Model
        Not trained on the rows. All of its parts propose candidates.
    examples : Examples
    """

    def __init__(self, model: Model, examples: Examples, n_jobs: int | None) -> None:
        n_labels = len(model.labels)
        most = max(_MAX_CELLS // min(n_labels, FEW_LABELS), 1)
        if len(examples) > most:
            examples = examples.take(np.arange(len(examples))[:: -(-len(examples) // most)])
        self.model, self.examples, self.n_jobs = model, examples, n_jobs
        self.blocks = list(model.blocks(examples.rows))
        parts = [model.candidates(rows, n_jobs) for _, rows in self.blocks]
        self.ids = _padded(parts)
        self.hits = examples.contains(self.ids)
        self.n_true = np.diff(examples.indptr)

    def scores(self, part: Any) -> Floats:
        """Return what a part says of all candidates."""
        found = np.empty(self.ids.shape, np.float32)
        for some, rows in self.blocks:
            found[some] = part.score(rows, np.ascontiguousarray(self.ids[some]), self.n_jobs)
        return found

    def best(self, scores: Floats) -> tuple[Ints, Bools]:
        """Return the best labels of every row, and which of them are true."""
        shape = (len(self.ids), min(_TOP, self.ids.shape[1]))
        best, theirs = np.empty(shape, np.int64), np.empty(shape, np.float32)
        _engine.select(self.ids, scores, best, theirs)
        hits = np.empty(shape, np.float32)
        _engine.look_up(best, self.ids, self.hits.astype(np.float32), 0.0, hits)
        return best, hits > 0

    def quality(self, scores: Floats) -> Doubles:
        """Return P@1 + recall@5 of every row."""
        hits = self.best(scores)[1]
        found: Doubles = hits[:, 0] + hits.sum(axis=1) / np.clip(self.n_true, 1, _TOP)
        return found

    @property
    def missed(self) -> float:
        """How many true labels of a row are not among its candidates, on average."""
        return float((self.n_true - self.hits.sum(axis=1)).mean())


def choose(
    model: Model, plan: Plan, examples: Examples, counts: Ints, n_rows: int, n_jobs: int | None
) -> Model:
    """Return the model with weights, calibration and threshold chosen on held-out rows.

    Parts whose weight would be 0 are left out. Another weight than the usual one must be better by
    more than a standard error, and a part that is added by two.
    """
    table = Table(model, examples, n_jobs)
    columns = [
        _column(table, part, plan, weight)
        for part, weight in zip(model.parts, model.weights, strict=True)
    ]
    chosen = [column.options[0] for column in columns]

    def total(options: list[tuple[Any, float]], ranking: bool = True) -> Floats:
        sums = np.zeros(table.ids.shape, np.float32)
        for column, (part, weight) in zip(columns, options, strict=True):
            if weight and (ranking or not getattr(part, "ranks_only", False)):
                sums += np.float32(weight) * column.scores[id(part)]
        sums[table.ids < 0] = -np.inf
        return sums

    quality = table.quality(total(chosen))
    for _ in range(_ROUNDS):
        before = list(chosen)
        for number, column in enumerate(columns):
            if getattr(model.parts[number], "ranks_only", False):
                continue
            for option in column.options:
                if option == chosen[number]:
                    continue
                other = [*chosen[:number], option, *chosen[number + 1 :]]
                found = table.quality(total(other))
                gain, error = found - quality, (found - quality).std() / np.sqrt(len(found))
                # A part that is not there costs time and space: it has to be worth it.
                if gain.mean() > error * (_NEW if chosen[number][1] == 0 else 1):
                    chosen, quality = other, found
        if chosen == before:
            break
    for number, column in enumerate(columns):
        if len(column.options) > 1 and getattr(model.parts[number], "ranks_only", False):
            chosen[number] = _strength(table, column, total, chosen, number, counts, n_rows)
    kept = [(part, weight) for part, weight in chosen if weight]
    changes: dict[str, Any] = {}
    if plan.calibrate:
        scores = total(chosen, ranking=False)
        calibration = Calibrator.fit(scores, table.hits, model.multilabel)
        if calibration is not None:
            missed = table.missed if len(model.labels) > FEW_LABELS else 0.0
            changes |= {"calibration": calibration, "missed": missed}
    if model.multilabel:
        n_true = int(table.n_true.sum())
        changes["threshold"] = best_threshold(total(chosen), table.hits, n_true)
    parts, weights = zip(*kept, strict=True)
    return replace(model, parts=parts, weights=weights, **changes)


def _column(table: Table, part: Any, plan: Plan, weight: float) -> Column:
    """Return what a part says, for every option that is tried."""
    options = [(part, weight)]
    grid = getattr(part, "grid", ())
    asked = plan.parts.get(part.name)
    if part.name in plan.parts and grid and not _is_given(asked, part):
        options = [(part, 0.0), *((part, each) for each in grid)]
        if part.name in plan.asked_for:
            del options[0]
        if part.name in plan.asked_for or (part.name == "prototypes" and plan.few_rows):
            options.sort(key=lambda option: option[1] != 1)  # it is expected to help
    elif part.name == "trellises" and plan.reranks:
        options = [(part, each / len(part.codebooks)) for each in _trellis_weights(plan)]
    elif can(part, "variants"):
        options += [(variant, weight) for variant in part.variants()]
    distinct = {id(each): each for each, _ in options}
    return Column(options, {key: table.scores(each) for key, each in distinct.items()})


def _is_given(asked: Any, part: Any) -> bool:
    """Return whether the weight of a part is given, as the strength of a propensity can be."""
    return getattr(asked, "strength", AUTO) != AUTO


def _strength(
    table: Table,
    column: Column,
    total: Any,
    chosen: list[Any],
    number: int,
    counts: Ints,
    n_rows: int,
) -> tuple[Any, float]:
    """Return the strength that finds the most true labels, weighted by rarity.

    That is propensity-scored precision at 5. A strength that loses more than a standard error of
    P@1 is not considered.
    """
    rarity = 1 / propensities_of(counts, max(n_rows, 1))
    best = column.options[0]
    most = precision = None
    for option in column.options:
        ids, hits = table.best(total([*chosen[:number], option, *chosen[number + 1 :]]))
        found, first = float((hits * rarity[ids]).sum()), hits[:, 0].astype(float)
        if most is None:
            most, precision = found, first
            continue
        change = first - precision
        if change.mean() < -change.std() / np.sqrt(len(change)):
            break
        if found > most:
            most, best = found, option
    return best


def _padded(parts: list[Ints]) -> Ints:
    """Join matrices of labels, whose rows are padded with −1."""
    ids = np.full((sum(map(len, parts)), max(part.shape[1] for part in parts)), -1, np.int64)
    first = 0
    for part in parts:
        ids[first : first + len(part), : part.shape[1]] = part
        first += len(part)
    return ids


def _trellis_weights(plan: Plan) -> tuple[float, ...]:
    return _TRELLIS_WEIGHTS if plan.label_matrix is None else _WEAK_TRELLIS_WEIGHTS


def usual_weights(parts: list[Any], plan: Plan) -> Iterator[float]:
    """Yield the weights of parts that were not chosen."""
    for part in parts:
        if part.name == "trellises" and plan.reranks:
            yield _trellis_weights(plan)[0] / len(part.codebooks)
        elif part.name == "propensity":
            strength = getattr(plan.parts.get(part.name), "strength", 0.0)
            yield 0.0 if strength == AUTO else float(strength)
        else:
            yield 1.0
