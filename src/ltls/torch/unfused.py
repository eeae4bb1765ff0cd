"""The dynamic programs in plain torch operations.

They serve where neither the compiled engine nor Triton does, and where gradients of gradients are
wanted. Every slice costs several operations with tensors of their own, which is what the fused
kernels spare.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .layout import Layout

_FORBIDDEN = -1e30  # in place of −inf, whose differences have no gradient


def forward_values(h: Tensor, layout: Layout) -> list[Tensor]:
    """Return for every slice the log of the sum over the ways to each of its states."""
    values = [h[:, : layout.width]]
    for i in range(1, layout.n_slices + 1):
        values.append(torch.logsumexp(values[-1][:, :, None] + layout.block(h, i), 1))
    return values


def exit_values(h: Tensor, values: list[Tensor], layout: Layout) -> Tensor:
    """Return the values with which every exit reaches the sink, by slice and state."""
    leaving = [
        values[i][:, : layout.digits[i]] + layout.exits(h, i) for i in range(layout.n_slices + 1)
    ]
    return torch.cat(leaving, 1)


def log_partition(h: Tensor, layout: Layout) -> Tensor:
    """Return the log of the sum over all paths, shape (rows,)."""
    if layout.n_slices == 0:
        return h.sum(1)
    h = h.clamp(min=_FORBIDDEN)
    total = torch.logsumexp(exit_values(h, forward_values(h, layout), layout), 1)
    return torch.where(total > _FORBIDDEN / 2, total, -torch.inf)


def path_scores(h: Tensor, paths: Tensor, layout: Layout) -> Tensor:
    """Return the scores of some paths of every row, (rows, k); 0 for a path of −1."""
    edges = layout.path_edges(paths)
    scores = h.gather(1, edges.clamp(min=0).flatten(1)).unflatten(1, edges.shape[1:])
    total = torch.where(edges >= 0, scores, 0).sum(-1)
    return torch.where(paths < layout.n_classes, total, torch.nan)


def marginals(h: Tensor, layout: Layout) -> Tensor:
    """Return the probability of every edge."""
    with torch.enable_grad():
        leaf = h.detach().requires_grad_()
        return torch.autograd.grad(log_partition(leaf, layout).sum(), leaf)[0]


def topk(h: Tensor, layout: Layout, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of every row and their scores: list Viterbi."""
    if layout.n_slices == 0:
        total = h.sum(1, keepdim=True)  # one empty path
        return torch.zeros_like(total, dtype=torch.int64), total
    states = torch.arange(layout.width, device=h.device)
    scores, paths = h[:, : layout.width, None], states[None, :, None].expand(len(h), -1, 1)
    exits = []
    for i in range(layout.n_slices + 1):
        if i:
            # Axes: row, state to, state from, place in the list of the state from.
            candidates = scores[:, None] + layout.block(h, i).transpose(1, 2)[..., None]
            scores, places = _best(candidates.flatten(2), k)
            before = paths[:, None].expand(-1, layout.states(i), -1, -1).flatten(2)
            to = states[: layout.states(i), None] * layout.width**i
            paths = before.gather(2, places) + to
        leaving = slice(0, layout.digits[i])
        exits.append(
            (
                (scores[:, leaving] + layout.exits(h, i)[..., None]).flatten(1),
                (paths[:, leaving] + layout.first_path[i]).flatten(1),
            )
        )
    all_scores, all_paths = (torch.cat(parts, 1) for parts in zip(*exits, strict=True))
    best, places = _best(all_scores, k)
    return torch.where(best > -torch.inf, all_paths.gather(1, places), -1), best


def _best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best on the last axis, best first; of equals the first, the smaller path."""
    values, places = scores.sort(dim=-1, descending=True, stable=True)
    return values[..., :k], places[..., :k]
