"""The dynamic programs of the trellis on tensors of edge scores.

Every function takes edge scores `h` of shape (…, n_edges), of any floating-point type, on any
device, and a trellis: an `ltls.Trellis` or a `Layout` from `ltls.torch.make_layout(n_classes,
width)`, which does not need the compiled engine. `log_partition`, `log_prob`, `marginals`, `topk`
and `viterbi` run on the compiled engine on a CPU, and as fused Triton kernels on a GPU.
`logistic_loss` has a fused kernel on a GPU, too. All others are plain torch operations. All
functions accumulate in float32, or in float64 for float64 scores. All but `topk`, `viterbi`,
`sample` and `marginals` are differentiable; the fused operators do not support double backward.

`log_partition`, `topk` and `sample` take ``within=(first, end)``, which restricts them to the paths
first … end − 1. This still takes O(log n_classes), in plain torch operations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .layout import AnyTrellis, layout_of
from .ops import custom, reference
from .ops.precision import accumulation_dtype, widest
from .ops.tracing import has_values

_LOW_TEMPERATURE = 1e-3  # below it, scores in float32 may overflow
_MANY_PATHS = 64  # per row: the kernel scores them one after the other, a gather all at once


def log_partition(h: Tensor, trellis: AnyTrellis, within: tuple[int, int] | None = None) -> Tensor:
    """Return the logsumexp of the scores of all paths, or of those of an interval, shape (…).

    Its gradient is the `marginals`.

    Parameters
    ----------
    h : tensor of shape (…, n_edges)
    trellis : Trellis or Layout
    within : tuple of two int, optional
        An interval of paths, end excluded.

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
    if within is None:
        _, log_z = log_prob_and_partition(rows, _no_paths(rows), trellis)
    else:
        layout = layout_of(trellis)
        real = rows.to(accumulation_dtype(rows))
        log_z = reference.log_partition(real, layout, layout.blocks(*within))
    return log_z.reshape(h.shape[:-1])


def mean_score(h: Tensor, trellis: AnyTrellis) -> Tensor:
    """Return the mean score of all paths, shape (…), in O(n_edges).

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch.functional import mean_score, path_scores
    >>> h, trellis = torch.randn(19), Trellis(22)
    >>> every = path_scores(h, torch.arange(22), trellis)
    >>> bool(torch.isclose(mean_score(h, trellis), every.mean(), atol=1e-5))
    True
    """
    rows = _rows(h, trellis)
    scores = reference.mean_score(rows.to(accumulation_dtype(rows)), layout_of(trellis))
    return scores.reshape(h.shape[:-1])


def logistic_scores(h: Tensor, trellis: AnyTrellis) -> Tensor:
    """Return the edge scores that rank paths for loss="logistic", shape (…, n_edges).

    They are log σ(h). An early exit also gets the maximum of each block of edges that it skips, so
    that short paths have no advantage.

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch.functional import logistic_scores, path_scores
    >>> g = logistic_scores(torch.zeros(19), Trellis(22))
    >>> scores = path_scores(g, torch.arange(22), Trellis(22))
    >>> bool(torch.allclose(scores, scores[0]))  # short paths are as good as long ones
    True
    """
    rows, layout = _rows(h, trellis), layout_of(trellis)
    g = torch.nn.functional.logsigmoid(rows.to(accumulation_dtype(rows)))
    skipped, bonus = g.new_zeros((len(g), 1)), torch.zeros_like(g)
    for i in range(layout.n_slices, 0, -1):
        skipped = skipped + layout.block(g, i).amax((1, 2))[:, None]
        layout.exits(bonus, i - 1)[:] = skipped
    return (g + bonus).reshape(h.shape)


