"""The dynamic programs as GPU kernels, in Triton; `launches.py` says how each is called.

One program serves a few rows of the batch. The values of a slice stay in registers; the scores of a
transition are a [rows, from, to] tile. `table` holds exits, first exit edge, first path and power
of every slice.
"""

import triton
import triton.language as tl


@triton.jit
def _finite(x):  # type: ignore[no-untyped-def]
    """0 in place of −inf: what to subtract before exp."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def _exit_scores(base, table, i, s, here, REAL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Scores of the edges from the states of slice i to the sink, −inf where there is none."""
    leaves = here[:, None] & (s < tl.load(table + 4 * i))[None, :]
    edges = base[:, None] + (tl.load(table + 4 * i + 1) + s)[None, :]
    return tl.load(edges, mask=leaves, other=float("-inf")).to(REAL)


@triton.jit
def forward(  # type: ignore[no-untyped-def]
    h, paths, table, log_probs, totals, values,
    n_rows, n_paths, n_classes, n_edges, n_slices, n_last,
    B: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """Sum over all paths, slice by slice, and along the given paths."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < n_rows
    s = tl.arange(0, WIDTH)
    base = h + row * n_edges
    in_slice = here[:, None] & (s < B)[None, :]
    kept = values + (row * (n_slices + 1) * B)[:, None] + s[None, :]
    value = tl.load(base[:, None] + s[None, :], mask=in_slice, other=float("-inf")).to(REAL)
    tl.store(kept, value, mask=in_slice)

    # The sink's value so far is highest + log(total), where total may be empty.
    leaving = value + _exit_scores(base, table, 0, s, here, REAL)
    highest = tl.max(leaving, 1)
    total = tl.sum(tl.exp(leaving - _finite(highest)[:, None]), 1)
    for i in range(1, n_slices + 1):
        columns = tl.where(i < n_slices, B, n_last)
        block = base[:, None, None] + (B + (i - 1) * B * B)
        inside = in_slice[:, :, None] & (s < columns)[None, None, :]
        edges = block + s[None, :, None] * columns + s[None, None, :]
        weight = tl.load(edges, mask=inside, other=float("-inf")).to(REAL)
        exit_score = _exit_scores(base, table, i, s, here, REAL)
        arriving = value[:, :, None] + weight
        most = _finite(tl.max(arriving, 1))
        value = most + tl.log(tl.sum(tl.exp(arriving - most[:, None, :]), 1))
        tl.store(kept + i * B, value, mask=in_slice)

        leaving = value + exit_score
        higher = tl.maximum(highest, tl.max(leaving, 1))
        total = total * tl.exp(highest - _finite(higher))
        total += tl.sum(tl.exp(leaving - _finite(higher)[:, None]), 1)
        highest = higher
    total = _finite(highest) + tl.log(total)
    tl.store(totals + row, total, mask=here)

    for k in range(n_paths):
        path = tl.load(paths + row * n_paths + k, mask=here, other=-1)
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
        tl.store(log_probs + row * n_paths + k, log_prob, mask=here)


@triton.jit
def _exit_of(path, table, n_slices):  # type: ignore[no-untyped-def]
    """Find the slice that a path leaves, and the smallest path that leaves it."""
    last = tl.zeros_like(path)
    first = tl.zeros_like(path)
    for i in range(1, n_slices + 1):
        start = tl.load(table + 4 * i + 2)
        last = tl.where(path >= start, i, last)
        first = tl.where(path >= start, start, first)
    return last, first


@triton.jit
def backward(  # type: ignore[no-untyped-def]
    h, paths, table, totals, values, grads, total_grads, out,
    n_rows, n_classes, n_edges, n_slices, n_last, HAS_PATH: tl.constexpr, HAS_TOTAL: tl.constexpr,
    B: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """Go from the sink to the source: every edge's probability, and the path's own edges."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < n_rows
    s = tl.arange(0, WIDTH)
    base = h + row * n_edges
    grad = out + row * n_edges
    in_slice = here[:, None] & (s < B)[None, :]
    kept = values + (row * (n_slices + 1) * B)[:, None] + s[None, :]
    total = _finite(tl.load(totals + row, mask=here, other=0.0))
    scale = tl.zeros_like(total)  # of the marginals
    if HAS_TOTAL:
        scale += tl.load(total_grads + row, mask=here, other=0.0).to(REAL)

    # The path's states, last one first: its number in base B from the highest digit down.
    last = tl.zeros_like(row) - 1
    rest = tl.zeros_like(row)
    state = tl.zeros_like(row)
    gain = tl.zeros_like(scale)
    if HAS_PATH:
        path = tl.load(paths + row, mask=here, other=-1)
        last, first = _exit_of(path, table, n_slices)
        last = tl.where((path >= 0) & (path < n_classes), last, -1)
        power = tl.load(table + 4 * n_slices + 3)
        rest = tl.maximum(path, 0) - first
        state = rest // power
        rest -= state * power
        gain = tl.load(grads + row, mask=last >= 0, other=0.0).to(REAL)
        scale -= gain

    value = tl.load(kept + n_slices * B, mask=in_slice, other=float("-inf"))
    through = tl.zeros_like(value)  # the probability that goes on from each state
    for j in range(n_slices):
        i = n_slices - j
        columns = tl.where(i < n_slices, B, n_last)
        exit_score = _exit_scores(base, table, i, s, here, REAL)
        previous = tl.load(kept + (i - 1) * B, mask=in_slice, other=float("-inf"))
        first_edge = B + (i - 1) * B * B
        offset = first_edge + s[None, :, None] * columns + s[None, None, :]
        inside = in_slice[:, :, None] & (s < columns)[None, None, :]
        weight = tl.load(base[:, None, None] + offset, mask=inside, other=float("-inf")).to(REAL)

        leaving = tl.exp(value + exit_score - total[:, None])
        _store_exits(grad, table, i, s, here, leaving, scale, gain, last, state)
        vertex = leaving + through
        share = tl.exp(previous[:, :, None] + weight - _finite(value)[:, None, :])
        edge = vertex[:, None, :] * share
        through = tl.sum(edge, 2)
        step = edge * scale[:, None, None]
        if HAS_PATH:
            power = tl.load(table + 4 * (i - 1) + 3)
            before = rest // power
            rest -= before * power
            used = (s[None, :, None] == before[:, None, None]) & (
                s[None, None, :] == state[:, None, None]
            )
            used = used & (i <= last)[:, None, None]
            step += tl.where(used, gain[:, None, None], 0.0)
            state = before
        tl.store(grad[:, None, None] + offset, step.to(out.dtype.element_ty), mask=inside)
        value = previous
    leaving = tl.exp(value + _exit_scores(base, table, 0, s, here, REAL) - total[:, None])
    _store_exits(grad, table, 0, s, here, leaving, scale, gain, last, state)
    step = (leaving + through) * scale[:, None]
    if HAS_PATH:
        used = (s[None, :] == state[:, None]) & (last >= 0)[:, None]
        step += tl.where(used, gain[:, None], 0.0)
    tl.store(grad[:, None] + s[None, :], step.to(out.dtype.element_ty), mask=in_slice)


@triton.jit
def _store_exits(  # type: ignore[no-untyped-def]
    grad, table, i, s, here, leaving, scale, gain, last, state
):
    leaves = here[:, None] & (s < tl.load(table + 4 * i))[None, :]
    step = leaving * scale[:, None]
    used = (s[None, :] == state[:, None]) & (last == i)[:, None]
    step += tl.where(used, gain[:, None], 0.0)
    edges = grad[:, None] + (tl.load(table + 4 * i + 1) + s)[None, :]
    tl.store(edges, step.to(grad.dtype.element_ty), mask=leaves)


@triton.jit
def topk(  # type: ignore[no-untyped-def]
    h, table, exits, list_scores, list_paths, paths, scores,
    n_rows, k, n_edges, n_slices, n_last, n_exits, EXITS: tl.constexpr,
    B: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """Merge the lists of the states before, best first, for every state and then the sink."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < n_rows
    s = tl.arange(0, WIDTH)
    base = h + row * n_edges
    in_slice = here[:, None] & (s < B)[None, :]
    # Every state has a list of k scores and paths, best first, in global memory.
    lists = row * (n_slices + 1) * B * k
    of_state = lists[:, None] + s[None, :] * k
    score = tl.load(base[:, None] + s[None, :], mask=in_slice, other=float("-inf")).to(REAL)
    for j in range(k):
        tl.store(list_scores + of_state + j, score, mask=in_slice)
        path = tl.where(score > float("-inf"), s[None, :].to(tl.int64), -1)
        tl.store(list_paths + of_state + j, path, mask=in_slice)
        score = tl.full(score.shape, float("-inf"), REAL)
    tl.debug_barrier()

    for i in range(1, n_slices + 1):
        columns = tl.where(i < n_slices, B, n_last)
        power = tl.load(table + 4 * i + 3)
        before = lists + (i - 1) * B * k
        offset = B + (i - 1) * B * B + s[None, :, None] * columns + s[None, None, :]
        inside = in_slice[:, :, None] & (s < columns)[None, None, :]
        weight = tl.load(base[:, None, None] + offset, mask=inside, other=float("-inf")).to(REAL)
        head = tl.load(
            list_scores + before[:, None] + s[None, :] * k, mask=in_slice, other=float("-inf")
        )
        heads = head[:, :, None] + weight
        cursor = tl.zeros_like(heads).to(tl.int32)
        for j in range(k):
            best, origin = tl.max(heads, 1, return_indices=True, return_indices_tie_break_left=True)
            chosen = s[None, :, None] == origin[:, None, :]
            place = tl.sum(tl.where(chosen, cursor, 0), 1)
            found = (best > float("-inf")) & in_slice & (origin < B)
            entry = before[:, None] + origin * k + place
            path = tl.load(list_paths + entry, mask=found, other=-1)
            path = tl.where(found, path + s[None, :] * power, -1)
            to = of_state + i * B * k + j
            tl.store(list_scores + to, best, mask=in_slice)
            tl.store(list_paths + to, path, mask=in_slice)
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
    leaves = here[:, None] & (x < n_exits)[None, :]
    weight = tl.load(base[:, None] + edge[None, :], mask=leaves, other=float("-inf")).to(REAL)
    of_exit = lists[:, None] + ((slice_ * B + state) * k)[None, :]
    heads = tl.load(list_scores + of_exit, mask=leaves, other=float("-inf")) + weight
    cursor = tl.zeros_like(heads).to(tl.int32)
    for j in range(k):
        best, exit_ = tl.max(heads, 1, return_indices=True, return_indices_tie_break_left=True)
        chosen = x[None, :] == exit_[:, None]
        place = tl.sum(tl.where(chosen, cursor, 0), 1)
        found = here & (best > float("-inf"))
        entry = tl.sum(tl.where(chosen, of_exit, 0), 1) + place
        first = tl.sum(tl.where(chosen, first_path[None, :], 0), 1)
        path = tl.load(list_paths + entry, mask=found, other=-1)
        tl.store(paths + row * k + j, tl.where(found, path + first, -1), mask=here)
        tl.store(scores + row * k + j, best, mask=here)
        more = found & (place + 1 < k)
        following = tl.load(list_scores + entry + 1, mask=more, other=float("-inf"))
        following += tl.sum(tl.where(chosen, weight, 0.0), 1)
        heads = tl.where(chosen, following[:, None], heads)
        cursor = tl.where(chosen, cursor + 1, cursor)


@triton.jit
def look_up(  # type: ignore[no-untyped-def]
    labels, table, out, n, n_labels, n_paths, ignored,
    HAS_TABLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find labels in a table, or take them for their paths."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(labels + at, mask=at < n, other=-1)
    known = (label >= 0) & (label < n_labels)
    path = label
    if HAS_TABLE:
        path = tl.load(table + label, mask=known, other=0).to(tl.int64)
    path = tl.where(known, path, n_paths)
    tl.store(out + at, tl.where(label == ignored, -1, path), mask=at < n)


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
    """Map what lies in one block of a grown codebook; the last also says what lies in none."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(values + at, mask=at < n, other=-1)
    inside = (given >= first) & (given < end)
    key = tl.load(seed).to(tl.uint64) + block_key
    value = tl.where(inside, given - first, 0).to(tl.uint64)
    value = _feistel(value, key, low_bits, low, high, INVERSE)
    outside = value.to(tl.int64) >= end - first
    while tl.sum(outside.to(tl.int32), 0) > 0:  # cycle walking
        value = tl.where(outside, _feistel(value, key, low_bits, low, high, INVERSE), value)
        outside = value.to(tl.int64) >= end - first
    result = value.to(tl.int64) + first
    if LAST:  # and what no block holds
        result = tl.where(inside, result, tl.where(given < 0, -1, end))
        inside = inside | (given < 0) | (given >= end)
    tl.store(out + at, result, mask=(at < n) & inside)
