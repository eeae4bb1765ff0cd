"""Launches of the Triton kernels: output tensors, tile sizes and grids.

Kernels accumulate in float32 (float64 for float64 scores). The graph is passed as data, a table of
four numbers per slice: a kernel is compiled once per width and serves any number of classes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..layout import Layout
from . import triton as kernels
from .precision import accumulation_dtype

_TILE_PER_WARP = 256  # elements of a [rows, from, to] tile
_MAX_COMPILED = 1 << 12  # keys, as for many sizes of a batch


@lru_cache(maxsize=256)
def _table(layout: Layout, device: torch.device) -> Tensor:
    """Return per slice: number of exits, first exit edge, first path, width ** slice."""
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
def _constants(layout: Layout, dtype: torch.dtype) -> dict[str, Any]:
    """Return the constexprs of a launch: few rows per program, to occupy the GPU with one batch."""
    width = triton.next_power_of_2(layout.width)
    rows = max(1, min(32, _TILE_PER_WARP // width**2))
    return {
        "B": layout.width,
        "WIDTH": width,
        "ROWS": rows,
        "REAL": tl.float64 if dtype == torch.float64 else tl.float32,
        "num_warps": max(1, min(16, rows * width**2 // _TILE_PER_WARP)),
    }


def _sizes(layout: Layout) -> tuple[int, int, int, int]:
    """Return the sizes that all kernels take: classes, edges, slices and auxiliary vertices."""
    return layout.n_classes, layout.n_edges, layout.n_slices, layout.digits[-1]


_compiled: dict[Any, tuple[Any, list[Any]]] = {}


def run(kernel: Any, grid: tuple[int, ...], *given: Any, **constants: Any) -> None:
    """Launch a kernel: tensors and integers, then its constexprs by name.

    Triton looks at every argument of every launch to choose what it has compiled, which takes the
    host longer than most of these kernels take the GPU. Whatever it looks at is the key of a
    compiled kernel here, which is launched directly. Integers are part of the key as they are.
    """
    values: list[int] = []
    kinds: list[Any] = []
    for each in given:
        if isinstance(each, int):
            values.append(each)
            kinds.append(each)
        else:
            address = each.data_ptr()
            values.append(address)
            kinds.append((each.dtype, address & 15))
    device = torch.cuda.current_device() if given[0].is_cuda else -1
    key = kernel, device, *kinds, *constants.items()
    found = _compiled.get(key)
    if found is not None:
        compiled, others = found
        compiled[(*grid, 1, 1)](*values, *others)
        return
    compiled = kernel[grid](*given, **constants)
    if compiled is not None:  # in Triton's interpreter
        if len(_compiled) >= _MAX_COMPILED:
            _compiled.clear()
        names = kernel.arg_names[len(given) :]
        _compiled[key] = compiled, [constants[name] for name in names]


def forward(
    h: Tensor,
    paths: Tensor,
    layout: Layout,
    look_up: tuple[Tensor, Tensor | None, int, int, Tensor | None] | None = None,
    listed: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities (rows, k), log-partitions (rows,) and forward values (alpha).

    Parameters
    ----------
    h : tensor of shape (rows, n_edges)
    paths : int64 tensor of shape (rows, k)
    layout : Layout
    look_up : tuple of labels, table or None, n_labels, ignore_index, ignored; optional
        One label per row, whose paths are looked up and written to `paths`. Where
        a label is `ignore_index`, −1 is written to `ignored`, else 0. The log-probabilities then
        have shape (rows,).
    listed : tuple of rows, their number, log_probs; optional
        Requires `look_up`. `h` and all results have only the rows of this list, in its order,
        except `ignored` and the log-probabilities, which are written to `log_probs`.
    """
    n, dtype = len(h), accumulation_dtype(h)
    if listed is None:
        shape = paths.shape if look_up is None else n
        log_probs = torch.empty(shape, dtype=dtype, device=h.device)
        log_z = torch.empty(n, dtype=dtype, device=h.device)
    else:
        log_probs = log_z = listed[2]  # nobody asks for the log-partitions
    alpha = torch.empty((n, layout.n_slices + 1, layout.width + 1), dtype=dtype, device=h.device)
    labels, table, n_labels, ignore_index, ignored = look_up or (paths, None, 0, 0, paths)
    if n:
        constants = _constants(layout, h.dtype)
        given = h, paths, _table(layout, h.device)
        results = log_probs, log_z, alpha
        look_ups = labels, labels if table is None else table, paths if ignored is None else ignored
        lists = (paths, paths) if listed is None else listed[:2]
        sizes = n, paths.shape[1], *_sizes(layout), n_labels, ignore_index
        flags = {"LOOK_UP": look_up is not None, "HAS_TABLE": table is not None}
        flags["LISTED"] = listed is not None
        grid = (triton.cdiv(n, constants["ROWS"]),)
        run(
            kernels.forward, grid, *given, *results, *look_ups, *lists, *sizes, **flags, **constants
        )
    return log_probs, log_z, alpha


