"""The dynamic programs as custom operators of torch, on the compiled engine or on Triton kernels.

Training takes two operators: the log-probabilities of given paths together with the log-partition,
and their gradient. They are registered with `torch.library` and have fake (meta) implementations,
so `torch.compile` traces through them without a graph break. In eager mode the same functions are
called directly, which skips the dispatcher: it would take the host longer than the kernels take the
GPU. The loss of a training step and the clusters of an adaptive softmax exist in eager mode only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..layout import AnyTrellis, Layout, make_layout
from . import reference
from .available import HAS_ENGINE, HAS_TRITON
from .precision import accumulation_dtype, log_softmax
from .tracing import is_exported, is_traced, is_transformed

if HAS_ENGINE:
    from . import engine
if HAS_TRITON:
    from . import clusters, launch

MAX_FUSED_WIDTH = 64  # of the Triton kernels


def is_fused(h: Tensor, trellis: AnyTrellis) -> bool:
    """Return whether a fused implementation exists for this tensor; otherwise use `reference`."""
    if trellis.n_slices == 0 or is_exported() or is_transformed():
        return False
    if h.device.type == "cpu":
        return HAS_ENGINE
    return h.device.type == "cuda" and HAS_TRITON and trellis.width <= MAX_FUSED_WIDTH


def _use_triton(values: Tensor) -> bool:
    return values.is_cuda and HAS_TRITON


def _is_eager(values: Tensor) -> bool:
    """Return whether this is an ordinary tensor in eager mode: no tracing, no subclass."""
    return type(values) is Tensor and not values.is_meta and not is_traced()


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
    # With grad mode on, the caller asked for create_graph: the registered operator raises an error
    # when that graph is differentiated.
    direct = _is_eager(h) and not torch.is_grad_enabled()
    compute = _log_probs_backward if direct else torch.ops.ltls.log_probs_backward
    return compute(h, paths, log_z, alpha, grad_log_probs, grad_log_z, n_classes, width)


def _log_probs_backward(
    h: Tensor,
    paths: Tensor,
    log_z: Tensor,
    alpha: Tensor,
    grad_log_probs: Tensor,
    grad_log_z: Tensor | None,
    n_classes: int,
    width: int,
) -> Tensor:
    if _use_triton(h):
        layout = make_layout(n_classes, width)
        return launch.backward(
            h.contiguous(), paths.contiguous(), log_z, alpha, grad_log_probs, grad_log_z, layout
        )
    return engine.backward(h, paths, grad_log_probs, grad_log_z, n_classes, width)


_log_probs_backward_op = torch.library.custom_op(
    "ltls::log_probs_backward", _log_probs_backward, mutates_args=()
)


@_log_probs_backward_op.register_fake
def _(
    h: Tensor,
    paths: Tensor,
    log_z: Tensor,
    alpha: Tensor,
    grad_log_probs: Tensor,
    grad_log_z: Tensor | None,
    n_classes: int,
    width: int,
) -> Tensor:
    return torch.empty_like(h, memory_format=torch.contiguous_format)


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
_log_probs_backward_op.register_autograd(_no_double_backward)


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


def loss(
    h: Tensor,
    labels: Tensor,
    table: Tensor | None,
    n_labels: int,
    ignore_index: int,
    reduction: str,
    layout: Layout,
) -> tuple[Tensor | None, Tensor]:
    """Return the reduced negative log-likelihood, and the log-probabilities of labels.

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
    return _Loss.apply(h, labels, table, n_labels, ignore_index, reduction, layout)


class _Loss(torch.autograd.Function):
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
        log_probs, log_z, alpha, paths, ignored = launch.label_forward(
            h, labels, table, n_labels, ignore_index, layout
        )
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
    def backward(ctx: Any, grad_loss: Tensor | None, grad_log_probs: Tensor | None) -> Any:
        h, paths, log_z, alpha, n_counted = ctx.saved_tensors
        layout, n_counted = ctx.layout, n_counted if ctx.mean else None
        if grad_loss is None and grad_log_probs is None:
            return (None,) * 7
        if torch.is_grad_enabled():  # create_graph: the operator reports what it cannot do
            given = torch.zeros_like(log_z) if grad_log_probs is None else grad_log_probs
            if grad_loss is not None:
                given = given - (grad_loss if n_counted is None else grad_loss / n_counted)
            size = layout.n_classes, layout.width
            grad = log_probs_backward(h, paths, log_z, alpha, given[:, None], None, *size)
        else:
            grad = launch.backward(
                h, paths, log_z, alpha, grad_log_probs, None, layout, grad_loss, n_counted
            )
        return grad, None, None, None, None, None, None


# The clusters of an adaptive softmax


class ClusterTargets(NamedTuple):
    """The targets of every part of an adaptive softmax, of n rows.

    Attributes
    ----------
    head : int64 tensor of shape (n,)
        The entry of the head; −1 if the label is ignored or out of range.
    clusters : list of int64 tensors of shape (n,)
        The label within each cluster: −1 if it is in no or in another cluster, or ignored. Labels
        out of range are out of range in the last cluster.
    ignored : int64 tensor of shape (n,)
        −1 where the label is `ignore_index`, else 0.
    rows : int32 tensor of shape (n_clusters, n)
        The rows of each cluster, in order: the first `n_rows` entries, the others are undefined.
    n_rows : int32 tensor of shape (n_clusters,)
        How many rows each cluster has.
    """

    head: Tensor
    clusters: list[Tensor]
    ignored: Tensor
    rows: Tensor
    n_rows: Tensor


