"""The loss of the output layers: for a target per row, several, or soft ones."""

from __future__ import annotations

from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from ..core.arrays import as_integer
from .answers import Answers
from .ops.tracing import has_values
from .targets import labels_of, padded, rows_of

_REDUCTIONS = ("mean", "sum", "none")


class HeadOutput(NamedTuple):
    """The output of a layer, with the fields of `nn.AdaptiveLogSoftmaxWithLoss`'s output.

    Attributes
    ----------
    output : Tensor
        The log-probability of the target of every row; for several targets, their mean.
    loss : Tensor
        The reduced negative log-likelihood.
    """

    output: Tensor
    loss: Tensor


class SoftmaxHead(Answers):
    """Base class of the output layers: `TrellisSoftmax` and `AdaptiveTrellisSoftmax`."""

    weight: Tensor | None
    loss_name: str = "softmax"

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        weight: Any = None,
        propensities: Any = None,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        device: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = as_integer("in_features", in_features, at_least=1)
        self.n_classes = as_integer("n_classes", n_classes, at_least=2, at_most=2**62)
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction must be one of {_REDUCTIONS}, got {reduction!r}")
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing must be between 0 and 1, got {label_smoothing}")
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        if weight is not None:
            weight = self._per_class("weight", weight)
        if propensities is not None:
            chances = self._per_class("propensities", propensities)
            if not chances.is_meta and not ((chances > 0) & (chances <= 1)).all():
                wrong = chances[~((chances > 0) & (chances <= 1))][0].item()
                raise ValueError(f"propensities must be above 0 and at most 1, got {wrong:g}")
            weight = 1 / chances if weight is None else weight / chances
        if weight is None:
            self.register_buffer("weight", None)
        else:
            if label_smoothing:
                raise ValueError("weight and label_smoothing cannot be combined")
            where = None if device is None else torch.device(device)
            self.register_fixed("weight", weight, where)

    def _per_class(self, name: str, values: Any) -> Tensor:
        """Return one float32 per class."""
        if not isinstance(values, Tensor) or not values.is_meta:
            values = torch.as_tensor(values, dtype=torch.float32, device="cpu")
        if values.shape != (self.n_classes,):
            raise ValueError(
                f"{name} must have shape ({self.n_classes},), one number per class, got "
                f"{tuple(values.shape)}"
            )
        return values.to(torch.float32)

    @overload
    def forward(
        self,
        input: Tensor,
        target: Tensor,
        target_probs: Tensor | None = None,
        offsets: Tensor | None = None,
    ) -> HeadOutput: ...

    @overload
    def forward(self, input: Tensor) -> Tensor: ...

    def forward(
        self,
        input: Tensor,  # noqa: A002
        target: Tensor | None = None,
        target_probs: Tensor | None = None,
        offsets: Tensor | None = None,
    ) -> HeadOutput | Tensor:
        """Return the log-probability of every target, and the loss.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        target : integer tensor of shape (…) or (…, L), optional
            Class indices or `ignore_index`. With L targets per row, the log-probability of the row
            is the mean over those that are not `ignore_index`, which serves as padding. If None,
            the result is `log_prob(input)`, in O(n_classes): the layer can then replace the
            `nn.Linear` that computes the logits of a network.
        target_probs : tensor of the shape of `target`, optional
            Soft targets: the probability of each of the L classes, as in knowledge distillation.
            The log-probability of the row is then the sum weighted by them.
        offsets : integer tensor of shape (rows,) or (rows + 1,), optional
            Sets of classes without padding, as in `nn.EmbeddingBag`: `target` is then flat, the
            classes of row i begin at ``offsets[i]``, and those of the last row end where `target`
            does. The classes of a row should be distinct. Offsets on a GPU make the host wait for
            the size of the largest set; a padded target does not.

        Returns
        -------
        HeadOutput, or `log_prob(input)` if `target` is None
            A named tuple of

            - output, a tensor of shape (…): the log-probabilities, 0 where the target is
              `ignore_index`;
            - loss, a tensor: the negative log-likelihood with label smoothing, reduced as
              `reduction` says; "mean" averages over the rows that are not ignored. Of shape (…) for
              "none". A row whose set of classes is empty is ignored, except with loss="logistic":
              there, it says that no class is true.

        Examples
        --------
        >>> import torch
        >>> from ltls.torch import TrellisSoftmax
        >>> head = TrellisSoftmax(8, 1000, width=4)
        >>> x, target = torch.randn(4, 8), torch.tensor([0, 1, -100, 999])
        >>> output, loss = head(x, target)
        >>> output[2].item()
        0.0
        >>> bool(torch.isclose(loss, -output.sum() / 3))
        True
        >>> teacher = torch.tensor([[0.7, 0.3]])
        >>> head(x[:1], torch.tensor([[3, 5]]), teacher).loss.shape
        torch.Size([])
        >>> sets = torch.tensor([3, 5, 999, 0])  # {3, 5}, {}, {999}, {0}
        >>> head(x, sets, offsets=torch.tensor([0, 2, 2, 3])).output.shape
        torch.Size([4])
        """
        if target is None:
            for name, given in (("target_probs", target_probs), ("offsets", offsets)):
                if given is not None:
                    raise ValueError(f"{name} needs target: the classes that they belong to")
            return self.log_prob(input)
        if offsets is not None:
            if target_probs is not None:
                raise ValueError("target_probs needs a padded target, without offsets")
            target = padded(target, offsets, input.shape[:-1], self.ignore_index)
        rows, several = rows_of(input, self.in_features), getattr(target, "ndim", 0) == input.dim()
        one_hot = several and offsets is None and target_probs is None
        if one_hot and target.shape[-1] == self.n_classes:
            raise ValueError(
                f"target must be class indices, got shape {tuple(target.shape)}, which is one-hot "
                f"for {self.n_classes} classes; target.argmax(-1) has the indices. For soft "
                "targets pass class indices, and their probabilities as target_probs"
            )
        labels = labels_of(target, input.shape[:-1])
        if self.loss_name != "softmax":
            if target_probs is not None:
                raise ValueError(f"target_probs needs loss='softmax', got {self.loss_name!r}")
            log_likelihoods, ignored = self._independent(rows, labels, several)
            loss = self._reduce(log_likelihoods[:, None], ignored[:, None], None)
            return self._shaped(input, log_likelihoods, loss)
        if target_probs is None and not several and self.reduction != "none":
            fused = self._fused_loss(rows, labels)
            if fused is not None:
                output, loss = fused
                batch = input.shape[:-1]
                return HeadOutput(output if len(batch) == 1 else output.reshape(batch), loss)
        log_probs, ignored, uniform = self._score(rows, labels, self.ignore_index)
        weights: Tensor | None = None
        if self.weight is not None:
            of_labels = self.weight[labels.clamp(0, self.n_classes - 1)]
            weights = of_labels.to(log_probs.dtype) * (ignored + 1)
        weighted = log_probs if weights is None else log_probs * weights
        if several or target_probs is not None:
            n_targets = (ignored + 1).sum(1, keepdim=True)
            if target_probs is None:
                share = 1 / n_targets.clamp(min=1)
            else:
                share = self._shares(target_probs, target, labels)
            log_probs = (log_probs * share).sum(1, keepdim=True)
            ignored = n_targets.clamp(max=1) - 1
            weighted = log_probs if weights is None else (weighted * share).sum(1, keepdim=True)
            if weights is not None:
                averaged = (weights * share).sum(1, keepdim=True)
                weights = averaged if target_probs is None else ignored + 1
        if uniform is not None:
            weighted = torch.lerp(weighted, uniform, self.label_smoothing)
        return self._shaped(input, log_probs, self._reduce(weighted, ignored, weights))

    def _shaped(self, input: Tensor, log_probs: Tensor, loss: Tensor) -> HeadOutput:  # noqa: A002
        batch = input.shape[:-1]
        return HeadOutput(
            log_probs.reshape(batch), loss.reshape(batch) if self.reduction == "none" else loss
        )

    def _fused_loss(self, rows: Tensor, labels: Tensor) -> HeadOutput | None:
        """Return log-probabilities and loss of one label per row, if a kernel computes both."""
        return None

    def _independent(self, rows: Tensor, labels: Tensor, several: bool) -> tuple[Tensor, Tensor]:
        """Return log-likelihoods of independent edges, (rows,), and −1 where a row is ignored."""
        raise NotImplementedError

    def _check_range(self, labels: Tensor, paths: Tensor, limit: int) -> None:
        """Raise an error if a label is out of range, which its path shows by reaching `limit`.

        On a CPU only: anywhere else the host would wait for the device.
        """
        if not has_values(labels) or not labels.numel():
            return
        if paths.max() == limit:
            raise ValueError(
                f"target must be a class index from 0 to {self.n_classes - 1} or ignore_index "
                f"({self.ignore_index}), got {labels[paths == limit][0].item()}"
            )

    def _shares(self, target_probs: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        """Return the weight of each target in its row; ignored targets score 0 anyway."""
        if target_probs.shape != target.shape or not target_probs.is_floating_point():
            raise ValueError(
                f"target_probs must be floating-point numbers in the shape of target, "
                f"{tuple(target.shape)}, got {target_probs.dtype} of {tuple(target_probs.shape)}"
            )
        return target_probs.reshape(labels.shape)

    def _reduce(self, log_probs: Tensor, ignored: Tensor, weights: Tensor | None) -> Tensor:
        if weights is None:
            # With one column per row, class 0 or ignored, nll_loss masks and reduces in one launch.
            return nn.functional.nll_loss(
                log_probs, ignored.squeeze(1), ignore_index=-1, reduction=self.reduction
            )
        losses = torch.where(ignored < 0, 0, -log_probs)
        if self.reduction == "none":
            return losses
        return losses.sum() / weights.sum() if self.reduction == "mean" else losses.sum()
