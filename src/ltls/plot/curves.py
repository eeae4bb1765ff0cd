"""Predictions, codebooks and learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..core.arrays import as_integer
from ..structure.codebook import Codebook
from ..structure.trellis import Trellis
from .trellis import path_texts, plot_trellis

MAX_LABELS = 2000  # in a codebook map: more rows than pixels cannot be seen


def plot_prediction(
    classifier: Any,
    x: Any,
    k: int = 1,
    *,
    trellis: int = 0,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the paths of the best labels of a row, with edge scores.

    If the model has views, the paths are those of the clusters of the labels.

    Parameters
    ----------
    classifier : LTLSClassifier
        A fitted classifier whose trellis has at most 2000 edges.
    x : array or CSR matrix of shape (1, n_features)
        The row; for a `TextClassifier` or `TableClassifier`, a list of one text or row.
    k : int, default=1
        Number of labels to draw, in the order of `predict_topk`.
    trellis : int, default=0
        Index of the trellis to draw, into `LTLSClassifier.codebooks_`; a label has another path in
        each.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default, a new figure that fits the trellis.
    title : str, optional
        The title; ``{label}`` is replaced by the labels. By default, labels and scores.

    Returns
    -------
    matplotlib.axes.Axes
        As returned by `plot_trellis`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ltls import LTLSClassifier
    >>> from ltls.plot import plot_prediction
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = LTLSClassifier(random_state=0).set_params(trellises__width=2)
    >>> classifier = classifier.fit(X / 16, y)
    >>> plot_prediction(classifier, X[:1] / 16, title="digit {label}").get_title()
    'digit 0'
    """
    k = as_integer("k", k, at_least=1)
    codebooks, graph = classifier.codebooks_, classifier.trellis_
    trellis = as_integer("trellis", trellis, at_least=0, at_most=len(codebooks) - 1)
    scores = classifier.edge_scores(x)
    if len(scores) != 1:
        raise ValueError(f"x must have one row, got {len(scores)}")
    best, totals = classifier.predict_topk(x, k)
    labels = best[0].tolist()
    ids = [classifier.model_.labels.id(label) for label in labels]
    # Labels may share a path.
    paths = list(dict.fromkeys(codebooks[trellis].path_of(ids).tolist()))
    h = scores[0].reshape(len(codebooks), graph.n_edges)[trellis]
    if title is None:
        title = ", ".join(f"{a} ({s:.3g})" for a, s in zip(labels, totals[0], strict=True))
    title = title.replace("{label}", ", ".join(map(str, labels)))
    texts = path_texts(graph, paths, h)
    ax = plot_trellis(graph, paths, edge_labels=texts, vertex_labels=False, ax=ax, title=title)
    size = np.clip(ax.get_window_extent().width / ax.figure.dpi, 10, 20)
    ax.title.set_fontsize(size)
    for text in ax.texts:  # there is room for a few scores where those of all edges would not fit
        text.set_fontsize(max(text.get_fontsize(), 0.7 * size))
    return ax


def plot_codebook(
    trellis: Trellis,
    codebook: Codebook,
    labels: Sequence[int] | None = None,
    *,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw a codebook as a map, with a row for every label and a column for every slice.

    The colour of a cell is the state of the label's path in that slice; cells after the end of a
    short path are white. Two labels share an edge where two adjacent cells have the same colours.

    Parameters
    ----------
    trellis : Trellis
        The graph.
    codebook : TableCodebook, RandomCodebook or BucketCodebook
        Which label has which path.
    labels : sequence of int, optional
        The labels to show, in this order, such as the most frequent first; by default all of them,
        or 2,000 evenly spaced ones.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default, a new figure.
    title : str, optional
        The title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, whose only image holds the states, masked where a path has ended.

    Examples
    --------
    >>> from ltls import RandomCodebook, Trellis
    >>> from ltls.plot import plot_codebook
    >>> ax = plot_codebook(Trellis(100, width=4), RandomCodebook(100, seed=1))
    >>> ax.images[0].get_array().shape  # slices and the auxiliary vertices
    (100, 4)
    """
    if codebook.n_paths > trellis.n_classes:
        raise ValueError(
            f"codebook must have at most the {trellis.n_classes} paths of the trellis, got "
            f"n_paths={codebook.n_paths}"
        )
    if labels is None:
        n = codebook.n_labels
        labels = np.linspace(0, n - 1, min(n, MAX_LABELS)).round().astype(int).tolist()
    paths = codebook.path_of(np.asarray(labels, np.int64))
    edges = trellis.path_edges_batch(np.maximum(paths, 0))
    edges[paths < 0] = -1  # labels without a path yet
    # The edge at place i of a path leads to a state of slice i, the last one to the sink.
    heads = trellis.edges[edges, 1]
    ended = (edges < 0) | (heads == trellis.edges.max(initial=0))
    states = np.ma.masked_where(ended, (heads - 1) % trellis.width)[:, :-1]
    if ax is None:
        ax = _new_axes(5, 5)
    colors = colormaps["viridis"].resampled(trellis.width)
    image = ax.imshow(states, colors, aspect="auto", interpolation="nearest")
    image.set_clim(-0.5, trellis.width - 0.5)
    bar = ax.figure.colorbar(image, ax=ax, label="state")
    for axis in (bar.ax.yaxis, ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="slice", ylabel="label")
    if title:
        ax.set_title(title)
    return ax


def plot_learning_curves(
    curves: Mapping[str, Any], *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the mean loss of every epoch, for one or several models.

    Parameters
    ----------
    curves : mapping from str to classifier or sequence of float
        Names, and fitted classifiers or their `loss_curve_`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default, a new figure.
    title : str, optional
        The title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, with a line for every curve.

    Examples
    --------
    >>> from ltls.plot import plot_learning_curves
    >>> ax = plot_learning_curves({"width 2": [2.3, 1.1, 0.8], "width 8": [1.9, 0.7, 0.4]})
    >>> [line.get_label() for line in ax.lines]
    ['width 2', 'width 8']
    """
    if not curves:
        raise ValueError("curves must hold at least one curve, got none")
    if ax is None:
        ax = _new_axes(6, 4)
    for name, curve in curves.items():
        losses = getattr(curve, "loss_curve_", curve)
        ax.plot(range(1, len(losses) + 1), losses, marker="o", label=name)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="epoch", ylabel="mean loss")
    ax.grid(alpha=0.3)
    ax.legend()
    if title:
        ax.set_title(title)
    return ax


def _new_axes(width: float, height: float) -> Axes:
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(width, height), layout="constrained").subplots()
