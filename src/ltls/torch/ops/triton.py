"""The dynamic programs as Triton kernels; `launch.py` has their launches.

A program handles a few rows of the mini-batch. The forward values of a slice stay in registers, and
the scores of a transition are a [rows, from, to] tile. `table` holds four numbers per slice: number
of exits, first exit edge, first path, and width ** slice.

Forward values are relative: in every slice the largest is subtracted, so that their differences
are as exact as in a short trellis. `alphas` has width + 1 columns per slice. The last one holds
what was subtracted in this slice, or in slice 0, where nobody needs it, the log-partition relative
to the last slice.
"""

import triton
import triton.language as tl


@triton.jit
def _finite(x):  # type: ignore[no-untyped-def]
    """Replace −inf by 0, so that x − max is not NaN where everything is −inf."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def _exit_scores(base, table, i, s, row_mask, REAL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load the scores of the edges from slice i to the sink, −inf for states without an exit."""
    exit_mask = row_mask[:, None] & (s < tl.load(table + 4 * i))[None, :]
    edges = base[:, None] + (tl.load(table + 4 * i + 1) + s)[None, :]
    return tl.load(edges, mask=exit_mask, other=float("-inf")).to(REAL)


@triton.jit
def forward(  # type: ignore[no-untyped-def]
    h, paths, table, log_probs, log_z, alphas, labels, label_table, ignored, listed, n_listed,
    n_rows, n_paths, n_classes, n_edges, n_slices, n_last, n_labels, ignore_index,
    LOOK_UP: tl.constexpr, HAS_TABLE: tl.constexpr, LISTED: tl.constexpr,
    B: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """Compute forward values, the log-partition and the log-probabilities of given paths.

    With LOOK_UP, the paths are those of one label per row. They are stored, and −1 in `ignored`
    where the label is `ignore_index`, else 0. Where all labels of a program are ignored, it stores
    their log-probabilities, 0, and nothing else. With LISTED, `h` has the rows of a list, whose
    length only the GPU knows; labels and log-probabilities are those of all rows.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_mask = row < (tl.load(n_listed) if LISTED else n_rows)
    source = tl.load(listed + row, mask=row_mask, other=0).to(tl.int64) if LISTED else row
    s = tl.arange(0, WIDTH)
    base = h + row * n_edges
    state_mask = row_mask[:, None] & (s < B)[None, :]
    if LOOK_UP:
        label = tl.load(labels + source, mask=row_mask, other=ignore_index)
        looked_up = _path_of(label, label_table, n_labels, n_classes, ignore_index, HAS_TABLE)
        tl.store(paths + row, looked_up, mask=row_mask)
        if not LISTED:
            tl.store(ignored + row, tl.minimum(looked_up, 0), mask=row_mask)
        if tl.max(looked_up, 0) < 0:  # all are ignored
            tl.store(log_probs + source, tl.zeros((ROWS,), REAL), mask=row_mask)
            return
    of_row = alphas + row * (n_slices + 1) * (B + 1)
    alpha_ptr = of_row[:, None] + s[None, :]
    alpha = tl.load(base[:, None] + s[None, :], mask=state_mask, other=float("-inf")).to(REAL)
    offset = _finite(tl.max(alpha, 1))
    alpha -= offset[:, None]
    tl.store(alpha_ptr, alpha, mask=state_mask)

    # Online logsumexp over the exits: so far it is highest + log(total).
    exiting = alpha + _exit_scores(base, table, 0, s, row_mask, REAL)
    highest = tl.max(exiting, 1)
    total = tl.sum(tl.exp(exiting - _finite(highest)[:, None]), 1)
    for i in range(1, n_slices + 1):
        columns = tl.where(i < n_slices, B, n_last)
        block = base[:, None, None] + (B + (i - 1) * B * B)
        edge_mask = state_mask[:, :, None] & (s < columns)[None, None, :]
        edges = block + s[None, :, None] * columns + s[None, None, :]
        weight = tl.load(edges, mask=edge_mask, other=float("-inf")).to(REAL)
        exit_score = _exit_scores(base, table, i, s, row_mask, REAL)
        arriving = alpha[:, :, None] + weight
        most = _finite(tl.max(arriving, 1))
        alpha = most + tl.log(tl.sum(tl.exp(arriving - most[:, None, :]), 1))
        shift = _finite(tl.max(alpha, 1))
        alpha -= shift[:, None]
        offset += shift
        highest -= shift
        tl.store(alpha_ptr + i * (B + 1), alpha, mask=state_mask)
        tl.store(of_row + i * (B + 1) + B, shift, mask=row_mask)

        exiting = alpha + exit_score
        higher = tl.maximum(highest, tl.max(exiting, 1))
        total = total * tl.exp(highest - _finite(higher))
        total += tl.sum(tl.exp(exiting - _finite(higher)[:, None]), 1)
        highest = higher
    total = _finite(highest) + tl.log(total)
    tl.store(of_row + B, total, mask=row_mask)
    total += offset
    if not LISTED:
        tl.store(log_z + row, total, mask=row_mask)

    for k in range(n_paths):
        path_ptr = paths + row * n_paths + k
        path = looked_up if LOOK_UP else tl.load(path_ptr, mask=row_mask, other=-1)
        given = (path >= 0) & (path < n_classes)
        last, first = _exit_of(path, table, n_slices)
        rest = path - first
        state = rest % B
        rest = rest // B
        score = tl.load(base + state, mask=given, other=0.0).to(REAL)
        for i in range(1, n_slices + 1):
            columns = tl.where(i < n_slices, B, n_last)
            following = rest % B
            rest = rest // B
            on = given & (i <= last)
            edge = B + (i - 1) * B * B + state * columns + following
            score += tl.load(base + edge, mask=on, other=0.0).to(REAL)
            state = tl.where(on, following, state)
        leave = tl.load(table + 4 * last + 1, mask=given, other=0) + state
        score += tl.load(base + leave, mask=given, other=0.0).to(REAL)
        log_prob = tl.where(path < n_classes, score - total, float("nan"))
        log_prob = tl.where(path < 0, 0.0, log_prob)
        tl.store(log_probs + source * n_paths + k, log_prob, mask=row_mask)


@triton.jit
def _path_of(  # type: ignore[no-untyped-def]
    label, label_table, n_labels, n_paths, ignore_index, HAS_TABLE: tl.constexpr
):
    """Look labels up in a table, or use them as their own paths."""
    known = (label >= 0) & (label < n_labels)
    path = label
    if HAS_TABLE:
        path = tl.load(label_table + label, mask=known, other=0).to(tl.int64)
    return tl.where(label == ignore_index, -1, tl.where(known, path, n_paths))


@triton.jit
def _exit_of(path, table, n_slices):  # type: ignore[no-untyped-def]
    """Return the slice whose exit a path takes, and the smallest path of that slice's exits."""
    last = tl.zeros_like(path)
    first = tl.zeros_like(path)
    for i in range(1, n_slices + 1):
        start = tl.load(table + 4 * i + 2)
        last = tl.where(path >= start, i, last)
        first = tl.where(path >= start, start, first)
    return last, first


@triton.jit
def backward(  # type: ignore[no-untyped-def]
    h, paths, table, alphas, grad_log_probs, grad_log_z, grad_loss, n_counted, out,
    listed, n_listed, n_rows, n_classes, n_edges, n_slices, n_last,
    HAS_PATH: tl.constexpr, HAS_GRAD: tl.constexpr, HAS_GRAD_LOG_Z: tl.constexpr,
    HAS_GRAD_LOSS: tl.constexpr, MEAN: tl.constexpr, LISTED: tl.constexpr,
    B: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """Compute the gradient from the sink to the source: scaled marginals, plus the path's edges."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_mask = row < (tl.load(n_listed) if LISTED else n_rows)
    source = tl.load(listed + row, mask=row_mask, other=0).to(tl.int64) if LISTED else row
    s = tl.arange(0, WIDTH)
    base = h + row * n_edges
    grad = out + row * n_edges
    state_mask = row_mask[:, None] & (s < B)[None, :]
    if HAS_PATH:
        path = tl.load(paths + row, mask=row_mask, other=-1)
        if not HAS_GRAD_LOG_Z:  # noqa: SIM102 (only this one is known when the kernel is compiled)
            if tl.max(path, 0) < 0:  # no row has a gradient
                for first_edge in range(0, n_edges, 256):
                    edge = first_edge + tl.arange(0, 256)
                    inside = row_mask[:, None] & (edge < n_edges)[None, :]
                    zeros = tl.zeros((ROWS, 256), out.dtype.element_ty)
                    tl.store(grad[:, None] + edge[None, :], zeros, mask=inside)
                return
    of_row = alphas + row * (n_slices + 1) * (B + 1)
    alpha_ptr = of_row[:, None] + s[None, :]
    log_z = _finite(tl.load(of_row + B, mask=row_mask, other=0.0))  # relative to slice i
    scale = tl.zeros_like(log_z)  # factor of the marginals
    if HAS_GRAD_LOG_Z:
        scale += tl.load(grad_log_z + row, mask=row_mask, other=0.0).to(REAL)

    # The path's states are its digits in base B, decoded from the last slice to the first.
    last = tl.zeros_like(row) - 1
    rest = tl.zeros_like(row)
    state = tl.zeros_like(row)
    path_grad = tl.zeros_like(scale)
    if HAS_PATH:
        last, first = _exit_of(path, table, n_slices)
        last = tl.where((path >= 0) & (path < n_classes), last, -1)
        power = tl.load(table + 4 * n_slices + 3)
        rest = tl.maximum(path, 0) - first
        state = rest // power
        rest -= state * power
        if HAS_GRAD:
            path_grad = tl.load(grad_log_probs + source, mask=last >= 0, other=0.0).to(REAL)
        if HAS_GRAD_LOSS:  # of the sum of −log_probs, or of their mean
            one = tl.load(grad_loss).to(REAL)
            if MEAN:
                one /= tl.load(n_counted).to(REAL)
            path_grad -= tl.where(last >= 0, one, 0.0)
        scale -= path_grad

    alpha = tl.load(alpha_ptr + n_slices * (B + 1), mask=state_mask, other=float("-inf"))
    through = tl.zeros_like(alpha)  # probability of passing each state without exiting there
    for j in range(n_slices):
        i = n_slices - j
        columns = tl.where(i < n_slices, B, n_last)
        exit_score = _exit_scores(base, table, i, s, row_mask, REAL)
        previous = tl.load(alpha_ptr + (i - 1) * (B + 1), mask=state_mask, other=float("-inf"))
        shift = tl.load(of_row + i * (B + 1) + B, mask=row_mask, other=0.0)
        first_edge = B + (i - 1) * B * B
        offset = first_edge + s[None, :, None] * columns + s[None, None, :]
        edge_mask = state_mask[:, :, None] & (s < columns)[None, None, :]
        weight = tl.load(base[:, None, None] + offset, mask=edge_mask, other=float("-inf")).to(REAL)

        exiting = tl.exp(alpha + exit_score - log_z[:, None])
        _store_exits(grad, table, i, s, row_mask, exiting, scale, path_grad, last, state)
        vertex = exiting + through
        arriving = previous[:, :, None] + weight
        share = tl.exp(arriving - _finite(tl.max(arriving, 1))[:, None, :])
        whole = tl.sum(share, 1)
        share /= tl.where(whole > 0, whole, 1.0)[:, None, :]
        edge = vertex[:, None, :] * share
        through = tl.sum(edge, 2)
        edge_grad = edge * scale[:, None, None]
        if HAS_PATH:
            power = tl.load(table + 4 * (i - 1) + 3)
            before = rest // power
            rest -= before * power
            used = (s[None, :, None] == before[:, None, None]) & (
                s[None, None, :] == state[:, None, None]
            )
            used = used & (i <= last)[:, None, None]
            edge_grad += tl.where(used, path_grad[:, None, None], 0.0)
            state = before
        tl.store(grad[:, None, None] + offset, edge_grad.to(out.dtype.element_ty), mask=edge_mask)
        alpha = previous
        log_z += shift
    exiting = tl.exp(alpha + _exit_scores(base, table, 0, s, row_mask, REAL) - log_z[:, None])
    _store_exits(grad, table, 0, s, row_mask, exiting, scale, path_grad, last, state)
    edge_grad = (exiting + through) * scale[:, None]
    if HAS_PATH:
        used = (s[None, :] == state[:, None]) & (last >= 0)[:, None]
        edge_grad += tl.where(used, path_grad[:, None], 0.0)
    tl.store(grad[:, None] + s[None, :], edge_grad.to(out.dtype.element_ty), mask=state_mask)


@triton.jit
def _store_exits(  # type: ignore[no-untyped-def]
    grad, table, i, s, row_mask, exiting, scale, path_grad, last, state
):
    exit_mask = row_mask[:, None] & (s < tl.load(table + 4 * i))[None, :]
    edge_grad = exiting * scale[:, None]
    used = (s[None, :] == state[:, None]) & (last == i)[:, None]
    edge_grad += tl.where(used, path_grad[:, None], 0.0)
    edges = grad[:, None] + (tl.load(table + 4 * i + 1) + s)[None, :]
    tl.store(edges, edge_grad.to(grad.dtype.element_ty), mask=exit_mask)


@triton.jit
def topk(  # type: ignore[no-untyped-def]
    h, table, exits, list_scores, list_paths, paths, scores,
    n_rows, k, n_edges, n_slices, n_last, n_exits, EXITS: tl.constexpr,
    B: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """List Viterbi: merge k-best lists of the previous slice into every state, then the sink."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_mask = row < n_rows
    s = tl.arange(0, WIDTH)
    base = h + row * n_edges
    state_mask = row_mask[:, None] & (s < B)[None, :]
    # Every state has a list of k scores and paths in global memory, best first.
    lists = row * (n_slices + 1) * B * k
    of_state = lists[:, None] + s[None, :] * k
    score = tl.load(base[:, None] + s[None, :], mask=state_mask, other=float("-inf")).to(REAL)
    for j in range(k):
        tl.store(list_scores + of_state + j, score, mask=state_mask)
        path = tl.where(score > float("-inf"), s[None, :].to(tl.int64), -1)
        tl.store(list_paths + of_state + j, path, mask=state_mask)
        score = tl.full(score.shape, float("-inf"), REAL)
    tl.debug_barrier()

    for i in range(1, n_slices + 1):
        columns = tl.where(i < n_slices, B, n_last)
        power = tl.load(table + 4 * i + 3)
        before = lists + (i - 1) * B * k
        offset = B + (i - 1) * B * B + s[None, :, None] * columns + s[None, None, :]
        edge_mask = state_mask[:, :, None] & (s < columns)[None, None, :]
        weight = tl.load(base[:, None, None] + offset, mask=edge_mask, other=float("-inf")).to(REAL)
        head = tl.load(
            list_scores + before[:, None] + s[None, :] * k, mask=state_mask, other=float("-inf")
        )
        heads = head[:, :, None] + weight
        cursor = tl.zeros_like(heads).to(tl.int32)
        for j in range(k):
            best, origin = tl.max(heads, 1, return_indices=True, return_indices_tie_break_left=True)
            chosen = s[None, :, None] == origin[:, None, :]
            place = tl.sum(tl.where(chosen, cursor, 0), 1)
            found = (best > float("-inf")) & state_mask & (origin < B)
            entry = before[:, None] + origin * k + place
            path = tl.load(list_paths + entry, mask=found, other=-1)
            path = tl.where(found, path + s[None, :] * power, -1)
            to = of_state + i * B * k + j
            tl.store(list_scores + to, best, mask=state_mask)
            tl.store(list_paths + to, path, mask=state_mask)
            more = found & (place + 1 < k)
            following = tl.load(list_scores + entry + 1, mask=more, other=float("-inf"))
            following += tl.sum(tl.where(chosen, weight, 0.0), 1)
            heads = tl.where(chosen, following[:, None, :], heads)
            cursor = tl.where(chosen, cursor + 1, cursor)
        tl.debug_barrier()

    x = tl.arange(0, EXITS)
    slice_ = tl.load(exits + 2 * x, mask=x < n_exits, other=0)
    state = tl.load(exits + 2 * x + 1, mask=x < n_exits, other=0)
    first_path = tl.load(table + 4 * slice_ + 2)
    edge = tl.load(table + 4 * slice_ + 1) + state
    exit_mask = row_mask[:, None] & (x < n_exits)[None, :]
    weight = tl.load(base[:, None] + edge[None, :], mask=exit_mask, other=float("-inf")).to(REAL)
    of_exit = lists[:, None] + ((slice_ * B + state) * k)[None, :]
    heads = tl.load(list_scores + of_exit, mask=exit_mask, other=float("-inf")) + weight
    cursor = tl.zeros_like(heads).to(tl.int32)
    for j in range(k):
        best, exit_ = tl.max(heads, 1, return_indices=True, return_indices_tie_break_left=True)
        chosen = x[None, :] == exit_[:, None]
        place = tl.sum(tl.where(chosen, cursor, 0), 1)
        found = row_mask & (best > float("-inf"))
        entry = tl.sum(tl.where(chosen, of_exit, 0), 1) + place
        first = tl.sum(tl.where(chosen, first_path[None, :], 0), 1)
        path = tl.load(list_paths + entry, mask=found, other=-1)
        tl.store(paths + row * k + j, tl.where(found, path + first, -1), mask=row_mask)
        tl.store(scores + row * k + j, best, mask=row_mask)
        more = found & (place + 1 < k)
        following = tl.load(list_scores + entry + 1, mask=more, other=float("-inf"))
        following += tl.sum(tl.where(chosen, weight, 0.0), 1)
        heads = tl.where(chosen, following[:, None], heads)
        cursor = tl.where(chosen, cursor + 1, cursor)


@triton.jit
def logistic(  # type: ignore[no-untyped-def]
    h, paths, weights, table, grad_losses, losses, out, n_rows, n_paths, n_classes, n_edges,
    n_slices, n_last, HAS_WEIGHTS: tl.constexpr, GRADIENT: tl.constexpr,
    B: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """Compute the binary cross-entropy of every row, summed over the edges, or its gradient.

    An edge is positive if a path of the row uses it, with the largest weight of these paths.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_mask = row < n_rows
    s = tl.arange(0, WIDTH)
    state_mask = row_mask[:, None] & (s < B)[None, :]
    factor = tl.zeros((ROWS,), REAL)
    if GRADIENT:
        factor = tl.load(grad_losses + row, mask=row_mask, other=0.0).to(REAL)
    total = tl.zeros((ROWS,), REAL)
    for i in range(n_slices + 1):
        starting = tl.full((ROWS, WIDTH), -1.0, REAL)  # weights; −1 marks a negative
        exiting = tl.full((ROWS, WIDTH), -1.0, REAL)
        passing = tl.full((ROWS, WIDTH, WIDTH), -1.0, REAL)
        for k in range(n_paths):
            path = tl.load(paths + row * n_paths + k, mask=row_mask, other=-1)
            given = (path >= 0) & (path < n_classes)
            last, first = _exit_of(path, table, n_slices)
            rest = path - first
            weight = tl.full((ROWS,), 1.0, REAL)
            if HAS_WEIGHTS:
                weight = tl.load(weights + row * n_paths + k, mask=row_mask, other=0.0).to(REAL)
            outside = row_mask & (path >= n_classes)
            total = tl.where(outside, float("nan"), total)
            factor = tl.where(outside, 0.0, factor)
            state = rest // tl.load(table + 4 * i + 3) % B
            here = (s[None, :] == state[:, None]) & given[:, None]
            chosen = tl.where(here & (last == i)[:, None], weight[:, None], -1.0)
            exiting = tl.maximum(exiting, chosen)
            if i == 0:
                starting = tl.maximum(starting, tl.where(here, weight[:, None], -1.0))
            else:
                before = rest // tl.load(table + 4 * (i - 1) + 3) % B
                used = (s[None, :] == before[:, None])[:, :, None] & here[:, None, :]
                used = used & (i <= last)[:, None, None]
                passing = tl.maximum(passing, tl.where(used, weight[:, None, None], -1.0))
        exits = (row * n_edges)[:, None] + (tl.load(table + 4 * i + 1) + s)[None, :]
        mask = row_mask[:, None] & (s < tl.load(table + 4 * i))[None, :]
        total += tl.sum(_cross_entropy(h, out, exits, mask, exiting, factor[:, None], GRADIENT), 1)
        if i == 0:  # names of tensors of other shapes differ: types are those before the branch
            starts = (row * n_edges)[:, None] + s[None, :]
            cells = _cross_entropy(h, out, starts, state_mask, starting, factor[:, None], GRADIENT)
            total += tl.sum(cells, 1)
        else:
            columns = tl.where(i < n_slices, B, n_last)
            steps = (row * n_edges)[:, None, None] + (B + (i - 1) * B * B)
            steps += s[None, :, None] * columns + s[None, None, :]
            inside = state_mask[:, :, None] & (s < columns)[None, None, :]
            of_row = factor[:, None, None]
            of_steps = _cross_entropy(h, out, steps, inside, passing, of_row, GRADIENT)
            total += tl.sum(tl.sum(of_steps, 2), 1)
    if not GRADIENT:
        tl.store(losses + row, total, mask=row_mask)


@triton.jit
def _cross_entropy(h, out, edges, mask, weight, factor, GRADIENT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return weight · softplus(−h), or softplus(h) of negatives; or store derivative · factor."""
    x = tl.load(h + edges, mask=mask, other=0.0).to(weight.dtype)
    signed = tl.where(weight < 0, x, -x)
    small = tl.exp(-tl.abs(x))
    if GRADIENT:
        slope = -weight * factor * tl.where(signed >= 0, 1.0, small) / (1 + small)
        tl.store(out + edges, slope.to(out.dtype.element_ty), mask=mask)
    return tl.where(mask, tl.abs(weight) * (tl.maximum(signed, 0.0) + tl.log(1 + small)), 0.0)


@triton.jit
def _round_key(seed, number: tl.constexpr):  # type: ignore[no-untyped-def]
    z = seed + (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def _mix(half, key):  # type: ignore[no-untyped-def]
    z = (half + key) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 32)) * 0x94D049BB133111EB
    return z >> 32


@triton.jit
def _feistel(value, seed, low_bits, low, high, INVERSE: tl.constexpr):  # type: ignore[no-untyped-def]
    left = value & low
    right = value >> low_bits
    for r in tl.static_range(8):
        if INVERSE:
            right ^= _mix(left, _round_key(seed, 15 - 2 * r)) & high
            left ^= _mix(right, _round_key(seed, 14 - 2 * r)) & low
        else:
            left ^= _mix(right, _round_key(seed, 2 * r)) & low
            right ^= _mix(left, _round_key(seed, 2 * r + 1)) & high
    return (right << low_bits) | left


@triton.jit
def permute(  # type: ignore[no-untyped-def]
    values, out, seed, n, first, end, block_key, low_bits, low, high,
    INVERSE: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Permute one block of values; the launch of the last block also maps values out of range."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(values + at, mask=at < n, other=-1)
    in_block = (given >= first) & (given < end)
    key = tl.load(seed).to(tl.uint64) + block_key
    value = tl.where(in_block, given - first, 0).to(tl.uint64)
    value = _feistel(value, key, low_bits, low, high, INVERSE)
    outside = value.to(tl.int64) >= end - first
    while tl.sum(outside.to(tl.int32), 0) > 0:  # cycle walking
        value = tl.where(outside, _feistel(value, key, low_bits, low, high, INVERSE), value)
        outside = value.to(tl.int64) >= end - first
    result = value.to(tl.int64) + first
    if LAST:
        result = tl.where(in_block, result, tl.where(given < 0, -1, end))
        in_block = in_block | (given < 0) | (given >= end)
    tl.store(out + at, result, mask=(at < n) & in_block)
