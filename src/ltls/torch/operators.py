"""The dynamic programs as operators of torch, on the compiled engine or on Triton.

Two operators do all the training: the log-probabilities of given paths together with the
log-partition, and their gradient. Registered with torch they are opaque to its compiler and have
shapes that it can infer, so that `torch.compile` traces through them without a break. Where torch
traces nothing the same functions are called directly, which takes the host a third of the time: it
is slower than the GPU that it launches kernels on.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .layout import AnyTrellis, make_layout

WIDEST_FUSED = 64
_WORTH_THREADS = 1 << 16  # edge scores; for fewer, starting threads takes longer than the work
HAS_ENGINE = importlib.util.find_spec("ltls._engine") is not None
HAS_TRITON = importlib.util.find_spec("triton") is not None


def is_fused(h: Tensor, trellis: AnyTrellis) -> bool:
    """Whether the operators serve this tensor; plain torch operations have to, if not."""
    if trellis.n_slices == 0:
        return False
    if h.device.type == "cpu":
        return HAS_ENGINE
    return h.device.type == "cuda" and HAS_TRITON and trellis.width <= WIDEST_FUSED


def real_of(h: Tensor) -> torch.dtype:
    """Return the type that sums are kept in."""
    return torch.float64 if h.dtype == torch.float64 else torch.float32


def _on_gpu(values: Tensor) -> bool:
    return values.is_cuda and HAS_TRITON


def _is_eager(values: Tensor) -> bool:
    """Whether these are plain numbers, and nothing that torch traces."""
    return not torch.compiler.is_compiling() and type(values) is Tensor


@lru_cache(maxsize=256)
def _engine_trellis(n_classes: int, width: int) -> Any:
    from ltls import Trellis

    return Trellis(n_classes, width)


def _on_cpu(h: Tensor, n_classes: int, width: int) -> tuple[Any, Any, int]:
    """Return the engine's trellis, h as an array that shares its memory, and how many threads."""
    array = h.detach().to(real_of(h)).contiguous().numpy()
    n_jobs = torch.get_num_threads() if array.size >= _WORTH_THREADS else 1
    return _engine_trellis(n_classes, width), array, n_jobs


