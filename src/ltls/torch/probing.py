"""Probes: the linear models of `LTLSClassifier` on dense vectors, trained by torch on any device.

The pipeline, its choices and the model are those of `LTLSClassifier.fit`. Only the steps of
training run elsewhere: `DeviceWorkers` are `ltls.training.trainer.Workers`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from ..core.arrays import AnyArray, Floats
from ..core.streams import prefetch
from ..estimators.classifier import LTLSClassifier
from ..parts.discriminant import Transform
from ..parts.edge_weights import padded
from ..parts.label_trainer import BatchTargets, LabelTrainer, mini_batches
from ..parts.trellis_training import TrellisTraining
from ..training.data import Source
from ..training.fit import fit
from ..training.progress import EpochStats, InterruptGuard
from ..training.trainer import Trainer
from . import functional
from .devices import as_device, enough_memory
from .layout import make_layout


def probe(
    vectors: Any,
    labels: Any,
    *,
    device: Any = None,
    sample_weight: Any = None,
    **parameters: Any,
) -> LTLSClassifier:
    """Train a linear classifier on vectors of an encoder, on a GPU if there is one.

    It trains the model of `LTLSClassifier.fit` with a label matrix: torch takes the same steps on
    the same samples. Only the small trellis beside the label matrix is trained on other
    mini-batches. Vectors may be memory-mapped and larger than memory: the next mini-batches are
    read while the device works.

    Parameters
    ----------
    vectors : array of shape (n_rows, n_features), or path of a .npy file
        A file is memory-mapped. Vectors that are neither float32 nor float64 are converted, which
        takes memory.
    labels : labels
        As `y` of `LTLSClassifier.fit`: one label per row, an indicator matrix, or label lists.
    device : torch.device or str, optional
        Where to train. By default "cuda" if there is a GPU, else "cpu". Training takes
        8 · n_labels · n_features bytes of its memory.
    sample_weight : array of shape (n_rows,), optional
        Weights of the rows.
    **parameters
        Parameters of `LTLSClassifier`, such as `random_state` and
        ``label_matrix=ltls.settings.LabelMatrix(epochs=4)``.

    Returns
    -------
    classifier : LTLSClassifier
        Fitted. It predicts on a CPU, without torch; `save` it as any other.

    Examples
    --------
    >>> import numpy as np
    >>> from ltls.torch import probe
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 200, 4000)
    >>> X = (rng.normal(size=(200, 16))[y] + 0.3 * rng.normal(size=(4000, 16))).astype("f4")
    >>> model = probe(X, y, device="cpu", random_state=0)
    >>> bool(model.score(X, y) > 0.9)
    True
    """
    where = as_device(device)
    X = _mapped(vectors) if isinstance(vectors, (str, os.PathLike)) else vectors
    estimator = LTLSClassifier(**{"label_matrix": True, **parameters})
    options = replace(estimator._train_options(), workers=DeviceWorkers(where))
    if options.given.label_matrix is False:
        raise ValueError("label_matrix must not be False: it is what probe trains")
    front_end, X, targets, weights = estimator._inputs(X, labels, sample_weight, None)
    rng = check_random_state(estimator.random_state)
    estimator.fitted_ = fit(options, X, targets, weights, front_end, rng)
    return estimator


def _mapped(path: str | os.PathLike[str]) -> AnyArray:
    """Return the content of a .npy file, memory-mapped."""
    wanted = f"vectors must be a .npy file of numbers, got {os.fspath(path)!r}"
    try:
        found = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        raise ValueError(f"{wanted}, which is damaged or another file: {error}") from error
    if found.dtype.kind not in "biuf":
        raise ValueError(f"{wanted}, which has values of type {found.dtype}")
    return found


def _enough_memory(device: torch.device, shape: tuple[int, ...]) -> AbstractContextManager[None]:
    size = " × ".join(f"{each:,}" for each in shape)
    less = "use vectors of fewer features, or fewer labels"
    instead = less if device.type == "cpu" else f"use device='cpu'; or {less}"
    return enough_memory(f"training {size} weights", device, instead)


class DeviceWorkers:
    """Training on a device by torch; see `ltls.training.trainer.Workers`.

    Parameters
    ----------
    device : torch.device
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def label_trainer(self, trainer: LabelTrainer) -> LabelTrainer:
        """Train the vectors of labels on the device."""
        return DeviceTrainer(trainer, self._device)

    def train_clusters(self, *_: Any) -> Any:
        """Refuse label weights: they are sparse, and trained on a CPU."""
        raise ValueError("views and label_weights are trained on a CPU: use LTLSClassifier.fit")

    def run_epoch(self, training: TrellisTraining, source: Source, count_hits: bool) -> EpochStats:
        """Train all trellises on all rows, by the engine if only it supports their settings."""
        settings, weights, loss = training.settings, training.weights, training.loss
        known = (loss.normalized or loss.independent_edges) and all(
            (book.path_of(np.arange(training.n_labels)) >= 0).all() for book in training.codebooks
        )
        if not known or settings.l1 or weights.squares is None or weights.sums is not None:
            trainer = Trainer(training, InterruptGuard(False), None, count_hits)
            return trainer.run_epoch(source.epoch())
        with _enough_memory(self._device, weights.values.shape):
            stats = EdgeTrainer(training, self._device).run(source)
        training.end_epoch()
        return stats


