"""The loss of an adaptive softmax, each of whose dense clusters scores its own rows alone.

It exists on a GPU in eager mode only: see `custom.fuses_loss`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from . import clusters as kernels
from .precision import log_softmax

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ROWS = 16  # per program: few, since a cluster has few rows
_ROWS_JOINED = 128
_TILE = 8192  # weights of a [classes, features] tile
# Programs share the classes of their rows with others, to occupy the GPU with the few rows of a
# cluster: at least 4 where there are enough classes, and more for small batches.
_CLASSES_PER_SPLIT = 512
_SPLIT_ROWS = 32768


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


@lru_cache(maxsize=256)
def _cutoffs(cutoffs: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(cutoffs, dtype=torch.int64, device=device)


def cluster_targets(labels: Tensor, cutoffs: tuple[int, ...], ignore_index: int) -> ClusterTargets:
    """Return the targets of every part of an adaptive softmax.

    It is one launch with one program per cluster, so that the rows are listed in order.

    Parameters
    ----------
    labels : int64 tensor of shape (n,)
    cutoffs : tuple of int
        The first label of every cluster, then the number of labels.
    ignore_index : int
    """
    n, n_clusters, device = labels.numel(), len(cutoffs) - 1, labels.device
    found = torch.empty((n_clusters + 2, n), dtype=torch.int64, device=device)
    rows = torch.empty((n_clusters, n), dtype=torch.int32, device=device)
    n_rows = torch.empty(n_clusters, dtype=torch.int32, device=device)
    given = labels.contiguous(), _cutoffs(cutoffs, device)
    kernels.cluster_targets[(n_clusters,)](
        *given, found, rows, n_rows, n, n_clusters, ignore_index, BLOCK=1024
    )
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
    if not supports(cluster):
        return _masked_log_probs(cluster(rows), target)
    narrow, layer = cluster
    z, weight = narrow(rows), layer.weight
    cast = z.dtype != weight.dtype and torch.is_autocast_enabled(z.device.type)
    if z.dtype not in _DTYPES or (z.dtype != weight.dtype and not cast):
        return _masked_log_probs(layer(z), target)
    return _Cluster.apply(z, weight, target, targets.rows[number], targets.n_rows[number])


def _masked_log_probs(logits: Tensor, target: Tensor) -> Tensor:
    return -nn.functional.nll_loss(log_softmax(logits), target, ignore_index=-1, reduction="none")


def supports(cluster: nn.Module) -> bool:
    """Return whether the kernels compute the same as calling this cluster does.

    It must be two plain layers: not sharded, parametrized, pruned or replaced, and without hooks.
    """
    if type(cluster) is not nn.Sequential or len(cluster) != 2 or _has_hooks(cluster):
        return False
    layer = cluster[1]
    return (
        type(layer) is nn.Linear
        and type(layer.weight) is nn.Parameter
        and layer.bias is None
        and layer.in_features <= _max_features(layer.weight.device)
        and not _has_hooks(layer)
    )


@lru_cache(maxsize=256)
def _max_features(device: torch.device) -> int:
    """Return how many features fit into shared memory: 64 KiB before compute capability 8."""
    old = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
    return 256 if old else 512


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


class _Cluster(torch.autograd.Function):
    """Log-probabilities of targets, 0 in rows of other clusters."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, weight: Tensor, target: Tensor, rows: Tensor, n_rows: Tensor
    ) -> Tensor:
        n, given = len(z), (z.contiguous(), weight.contiguous(), target, rows, n_rows)
        constants = ctx.constants = _constants(z)
        n_splits, per_split = _splits(n, len(weight), constants["CLASSES"])
        log_probs = torch.empty(n, dtype=torch.float32, device=z.device)
        log_z = torch.empty_like(log_probs)
        parts = torch.empty((3, n_splits, n), dtype=torch.float32, device=z.device)
        if n:
            kernels.forward[(triton.cdiv(n, _ROWS), n_splits)](
                *given, *parts, n, *weight.shape, per_split, **constants
            )
            sizes = {"SPLITS": triton.next_power_of_2(n_splits), "ROWS": _ROWS_JOINED}
            kernels.join[(triton.cdiv(n, _ROWS_JOINED),)](
                target, *parts, log_probs, log_z, n, n_splits, **sizes
            )
        ctx.save_for_backward(*given, log_z)
        return log_probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor) -> Any:
        z, weight, target, *_ = ctx.saved_tensors
        given, constants = (*ctx.saved_tensors, grad_log_probs.contiguous()), ctx.constants
        n, grad_z, grad_weight = len(z), None, None
        if ctx.needs_input_grad[0]:
            grad_z = torch.empty_like(z)
            n_splits, per_split = _splits(n, len(weight), constants["CLASSES"])
            parts = torch.empty((n_splits, *z.shape), dtype=torch.float32, device=z.device)
        if ctx.needs_input_grad[0] and n:
            kernels.backward_features[(triton.cdiv(n, _ROWS), n_splits)](
                *given, parts, n, *weight.shape, per_split, **constants
            )
            sizes = {"FEATURES": constants["FEATURES"], "ROWS": _ROWS}
            kernels.join_features[(triton.cdiv(n, _ROWS),)](
                target, parts, grad_z, n, z.shape[1], n_splits, **sizes
            )
        if ctx.needs_input_grad[1]:
            grad_weight = torch.empty_like(weight)
            kernels.backward_weight[(triton.cdiv(len(weight), constants["CLASSES"]),)](
                *given, grad_weight, *weight.shape, **constants
            )
        return grad_z, grad_weight, None, None, None


def _precision() -> str:
    """Return how float32 matrices are multiplied, by torch's setting."""
    # The older function raises an error once the newer setting has been used.
    setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if setting is None:
        setting = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    return "tf32" if setting == "tf32" else "ieee"


def _constants(z: Tensor) -> dict[str, Any]:
    """Return the constexprs of the launches, the same forward and backward."""
    features = max(16, triton.next_power_of_2(z.shape[1]))
    return {
        "FEATURES": features,
        "CLASSES": max(16, min(128, _TILE // features)),
        "ROWS": _ROWS,
        "PRECISION": _precision() if z.dtype == torch.float32 else "ieee",
        # Wide tiles take too much shared memory for more stages.
        "num_stages": 1 if features > 256 else 3,
    }


def _splits(n: int, n_classes: int, classes: int) -> tuple[int, int]:
    """Return the number of parts of the classes, and how many classes each has."""
    most = min(16, max(4, _SPLIT_ROWS // max(1, n)))
    per_split = max(_CLASSES_PER_SPLIT, triton.cdiv(n_classes, most))
    per_split = triton.cdiv(per_split, classes) * classes
    return triton.cdiv(n_classes, per_split), per_split
