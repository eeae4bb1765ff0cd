"""From edge scores to the most probable labels: free paths skipped, mixtures exact."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import functional
from .layout import Layout
from .operators import real_of


def topk(
    h: Tensor, gate: Tensor | None, layout: Layout, codebooks: Any, k: int
) -> tuple[Tensor, Tensor]:
    """Return the k best labels of every row and their log-probabilities.

    Parameters
    ----------
    h : tensor of shape (rows, trellises, edges)
    gate : tensor of shape (rows, trellises), optional
        Log-weights of several trellises.
    layout, codebooks
        Of the trellises.
    k : int
        At most the number of labels.
    """
    if gate is None and codebooks[0].n_labels == layout.n_classes:
        paths, scores = functional.topk(h[:, 0], layout, k)
        totals = functional.log_partition(h[:, 0], layout)
        return codebooks[0].label_of(paths), scores - totals[:, None]
    if gate is None:
        gate = h.new_zeros((len(h), 1), dtype=real_of(h))
    labels = torch.empty((len(h), k), dtype=torch.int64, device=h.device)
    log_probs = torch.empty((len(h), k), dtype=real_of(h), device=h.device)
    rows = torch.arange(len(h), device=h.device)
    n_paths = min(2 * k + 8, layout.n_classes)
    while len(rows):
        found, values, certain = _search(h[rows], gate[rows], layout, codebooks, k, n_paths)
        labels[rows[certain]], log_probs[rows[certain]] = found[certain], values[certain]
        rows = rows[~certain]
        n_paths = min(4 * n_paths, layout.n_classes)
    return labels, log_probs


def _search(
    h: Tensor, gate: Tensor, layout: Layout, codebooks: Any, k: int, n_paths: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Look among the best paths of every trellis; say in which rows nothing better is left.

    What no list holds has at most the last probability of each, so at most their gated sum.
    """
    totals = functional.log_partition(h, layout)
    paths, scores = functional.topk(h, layout, n_paths)
    bound = torch.logsumexp(gate + scores[..., -1] - totals, 1)
    found = [book.label_of(paths[:, r]) for r, book in enumerate(codebooks)]
    labels = torch.cat(found, 1).sort(1).values
    repeated = torch.zeros_like(labels, dtype=torch.bool)
    repeated[:, 1:] = labels[:, 1:] == labels[:, :-1]
    known = torch.stack([book.path_of(labels) for book in codebooks], 1)
    each = functional.log_prob(h, known, layout)
    log_probs = torch.logsumexp(each + gate[..., None], 1)
    log_probs = log_probs.masked_fill(repeated | (labels < 0), -torch.inf)
    values, places = log_probs.sort(dim=1, descending=True, stable=True)
    values, best = values[:, :k], labels.gather(1, places[:, :k])
    if n_paths == layout.n_classes:
        return best, values, torch.ones_like(bound, dtype=torch.bool)
    return best, values, values[:, -1] >= bound
