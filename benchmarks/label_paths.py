"""Codebooks from what labels have in common: which labels share edges."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ltls.splits import split_along_axes
from ltls.torch import make_layout
from ltls.torch.assignment import label_axes


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
            axes[:, :n_similar] = label_axes(features[labels.to(features.device)], n, n_similar)
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
    # One more occurrence of the average label: what is rare has nothing to say yet.
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
