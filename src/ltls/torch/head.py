"""TrellisSoftmax: an output layer for very many classes, of logarithmic size and time."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.arrays import as_integer
from . import decoding
from . import functional
from .assignment import assign
from .layout import make_layout
from .operators import real_of

_REDUCTIONS = ("mean", "sum", "none")


class HeadOutput(NamedTuple):
    """What `TrellisSoftmax` returns, as `nn.AdaptiveLogSoftmaxWithLoss` does.

    Examples
    --------
    >>> import torch
    >>> from ltls.torch import TrellisSoftmax
    >>> head = TrellisSoftmax(8, 1000, width=4)
    >>> x, target = torch.randn(5, 8), torch.tensor([0, 1, 5, 99, 999])
    >>> output, loss = head(x, target)
    >>> bool(torch.isclose(loss, -output.mean()))
    True
    """

    output: Tensor
    loss: Tensor


class TrellisSoftmax(nn.Module):
    """A softmax over very many classes, with O(log n_classes) parameters, memory and time.

    Every class is a path through a trellis. A linear layer scores the edges, a class' score is the
    sum over its path, and dynamic programming normalises over all classes exactly. It takes the
    place of `nn.Linear` and `nn.CrossEntropyLoss`, or of `nn.AdaptiveLogSoftmaxWithLoss`.

    Parameters
    ----------
    in_features : int
        The size of an input vector.
    n_classes : int
        The number of classes, from 2 to 2**62.
    width : int, default=32
        States per slice of a trellis: 2 makes the smallest head, a wider one is more accurate.
        A GPU has fused kernels for widths up to 64.
    n_trellises : int, default=1
        Several trellises, each with its own codebook, make a mixture: a gate, linear in the input,
        weighs their probabilities.
    assignment : {"frequency", "random", "similarity"} or a codebook, default="frequency"
        Which path each class gets. "frequency" gives frequent classes short paths. "random" needs
        no memory. "similarity" lets classes with similar `label_features` share edges; with
        `counts`, among classes of similar frequency. A codebook is an `ltls.TableCodebook`, an
        `ltls.RandomCodebook` or the path of every class; several trellises take a list.
    counts : array of shape (n_classes,), optional
        How frequent each class is. None means that classes are sorted, the most frequent first.
    label_features : array of shape (n_classes, n_features), optional
        A vector for every class, such as its row of another softmax layer or its embedding.
    bias : bool, default=True
        Whether the linear layer has a bias.
    reduction : {"mean", "sum", "none"}, default="mean"
        What the loss is of the rows' losses.
    ignore_index : int, default=-100
        A target that counts for nothing.
    label_smoothing : float, default=0.0
        The part of the target's probability that is spread over all classes, exactly. For one
        trellis without free paths.
    unit_length : bool, default=False
        Whether to scale inputs to length 1 first.
    fused : bool, default=True
        Whether to use the compiled engine and GPU kernels. Otherwise plain torch operations are
        used, which are slower and can be differentiated more than once.
    device, dtype
        Of the parameters.

    Notes
    -----
    The training step never waits for the GPU, so it can be captured in a CUDA graph. On a CPU a
    target out of range or an input that is not finite is an error; on a GPU the loss becomes NaN.
    Tables of codebooks are buffers: `DistributedDataParallel` need not send them at every step,
    `broadcast_buffers=False` spares that.

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
    >>> labels, log_probabilities = head.topk(torch.randn(4, 64), 3)
    >>> labels.shape
    torch.Size([4, 3])
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
        books = assign(assignment, n_classes, width, n_trellises, counts, label_features)
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
                    "label_smoothing needs one trellis without free paths, got "
                    f"{n_trellises} trellises of {self.layout.n_classes} paths for {n_classes} "
                    "classes"
                )
            zeros = torch.zeros(self.layout.n_edges, dtype=torch.float64, device="cpu")
            uniform = functional.marginals(zeros, self.layout).to(torch.float32)
            self.register_buffer("uniform", uniform.to(device), persistent=False)

    @property
    def width(self) -> int:
        """States per slice."""
        return self.layout.width

    def extra_repr(self) -> str:
        """Say how large it is."""
        return (
            f"in_features={self.in_features}, n_classes={self.n_classes}, width={self.width}, "
            f"n_trellises={self.n_trellises}, n_edges={self.layout.n_edges}"
        )

    def forward(self, input: Tensor, target: Tensor) -> HeadOutput:  # noqa: A002
        """Return the target's log-probability of every row, and the loss.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        target : integer tensor of shape (…); of shape (…, L) for several labels a row
            Labels, or `ignore_index`. Where rows have different numbers of labels, the rest is
            `ignore_index`; a row's log-probability is the mean over its labels.

        Returns
        -------
        output : tensor of shape (…)
            0 where the target is ignored.
        loss : tensor
            Its negative, with label smoothing if asked for; the mean over all rows that are not
            ignored, their sum, or of every row.

        Examples
        --------
        >>> import torch
        >>> from ltls.torch import TrellisSoftmax
        >>> head = TrellisSoftmax(8, 1000, width=4)
        >>> x, target = torch.randn(5, 8), torch.tensor([0, 1, 5, 99, 999])
        >>> output, loss = head(x, target)
        >>> loss.backward()
        >>> head.edges.weight.grad.shape == head.edges.weight.shape
        True
        """
        paths = self._paths(input, target)
        h, gate = self._rows(input)
        log_probs, totals = self._log_probs(h, gate, paths)
        first = paths if gate is None else paths[:: self.n_trellises]
        ignored = first.clamp(max=0)  # −1 where a target is, else 0
        if gate is not None:
            log_probs = torch.where(ignored < 0, 0, log_probs)
        if target.dim() == input.dim():
            n_labels = (ignored + 1).sum(1, keepdim=True)
            log_probs = log_probs.sum(1, keepdim=True) / n_labels.clamp(min=1)
            ignored = n_labels.clamp(max=1) - 1
        gain = log_probs
        if self.label_smoothing:
            uniform = (h.to(totals.dtype) * self.uniform).sum(1) - totals
            gain = torch.lerp(log_probs, uniform[:, None], self.label_smoothing)
        # Every row has one column: torch's own kernel ignores and reduces, in one launch.
        loss = nn.functional.nll_loss(
            gain, ignored.squeeze(1), ignore_index=-1, reduction=self.reduction
        )
        batch = input.shape[:-1]
        return HeadOutput(
            log_probs.reshape(batch), loss.reshape(batch) if self.reduction == "none" else loss
        )

    def edge_scores(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the scores of all edges, shape (…, n_trellises, n_edges).

        Examples
        --------
        >>> import torch
        >>> from ltls.torch import TrellisSoftmax
        >>> head = TrellisSoftmax(8, 1000, width=4)
        >>> x, target = torch.randn(5, 8), torch.tensor([0, 1, 5, 99, 999])
        >>> head.edge_scores(x).shape == (5, 1, head.layout.n_edges)
        True
        """
        return self._edges(input).unflatten(-1, (self.n_trellises, self.layout.n_edges))

    def log_prob(self, input: Tensor, target: Tensor | None = None) -> Tensor:  # noqa: A002
        """Return the log-probabilities of labels.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        target : integer tensor of shape (…) or (…, k), optional
            None is all labels, which costs O(n_classes).

        Returns
        -------
        log_prob : tensor of the shape of `target`
            0 where the target is `ignore_index`.

        Examples
        --------
        >>> import torch
        >>> from ltls.torch import TrellisSoftmax
        >>> head = TrellisSoftmax(8, 1000, width=4)
        >>> x, target = torch.randn(5, 8), torch.tensor([0, 1, 5, 99, 999])
        >>> bool(torch.isclose(head.log_prob(x).exp().sum(1), torch.ones(5), atol=1e-4).all())
        True
        """
        if target is None:
            every = torch.arange(self.n_classes, device=input.device)
            target = every.expand(*input.shape[:-1], -1)
        paths = self._paths(input, target)
        log_probs, _ = self._log_probs(*self._rows(input), paths)
        ignored = paths[:: self.n_trellises] < 0
        return torch.where(ignored, 0, log_probs).reshape(target.shape)

    def topk(self, input: Tensor, k: int) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Return the k most probable labels and their log-probabilities, best first.

        Both have shape (…, k), with k at most n_classes; they are exact for mixtures too. The
        log-probabilities have no gradient; those of `log_prob(input, labels)` have.

        Examples
        --------
        >>> import torch
        >>> from ltls.torch import TrellisSoftmax
        >>> head = TrellisSoftmax(8, 1000, width=4)
        >>> x, target = torch.randn(5, 8), torch.tensor([0, 1, 5, 99, 999])
        >>> labels, log_probabilities = head.topk(x, 3)
        >>> bool(torch.allclose(log_probabilities, head.log_prob(x, labels), atol=1e-5))
        True
        """
        k = min(as_integer("k", k, at_least=1), self.n_classes)
        with torch.no_grad():
            h, gate = self._rows(input)
            h = h.unflatten(0, (-1, self.n_trellises))
            labels, log_probs = decoding.topk(h, gate, self.layout, self.codebooks, k)
        shape = (*input.shape[:-1], labels.shape[-1])
        return labels.reshape(shape), log_probs.reshape(shape)

    def predict(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the most probable label of every row, shape (…).

        Examples
        --------
        >>> import torch
        >>> from ltls.torch import TrellisSoftmax
        >>> head = TrellisSoftmax(8, 1000, width=4)
        >>> x, target = torch.randn(5, 8), torch.tensor([0, 1, 5, 99, 999])
        >>> bool((head.predict(x) == head.log_prob(x).argmax(1)).all())
        True
        """
        return self.topk(input, 1)[0][..., 0]

    def sample(
        self,
        input: Tensor,  # noqa: A002
        n: int = 1,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw labels from their distribution, exactly.

        Parameters
        ----------
        input : tensor of shape (…, in_features)
        n : int, default=1
            How many for each row.
        temperature : float, default=1.0
            By which scores are divided; other than 1 for one trellis only.
        generator : torch.Generator, optional

        Returns
        -------
        labels : int64 tensor of shape (…, n)
            −1 for a free path of a codebook that has some: a label not known yet.

        Examples
        --------
        >>> import torch
        >>> from ltls.torch import TrellisSoftmax
        >>> head = TrellisSoftmax(8, 1000, width=4)
        >>> x, target = torch.randn(5, 8), torch.tensor([0, 1, 5, 99, 999])
        >>> head.sample(x, 3).shape
        torch.Size([5, 3])
        """
        if temperature != 1 and self.n_trellises > 1:
            raise ValueError(
                f"temperature must be 1 for a mixture of {self.n_trellises} trellises, "
                f"got {temperature}"
            )
        with torch.no_grad():
            h, gate = self._rows(input)
            paths = functional.sample(h, self.layout, n, temperature, generator)
            paths = paths.unflatten(0, (-1, self.n_trellises))
            each = [book.label_of(paths[:, r]) for r, book in enumerate(self.codebooks)]
            labels = each[0]
            if gate is not None:
                which = torch.multinomial(gate.exp(), n, True, generator=generator)
                labels = torch.stack(each, 1).gather(1, which[:, None])[:, 0]
        return labels.reshape(*input.shape[:-1], n)

    @classmethod
    def from_linear(cls, linear: nn.Linear, width: int = 32, **options: Any) -> TrellisSoftmax:
        """Make a head in place of the `nn.Linear` of a softmax in a trained network.

        The codebook comes from the layer's rows, where similar ones share edges, and the edges'
        weights are the least-squares fit of those rows. Training should go on from there.

        Parameters
        ----------
        linear : nn.Linear
            With a row for every class.
        width : int, default=32
        **options
            Other parameters of `TrellisSoftmax`. `assignment` is "similarity" of the rows if not
            given; `counts` also weigh the fit.

        Examples
        --------
        >>> from torch import nn
        >>> from ltls.torch import TrellisSoftmax
        >>> TrellisSoftmax.from_linear(nn.Linear(16, 1000), width=4).n_classes
        1000
        """
        from .fitting import fit_rows

        options = {"assignment": "similarity", "bias": linear.bias is not None, **options}
        if options["assignment"] == "similarity":
            options.setdefault("label_features", linear.weight)
        where = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        head = cls(linear.in_features, linear.out_features, width, **{**where, **options})
        fit_rows(head, linear, options.get("counts"))
        return head

    def _edges(self, input: Tensor) -> Tensor:  # noqa: A002
        if self.unit_length:
            input = nn.functional.normalize(input, dim=-1)  # noqa: A001
        return self.edges(input)

    def _rows(self, input: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: A002
        """Return edge scores (rows · trellises, edges), and several trellises' log-weights.

        What changes no shape is left out, here and below: even a view takes the host longer than a
        kernel takes the GPU, once forward and once back.
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
        return h, torch.log_softmax(gate.to(real_of(gate)), -1)

    def _paths(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Return the targets' paths (rows · trellises, k), −1 where they are ignored."""
        batch = input.shape[:-1]
        if target.is_floating_point() or target.dtype == torch.bool:
            raise TypeError(f"target must hold integers, got {target.dtype}")
        if target.shape[: len(batch)] != batch or target.dim() > len(batch) + 1:
            raise ValueError(
                f"target must have shape {tuple(batch)} or {(*batch, 'L')}, got "
                f"{tuple(target.shape)}"
            )
        k = target.shape[-1] if target.dim() > len(batch) else 1
        labels = target.to(torch.int64).reshape(batch.numel(), k)
        each = [book.path_of(labels, self.ignore_index) for book in self.codebooks]
        unknown = self.layout.n_classes
        checked = labels.device.type == "cpu" and not torch.compiler.is_compiling()
        if checked and labels.numel() and each[0].max() == unknown:
            raise ValueError(
                f"target must hold labels from 0 to {self.n_classes - 1} or ignore_index "
                f"({self.ignore_index}), got {labels[each[0] == unknown][0].item()}"
            )
        return each[0] if self.gate is None else torch.stack(each, 1).flatten(0, 1)

    def _log_probs(self, h: Tensor, gate: Tensor | None, paths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the paths' log-probabilities, (rows, k), and every trellis' log-partition.

        Paths of −1 have 0, or so close to it as the weights of a gate add up to 1.
        """
        log_probs, totals = functional.log_probs_and_totals(h, paths, self.layout, self.fused)
        if gate is not None:
            of_trellises = log_probs.reshape(*gate.shape, paths.shape[1])
            log_probs = torch.logsumexp(of_trellises + gate[:, :, None], 1)
        return log_probs, totals