def cluster_targets(labels: Tensor, cutoffs: tuple[int, ...], ignore_index: int) -> ClusterTargets:
    """Return the targets of every part of an adaptive softmax, in one launch on a GPU.

    Parameters
    ----------
    labels : int64 tensor of shape (n,)
    cutoffs : tuple of int
        The first label of every cluster, then the number of labels.
    ignore_index : int
    """
    found, rows, n_rows = clusters.targets(labels.contiguous(), cutoffs, ignore_index)
    head, *within, ignored = found.unbind(0)
    return ClusterTargets(head, within, ignored, rows, n_rows)


def cluster_log_probs(
    rows: Tensor, cluster: nn.Module, targets: ClusterTargets, number: int
) -> Tensor:
    """Return the log-probabilities of the targets of a dense cluster, 0 for rows of others.

    Where kernels exist, only the cluster's rows are scored; the host does not learn how many there
    are. Otherwise all rows are, by calling the cluster.

    Parameters
    ----------
    rows : tensor of shape (n, in_features)
    cluster : nn.Sequential
        A layer that reduces the features, then one to the logits of the cluster's classes.
    targets : ClusterTargets
    number : int
        Which cluster it is.
    """
    target = targets.clusters[number]
    if not clusters.supports(cluster):
        return _masked_log_probs(cluster(rows), target)
    narrow, layer = cluster
    z, weight = narrow(rows), layer.weight
    cast = z.dtype != weight.dtype and torch.is_autocast_enabled(z.device.type)
    if z.dtype not in clusters.DTYPES or (z.dtype != weight.dtype and not cast):
        return _masked_log_probs(layer(z), target)
    return _Cluster.apply(z, weight, target, targets.rows[number], targets.n_rows[number])


def _masked_log_probs(logits: Tensor, target: Tensor) -> Tensor:
    return -nn.functional.nll_loss(log_softmax(logits), target, ignore_index=-1, reduction="none")


class _Cluster(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, weight: Tensor, target: Tensor, rows: Tensor, n_rows: Tensor
    ) -> Tensor:
        given = z.contiguous(), weight.contiguous(), target, rows, n_rows
        ctx.constants = clusters.constants(z)
        log_probs, log_z = clusters.forward(*given, ctx.constants)
        ctx.save_for_backward(*given, log_z)
        return log_probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor) -> Any:
        z, weight, target, rows, n_rows, log_z = ctx.saved_tensors
        grad, needs_grad = grad_log_probs.contiguous(), ctx.needs_input_grad[:2]
        grads = clusters.backward(
            z, weight, target, rows, n_rows, log_z, grad, ctx.constants, needs_grad
        )
        return *grads, None, None, None


# Top-k


def topk(h: Tensor, k: int, n_classes: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of every row and their scores, each of shape (rows, k)."""
    compute = _topk if _is_eager(h) else torch.ops.ltls.topk
    return compute(h, k, n_classes, width)


def _topk(h: Tensor, k: int, n_classes: int, width: int) -> tuple[Tensor, Tensor]:
    if _use_triton(h):
        return launch.topk(h.contiguous(), make_layout(n_classes, width), k)
    return engine.topk(h, k, n_classes, width)


@torch.library.custom_op("ltls::topk", _topk, mutates_args=()).register_fake
def _(h: Tensor, k: int, n_classes: int, width: int) -> tuple[Tensor, Tensor]:
    shape = (h.shape[0], k)
    return h.new_empty(shape, dtype=torch.int64), h.new_empty(shape, dtype=accumulation_dtype(h))


# Codebooks


def look_up(
    labels: Tensor, table: Tensor | None, n_labels: int, n_paths: int, ignore_index: int
) -> Tensor:
    """Return the paths of labels; without a table, label i has path i.

    `ignore_index` is mapped to −1, a label out of range to `n_paths`.
    """
    if is_exported() or is_transformed():
        return reference.look_up(labels, table, n_labels, n_paths, ignore_index)
    compute = _look_up if _is_eager(labels) else torch.ops.ltls.look_up
    return compute(labels, table, n_labels, n_paths, ignore_index)


def _look_up(
    labels: Tensor, table: Tensor | None, n_labels: int, n_paths: int, ignore_index: int
) -> Tensor:
    if _use_triton(labels):
        return launch.look_up(labels.contiguous(), table, n_labels, n_paths, ignore_index)
    return reference.look_up(labels, table, n_labels, n_paths, ignore_index)


@torch.library.custom_op("ltls::look_up", _look_up, mutates_args=()).register_fake
def _(
    labels: Tensor, table: Tensor | None, n_labels: int, n_paths: int, ignore_index: int
) -> Tensor:
    return torch.empty_like(labels, memory_format=torch.contiguous_format)


def permute(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
    """Map labels to paths by the keyed permutation of `RandomCodebook`, or paths to labels.

    Negative values are mapped to −1, values of at least ``sizes[-1]`` to ``sizes[-1]``.
    """
    compute = _permute if _is_eager(values) else torch.ops.ltls.permute
    return compute(values, seed, sizes, inverse)


def _permute(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
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


_permute_op = torch.library.custom_op("ltls::permute", _permute, mutates_args=())


@_permute_op.register_fake
def _(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


@_permute_op.register_vmap
def _(
    info: Any, in_dims: Any, values: Tensor, seed: Tensor, sizes: list[int], inverse: bool
) -> tuple[Tensor, Any]:
    return torch.ops.ltls.permute(values, seed, sizes, inverse), in_dims[0]
