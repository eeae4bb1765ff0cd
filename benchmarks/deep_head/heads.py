"""Output layers with one interface, and codebooks for them from what labels have in common.

A head has a loss to train by, its most probable labels, and the bytes that a training step moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ltls.structure.axes import label_axes
from ltls.structure.splits import split_along_axes
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax, make_layout

TOP = 5
# Passes of float32 numbers through memory in a step.
# Edge scores: written, read forward and back, gradient written, read by two products.
PASSES_OF_EDGES = 6
# Logits: written, log-softmax (2), gradient of the loss (1), of log-softmax (3), two products.
PASSES_OF_LOGITS = 9


class Head(nn.Module):
    """What all of them can do."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean negative log-likelihood."""
        raise NotImplementedError

    def top(self, x: Tensor) -> Tensor:
        """Return the TOP most probable labels of every row, best first."""
        raise NotImplementedError

    def score_bytes(self, y: Tensor) -> float:
        """Return the bytes of scores that a training step has to move."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters())


class Full(Head):
    """`nn.Linear` and cross-entropy."""

    def __init__(self, in_features: int, n_classes: int, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, n_classes, bias)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(x), y)

    def top(self, x: Tensor) -> Tensor:
        return self.linear(x).topk(TOP).indices

    def score_bytes(self, y: Tensor) -> float:
        return PASSES_OF_LOGITS * 4.0 * len(y) * self.linear.out_features


class LinearAlone(Full):
    """A linear layer and the mean of its outputs: what eager mode itself costs."""

    def __init__(self, in_features: int, n_outputs: int, device: Any = None) -> None:
        super().__init__(in_features, n_outputs)
        self.to(device)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.linear(x).mean()


class CutCrossEntropy(Full):
    """The same without ever storing logits, by cut-cross-entropy's kernels; they take bf16 only."""

    def __init__(self, in_features: int, n_classes: int) -> None:
        super().__init__(in_features, n_classes, bias=False)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        from cut_cross_entropy import linear_cross_entropy

        return linear_cross_entropy(x.bfloat16(), self.linear.weight.bfloat16(), y)

    def score_bytes(self, y: Tensor) -> float:
        return 0.0


class Liger(CutCrossEntropy):
    """The same by Liger's kernels, in chunks of rows; in bf16 as well."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        from liger_kernel.transformers.fused_linear_cross_entropy import (
            LigerFusedLinearCrossEntropyLoss,
        )

        return LigerFusedLinearCrossEntropyLoss()(self.linear.weight.bfloat16(), x.bfloat16(), y)


class Quack(CutCrossEntropy):
    """The same by QuACK's kernels, in chunks of rows; in bf16 as well.

    They are not tuned: that takes minutes for each number of classes.
    """

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        from quack.linear_cross_entropy import chunked_linear_cross_entropy

        weight = self.linear.weight.bfloat16()
        return chunked_linear_cross_entropy(x.bfloat16(), weight, y, tuned=False)


class LinearCrossEntropy(CutCrossEntropy):
    """The same by torch's own function, which is new in torch 2.13."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        weight = self.linear.weight.bfloat16()
        return F.linear_cross_entropy(x.bfloat16(), weight, y)  # type: ignore[attr-defined]


class Adaptive(Head):
    """torch's own answer to many classes."""

    def __init__(self, in_features: int, n_classes: int, cutoffs: list[int]) -> None:
        super().__init__()
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(in_features, n_classes, cutoffs)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.softmax(x, y).loss

    def top(self, x: Tensor) -> Tensor:
        return self.softmax.log_prob(x).topk(TOP).indices

    def score_bytes(self, y: Tensor) -> float:
        """Count the logits that these targets need: every row's head, and some rows' tails."""
        cutoffs = self.softmax.cutoffs
        logits = len(y) * (self.softmax.shortlist_size + self.softmax.n_clusters)
        for first, end in pairwise(cutoffs):
            logits += int(((y >= first) & (y < end)).sum()) * (end - first)
        return PASSES_OF_LOGITS * 4.0 * logits


class AdaptiveTrellis(Head):
    """Ours for language: an adaptive softmax whose last cluster is a trellis."""

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: list[int], width: int, **options: Any
    ) -> None:
        super().__init__()
        self.softmax = AdaptiveTrellisSoftmax(
            in_features, n_classes, cutoffs, width=width, **options
        )

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.softmax(x, y).loss

    def top(self, x: Tensor) -> Tensor:
        return self.softmax.topk(x, TOP)[0]

    def score_bytes(self, y: Tensor) -> float:
        """Count the logits of the head and the edges; those of clusters are never stored."""
        softmax = self.softmax
        logits = softmax.cutoffs[0] + softmax.n_clusters
        edges = softmax.trellis.layout.n_edges
        return 4.0 * len(y) * (PASSES_OF_LOGITS * logits + PASSES_OF_EDGES * edges)


