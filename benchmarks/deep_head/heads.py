"""Output layers with one interface, and the runs that compare them.

A head has a loss to train by, and its most probable labels.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks import machine
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax

TOP = 5


class Head(nn.Module):
    """What all of them can do."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean negative log-likelihood."""
        raise NotImplementedError

    def top(self, x: Tensor) -> Tensor:
        """Return the TOP most probable labels of every row, best first."""
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


class LinearAlone(Full):
    """A linear layer and the mean of its outputs: what eager mode itself costs."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.linear(x).mean()


class CutCrossEntropy(Full):
    """The same without ever storing logits, by cut-cross-entropy's kernels; they take bf16 only."""

    def __init__(self, in_features: int, n_classes: int) -> None:
        super().__init__(in_features, n_classes, bias=False)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        from cut_cross_entropy import linear_cross_entropy

        return linear_cross_entropy(x.bfloat16(), self.linear.weight.bfloat16(), y)


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


class Adaptive(Head):
    """torch's own answer to many classes."""

    def __init__(self, in_features: int, n_classes: int, cutoffs: list[int]) -> None:
        super().__init__()
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(in_features, n_classes, cutoffs)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.softmax(x, y).loss

    def top(self, x: Tensor) -> Tensor:
        return self.softmax.log_prob(x).topk(TOP).indices


class Ours(Head):
    """A layer of `ltls.torch`."""

    softmax: Any

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.softmax(x, y).loss

    def top(self, x: Tensor) -> Tensor:
        return self.softmax.topk(x, TOP)[0]


class AdaptiveTrellis(Ours):
    """An adaptive softmax whose last cluster is a trellis."""

    def __init__(self, in_features: int, n_classes: int, cutoffs: list[int] | None, **options: Any):
        super().__init__()
        self.softmax = AdaptiveTrellisSoftmax(in_features, n_classes, cutoffs, **options)


class Trellis(Ours):
    """Every class is a path."""

    def __init__(self, in_features: int, n_classes: int, width: int, **options: Any) -> None:
        super().__init__()
        self.softmax = TrellisSoftmax(in_features, n_classes, width, **options)

    @torch.no_grad()
    def reassign(self, vectors: Tensor) -> None:
        """Let classes with similar vectors share edges, and fit these to what classes weighed."""
        old = self.softmax
        every = torch.arange(old.n_classes, device=old.edges.weight.device)
        linear = nn.Linear(old.in_features, old.n_classes, device=every.device)
        for some in every.split(1 << 13):
            edges = old.layout.path_edges(old.codebooks[0].path_of(some))
            on = (edges >= 0)[..., None]
            linear.weight[some] = (old.edges.weight[edges.clamp(min=0)] * on).sum(1)
            linear.bias[some] = (old.edges.bias[edges.clamp(min=0)] * on[..., 0]).sum(1)
        self.softmax = TrellisSoftmax.from_linear(
            linear, old.width, assignment="similarity", label_features=vectors.cpu()
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


# Runs


def arguments(documentation: str | None, seconds: float) -> argparse.ArgumentParser:
    """Return a parser of the options that all comparisons have."""
    parser = machine.parser(documentation)
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="tiny sizes: does it work at all?")
    parser.add_argument("--only", nargs="+", help="heads with one of these words; others are kept")
    parser.add_argument("--seconds", type=float, default=seconds, help="to begin nothing after")
    return parser


def description(device: str) -> dict[str, str]:
    """Return where and how this runs."""
    about = machine.description("torch", "numpy")
    if device.startswith("cuda"):
        about["gpu"] = torch.cuda.get_device_name()
    return about


def compare(
    name: str,
    result: dict[str, Any],
    cases: Iterable[dict[str, Any]],
    run: Callable[[dict[str, Any]], dict[str, Any]],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Run every case until the time is over; store its row after each.

    A row has what names a case, and what `run` has found, or why that failed. With --only, the rows
    of all other cases stay as they are stored.
    """
    names = ("in_features", "C", "network", "head", "cutoffs")
    start, rows, about = time.perf_counter(), [], result["about"]
    stored = machine.read(name, options.output) if options.only else {}
    if stored:
        about["other heads"] = f"{stored['about']['date']}, {stored['about']['command']}"
    for case in cases:
        row = {key: case[key] for key in names if key in case}
        if options.only and not any(word in case["head"] for word in options.only):
            rows += [each for each in stored.get("rows", []) if row.items() <= each.items()]
            continue
        if time.perf_counter() - start > options.seconds:
            row["error"] = "not run: the time was over"
        else:
            try:
                row |= run(case)
            except Exception as error:
                first = (str(error).strip() or "?").splitlines()[0]
                row["error"] = f"{type(error).__name__}: {first[:200]}"
        rows.append(row)
        print(row, flush=True)
        about["took"] = f"{time.perf_counter() - start:.0f} s"
        machine.write(name, {**result, "rows": rows}, options.output)
    return {**result, "rows": rows}
