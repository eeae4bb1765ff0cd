"""Triton kernels for the dense clusters of an adaptive softmax, and their launches.

A cluster scores only the rows whose target it has. Which rows these are, and how many, stays on the
GPU: kernels are launched for as many rows as there may be, and programs without a row return at
once. The host never waits, and logits are never stored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from .triton import _finite

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ROWS = 16  # per program: few, since a cluster has few rows
_ROWS_JOINED = 128
_TILE = 8192  # weights of a [classes, features] tile
# Programs share the classes of their rows with others, to occupy the GPU with the few rows of a
# cluster: at least 4 where there are enough classes, and more for small batches.
_CLASSES_PER_SPLIT = 512
_SPLIT_ROWS = 32768


@triton.jit
def _targets(  # type: ignore[no-untyped-def]
    labels, cutoffs, targets, rows, n_rows, n, n_clusters, ignore_index, BLOCK: tl.constexpr
):
    """Compute the targets of one cluster, and list its rows.

    The program of the first cluster also computes the targets of the head, and which labels are
    ignored. `cutoffs` are the first labels of all clusters, then the number of labels.
    """
    cluster = tl.program_id(0)
    shortlist = tl.load(cutoffs)
    n_labels = tl.load(cutoffs + n_clusters)
    start = tl.load(cutoffs + cluster)
    end = tl.load(cutoffs + cluster + 1)
    found = tl.zeros((), tl.int32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        label = tl.load(labels + at, mask=at < n, other=ignore_index)
        given = label != ignore_index
        known = (label >= 0) & (label < n_labels)
        mine = given & (label >= start) & (label < end)
        target = tl.where(mine, label - start, -1)
        # The last cluster reports labels out of range: it makes them NaN.
        wrong = given & (known == 0) & (cluster == n_clusters - 1)
        target = tl.where(wrong, end - start, target)
        tl.store(targets + (cluster + 1) * n + at, target, mask=at < n)
        place = found + tl.cumsum(mine.to(tl.int32), 0) - 1
        tl.store(rows + cluster * n + place, at, mask=mine)
        found += tl.sum(mine.to(tl.int32), 0)
        if cluster == 0:
            entry = label
            for i in range(n_clusters):
                entry = tl.where(label >= tl.load(cutoffs + i), shortlist + i, entry)
            tl.store(targets + at, tl.where(known & given, entry, -1), mask=at < n)
            ignored = tl.where(given, 0, -1).to(tl.int64)
            tl.store(targets + (n_clusters + 1) * n + at, ignored, mask=at < n)
    tl.store(n_rows + cluster, found)


@triton.jit
def _load_rows(  # type: ignore[no-untyped-def]
    z, targets, rows, first, n, n_features, FEATURES: tl.constexpr, ROWS: tl.constexpr
):
    """Load rows of a cluster: their indices, which exist, their features and targets."""
    at = first + tl.arange(0, ROWS)
    mask = at < n
    row = tl.load(rows + at, mask=mask, other=0).to(tl.int64)
    f = tl.arange(0, FEATURES)
    inside = mask[:, None] & (f < n_features)[None, :]
    features = tl.load(z + row[:, None] * n_features + f[None, :], mask=inside, other=0.0)
    return row, mask, features, tl.load(targets + row, mask=mask, other=-1)


@triton.jit
def _load_classes(  # type: ignore[no-untyped-def]
    weight, first, n_classes, n_features, dtype, FEATURES: tl.constexpr, CLASSES: tl.constexpr
):
    """Load the weights of some classes, [classes, features]."""
    c = first + tl.arange(0, CLASSES)
    f = tl.arange(0, FEATURES)
    inside = (c < n_classes)[:, None] & (f < n_features)[None, :]
    at = c.to(tl.int64)[:, None] * n_features + f[None, :]
    return c, tl.load(weight + at, mask=inside, other=0.0).to(dtype)


@triton.jit
def _grad_logits(  # type: ignore[no-untyped-def]
    features, weights, c, target, log_z, grad, n_classes, PRECISION: tl.constexpr
):
    """Return the gradient of the logits, [rows, classes]."""
    logits = tl.dot(features, tl.trans(weights), input_precision=PRECISION)
    probs = tl.where((c < n_classes)[None, :], tl.exp(logits - log_z[:, None]), 0.0)
    one_hot = tl.where(c[None, :] == target[:, None], 1.0, 0.0)
    return ((one_hot - probs) * grad[:, None]).to(features.dtype)


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    z, weight, targets, rows, n_rows, highests, totals, scores, n, n_classes, n_features,
    n_per_split, FEATURES: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the largest logit, Σ exp and the target's logit among one part of the classes.

    The results have shape (n_splits, n).
    """
    first = tl.program_id(0) * ROWS
    split = tl.program_id(1)
    count = tl.load(n_rows)
    if first < count:
        row, mask, features, target = _load_rows(
            z, targets, rows, first, count, n_features, FEATURES, ROWS
        )
        highest = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        score = tl.zeros((ROWS,), tl.float32)
        end = tl.minimum((split + 1) * n_per_split, n_classes)
        for start in range(split * n_per_split, end, CLASSES):
            c, weights = _load_classes(
                weight, start, end, n_features, features.dtype, FEATURES, CLASSES
            )
            logits = tl.dot(features, tl.trans(weights), input_precision=PRECISION)
            chosen = (c < end)[None, :] & (c[None, :] == target[:, None])
            score += tl.sum(tl.where(chosen, logits, 0.0), 1)
            logits = tl.where((c < end)[None, :], logits, float("-inf"))
            higher = tl.maximum(highest, tl.max(logits, 1))
            total = total * tl.exp(highest - _finite(higher))
            total += tl.sum(tl.exp(logits - _finite(higher)[:, None]), 1)
            highest = higher
        tl.store(highests + split * n + row, highest, mask=mask)
        tl.store(totals + split * n + row, total, mask=mask)
        tl.store(scores + split * n + row, score, mask=mask)


