"""Launches of the GPU kernels: what they are given, and where their results go.

Sums are kept in float32 (float64 for float64 scores). The graph is data: a table with four numbers
for every slice, so that a kernel is compiled once for a width and serves any number of classes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import triton_kernels
from .layout import Layout
from .operators import real_of

_SCORES_PER_WARP = 256


@lru_cache(maxsize=256)
def _table(layout: Layout, device: torch.device) -> Tensor:
    """Return for every slice: exits, first exit edge, first path, width ** slice."""
    rows = [
        [layout.digits[i], layout.exit_edge[i], layout.first_path[i], layout.width**i]
        for i in range(layout.n_slices + 1)
    ]
    return torch.tensor(rows, dtype=torch.int64, device=device)


@lru_cache(maxsize=256)
def _exits(layout: Layout, device: torch.device) -> Tensor:
    """Return the slice and state of every exit, smaller paths first."""
    pairs = [(i, s) for i, digit in enumerate(layout.digits) for s in range(digit)]
    return torch.tensor(pairs, dtype=torch.int64, device=device)


@lru_cache(maxsize=256)
def _shape(layout: Layout, dtype: torch.dtype) -> dict[str, Any]:
    """Return the tile of a program: few rows, since a batch must fill the whole GPU."""
    width = triton.next_power_of_2(layout.width)
    rows = max(1, min(32, _SCORES_PER_WARP // width**2))
    return {
        "B": layout.width,
        "WIDTH": width,
        "ROWS": rows,
        "REAL": tl.float64 if dtype == torch.float64 else tl.float32,
        "num_warps": max(1, min(16, rows * width**2 // _SCORES_PER_WARP)),
    }


def forward(h: Tensor, paths: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """Return the paths' log-probabilities (rows, k), log-partitions (rows,) and states' values."""
    n, k, real = len(h), paths.shape[1], real_of(h)
    log_probs = torch.empty((n, k), dtype=real, device=h.device)
    totals = torch.empty(n, dtype=real, device=h.device)
    values = torch.empty((n, layout.n_slices + 1, layout.width), dtype=real, device=h.device)
    if n:
        shape = _shape(layout, h.dtype)
        triton_kernels.forward[(triton.cdiv(n, shape["ROWS"]),)](
            h,
            paths,
            _table(layout, h.device),
            log_probs,
            totals,
            values,
            n,
            k,
            layout.n_classes,
            layout.n_edges,
            layout.n_slices,
            layout.digits[-1],
            **shape,
        )
    return log_probs, totals, values


def backward(
    h: Tensor,
    paths: Tensor,
    totals: Tensor,
    values: Tensor,
    grads: Tensor,
    total_grads: Tensor | None,
    layout: Layout,
) -> Tensor:
    """Return the gradient in h: `grads` on the edges of paths, and the rest on the marginals."""
    n, k = paths.shape
    out = torch.empty_like(h)
    if k > 1:  # several labels a row: the kernel does the marginals
        grads = torch.where((paths >= 0) & (paths < layout.n_classes), grads, 0)
        rest = -grads.sum(1)
        total_grads = rest if total_grads is None else rest + total_grads
    if n:
        shape = _shape(layout, h.dtype)
        triton_kernels.backward[(triton.cdiv(n, shape["ROWS"]),)](
            h,
            paths,
            _table(layout, h.device),
            totals,
            values,
            grads.contiguous(),
            totals if total_grads is None else total_grads.contiguous(),
            out,
            n,
            layout.n_classes,
            layout.n_edges,
            layout.n_slices,
            layout.digits[-1],
            HAS_PATH=k == 1,
            HAS_TOTAL=total_grads is not None,
            **shape,
        )
    if k > 1:
        edges = layout.path_edges(paths)
        steps = torch.where(edges >= 0, grads[..., None], 0).to(out.dtype)
        out.scatter_add_(1, edges.clamp(0, layout.n_edges - 1).flatten(1), steps.flatten(1))
    return out


def topk(h: Tensor, layout: Layout, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of every row and their scores, best first."""
    n, real = len(h), real_of(h)
    paths = torch.empty((n, k), dtype=torch.int64, device=h.device)
    scores = torch.empty((n, k), dtype=real, device=h.device)
    room = (layout.n_slices + 1, layout.width, k)
    shape = _shape(layout, h.dtype)
    exits = _exits(layout, h.device)
    # The lists of all states live in global memory, for as many rows at a time as 1 GiB holds.
    step = max(1, 2**30 // (12 * room[0] * room[1] * k))
    for first in range(0, n, step):
        rows = slice(first, min(first + step, n))
        count = rows.stop - first
        triton_kernels.topk[(triton.cdiv(count, shape["ROWS"]),)](
            h[rows],
            _table(layout, h.device),
            exits,
            torch.empty((count, *room), dtype=real, device=h.device),
            torch.empty((count, *room), dtype=torch.int64, device=h.device),
            paths[rows],
            scores[rows],
            count,
            k,
            layout.n_edges,
            layout.n_slices,
            layout.digits[-1],
            len(exits),
            EXITS=triton.next_power_of_2(len(exits)),
            **shape,
        )
    return paths, scores


def look_up(
    labels: Tensor, table: Tensor | None, n_labels: int, n_paths: int, ignored: int
) -> Tensor:
    """Return the paths of labels: −1 for the ignored one, `n_paths` for one that is not known."""
    out = torch.empty_like(labels)
    n = labels.numel()
    if n:
        triton_kernels.look_up[(triton.cdiv(n, 256),)](
            labels,
            labels if table is None else table,
            out,
            n,
            n_labels,
            n_paths,
            ignored,
            HAS_TABLE=table is not None,
            BLOCK=256,
        )
    return out


def permute(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
    """Map through the keyed permutation of `RandomCodebook`: −1 below its range, size above."""
    out = torch.empty_like(values)
    first = 0
    for block, end in enumerate(sizes):
        size = end - first
        bits = max(2, (size - 1).bit_length())
        low_bits = bits // 2
        triton_kernels.permute[(triton.cdiv(max(values.numel(), 1), 256),)](
            values,
            out,
            seed,
            values.numel(),
            first,
            end,
            block * 0xD1342543DE82EF95 % 2**64,
            low_bits,
            2**low_bits - 1,
            2 ** (bits - low_bits) - 1,
            INVERSE=inverse,
            LAST=end == sizes[-1],
            BLOCK=256,
        )
        first = end
    return out
