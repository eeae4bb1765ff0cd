"""Figures: the trellis and paths through it, predictions, codebooks, learning curves.

`plot_trellis` draws the graph as in figures 1 and 2 of the paper; the others show how a model uses
it. All require matplotlib: ``pip install 'ltls[plot]'``.
"""

try:
    import matplotlib as matplotlib
except ImportError as error:
    raise ImportError("ltls.plot needs matplotlib: pip install 'ltls[plot]'") from error

from .curves import plot_codebook, plot_learning_curves, plot_prediction
from .trellis import figure1, figure2, paper_edge_order, plot_trellis

__all__ = [
    "figure1",
    "figure2",
    "paper_edge_order",
    "plot_codebook",
    "plot_learning_curves",
    "plot_prediction",
    "plot_trellis",
]
