"""A fitted model with what is beside it: where it comes from, and the state of training."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.arrays import Ints, Tensors, smallest
from ..core.declarations import Array, Described
from ..parts.base import has
from .model import Model

MOST_ROWS = 2**53  # that a model may have learned from, and passes over them
_COLUMNS = {"text": str, "label": str, "separator": str, "features": list}


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
        What was chosen and why.
    columns : dict or None
        The columns of the table it was trained on, by their role: text, label, separator, features.
    zero_based : bool or None
        Whether the svmlight file it was trained on numbers features from 0, if known.
    """

    n_rows: int
    counts: Ints
    loss_curve: list[float] = field(default_factory=list)
    n_epochs: int = 0
    recipe: str = ""
    columns: dict[str, Any] | None = None
    zero_based: bool | None = None

    def facts(self) -> dict[str, Any]:
        """Return all but the counts, as JSON has it."""
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
    """A model, and what it can be trained further from.

    Parameters
    ----------
    model : Model
    provenance : Provenance
    training : ltls.training.trellis_training.TrellisTraining or None
        The trellises' weights in full precision; None for a model from a file.
    further : dict of str to (dict, dict)
        What a file has instead, by section: descriptions and tensors of the optimizer, roughly, and
        of weights and optimizer in full precision.
    """

    model: Model
    provenance: Provenance
    training: Any = None
    further: dict[str, tuple[dict[str, Any], Tensors]] = field(default_factory=dict)

    def sections(self, complete: bool) -> dict[str, tuple[dict[str, Any], Tensors]]:
        """Return the sections of a file that is trained further; a resumable one is `complete`."""
        found = self.further if self.training is None else self.training.sections()
        return {name: each for name, each in found.items() if complete or name != "resume"}

    def without_rows(self) -> Fitted:
        """Return it without training rows, as ``memory=False`` asks for."""
        for part in self.model.parts:
            if has([part], "needs_memory"):
                raise ValueError(
                    f"memory=False: the model has {part.name}, which are training rows; fit again "
                    f"with {part.name}=False"
                )
        return replace(self, model=replace(self.model, memory=None))
