"""The loss of an adaptive softmax, each of whose clusters scores its own rows alone.

It exists on a GPU in eager mode only: see `custom.fuses_loss`. The whole layer is one function of
autograd: the host takes longer to record and launch operations than they take to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor, nn

from ..layout import Layout
from . import clusters as kernels
from . import launch
from .custom import differentiable_once

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_CONTIGUOUS = torch.contiguous_format
_ROWS = 16  # per program: few, since a cluster has few rows
_EDGES = 64  # per program
_TILE = 8192  # weights of a [classes, features] tile
_COLUMNS = 4096  # of the head that a program has at once
_ALIGNED = 16  # columns: matrix products are faster if rows begin at multiples of 16 bytes
# Programs share the classes of their rows with others, to occupy the GPU with the few rows of a
# cluster: at least 4 where there are enough classes, and more for small batches.
_CLASSES_PER_PART = 512
_PART_ROWS = 32768


class Clusters(NamedTuple):
    """The sizes of an adaptive softmax that ends in a trellis.

    Attributes
    ----------
    cutoffs : tuple of int
        The first label of every cluster, then the number of labels.
    features : tuple of int
        The number of features of every cluster.
    layout : Layout
        The layout of the trellis.
    """

    cutoffs: tuple[int, ...]
    features: tuple[int, ...]
    layout: Layout


class _Sizes(NamedTuple):
    """How the clusters of one batch are launched."""

    table: Tensor  # see `clusters.py`
    padding: Tensor  # rows of zeros, so that the product has aligned rows
    first_features: list[int]
    n_features: int  # of all clusters
    n_columns: int
    n_blocks: int  # of rows
    parts: list[tuple[int, int]]  # number of parts of each cluster, and classes of a part
    n_tiles: list[int]  # of the classes of each cluster
    tiles: list[dict[str, Any]]  # constexprs of each cluster
    of_join: dict[str, Any]
    of_join_grads: dict[str, Any]


@lru_cache(maxsize=256)
def _sizes(of: Clusters, n: int, in_features: int, dtype: torch.dtype, device: torch.device) -> Any:
    first_features, n_features = [], 0
    for size in of.features:
        first_features.append(n_features)
        n_features += size
    n_entries = of.cutoffs[0] + len(of.features)
    n_padding = -(n_features + n_entries) % _ALIGNED
    tiles = [_tile(size) for size in of.features]
    tiles[-1]["CLASSES"] = min(_EDGES, tiles[-1]["CLASSES"])
    n_classes = [end - first for first, end in pairwise(of.cutoffs)]
    n_classes[-1] = of.layout.n_edges
    classes = [tile["CLASSES"] for tile in tiles]
    parts = [_parts(n, *each) for each in zip(n_classes, classes, strict=True)]
    counts = [count for count, _ in parts]
    numbers = [*of.cutoffs, *first_features, *of.features, *counts[:-1], 1, *counts]
    block = {"BLOCK": min(_COLUMNS, triton.next_power_of_2(n_entries + n_padding))}
    return _Sizes(
        table=torch.tensor(numbers, dtype=torch.int64, device=device),
        padding=torch.zeros((n_padding, in_features), dtype=dtype, device=device),
        first_features=first_features,
        n_features=n_features,
        n_columns=n_features + n_entries + n_padding,
        n_blocks=triton.cdiv(n, _ROWS),
        parts=parts,
        n_tiles=[triton.cdiv(*each) for each in zip(n_classes, classes, strict=True)],
        tiles=tiles,
        of_join={"PARTS": triton.next_power_of_2(max(counts)), **block},
        of_join_grads={"FEATURES": triton.next_power_of_2(n_features), **block},
    )


def _tile(n_features: int) -> dict[str, Any]:
    features = max(16, triton.next_power_of_2(n_features))
    return {
        "FEATURES": features,
        "CLASSES": max(16, min(128, _TILE // features)),
        # Wide tiles take too much shared memory for more stages.
        "num_stages": 1 if features > 256 else 3,
    }


def _parts(n: int, n_classes: int, classes: int) -> tuple[int, int]:
    """Return the number of parts of the classes, and how many classes each has."""
    most = min(16, max(4, _PART_ROWS // max(1, n)))
    per_part = max(_CLASSES_PER_PART, triton.cdiv(n_classes, most))
    per_part = triton.cdiv(per_part, classes) * classes
    return triton.cdiv(n_classes, per_part), per_part


def supports(x: Tensor, head: nn.Module, tail: Sequence[nn.Module], edges: nn.Module) -> bool:
    """Return whether `loss` computes the same as calling these layers does.

    They must be plain ones: not sharded, parametrized, pruned or replaced, and without hooks.

    Parameters
    ----------
    x : tensor of shape (n, in_features)
    head : nn.Linear
    tail : sequence of nn.Sequential
        Of every cluster, the layer that reduces its features and the one of its classes; in the
        last one the trellis, which is not looked at.
    edges : nn.Linear
        Of the trellis.
    """
    if not len(x) or not _is_plain(head) or not _is_plain(edges):
        return False
    dtype = head.weight.dtype
    if x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        return False
    most, last = _max_features(x.device), len(tail) - 1
    for i, cluster in enumerate(tail):
        if type(cluster) is not nn.Sequential or len(cluster) != 2 or _has_hooks(cluster):
            return False
        narrow, layer = cluster
        if i < last and not (_is_plain(layer) and layer.bias is None):
            return False
        if not _is_plain(narrow) or narrow.bias is not None or narrow.out_features > most:
            return False
        if narrow.weight.dtype != dtype:
            return False
    return _dtype(x) in _DTYPES and not _has_hooks(tail[-1][1])


def _is_plain(layer: nn.Module) -> bool:
    return type(layer) is nn.Linear and type(layer.weight) is nn.Parameter and not _has_hooks(layer)


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


@lru_cache(maxsize=256)
def _max_features(device: torch.device) -> int:
    """Return how many features fit into shared memory: 64 KiB before compute capability 8."""
    old = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
    return 256 if old else 512


def _dtype(x: Tensor) -> torch.dtype:
    """Return the type in which matrices are multiplied."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def loss(
    x: Tensor,
    labels: Tensor,
    of: Clusters,
    book: Any,
    ignore_index: int,
    reduction: str,
    head: nn.Linear,
    tail: Sequence[nn.Module],
    edges: nn.Linear,
) -> tuple[Tensor, Tensor]:
    """Return the reduced negative log-likelihood, and the log-probabilities of labels.

    Parameters
    ----------
    x : tensor of shape (n, in_features)
    labels : int64 tensor of shape (n, 1)
    of : Clusters
    book : LabelPaths
        The codebook of the trellis.
    ignore_index : int
    reduction : {"mean", "sum"}
    head, tail, edges
        Layers that `supports` takes.
    """
    weights = [head.bias, edges.bias, head.weight]
    weights += [cluster[0].weight for cluster in tail]
    weights += [cluster[1].weight for cluster in tail[:-1]]
    weights.append(edges.weight)
    how = of, book, ignore_index, reduction == "mean"
    found: tuple[Tensor, Tensor] = _Loss.apply(x, labels, how, *weights)
    return found


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        labels: Tensor,
        how: Any,
        head_bias: Tensor | None,
        edge_bias: Tensor | None,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        of, book, ignore_index, mean = how
        n, k, device, dtype = len(x), len(of.features), x.device, _dtype(x)
        sizes: _Sizes = _sizes(of, n, x.shape[1], weights[0].dtype, device)
        outer, inner = weights[: k + 1], weights[k + 1 :]
        weight = torch.cat([*outer[1:], outer[0], sizes.padding])
        ctx.x_dtype, ctx.weight_dtype = x.dtype, weight.dtype
        if weight.dtype != dtype or x.dtype != dtype:
            x, weight = x.to(dtype), weight.to(dtype)
        scores = nn.functional.linear(x, weight)

        found = torch.empty((3, n), dtype=torch.int64, device=device)
        rows = torch.empty((k, n), dtype=torch.int32, device=device)
        counts = torch.empty(k, dtype=torch.int32, device=device)
        launch.run(
            kernels.targets, (k,), labels.contiguous(), sizes.table, found, rows, counts, n, k,
            ignore_index, BLOCK=1024,
        )  # fmt: skip
        lists = list(zip(rows.unbind(), counts.unbind(), strict=True))
        n_parts = max(sizes.parts)[0]
        parts = torch.empty((3, n_parts, n), dtype=torch.float32, device=device)
        constants = {"ROWS": _ROWS, "PRECISION": _precision(dtype)}
        for i in range(k - 1):
            count, per_part = sizes.parts[i]
            launch.run(
                kernels.dense, (sizes.n_blocks, count), scores, inner[i].contiguous(), found,
                *lists[i], parts, n, *inner[i].shape, sizes.first_features[i], sizes.n_columns,
                per_part, n_parts, **sizes.tiles[i], **constants,
            )  # fmt: skip
        h = torch.empty((n, of.layout.n_edges), dtype=dtype, device=device)
        launch.run(
            kernels.edges, (sizes.n_blocks, sizes.n_tiles[-1]), scores, inner[-1].contiguous(),
            scores if edge_bias is None else edge_bias, *lists[-1], h, *inner[-1].shape,
            sizes.first_features[-1], sizes.n_columns, HAS_BIAS=edge_bias is not None,
            **sizes.tiles[-1], **constants,
        )  # fmt: skip
        paths = torch.empty((n, 1), dtype=torch.int64, device=device)
        given, path_table, n_labels, ignored = book.look_up(found[1], -1)
        look_up = given, path_table, n_labels, ignored, None
        _, _, alpha = launch.forward(h, paths, of.layout, look_up, (*lists[-1], parts[2, 0]))
        log_probs = torch.empty(n, dtype=torch.float32, device=device)
        log_z = torch.empty((2, n), dtype=torch.float32, device=device)
        n_entries = len(outer[0])
        launch.run(
            kernels.join, (n,), scores, scores if head_bias is None else head_bias, found,
            sizes.table, parts, log_probs, log_z, n, k, sizes.n_features, n_entries,
            sizes.n_columns, n_parts, HAS_BIAS=head_bias is not None, **sizes.of_join,
        )  # fmt: skip
        # With one column per row, class 0 or ignored, nll_loss masks, counts and reduces.
        total, n_counted = torch.ops.aten.nll_loss_forward(
            log_probs[:, None], found[2], None, 1 if mean else 2, -1
        )
        ctx.save_for_backward(
            x, weight, scores, found, rows, counts, log_z, h, paths, alpha, n_counted, head_bias,
            edge_bias, *inner,
        )  # fmt: skip
        ctx.how, ctx.sizes, ctx.constants, ctx.n_entries = how, sizes, constants, n_entries
        ctx.set_materialize_grads(False)
        return total, log_probs

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_loss: Tensor | None, grad_log_probs: Tensor | None) -> Any:
        if grad_loss is None and grad_log_probs is None:
            return (None,) * len(ctx.needs_input_grad)
        x, weight, scores, found, rows, counts, log_z, h, paths, alpha, *rest = ctx.saved_tensors
        n_counted, head_bias, edge_bias, *inner = rest
        (of, _, _, mean), sizes, n_entries = ctx.how, ctx.sizes, ctx.n_entries
        n, k, device = len(x), len(of.features), x.device
        if grad_log_probs is not None:
            grad_log_probs = grad_log_probs.contiguous()
        flags = {
            "HAS_GRAD": grad_log_probs is not None,
            "HAS_GRAD_LOSS": grad_loss is not None,
            "MEAN": mean,
        }
        grads = (
            log_z if grad_log_probs is None else grad_log_probs,
            log_z if grad_loss is None else grad_loss,
            n_counted,
        )
        lists = list(zip(rows.unbind(), counts.unbind(), strict=True))
        grad_h = launch.backward(
            h, paths, log_z, alpha, grad_log_probs, None, of.layout, grad_loss,
            n_counted if mean else None, lists[-1],
        )  # fmt: skip
        n_parts, max_features = max(sizes.parts)[0], max(of.features)
        parts = torch.empty((n_parts, n, max_features), dtype=torch.float32, device=device)
        grad_inner = [torch.empty_like(each, memory_format=_CONTIGUOUS) for each in inner]
        grad_edge_bias = None if edge_bias is None else torch.empty_like(edge_bias)
        needed = ctx.needs_input_grad
        outer_needed = needed[0] or any(needed[5 : 6 + k])
        for i, (each, grad) in enumerate(zip(inner, grad_inner, strict=True)):
            is_trellis = i == k - 1
            count, per_part = sizes.parts[i]
            has_bias = is_trellis and edge_bias is not None
            weight_needed = needed[6 + k + i] or (has_bias and needed[4])
            n_of_weight = sizes.n_tiles[i] if weight_needed else 0
            n_of_features = sizes.n_blocks * count if outer_needed else 0
            if not n_of_weight + n_of_features:
                continue
            launch.run(
                kernels.backward, (n_of_weight + n_of_features,), scores,
                each.contiguous(), found, *lists[i], log_z, *grads, grad_h, parts, grad,
                grad_edge_bias if has_bias else grad, n, *each.shape, sizes.first_features[i],
                sizes.n_columns, max_features, n_of_weight, per_part, count, EDGES=is_trellis,
                HAS_BIAS=has_bias, **flags, **sizes.tiles[i], **ctx.constants,
            )  # fmt: skip
        n_features = sizes.n_features
        grad_scores = torch.empty_like(scores)
        launch.run(
            kernels.join_grads, (n,), scores, scores if head_bias is None else head_bias, found,
            sizes.table, log_z, *grads, parts, grad_scores, n, k, n_features, n_entries,
            sizes.n_columns, max_features, HAS_BIAS=head_bias is not None, **flags,
            **sizes.of_join_grads,
        )  # fmt: skip
        grad_x = grad_head_bias = None
        grad_outer: list[Tensor | None] = [None] * (k + 1)
        if needed[0]:
            grad_x = _product(grad_scores, weight).to(ctx.x_dtype)
        if any(needed[5 : 6 + k]):
            both = _product(grad_scores.t(), x).to(ctx.weight_dtype)
            *narrow, head, _ = both.split([*of.features, n_entries, len(sizes.padding)])
            grad_outer = [head, *narrow]
        if head_bias is not None and needed[3]:
            of_head = grad_scores[:, n_features : n_features + n_entries]
            grad_head_bias = of_head.sum(0, dtype=torch.float32).to(head_bias.dtype)
        grad_weights = [*grad_outer, *grad_inner]
        return grad_x, None, None, grad_head_bias, grad_edge_bias, *grad_weights


def _product(one: Tensor, other: Tensor) -> Tensor:
    """Return a matrix product in the type of its factors."""
    if torch.is_autocast_enabled(one.device.type):
        with torch.autocast(one.device.type, enabled=False):
            return one.mm(other)
    return one.mm(other)


def _precision(dtype: torch.dtype = torch.float32) -> str:
    """Return how matrices are multiplied, for float32 by torch's setting."""
    if dtype != torch.float32:
        return "ieee"
    # The older function raises an error once the newer setting has been used.
    setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if setting is None:
        setting = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    return "tf32" if setting == "tf32" else "ieee"
