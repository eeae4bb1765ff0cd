"""Draw the figures of the documentation: ``python docs/draw.py``, after ``make demo``."""

from __future__ import annotations

import shutil
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from ltls import LTLSClassifier
from ltls.plot import figure1, figure2, plot_codebook, plot_learning_curves, plot_prediction

DOCS = Path(__file__).parent
DEMO = DOCS.parent / "demo"


def write(ax: plt.Axes, name: str) -> None:
    """Write a figure; the same figure gives the same bytes."""
    ax.get_figure().savefig(DOCS / name, bbox_inches="tight", metadata={"Date": None})
    plt.close("all")


def digits() -> None:
    """Draw the prediction of a handwritten digit, and the learning curves of three widths."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    model = LTLSClassifier(3, n_trellises=1, epochs=8, random_state=0).fit(X[:1500], y[:1500])
    write(plot_prediction(model, X[[1500]], title="A handwritten {label}"), "prediction.svg")
    models = {
        f"width {width}": LTLSClassifier(width, n_trellises=1, epochs=8, random_state=0).fit(X, y)
        for width in (2, 4, 10)
    }
    write(plot_learning_curves(models, title="Handwritten digits"), "learning_curves.svg")


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
        model = LTLSClassifier(4, 1, embedding_dim=0, assignment=policy, epochs=1, random_state=0)
        model.fit(X, y)
        title = policy + named.get(policy, "")
        plot_codebook(model.trellis_, model.codebook_, order, ax=ax, title=title)
    write(axes[0], "codebooks.svg")


def main() -> None:
    """Draw all figures."""
    matplotlib.rcParams["svg.hashsalt"] = "ltls"
    write(figure1(), "figure1.svg")
    write(figure2(), "figure2.svg")
    digits()
    codebooks()
    if DEMO.joinpath("accuracy.png").exists():
        shutil.copyfile(DEMO / "accuracy.png", DOCS / "demo_accuracy.png")


if __name__ == "__main__":
    main()
