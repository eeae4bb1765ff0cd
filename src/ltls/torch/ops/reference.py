"""The dynamic programs in plain torch operations.

They run where neither the compiled engine nor Triton is available, and they can be differentiated
more than once. Every slice takes several operations that each allocate a tensor, which is what the
fused kernels avoid.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..layout import Layout

_FORBIDDEN = -1e30  # stands in for −inf: the gradient of logsumexp is NaN where all inputs are −inf


def forward_values(h: Tensor, layout: Layout) -> list[Tensor]:
    """Return, for every slice, the logsumexp over all partial paths to each of its states."""
    alpha = [h[:, : layout.width]]
    for i in range(1, layout.n_slices + 1):
        alpha.append(torch.logsumexp(alpha[-1][:, :, None] + layout.block(h, i), 1))
    return alpha


def exit_values(h: Tensor, alpha: list[Tensor], layout: Layout) -> Tensor:
    """Return the logsumexp over all paths through each exit, exits ordered by slice and state."""
    exits = [
        alpha[i][:, : layout.digits[i]] + layout.exits(h, i) for i in range(layout.n_slices + 1)
    ]
    return torch.cat(exits, 1)


def log_partition(h: Tensor, layout: Layout) -> Tensor:
    """Return the logsumexp over all paths, shape (rows,)."""
    if layout.n_slices == 0:
        return h.sum(1)
    h = h.clamp(min=_FORBIDDEN)
    log_z = torch.logsumexp(exit_values(h, forward_values(h, layout), layout), 1)
    return torch.where(log_z > _FORBIDDEN / 2, log_z, -torch.inf)


def path_scores(h: Tensor, paths: Tensor, layout: Layout) -> Tensor:
    """Return the scores of k paths per row, shape (rows, k).

    Path −1 scores 0; a path out of range scores NaN.
    """
    edges = layout.path_edges(paths)
    scores = h.gather(1, edges.clamp(min=0).flatten(1)).unflatten(1, edges.shape[1:])
    total = torch.where(edges >= 0, scores, 0).sum(-1)
    return torch.where(paths < layout.n_classes, total, torch.nan)


def marginals(h: Tensor, layout: Layout) -> Tensor:
    """Return the marginal probability of every edge: the gradient of the log-partition."""
    with torch.enable_grad():
        leaf = h.detach().requires_grad_()
        return torch.autograd.grad(log_partition(leaf, layout).sum(), leaf)[0]


def topk(h: Tensor, layout: Layout, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of every row and their scores, by list Viterbi."""
    if layout.n_slices == 0:
        total = h.sum(1, keepdim=True)  # the single path, which has no edges
        return torch.zeros_like(total, dtype=torch.int64), total
    states = torch.arange(layout.width, device=h.device)
    scores, paths = h[:, : layout.width, None], states[None, :, None].expand(len(h), -1, 1)
    exits = []
    for i in range(layout.n_slices + 1):
        if i:
            # Dimensions: row, state in slice i, state in slice i − 1, rank in that state's list.
            candidates = scores[:, None] + layout.block(h, i).transpose(1, 2)[..., None]
            scores, indices = _stable_topk(candidates.flatten(2), k)
            prefixes = paths[:, None].expand(-1, layout.states(i), -1, -1).flatten(2)
            digit = states[: layout.states(i), None] * layout.width**i
            paths = prefixes.gather(2, indices) + digit
        leaving = slice(0, layout.digits[i])
        exits.append(
            (
                (scores[:, leaving] + layout.exits(h, i)[..., None]).flatten(1),
                (paths[:, leaving] + layout.first_path[i]).flatten(1),
            )
        )
    all_scores, all_paths = (torch.cat(parts, 1) for parts in zip(*exits, strict=True))
    best, indices = _stable_topk(all_scores, k)
    return torch.where(best > -torch.inf, all_paths.gather(1, indices), -1), best


def _stable_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of the last dimension; ties go to the smaller index."""
    values, indices = scores.sort(dim=-1, descending=True, stable=True)
    return values[..., :k], indices[..., :k]


def sample(h: Tensor, layout: Layout, n: int, generator: torch.Generator | None) -> Tensor:
    """Draw n paths per row with probability proportional to exp(score), shape (rows, n).

    Forward filtering, backward sampling: draw an exit, then one state per slice from the last to
    the first. A row in which every path scores −inf gets path −1.
    """
    if layout.n_slices == 0:
        return torch.zeros((len(h), n), dtype=torch.int64, device=h.device)
    alpha = forward_values(h, layout)
    exits = exit_values(h, alpha, layout)
    chosen = _categorical(exits[:, :, None].expand(-1, -1, n), generator)
    last = torch.zeros_like(chosen)  # the slice that the path leaves
    state, first = chosen, torch.zeros_like(chosen)
    start = 0
    for i, digit in enumerate(layout.digits):
        here = (chosen >= start) & (chosen < start + digit)
        last = torch.where(here, i, last)
        state = torch.where(here, chosen - start, state)
        first = torch.where(here, layout.first_path[i], first)
        start += digit
    number = torch.zeros_like(chosen)  # Σ state · width**slice
    for i in range(layout.n_slices, 0, -1):
        on_path = i <= last
        to = torch.where(on_path, state, 0)[:, None].expand(-1, layout.width, -1)
        logits = alpha[i - 1][:, :, None] + layout.block(h, i).gather(2, to)
        previous = _categorical(logits, generator)
        number = torch.where(on_path, number + state * layout.width**i, number)
        state = torch.where(on_path, previous, state)
    paths = first + number + state
    return torch.where(exits.amax(1, keepdim=True) > -torch.inf, paths, -1)


def _categorical(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index of dimension 1 from softmax(logits), by the Gumbel-max trick."""
    exponential = torch.empty_like(logits).exponential_(generator=generator)
    return (logits - exponential.log()).argmax(1)


def look_up(
    labels: Tensor, table: Tensor | None, n_labels: int, n_paths: int, ignore_index: int
) -> Tensor:
    """Return the paths of labels: −1 for `ignore_index`, `n_paths` for a label out of range."""
    known = (labels >= 0) & (labels < n_labels)
    paths = labels if table is None else table[labels.clamp(0, n_labels - 1)].to(torch.int64)
    return torch.where(labels == ignore_index, -1, torch.where(known, paths, n_paths))