class DeviceTrainer(LabelTrainer):
    """A `LabelTrainer` whose steps are taken on a device, on the labels that it samples.

    Parameters
    ----------
    trainer : LabelTrainer
        Where to continue from.
    device : torch.device
    """

    def __init__(self, trainer: LabelTrainer, device: torch.device) -> None:
        self.__dict__ |= trainer.__dict__
        self._device = device

    def run(
        self,
        batches: Iterable[tuple[Floats, BatchTargets]],
        transform: Transform,
        rate: Callable[[int], float],
    ) -> None:
        """Take a step on every mini-batch."""
        put = self._put
        state = [self.W, self.b, self.squares, self.offset_squares]
        with _enough_memory(self._device, self.W.shape):
            mean, matrix = put(transform.mean), put(transform.matrix)
            on_device = list(map(put, state))
            prepared = ([put(each) for each in (X, *self.sample(y))] for X, y in batches)
            for X, *sampled in prefetch(prepared):
                _step(on_device, (X - mean) @ matrix, sampled, rate(self.n_steps))
                self.n_steps += 1
        self.W, self.b, self.squares, self.offset_squares = (x.cpu().numpy() for x in on_device)

    def _put(self, array: AnyArray) -> Tensor:
        return torch.from_numpy(array).to(self._device, copy=True)


def _step(state: list[Tensor], X: Tensor, sampled: list[Tensor], rate: float) -> None:
    """Take a step in place; see `LabelTrainer.step`."""
    W, b, squares, offset_squares = state
    ids, log_chance, row_of, column, share, scale = sampled
    own = W[ids]
    errors = torch.addmm(b[ids] - log_chance, X, own.T).softmax(1)
    errors.index_put_((row_of, column), -share, accumulate=True)
    errors *= scale[:, None]
    gradient, of_offsets = errors.T @ X, errors.sum(0)
    sums = squares[ids] + gradient.square().mean(1)
    offset_sums = offset_squares[ids] + of_offsets.square()
    squares[ids], offset_squares[ids] = sums, offset_sums
    W[ids] = own - (rate / sums.sqrt())[:, None] * gradient
    b[ids] -= rate * of_offsets / offset_sums.sqrt()


class EdgeTrainer:
    """Trains the edges of trellises on a device: AdaGrad as in the engine, in mini-batches.

    Parameters
    ----------
    training : TrellisTraining
        Trained in place.
    device : torch.device
    """

    def __init__(self, training: TrellisTraining, device: torch.device) -> None:
        self._training, self._device = training, device
        self._layout = make_layout(training.trellis.n_classes, training.trellis.width)

    def run(self, source: Source) -> EpochStats:
        """Train on all rows of a source."""
        weights, settings = self._training.weights, self._training.settings
        W, squares = (
            torch.from_numpy(x).to(self._device) for x in (weights.values, weights.squares)
        )
        rate = float(settings.learning_rate) / weights.row_length
        total, n_rows = torch.zeros((), device=self._device), 0
        prepared = (self._prepared(X, targets) for X, targets in mini_batches(source.epoch()))
        for X, paths, of_rows in prefetch(prepared):
            losses, steps = self._steps(X @ W, paths, of_rows)
            squares += X.square().T @ steps.square()
            W += rate * (X.T @ steps) / squares.sqrt()
            total += losses
            n_rows += len(X)
        trained = {"weights": W.cpu().numpy(), "squares": squares.cpu().numpy()}
        weights.set_tensors(trained, weights.step + n_rows, weights.epochs)
        return EpochStats(total.item() / len(self._training.codebooks), 0.0, n_rows)

    def _prepared(self, X: Floats, targets: BatchTargets) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows with their intercept, and the paths and weights of every row and trellis."""
        if self._training.weights.intercept:
            X = np.column_stack([X, np.ones(len(X), np.float32)])
        ptr, labels, of_rows = targets
        per_row, books = np.diff(ptr), self._training.codebooks
        inside = np.arange(max(per_row.max(initial=0), 1)) < per_row[:, None]
        paths = np.full((len(X), len(books), inside.shape[1]), -1, np.int64)
        for r, book in enumerate(books):
            own = paths[:, r]
            own[inside] = book.path_of(labels)
        found = X, paths.reshape(-1, inside.shape[1]), np.repeat(of_rows, len(books))
        a, b, c = (torch.from_numpy(each).to(self._device) for each in found)
        return a, b, c

    def _steps(self, scores: Tensor, paths: Tensor, of_rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed loss, and the steps of all edges."""
        n_edges, block = self._layout.n_edges, padded(self._layout.n_edges)
        h = scores.reshape(-1, block)[:, :n_edges].contiguous().requires_grad_()
        if self._training.loss.independent_edges:
            losses = functional.logistic_loss(h, paths, self._layout)
        else:
            log_probs = functional.log_prob(h, paths, self._layout)
            losses = -log_probs.sum(1) / (paths >= 0).sum(1).clamp(min=1)
        loss = (losses * of_rows).sum()
        (gradient,) = torch.autograd.grad(loss, h)
        steps = torch.nn.functional.pad(-gradient, (0, block - n_edges))
        return loss.detach(), steps.reshape(scores.shape)
