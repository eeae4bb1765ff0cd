"""Triton kernels for the loss of an adaptive softmax; `cluster_loss.py` launches them.

One matrix product gives every row the features of all clusters and the logits of the head, side by
side; `scores` is that matrix. A row belongs to one cluster at most, and a cluster scores only its
own rows. Which rows these are, and how many, stays on the GPU: kernels are launched for as many
rows as there may be, and programs without a row return at once. The host never waits, and logits of
clusters are never stored.

Several programs share the classes of a cluster. The kernels that go over all rows, `join` and
`join_grads`, put their parts together: a row has the parts of its own cluster and no others, so
that clusters need no memory of their own for them.

`table` has the first label of every cluster, the number of labels, and for every cluster its first
feature, its number of features, and its number of parts forward and backward.
"""

import triton
import triton.language as tl

from .triton import _finite


@triton.jit
def targets(  # type: ignore[no-untyped-def]
    labels, table, found, rows, n_rows, n, n_clusters, ignore_index, BLOCK: tl.constexpr
):
    """List the rows of one cluster, and store the labels that they have in it.

    The program of the first cluster also stores the entry of the head of every row, −1 if its label
    is ignored and −2 if it is out of range, and which labels are ignored. `found` has the entries,
    the labels within clusters, and −1 where a label is ignored, else 0.
    """
    cluster = tl.program_id(0)
    shortlist = tl.load(table)
    n_labels = tl.load(table + n_clusters)
    start = tl.load(table + cluster)
    end = tl.load(table + cluster + 1)
    count = tl.zeros((), tl.int32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        label = tl.load(labels + at, mask=at < n, other=ignore_index)
        given = label != ignore_index
        mine = given & (label >= start) & (label < end)
        tl.store(found + n + at, label - start, mask=mine)
        place = count + tl.cumsum(mine.to(tl.int32), 0) - 1
        tl.store(rows + cluster * n + place, at, mask=mine)
        count += tl.sum(mine.to(tl.int32), 0)
        if cluster == 0:
            entry = label
            for i in range(n_clusters):
                entry = tl.where(label >= tl.load(table + i), shortlist + i, entry)
            entry = tl.where((label >= 0) & (label < n_labels), entry, -2)
            tl.store(found + at, tl.where(given, entry, -1), mask=at < n)
            tl.store(found + 2 * n + at, tl.where(given, 0, -1).to(tl.int64), mask=at < n)
    tl.store(n_rows + cluster, count)


@triton.jit
def _load_rows(  # type: ignore[no-untyped-def]
    z, rows, first, n, n_features, n_columns, FEATURES: tl.constexpr, ROWS: tl.constexpr
):
    """Load rows of a cluster: their indices, which exist, and their features."""
    at = first + tl.arange(0, ROWS)
    mask = at < n
    row = tl.load(rows + at, mask=mask, other=0).to(tl.int64)
    f = tl.arange(0, FEATURES)
    inside = mask[:, None] & (f < n_features)[None, :]
    return row, mask, tl.load(z + row[:, None] * n_columns + f[None, :], mask=inside, other=0.0)


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
def _grad_of(  # type: ignore[no-untyped-def]
    grad_log_probs, grad_loss, n_counted, row, mask,
    HAS_GRAD: tl.constexpr, HAS_GRAD_LOSS: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """Return the gradient of log-probabilities, also by the sum or mean of their negatives."""
    grad = tl.where(mask, 0.0, 0.0)
    if HAS_GRAD:
        grad += tl.load(grad_log_probs + row, mask=mask, other=0.0)
    if HAS_GRAD_LOSS:
        one = tl.load(grad_loss).to(tl.float32)
        if MEAN:
            one /= tl.load(n_counted).to(tl.float32)
        grad -= tl.where(mask, one, 0.0)
    return grad


@triton.jit
def dense(  # type: ignore[no-untyped-def]
    scores, weight, found, rows, n_rows, parts, n, n_classes, n_features, first_feature, n_columns,
    n_per_part, n_parts, FEATURES: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the largest logit, Σ exp and the target's logit among one part of the classes.

    `parts` has shape (3, n_parts, n).
    """
    first = tl.program_id(0) * ROWS
    part = tl.program_id(1)
    count = tl.load(n_rows)
    if first < count:
        row, mask, features = _load_rows(
            scores + first_feature, rows, first, count, n_features, n_columns, FEATURES, ROWS
        )
        target = tl.load(found + n + row, mask=mask, other=-1)
        highest = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        score = tl.zeros((ROWS,), tl.float32)
        end = tl.minimum((part + 1) * n_per_part, n_classes)
        for start in range(part * n_per_part, end, CLASSES):
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
        at = parts + part * n + row
        tl.store(at, highest, mask=mask)
        tl.store(at + n_parts * n, total, mask=mask)
        tl.store(at + 2 * n_parts * n, score, mask=mask)


@triton.jit
def edges(  # type: ignore[no-untyped-def]
    scores, weight, bias, rows, n_rows, out, n_edges, n_features, first_feature, n_columns,
    HAS_BIAS: tl.constexpr, FEATURES: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute edge scores of the rows of the trellis, in the order in which they are listed."""
    first = tl.program_id(0) * ROWS
    count = tl.load(n_rows)
    if first < count:
        _, mask, features = _load_rows(
            scores + first_feature, rows, first, count, n_features, n_columns, FEATURES, ROWS
        )
        c, weights = _load_classes(
            weight, tl.program_id(1) * CLASSES, n_edges, n_features, features.dtype, FEATURES,
            CLASSES,
        )  # fmt: skip
        h = tl.dot(features, tl.trans(weights), input_precision=PRECISION)
        if HAS_BIAS:
            h += tl.load(bias + c, mask=c < n_edges, other=0.0).to(tl.float32)[None, :]
        at = (first + tl.arange(0, ROWS)).to(tl.int64)
        inside = mask[:, None] & (c < n_edges)[None, :]
        tl.store(out + at[:, None] * n_edges + c[None, :], h.to(out.dtype.element_ty), mask=inside)


@triton.jit
def join(  # type: ignore[no-untyped-def]
    scores, bias, found, table, parts, log_probs, log_z, n, n_clusters, first_column, n_entries,
    n_columns, n_parts, HAS_BIAS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the log-probability of a row: of its entry of the head, and within its cluster.

    `log_z` has the log-partitions of the head, then those of the rows' clusters, 0 if there is
    none. The trellis has stored log-probabilities as the only part of its rows.
    """
    row = tl.program_id(0).to(tl.int64)
    entry = tl.load(found + row)
    base = scores + row * n_columns + first_column
    highest = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, n_entries, BLOCK):
        c = start + tl.arange(0, BLOCK)
        logits = tl.load(base + c, mask=c < n_entries, other=float("-inf")).to(tl.float32)
        if HAS_BIAS:
            logits += tl.load(bias + c, mask=c < n_entries, other=0.0).to(tl.float32)
        higher = tl.maximum(highest, tl.max(logits, 0))
        total = total * tl.exp(highest - _finite(higher))
        total += tl.sum(tl.exp(logits - _finite(higher)), 0)
        highest = higher
    of_head = _finite(highest) + tl.log(total)
    log_prob = tl.load(base + entry, mask=entry >= 0, other=0.0).to(tl.float32) - of_head
    if HAS_BIAS:
        log_prob += tl.load(bias + entry, mask=entry >= 0, other=0.0).to(tl.float32)

    cluster = entry - (n_entries - n_clusters)
    forward_parts = table + n_clusters + 1 + 2 * n_clusters
    count = tl.load(forward_parts + cluster, mask=cluster >= 0, other=0)
    part = tl.arange(0, PARTS)
    at = parts + part * n + row
    n_dense = tl.where(cluster < n_clusters - 1, count, 0)
    each = tl.load(at, mask=part < n_dense, other=float("-inf"))
    most = _finite(tl.max(each, 0))
    sums = tl.load(at + n_parts * n, mask=part < n_dense, other=0.0) * tl.exp(each - most)
    within = most + tl.log(tl.where(n_dense > 0, tl.sum(sums, 0), 1.0))
    log_prob += tl.sum(tl.load(at + 2 * n_parts * n, mask=part < count, other=0.0), 0) - within

    log_prob = tl.where(entry == -1, 0.0, tl.where(entry < 0, float("nan"), log_prob))
    tl.store(log_probs + row, log_prob)
    tl.store(log_z + row, of_head)
    tl.store(log_z + n + row, within)


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
def backward(  # type: ignore[no-untyped-def]
    scores, weight, found, rows, n_rows, log_z, grad_log_probs, grad_loss, n_counted, grad_h,
    parts, out, out_bias, n, n_classes, n_features, first_feature, n_columns, max_features,
    n_of_weight, n_per_part, n_parts, EDGES: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_GRAD: tl.constexpr, HAS_GRAD_LOSS: tl.constexpr, MEAN: tl.constexpr,
    FEATURES: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute gradients of a cluster's weights, and of its features by one part of the classes.

    The first `n_of_weight` programs have some classes each, and all rows of the cluster; the others
    have some rows, and one part of the classes. The gradient of the logits is computed again, or
    with EDGES read from `grad_h`. `parts` has shape (n_parts, n, max_features).
    """
    program = tl.program_id(0)
    z = scores + first_feature
    count = tl.load(n_rows)
    f = tl.arange(0, FEATURES)
    if program < n_of_weight:
        c, weights = _load_classes(
            weight, program * CLASSES, n_classes, n_features, z.dtype.element_ty, FEATURES, CLASSES
        )
        sums = tl.zeros((CLASSES, FEATURES), tl.float32)
        bias_sums = tl.zeros((CLASSES,), tl.float32)
        for first in range(0, count, ROWS):
            row, mask, features = _load_rows(
                z, rows, first, count, n_features, n_columns, FEATURES, ROWS
            )
            if EDGES:
                at = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None] * n_classes + c[None, :]
                inside = mask[:, None] & (c < n_classes)[None, :]
                grads = tl.load(grad_h + at, mask=inside, other=0.0)
            else:
                target = tl.load(found + n + row, mask=mask, other=-1)
                within = tl.load(log_z + n + row, mask=mask, other=0.0)
                grad = _grad_of(
                    grad_log_probs, grad_loss, n_counted, row, mask, HAS_GRAD, HAS_GRAD_LOSS, MEAN
                )
                grads = _grad_logits(
                    features, weights, c, target, within, grad, n_classes, PRECISION
                )
            sums += tl.dot(tl.trans(grads), features, input_precision=PRECISION)
            if HAS_BIAS:
                bias_sums += tl.sum(grads.to(tl.float32), 0)
        to = out + c.to(tl.int64)[:, None] * n_features + f[None, :]
        inside = (c < n_classes)[:, None] & (f < n_features)[None, :]
        tl.store(to, sums.to(out.dtype.element_ty), mask=inside)
        if HAS_BIAS:
            tl.store(out_bias + c, bias_sums.to(out_bias.dtype.element_ty), mask=c < n_classes)
    else:
        first = (program - n_of_weight) // n_parts * ROWS
        part = (program - n_of_weight) % n_parts
        if first < count:
            row, mask, features = _load_rows(
                z, rows, first, count, n_features, n_columns, FEATURES, ROWS
            )
            target = tl.load(found + n + row, mask=mask, other=-1)
            within = tl.load(log_z + n + row, mask=mask, other=0.0)
            grad = _grad_of(
                grad_log_probs, grad_loss, n_counted, row, mask, HAS_GRAD, HAS_GRAD_LOSS, MEAN
            )
            of_features = tl.zeros((ROWS, FEATURES), tl.float32)
            end = tl.minimum((part + 1) * n_per_part, n_classes)
            for start in range(part * n_per_part, end, CLASSES):
                c, weights = _load_classes(
                    weight, start, end, n_features, features.dtype, FEATURES, CLASSES
                )
                if EDGES:
                    at = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None] * n_classes + c[None, :]
                    inside = mask[:, None] & (c < end)[None, :]
                    grads = tl.load(grad_h + at, mask=inside, other=0.0)
                else:
                    grads = _grad_logits(features, weights, c, target, within, grad, end, PRECISION)
                of_features += tl.dot(grads, weights, input_precision=PRECISION)
            to = parts + (part.to(tl.int64) * n + row[:, None]) * max_features + f[None, :]
            tl.store(to, of_features, mask=mask[:, None] & (f < n_features)[None, :])


@triton.jit
def join_grads(  # type: ignore[no-untyped-def]
    scores, bias, found, table, log_z, grad_log_probs, grad_loss, n_counted, parts, out,
    n, n_clusters, first_column, n_entries, n_columns, max_features, HAS_BIAS: tl.constexpr,
    HAS_GRAD: tl.constexpr, HAS_GRAD_LOSS: tl.constexpr, MEAN: tl.constexpr,
    FEATURES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a row of `scores`: features of its cluster, others 0, and logits."""
    row = tl.program_id(0).to(tl.int64)
    entry = tl.load(found + row)
    grad = _grad_of(
        grad_log_probs, grad_loss, n_counted, row, entry >= 0, HAS_GRAD, HAS_GRAD_LOSS, MEAN
    )
    total = tl.load(log_z + row)
    base = scores + row * n_columns + first_column
    to = out + row * n_columns
    for start in range(0, n_columns - first_column, BLOCK):
        c = start + tl.arange(0, BLOCK)
        logits = tl.load(base + c, mask=c < n_entries, other=float("-inf")).to(tl.float32)
        if HAS_BIAS:
            logits += tl.load(bias + c, mask=c < n_entries, other=0.0).to(tl.float32)
        grads = (tl.where(c == entry, 1.0, 0.0) - tl.exp(logits - total)) * grad
        grads = tl.where(entry >= 0, grads, 0.0)
        inside = first_column + c < n_columns
        tl.store(to + first_column + c, grads.to(out.dtype.element_ty), mask=inside)

    cluster = entry - (n_entries - n_clusters)
    of_cluster = table + n_clusters + 1 + cluster
    first_feature = tl.load(of_cluster, mask=cluster >= 0, other=0)
    n_features = tl.load(of_cluster + n_clusters, mask=cluster >= 0, other=0)
    count = tl.load(of_cluster + 3 * n_clusters, mask=cluster >= 0, other=0)
    f = tl.arange(0, FEATURES)
    mine = (f >= first_feature) & (f < first_feature + n_features)
    sums = tl.zeros((FEATURES,), tl.float32)
    for part in range(count):
        at = parts + (part * n + row) * max_features + f - first_feature
        sums += tl.load(at, mask=mine, other=0.0)
    tl.store(to + f, sums.to(out.dtype.element_ty), mask=f < first_column)
