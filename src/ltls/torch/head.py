"""TrellisSoftmax: an output layer for very many classes, logarithmic in size and time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core.arrays import as_integer
from ..structure.policies import POLICIES
from . import decoding, functional
from .answers import Draw, Interval, Scores
from .base import HeadOutput, SoftmaxHead
from .codebooks import (
    KeyedPaths,
    LabelPaths,
    adopt_saved,
    make_codebooks,
    tabulated,
    with_paths,
)
from .fitting import fit_edges
from .hierarchy import nodes_of
from .layout import make_layout
from .ops import custom
from .ops.precision import accumulation_dtype, widest
from .ops.tracing import is_exported

LOSSES = ("softmax", "logistic")


class TrellisSoftmax(SoftmaxHead):
    """A softmax over very many classes, whose parameters grow with log n_classes.

    Every class is a path through a trellis. A linear layer scores the edges, the logit of a class
    is the sum of its path's edge scores, and dynamic programming normalizes exactly over all
    paths. The layer replaces `nn.Linear` followed by `nn.CrossEntropyLoss`, or
    `nn.AdaptiveLogSoftmaxWithLoss`.

    For a fixed `width`, parameters, activations and time are O(log n_classes). A codebook that is
    a table (from `counts`, `hierarchy`, "similarity" or a `TableCodebook`) adds n_classes integers.
    By default every path has a class, so that the probabilities of all classes sum to 1. If some
    paths of a codebook are free, that is without a class, the sum is below 1.

    Parameters
    ----------
    in_features : int
        Size of each input vector.
    n_classes : int
        Number of classes, from 2 to 2**62.
    width : int, default=32
        States per slice of a trellis, that is per layer of its graph. 2 gives the smallest layer;
        wider is more accurate. The fused GPU kernels support widths up to 64.
    n_trellises : int, default=1
        Number of trellises, each with its own codebook. Several form a mixture: their
        probabilities are weighted by a softmax gate, linear in the input.
    assignment : {"frequency", "random", "similarity"} or a codebook, default="frequency"
        How classes are assigned to paths. "frequency": frequent classes get short paths.
        "random": a permutation computed from a key, without a table. "similarity": classes with
        similar `label_features` share edges; with `counts`, frequent classes still get short paths,
        and the last slice is split by frequency. A codebook is an `ltls.TableCodebook`, an
        `ltls.RandomCodebook` or an integer array with the path of every class; pass a list of them
        for several trellises.
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
        Amount of smoothing, as in `nn.CrossEntropyLoss`. Requires a codebook in which every path
        has a class. With several trellises, the mean log-probability of all classes is replaced by
        a lower bound: the mean over trellises, weighted by the gate.
    unit_length : bool, default=False
        Whether to scale every input vector to Euclidean length 1.
    fused : bool, default=True
        Whether to use the compiled engine and the fused GPU kernels. False uses plain torch
        operations, which are slower but support double backward.
    weight : array of shape (n_classes,), optional
        Weight of every class in the loss, as in `nn.CrossEntropyLoss`. Cannot be combined with
        `label_smoothing`.
    hierarchy : array of shape (n_classes,) or (n_classes, n_levels), optional
        The category of every class, the topmost level first. Paths are then assigned in the order
        of the categories, by frequency within the last level, so that every category is an interval
        of paths. The argument `within` of `predict`, `topk`, `sample` and `log_prob` restricts the
        result to a category, in O(log n_classes). Requires the default assignment.
    loss : {"softmax", "logistic"}, default="softmax"
        How the layer is trained. "softmax" is cross-entropy; for several targets per row, the mean
        over them. "logistic" is binary cross-entropy per edge, for several targets per row: an edge
        is positive if the path of any target uses it. The probability of a class is the product of
        σ(h) over the edges of its path, with edge scores h, normalized over all classes. It
        requires n_trellises=1 and label_smoothing=0. A positive edge has the largest weight of the
        targets that use it, other edges have weight 1; reduction="mean" averages over rows.
    propensities : array of shape (n_classes,), optional
        The probability that a class is recorded where it is true, for data in which rare classes
        are often missing (Jain, Prabhu and Varma 2016); see `ltls.metrics.propensities`. The
        weight of a class is divided by it.
    device, dtype : optional
        Device and type of the parameters.

    Notes
    -----
    A training step does not synchronize with the GPU, so it can be captured in a CUDA graph. For
    the same reason, a target out of range raises an error only on a CPU, as does a non-finite
    input if `fused` is set; otherwise the loss becomes NaN. Codebook tables are buffers: pass
    `broadcast_buffers=False` to `DistributedDataParallel` to avoid broadcasting them in every
    forward pass.

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
        weight: Any = None,
        hierarchy: Any = None,
        loss: str = "softmax",
        propensities: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_features,
            n_classes,
            weight=weight,
            propensities=propensities,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            device=device,
        )
        n_classes, width = self.n_classes, as_integer("width", width, at_least=2)
        n_trellises = self.n_trellises = as_integer("n_trellises", n_trellises, at_least=1)
        if loss not in LOSSES:
            raise ValueError(f"loss must be one of {LOSSES}, got {loss!r}")
        if loss == "logistic" and (n_trellises > 1 or label_smoothing):
            raise ValueError(
                "loss='logistic' needs n_trellises=1 and label_smoothing=0, got "
                f"{n_trellises} and {label_smoothing}"
            )
        self.loss_name = loss
        self.unit_length = unit_length
        self.fused = fused
        self.nodes = None if hierarchy is None else nodes_of(hierarchy, n_classes)
        self.codebooks = make_codebooks(
            assignment, n_classes, width, n_trellises, counts, label_features, self.nodes, device
        )
        self.layout = make_layout(self.codebooks[0].n_paths, width)
        options = {"device": device, "dtype": dtype}
        self.edges = nn.Linear(in_features, n_trellises * self.layout.n_edges, bias, **options)
        self.gate = nn.Linear(in_features, n_trellises, **options) if n_trellises > 1 else None
        if label_smoothing and self.layout.n_classes > n_classes:
            raise ValueError(
                "label_smoothing requires a codebook without free paths, got "
                f"{self.layout.n_classes} paths and {n_classes} classes"
            )
        self._start_at_prior()

    def reset_parameters(self) -> None:
        """Initialize the parameters anew, and restore buffers that were made on "meta"."""
        self.restore_fixed()
        for module in (self.edges, self.gate, *self.codebooks):
            if module is not None:
                module.reset_parameters()
        self._start_at_prior()

    @torch.no_grad()
    def _start_at_prior(self) -> None:
        """Start the biases of loss="logistic" at the frequency of edges in uniformly random paths.

        Most edges are negative in most rows; starting at 0, biases would need thousands of steps to
        learn that.
        """
        bias = self.edges.bias
        if self.loss_name == "logistic" and bias is not None and not bias.is_meta:
            even = torch.zeros((1, self.layout.n_edges), device=bias.device)
            bias.copy_(torch.logit(functional.marginals(even, self.layout)[0], eps=1e-6))

    @property
    def width(self) -> int:
        """States per slice."""
        return self.layout.width

    def extra_repr(self) -> str:
        """Return the sizes."""
        return (
            f"in_features={self.in_features}, n_classes={self.n_classes}, width={self.width}, "
            f"n_trellises={self.n_trellises}, n_edges={self.layout.n_edges}, "
            f"loss={self.loss_name!r}"
        )

    def edge_scores(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the edge scores, shape (…, n_trellises, n_edges)."""
        return self._edges(input).unflatten(-1, (self.n_trellises, self.layout.n_edges))

    @classmethod
    def from_linear(cls, linear: nn.Linear, width: int = 32, **options: Any) -> TrellisSoftmax:
        """Replace the output layer of a trained network.

        Classes with similar weights share edges, and the edge weights are a least-squares fit of
        the weights of `linear`. Fine-tune the network afterwards.

        Parameters
        ----------
        linear : nn.Linear
            The output layer, with one row per class.
        width : int, default=32
            States per slice.
        **options
            Other parameters of `TrellisSoftmax`. `assignment` defaults to "similarity" with the
            rows of ``linear.weight`` as `label_features`; `counts` also weight the fit.

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
        if options.get("unit_length"):
            raise ValueError(
                "from_linear does not support unit_length: linear scores inputs of any length"
            )
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

    @torch.no_grad()
    def add_classes(self, paths: Any) -> Tensor:
        """Give free paths to new classes, in place and without training; return their indices.

        A new class is scored at once, by the edges that its path shares with others (cold start).
        `ltls.TableCodebook.assign_embeddings` derives the paths of new items from their content.

        Parameters
        ----------
        paths : integer array of shape (n,) or (n, n_trellises)
            A free path for every new class, in every trellis.

        Returns
        -------
        labels : int64 tensor of shape (n,)

        Raises
        ------
        ValueError
            If a path is not free, or the head has `weight` or a `hierarchy`.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import TableCodebook
        >>> from ltls.torch import TrellisSoftmax
        >>> items = np.random.RandomState(0).standard_normal((100, 8))
        >>> book = TableCodebook.from_embeddings(items, width=4)
        >>> head = TrellisSoftmax(16, 100, width=4, assignment=book)
        >>> new = book.assign_embeddings(items[:2] + 0.1)
        >>> head.add_classes(book.path_of(new)).tolist()
        [100, 101]
        """
        if self.weight is not None or self.nodes is not None:
            raise ValueError("add_classes needs a head without weight and without a hierarchy")
        device, first = self.edges.weight.device, self.n_classes
        self.codebooks = with_paths(self.codebooks, paths, device)
        self.n_classes = self.codebooks[0].n_labels
        return torch.arange(first, self.n_classes, device=device)

    def tabulate(self) -> TrellisSoftmax:
        """Replace keyed codebooks by tables, in place: O(n_classes) memory.

        ONNX has no operator for a keyed permutation, so a head with one needs this before it
        is exported.
        """
        for r, book in enumerate(self.codebooks):
            if isinstance(book, KeyedPaths):
                self.codebooks[r] = tabulated(book, self.edges.weight.device)
        return self

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any
    ) -> None:
        """Create codebooks of the kind that was saved, before their tables are loaded."""
        if f"{prefix}edges.weight" in state_dict:
            start, device = f"{prefix}codebooks.", self.edges.weight.device
            if self.nodes is not None:
                complete = "version" in local_metadata  # else a dict of parameters alone
                for r in range(self.n_trellises):
                    name = f"{start}{r}"
                    self.nodes.check_saved(name, state_dict.get(f"{name}.paths"), complete)
            adopt_saved(self.codebooks, self.layout, state_dict, start, local_metadata, device)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    def _edges(self, input: Tensor) -> Tensor:  # noqa: A002
        if self.unit_length:
            exact = input.to(accumulation_dtype(input))  # float16 has no eps of 1e-12
            input = nn.functional.normalize(exact, dim=-1).to(input.dtype)  # noqa: A001
        return self.edges(input)

    def _edges_and_gate(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return edge scores (rows · trellises, edges) and, for a mixture, the log-weights."""
        h = self._edges(rows)
        if self.loss_name == "logistic":
            h = functional.logistic_scores(h, self.layout)
        if self.gate is None:
            return h, None
        gate = self.gate(rows)
        h = h.reshape(-1, self.layout.n_edges)
        return h, torch.log_softmax(gate.to(accumulation_dtype(gate)), -1)

    def _fused_loss(self, rows: Tensor, labels: Tensor) -> HeadOutput | None:
        plain = self.gate is None and self.weight is None and not self.label_smoothing
        if not (plain and self.fused and custom.fuses_loss(rows, self.layout)):
            return None
        book: LabelPaths = self.codebooks[0]
        look_up = book.look_up(labels, self.ignore_index)
        h = self._edges(rows)
        loss, log_probs = custom.loss(h, *look_up, self.reduction, self.layout)
        assert loss is not None
        return HeadOutput(log_probs, loss)

    def _score(self, rows: Tensor, labels: Tensor, ignore_index: int) -> Scores:
        h, gate = self._edges_and_gate(rows)
        books: list[LabelPaths] = list(self.codebooks)
        every = [book.path_of(labels, ignore_index) for book in books]
        self._check_range(labels, every[0], self.layout.n_classes)
        paths = every[0] if gate is None else torch.stack(every, 1).flatten(0, 1)
        log_probs, log_z = functional.log_prob_and_partition(h, paths, self.layout, self.fused)
        ignored = every[0].clamp(max=0)
        if gate is not None:
            per_trellis = log_probs.reshape(*gate.shape, labels.shape[1])
            log_probs = torch.logsumexp(per_trellis + gate[:, :, None], 1)
            log_probs = torch.where(ignored < 0, 0, log_probs)  # 0 up to rounding before
        uniform = None
        if self.label_smoothing:
            uniform = functional.mean_score(h, self.layout) - log_z
            if gate is not None:
                uniform = (gate.exp() * uniform.reshape(gate.shape)).sum(1)
            uniform = uniform[:, None]
        return Scores(log_probs, ignored, uniform)

    def _independent(self, rows: Tensor, labels: Tensor, several: bool) -> tuple[Tensor, Tensor]:
        h, book = self._edges(rows), self.codebooks[0]
        paths = book.path_of(labels, self.ignore_index)
        self._check_range(labels, paths, self.layout.n_classes)
        weights = None
        if self.weight is not None:
            weights = self.weight[labels.clamp(0, self.n_classes - 1)]
        losses = functional.logistic_loss(h, paths, self.layout, weights, self.fused)
        if several:
            return -losses, torch.zeros_like(paths[:, 0])
        ignored = paths[:, 0].clamp(max=0)
        return torch.where(ignored < 0, 0, -losses), ignored

    def _topk(self, rows: Tensor, k: int, interval: Interval | None) -> tuple[Tensor, Tensor]:
        if is_exported() and self._searches():
            # ONNX has no loops of this kind: rank all classes.
            best = self.log_prob(rows).topk(k)
            return best.indices, best.values
        h, gate = self._edges_and_gate(rows)
        h = h.unflatten(0, (-1, self.n_trellises))
        found = decoding.topk(h, gate, self.layout, self.codebooks, k, interval)
        if interval is None:
            return found
        return found[0], found[1] - self._log_mass(rows, interval)[:, None]

    def _searches(self) -> bool:
        """Return whether the top k need a search with a stopping rule."""
        return self.n_trellises > 1 or not self._is_full()

    def _sample(self, rows: Tensor, draw: Draw) -> Tensor:
        self._check_temperature(draw.temperature)
        h, gate = self._edges_and_gate(rows)
        h = h.unflatten(0, (-1, self.n_trellises))
        if gate is not None and draw.interval is not None:
            gate = torch.log_softmax(gate + self._log_masses(h, draw.interval), 1)
        return decoding.sample(h, gate, self.layout, self.codebooks, *draw)

    def _check_temperature(self, temperature: float) -> None:
        if temperature != 1 and self.n_trellises > 1:
            raise ValueError(
                f"temperature must be 1 for a mixture of {self.n_trellises} trellises, "
                f"got {temperature}; other temperatures need top_k or among"
            )

    def _log_normalizer(
        self, rows: Tensor, temperature: float, interval: Interval | None
    ) -> Tensor:
        self._check_temperature(temperature)
        if temperature == 1:
            return rows.new_zeros(len(rows))
        h, _ = self._edges_and_gate(rows)
        exact = widest(h)
        total = functional.log_partition(exact, self.layout, interval)
        return (
            functional.log_partition(exact / temperature, self.layout, interval)
            - total / temperature
        )

    def _is_full(self) -> bool:
        return self.n_classes == self.layout.n_classes

    def _interval(self, within: Any) -> Interval | None:
        if within is None or self.nodes is None:
            return super()._interval(within)
        return self.nodes.interval(within)

    def _log_masses(self, h: Tensor, interval: Interval) -> Tensor:
        """Return the log-probability of an interval in each trellis, shape (rows, n_trellises)."""
        total = functional.log_partition(h, self.layout)
        return functional.log_partition(h, self.layout, interval) - total

    def _log_mass(self, rows: Tensor, interval: Interval) -> Tensor:
        h, gate = self._edges_and_gate(rows)
        masses = self._log_masses(h.unflatten(0, (-1, self.n_trellises)), interval)
        return masses[:, 0] if gate is None else torch.logsumexp(masses + gate, 1)

    def _inside(self, labels: Tensor, interval: Interval) -> Tensor:
        book: LabelPaths = self.codebooks[0]
        paths = book.path_of(labels)
        return (paths >= interval[0]) & (paths < interval[1])
