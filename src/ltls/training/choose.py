"""Choices on held-out rows: weights of the parts, calibration, threshold, and what fits a budget.

A model starts with default weights. Others are chosen from one table: the candidates of every
held-out row, their scores in each part, and which of them are true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core import _engine
from ..core.arrays import Bools, Doubles, Floats, Ints
from ..features.rows import Rows
from ..model.examples import Examples
from ..model.model import FEW_LABELS, Fitted, Model, Provenance, united
from ..parts.calibration import Calibrator, best_threshold
from ..storage.budget import within_budget
from .recipes import Plan

_TOP = 5
_ROUNDS = 2
_FEWEST = 20  # rows needed to choose weights other than the defaults
_NEW = 2.0  # standard errors by which adding a part must improve the ranking
_MAX_CELLS = 1 << 24  # rows × candidates of the table
_BEST = 32  # labels of each part in the table, if all labels are candidates
_MAX_CALIBRATED = 1 << 20  # rows × labels for calibration, if all labels are candidates


@dataclass
class Column:
    """The scores of the candidates in a part, for every weight and variant to try."""

    options: list[tuple[Any, float]]  # a part and its weight, the default first
    scores: dict[int, Floats]  # by part


class ScoreTable:
    """The candidates of held-out rows, and their scores in the parts of a model.

    Parameters
    ----------
    model : Model
        Not trained on the rows. All of its parts propose candidates; if all labels are candidates,
        each part contributes those that it scores highest.
    plan : Plan
        Says which weights to try.
    examples : Examples
    """

    def __init__(self, model: Model, plan: Plan, examples: Examples, n_jobs: int | None) -> None:
        n_labels = len(model.labels)
        most = max(_MAX_CELLS // min(n_labels, FEW_LABELS), 1)
        if len(examples) > most:
            examples = examples.take(np.arange(len(examples))[:: -(-len(examples) // most)])
        self.model, self.examples, self.n_jobs = model, examples, n_jobs
        self._blocks = list(model.blocks(examples.rows))
        self.without_rows = None  # which candidates remain if no training rows are kept
        smaller = _without_rows(model)
        if smaller is not model and n_labels > FEW_LABELS:
            known = _padded([smaller.candidates(rows, n_jobs) for _, rows in self._blocks])
        self.ids = _padded([self._candidates(rows) for _, rows in self._blocks])
        if smaller is not model and n_labels > FEW_LABELS:
            found = np.empty(self.ids.shape, np.float32)
            _engine.look_up(self.ids, known, np.ones(known.shape, np.float32), 0.0, found)
            self.without_rows = found > 0
        self.hits = examples.contains(self.ids)
        self.n_true = np.diff(examples.indptr)
        self.weights = examples.row_weights().astype(np.float64)
        self.weights /= max(float(self.weights.mean()), 1e-300)
        self.columns = [self._column(part, plan) for part in model.parts]
        self._blocks.clear()  # and what parts have memoized

    def _candidates(self, rows: Rows) -> Ints:
        ids, found = self.model.candidates(rows, self.n_jobs), []
        if ids.shape[1] <= 2 * _BEST or len(self.model.labels) > FEW_LABELS:
            return ids
        for part in self.model.parts:
            if hasattr(part, "score"):
                best = np.empty((len(ids), _BEST), np.int64)
                scores = part.score(rows, ids, self.n_jobs)
                _engine.select(ids, scores, best, np.empty(best.shape, np.float32))
                found.append(best)
        return united(found)

    def _column(self, part: Any, plan: Plan) -> Column:
        """Return the scores in a part, for every option to try."""
        weights = plan.weights_to_try(part)
        options = [(part, weight) for weight in weights]
        if hasattr(part, "variants"):
            options += [(variant, weights[0]) for variant in part.variants()]
        distinct = {id(each): each for each, _ in options}
        return Column(options, {key: self.scores(each) for key, each in distinct.items()})

    def calibrated(self, chosen: Model) -> Calibrator | None:
        """Return the calibration of a model, from all of its candidates."""
        n_labels = len(chosen.labels)
        examples, step = self.examples, max(1, -(-len(self.ids) * n_labels // _MAX_CALIBRATED))
        examples = examples.take(np.arange(len(examples))[::step])
        ids = np.tile(np.arange(n_labels), (len(examples), 1))
        scores = np.empty(ids.shape, np.float32)
        for some, rows in chosen.blocks(examples.rows, n_labels):
            scores[some] = chosen.score(rows, ids[some], self.n_jobs, ranking=False)
        return Calibrator.fit(scores, examples.contains(ids), chosen.multilabel)

    def scores(self, part: Any) -> Floats:
        """Return the scores of all candidates in a part."""
        found = np.empty(self.ids.shape, np.float32)
        for some, rows in self._blocks:
            found[some] = part.score(rows, np.ascontiguousarray(self.ids[some]), self.n_jobs)
        return found

    def total(self, options: list[tuple[Any, float]], ranking: bool = True) -> Floats:
        """Return the sum of the scores of parts with these weights."""
        sums = np.zeros(self.ids.shape, np.float32)
        for column, (part, weight) in zip(self.columns, options, strict=True):
            if weight and (ranking or not getattr(part, "ranks_only", False)):
                sums += np.float32(weight) * column.scores[id(part)]
        sums[self.ids < 0] = -np.inf
        if self.without_rows is not None and not any(w and _keeps_rows(p) for p, w in options):
            sums[~self.without_rows] = -np.inf
        return sums

    def best(self, scores: Floats) -> tuple[Ints, Bools]:
        """Return the best labels of every row, and which of them are true."""
        shape = (len(self.ids), min(_TOP, self.ids.shape[1]))
        best, theirs = np.empty(shape, np.int64), np.empty(shape, np.float32)
        _engine.select(self.ids, scores, best, theirs)
        hits = np.empty(shape, np.float32)
        _engine.look_up(best, self.ids, self.hits.astype(np.float32), 0.0, hits)
        return best, hits > 0

    def quality(self, scores: Floats) -> Doubles:
        """Return the quality of every row, multiplied by its weight."""
        return quality_of(self.best(scores)[1], self.n_true) * self.weights

    def drop_rows(self) -> None:
        """Leave out candidates proposed only by parts that keep training rows."""
        if self.without_rows is not None:
            self.ids[~self.without_rows] = -1
            self.hits &= self.without_rows

    @property
    def missed(self) -> float:
        """Mean number of true labels per row that are not among its candidates."""
        return float((self.n_true - self.hits.sum(axis=1)).mean())


def quality_of(hits: Bools, n_true: Ints) -> Doubles:
    """Return P@1 + recall@5 of every row, from which of its best labels are true."""
    found: Doubles = hits[:, 0] + hits.sum(axis=1) / np.clip(n_true, 1, _TOP)
    return found


def choose(
    model: Model, plan: Plan, examples: Examples, counts: Ints, n_rows: int, n_jobs: int | None
) -> Model:
    """Return the model with weights, calibration and threshold chosen on held-out rows.

    Parts with weight 0 are left out. A weight other than the default must be better by more than
    one standard error, and an added part by two. Neighbours, which keep the training rows, are
    tried after the weights of all other parts are chosen.
    """
    table = ScoreTable(model, plan, examples, n_jobs)
    chosen = _weights(table)
    for number, (part, column) in enumerate(zip(model.parts, table.columns, strict=True)):
        if len(column.options) > 1 and hasattr(part, "label_gains"):
            gains = part.label_gains(counts, n_rows)
            chosen[number] = _with_most_gains(table, chosen, number, gains)
    kept = [(part, weight) for part, weight in chosen if weight]
    if not any(_keeps_rows(part) for part, _ in kept):
        table.drop_rows()
    scores = table.total(chosen)
    precision = float(table.best(scores)[1][:, 0].mean())
    parts, weights = zip(*kept, strict=True)
    model = replace(model, parts=parts, weights=weights, held_out_precision=precision)
    if model.multilabel:
        n_true = int(table.n_true.sum())
        model = model.with_threshold(best_threshold(scores, table.hits, n_true))
    return _calibrated(model, table, chosen) if plan.calibrate else model


def _weights(table: ScoreTable) -> list[tuple[Any, float]]:
    """Return the best variant and weight, by P@1 and recall@5, of all parts without label gains.

    The others keep their first option.
    """
    model, columns = table.model, table.columns
    chosen = [column.options[0] for column in columns]
    if len(table.ids) < _FEWEST:
        return chosen
    ranked = [n for n, part in enumerate(model.parts) if not hasattr(part, "label_gains")]
    ranked.sort(key=lambda n: not getattr(model.parts[n], "chosen_first", False))
    # Stored rows cost the most time and space: they are tried after the weights of all other parts
    # are chosen.
    in_memory = [n for n in ranked if _keeps_rows(model.parts[n])]
    quality = table.quality(table.total(chosen))
    for numbers in ([n for n in ranked if n not in in_memory], ranked if in_memory else []):
        for _ in range(_ROUNDS):
            before = chosen
            for number in numbers:
                chosen, quality = _improved(table, chosen, quality, number)
            if chosen == before:
                break
    return list(chosen)


def _improved(
    table: ScoreTable, chosen: list[tuple[Any, float]], quality: Doubles, number: int
) -> tuple[list[tuple[Any, float]], Doubles]:
    """Return the choice with the best option for one part, and its quality."""
    best, best_quality = chosen, quality
    for option in table.columns[number].options:
        if option == chosen[number]:
            continue
        other = [*chosen[:number], option, *chosen[number + 1 :]]
        found = table.quality(table.total(other))
        gain = found - quality
        # An added part costs time and space: it has to be worth it.
        errors = _NEW if _adds(option, chosen[number]) else 1
        is_worth = gain.mean() > errors * gain.std() / np.sqrt(len(gain))
        if is_worth and found.mean() > best_quality.mean():
            best, best_quality = other, found
    return best, best_quality


def _calibrated(model: Model, table: ScoreTable, chosen: list[tuple[Any, float]]) -> Model:
    """Return the chosen model with calibrated probabilities, if they can be calibrated."""
    few = len(model.labels) <= FEW_LABELS
    scores = None if few else table.total(chosen, ranking=False)
    table.columns.clear()  # they take memory
    if scores is None:
        calibration, missed = table.calibrated(model), 0.0
    else:
        calibration, missed = Calibrator.fit(scores, table.hits, model.multilabel), table.missed
    if calibration is None:
        return model
    threshold = model.calibration.threshold
    return replace(model, calibration=replace(calibration, missed=missed, threshold=threshold))


def threshold_on(model: Model, examples: Examples | None, n_jobs: int | None) -> float:
    """Return the multi-label threshold with the best micro-averaged F1 on some rows."""
    if examples is None:
        return 0.0
    k = min(2 * model.typical_labels + 1, len(model.labels))
    ids, scores = model.topk(examples.rows, k, n_jobs)
    return best_threshold(scores, examples.contains(ids), len(examples.labels))


def _adds(option: tuple[Any, float], chosen: tuple[Any, float]) -> bool:
    """Return whether an option adds the part, or more of it, to the chosen one."""
    return chosen[1] == 0 or (
        getattr(option[0], "has_more", False) and not getattr(chosen[0], "has_more", False)
    )


def _keeps_rows(part: Any) -> bool:
    return getattr(part, "needs_memory", False)


def _without_rows(model: Model) -> Model:
    """Return the model without parts that keep training rows."""
    smaller = model.keeping(lambda part: not _keeps_rows(part))
    return model if len(smaller.parts) in (0, len(model.parts)) else smaller


def _with_most_gains(
    table: ScoreTable, chosen: list[tuple[Any, float]], number: int, gains: Doubles
) -> tuple[Any, float]:
    """Return the weight of a part with which the true labels among the best 5 gain most.

    The first weight that costs more than one standard error of P@1, and all after it, are left out.
    """
    options = table.columns[number].options
    best = options[0]
    most = precision = None
    for option in options:
        ids, hits = table.best(table.total([*chosen[:number], option, *chosen[number + 1 :]]))
        found, first = float((hits * gains[ids]).sum()), hits[:, 0].astype(float)
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


# A size budget


def affordable(
    model: Model,
    budget: int,
    provenance: Provenance,
    needed: set[str],
    examples: Examples,
    choose: Callable[[Model], Model],
    n_jobs: int | None,
) -> Model:
    """Return the model, or a variant with fewer parts or views that is best within a budget.

    Parameters
    ----------
    model : Model
        Not trained on the examples.
    budget : int
        Bytes of the model file.
    provenance : Provenance
    needed : set of str
        Parts that must be kept as they are.
    examples : Examples
        Held-out rows.
    choose : callable
        Chooses new weights for a model.
    n_jobs : int or None
    """

    def pruned(model: Model) -> Model:
        return within_budget(Fitted(model, provenance), {}, budget)

    model = replace(model, memory=model.needed_rows)
    best, most, n_true = model, -np.inf, np.diff(examples.indptr)
    for smaller in _ever_smaller(model, needed):
        try:
            fits = pruned(smaller)
        except ValueError:  # even the fewest weights do not fit
            best = smaller if most == -np.inf else best
            continue
        if fits is model:
            return model
        chosen = choose(smaller) if fits is smaller else choose(fits)
        hits = examples.contains(chosen.topk(examples.rows, _TOP, n_jobs)[0])
        quality = float(quality_of(hits, n_true).mean())
        if quality > most:
            unpruned = [_unpruned(part, smaller.part(part.name)) for part in chosen.parts]
            best, most = chosen.with_parts(unpruned), quality
        if fits is smaller:
            break
    return best


def _ever_smaller(model: Model, needed: set[str]) -> Iterator[Model]:
    """Yield the model, then without more and more of its optional parts, then with fewer views."""
    yield model
    given = [part for part in model.parts if part.name not in needed]
    # Stored rows, which take the most space, are the first to be left out.
    for part in sorted(given, key=_keeps_rows, reverse=True):
        if hasattr(part, "grid"):
            model = _without(model, part.name)
            yield model
    for part in given:
        for smaller in part.smaller() if hasattr(part, "smaller") else ():
            parts = [smaller if each.name == part.name else each for each in model.parts]
            model = model.with_parts(parts)
            yield model


def _without(model: Model, name: str) -> Model:
    return model.keeping(lambda part: part.name != name)


def _unpruned(part: Any, whole: Any) -> Any:
    """Return a part with all of its weights, in the variant that was chosen."""
    if not hasattr(part, "variants"):
        return whole
    numbers = {name: each for name, each in vars(part).items() if isinstance(each, float)}
    return replace(whole, **numbers)