def log_probs(
    h: Tensor, paths: Tensor, n_classes: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities of some paths of every row, its log-partition, and states' values.

    The first two have gradients. A path of −1 has 0, and no gradient. The values are what the way
    back needs, on a GPU; the engine finds them again, and they are empty.
    """
    compute = _LogProbs.apply if _is_eager(h) else torch.ops.ltls.log_probs
    return compute(h, paths, n_classes, width)


def _log_probs(
    h: Tensor, paths: Tensor, n_classes: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    if _on_gpu(h):
        from . import launches

        layout = make_layout(n_classes, width)
        return launches.forward(h.contiguous(), paths.contiguous(), layout)
    trellis, rows, n_jobs = _on_cpu(h, n_classes, width)
    totals = torch.from_numpy(trellis.log_partition(rows, n_jobs))
    result = totals.new_empty(paths.shape)
    if paths.shape[1]:
        scores = torch.from_numpy(trellis.score(rows, paths.clamp(min=0).numpy(), n_jobs))
        result = torch.where(paths >= 0, scores - totals[:, None], 0)
    return result, totals, totals.new_empty(0)


_operator = torch.library.custom_op("ltls::log_probs", _log_probs, mutates_args=())


@_operator.register_fake
def _(h: Tensor, paths: Tensor, n_classes: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    layout, real = make_layout(n_classes, width), real_of(h)
    shape = (h.shape[0], layout.n_slices + 1, layout.width) if h.is_cuda else (0,)
    return (
        h.new_empty(paths.shape, dtype=real),
        h.new_empty(h.shape[:1], dtype=real),
        h.new_empty(shape, dtype=real),
    )


def log_probs_backward(
    h: Tensor,
    paths: Tensor,
    totals: Tensor,
    values: Tensor,
    grads: Tensor,
    total_grads: Tensor | None,
    n_classes: int,
    width: int,
) -> Tensor:
    """Return the gradient in h: `grads` on the edges of paths, and the rest on the marginals."""
    # Only where gradients of gradients are asked for is a way back recorded: to be refused.
    direct = _is_eager(h) and not torch.is_grad_enabled()
    compute = _log_probs_backward if direct else torch.ops.ltls.log_probs_backward
    return compute(h, paths, totals, values, grads, total_grads, n_classes, width)


def _log_probs_backward(
    h: Tensor,
    paths: Tensor,
    totals: Tensor,
    values: Tensor,
    grads: Tensor,
    total_grads: Tensor | None,
    n_classes: int,
    width: int,
) -> Tensor:
    if _on_gpu(h):
        from . import launches

        layout = make_layout(n_classes, width)
        return launches.backward(
            h.contiguous(), paths.contiguous(), totals, values, grads, total_grads, layout
        )
    trellis, rows, n_jobs = _on_cpu(h, n_classes, width)
    result = torch.from_numpy(trellis.marginals(rows, n_jobs))
    grads = torch.where(paths >= 0, grads, 0)
    rest = -grads.sum(1)
    result *= (rest if total_grads is None else rest + total_grads)[:, None]
    if paths.shape[1]:
        edges = torch.from_numpy(trellis.path_edges_batch(paths.clamp(min=0).flatten().numpy()))
        edges = edges.reshape(*paths.shape, -1)
        steps = torch.where(edges >= 0, grads[..., None], 0)
        result.scatter_add_(1, edges.clamp(min=0).flatten(1), steps.flatten(1))
    return result.to(h.dtype)


_backward_operator = torch.library.custom_op(
    "ltls::log_probs_backward", _log_probs_backward, mutates_args=()
)


@_backward_operator.register_fake
def _(
    h: Tensor,
    paths: Tensor,
    totals: Tensor,
    values: Tensor,
    grads: Tensor,
    total_grads: Tensor | None,
    n_classes: int,
    width: int,
) -> Tensor:
    return torch.empty_like(h, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    h, paths, ctx.n_classes, ctx.width = inputs
    _, totals, values = output
    ctx.save_for_backward(h, paths, totals, values)
    ctx.mark_non_differentiable(values)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grads: Tensor | None, total_grads: Tensor | None, _: None
) -> tuple[Tensor, None, None, None]:
    h, paths, totals, values = ctx.saved_tensors
    if grads is None:
        grads = torch.zeros_like(paths, dtype=totals.dtype)
    grad = log_probs_backward(
        h, paths, totals, values, grads, total_grads, ctx.n_classes, ctx.width
    )
    return grad, None, None, None


def _refuse(ctx: Any, grad: Tensor) -> None:
    raise RuntimeError(
        "the fused trellis operators can be differentiated once; for gradients of gradients use "
        "plain torch operations: fused=False"
    )


_operator.register_autograd(_differentiate, setup_context=_keep)
_backward_operator.register_autograd(_refuse)


class _LogProbs(torch.autograd.Function):
    """The same for eager tensors."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        output = _log_probs(*inputs)
        _keep(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate)


def topk(h: Tensor, k: int, n_classes: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of every row and their scores."""
    compute = _topk if _is_eager(h) else torch.ops.ltls.topk
    return compute(h, k, n_classes, width)


def _topk(h: Tensor, k: int, n_classes: int, width: int) -> tuple[Tensor, Tensor]:
    if _on_gpu(h):
        from . import launches

        return launches.topk(h.contiguous(), make_layout(n_classes, width), k)
    trellis, rows, n_jobs = _on_cpu(h, n_classes, width)
    paths, scores = trellis.topk(rows, k, n_jobs)
    return torch.from_numpy(paths), torch.from_numpy(scores)


@torch.library.custom_op("ltls::topk", _topk, mutates_args=()).register_fake
def _(h: Tensor, k: int, n_classes: int, width: int) -> tuple[Tensor, Tensor]:
    shape = (h.shape[0], k)
    return h.new_empty(shape, dtype=torch.int64), h.new_empty(shape, dtype=real_of(h))


def look_up(
    labels: Tensor, table: Tensor | None, n_labels: int, n_paths: int, ignored: int
) -> Tensor:
    """Return the paths of labels, from a table if there is one.

    The ignored label has path −1, and one that does not exist `n_paths`.
    """
    compute = _look_up if _is_eager(labels) else torch.ops.ltls.look_up
    return compute(labels, table, n_labels, n_paths, ignored)


def _look_up(
    labels: Tensor, table: Tensor | None, n_labels: int, n_paths: int, ignored: int
) -> Tensor:
    if _on_gpu(labels):
        from . import launches

        return launches.look_up(labels.contiguous(), table, n_labels, n_paths, ignored)
    known = (labels >= 0) & (labels < n_labels)
    paths = labels if table is None else table[labels.clamp(0, n_labels - 1)].to(torch.int64)
    return torch.where(labels == ignored, -1, torch.where(known, paths, n_paths))


@torch.library.custom_op("ltls::look_up", _look_up, mutates_args=()).register_fake
def _(labels: Tensor, table: Tensor | None, n_labels: int, n_paths: int, ignored: int) -> Tensor:
    return torch.empty_like(labels, memory_format=torch.contiguous_format)


def permute(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
    """Map labels to paths, or back, as `RandomCodebook` does: −1 below its range, size above."""
    compute = _permute if _is_eager(values) else torch.ops.ltls.permute
    return compute(values, seed, sizes, inverse)


def _permute(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
    if _on_gpu(values):
        from . import launches

        return launches.permute(values.contiguous(), seed, sizes, inverse)
    from ltls import RandomCodebook

    book = RandomCodebook(sizes[-1], int(seed) % 2**64, grown_from=sizes[:-1])
    given = values.cpu()
    within = given.clamp(0, sizes[-1] - 1).contiguous().numpy()
    mapped = torch.from_numpy(book.label_of(within) if inverse else book.path_of(within))
    mapped = torch.where(given < 0, -1, torch.where(given < sizes[-1], mapped, sizes[-1]))
    return mapped.to(values.device)


@torch.library.custom_op("ltls::permute", _permute, mutates_args=()).register_fake
def _(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)
