"""Which label has which path, as modules: their tables and keys move and are saved with a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from . import operators


class LabelPaths(nn.Module):
    """Labels in the order of their paths: label i has path i, and nothing is stored.

    The lookups are for tensors of any shape, and nothing in them waits for a GPU. The label that is
    ignored has path −1; one that does not exist has path `n_paths`, which has no score either.
    """

    def __init__(self, n_labels: int, n_paths: int) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.n_paths = n_paths

    def path_of(self, labels: Tensor, ignored: int = -1) -> Tensor:
        """Return the paths of labels."""
        return operators.look_up(labels, None, self.n_labels, self.n_paths, ignored)

    def label_of(self, paths: Tensor) -> Tensor:
        """Return the labels of paths from −1 on, −1 for a free path."""
        return paths

    def extra_repr(self) -> str:
        """Say how large it is."""
        return f"n_labels={self.n_labels}, n_paths={self.n_paths}"


class KeyedPaths(LabelPaths):
    """The keyed permutation of `ltls.RandomCodebook`, computed and never stored.

    Parameters
    ----------
    n_labels : int
        The number of labels; the paths of others are free.
    sizes : sequence of int
        Labels and paths up to each size are permuted among themselves.
    seed : int
        Kept as a buffer, so that a saved model finds its labels again.
    """

    seed: Tensor

    def __init__(self, n_labels: int, sizes: Any, seed: int) -> None:
        super().__init__(n_labels, sizes[-1])
        self.sizes = list(sizes)
        signed = seed - 2**64 if seed >= 2**63 else seed
        self.register_buffer("seed", torch.tensor([signed], dtype=torch.int64))

    def path_of(self, labels: Tensor, ignored: int = -1) -> Tensor:
        """Return the paths of labels."""
        known = super().path_of(labels, ignored)
        return operators.permute(known, self.seed, self.sizes, False)

    def label_of(self, paths: Tensor) -> Tensor:
        """Return the labels of paths from −1 on, −1 for a free path."""
        labels = operators.permute(paths, self.seed, self.sizes, True)
        return torch.where(labels < self.n_labels, labels, -1)


class TablePaths(LabelPaths):
    """An explicit assignment.

    Parameters
    ----------
    paths : tensor of shape (n_labels,)
        The path of every label.
    n_paths : int
        The number of paths; those without a label are free.
    """

    paths: Tensor
    labels: Tensor

    def __init__(self, paths: Tensor, n_paths: int) -> None:
        super().__init__(len(paths), n_paths)
        small = torch.int32 if n_paths < 2**31 - 1 else torch.int64
        labels = torch.full((n_paths + 1,), -1, dtype=small)  # one more, for path −1
        labels[paths] = torch.arange(len(paths), dtype=small)
        if paths.min() < 0 or paths.max() >= n_paths or (labels >= 0).sum() != len(paths):
            raise ValueError(
                f"a codebook must give every label a path of its own between 0 and {n_paths - 1}"
            )
        self.register_buffer("paths", paths.to(small))
        self.register_buffer("labels", labels)

    def path_of(self, labels: Tensor, ignored: int = -1) -> Tensor:
        """Return the paths of labels."""
        return operators.look_up(labels, self.paths, self.n_labels, self.n_paths, ignored)

    def label_of(self, paths: Tensor) -> Tensor:
        """Return the labels of paths from −1 on, −1 for a free path."""
        return self.labels[paths].to(torch.int64)
