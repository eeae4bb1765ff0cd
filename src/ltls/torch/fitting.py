"""A first fit of a head to the rows of a softmax layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .layout import Layout

if TYPE_CHECKING:
    from .head import TrellisSoftmax

_RIDGE = 1e-6
_LABELS_AT_A_TIME = 1 << 16


@torch.no_grad()
def fit_rows(head: TrellisSoftmax, linear: nn.Linear, counts: Any = None) -> None:
    """Set the edges' weights so that sums over paths are close to a layer's rows.

    The squares of the differences are weighed by `counts`, of which every label has one more, and
    are the smallest possible in every trellis.
    """
    rows = linear.weight.detach().to(torch.float64)
    if linear.bias is not None and head.edges.bias is not None:
        rows = torch.cat([rows, linear.bias.detach().to(torch.float64)[:, None]], 1)
    weights = torch.ones(len(rows), dtype=torch.float64, device=rows.device)
    if counts is not None:
        weights += torch.as_tensor(counts).to(weights)
    labels = torch.arange(len(rows), device=rows.device)
    fitted = torch.cat(
        [
            least_squares(head.layout, book.path_of(labels), rows, weights / weights.sum())
            for book in head.codebooks
        ]
    )
    head.edges.weight.copy_(fitted[:, : head.in_features])
    if head.edges.bias is not None:
        head.edges.bias.copy_(fitted[:, -1] if linear.bias is not None else 0)


def least_squares(layout: Layout, paths: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Return the edge vectors whose sums over paths are closest to rows: (n_edges, columns)."""
    n = layout.n_edges
    together = rows.new_zeros(n * n)  # how often two edges are on the same path
    target = rows.new_zeros((n + 1, rows.shape[1]))  # its last row takes what pads the paths
    for part in torch.arange(len(paths), device=paths.device).split(_LABELS_AT_A_TIME):
        edges = layout.path_edges(paths[part])
        weight = weights[part]
        for i in range(edges.shape[1]):
            target.index_add_(0, edges[:, i] % (n + 1), weight[:, None] * rows[part])
            for j in range(edges.shape[1]):
                both = (edges[:, i] >= 0) & (edges[:, j] >= 0)
                pairs = (edges[:, i] * n + edges[:, j])[both]
                together.index_add_(0, pairs, weight[both])
    # Edges always come with others, so the equations have many solutions: take a small one.
    square = together.view(n, n)
    square.diagonal().add_(_RIDGE * square.diagonal().mean())
    return torch.cholesky_solve(target[:n], torch.linalg.cholesky(square))
