"""The trellis' dynamic programs on tensors of edge scores.

All take edge scores `h` of shape (…, n_edges), of any float type, on any device; and a trellis:
an `ltls.Trellis`, or `ltls.torch.make_layout(n_classes, width)`, which needs no compiled engine.
On a CPU the compiled engine does the work, on a GPU fused Triton kernels; sums are kept in float32,
in float64 for float64 scores. `log_partition`, `log_prob` and `path_scores` have gradients, once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import operators
from . import unfused
from .layout import AnyTrellis, Layout, layout_of
from .operators import real_of


def log_partition(h: Tensor, trellis: AnyTrellis) -> Tensor:
    """Return the log of the sum over all paths of exp(score), shape (…).

    Its gradient is the marginals.

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch import log_partition
    >>> h = torch.zeros(19, requires_grad=True)
    >>> total = log_partition(h, Trellis(22))
    >>> total.exp().round().item()
    22.0
    >>> total.backward()
    >>> (22 * h.grad[:2]).round().tolist()  # paths through each edge of the source
    [11.0, 11.0]
    """
    rows = _rows(h, trellis)
    _, totals = log_probs_and_totals(rows, _no_paths(rows), trellis)
    return totals.reshape(h.shape[:-1])


def path_scores(h: Tensor, paths: Tensor, trellis: AnyTrellis) -> Tensor:
    """Return the scores of given paths: the sums of their edges' scores.

    Parameters
    ----------
    h : tensor of shape (…, n_edges)
    paths : int64 tensor of shape (…) or (…, k)
        A path of −1 scores 0 and has no gradient; one that does not exist scores NaN.
    trellis : Trellis or Layout

    Returns
    -------
    scores : tensor of the shape of `paths`

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch import path_scores
    >>> h = torch.zeros(19)
    >>> path_scores(h + 1, torch.tensor(21), Trellis(22)).item()  # its number of edges
    6.0
    """
    rows, per_row = _rows(h, trellis), _paths_of_rows(paths, h)
    scores = unfused.path_scores(rows.to(real_of(rows)), per_row, layout_of(trellis))
    return scores.reshape(paths.shape)


def log_prob(h: Tensor, paths: Tensor, trellis: AnyTrellis) -> Tensor:
    """Return the log-probabilities of given paths, normalised over all paths.

    Parameters
    ----------
    h : tensor of shape (…, n_edges)
    paths : int64 tensor of shape (…) or (…, k)
        A path of −1 has 0 and no gradient.
    trellis : Trellis or Layout

    Returns
    -------
    log_prob : tensor of the shape of `paths`

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch import log_prob
    >>> h = torch.zeros(19)
    >>> round(1 / log_prob(h, torch.tensor(7), Trellis(22)).exp().item())
    22
    """
    per_row = _paths_of_rows(paths, h)
    return log_probs_and_totals(_rows(h, trellis), per_row, trellis)[0].reshape(paths.shape)


def marginals(h: Tensor, trellis: AnyTrellis) -> Tensor:
    """Return the probability that a path drawn by exp(score) uses each edge, in the shape of h.

    It has no gradient.

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch import marginals
    >>> h = torch.zeros(19)
    >>> (22 * marginals(h, Trellis(22))[:2]).round().tolist()
    [11.0, 11.0]
    """
    rows = _rows(h, trellis).detach()
    rows = rows.to(real_of(rows))
    if not operators.is_fused(rows, trellis):
        return unfused.marginals(rows, layout_of(trellis)).reshape(h.shape)
    paths = _no_paths(rows)
    size = trellis.n_classes, trellis.width
    none, totals, values = operators.log_probs(rows, paths, *size)
    ones = torch.ones_like(totals)
    grad = operators.log_probs_backward(rows, paths, totals, values, none, ones, *size)
    return grad.reshape(h.shape)


def viterbi(h: Tensor, trellis: AnyTrellis) -> tuple[Tensor, Tensor]:
    """Return the best path and its score, each of shape (…).

    Ties go to the smaller path. Where every path is forbidden: −1 and −inf. The score has no
    gradient; that of `path_scores(h, path, trellis)` is the path's edges.

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch import viterbi
    >>> h = torch.zeros(19)
    >>> path, score = viterbi(h, Trellis(22))
    >>> path.item(), score.item()  # all are equal: the first
    (0, 0.0)
    """
    paths, scores = topk(h, trellis, 1)
    return paths[..., 0], scores[..., 0]


def topk(h: Tensor, trellis: AnyTrellis, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths and their scores, best first, each of shape (…, k).

    No more than n_classes are returned. Ties go to the smaller path. Where fewer than k paths are
    allowed, the rest is −1 with −inf. The scores have no gradient.

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch import topk
    >>> paths, scores = topk(torch.linspace(-1, 1, 19), Trellis(22), 3)
    >>> paths.tolist()
    [21, 13, 17]
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    rows, k = _rows(h, trellis).detach(), min(k, trellis.n_classes)
    if operators.is_fused(rows, trellis):
        paths, scores = operators.topk(rows, k, trellis.n_classes, trellis.width)
    else:
        paths, scores = unfused.topk(rows.to(real_of(rows)), layout_of(trellis), k)
    shape = (*h.shape[:-1], k)
    return paths.reshape(shape), scores.reshape(shape)


def sample(
    h: Tensor,
    trellis: AnyTrellis,
    n: int = 1,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw paths with probability proportional to exp(score / temperature), exactly.

    The forward values say how much reaches every state; a path is drawn from the sink back to the
    source, one slice at a time.

    Parameters
    ----------
    h : tensor of shape (…, n_edges)
    trellis : Trellis or Layout
    n : int
        How many for each row, independent of each other.
    temperature : float
        Above 0.
    generator : torch.Generator, optional
        Of random numbers, on the device of h.

    Returns
    -------
    paths : int64 tensor of shape (…, n)

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch import sample
    >>> h = torch.zeros(19)
    >>> sample(h, Trellis(22), n=4).shape
    torch.Size([4])
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    rows = _rows(h, trellis).detach()
    paths = _sample(rows.to(real_of(rows)) / temperature, layout_of(trellis), n, generator)
    return paths.reshape(*h.shape[:-1], n)


def _sample(h: Tensor, layout: Layout, n: int, generator: torch.Generator | None) -> Tensor:
    if layout.n_slices == 0:
        return torch.zeros((len(h), n), dtype=torch.int64, device=h.device)
    values = unfused.forward_values(h, layout)

    def draw(logits: Tensor) -> Tensor:
        """Choose along axis 1 by exp(logit): whose exponential clock rings first."""
        clocks = torch.empty_like(logits).exponential_(generator=generator)
        return (logits - clocks.log()).argmax(1)

    exits = unfused.exit_values(h, values, layout)
    chosen = draw(exits[:, :, None].expand(-1, -1, n))
    last = torch.zeros_like(chosen)
    state, first = chosen, torch.zeros_like(chosen)
    before = 0
    for i, digit in enumerate(layout.digits):
        here = (chosen >= before) & (chosen < before + digit)
        last = torch.where(here, i, last)
        state = torch.where(here, chosen - before, state)
        first = torch.where(here, layout.first_path[i], first)
        before += digit
    rest = torch.zeros_like(chosen)
    for i in range(layout.n_slices, 0, -1):
        on = i <= last
        to = torch.where(on, state, 0)[:, None].expand(-1, layout.width, -1)
        previous = draw(values[i - 1][:, :, None] + layout.block(h, i).gather(2, to))
        rest = torch.where(on, rest + state * layout.width**i, rest)
        state = torch.where(on, previous, state)
    paths = first + rest + state
    return torch.where(exits.amax(1, keepdim=True) > -torch.inf, paths, -1)


def log_probs_and_totals(
    h: Tensor, paths: Tensor, trellis: AnyTrellis, fused: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of paths (rows, k) and the log-partitions (rows,)."""
    if fused and operators.is_fused(h, trellis):
        log_probs, totals, _ = operators.log_probs(h, paths, trellis.n_classes, trellis.width)
        return log_probs, totals
    h, layout = h.to(real_of(h)), layout_of(trellis)
    totals = unfused.log_partition(h, layout)
    log_probs = unfused.path_scores(h, paths, layout) - totals[:, None]
    return torch.where(paths < 0, 0, log_probs), totals


def _rows(h: Tensor, trellis: AnyTrellis) -> Tensor:
    n = trellis.n_edges
    if not h.is_floating_point():
        raise TypeError(f"h must hold floating-point numbers, got {h.dtype}")
    if h.dim() == 0 or h.shape[-1] != n:
        raise ValueError(
            f"h must have shape (…, {n}) for {trellis.n_classes} classes and width "
            f"{trellis.width}, got {tuple(h.shape)}"
        )
    return h.reshape(h.shape[:-1].numel(), n)


def _no_paths(rows: Tensor) -> Tensor:
    return rows.new_empty((rows.shape[0], 0), dtype=torch.int64)


def _paths_of_rows(paths: Tensor, h: Tensor) -> Tensor:
    batch = h.shape[:-1]
    if paths.shape[: len(batch)] != batch or paths.dim() > len(batch) + 1:
        raise ValueError(
            f"paths must have shape {tuple(batch)} or {(*batch, 'k')}, got {tuple(paths.shape)}"
        )
    k = paths.shape[-1] if paths.dim() > len(batch) else 1
    return paths.to(torch.int64).reshape(batch.numel(), k)