class Trellis(Head):
    """Ours; `rank` puts a narrow linear layer in front, so that edges have short vectors."""

    def __init__(
        self, in_features: int, n_classes: int, width: int, rank: int | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.narrow = nn.Linear(in_features, rank, bias=False) if rank else nn.Identity()
        self.softmax = TrellisSoftmax(rank or in_features, n_classes, width, **options)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.softmax(self.narrow(x), y).loss

    def top(self, x: Tensor) -> Tensor:
        return self.softmax.topk(self.narrow(x), TOP)[0]

    def score_bytes(self, y: Tensor) -> float:
        return PASSES_OF_EDGES * 4.0 * len(y) * self.softmax.layout.n_edges

    @torch.no_grad()
    def reassign(self, paths: Tensor, counts: Any) -> None:
        """Move labels to other paths, and fit the edges to what labels weighed before."""
        old = self.softmax
        every = torch.arange(old.n_classes, device=old.edges.weight.device)
        linear = nn.Linear(old.in_features, old.n_classes, device=every.device)
        for some in every.split(1 << 13):
            edges = old.layout.path_edges(old.codebooks[0].path_of(some))
            on = (edges >= 0)[..., None]
            linear.weight[some] = (old.edges.weight[edges.clamp(min=0)] * on).sum(1)
            linear.bias[some] = (old.edges.bias[edges.clamp(min=0)] * on[..., 0]).sum(1)
        self.softmax = TrellisSoftmax.from_linear(
            linear, old.width, assignment=paths, counts=counts, fused=old.fused
        )


# Training and testing a network with a head


def schedule(step: int, steps: int) -> float:
    """Return what to multiply a learning rate with: warm-up, then a cosine down to 0."""
    return min(1, (step + 1) / (0.05 * steps)) * (1 + math.cos(math.pi * step / steps)) / 2


@torch.no_grad()
def scores_of(head: Head, batches: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Return P@1, recall@5 and the mean negative log-likelihood of hidden vectors and labels."""
    n, nll, right = 0, 0.0, [0.0] * TOP
    for hidden, y in batches:
        found = (head.top(hidden) == y[:, None]).sum(0)
        right = [a + b for a, b in zip(right, found.tolist(), strict=True)]
        nll += head.loss(hidden, y).item() * len(y)
        n += len(y)
    return {"P@1": right[0] / n, "R@5": sum(right) / n, "NLL": nll / n}


# Codebooks: which labels share edges


def frequency_and_similarity(
    n_classes: int, width: int, counts: Tensor, features: Tensor, by_frequency: int = 0
) -> Tensor:
    """Return a path for every label: frequent ones short, similar ones on shared edges.

    Exits are given out by frequency. Among the labels of an exit the last `by_frequency` full
    slices, and the slice of auxiliary vertices, split by frequency; those before by principal axes
    of the labels' features.
    """
    layout = make_layout(n_classes, width)
    order = torch.argsort(counts.cpu(), descending=True, stable=True)
    paths = torch.empty(n_classes, dtype=torch.int64)
    for i, digit in enumerate(layout.digits):
        first, n = layout.first_path[i], digit * layout.width**i
        labels = order[first : first + n]
        if i == 0 or n < 2:
            paths[labels] = first + torch.arange(n)
            continue
        axes = np.repeat(np.arange(n, dtype=np.float64)[:, None], i + 1, 1)
        n_similar = max(0, i - by_frequency)
        if n_similar:
            vectors = features[labels.to(features.device)].double().cpu().numpy()
            centred = vectors - vectors.mean(axis=0)
            axes[:, :n_similar] = label_axes(centred, n_similar, np.random.RandomState(0))
        paths[labels] = first + torch.from_numpy(split_along_axes(make_layout(n, width), axes))
    return paths


def cooccurrence(previous: Tensor, labels: Tensor, n_classes: int, n_contexts: int = 512) -> Tensor:
    """Return the square roots of how often each token comes before a label, per offset.

    Parameters
    ----------
    previous : tensor of shape (rows, offsets)
        The tokens before each label, of which the `n_contexts` smallest ids count.
    labels : tensor of shape (rows,)
    """
    parts = []
    for column in previous.T:
        known = column < n_contexts
        cells = labels[known] * n_contexts + column[known]
        table = torch.bincount(cells, minlength=n_classes * n_contexts).view(n_classes, n_contexts)
        parts.append(table.float())
    table = torch.cat(parts, 1)
    # One more occurrence of the average label: rare labels shrink to the mean.
    average = table.sum(0) / table.sum() * previous.shape[1]
    return ((table + average) / (table.sum(1, keepdim=True) + previous.shape[1])).sqrt()


class Centroids:
    """The mean hidden vector of every label, with one occurrence of the overall mean added."""

    def __init__(self, n_classes: int, size: int, device: torch.device | str) -> None:
        self.sums = torch.zeros(n_classes, size, device=device)
        self.counts = torch.zeros(n_classes, device=device)

    def add(self, hidden: Tensor, labels: Tensor) -> None:
        """Take in a batch."""
        self.sums.index_add_(0, labels, hidden.float())
        self.counts.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float32))

    def mean(self) -> Tensor:
        """Return the vectors, shape (n_classes, size)."""
        overall = self.sums.sum(0) / self.counts.sum()
        return (self.sums + overall) / (self.counts[:, None] + 1)
