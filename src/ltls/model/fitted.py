"""A fitted model with its provenance and training state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.arrays import Ints, Tensors, smallest
from ..core.declarations import Array, Described
from .model import Model

MOST_ROWS = 2**53  # training rows, and passes over them
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
    training : ltls.parts.trellis_training.TrellisTraining or None
        The weights of the trellises in full precision; None for a model from a file.
    further : dict of str to (dict, dict)
        For a model from a file, its sections for further training: an approximate optimizer state,
        or weights and optimizer state in full precision.
    """

    model: Model
    provenance: Provenance
    training: Any = None
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
