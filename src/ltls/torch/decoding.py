"""Decoding: from edge scores to labels, for a single trellis or a gated mixture of several.

Edge scores have shape (rows, n_trellises, n_edges). The gate holds the log-weights of a mixture,
shape (rows, n_trellises), and is None for a single trellis. `within` is an interval of paths that
restricts the answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import functional
from .codebooks import LabelPaths
from .layout import Layout
from .ops.precision import accumulation_dtype

_MAX_MULTINOMIAL = 2**24  # columns that torch.multinomial takes


def topk(
    h: Tensor,
    gate: Tensor | None,
    layout: Layout,
    codebooks: Sequence[LabelPaths],
    k: int,
    within: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the k most probable labels of every row and their log-probabilities, exactly.

    Parameters
    ----------
    h : tensor of shape (rows, n_trellises, n_edges)
    gate : tensor of shape (rows, n_trellises), optional
    layout : Layout
    codebooks : sequence of LabelPaths
        One per trellis.
    k : int
        At most the number of labels.
    within : tuple of two int, optional
        An interval of paths that belongs to the same labels in all trellises. Log-probabilities are
        those among all labels.
    """
    if gate is None and codebooks[0].n_labels == layout.n_classes:
        paths, scores = functional.topk(h[:, 0], layout, k, within)
        log_z = functional.log_partition(h[:, 0], layout)
        return codebooks[0].label_of(paths), scores - log_z[:, None]
    if gate is None:
        gate = h.new_zeros((len(h), 1), dtype=accumulation_dtype(h))
    labels = torch.empty((len(h), k), dtype=torch.int64, device=h.device)
    log_probs = torch.empty((len(h), k), dtype=accumulation_dtype(h), device=h.device)
    rows = torch.arange(len(h), device=h.device)
    first, end = within or (0, layout.n_classes)
    n_paths = min(2 * k + 8, end - first)
    while len(rows):
        found, values, exact = _search(h[rows], gate[rows], layout, codebooks, k, n_paths, within)
        exact = torch.ones_like(exact) if n_paths == end - first else exact
        labels[rows[exact]], log_probs[rows[exact]] = found[exact], values[exact]
        rows = rows[~exact]
        n_paths = min(4 * n_paths, end - first)
    return labels, log_probs


def _search(
    h: Tensor,
    gate: Tensor,
    layout: Layout,
    codebooks: Sequence[LabelPaths],
    k: int,
    n_paths: int,
    within: tuple[int, int] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rank the union of every trellis' best `n_paths` paths; report which rows are exact.

    A label outside the union has, in each trellis, at most the probability of that trellis' last
    path. The gated sum of those bounds it: a row is exact if its k-th label reaches the bound.
    """
    log_z = functional.log_partition(h, layout)
    paths, scores = functional.topk(h, layout, n_paths, within)
    bound = torch.logsumexp(gate + scores[..., -1] - log_z, 1)
    found = [book.label_of(paths[:, r]) for r, book in enumerate(codebooks)]
    labels = torch.cat(found, 1).sort(1).values
    duplicate = torch.zeros_like(labels, dtype=torch.bool)
    duplicate[:, 1:] = labels[:, 1:] == labels[:, :-1]
    candidates = torch.stack([book.path_of(labels) for book in codebooks], 1)
    per_trellis = functional.log_prob(h, candidates, layout)
    log_probs = torch.logsumexp(per_trellis + gate[..., None], 1)
    log_probs = log_probs.masked_fill(duplicate | (labels < 0), -torch.inf)
    values, indices = log_probs.sort(dim=1, descending=True, stable=True)
    values, best = values[:, :k], labels.gather(1, indices[:, :k])
    return best, values, ~(values[:, -1] < bound)  # a wider search does not help against NaN


def sample(
    h: Tensor,
    gate: Tensor | None,
    layout: Layout,
    codebooks: Sequence[LabelPaths],
    n: int,
    temperature: float,
    generator: torch.Generator | None,
    within: tuple[int, int] | None = None,
) -> Tensor:
    """Draw n labels per row from their distribution, shape (rows, n); −1 for a free path.

    A mixture draws a trellis from the gate, then a path of that trellis.
    """
    paths = functional.sample(h, layout, n, temperature, generator, within)
    per_trellis = [book.label_of(paths[:, r]) for r, book in enumerate(codebooks)]
    if gate is None:
        return per_trellis[0]
    component = categorical(gate.exp(), n, generator)
    return torch.stack(per_trellis, 1).gather(1, component[:, None])[:, 0]


def best(labels: Tensor, log_probs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best of given labels, (rows or 1, m), best first; −1 where there are fewer."""
    values, indices = log_probs.topk(min(k, log_probs.shape[1]), 1)
    found = labels.expand(log_probs.shape[0], -1).gather(1, indices)
    return torch.where(values > -torch.inf, found, -1), values


def tempered(log_probs: Tensor, temperature: float) -> Tensor:
    """Return log-probabilities, best first in each row, at another temperature and normalized."""
    return torch.log_softmax((log_probs - log_probs[:, :1]) / temperature, 1)


def draw(
    labels: Tensor,
    log_probs: Tensor,
    n: int,
    top_p: float | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Draw n of given labels per row, best first in each row; see `Answers.sample`.

    With `top_p`, only from those before which the others sum to less than it.
    """
    probs = log_probs.exp().nan_to_num(0)  # NaN where no label is allowed
    if top_p is not None:
        probs = probs.masked_fill(probs.cumsum(1) - probs >= top_p, 0)
    nowhere = probs.sum(1, keepdim=True) == 0
    drawn = categorical(probs.masked_fill(nowhere, 1), n, generator)
    return torch.where(nowhere, -1, labels.gather(1, drawn))


def categorical(probs: Tensor, n: int, generator: torch.Generator | None) -> Tensor:
    """Draw n indices per row, in proportion to probs; `multinomial` for any number of columns."""
    if probs.shape[1] <= _MAX_MULTINOMIAL:
        return torch.multinomial(probs, n, True, generator=generator)
    sums = probs.double().cumsum(1)
    points = torch.rand((len(probs), n), generator=generator, dtype=sums.dtype, device=probs.device)
    return torch.searchsorted(sums, points * sums[:, -1:], right=True).clamp(max=probs.shape[1] - 1)


def contains(labels: Tensor, counts: Tensor, wanted: Tensor) -> Tensor:
    """Return which of the wanted labels, (rows, k), are among sorted labels that count."""
    shape = (len(wanted), labels.shape[1])
    at = torch.searchsorted(labels.expand(shape).contiguous(), wanted.contiguous())
    at = at.clamp(max=labels.shape[1] - 1)
    found = labels.expand(shape).gather(1, at) == wanted
    return found & counts.expand(shape).gather(1, at)
