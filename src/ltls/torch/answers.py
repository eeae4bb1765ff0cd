"""Predictions of the output layers: probabilities, the most probable classes, and samples."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..core.arrays import as_integer
from . import decoding
from .buffers import FixedBuffers
from .targets import allowed_labels, labels_of, rows_of

_CELLS_PER_CHUNK = 1 << 24  # rows · classes that are scored at once
_NEGLIGIBLE = 1e-6  # of the probability of the best class

Interval: TypeAlias = "tuple[int, int]"


class Scores(NamedTuple):
    """The log-probabilities of targets, and other values that the loss is computed from."""

    log_probs: Tensor  # (rows, k); 0 where the target is ignored
    ignored: Tensor  # (rows, k): −1 where the target is ignored, else 0
    uniform: Tensor | None  # (rows, 1): the mean log-probability of all classes, to smooth with


class Draw(NamedTuple):
    """How to draw samples; see `Answers.sample`."""

    n: int
    temperature: float
    generator: torch.Generator | None
    interval: Interval | None


class Answers(FixedBuffers):
    """The methods of the output layers for prediction.

    A subclass computes log-probabilities, the most probable classes and samples of rows
    (`_score`, `_topk`, `_sample`); everything here is derived from them.
    """

    in_features: int
    n_classes: int
    ignore_index: int

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
        ignore_index, rows = self.ignore_index, rows_of(input, self.in_features)
        if target is None:
            classes = torch.arange(self.n_classes, device=input.device)
            target, ignore_index = classes.expand(*input.shape[:-1], -1), -1
        labels = labels_of(target, input.shape[:-1])
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
            Number of classes to return. It is reduced to the number of classes that there are:
            `n_classes`, those `within`, or the m of `among` (n_classes for a mask per row).
        among : tensor, optional
            Allow only these classes: class indices of shape (m,), a boolean mask of shape
            (n_classes,), or either per row, shape (…, m) padded with −1 or (…, n_classes).
            Costs O(m log n_classes) per row.
        within : optional
            Allow only the classes of a category of the `hierarchy`: a value of its first level, or
            a tuple with a value for each of the first levels. Costs O(log n_classes). With `among`
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
            rows = rows_of(input, self.in_features)
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
        """Return the most probable class of every row, shape (…); arguments are as in `topk`."""
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
            The log-probabilities are divided by it. For a mixture, values other than 1 require
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
            rows = rows_of(input, self.in_features)
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

    def _at_most(self, k: int, interval: Interval | None) -> int:
        return min(k, self.n_classes if interval is None else interval[1] - interval[0])

    def _allowed(
        self,
        among: Any,
        input: Tensor,  # noqa: A002
        interval: Interval | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the allowed labels, sorted, and which of them count, both (rows or 1, m)."""
        labels, counts = allowed_labels(among, input.shape[:-1], self.n_classes, input.device)
        if interval is not None:
            counts = counts & self._inside(labels, interval)
        return labels, counts

    def _score_allowed(self, rows: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Return the log-probabilities of the allowed labels, −inf for those that do not count."""
        size = max(1, _CELLS_PER_CHUNK // max(1, len(rows)))
        parts = [
            self._score(rows, part.clamp(min=0).expand(len(rows), -1), -1).log_probs
            for part in labels.split(size, 1)
        ]
        return torch.where(counts, torch.cat(parts, 1), -torch.inf)

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
