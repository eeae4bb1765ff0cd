"""Propensities: the probability that a true label was recorded.

Rare labels are missing from the data more often than frequent ones. Ranking by score − strength ·
log propensity compensates for that, at the cost of frequent labels. Probabilities do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..core.arrays import Doubles, Floats, Ints, Tensors, check_unmasked
from ..core.declarations import Array, Described
from ..core.settings import AUTO, Number, Settings, setting, settings
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part

_STRENGTHS = (0.0, 0.1, 0.2, 0.4, 0.8)


@settings
class Propensity(Settings):
    """How strongly rare labels are preferred."""

    strength: float | str = setting(
        Number(0),
        AUTO,
        default=AUTO,
        help="Labels are ranked by score − strength · log p, where p is the probability that the "
        'label is recorded where it is true (Jain et al. 2016). "auto" maximizes '
        "propensity-scored precision on held-out rows, as long as P@1 loses at most one "
        "standard error.",
    )


def propensities_of(counts: npt.ArrayLike, n_rows: int, a: float = 0.55, b: float = 1.5) -> Doubles:
    """Estimate propensities like `ltls.metrics.propensities`, from the rows of each label.

    They are 1 / (1 + c · (count + b)^−a), where c = (log n_rows − 1) · (b + 1)^a (Jain, Prabhu and
    Varma 2016).

    Parameters
    ----------
    counts : array-like of shape (n_labels,)
        Number of training rows of each label.
    n_rows : int
        Number of training rows.
    a, b : float, default=0.55 and 1.5
        As in `ltls.metrics.propensities`.

    Returns
    -------
    array of shape (n_labels,)

    Examples
    --------
    >>> from ltls.metrics import propensities_of
    >>> propensities_of([6, 1, 1], n_rows=8).round(4)
    array([0.629 , 0.4809, 0.4809])
    """
    check_unmasked("counts", counts)
    if not a >= 0:
        raise ValueError(f"a must be at least 0, got {a!r}")
    if not b > 0:
        raise ValueError(f"b must be above 0, got {b!r}")
    c = max(np.log(n_rows) - 1.0, 0.0) * (b + 1.0) ** a
    result: Doubles = 1.0 / (1.0 + c * (np.asarray(counts) + b) ** -a)
    return result


@register_part
@dataclass(frozen=True, eq=False)
class PropensityPart:
    """A bonus for every label."""

    name: ClassVar[str] = "propensity"
    settings: ClassVar[type[Settings]] = Propensity
    ranks_only: ClassVar[bool] = True

    bonus: Floats  # −log propensity of every label

    @classmethod
    def of(cls, counts: Ints, n_rows: int) -> PropensityPart:
        """Return the part for labels with these numbers of training rows."""
        return cls((-np.log(propensities_of(counts, max(n_rows, 1)))).astype(np.float32))

    @classmethod
    def fit(cls, given: Propensity, context: Any) -> PropensityPart:
        """Count the rows of every label."""
        return cls.of(context.counts, context.n_rows)

    def weights_to_try(self, plan: Any) -> tuple[float, ...]:
        """Return the given strength, or those to try on held-out rows."""
        strength = plan.parts[self.name].strength
        return _STRENGTHS if strength == AUTO else (float(strength),)

    def label_gains(self, counts: Ints, n_rows: int) -> Doubles:
        """Return what true labels count in propensity-scored precision."""
        return 1 / propensities_of(counts, max(n_rows, 1))

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the bonus of labels, an array like `ids`."""
        return np.where(ids >= 0, self.bonus[ids], 0).astype(np.float32)

    def explain(self, rows: Rows, label: int) -> PartExplanation:
        """Return the bonus of a label."""
        bonus = float(self.bonus[label])
        nothing = np.empty(0, np.int64)
        return PartExplanation(self.name, nothing, np.empty(0), bonus, bonus, "−log(propensity)")

    def learn(self, context: Any) -> PropensityPart:
        """Return the part with the counts of a further batch."""
        return self.of(context.counts, context.n_rows)

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        return {}, {"bonus": self.bonus}

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> PropensityPart:
        """Restore the part from its `state`."""
        declared = {"bonus": Array("f4", ("n_labels",), low=0, high=1e6)}
        return cls(np.array(section.tensors(declared, {"n_labels": sizes.n_labels})["bonus"]))

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        return {"prefers_rare_labels": True}
