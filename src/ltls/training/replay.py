"""Replay: rows of the past that a model is trained on together with a new batch.

A batch of a single new label would teach a model to predict nothing else. So its rows are mixed
with rows of the model's reservoir, the more of them the less the batch resembles what came before.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..model.examples import Examples
from ..model.fitted import FittedModel
from ..model.reservoir import Reservoir, row_keys

Ints: TypeAlias = npt.NDArray[np.int64]

# Chosen on held-out rows, see docs/what_was_tried.md.
_ALWAYS = 32  # rows to replay with any batch
_PER_ROW = 60  # and for every row of a label that is more frequent in the batch than before
_MOST_WEIGHT = 4.0  # of a replayed row


def replayed_rows(model: FittedModel, batch: Examples) -> Examples | None:
    """Return rows of the past to train on with a batch, which the model has counted."""
    reservoir = model.reservoir
    if reservoir is None or not len(reservoir) or not batch.row_weights().any():
        return None
    wanted = _ALWAYS + _PER_ROW * _n_unusual(model, batch)
    # Other rows in every call, whatever the random state.
    keys = row_keys(reservoir.keys.astype(np.int64) + (model.n_rows << 32))
    past = reservoir.take(np.argsort(keys, kind="stable")[:wanted]).examples_like(batch)
    # Where the reservoir has fewer, its rows stand for others that came before.
    n_before = model.n_rows - len(batch)
    weight = min(wanted / len(past), n_before / len(reservoir), _MOST_WEIGHT)
    if weight > 1:
        past.weights = past.row_weights() * np.float32(weight)
    return past


def _n_unusual(model: FittedModel, batch: Examples) -> int:
    """Return how many rows of labels are beyond twice their usual number, or a single one."""
    n = len(batch)
    if model.counts is None:
        return n
    own = np.bincount(batch.labels, minlength=len(model.counts))
    before = model.counts - own
    expected = 2 * n * before / max(model.n_rows - n, 1) + (before > 0)
    return int(min(np.ceil(np.maximum(own - expected, 0).sum()), n))


def mixed_order(order: Ints, n_rows: int) -> Ints:
    """Return an order of all rows: those of a batch, spread evenly among the others behind them."""
    n_batch, n_past = len(order), n_rows - len(order)
    places = np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in (n_batch, n_past)])
    rows = np.concatenate([order, np.arange(n_batch, n_rows)])
    mixed: Ints = rows[np.argsort(places, kind="stable")]
    return mixed


def keep_rows(model: FittedModel, examples: Examples, capacity: int, first_row: int = 0) -> None:
    """Add rows to a model's reservoir; a model without one begins it with its first rows."""
    if not capacity:
        model.reservoir = None
        return
    known = model.reservoir
    if known is None and first_row:
        return  # rows of the present alone are not worth replaying
    counts = model.counts
    if counts is None:
        counts = np.bincount(examples.labels, minlength=len(model.labels))
    first_late = len(model.labels) if known is None else known.first_late
    new = Reservoir.of(examples, capacity, counts, first_late, first_row)
    model.reservoir = new if known is None else known.merge(new, capacity)