def backward(
    h: Tensor,
    paths: Tensor,
    log_z: Tensor,
    alpha: Tensor,
    grad_log_probs: Tensor | None,
    grad_log_z: Tensor | None,
    layout: Layout,
    grad_loss: Tensor | None = None,
    n_counted: Tensor | None = None,
    listed: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Return the gradient with respect to h; see `custom.log_probs_backward`.

    `grad_log_probs` needs one path per row; then `grad_loss` is that of −Σ log_probs, divided by
    `n_counted` if given. With `listed`, rows and their number, all but `grad_log_probs` is in the
    order of this list.
    """
    n, grad = len(paths), torch.empty_like(h)
    if n:
        constants = _constants(layout, h.dtype)
        run(
            kernels.backward,
            (triton.cdiv(n, constants["ROWS"]),),
            h,
            paths,
            _table(layout, h.device),
            alpha,
            log_z if grad_log_probs is None else grad_log_probs.contiguous(),
            log_z if grad_log_z is None else grad_log_z.contiguous(),
            log_z if grad_loss is None else grad_loss,
            log_z if n_counted is None else n_counted,
            grad,
            *(listed or (paths, paths)),
            n,
            *_sizes(layout),
            HAS_PATH=paths.shape[1] == 1,
            HAS_GRAD=grad_log_probs is not None,
            HAS_GRAD_LOG_Z=grad_log_z is not None,
            HAS_GRAD_LOSS=grad_loss is not None,
            MEAN=n_counted is not None,
            LISTED=listed is not None,
            **constants,
        )
    return grad


def logistic(
    h: Tensor,
    paths: Tensor,
    weights: Tensor | None,
    layout: Layout,
    grad_losses: Tensor | None = None,
) -> Tensor:
    """Return the binary cross-entropy of every row, or with `grad_losses` its gradient in h.

    See `functional.logistic_loss`.
    """
    found = h.new_empty(len(h), dtype=accumulation_dtype(h))
    if grad_losses is not None:
        found = torch.empty_like(h)
    if len(h):
        constants = _constants(layout, h.dtype)
        grid = (triton.cdiv(len(h), constants["ROWS"]),)
        given = h, paths, h if weights is None else weights, _table(layout, h.device)
        results = h if grad_losses is None else grad_losses, found, found
        sizes = len(h), paths.shape[1], *_sizes(layout)
        flags = {"HAS_WEIGHTS": weights is not None, "GRADIENT": grad_losses is not None}
        run(kernels.logistic, grid, *given, *results, *sizes, **flags, **constants)
    return found


def topk(h: Tensor, layout: Layout, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of every row and their scores, best first."""
    n, dtype = len(h), accumulation_dtype(h)
    paths = torch.empty((n, k), dtype=torch.int64, device=h.device)
    scores = torch.empty((n, k), dtype=dtype, device=h.device)
    list_shape = (layout.n_slices + 1, layout.width, k)
    constants = _constants(layout, h.dtype)
    exits = _exits(layout, h.device)
    # The k-best lists of all states are in global memory: launch in chunks of rows that take 1 GiB.
    step = max(1, 2**30 // (12 * list_shape[0] * list_shape[1] * k))
    for first in range(0, n, step):
        rows = slice(first, min(first + step, n))
        count = rows.stop - first
        kernels.topk[(triton.cdiv(count, constants["ROWS"]),)](
            h[rows],
            _table(layout, h.device),
            exits,
            torch.empty((count, *list_shape), dtype=dtype, device=h.device),
            torch.empty((count, *list_shape), dtype=torch.int64, device=h.device),
            paths[rows],
            scores[rows],
            count,
            k,
            *_sizes(layout)[1:],
            len(exits),
            EXITS=triton.next_power_of_2(len(exits)),
            **constants,
        )
    return paths, scores


def permute(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
    """Apply the keyed permutation of `RandomCodebook`, or its inverse; see `custom.permute`."""
    out = torch.empty_like(values)
    first = 0
    for block, end in enumerate(sizes):
        size = end - first
        bits = max(2, (size - 1).bit_length())
        low_bits = bits // 2
        kernels.permute[(triton.cdiv(max(values.numel(), 1), 256),)](
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