def logistic_loss(
    h: Tensor,
    paths: Tensor,
    trellis: AnyTrellis,
    weights: Tensor | None = None,
    fused: bool = True,
) -> Tensor:
    """Return the binary cross-entropy of every row, summed over the edges, shape (…).

    An edge is positive if one of the paths of the row uses it.

    Parameters
    ----------
    h : tensor of shape (…, n_edges)
    paths : int64 tensor of shape (…) or (…, k)
        −1 is padding; with a path out of range, the loss of the row is NaN.
    trellis : Trellis or Layout
    weights : tensor like paths, optional
        Weights of the paths, at least 0. A positive edge has the largest weight of its paths.
    fused : bool, default=True
        Whether to use the kernel on a GPU; plain torch operations support double backward.

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> import math
    >>> from ltls.torch.functional import logistic_loss
    >>> h = torch.zeros(1, 19)
    >>> loss = logistic_loss(h, torch.tensor([[3, -1]]), Trellis(22))
    >>> round(loss.item() / math.log(2))  # all edges are undecided
    19
    """
    rows, per_row, layout = _rows(h, trellis), _paths_of_rows(paths, h), layout_of(trellis)
    if weights is not None:
        if weights.shape != paths.shape:
            raise ValueError(
                f"weights must have the shape of paths, {tuple(paths.shape)}, got "
                f"{tuple(weights.shape)}"
            )
        weights = weights.detach().to(h.device).reshape(per_row.shape)
    few = per_row.shape[1] <= _MANY_PATHS
    if fused and few and custom.fuses_loss(rows, trellis):
        return custom.logistic_losses(rows, per_row, weights, layout).reshape(h.shape[:-1])
    rows = rows.to(accumulation_dtype(h))
    edges = layout.path_edges(per_row)
    own = torch.ones_like(per_row, dtype=rows.dtype) if weights is None else weights.to(rows.dtype)
    values = torch.where(edges >= 0, own[..., None], -1).flatten(1)
    at = edges.clamp(0, rows.shape[1] - 1).flatten(1)
    used = torch.full_like(rows, -1).scatter_reduce_(1, at, values, "amax")  # −1: a negative
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        rows, (used >= 0).to(rows.dtype), torch.where(used >= 0, used, 1), reduction="none"
    ).sum(1)
    outside = (per_row >= layout.n_classes).any(1)
    return torch.where(outside, torch.nan, losses).reshape(h.shape[:-1])


def path_scores(h: Tensor, paths: Tensor, trellis: AnyTrellis) -> Tensor:
    """Return the scores of given paths: the sums of their edges' scores.

    Parameters
    ----------
    h : tensor of shape (…, n_edges)
    paths : int64 tensor of shape (…) or (…, k)
        Path −1 scores 0 and has no gradient; a path out of range scores NaN.
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
    >>> path_scores(h + 1, torch.tensor(21), Trellis(22)).item()  # the path has 6 edges
    6.0
    """
    rows, per_row = _rows(h, trellis), _paths_of_rows(paths, h)
    scores = reference.path_scores(rows.to(accumulation_dtype(rows)), per_row, layout_of(trellis))
    return scores.reshape(paths.shape)


def log_prob(h: Tensor, paths: Tensor, trellis: AnyTrellis) -> Tensor:
    """Return the log-probabilities of given paths, normalized over all paths.

    Parameters
    ----------
    h : tensor of shape (…, n_edges)
    paths : int64 tensor of shape (…) or (…, k)
        Path −1 has log-probability 0 and no gradient. A path out of range is an error on a CPU
        and has log-probability NaN on a GPU.
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
    return log_prob_and_partition(_rows(h, trellis), per_row, trellis)[0].reshape(paths.shape)


def marginals(h: Tensor, trellis: AnyTrellis) -> Tensor:
    """Return the marginal probability of every edge under the softmax over paths, shaped like h.

    The result is detached from the graph.

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
    rows = rows.to(accumulation_dtype(rows))
    if not custom.is_fused(rows, trellis):
        return reference.marginals(rows, layout_of(trellis)).reshape(h.shape)
    paths = _no_paths(rows)
    size = trellis.n_classes, trellis.width
    none, log_z, alpha = custom.log_probs(rows, paths, *size)
    ones = torch.ones_like(log_z)
    grad = custom.log_probs_backward(rows, paths, log_z, alpha, none, ones, *size)
    return grad.reshape(h.shape)


def viterbi(h: Tensor, trellis: AnyTrellis) -> tuple[Tensor, Tensor]:
    """Return the best path and its score, each of shape (…).

    Ties go to the smaller path. If every path scores −inf, the result is path −1 and score −inf.
    The score is detached from the graph; `path_scores(h, path, trellis)` is differentiable.

    Examples
    --------
    >>> import torch
    >>> from ltls import Trellis
    >>> from ltls.torch import viterbi
    >>> h = torch.zeros(19)
    >>> path, score = viterbi(h, Trellis(22))
    >>> path.item(), score.item()  # all paths tie: the smallest wins
    (0, 0.0)
    """
    paths, scores = topk(h, trellis, 1)
    return paths[..., 0], scores[..., 0]


