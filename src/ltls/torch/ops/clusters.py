"""Triton kernels for the dense clusters of an adaptive softmax; `cluster_loss.py` launches them.

A cluster scores only the rows whose target it has. Which rows these are, and how many, stays on the
GPU: kernels are launched for as many rows as there may be, and programs without a row return at
once. The host never waits, and logits are never stored.
"""

import triton
import triton.language as tl

from .triton import _finite


@triton.jit
def cluster_targets(  # type: ignore[no-untyped-def]
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
def forward(  # type: ignore[no-untyped-def]
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
def join(  # type: ignore[no-untyped-def]
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
def backward_features(  # type: ignore[no-untyped-def]
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
def join_features(  # type: ignore[no-untyped-def]
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
def backward_weight(  # type: ignore[no-untyped-def]
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
