"""Draw the figures of the documentation: ``python docs/draw.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from ltls import LTLSClassifier
from ltls.plot import figure1, figure2, plot_codebook, plot_prediction
from ltls.settings import Trellises

DOCS = Path(__file__).parent


def write(ax: Axes, name: str) -> None:
    """Write a figure; the same figure gives the same bytes."""
    assert isinstance(ax.figure, Figure)
    ax.figure.savefig(DOCS / name, bbox_inches="tight", metadata={"Date": None})
    plt.close("all")


def classifier(**settings: Any) -> LTLSClassifier:
    """Return a classifier that is one trellis, in which every label has a path."""
    trellises = Trellises(n_trellises=1, **settings)
    return LTLSClassifier(trellises=trellises, label_weights=False, random_state=0)


def digits() -> None:
    """Draw the prediction of a handwritten digit."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    model = classifier(width=3, epochs=8).fit(X[:1500], y[:1500])
    write(plot_prediction(model, X[[1500]], title="A handwritten {label}"), "prediction.svg")


def codebooks() -> None:
    """Draw three codebooks of 240 labels in 16 groups, with the most frequent labels first."""
    rng = np.random.default_rng(0)
    n_labels, n_groups = 240, 16
    centres = np.repeat(rng.normal(size=(n_groups, 30)), n_labels // n_groups, axis=0)
    centres += 0.3 * rng.normal(size=centres.shape)
    y = np.concatenate([np.arange(n_labels), rng.zipf(1.3, 4000) % n_labels])
    X = (centres[y] + 0.1 * rng.normal(size=(len(y), 30))).astype(np.float32)
    axes = plt.figure(figsize=(12, 4), layout="constrained").subplots(1, 3)
    by_frequency = np.argsort(-np.bincount(y), kind="stable").tolist()
    orders = {"random": None, "frequency": by_frequency, "similarity": None}
    named = {"frequency": ", the most frequent first", "similarity": ", 16 groups of 15"}
    for ax, (policy, order) in zip(axes, orders.items(), strict=True):
        model = classifier(width=4, assignment=policy, epochs=1).fit(X, y)
        title = policy + named.get(policy, "")
        plot_codebook(model.trellis_, model.codebooks_[0], order, ax=ax, title=title)
    write(axes[0], "codebooks.svg")


def main() -> None:
    """Draw all figures."""
    matplotlib.rcParams["svg.hashsalt"] = "ltls"
    write(figure1(), "figure1.svg")
    write(figure2(), "figure2.svg")
    digits()
    codebooks()


if __name__ == "__main__":
    main()
