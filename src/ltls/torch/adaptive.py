"""AdaptiveTrellisSoftmax: an adaptive softmax whose last cluster is a trellis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..core.arrays import as_integer
from . import decoding
from .answers import Draw, Interval, Scores
from .base import HeadOutput, SoftmaxHead
from .head import TrellisSoftmax
from .ops import custom
from .ops.available import HAS_TRITON
from .ops.precision import log_softmax, widest
from .ops.tracing import has_values

if HAS_TRITON:
    from .ops import cluster_loss

_CUTOFFS = (2_000, 10_000, 20_000)


class AdaptiveTrellisSoftmax(SoftmaxHead):
    """An adaptive softmax whose last cluster, the rare classes, is a trellis.

    As in `nn.AdaptiveLogSoftmaxWithLoss`, a full softmax scores the most frequent classes and one
    entry per cluster of less frequent ones, and each cluster has its own softmax over fewer
    features. Here the last cluster, which has most of the classes, is a `TrellisSoftmax`, whose
    size is logarithmic in the number of classes.

    Parameters
    ----------
    in_features : int
        Size of each input vector.
    n_classes : int
        Number of classes, sorted by decreasing frequency.
    cutoffs : sequence of int, optional
        The first class of every cluster, increasing; classes before the first cutoff are in the
        head. The last cluster, the trellis, needs at least 2 classes. The defaults are 2,000,
        10,000 and 20,000, but at most 1/4, 2/4 and 3/4 of `n_classes`.
    div_value : float, default=4.0
        Cluster i, counted from 0, has ``in_features // div_value ** (i + 1)`` features; the
        trellis has `trellis_features`.
    head_bias : bool, default=False
        Whether the head has a bias.
    width : int, default=64
        States per slice of the trellis.
    trellis_features : int, optional
        The number of features of the last cluster, by default an eighth of `in_features`. They cost
        little: the trellis has few edges.
    reduction : {"mean", "sum", "none"}, default="mean"
        How per-row losses are reduced.
    ignore_index : int, default=-100
        Target value to ignore: it contributes neither to the loss nor to the gradient.
    weight : array of shape (n_classes,), optional
        Weight of every class in the loss, as in `nn.CrossEntropyLoss`.
    propensities : array of shape (n_classes,), optional
        The probability that a class is recorded where it is true; see `ltls.metrics.propensities`.
        The weight of a class is divided by it.
    device, dtype : optional
        Device and type of the parameters.
    **trellis
        Other parameters of the last cluster's `TrellisSoftmax`, such as `n_trellises`, `assignment`
        and `counts`; class 0 of the trellis is the one at the last cutoff. `label_smoothing`,
        `hierarchy` and loss="logistic" are not supported, nor is the argument `within`
        of the methods.

    Notes
    -----
    A training step does not synchronize with the GPU, so it can be captured in a CUDA graph.

    In eager mode on a GPU, fused kernels compute the loss: each cluster scores only its own rows,
    and the logits of dense clusters are not stored. Otherwise on a GPU, and when compiled, all rows
    pass through all clusters, and results of rows of other clusters are masked. The kernels support

    - one target per row, `reduction` "mean" or "sum", and no class weights;
    - one trellis of a width of at most 64, with fused=True and unit_length=False;
    - clusters of at most 512 features, 256 below compute capability 8; no float64;
    - submodules of the original types, without hooks.

    On a CPU, each cluster gets only its own rows.

    The modules `head` and `tail` are those of `nn.AdaptiveLogSoftmaxWithLoss`, with the trellis in
    place of the last linear layer. Initial weights are scaled so that the features of every cluster
    have about the norm of the input; one learning rate then suits all clusters.

    References
    ----------
    Grave et al., "Efficient softmax approximation for GPUs", ICML 2017.

    Examples
    --------
    >>> import torch
    >>> from ltls.torch import AdaptiveTrellisSoftmax
    >>> softmax = AdaptiveTrellisSoftmax(64, 100_000)
    >>> softmax.cutoffs
    [2000, 10000, 20000, 100000]
    >>> sum(parameter.numel() for parameter in softmax.parameters())
    346845
    >>> x = torch.randn(3, 64)
    >>> output, loss = softmax(x, torch.tensor([7, 3000, 99_999]))
    >>> output.shape, loss.shape
    (torch.Size([3]), torch.Size([]))
    >>> labels, log_probs = softmax.topk(x, 5)
    >>> bool((softmax.predict(x) == labels[:, 0]).all())
    True
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int] | None = None,
        div_value: float = 4.0,
        head_bias: bool = False,
        width: int = 64,
        *,
        trellis_features: int | None = None,
        reduction: str = "mean",
        ignore_index: int = -100,
        weight: Any = None,
        propensities: Any = None,
        device: Any = None,
        dtype: Any = None,
        **trellis: Any,
    ) -> None:
        super().__init__(
            in_features,
            n_classes,
            weight=weight,
            propensities=propensities,
            reduction=reduction,
            ignore_index=ignore_index,
            device=device,
        )
        _refuse_unsupported(trellis)
        if cutoffs is None:
            cutoffs = default_cutoffs(self.n_classes)
        if not isinstance(cutoffs, Iterable):
            raise TypeError(f"cutoffs must be a sequence of integers, got {cutoffs!r}")
        ends = [as_integer("cutoffs", cutoff, at_least=1) for cutoff in cutoffs]
        if not ends or sorted(set(ends)) != ends or ends[-1] > n_classes - 2:
            raise ValueError(
                f"cutoffs must be increasing, from 1 to n_classes - 2 = {n_classes - 2}, got "
                f"{list(cutoffs)}"
            )
        if not div_value > 0:
            raise ValueError(f"div_value must be greater than 0, got {div_value}")
        self.cutoffs = [*ends, self.n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = ends[0]
        options = {"device": device, "dtype": dtype}
        self.head = nn.Linear(in_features, self.head_size, head_bias, **options)
        self.tail = nn.ModuleList()
        for i, (first, end) in enumerate(pairwise(self.cutoffs)):
            size = max(1, int(in_features // div_value ** (i + 1)))
            if i == self.n_clusters - 1:
                wanted = max(1, in_features // 8) if trellis_features is None else trellis_features
                size = as_integer("trellis_features", wanted, at_least=1)
            narrow = nn.Linear(in_features, size, bias=False, **options)
            if i < self.n_clusters - 1:
                within: nn.Module = nn.Linear(size, end - first, bias=False, **options)
            else:
                within = TrellisSoftmax(size, end - first, width, **trellis, **options)
            self.tail.append(nn.Sequential(narrow, within))
        self._keep_lengths()

    @property
    def n_clusters(self) -> int:
        """The number of clusters after the head."""
        return len(self.cutoffs) - 1

    @property
    def head_size(self) -> int:
        """The number of entries of the head: its classes, and one for each cluster."""
        return self.shortlist_size + self.n_clusters

    @property
    def trellis(self) -> TrellisSoftmax:
        """The softmax of the last cluster. To add classes, call `add_classes` of this layer."""
        last: TrellisSoftmax = self.tail[-1][1]
        return last

    def extra_repr(self) -> str:
        """Return the sizes."""
        return (
            f"in_features={self.in_features}, n_classes={self.n_classes}, "
            f"cutoffs={self.cutoffs[:-1]}, div_value={self.div_value}"
        )

    def reset_parameters(self) -> None:
        """Initialize the parameters anew, and restore buffers that were made on "meta".

        This also resets all submodules and scales their weights. If you reset the modules of a
        network one by one, reset the submodules first.
        """
        self.restore_fixed()
        for module in (self.head, *(layer for cluster in self.tail for layer in cluster)):
            module.reset_parameters()
        self._keep_lengths()

    @torch.no_grad()
    def _keep_lengths(self) -> None:
        """Scale new weights so that features of clusters are as long as the input vectors.

        Logits do not change. With the initial weights of `nn.Linear`, clusters with few features
        would have features of small norm, and under Adam their logits would change in smaller steps
        than those of the head.
        """
        for narrow, within in self.tail:
            outputs = [within]
            if isinstance(within, TrellisSoftmax):
                outputs = [] if within.gate is None else [within.gate]
                if not within.unit_length:  # else the trellis scales its features itself
                    outputs.append(within.edges)
            if not all(isinstance(layer, nn.Linear) for layer in (narrow, *outputs)):
                continue  # layers that the user replaced
            scale = math.sqrt(3 * narrow.in_features / narrow.out_features)
            narrow.weight.mul_(scale)
            for layer in outputs:
                layer.weight.div_(scale)

    @classmethod
    def from_adaptive(
        cls, module: nn.AdaptiveLogSoftmaxWithLoss, width: int = 64, **options: Any
    ) -> AdaptiveTrellisSoftmax:
        """Replace the adaptive softmax of a trained network.

        The head and all clusters but the last are copied. The last one becomes a trellis, by
        `TrellisSoftmax.from_linear`. Fine-tune the network afterwards.

        Parameters
        ----------
        module : nn.AdaptiveLogSoftmaxWithLoss
        width : int, default=64
            States per slice of the trellis.
        **options
            `reduction`, `ignore_index` and `weight` of the layer, and other parameters of the
            trellis, as for `TrellisSoftmax.from_linear`.

        Examples
        --------
        >>> from torch import nn
        >>> from ltls.torch import AdaptiveTrellisSoftmax
        >>> adaptive = nn.AdaptiveLogSoftmaxWithLoss(16, 1000, [100])
        >>> AdaptiveTrellisSoftmax.from_adaptive(adaptive, width=4).cutoffs
        [100, 1000]
        """
        _refuse_unsupported(options)
        where = {"device": module.head.weight.device, "dtype": module.head.weight.dtype}
        given = {name: options.pop(name, None) for name in where}
        where |= {name: value for name, value in given.items() if value is not None}
        names = ("reduction", "ignore_index", "weight", "propensities")
        of_layer = {name: options.pop(name) for name in names if name in options}
        new = cls(
            module.in_features,
            module.n_classes,
            module.cutoffs[:-1],
            module.div_value,
            module.head.bias is not None,
            width,
            trellis_features=module.tail[-1][0].out_features,
            **of_layer,
            **where,
        )
        new.head.load_state_dict(module.head.state_dict())
        for own, other in zip(new.tail[:-1], module.tail[:-1], strict=True):
            own.load_state_dict(other.state_dict())
        narrow, linear = module.tail[-1]
        new.tail[-1][0].load_state_dict(narrow.state_dict())
        new.tail[-1][1] = TrellisSoftmax.from_linear(linear, width, **options).to(**where)
        return new

    def add_classes(self, paths: Any) -> Tensor:
        """Give free paths of the trellis to new classes; see `TrellisSoftmax.add_classes`.

        Parameters
        ----------
        paths : integer array of shape (n,) or (n, n_trellises)

        Returns
        -------
        labels : int64 tensor of shape (n,)
        """
        if self.weight is not None:
            raise ValueError("add_classes needs a layer without weight")
        labels = self.trellis.add_classes(paths) + self.cutoffs[-2]
        self.n_classes += len(labels)
        self.cutoffs[-1] = self.n_classes
        return labels

    def _cluster_log_probs(self, cluster: int, rows: Tensor) -> Tensor:
        """Return the log-probabilities of all classes of a dense cluster, given the cluster."""
        return log_softmax(self.tail[cluster](rows))

    def _fused_loss(self, rows: Tensor, labels: Tensor) -> HeadOutput | None:
        trellis, head, tail = self.trellis, self.head, self.tail
        plain = self.weight is None and trellis.gate is None and trellis.fused
        if not (plain and custom.fuses_loss(rows, trellis.layout)) or trellis.unit_length:
            return None
        edges = trellis.edges
        if not cluster_loss.supports(rows, head, tail, edges):
            return None
        features = tuple(cluster[0].out_features for cluster in tail)
        of = cluster_loss.Clusters(tuple(self.cutoffs), features, trellis.layout)
        how = of, trellis.codebooks[0], self.ignore_index, self.reduction
        loss, log_probs = cluster_loss.loss(rows, labels, *how, head, tail, edges)
        return HeadOutput(log_probs, loss)

    def _score(self, rows: Tensor, labels: Tensor, ignore_index: int) -> Scores:
        marked = torch.where((labels >= 0) & (labels < self.n_classes), labels, self.n_classes)
        marked = torch.where(labels == ignore_index, -1, marked)
        self._check_range(labels, marked, self.n_classes)
        shortlist = self.shortlist_size
        # The entry of the head: the class itself, or that of its cluster.
        entry = marked.clamp(0, shortlist - 1)
        for i, first in enumerate(self.cutoffs[:-1]):
            entry = torch.where(marked >= first, shortlist + i, entry)
        log_probs = log_softmax(self.head(rows)).gather(1, entry)
        for i, (first, end) in enumerate(pairwise(self.cutoffs)):
            here = (marked >= first) & (marked < end)
            within = self._within(i, rows, torch.where(here, marked - first, -1))
            log_probs = log_probs + within
        ignored = marked.clamp(max=0)
        log_probs = torch.where(ignored < 0, 0, log_probs)
        log_probs = torch.where(marked == self.n_classes, torch.nan, log_probs)
        return Scores(log_probs, ignored, None)

    def _within(self, cluster: int, rows: Tensor, labels: Tensor) -> Tensor:
        """Return log-probabilities of labels given their cluster, 0 for label −1."""
        if self._gathers(rows):
            some = (labels >= 0).any(1).nonzero()[:, 0]
            if len(some) < len(rows):
                found = self._all_within(cluster, rows[some], labels[some])
                return found.new_zeros(labels.shape).index_copy(0, some, found)
        return self._all_within(cluster, rows, labels)

    def _gathers(self, rows: Tensor) -> bool:
        """Return whether to gather the rows of a cluster, whose number the host must then know."""
        return has_values(rows)

    def _all_within(self, cluster: int, rows: Tensor, labels: Tensor) -> Tensor:
        if cluster == self.n_clusters - 1:
            narrow, trellis = self.tail[cluster]
            return trellis._score(narrow(rows), labels, -1).log_probs
        log_probs = self._cluster_log_probs(cluster, rows).gather(1, labels.clamp(min=0))
        return torch.where(labels < 0, 0, log_probs)

    def _topk(self, rows: Tensor, k: int, interval: Interval | None) -> tuple[Tensor, Tensor]:
        head = log_softmax(self.head(rows))
        shortlist = self.shortlist_size
        best = head[:, :shortlist].topk(min(k, shortlist))
        found = [(best.indices, best.values)]
        for i, (first, end) in enumerate(pairwise(self.cutoffs)):
            size = min(k, end - first)
            if i < self.n_clusters - 1:
                values, labels = self._cluster_log_probs(i, rows).topk(size)
            else:
                narrow, trellis = self.tail[i]
                labels, values = trellis._topk(narrow(rows), size, None)
            found.append((labels + first, values + head[:, shortlist + i, None]))
        labels, log_probs = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        return decoding.best(labels, log_probs, k)

    def _sample(self, rows: Tensor, draw: Draw) -> Tensor:
        n, temperature, generator, _ = draw
        shortlist = self.shortlist_size
        entries = self._tempered_entries(rows, temperature)
        drawn = decoding.categorical(entries.softmax(1), n, generator)
        for i, first in enumerate(self.cutoffs[:-1]):
            if i < self.n_clusters - 1:
                log_probs = widest(self._cluster_log_probs(i, rows)) / temperature
                labels = decoding.categorical(log_probs.softmax(1), n, generator)
            else:
                narrow, trellis = self.tail[i]
                labels = trellis._sample(narrow(rows), draw)
            # Drawn labels are marked by negative numbers, those of free paths included.
            final = torch.where(labels < 0, -1 - self.n_classes, -1 - (labels + first))
            drawn = torch.where(drawn == shortlist + i, final, drawn)
        drawn = torch.where(drawn < 0, -1 - drawn, drawn)
        return torch.where(drawn == self.n_classes, -1, drawn)

    def _tempered_entries(self, rows: Tensor, temperature: float) -> Tensor:
        """Return log Σ p(class) ** (1 / temperature) over the classes of each entry of the head."""
        head = log_softmax(self.head(rows))
        if temperature == 1:
            return head
        head = widest(head) / temperature
        sums = [head.new_zeros((len(rows), self.shortlist_size))]
        for i in range(self.n_clusters - 1):
            tempered = widest(self._cluster_log_probs(i, rows)) / temperature
            sums.append(torch.logsumexp(tempered, 1, keepdim=True))
        narrow, trellis = self.tail[-1]
        sums.append(trellis._log_normalizer(narrow(rows), temperature, None)[:, None])
        return head + torch.cat(sums, 1)

    def _log_normalizer(
        self, rows: Tensor, temperature: float, interval: Interval | None
    ) -> Tensor:
        return torch.logsumexp(self._tempered_entries(rows, temperature), 1)

    def _is_full(self) -> bool:
        return self.trellis._is_full()


def default_cutoffs(n_classes: int) -> list[int]:
    """Return cutoffs whose clusters need not grow with the number of classes."""
    quarter = max(1, as_integer("n_classes", n_classes, at_least=3) // 4)
    cutoffs = [min(cutoff, (i + 1) * quarter) for i, cutoff in enumerate(_CUTOFFS)]
    return [cutoff for cutoff in cutoffs if cutoff <= n_classes - 2]


def _refuse_unsupported(options: dict[str, Any]) -> None:
    """Raise an error for parameters of `TrellisSoftmax` that would apply to the trellis alone."""
    unsupported = {
        "label_smoothing": bool(options.get("label_smoothing")),
        "hierarchy": options.get("hierarchy") is not None,
        "loss": options.get("loss", "softmax") != "softmax",
    }
    for name, is_given in unsupported.items():
        if is_given:
            raise ValueError(f"AdaptiveTrellisSoftmax does not support {name}; TrellisSoftmax does")
