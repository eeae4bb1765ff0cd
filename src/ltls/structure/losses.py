"""The registry of losses: what Python needs to know about each; their gradients are in the engine.

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
        Path scores minus the log-partition are log-probabilities of paths.
    independent_edges : bool
        Every edge has a probability of its own, σ(h), and a label's probability is the product
        over its path.
    averages_positives : bool
        The loss is the mean over the labels of a row: each has an equal share of the row's weight.
    probabilistic : bool
        Models with this loss have probabilities.
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
