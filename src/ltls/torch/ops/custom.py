"""The dynamic programs as custom operators of torch, on the compiled engine or on Triton kernels.

Training takes two operators: the log-probabilities of given paths together with the log-partition,
and their gradient. They are registered with `torch.library` and have fake (meta) implementations,
so `torch.compile` traces through them without a graph break. In eager mode the same functions are
called directly, which skips the dispatcher: it would take the host longer than the kernels take the
GPU. The loss of a training step exists in eager mode only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..layout import AnyTrellis, Layout, make_layout
from .available import HAS_ENGINE, HAS_TRITON
from .precision import accumulation_dtype
from .tracing import is_exported, is_traced, is_transformed

if HAS_ENGINE:
    from . import engine
if HAS_TRITON:
    from . import launch

MAX_FUSED_WIDTH = 64  # of the Triton kernels
Compute = TypeVar("Compute", bound=Callable[..., Any])


def is_fused(h: Tensor, trellis: AnyTrellis) -> bool:
    """Return whether a fused implementation exists for this tensor; otherwise use `reference`."""
    if trellis.n_slices == 0 or _is_plain():
        return False
    if h.device.type == "cpu":
        return HAS_ENGINE
    return h.device.type == "cuda" and HAS_TRITON and trellis.width <= MAX_FUSED_WIDTH


def _is_plain() -> bool:
    """Return whether only plain operations work: in an export to ONNX, and in transforms."""
    return is_exported() or is_transformed()


def _use_triton(values: Tensor) -> bool:
    return values.is_cuda and HAS_TRITON


def _is_eager(values: Tensor) -> bool:
    """Return whether this is an ordinary tensor in eager mode: no tracing, no subclass."""
    return type(values) is Tensor and not values.is_meta and not is_traced()


def _operator(
    fake: Callable[..., Any], is_direct: Callable[[Tensor], bool] = _is_eager
) -> Callable[[Compute], Compute]:
    """Register a function as the operator of its name, with a fake implementation.

    The result calls the function where `is_direct` of the first tensor says so, else the operator.
    """

    def register(compute: Any) -> Any:
        name = f"ltls::{compute.__name__}"
        registered = torch.library.custom_op(name, compute, mutates_args=())
        registered.register_fake(fake)
        operator = getattr(torch.ops.ltls, compute.__name__)

        @wraps(compute)
        def call(values: Tensor, *others: Any) -> Any:
            return (compute if is_direct(values) else operator)(values, *others)

        return call

    return register


def _like_first(values: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


# Log-probabilities and the log-partition


def log_probs(
    h: Tensor, paths: Tensor, n_classes: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities of k paths per row, log-partitions, and forward values.

    Parameters
    ----------
    h : tensor of shape (rows, n_edges)
    paths : int64 tensor of shape (rows, k)
        Path −1 has log-probability 0 and no gradient.
    n_classes, width : int
        The size of the trellis.

    Returns
    -------
    log_probs : tensor of shape (rows, k)
    log_z : tensor of shape (rows,)
        The log-partition.
    alpha : tensor of shape (rows, n_slices + 1, width + 1)
        The forward values, saved for the backward pass; not differentiable. Empty on a CPU, where
        the engine recomputes them.
    """
    compute = _LogProbs.apply if _is_eager(h) else torch.ops.ltls.log_probs
    return compute(h, paths, n_classes, width)


