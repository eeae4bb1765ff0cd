"""What a part of a model is, and the registry of parts.

The file of a part has all that belongs to it: settings, training, scores, explanations, growth and
storage. What a part can do depends on the methods it has, of which few are required: a part without
`candidates` proposes no labels, and a part without `learn` does not change in `partial_fit`. `Part`
lists all methods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from ..core.arrays import Doubles, Ints, Tensors
from ..core.declarations import Described
from ..core.settings import GROUPS, Settings


@dataclass(frozen=True)
class Sizes:
    """The sizes in which a part declares the shapes of its tensors.

    `n_columns` includes the intercept. `n_beside` is the number of dense features beside sparse
    ones. `sparse` is whether rows can only be sparse: made dense, they might not fit into memory.
    """

    n_labels: int
    n_columns: int
    intercept: bool
    unit_length: bool
    multilabel: bool
    n_beside: int = 0
    sparse: bool = False

    @property
    def n_vector_features(self) -> int:
        """The number of features that vectors of labels are compared with."""
        return self.n_beside or self.n_columns - self.intercept


class Part(Protocol):
    """A part of a fitted model. It is immutable: methods that train return another part.

    All parts have ``fit(settings, context)``, a class method that trains a part on the rows of a
    `ltls.training.fit.Context`, and the methods below. All other methods are optional:

    - ``score(rows, ids, n_jobs)`` returns the scores of labels, float32 of the shape of `ids`,
      (n_rows, any number); label −1 is padding and may have any score.
    - ``explain(rows, label)`` returns a `PartExplanation`: what every feature of the only row adds
      to the score of a label.
    - ``candidates(rows, n, n_jobs)`` returns about n candidates per row, an array of shape (n_rows,
      any number), padded with −1. If the class attribute ``takes_known`` is True, it is called
      after the other parts, with their candidates as a fourth argument.
    - ``topk(rows, k, n_jobs)`` returns the ids and scores of the k best of all labels; a model that
      consists of this part alone needs no candidates.
    - ``trellis_parts()`` returns the trellises in the part, one `TrellisPart` per view; exactly one
      part of a model has this method.
    - ``finish(context)`` returns the part trained on the held-out rows, too.
    - ``grow(n_labels, n_new_columns)`` returns the part with more labels and features, before
      `partial_fit` learns them.
    - ``learn(context)`` returns the part after a batch of `partial_fit`.
    - ``pruned(density)`` returns the part with a fraction of its weights, for a size budget.
    - ``smaller()`` yields smaller and smaller versions of the part, for a size budget.
    - ``n_bytes``, a property, is the size of the part; it limits how many training rows a file
      stores beside it.
    - ``variants()`` yields the part with other inner weights; held-out rows choose one of them.
    - ``weights_to_try(plan)`` returns the weights in the sum of scores that are tried on held-out
      rows, the default first; 0 leaves the part out. Instead, a part may have `grid`, a tuple of
      weights: 0 is then tried, too, unless the user asked for the part, and a size budget may leave
      the part out. Parts with neither have weight 1.
    - ``label_gains(counts, n_rows)`` returns a gain for every label. The weight of the part is then
      the one with the highest sum of gains of the true labels among the 5 best, instead of the one
      with the best ranking.

    A part may have traits, class attributes that are True:

    - ``ranks_only``: the part changes the ranking of labels, and not their probabilities.
    - ``needs_memory``: predictions need training rows: those in its attribute `memory`, which are
      the memory of the model, or rows of its own if that is None.
    - ``helps_rare_labels``: it is expected to help if labels have few rows.
    - ``keeps_threshold``: its scores of training rows are too high to choose a threshold on these
      rows; so `partial_fit` keeps the threshold.
    - ``chosen_first``: its weight is chosen before those of other parts.
    - ``has_more``: this variant of the part takes more time and space than others.
    - ``scales_steps``: if a model has the part, the step size of its trellises is relative to the
      row length.
    """

    name: ClassVar[str]
    settings: ClassVar[type[Settings]]

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors, for a model file."""

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any) -> Part:
        """Restore a part from its `state`, and declare the type, shape and range of its tensors."""

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""


PARTS: dict[str, Any] = {}
P = TypeVar("P")


def register_part(part: type[P]) -> type[P]:
    """Register a part under its name, so that models and model files may have it.

    Parameters
    ----------
    part : type
        A class with the methods of `Part`, and a `name` that no other part has.

    Returns
    -------
    type
        The class itself, so that this can be a decorator.
    """
    name = part.name  # type: ignore[attr-defined]
    if name in PARTS and PARTS[name].__qualname__ != part.__qualname__:
        raise ValueError(f"there is already a part named {name!r}; choose another name")
    group: type[Settings] = part.settings  # type: ignore[attr-defined]
    known = GROUPS.get(group.__name__, group)
    if known is not group and known.__module__.startswith("ltls."):
        raise ValueError(
            f"the settings of part {name!r} must not be named {group.__name__}, like those of "
            f"{known.__module__}; choose another name"
        )
    PARTS[name], GROUPS[group.__name__] = part, group
    return part


def load_parts() -> dict[str, Any]:
    """Import the parts that other packages announce as entry points; return all parts by name."""
    for announced in entry_points(group="ltls.parts"):
        register_part(announced.load())
    return PARTS


# Explanations


@dataclass(frozen=True)
class Edge:
    """An edge of a label's path: its number, the vertices that it connects, and its score."""

    edge: int
    tail: int
    head: int
    score: float


@dataclass(frozen=True, eq=False)
class PartExplanation:
    """The explanation of a label's score in one part of a model.

    Parameters
    ----------
    name : str
    features : int64 array
        Columns of the row.
    contributions : float64 array like `features`
        What each feature adds to `linear_score`.
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
        The training rows that support the label, for neighbours: dicts of `row` (its number among
        those that are stored), `labels` (ids), `cosine` and `shared` (columns).
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

    @classmethod
    def of_sum(cls, name: str, parts: list[PartExplanation], formula: str) -> PartExplanation:
        """Return the explanation of a sum of parts with the same features."""
        return cls(
            name,
            parts[0].features,
            np.sum([part.contributions for part in parts], axis=0),
            math.fsum(part.intercept for part in parts),
            math.fsum(part.score for part in parts),
            formula,
            parts=parts,
            additive=True,
        )

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
        # The linear score already includes the weight: the formula divides it out.
        formula = self.formula.replace("linear_score", f"linear_score / {weight:.6g}")
        return replace(weighted, formula=f"{weight:.6g} · ({formula})")
