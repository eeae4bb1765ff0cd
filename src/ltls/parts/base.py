"""What a part of a model is, and the registry of parts.

A part is complete in its file: its settings, how it is trained, what it says of labels, how it is
explained, grown and stored. What it can do is what methods it has. A part need not have all: one
that proposes no candidates has no `candidates`, one that learns nothing from further rows no
`learn`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol, TypeVar

from ..core.arrays import Doubles, Floats, Ints, Tensors
from ..core.declarations import Described
from ..core.settings import Settings
from ..features.rows import Rows


@dataclass(frozen=True)
class Sizes:
    """The sizes that the tensors of a part are declared in: labels, and columns of a row.

    `n_beside` are the dense features beside sparse ones.
    """

    n_labels: int
    n_columns: int
    intercept: bool
    unit_length: bool
    multilabel: bool
    n_beside: int = 0

    @property
    def n_vector_features(self) -> int:
        """The number of features that vectors of labels are compared with."""
        return self.n_beside or self.n_columns - self.intercept


class Part(Protocol):
    """A part of a fitted model. It does not change: `grow` and `learn` return another one.

    ``fit(settings, context)``, a class method that all parts have, trains it on the rows of a
    `ltls.training.context.Context`. `finish`, if there is one, trains it on the held-out rows, too.

    Held-out rows choose the weight of a part that has a `grid` of weights, or leave it out; or one
    of the weights that ``weights_to_try(plan)`` returns, the usual one first. Other parts have
    weight 1. What else a part may be, as class attributes that are True: see `has`.
    """

    name: ClassVar[str]
    settings: ClassVar[type[Settings]]

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any) -> Part:
        """Restore a part; every tensor is declared."""

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""


class Scorer(Part, Protocol):
    """A part that scores labels."""

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the scores of labels, an array like `ids`; any number for label −1."""

    def explain(self, rows: Rows, label: int) -> PartExplanation:
        """Return what every feature of the only row adds to the score of a label."""


class Proposer(Part, Protocol):
    """A part that proposes candidates."""

    def candidates(self, rows: Rows, n: int, n_jobs: int | None) -> Ints:
        """Return labels that are worth scoring, shape (n_rows, any); −1 is none."""


PARTS: dict[str, Any] = {}
P = TypeVar("P")


def register_part(part: type[P]) -> type[P]:
    """Make a part known under its name: models may have it, and files hold it."""
    name = part.name  # type: ignore[attr-defined]
    if name in PARTS and PARTS[name].__qualname__ != part.__qualname__:
        raise ValueError(f"there is already a part named {name!r}")
    PARTS[name] = part
    return part


def load_parts() -> dict[str, Any]:
    """Import the parts that other packages announce as entry points; return all parts by name."""
    for announced in entry_points(group="ltls.parts"):
        register_part(announced.load())
    return PARTS


def can(part: Any, method: str) -> bool:
    """Return whether a part has a method."""
    return callable(getattr(part, method, None))


def has(parts: Iterable[Any], trait: str) -> bool:
    """Return whether any of some parts has a trait, a class attribute that is True.

    ``ranks_only``: probabilities do not depend on it. ``needs_memory``: it has training rows, as
    `memory`. ``helps_rare_labels``: it is expected to help where labels have few rows.
    ``keeps_threshold``: on rows of training its scores are too good to choose a threshold.
    ``scales_steps``: trellises beside it take smaller steps, relative to the length of rows.
    """
    return any(getattr(part, trait, False) for part in parts)


# Explanations


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
    features : int64 array
        Columns of the row.
    contributions : float64 array like `features`
        What each adds to `linear_score`.
    intercept : float
    score : float
        What the part adds to the score of the label.
    formula : str
        How `score` follows from `linear_score` and the numbers in `terms`.
    terms : dict of str to float
    path : int or None
        The label's path, for a trellis.
    edges : list of Edge
        The edges of that path.
    parts : list of PartExplanation
        The parts that this one is made of.
    additive : bool
        Whether their scores add up to its own.
    rows : list of dict
        The training rows that speak for the label, for neighbours.
    """

    name: str
    features: Ints
    contributions: Doubles
    intercept: float
    score: float
    formula: str
    terms: dict[str, float] = field(default_factory=dict)
    path: int | None = None
    edges: list[Edge] = field(default_factory=list)
    parts: list[PartExplanation] = field(default_factory=list)
    additive: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def linear_score(self) -> float:
        """The sum of contributions and intercept."""
        return math.fsum([*self.contributions.tolist(), self.intercept])

    def times(self, weight: float) -> PartExplanation:
        """Return the explanation of the part with another weight."""
        if weight == 1:
            return self
        weighted = replace(
            self,
            contributions=weight * self.contributions,
            intercept=weight * self.intercept,
            score=weight * self.score,
        )
        if self.additive:
            return replace(weighted, parts=[part.times(weight) for part in self.parts])
        # The linear score has the weight already; the formula is of what it is without.
        formula = self.formula.replace("linear_score", f"linear_score / {weight:.6g}")
        return replace(weighted, formula=f"{weight:.6g} · ({formula})")
