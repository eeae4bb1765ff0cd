"""TrellisSoftmax: an output layer for very many classes, logarithmic in size and time."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.arrays import as_integer
from ..structure.policies import POLICIES
from . import decoding, functional
from .codebooks import make_codebooks
from .fitting import fit_edges
from .layout import make_layout
from .ops.precision import accumulation_dtype

_REDUCTIONS = ("mean", "sum", "none")


class HeadOutput(NamedTuple):
    """The output of `TrellisSoftmax`, with the fields of `nn.AdaptiveLogSoftmaxWithLoss`'s output.

    Attributes
    ----------
    output : Tensor
        The log-probability of the target of every row.
    loss : Tensor
        The reduced negative log-likelihood.
    """

    output: Tensor
    loss: Tensor


class TrellisSoftmax(nn.Module):
    """A softmax over very many classes, with O(log n_classes) parameters, memory and time.

    Every class is a path through a trellis. A linear layer scores the edges, the logit of a class
    is the sum of its path's edge scores, and dynamic programming normalizes exactly over all
    classes. The layer replaces `nn.Linear` followed by `nn.CrossEntropyLoss`, or
    `nn.AdaptiveLogSoftmaxWithLoss`.

    Parameters
    ----------
    in_features : int
        Size of each input vector.
    n_classes : int
        Number of classes, from 2 to 2**62.
    width : int, default=32
        States per slice of a trellis. 2 gives the smallest layer; wider is more accurate. The
        fused GPU kernels support widths up to 64.
    n_trellises : int, default=1
        Number of trellises, each with its own codebook. Several form a mixture: their
        probabilities are weighted by a softmax gate, linear in the input.
    assignment : {"frequency", "random", "similarity"} or a codebook, default="frequency"
        How classes are assigned to paths. "frequency": frequent classes get short paths.
        "random": a keyed permutation, which stores no table. "similarity": classes with similar
        `label_features` share edges; with `counts`, frequent classes still get short paths. A
        codebook is an `ltls.TableCodebook`, an `ltls.RandomCodebook` or an integer array with the
        path of every class; pass a list of them for several trellises.
    counts : array of shape (n_classes,), optional
        Number of training examples per class. If None, classes are assumed to be sorted by
        decreasing frequency, as in `nn.AdaptiveLogSoftmaxWithLoss`.
    label_features : array of shape (n_classes, n_features), optional
        A vector per class, such as its embedding or its row of a trained softmax layer. Required
        by assignment="similarity".
    bias : bool, default=True
        Whether the linear layer of the edge scores has a bias.
    reduction : {"mean", "sum", "none"}, default="mean"
        How per-row losses are reduced.
    ignore_index : int, default=-100
        Target value to ignore: it contributes neither to the loss nor to the gradient.
    label_smoothing : float, default=0.0
        Amount of smoothing, as in `nn.CrossEntropyLoss`. Requires n_trellises=1 and a codebook
        without free paths.
    unit_length : bool, default=False
        Whether to scale every input vector to Euclidean length 1.
    fused : bool, default=True
        Whether to use the compiled engine and the fused GPU kernels. False uses plain torch
        operations, which are slower but support double backward.
    device, dtype : optional
        Device and type of the parameters.

    Notes
    -----
    A training step does not synchronize with the GPU, so it can be captured in a CUDA graph. For
    the same reason a target out of range or a non-finite input raises an error on a CPU only; on a
    GPU the loss becomes NaN. Codebook tables are buffers: pass `broadcast_buffers=False` to
    `DistributedDataParallel` to avoid broadcasting them in every forward pass.

    Examples
    --------
    >>> import torch
    >>> from ltls.torch import TrellisSoftmax
    >>> head = TrellisSoftmax(64, 1_000_000, width=8)
    >>> sum(parameter.numel() for parameter in head.parameters())
    23855
    >>> output, loss = head(torch.randn(4, 64), torch.tensor([0, 1, 5, 999_999]))
    >>> output.shape, loss.shape
    (torch.Size([4]), torch.Size([]))
    >>> loss.backward()

    >>> x = torch.randn(4, 64)
    >>> labels, log_probs = head.topk(x, 3)
    >>> bool(torch.allclose(log_probs, head.log_prob(x, labels), atol=1e-4))
    True
    >>> bool((head.predict(x) == labels[:, 0]).all())
    True
    >>> head.sample(x, 5).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        width: int = 32,
        n_trellises: int = 1,
        assignment: Any = "frequency",
        counts: Any = None,
        label_features: Any = None,
        bias: bool = True,
        *,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        unit_length: bool = False,
        fused: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        in_features = as_integer("in_features", in_features, at_least=1)
        n_classes = as_integer("n_classes", n_classes, at_least=2, at_most=2**62)
        width = as_integer("width", width, at_least=2)
        n_trellises = as_integer("n_trellises", n_trellises, at_least=1)
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction must be one of {_REDUCTIONS}, got {reduction!r}")
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing must be between 0 and 1, got {label_smoothing}")
        books = make_codebooks(assignment, n_classes, width, n_trellises, counts, label_features)
        self.in_features = in_features
        self.n_classes = n_classes
        self.n_trellises = n_trellises
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.unit_length = unit_length
        self.fused = fused
        self.codebooks = nn.ModuleList(books).to(device)
        self.layout = make_layout(books[0].n_paths, width)
        options = {"device": device, "dtype": dtype}
        self.edges = nn.Linear(in_features, n_trellises * self.layout.n_edges, bias, **options)
        self.gate = nn.Linear(in_features, n_trellises, **options) if n_trellises > 1 else None
        if label_smoothing:
            if n_trellises > 1 or self.layout.n_classes > n_classes:
                raise ValueError(
                    "label_smoothing requires one trellis without free paths, got n_trellises="
                    f"{n_trellises}, {self.layout.n_classes} paths and {n_classes} classes"
                )
            zeros = torch.zeros(self.layout.n_edges, dtype=torch.float64, device="cpu")
            uniform = functional.marginals(zeros, self.layout).to(torch.float32)
            self.register_buffer("uniform", uniform.to(device), persistent=False)

    @property
    def width(self) -> int:
        """States per slice."""
        return self.layout.width

    def extra_repr(self) -> str:
        """Return the sizes."""
        return (
            f"in_features={self.in_features}, n_classes={self.n_classes}, width={self.width}, "
            f"n_trellises={self.n_trellises}, n_edges={self.layout.n_edges}"
        )

    def forward(self, input: Tensor, target: Tensor) -> HeadOutput:  # noqa: A002
        """Return the log-probability of every target, and the loss.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        target : integer tensor of shape (…) or (…, L)
            Class indices or `ignore_index`. With L targets per row, the log-probability of the row
            is the mean over those that are not `ignore_index`, which serves as padding.

        Returns
        -------
        output : tensor of shape (…)
            0 where the target is `ignore_index`.
        loss : tensor
            The negative log-likelihood with label smoothing, reduced as `reduction` says; "mean"
            averages over the rows that are not ignored. Of shape (…) for "none".

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
        """
        paths = self._paths(input, target)
        h, gate = self._rows(input)
        log_probs, log_z = self._log_probs(h, gate, paths)
        first = paths if gate is None else paths[:: self.n_trellises]
        ignored = first.clamp(max=0)  # −1 where the target is ignored, else 0
        if gate is not None:
            log_probs = torch.where(ignored < 0, 0, log_probs)
        if target.dim() == input.dim():
            n_targets = (ignored + 1).sum(1, keepdim=True)
            log_probs = log_probs.sum(1, keepdim=True) / n_targets.clamp(min=1)
            ignored = n_targets.clamp(max=1) - 1
        smoothed = log_probs
        if self.label_smoothing:
            uniform = (h.to(log_z.dtype) * self.uniform).sum(1) - log_z
            smoothed = torch.lerp(log_probs, uniform[:, None], self.label_smoothing)
        # With one column per row, class 0 or ignored, nll_loss masks and reduces in one launch.
        loss = nn.functional.nll_loss(
            smoothed, ignored.squeeze(1), ignore_index=-1, reduction=self.reduction
        )
        batch = input.shape[:-1]
        return HeadOutput(
            log_probs.reshape(batch), loss.reshape(batch) if self.reduction == "none" else loss
        )

    def edge_scores(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the edge scores, shape (…, n_trellises, n_edges)."""
        return self._edges(input).unflatten(-1, (self.n_trellises, self.layout.n_edges))

    def log_prob(self, input: Tensor, target: Tensor | None = None) -> Tensor:  # noqa: A002
        """Return log-probabilities of classes.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        target : integer tensor of shape (…) or (…, k), optional
            Class indices. None means all classes, which takes O(n_classes) time and memory.

        Returns
        -------
        log_prob : tensor of the shape of `target`, or (…, n_classes)
            0 where the target is `ignore_index`.
        """
        if target is None:
            classes = torch.arange(self.n_classes, device=input.device)
            target = classes.expand(*input.shape[:-1], -1)
        paths = self._paths(input, target)
        log_probs, _ = self._log_probs(*self._rows(input), paths)
        ignored = paths[:: self.n_trellises] < 0
        return torch.where(ignored, 0, log_probs).reshape(target.shape)

    def topk(self, input: Tensor, k: int) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Return the k most probable classes and their log-probabilities, best first.

        Both have shape (…, k); k is reduced to n_classes if it is larger. The search is exact, for
        mixtures too. The log-probabilities are detached from the graph; `log_prob(input, labels)`
        is differentiable.
        """
        k = min(as_integer("k", k, at_least=1), self.n_classes)
        with torch.no_grad():
            h, gate = self._rows(input)
            h = h.unflatten(0, (-1, self.n_trellises))
            labels, log_probs = decoding.topk(h, gate, self.layout, self.codebooks, k)
        shape = (*input.shape[:-1], labels.shape[-1])
        return labels.reshape(shape), log_probs.reshape(shape)

    def predict(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the most probable class of every row, shape (…)."""
        return self.topk(input, 1)[0][..., 0]

    def sample(
        self,
        input: Tensor,  # noqa: A002
        n: int = 1,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw exact samples from the distribution over classes.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        n : int, default=1
            Number of independent samples per row.
        temperature : float, default=1.0
            The logits are divided by it. A mixture supports only 1.
        generator : torch.Generator, optional
            Pseudorandom number generator, on the device of the input.

        Returns
        -------
        labels : int64 tensor of shape (…, n)
            −1 for a free path, if the codebook has any.
        """
        if temperature != 1 and self.n_trellises > 1:
            raise ValueError(
                f"temperature must be 1 for a mixture of {self.n_trellises} trellises, "
                f"got {temperature}"
            )
        with torch.no_grad():
            h, gate = self._rows(input)
            h = h.unflatten(0, (-1, self.n_trellises))
            labels = decoding.sample(
                h, gate, self.layout, self.codebooks, n, temperature, generator
            )
        return labels.reshape(*input.shape[:-1], n)

    @classmethod
    def from_linear(cls, linear: nn.Linear, width: int = 32, **options: Any) -> TrellisSoftmax:
        """Replace the output layer of a trained network.

        Classes with similar rows share edges, and the edge weights are a least-squares fit of the
        rows. Fine-tune the network afterwards.

        Parameters
        ----------
        linear : nn.Linear
            The output layer, with one row per class.
        width : int, default=32
            States per slice.
        **options
            Other parameters of `TrellisSoftmax`. `assignment` defaults to "similarity" with the
            rows as `label_features`; `counts` also weight the fit.

        Returns
        -------
        head : TrellisSoftmax
            On the device and with the dtype of `linear`.

        Examples
        --------
        >>> from torch import nn
        >>> from ltls.torch import TrellisSoftmax
        >>> TrellisSoftmax.from_linear(nn.Linear(16, 1000), width=4).n_classes
        1000
        """
        options = {"assignment": "similarity", "bias": linear.bias is not None, **options}
        policy = options["assignment"]
        if isinstance(policy, str) and policy in POLICIES and POLICIES[policy].needs_sample:
            options.setdefault("label_features", linear.weight)
        where = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        head = cls(linear.in_features, linear.out_features, width, **{**where, **options})
        fitted = fit_edges(head.layout, head.codebooks, linear, options.get("counts"))
        with torch.no_grad():
            head.edges.weight.copy_(fitted[:, : linear.in_features])
            if head.edges.bias is not None:
                head.edges.bias.copy_(fitted[:, -1] if linear.bias is not None else 0)
        return head

    def _edges(self, input: Tensor) -> Tensor:  # noqa: A002
        if self.unit_length:
            input = nn.functional.normalize(input, dim=-1)  # noqa: A001
        return self.edges(input)

    def _rows(self, input: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: A002
        """Return edge scores (rows · trellises, edges) and, for a mixture, the log-weights.

        Reshapes that change nothing are skipped, here and below: dispatching even a view, forward
        and backward, takes the host longer than a kernel takes the GPU.
        """
        if input.shape[-1:] != (self.in_features,):
            raise ValueError(
                f"input must have shape (…, {self.in_features}), got {tuple(input.shape)}"
            )
        rows = input if input.dim() == 2 else input.reshape(-1, self.in_features)
        h = self._edges(rows)
        if self.gate is None:
            return h, None
        gate = self.gate(rows)
        h = h.reshape(-1, self.layout.n_edges)
        return h, torch.log_softmax(gate.to(accumulation_dtype(gate)), -1)

    def _paths(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Return the paths of the targets, (rows · trellises, k), −1 where they are ignored."""
        batch = input.shape[:-1]
        if target.is_floating_point() or target.dtype == torch.bool:
            raise TypeError(f"target must have an integer dtype, got {target.dtype}")
        if target.shape[: len(batch)] != batch or target.dim() > len(batch) + 1:
            raise ValueError(
                f"target must have shape {tuple(batch)} or {(*batch, 'L')}, got "
                f"{tuple(target.shape)}"
            )
        k = target.shape[-1] if target.dim() > len(batch) else 1
        labels = target.to(torch.int64).reshape(batch.numel(), k)
        paths = [book.path_of(labels, self.ignore_index) for book in self.codebooks]
        out_of_range = self.layout.n_classes
        checked = labels.device.type == "cpu" and not torch.compiler.is_compiling()
        if checked and labels.numel() and paths[0].max() == out_of_range:
            raise ValueError(
                f"target must be a class index from 0 to {self.n_classes - 1} or ignore_index "
                f"({self.ignore_index}), got {labels[paths[0] == out_of_range][0].item()}"
            )
        return paths[0] if self.gate is None else torch.stack(paths, 1).flatten(0, 1)

    def _log_probs(self, h: Tensor, gate: Tensor | None, paths: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities, (rows, k), and log-partitions, (rows · trellises,).

        Path −1 has log-probability 0, up to rounding in a mixture.
        """
        log_probs, log_z = functional.log_prob_and_partition(h, paths, self.layout, self.fused)
        if gate is not None:
            per_trellis = log_probs.reshape(*gate.shape, paths.shape[1])
            log_probs = torch.logsumexp(per_trellis + gate[:, :, None], 1)
        return log_probs, log_z
