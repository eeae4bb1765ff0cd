"""The state of training between two epochs, besides the model itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..linear.weights import Weights

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass
class TrainerState:
    """The state of training between two epochs, besides the model itself.

    Parameters
    ----------
    losses : list of float
        The mean loss of every epoch so far.
    best_precision : float
        The highest P@1 on the validation rows so far.
    n_no_change : int
        Epochs since then.
    best_weights : Weights or None
        The weights at that time.
    best_paths : array of shape (n_trellises, n_labels), or None
        The paths of all labels at that time, if codebooks are tables.
    completed : bool
        Whether training ran to its end without being interrupted.
    """

    losses: list[float] = field(default_factory=list)
    best_precision: float = -1.0
    n_no_change: int = 0
    best_weights: Weights | None = None
    best_paths: Ints | None = None
    completed: bool = False
