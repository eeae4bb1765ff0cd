"""Least-squares fit of edge weights to the rows of a softmax layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .codebooks import LabelPaths
from .layout import Layout

_RIDGE = 1e-6  # relative to the mean of the diagonal
_LABELS_PER_CHUNK = 1 << 16


@torch.no_grad()
def fit_edges(
    layout: Layout, codebooks: Iterable[LabelPaths], linear: nn.Linear, counts: Any = None
) -> Tensor:
    """Return edge weights whose sums over paths approximate the rows of a linear layer.

    Every trellis is fitted on its own, by weighted least squares.

    Parameters
    ----------
    layout : Layout
    codebooks : iterable of LabelPaths
        One per trellis.
    linear : nn.Linear
        The layer, with one row per label. Its bias, if any, is fitted as one more column.
    counts : array of shape (n_labels,), optional
        Label i has weight 1 + counts[i].

    Returns
    -------
    weight : float64 tensor of shape (n_trellises * n_edges, in_features + bias)
    """
    rows = linear.weight.detach().to(torch.float64)
    if linear.bias is not None:
        rows = torch.cat([rows, linear.bias.detach().to(torch.float64)[:, None]], 1)
    weights = torch.ones(len(rows), dtype=torch.float64, device=rows.device)
    if counts is not None:
        weights += torch.as_tensor(counts).to(weights)
    weights /= weights.sum()
    labels = torch.arange(len(rows), device=rows.device)
    return torch.cat(
        [_least_squares(layout, book.path_of(labels), rows, weights) for book in codebooks]
    )


def _least_squares(layout: Layout, paths: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Solve the normal equations of one trellis, shape (n_edges, columns)."""
    n = layout.n_edges
    gram = rows.new_zeros(n * n)  # weight of the labels whose path has both edges
    target = rows.new_zeros((n + 1, rows.shape[1]))  # the last row absorbs the padding of paths
    for chunk in torch.arange(len(paths), device=paths.device).split(_LABELS_PER_CHUNK):
        edges = layout.path_edges(paths[chunk])
        weight = weights[chunk]
        for i in range(edges.shape[1]):
            target.index_add_(0, edges[:, i] % (n + 1), weight[:, None] * rows[chunk])
            for j in range(edges.shape[1]):
                both = (edges[:, i] >= 0) & (edges[:, j] >= 0)
                pairs = (edges[:, i] * n + edges[:, j])[both]
                gram.index_add_(0, pairs, weight[both])
    # Edges are linearly dependent and the Gram matrix is singular: the ridge picks one solution.
    square = gram.view(n, n)
    square.diagonal().add_(_RIDGE * square.diagonal().mean())
    return torch.cholesky_solve(target[:n], torch.linalg.cholesky(square))
