"""What the output layers have in common: targets, losses, decoding, and restricted answers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias, overload

import torch
from torch import Tensor, nn

from ..core.arrays import as_integer
from . import decoding
from .buffers import FixedBuffers
from .ops.tracing import has_values

_REDUCTIONS = ("mean", "sum", "none")
_CELLS_PER_CHUNK = 1 << 24  # rows · classes that are scored at once
_NEGLIGIBLE = 1e-6  # of the probability of the best class

Interval: TypeAlias = "tuple[int, int]"


class HeadOutput(NamedTuple):
    """The output of a layer, with the fields of `nn.AdaptiveLogSoftmaxWithLoss`'s output.

    Attributes
    ----------
    output : Tensor
        The log-probability of the target of every row, or the mean over its targets.
    loss : Tensor
        The reduced negative log-likelihood.
    """

    output: Tensor
    loss: Tensor


class Scores(NamedTuple):
    """The log-probabilities of targets, and what the loss needs besides."""

    log_probs: Tensor  # (rows, k); 0 where the target is ignored
    ignored: Tensor  # (rows, k): −1 where the target is ignored, else 0
    uniform: Tensor | None  # (rows, 1): the mean log-probability of all classes, to smooth with


class Draw(NamedTuple):
    """How to draw samples; see `SoftmaxHead.sample`."""

    n: int
    temperature: float
    generator: torch.Generator | None
    interval: Interval | None


class SoftmaxHead(FixedBuffers):
    """Base class of the output layers.

    A subclass computes log-probabilities, the most probable classes and samples of rows
    (`_score`, `_topk`, `_sample`); everything here is derived from them. Parameters are those of
    the subclasses.
    """

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
                raise ValueError("propensities must be greater than 0 and at most 1")
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
            the result is `log_prob(input)`: the layer then is a drop-in for the `nn.Linear` of a
            network's logits, in O(n_classes).
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
              "none". A row whose set of classes is empty is ignored, except with loss="logistic"
              of `TrellisSoftmax`, for which it is negative for all edges.

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
        rows, several = self._rows(input), getattr(target, "ndim", 0) == input.dim()
        one_hot = several and offsets is None and target_probs is None
        if one_hot and target.shape[-1] == self.n_classes:
            raise ValueError(
                f"target must be class indices, got shape {tuple(target.shape)}, which is one-hot "
                f"for {self.n_classes} classes; target.argmax(-1) has the indices. For soft "
                "targets pass class indices, and their probabilities as target_probs"
            )
        labels = self._labels(input, target)
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

    def log_prob(
        self,
        input: Tensor,  # noqa: A002
        target: Tensor | None = None,
        *,
        among: Any = None,
        within: Any = None,
    ) -> Tensor:
        """Return log-probabilities of classes.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        target : integer tensor of shape (…) or (…, k), optional
            Class indices. None means all classes, which takes O(n_classes) time and memory.
        among, within : optional
            The allowed classes, see `topk`: the probabilities of these sum to 1, and every other
            class has log-probability −inf.

        Returns
        -------
        log_prob : tensor of the shape of `target`, or (…, n_classes)
            0 where the target is `ignore_index`.
        """
        ignore_index, rows = self.ignore_index, self._rows(input)
        if target is None:
            classes = torch.arange(self.n_classes, device=input.device)
            target, ignore_index = classes.expand(*input.shape[:-1], -1), -1
        labels = self._labels(input, target)
        log_probs, ignored, _ = self._score(rows, labels, ignore_index)
        interval = self._interval(within)
        if among is not None:
            allowed, counts = self._allowed(among, input, interval)
            mass = torch.logsumexp(self._score_allowed(rows, allowed, counts), 1, keepdim=True)
            inside = decoding.contains(allowed, counts, labels)
        elif interval is not None:
            mass = self._log_mass(rows, interval)[:, None]
            inside = self._inside(labels, interval)
        if among is not None or interval is not None:
            restricted = torch.where(inside, log_probs - mass, -torch.inf)
            log_probs = torch.where(ignored < 0, 0, restricted)
        return log_probs.reshape(target.shape)

    def topk(
        self,
        input: Tensor,  # noqa: A002
        k: int,
        *,
        among: Any = None,
        within: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the k most probable classes and their log-probabilities, best first.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        k : int
            Number of classes. If larger, reduced to the number of classes, or of those `within`,
            or to the length m of `among`, which for a mask per row is n_classes.
        among : tensor, optional
            Allow only these classes: class indices of shape (m,), a boolean mask of shape
            (n_classes,), or either per row, shape (…, m) padded with −1 or (…, n_classes).
            Costs O(m log n_classes) per row.
        within : optional
            Allow only the classes of a node of the `hierarchy`: a value of its first level, or a
            tuple with a value for each of the first levels. Costs O(log n_classes). With `among`
            too, only classes that are in both are allowed, at the cost of `among`.

        Returns
        -------
        labels : int64 tensor of shape (…, k)
            −1 where a row has fewer than k allowed classes.
        log_probs : tensor of shape (…, k)
            Normalized over the allowed classes if `among` or `within` is given, else over all
            paths. They are detached from the graph; `log_prob(input, labels)` is differentiable.

        Notes
        -----
        The search is exact, for mixtures too.

        Examples
        --------
        >>> import torch
        >>> from ltls.torch import TrellisSoftmax
        >>> head, x = TrellisSoftmax(8, 1000, width=4), torch.randn(2, 8)
        >>> labels, log_probs = head.topk(x, 2, among=torch.tensor([7, 77, 777]))
        >>> bool(torch.isin(labels, torch.tensor([7, 77, 777])).all())
        True
        """
        k = as_integer("k", k, at_least=1)
        interval = self._interval(within)
        with torch.no_grad():
            rows = self._rows(input)
            if among is not None:
                allowed, counts = self._allowed(among, input, interval)
                scores = self._score_allowed(rows, allowed, counts)
                log_probs = torch.log_softmax(scores, 1)
                # Rows without an allowed class have no probabilities to normalize.
                log_probs = torch.where(scores == -torch.inf, scores, log_probs)
                labels, log_probs = decoding.best(allowed, log_probs, k)
            else:
                labels, log_probs = self._topk(rows, self._at_most(k, interval), interval)
        shape = (*input.shape[:-1], labels.shape[-1])
        return labels.reshape(shape), log_probs.reshape(shape)

    def predict(self, input: Tensor, *, among: Any = None, within: Any = None) -> Tensor:  # noqa: A002
        """Return the most probable class of every row, shape (…)."""
        return self.topk(input, 1, among=among, within=within)[0][..., 0]

    def sample(
        self,
        input: Tensor,  # noqa: A002
        n: int = 1,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        *,
        top_k: int | None = None,
        top_p: float | None = None,
        among: Any = None,
        within: Any = None,
    ) -> Tensor:
        """Draw exact samples from the distribution over paths, and return their classes.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        n : int, default=1
            Number of independent samples per row.
        temperature : float, default=1.0
            The log-probabilities are divided by it. A mixture supports others than 1 only with
            `top_k` or `among`.
        generator : torch.Generator, optional
            Pseudorandom number generator, on the device of the input.
        top_k : int, optional
            Draw only from the `top_k` most probable classes.
        top_p : float, optional
            Draw only from the smallest set of most probable classes whose probabilities sum to at
            least `top_p`: nucleus sampling. Applied after `temperature` and `top_k`. Without
            `top_k` and `among`, the probabilities of free paths are part of the sum. The set is
            found by a top-k search that is repeated with a larger k until it covers `top_p`.
        among, within : optional
            The allowed classes, see `topk`.

        Returns
        -------
        labels : int64 tensor of shape (…, n)
            −1 for a free path, if the codebook has any, and for a row without allowed classes.

        Examples
        --------
        >>> import torch
        >>> from ltls.torch import TrellisSoftmax
        >>> head, x = TrellisSoftmax(8, 1000, width=4), torch.randn(2, 8)
        >>> head.sample(x, 3, temperature=0.7, top_k=50, top_p=0.9).shape
        torch.Size([2, 3])
        """
        n = as_integer("n", n, at_least=1)
        if not 0 < temperature < math.inf:
            raise ValueError(
                f"temperature must be greater than 0 and less than infinity, got {temperature}"
            )
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p must be greater than 0 and at most 1, got {top_p}")
        if top_p == 1 and self._is_full():
            top_p = None  # all classes
        interval = self._interval(within)
        with torch.no_grad():
            rows = self._rows(input)
            if among is None and top_k is None and top_p is None:
                drawn = self._sample(rows, Draw(n, temperature, generator, interval))
            else:
                if among is not None:
                    labels, counts = self._allowed(among, input, interval)
                    log_probs = self._score_allowed(rows, labels, counts)
                    k = labels.shape[1] if top_k is None else as_integer("top_k", top_k, at_least=1)
                    labels, log_probs = decoding.best(labels, log_probs, k)
                    log_probs = decoding.tempered(log_probs, temperature)
                elif top_k is not None:
                    k = self._at_most(as_integer("top_k", top_k, at_least=1), interval)
                    labels, log_probs = self._topk(rows, k, interval)
                    log_probs = decoding.tempered(log_probs, temperature)
                else:
                    assert top_p is not None
                    labels, log_probs = self._nucleus(rows, temperature, top_p, interval)
                drawn = decoding.draw(labels, log_probs, n, top_p, generator)
        return drawn.reshape(*input.shape[:-1], n)

    # What a subclass computes. `rows` are inputs of shape (rows, in_features).

    def _score(self, rows: Tensor, labels: Tensor, ignore_index: int) -> Scores:
        """Return the log-probabilities of labels of shape (rows, k)."""
        raise NotImplementedError

    def _fused_loss(self, rows: Tensor, labels: Tensor) -> HeadOutput | None:
        """Return log-probabilities and loss of one label per row, if a kernel computes both."""
        return None

    def _independent(self, rows: Tensor, labels: Tensor, several: bool) -> tuple[Tensor, Tensor]:
        """Return log-likelihoods of independent edges, (rows,), and −1 where a row is ignored."""
        raise NotImplementedError

    def _topk(self, rows: Tensor, k: int, interval: Interval | None) -> tuple[Tensor, Tensor]:
        """Return the k most probable labels and their log-probabilities."""
        raise NotImplementedError

    def _sample(self, rows: Tensor, draw: Draw) -> Tensor:
        """Draw labels, shape (rows, n)."""
        raise NotImplementedError

    def _log_normalizer(
        self, rows: Tensor, temperature: float, interval: Interval | None
    ) -> Tensor:
        """Return log Σ p(class) ** (1 / temperature) over the allowed classes, shape (rows,)."""
        raise NotImplementedError

    def _is_full(self) -> bool:
        """Return whether every path has a class."""
        raise NotImplementedError

    def _interval(self, within: Any) -> Interval | None:
        """Return the paths of a node of the hierarchy."""
        if within is not None:
            raise ValueError(f"within needs a layer with a hierarchy, got {within!r}")
        return None

    def _log_mass(self, rows: Tensor, interval: Interval) -> Tensor:
        """Return the log-probability of all classes of an interval of paths, shape (rows,)."""
        raise NotImplementedError

    def _inside(self, labels: Tensor, interval: Interval) -> Tensor:
        """Return whether the paths of labels are in an interval."""
        raise NotImplementedError

    # Arguments

    def _rows(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the inputs as a matrix.

        Reshapes that change nothing are skipped, here and elsewhere: dispatching even a view,
        forward and backward, takes the host longer than a kernel takes the GPU.
        """
        if not isinstance(input, Tensor):
            raise TypeError(f"input must be a tensor, got {type(input).__name__}")
        if input.shape[-1:] != (self.in_features,):
            raise ValueError(
                f"input must have shape (…, {self.in_features}), got {tuple(input.shape)}"
            )
        return input if input.dim() == 2 else input.reshape(-1, self.in_features)

    def _labels(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Return the targets as int64, shape (rows, k)."""
        batch = input.shape[:-1]
        if not isinstance(target, Tensor):
            raise TypeError(f"target must be a tensor, got {type(target).__name__}")
        if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
            raise TypeError(
                f"target must have an integer dtype, got {target.dtype}; for soft targets pass "
                "class indices and target_probs"
            )
        if target.shape[: len(batch)] != batch or target.dim() > len(batch) + 1:
            several = ", ".join([*map(str, batch), "L"])
            raise ValueError(
                f"target must have shape {tuple(batch)} or ({several}), got {tuple(target.shape)}"
            )
        k = target.shape[-1] if target.dim() > len(batch) else 1
        return target.to(torch.int64).reshape(-1, k)

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

    def _at_most(self, k: int, interval: Interval | None) -> int:
        return min(k, self.n_classes if interval is None else interval[1] - interval[0])

    def _allowed(
        self,
        among: Any,
        input: Tensor,  # noqa: A002
        interval: Interval | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the allowed labels, sorted, and which of them count, both (rows or 1, m)."""
        labels, counts = self._among(among, input)
        if interval is not None:
            counts = counts & self._inside(labels, interval)
        return labels, counts

    def _among(self, among: Any, input: Tensor) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Return the labels of a set or mask, sorted, and which of them count."""
        given = torch.as_tensor(among, device=input.device)
        is_mask, m = given.dtype == torch.bool, given.shape[-1] if given.dim() else 0
        if given.dim() and not m:
            raise ValueError("among must allow at least one class, got none")
        shapes = [(m,), (*input.shape[:-1], m)]
        fits = m == self.n_classes if is_mask else m > 0 and not given.is_floating_point()
        if not fits or tuple(given.shape) not in shapes:
            raise ValueError(
                "among must be class indices of shape (m,) or (…, m), or a boolean mask of shape "
                f"({self.n_classes},) or (…, {self.n_classes}), got {given.dtype} of shape "
                f"{tuple(given.shape)}"
            )
        if is_mask and given.dim() == 1:
            given = given.nonzero()[:, 0]
            if not len(given):
                raise ValueError("among must allow at least one class, got a mask of none")
        elif is_mask:
            labels = torch.arange(self.n_classes, device=given.device)[None]
            return labels, given.reshape(-1, self.n_classes)
        labels = given.to(torch.int64).reshape(-1, given.shape[-1]).sort(1).values
        counts = labels >= 0
        counts[:, 1:] &= labels[:, 1:] != labels[:, :-1]
        if has_values(labels) and labels.numel():
            is_binary = not is_mask and labels.min() >= 0 and labels.max() <= 1
            if is_binary and 2 < m == self.n_classes:
                raise ValueError(
                    f"among must be class indices or a boolean mask, got a mask of {given.dtype}: "
                    "pass it as bool"
                )
            wrong = (labels < -1) | (labels >= self.n_classes)
            if wrong.any():
                raise ValueError(
                    f"among must have class indices from 0 to {self.n_classes - 1}, or -1 as "
                    f"padding, got {int(labels[wrong][0])}"
                )
        return labels, counts

    def _score_allowed(self, rows: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Return the log-probabilities of the allowed labels, −inf for those that do not count."""
        size = max(1, _CELLS_PER_CHUNK // max(1, len(rows)))
        parts = [
            self._score(rows, part.clamp(min=0).expand(len(rows), -1), -1).log_probs
            for part in labels.split(size, 1)
        ]
        return torch.where(counts, torch.cat(parts, 1), -torch.inf)

    # Losses and samples

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

    def _nucleus(
        self, rows: Tensor, temperature: float, top_p: float, interval: Interval | None
    ) -> tuple[Tensor, Tensor]:
        """Return enough of the most probable labels for `top_p`, and their log-probabilities."""
        log_normalizer = self._log_normalizer(rows, temperature, interval)[:, None]
        k, every = 64, self._at_most(self.n_classes, interval)
        while True:
            k = min(k, every)
            labels, found = self._topk(rows, k, interval)
            log_probs = found / temperature - log_normalizer
            covered = log_probs.exp().sum(1, keepdim=True) >= top_p
            if temperature != 1 and self._is_full():
                # Rounding may hide that the labels found are all that count.
                others = (every - k) * torch.exp((found[:, -1:] - found[:, :1]) / temperature)
                alone = (others < _NEGLIGIBLE) & ~covered
                log_probs = torch.where(alone, decoding.tempered(found, temperature), log_probs)
                covered = covered | alone
            if k == every or bool(covered.all()):
                return labels, log_probs
            k *= 4


def padded(labels: Tensor, offsets: Tensor, batch: torch.Size, ignore_index: int) -> Tensor:
    """Return sets of classes as a matrix with `ignore_index` as padding, shape (*batch, L).

    Parameters
    ----------
    labels, offsets
        The sets, as in `SoftmaxHead.forward`.
    batch : torch.Size
        The shape of the rows.
    ignore_index : int
    """
    n = batch.numel()
    if labels.dim() != 1 or offsets.dim() != 1 or len(offsets) not in (n, n + 1):
        raise ValueError(
            f"offsets must have shape ({n},) or ({n + 1},) for {n} rows, and target must be flat, "
            f"got {tuple(offsets.shape)} and {tuple(labels.shape)}"
        )
    ends = offsets.new_full((n + 1 - len(offsets),), len(labels))
    ptr = torch.cat([offsets, ends]).to(labels.device, torch.int64)
    sizes = ptr.diff()
    if has_values(ptr) and (ptr[0] != 0 or ptr[-1] != len(labels) or (sizes < 0).any()):
        raise ValueError(
            f"offsets must increase from 0 to the {len(labels)} targets, got {offsets.tolist()[:9]}"
        )
    column = torch.arange(max(int(sizes.max()), 1) if n else 1, device=labels.device)
    at = (ptr[:-1, None] + column).clamp(max=max(len(labels) - 1, 0))
    own = labels[at] if len(labels) else torch.full_like(at, ignore_index, dtype=labels.dtype)
    return torch.where(column < sizes[:, None], own, ignore_index).reshape(*batch, len(column))