@triton.jit
def _join(  # type: ignore[no-untyped-def]
    targets, highests, totals, scores, log_probs, log_z, n, n_splits,
    SPLITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Compute log-probabilities from all parts, 0 for rows of other clusters."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    split = tl.arange(0, SPLITS)
    mine = tl.load(targets + row, mask=row < n, other=-1) >= 0
    inside = (split < n_splits)[:, None] & mine[None, :]
    at = split[:, None] * n + row[None, :]
    each = tl.load(highests + at, mask=inside, other=float("-inf"))
    highest = _finite(tl.max(each, 0))
    total = tl.load(totals + at, mask=inside, other=0.0) * tl.exp(each - highest[None, :])
    total = highest + tl.log(tl.where(mine, tl.sum(total, 0), 1.0))
    score = tl.sum(tl.load(scores + at, mask=inside, other=0.0), 0)
    tl.store(log_z + row, total, mask=row < n)
    tl.store(log_probs + row, tl.where(mine, score - total, 0.0), mask=row < n)


@triton.jit
def _backward_features(  # type: ignore[no-untyped-def]
    z, weight, targets, rows, n_rows, log_z, grad_log_probs, parts, n, n_classes, n_features,
    n_per_split, FEATURES: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the features by one part of the classes.

    The result has shape (n_splits, n, n_features).
    """
    first = tl.program_id(0) * ROWS
    split = tl.program_id(1)
    count = tl.load(n_rows)
    if first < count:
        row, mask, features, target = _load_rows(
            z, targets, rows, first, count, n_features, FEATURES, ROWS
        )
        total = tl.load(log_z + row, mask=mask, other=0.0)
        grad = tl.load(grad_log_probs + row, mask=mask, other=0.0)
        sums = tl.zeros((ROWS, FEATURES), tl.float32)
        end = tl.minimum((split + 1) * n_per_split, n_classes)
        for start in range(split * n_per_split, end, CLASSES):
            c, weights = _load_classes(
                weight, start, end, n_features, features.dtype, FEATURES, CLASSES
            )
            grads = _grad_logits(features, weights, c, target, total, grad, end, PRECISION)
            sums += tl.dot(grads, weights, input_precision=PRECISION)
        f = tl.arange(0, FEATURES)
        inside = mask[:, None] & (f < n_features)[None, :]
        at = parts + (split.to(tl.int64) * n + row[:, None]) * n_features + f[None, :]
        tl.store(at, sums, mask=inside)


@triton.jit
def _join_features(  # type: ignore[no-untyped-def]
    targets, parts, out, n, n_features, n_splits, FEATURES: tl.constexpr, ROWS: tl.constexpr
):
    """Sum the parts, 0 for rows of other clusters."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    f = tl.arange(0, FEATURES)
    mine = tl.load(targets + row, mask=row < n, other=-1) >= 0
    real = (f < n_features)[None, :]
    at = row[:, None] * n_features + f[None, :]
    sums = tl.zeros((ROWS, FEATURES), tl.float32)
    for _ in range(n_splits):
        sums += tl.load(parts + at, mask=mine[:, None] & real, other=0.0)
        parts += n * n_features
    tl.store(out + at, sums.to(out.dtype.element_ty), mask=(row < n)[:, None] & real)


@triton.jit
def _backward_weight(  # type: ignore[no-untyped-def]
    z, weight, targets, rows, n_rows, log_z, grad_log_probs, out, n_classes, n_features,
    FEATURES: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the weights of some classes, over all rows of the cluster."""
    n = tl.load(n_rows)
    start = tl.program_id(0) * CLASSES
    c, weights = _load_classes(
        weight, start, n_classes, n_features, z.dtype.element_ty, FEATURES, CLASSES
    )
    sums = tl.zeros((CLASSES, FEATURES), tl.float32)
    for first in range(0, n, ROWS):
        row, mask, features, target = _load_rows(
            z, targets, rows, first, n, n_features, FEATURES, ROWS
        )
        total = tl.load(log_z + row, mask=mask, other=0.0)
        grad = tl.load(grad_log_probs + row, mask=mask, other=0.0)
        grads = _grad_logits(features, weights, c, target, total, grad, n_classes, PRECISION)
        sums += tl.dot(tl.trans(grads), features, input_precision=PRECISION)
    f = tl.arange(0, FEATURES)
    inside = (c < n_classes)[:, None] & (f < n_features)[None, :]
    at = out + c.to(tl.int64)[:, None] * n_features + f[None, :]
    tl.store(at, sums.to(out.dtype.element_ty), mask=inside)


@lru_cache(maxsize=256)
def _cutoffs(cutoffs: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(cutoffs, dtype=torch.int64, device=device)


def targets(
    labels: Tensor, cutoffs: tuple[int, ...], ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the targets of all parts and the rows of all clusters; see `custom.cluster_targets`.

    It is one launch with one program per cluster, so that the rows are listed in order.
    """
    n, n_clusters, device = labels.numel(), len(cutoffs) - 1, labels.device
    found = torch.empty((n_clusters + 2, n), dtype=torch.int64, device=device)
    rows = torch.empty((n_clusters, n), dtype=torch.int32, device=device)
    n_rows = torch.empty(n_clusters, dtype=torch.int32, device=device)
    _targets[(n_clusters,)](
        labels,
        _cutoffs(cutoffs, device),
        found,
        rows,
        n_rows,
        n,
        n_clusters,
        ignore_index,
        BLOCK=1024,
    )
    return found, rows, n_rows


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


def _precision() -> str:
    """Return how float32 matrices are multiplied, by torch's setting."""
    # The older function raises an error once the newer setting has been used.
    setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if setting is None:
        setting = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    return "tf32" if setting == "tf32" else "ieee"


def constants(z: Tensor) -> dict[str, Any]:
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


def forward(
    z: Tensor,
    weight: Tensor,
    target: Tensor,
    rows: Tensor,
    n_rows: Tensor,
    constants: dict[str, Any],
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of targets, 0 in rows of other clusters, and log-partitions."""
    n = len(z)
    n_splits, per_split = _splits(n, len(weight), constants["CLASSES"])
    log_probs = torch.empty(n, dtype=torch.float32, device=z.device)
    log_z = torch.empty_like(log_probs)
    parts = torch.empty((3, n_splits, n), dtype=torch.float32, device=z.device)
    if n:
        _forward[(triton.cdiv(n, _ROWS), n_splits)](
            z, weight, target, rows, n_rows, *parts, n, *weight.shape, per_split, **constants
        )
        _join[(triton.cdiv(n, _ROWS_JOINED),)](
            target,
            *parts,
            log_probs,
            log_z,
            n,
            n_splits,
            SPLITS=triton.next_power_of_2(n_splits),
            ROWS=_ROWS_JOINED,
        )
    return log_probs, log_z


def backward(
    z: Tensor,
    weight: Tensor,
    target: Tensor,
    rows: Tensor,
    n_rows: Tensor,
    log_z: Tensor,
    grad_log_probs: Tensor,
    constants: dict[str, Any],
    needs_grad: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients with respect to z and weight, of those that are needed."""
    n, grad_z, grad_weight = len(z), None, None
    given = z, weight, target, rows, n_rows, log_z, grad_log_probs
    if needs_grad[0]:
        grad_z = torch.empty_like(z)
        n_splits, per_split = _splits(n, len(weight), constants["CLASSES"])
        parts = torch.empty((n_splits, *z.shape), dtype=torch.float32, device=z.device)
    if needs_grad[0] and n:
        _backward_features[(triton.cdiv(n, _ROWS), n_splits)](
            *given, parts, n, *weight.shape, per_split, **constants
        )
        _join_features[(triton.cdiv(n, _ROWS),)](
            target,
            parts,
            grad_z,
            n,
            z.shape[1],
            n_splits,
            FEATURES=constants["FEATURES"],
            ROWS=_ROWS,
        )
    if needs_grad[1]:
        grad_weight = torch.empty_like(weight)
        _backward_weight[(triton.cdiv(len(weight), constants["CLASSES"]),)](
            *given, grad_weight, *weight.shape, **constants
        )
    return grad_z, grad_weight
