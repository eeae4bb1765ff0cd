"""Output layers with one face: a loss to train by, the most probable labels, what a step moves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ltls.torch import TrellisSoftmax

TOP = 5
# Passes of float32 numbers through memory in a step.
# Edge scores: written, read forward and back, gradient written, read by two products.
PASSES_OF_EDGES = 6
# Logits: written, log-softmax (2), gradient of the loss (1), of log-softmax (3), two products.
PASSES_OF_LOGITS = 9


def figures(row: dict[str, Any]) -> str:
    """Return what was found of a head as cells of a table: its size first, its seconds last."""
    if "error" in row:
        return f"| {row['error']} | | | | |"
    return (
        f"{row['parameters']:,} | {row['P@1']:.4f} | {row['R@5']:.4f} | {row['NLL']:.3f} "
        f"| {row['rate']:g} | {row['seconds']:.1f} |"
    )


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


class CutCrossEntropy(Full):
    """The same without ever storing logits, by cut-cross-entropy's kernels; they take bf16 only."""

    def __init__(self, in_features: int, n_classes: int) -> None:
        super().__init__(in_features, n_classes, bias=False)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        from cut_cross_entropy import linear_cross_entropy

        return linear_cross_entropy(x.bfloat16(), self.linear.weight.bfloat16(), y)

    def score_bytes(self, y: Tensor) -> float:
        return 0.0


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
