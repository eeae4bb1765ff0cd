"""What is chosen on held-out rows: weights of parts, the strength of propensities, thresholds."""

from dataclasses import dataclass

import numpy as np
import pytest
from table_part import TablePart

from ltls.features.rows import Rows
from ltls.model.examples import Examples
from ltls.model.labels import Labels
from ltls.model.model import Model
from ltls.parts.calibration import Calibrator, best_threshold
from ltls.parts.propensity import PropensityPart
from ltls.settings import Neighbours, Propensity, Prototypes, Trellises
from ltls.training.choose import ScoreTable, choose
from ltls.training.recipes import Plan

N_ROWS, N_LABELS = 400, 50
RNG = np.random.default_rng(0)
TRUE = RNG.integers(0, N_LABELS, N_ROWS)
HITS = np.eye(N_LABELS)[TRUE]


@dataclass(frozen=True, eq=False)
class Toy(TablePart):
    """A part whose weight is chosen."""

    grid: tuple = (0.5, 1.0, 2.0)
    ranks_only: bool = False
    needs_memory: bool = False


def noise(scale, seed):
    return scale * np.random.default_rng(seed).normal(size=(N_ROWS, N_LABELS))


BASE = Toy("trellises", noise(1, 0) + 1.5 * HITS, ())
HELPS = Toy("prototypes", noise(1, 1) + 2 * HITS)
RANDOM = Toy("neighbours", noise(1, 2))


class Bonus(Toy):
    """A part that is only for ranking, whose weight may be given."""

    ranks_only = True
    weights_to_try = PropensityPart.weights_to_try
    label_gains = PropensityPart.label_gains


def chosen(*parts, multilabel=False, asked_for=(), given=None, calibrate=False):
    """Return the names and weights of the parts that are chosen, and the model."""
    settings = {"prototypes": Prototypes(), "neighbours": Neighbours(), "propensity": Propensity()}
    tried = {part.name: settings[part.name] for part in parts[1:]} | (given or {})
    plan = Plan("views", "", Trellises(), parts=tried, calibrate=calibrate)
    plan.asked_for.update(asked_for)
    rows = Rows(np.arange(N_ROWS, dtype=float)[:, None], False, False)
    examples = Examples(rows, np.arange(N_ROWS + 1), TRUE, None, multilabel)
    model = Model(
        Labels(range(N_LABELS)), None, None, parts, (1.0,) * len(parts), multilabel, "lists", True,
        Calibrator(multilabel),
    )  # fmt: skip
    found = choose(model, plan, examples, np.bincount(TRUE, minlength=N_LABELS), N_ROWS, None)
    names = [part.name for part in found.parts]
    return dict(zip(names, found.weights, strict=True)), found


def quality(*pairs):
    """P@1 + recall@5 of a sum of parts."""
    total = sum(weight * part.table for part, weight in pairs)
    place = (total > total[np.arange(N_ROWS), TRUE][:, None]).sum(axis=1)
    return (place == 0).mean() + (place < 5).mean()


def test_a_part_that_helps_is_added_and_others_are_left_out():
    weights, _ = chosen(BASE, HELPS, RANDOM)
    assert set(weights) == {"trellises", "prototypes"}
    assert weights["trellises"] == 1
    best = quality((BASE, 1), (HELPS, weights["prototypes"]))
    assert best > quality((BASE, 1)) + 0.1
    # Weights are those of the grid; others are hardly better.
    assert weights["prototypes"] in HELPS.grid
    assert best > max(quality((BASE, 1), (HELPS, each)) for each in HELPS.grid) - 0.05


def test_training_rows_are_kept_only_for_what_no_other_part_knows():
    rows = Toy("neighbours", HELPS.table, needs_memory=True)
    assert set(chosen(BASE, rows, HELPS)[0]) == {"trellises", "prototypes"}
    assert set(chosen(BASE, rows)[0]) == {"trellises", "neighbours"}


def test_what_the_user_asked_for_is_kept():
    weights, _ = chosen(BASE, RANDOM, asked_for=["neighbours"])
    assert weights["neighbours"] == min(RANDOM.grid)  # where it does the least harm


def test_a_part_that_knows_is_trusted():
    exact = Toy("prototypes", 20 * HITS)
    assert quality((BASE, 1), (exact, chosen(BASE, exact)[0]["prototypes"])) == 2


@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_a_strength_that_is_given_is_kept(strength):
    harmful = Bonus("propensity", 20 * noise(1, 4))
    weights, _ = chosen(BASE, harmful, given={"propensity": Propensity(strength=strength)})
    assert weights.get("propensity", 0.0) == strength


def test_a_strength_does_not_cost_precision():
    harmful = Bonus("propensity", 20 * noise(1, 4))
    assert chosen(BASE, harmful)[0] == {"trellises": 1.0}
    helpful = Bonus("propensity", HITS)
    assert chosen(BASE, helpful)[0] == {"trellises": 1.0, "propensity": 0.8}


def test_calibration_and_threshold_are_of_the_chosen_sum():
    weights, model = chosen(BASE, HELPS, multilabel=True, calibrate=True)
    total = (BASE.table + weights["prototypes"] * HELPS.table).astype(np.float32)
    assert model.calibration.threshold == best_threshold(total, HITS > 0, N_ROWS)
    proba = model.calibration(total)
    assert abs(proba.sum(axis=1).mean() - 1) < 0.1
    assert proba[HITS > 0].mean() > 5 * proba[HITS == 0].mean()
    assert chosen(BASE, HELPS)[1].calibration.threshold is None


def test_of_many_labels_only_the_likely_ones_are_compared_but_all_are_calibrated():
    n_labels, rng = 300, np.random.default_rng(0)
    true = rng.integers(0, n_labels, N_ROWS)
    hits = np.eye(n_labels)[true]
    base = Toy("trellises", rng.normal(size=hits.shape) + 3 * hits, ())
    helps = Toy("prototypes", rng.normal(size=hits.shape) + 4 * hits)
    rows = Rows(np.arange(N_ROWS, dtype=float)[:, None], False, False)
    examples = Examples(rows, np.arange(N_ROWS + 1), true, None, False)
    model = Model(
        Labels(range(n_labels)), None, None, (base, helps), (1.0, 0.0), False, "lists", True,
        Calibrator(False),
    )  # fmt: skip
    plan = Plan("views", "", Trellises(), parts={"prototypes": Prototypes()}, calibrate=True)
    table = ScoreTable(model, plan, examples, None)
    assert table.ids.shape[1] <= 2 * 32
    for part in (base, helps):
        best = np.argsort(-part.table, axis=1)[:, :32]
        assert all(set(own) <= set(ids) for own, ids in zip(best, table.ids, strict=True))
    found = choose(model, plan, examples, np.bincount(true, minlength=n_labels), N_ROWS, None)
    assert [part.name for part in found.parts] == ["trellises", "prototypes"]
    every = np.tile(np.arange(n_labels), (N_ROWS, 1))
    expected = Calibrator.fit(found.score(rows, every, None), hits > 0, False)
    assert found.calibration.scale == expected.scale
    assert found.calibration.missed == 0