def topk(
    h: Tensor, trellis: AnyTrellis, k: int, within: tuple[int, int] | None = None
) -> tuple[Tensor, Tensor]:
    """Return the k best paths and their scores, best first, each of shape (…, k).

    Ties go to the smaller path. If fewer than k paths have a finite score, the rest is path −1 with
    score −inf. Scores are detached from the graph.

    Parameters
    ----------
    h : tensor of shape (…, n_edges)
    trellis : Trellis or Layout
    k : int
        Reduced to the number of paths, or of those `within`, if it is larger.
    within : tuple of two int, optional
        An interval of paths, end excluded.

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
    first, end = within or (0, trellis.n_classes)
    rows, k = _rows(h, trellis).detach(), min(k, end - first)
    if within is None and custom.is_fused(rows, trellis):
        paths, scores = custom.topk(rows, k, trellis.n_classes, trellis.width)
    else:
        real, layout = rows.to(accumulation_dtype(rows)), layout_of(trellis)
        paths, scores = reference.topk(real, layout, k, layout.blocks(first, end))
    shape = (*h.shape[:-1], k)
    return paths.reshape(shape), scores.reshape(shape)


def sample(
    h: Tensor,
    trellis: AnyTrellis,
    n: int = 1,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    within: tuple[int, int] | None = None,
) -> Tensor:
    """Draw exact samples of paths, with probability proportional to exp(score / temperature).

    Forward filtering, backward sampling: O(log n_classes) per sample.

    Parameters
    ----------
    h : tensor of shape (…, n_edges)
    trellis : Trellis or Layout
    n : int, default=1
        Number of independent samples per row.
    temperature : float, default=1.0
        Scores are divided by it; must be greater than 0.
    generator : torch.Generator, optional
        Pseudorandom number generator, on the device of h.
    within : tuple of two int, optional
        An interval of paths, end excluded.

    Returns
    -------
    paths : int64 tensor of shape (…, n)
        −1 in rows where every path scores −inf. NaN in h raises an error on a CPU; on a GPU, where
        a check would synchronize, the paths are −1.

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
        raise ValueError(f"temperature must be greater than 0, got {temperature}")
    rows = _rows(h, trellis).detach()
    if has_values(rows):
        bad = ~(rows < torch.inf).all(1)
        if bad.any():
            raise ValueError(
                "edge scores h must be below +inf (-inf forbids an edge), "
                f"row {int(bad.int().argmax())} holds NaN or +inf"
            )
    real = widest(rows) if temperature < _LOW_TEMPERATURE else rows.to(accumulation_dtype(rows))
    scaled = real / temperature
    layout = layout_of(trellis)
    blocks = layout.blocks(*(within or (0, layout.n_classes)))
    paths = reference.sample(scaled, layout, n, generator, blocks)
    return paths.reshape(*h.shape[:-1], n)


def log_prob_and_partition(
    h: Tensor, paths: Tensor, trellis: AnyTrellis, fused: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of paths, (rows, k), and the log-partitions, (rows,).

    This is what a training step computes, in one pass. With ``fused=False`` it runs on plain torch
    operations, which support double backward.
    """
    many = h.is_cuda and paths.shape[1] > _MANY_PATHS
    if fused and not many and custom.is_fused(h, trellis):
        log_probs, log_z, _ = custom.log_probs(h, paths, trellis.n_classes, trellis.width)
        return log_probs, log_z
    real, layout = h.to(accumulation_dtype(h)), layout_of(trellis)
    log_z = log_partition(h, trellis) if fused and many else reference.log_partition(real, layout)
    log_probs = reference.path_scores(real, paths, layout) - log_z[:, None]
    return torch.where(paths < 0, 0, log_probs), log_z


def _rows(h: Tensor, trellis: AnyTrellis) -> Tensor:
    n = trellis.n_edges
    if not h.is_floating_point():
        raise TypeError(f"h must have a floating-point dtype, got {h.dtype}")
    if h.dim() == 0 or h.shape[-1] != n:
        raise ValueError(
            f"h must have shape (…, {n}) for {trellis.n_classes} classes and width "
            f"{trellis.width}, got {tuple(h.shape)}"
        )
    return h if h.dim() == 2 else h.reshape(h.shape[:-1].numel(), n)


def _no_paths(rows: Tensor) -> Tensor:
    return rows.new_empty((rows.shape[0], 0), dtype=torch.int64)


def _paths_of_rows(paths: Tensor, h: Tensor) -> Tensor:
    batch = h.shape[:-1]
    if paths.shape[: len(batch)] != batch or paths.dim() > len(batch) + 1:
        raise ValueError(
            f"paths must have shape {tuple(batch)} or {(*batch, 'k')}, got {tuple(paths.shape)}"
        )
    if paths.is_floating_point() or paths.is_complex() or paths.dtype == torch.bool:
        raise TypeError(f"paths must have an integer dtype, got {paths.dtype}")
    if has_values(paths) and paths.numel() and paths.min() < -1:
        raise ValueError(f"paths must be 0 or more, or -1 for none, got {int(paths.min())}")
    k = paths.shape[-1] if paths.dim() > len(batch) else 1
    return paths.to(torch.int64).reshape(batch.numel(), k)
