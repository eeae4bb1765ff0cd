"""AdaptiveHead: an adaptive output layer for labels in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.arrays import Ints
from .adaptive import AdaptiveTrellisSoftmax, default_cutoffs
from .base import HeadOutput


class AdaptiveHead(nn.Module):
    """An `AdaptiveTrellisSoftmax` for labels in any order, with the methods that encoders need.

    Parameters
    ----------
    softmax : AdaptiveTrellisSoftmax
        Its classes are sorted by decreasing frequency.
    label_of : int64 array of shape (n_classes,)
        The label of every class.
    """

    def __init__(self, softmax: AdaptiveTrellisSoftmax, label_of: Ints) -> None:
        super().__init__()
        self.softmax = softmax
        self.in_features, self.n_classes = softmax.in_features, softmax.n_classes
        self.label_of: Tensor
        self.class_of: Tensor
        self.register_buffer("label_of", torch.from_numpy(label_of))
        self.register_buffer("class_of", torch.from_numpy(np.argsort(label_of)))

    @classmethod
    def by_frequency(cls, in_features: int, counts: Any, **options: Any) -> AdaptiveHead:
        """Return a new layer.

        Parameters
        ----------
        in_features : int
        counts : array of shape (n_classes,)
            Number of rows per label.
        **options
            Parameters of `AdaptiveTrellisSoftmax`; what there is one of per label is in the order
            of the labels.
        """
        counts = np.asarray(counts)
        label_of = np.argsort(-counts, kind="stable")
        if options.get("cutoffs") is None:
            options["cutoffs"] = default_cutoffs(len(counts))
        for name in ("weight", "propensities"):
            if options.get(name) is not None:
                options[name] = np.asarray(options[name])[label_of]
        if options.get("label_features") is not None:
            rare = label_of[options["cutoffs"][-1] :]
            options["label_features"] = np.asarray(options["label_features"])[rare]
            options["counts"] = counts[rare]
        return cls(AdaptiveTrellisSoftmax(in_features, len(counts), **options), label_of)

    def forward(self, input: Tensor, target: Tensor) -> HeadOutput:  # noqa: A002
        """Return the log-probability of the labels of every row, and the loss."""
        found: HeadOutput = self.softmax(input, self._classes(target))
        return found

    def topk(self, input: Tensor, k: int) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Return the k best labels of every row and their log-probabilities."""
        classes, log_probs = self.softmax.topk(input, k)
        return self.label_of[classes], log_probs

    def log_prob(self, input: Tensor, labels: Tensor) -> Tensor:  # noqa: A002
        """Return the log-probabilities of labels."""
        return self.softmax.log_prob(input, self._classes(labels))

    def _classes(self, labels: Tensor) -> Tensor:
        """Return the classes of labels; negative ones, which are ignored, stay."""
        return torch.where(labels < 0, labels, self.class_of[labels.clamp(min=0)])