def _log_probs(
    h: Tensor, paths: Tensor, n_classes: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    if _use_triton(h):
        return launch.forward(h.contiguous(), paths.contiguous(), make_layout(n_classes, width))
    return engine.forward(h, paths, n_classes, width)


_log_probs_op = torch.library.custom_op("ltls::log_probs", _log_probs, mutates_args=())


@_log_probs_op.register_fake
def _(h: Tensor, paths: Tensor, n_classes: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    # int: a compiled function may see a number that differs between two layers as a symbol.
    layout, dtype = make_layout(int(n_classes), int(width)), accumulation_dtype(h)
    shape = (h.shape[0], layout.n_slices + 1, layout.width + 1) if h.is_cuda else (0,)
    return (
        h.new_empty(paths.shape, dtype=dtype),
        h.new_empty(h.shape[:1], dtype=dtype),
        h.new_empty(shape, dtype=dtype),
    )


# With grad mode on, the caller asked for create_graph: the registered operator raises an error when
# that graph is differentiated.
@_operator(_like_first, lambda h: _is_eager(h) and not torch.is_grad_enabled())
def log_probs_backward(
    h: Tensor,
    paths: Tensor,
    log_z: Tensor,
    alpha: Tensor,
    grad_log_probs: Tensor,
    grad_log_z: Tensor | None,
    n_classes: int,
    width: int,
) -> Tensor:
    """Return the gradient with respect to h.

    Row by row it is Σ_k grad_log_probs[k] · (indicator of path k − marginals) + grad_log_z ·
    marginals.
    """
    layout = make_layout(n_classes, width)
    if _use_triton(h) and paths.shape[1] == 1:  # in one kernel
        return launch.backward(
            h.contiguous(), paths.contiguous(), log_z, alpha, grad_log_probs, grad_log_z, layout
        )
    given = torch.where((paths >= 0) & (paths < n_classes), grad_log_probs, 0)
    scale = -given.sum(1)
    scale = scale if grad_log_z is None else scale + grad_log_z
    if _use_triton(h):
        grad = launch.backward(h.contiguous(), paths, log_z, alpha, None, scale, layout)
    else:
        grad = engine.marginals(h, n_classes, width).mul_(scale[:, None])
    if paths.shape[1]:
        edges = layout.path_edges(paths)
        on_path = torch.where(edges >= 0, given[..., None], 0).to(grad.dtype)
        grad.scatter_add_(1, edges.clamp(0, layout.n_edges - 1).flatten(1), on_path.flatten(1))
    return grad.to(h.dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    h, paths, ctx.n_classes, ctx.width = inputs
    _, log_z, alpha = output
    ctx.save_for_backward(h, paths, log_z, alpha)
    ctx.mark_non_differentiable(alpha)
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad_log_probs: Tensor | None, grad_log_z: Tensor | None, _: None
) -> tuple[Tensor, None, None, None]:
    h, paths, log_z, alpha = ctx.saved_tensors
    if grad_log_probs is None:
        grad_log_probs = torch.zeros_like(paths, dtype=log_z.dtype)
    grad = log_probs_backward(
        h, paths, log_z, alpha, grad_log_probs, grad_log_z, ctx.n_classes, ctx.width
    )
    return grad, None, None, None


def _no_double_backward(ctx: Any, grad: Tensor) -> None:
    raise RuntimeError(
        "the fused trellis operators do not support double backward; use plain torch operations: "
        "fused=False"
    )


_log_probs_op.register_autograd(_backward, setup_context=_setup_context)
torch.library.register_autograd("ltls::log_probs_backward", _no_double_backward)


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Make an error of gradients of gradients, which `once_differentiable` misses after a sum."""

    @wraps(backward)
    def call(ctx: Any, *grads: Any) -> Any:
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():  # it is with create_graph=True
            return found
        of = [x for x in (*grads, *ctx.saved_tensors) if x is not None and x.requires_grad]
        results = found if isinstance(found, tuple) else (found,)
        return tuple(x if x is None else _FirstDerivative.apply(x, *of) for x in results)

    return call


class _FirstDerivative(torch.autograd.Function):
    """A gradient that must not be differentiated further."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, *of: Tensor) -> Tensor:
        return grad.view_as(grad)

    backward = staticmethod(_no_double_backward)


class _LogProbs(torch.autograd.Function):
    """`ltls::log_probs` in eager mode."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        output = _log_probs(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    backward = staticmethod(_backward)


# The loss of a training step


def fuses_loss(h: Tensor, trellis: AnyTrellis) -> bool:
    """Return whether `loss` takes these edge scores: on a GPU, in eager mode."""
    return _use_triton(h) and _is_eager(h) and is_fused(h, trellis)


class _Loss(torch.autograd.Function):
    """The reduced negative log-likelihood, and the log-probabilities of labels.

    The look-up of the labels, the dynamic program and their gradients are one kernel forward and
    one backward. In eager mode the host takes longer to launch kernels than they take to run.

    Parameters
    ----------
    h : tensor of shape (rows, n_edges)
    labels : int64 tensor of shape (rows,)
    table : integer tensor of shape (n_labels,), optional
        The path of every label; without it, label i has path i.
    n_labels : int
    ignore_index : int
    reduction : {"mean", "sum", "none"}
        "mean" averages over the labels that are not ignored; with "none" there is no loss.
    layout : Layout
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        labels: Tensor,
        table: Tensor | None,
        n_labels: int,
        ignore_index: int,
        reduction: str,
        layout: Layout,
    ) -> tuple[Tensor | None, Tensor]:
        h, labels = h.contiguous(), labels.contiguous()  # targets may be a column of a batch
        paths = torch.empty((len(h), 1), dtype=torch.int64, device=h.device)
        ignored = torch.empty(len(h), dtype=torch.int64, device=h.device)
        look_up = labels, table, n_labels, ignore_index, ignored
        log_probs, log_z, alpha = launch.forward(h, paths, layout, look_up)
        total = n_counted = None
        if reduction != "none":
            # With one column per row, class 0 or ignored, nll_loss masks, counts and reduces.
            total, n_counted = torch.ops.aten.nll_loss_forward(
                log_probs[:, None], ignored, None, 1 if reduction == "mean" else 2, -1
            )
        ctx.save_for_backward(h, paths, log_z, alpha, n_counted)
        ctx.mean, ctx.layout = reduction == "mean", layout
        ctx.set_materialize_grads(False)
        return total, log_probs

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_loss: Tensor | None, grad_log_probs: Tensor | None) -> Any:
        h, paths, log_z, alpha, n_counted = ctx.saved_tensors
        n_counted = n_counted if ctx.mean else None
        if grad_loss is None and grad_log_probs is None:
            return (None,) * 7
        grad = launch.backward(
            h, paths, log_z, alpha, grad_log_probs, None, ctx.layout, grad_loss, n_counted
        )
        return grad, None, None, None, None, None, None


