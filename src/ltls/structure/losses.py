"""The registry of losses.

A loss is one entry of `LOSSES`. Its gradient step and decode scores are one class of the engine,
`cpp/structure/losses.hpp`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """How a trellis is trained and how its edge scores become label scores.

    Parameters
    ----------
    name : str
        Name of the loss.
    normalized : bool
        Whether path scores minus the log-partition are log-probabilities of paths.
    independent_edges : bool
        Whether every edge has its own probability σ(h), h being its score, and the probability of
        a path is their product.
    averages_positives : bool
        Whether the loss of a row is the mean over its labels.
    probabilistic : bool
        Whether models with this loss have probabilities.
    """

    name: str
    normalized: bool = False
    independent_edges: bool = False
    averages_positives: bool = False
    probabilistic: bool = False


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("softmax", normalized=True, averages_positives=True, probabilistic=True),
        Loss("separation"),
        Loss("logistic", independent_edges=True, probabilistic=True),
    )
}
