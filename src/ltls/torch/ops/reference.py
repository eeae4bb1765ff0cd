"""The dynamic programs in plain torch operations.

They run where neither the compiled engine nor Triton is available, and they can be differentiated
more than once. Every slice takes several operations that each allocate a tensor, which is what the
fused kernels avoid.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..layout import Block, Layout
from .tracing import is_exported

_FORBIDDEN = -1e30  # stands in for −inf: the gradient of logsumexp is NaN where all inputs are −inf


def forward_values(h: Tensor, layout: Layout) -> list[Tensor]:
    """Return, for every slice, the logsumexp over all partial paths to each of its states."""
    alpha = [h[:, : layout.width]]
    for i in range(1, layout.n_slices + 1):
        alpha.append(torch.logsumexp(alpha[-1][:, :, None] + layout.block(h, i), 1))
    return alpha


def block_values(h: Tensor, alpha: list[Tensor], blocks: Sequence[Block]) -> Tensor:
    """Return the logsumexp over all paths through each state of the blocks, (rows, states)."""
    parts = [alpha[each.level][:, each.first : each.end] + each.scores(h) for each in blocks]
    return torch.cat(parts, 1)


def log_partition(h: Tensor, layout: Layout, blocks: Sequence[Block] | None = None) -> Tensor:
    """Return the logsumexp over all paths, or over those of some blocks, shape (rows,)."""
    if layout.n_slices == 0:
        return h.sum(1)
    h = h.clamp(min=_FORBIDDEN)
    blocks = layout.blocks(0, layout.n_classes) if blocks is None else blocks
    log_z = torch.logsumexp(block_values(h, forward_values(h, layout), blocks), 1)
    return torch.where(log_z > _FORBIDDEN / 2, log_z, -torch.inf)


def mean_score(h: Tensor, layout: Layout) -> Tensor:
    """Return the mean score of all paths, shape (rows,).

    Each edge counts as often as paths use it: states of slice i − 1 are reached by width**(i − 1)
    paths, whatever follows.
    """
    if layout.n_slices == 0:
        return h.sum(1)
    total = h.new_zeros(len(h))
    onward = 0  # paths from a state of the slice to the sink, without its own exit
    for i in range(layout.n_slices, -1, -1):
        prefixes = layout.width ** max(i - 1, 0)
        into = layout.block(h, i) if i else h[:, None, : layout.width]
        exits = layout.digits[i]
        reached = into[:, :, :exits].sum((1, 2)) + onward * into.sum((1, 2))
        total = total + prefixes / layout.n_classes * reached
        total = total + layout.width**i / layout.n_classes * layout.exits(h, i).sum(1)
        onward = onward * layout.states(i) + exits
    return total


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
    with torch.inference_mode(False), torch.enable_grad():
        leaf = h.detach().clone().requires_grad_()
        return torch.autograd.grad(log_partition(leaf, layout).sum(), leaf)[0]


def topk(
    h: Tensor, layout: Layout, k: int, blocks: Sequence[Block] | None = None
) -> tuple[Tensor, Tensor]:
    """Return the k best paths of every row and their scores, by list Viterbi."""
    if layout.n_slices == 0:
        total = h.sum(1, keepdim=True)  # the single path, which has no edges
        return torch.zeros_like(total, dtype=torch.int64), total
    blocks = layout.blocks(0, layout.n_classes) if blocks is None else blocks
    states = torch.arange(layout.width, device=h.device)
    scores, paths = h[:, : layout.width, None], states[None, :, None].expand(h.shape[0], -1, 1)
    lists = [(scores, paths)]
    for i in range(1, layout.n_slices + 1):
        # Dimensions: row, state in slice i, state in slice i − 1, rank in that state's list.
        candidates = scores[:, None] + layout.block(h, i).transpose(1, 2)[..., None]
        scores, indices = _stable_topk(candidates.flatten(2), k)
        prefixes = paths[:, None].expand(-1, layout.states(i), -1, -1).flatten(2)
        digit = states[: layout.states(i), None] * layout.width**i
        paths = prefixes.gather(2, indices) + digit
        lists.append((scores, paths))
    found = []
    for each in blocks:
        scores, paths = (values[:, each.first : each.end] for values in lists[each.level])
        scores = scores + each.scores(h)[..., None]
        found.append((scores.flatten(1), (paths + each.path).flatten(1)))
    all_scores, all_paths = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    best, indices = _stable_topk(all_scores, k)
    return torch.where(best > -torch.inf, all_paths.gather(1, indices), -1), best


def _stable_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of the last dimension; ties go to the smaller index."""
    if is_exported():  # ONNX has no stable sort, but its TopK is stable
        return torch.topk(scores, min(k, scores.shape[-1]), -1)
    values, indices = scores.sort(dim=-1, descending=True, stable=True)
    return values[..., :k], indices[..., :k]


def sample(
    h: Tensor,
    layout: Layout,
    n: int,
    generator: torch.Generator | None,
    blocks: Sequence[Block] | None = None,
) -> Tensor:
    """Draw n paths per row with probability proportional to exp(score), shape (rows, n).

    Forward filtering, backward sampling: draw the last free state, then one state per slice down to
    the first. A row in which every path scores −inf gets path −1.
    """
    if layout.n_slices == 0:
        return torch.zeros((len(h), n), dtype=torch.int64, device=h.device)
    blocks = layout.blocks(0, layout.n_classes) if blocks is None else blocks
    alpha = forward_values(h, layout)
    values = block_values(h, alpha, blocks)
    chosen = _categorical(values[:, :, None].expand(-1, -1, n), generator)
    last = torch.zeros_like(chosen)  # the slice of the last free state
    state, first = chosen, torch.zeros_like(chosen)
    start = 0
    for each in blocks:
        count = each.end - each.first
        here = (chosen >= start) & (chosen < start + count)
        last = torch.where(here, each.level, last)
        state = torch.where(here, chosen - start + each.first, state)
        first = torch.where(here, each.path, first)
        start += count
    number = torch.zeros_like(chosen)  # Σ state · width**slice
    for i in range(layout.n_slices, 0, -1):
        on_path = i <= last
        to = torch.where(on_path, state, 0).clamp(max=layout.states(i) - 1)
        to = to[:, None].expand(-1, layout.width, -1)
        logits = alpha[i - 1][:, :, None] + layout.block(h, i).gather(2, to)
        previous = _categorical(logits, generator)
        number = torch.where(on_path, number + state * layout.width**i, number)
        state = torch.where(on_path, previous, state)
    paths = first + number + state
    return torch.where(values.amax(1, keepdim=True) > -torch.inf, paths, -1)


def _categorical(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index of dimension 1 from softmax(logits), by the Gumbel-max trick."""
    exponential = torch.empty_like(logits).exponential_(generator=generator)
    return (logits - exponential.log()).argmax(1)