loss: Callable[..., tuple[Tensor | None, Tensor]] = _Loss.apply


class _LogisticLosses(torch.autograd.Function):
    """`functional.logistic_loss` as one kernel forward and one backward."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, paths: Tensor, weights: Tensor | None, layout: Layout
    ) -> Tensor:
        weights = None if weights is None else weights.contiguous()
        given = h.contiguous(), paths.contiguous(), weights
        ctx.save_for_backward(*given)
        ctx.layout = layout
        return launch.logistic(*given, layout)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_losses: Tensor) -> Any:
        h, paths, weights = ctx.saved_tensors
        grad = launch.logistic(h, paths, weights, ctx.layout, grad_losses.contiguous())
        return grad, None, None, None


logistic_losses: Callable[..., Tensor] = _LogisticLosses.apply


# Top-k


def _fake_topk(h: Tensor, k: int, *_: Any) -> tuple[Tensor, Tensor]:
    shape = (h.shape[0], k)
    return h.new_empty(shape, dtype=torch.int64), h.new_empty(shape, dtype=accumulation_dtype(h))


@_operator(_fake_topk)
def topk(h: Tensor, k: int, n_classes: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of every row and their scores, each of shape (rows, k)."""
    if _use_triton(h):
        return launch.topk(h.contiguous(), make_layout(n_classes, width), k)
    return engine.topk(h, k, n_classes, width)


# Codebooks


@_operator(_like_first)
def permute(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
    """Map labels to paths by the keyed permutation of `RandomCodebook`, or paths to labels.

    Negative values are mapped to −1, values of at least ``sizes[-1]`` to ``sizes[-1]``.
    """
    if _use_triton(values):
        return launch.permute(values.contiguous(), seed, sizes, inverse)
    if not HAS_ENGINE:
        raise RuntimeError(
            f"a keyed codebook on device {values.device.type!r} needs the compiled engine: "
            "install ltls instead of running it from source"
        )
    size = sizes[-1]
    permuted = engine.permute(values.clamp(0, size - 1), seed, sizes, inverse).to(values.device)
    return torch.where(values < 0, -1, torch.where(values < size, permuted, size))


@torch.library.register_vmap("ltls::permute")
def _(info: Any, in_dims: Any, values: Tensor, *others: Any) -> tuple[Tensor, Any]:
    return torch.ops.ltls.permute(values, *others), in_dims[0]
