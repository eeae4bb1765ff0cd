"""Trellises during training: those over labels, or those of all views together.

All trellises have the same graph, and their edges are side by side in a row of W: reading a feature
serves all of them, and each thread takes one trellis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..core import _engine
from ..core.arrays import Floats, Ints, Tensors, threads
from ..features.rows import Rows
from ..structure.codebook import (
    BucketCodebook,
    Codebook,
    TableCodebook,
    copy_codebooks,
    make_codebook,
)
from ..structure.losses import Loss
from ..structure.policies import POLICIES, CodebookPolicy, LabelStats
from ..structure.trellis import Trellis
from .edge_weights import AnyWeights, Weights
from .trainable import SquaresSketch, TrainableWeights, check_memory
from .trellises import Trellises, TrellisPart
from .views import similar_clusters

_ROWS_PER_CALL = 4096


@dataclass
class TrellisTraining:
    """Trellises over the same labels, their weights and the optimizer's state.

    Parameters
    ----------
    settings : Trellises
        Without "auto" values.
    trellis : Trellis
    codebooks : list of Codebook
        View by view.
    loss : Loss
    weights : TrainableWeights
    n_labels : int
    n_views : int
    """

    settings: Trellises
    trellis: Trellis
    codebooks: list[Codebook]
    loss: Loss
    weights: TrainableWeights
    n_labels: int
    n_views: int = 1

    @classmethod
    def of_plan(
        cls,
        plan: Any,
        problem: Any,
        label_sums: Callable[[bool], csr_array],
        rng: Any,
        n_jobs: int | None,
        min_paths: int = 0,
    ) -> TrellisTraining:
        """Return trellises with weights of 0.

        `plan` and `problem` are those of `ltls.training.fit`. `label_sums` returns the sum of every
        label's rows, scaled to unit length or not; it is called if codebooks depend on the rows of
        labels. There are at least `min_paths` paths, to leave free ones for new labels.
        """
        from sklearn.preprocessing import normalize  # slow to import, and only needed here

        settings, columns, views = plan.trellises, problem.columns, plan.views
        policy = POLICIES[settings.assignment] if isinstance(settings.assignment, str) else None
        needs_vectors = views is not None or (policy is not None and policy.needs_sample)
        vectors = normalize(label_sums(views is not None)) if needs_vectors else None
        stats = LabelStats(len(problem.labels), problem.counts, vectors)
        width, n_trellises = int(settings.width), int(settings.n_trellises)
        n_features = columns.n_columns - columns.intercept
        n_views = 1 if views is None else int(views.n_views)
        books: list[Codebook]
        if views is not None:
            trellis = Trellis(max(-(-stats.n_labels // int(views.cluster_size)), 1), width)
            check_memory(settings, trellis, n_views * n_trellises, n_features)  # before the work
            n_paths, seeds = trellis.n_classes, [int(rng.randint(2**31)) for _ in range(n_views)]
            books = [  # on random paths of every trellis
                BucketCodebook(n_paths, rng.permutation(n_paths)[clusters])
                for clusters in similar_clusters(stats.vectors, n_paths, seeds, n_jobs)
                for _ in range(n_trellises)
            ]
        elif policy is not None:
            trellis = Trellis(max(stats.n_labels, min_paths), width)
            assignments = policy.initial(trellis, n_trellises, stats, rng)
            books = [make_codebook(each, trellis.n_classes) for each in assignments]
        else:
            assert not isinstance(settings.assignment, str)
            books = copy_codebooks(settings.assignment, n_trellises, stats.n_labels)
            trellis = Trellis(books[0].n_paths, width)
        loss = settings.loss_for(problem.size.multilabel)
        settings = settings.filled(loss=loss.name)
        shape = (len(books), n_features, columns.intercept, columns.unit_length)
        weights = TrainableWeights(settings, trellis, *shape)
        training = cls(settings, trellis, books, loss, weights, stats.n_labels, n_views)
        training.scale_steps(plan, problem.row_length)
        return training

    @classmethod
    def of_parts(
        cls,
        settings: Trellises,
        parts: list[TrellisPart],
        sketch: SquaresSketch | None,
        epochs: int,
    ) -> TrellisTraining:
        """Return trellises to continue from the weights of parts, one per view."""
        first = parts[0]
        books = [copy(book) for part in parts for book in part.codebooks]
        given = copy(settings)
        given.n_trellises = len(first.codebooks)
        own = first.weights
        shape = (len(books), own.n_features, own.intercept, own.unit_length)
        weights = TrainableWeights(given, first.trellis, *shape)
        values = [part.weights.to_float32() for part in parts]
        weights.load(weights.wrap(np.concatenate(values, axis=1)), settings.l1)
        weights.epochs = epochs
        if weights.squares is not None and sketch is not None:
            weights.squares[:] = sketch.expand()
        return cls(given, first.trellis, books, first.loss, weights, first.n_labels, len(parts))

    @property
    def policy(self) -> CodebookPolicy | None:
        """The codebook policy; None if codebooks are given or of clusters."""
        given = self.settings.assignment
        return POLICIES[given] if isinstance(given, str) and not self.shares_paths else None

    @property
    def shares_paths(self) -> bool:
        """Whether labels are in clusters that share a path."""
        return isinstance(self.codebooks[0], BucketCodebook)

    # Predicting

    def parts(self) -> list[TrellisPart]:
        """Return the trellises to predict with, pruned or rounded, for every view."""
        trained = self.as_trained()
        weights, density = trained.weights, float(self.settings.density)
        n, width = len(self.codebooks) // self.n_views, weights.stride // self.n_views
        found = []
        for view in range(self.n_views):
            values = weights.values[:, view * width : (view + 1) * width]
            own = Weights(values, None, weights.n_edges, n, weights.intercept, weights.unit_length)
            final: AnyWeights
            final = own.pruned(density) if density < 1 else own.astype(self.settings.dtype).copy()
            books = self.codebooks[view * n : (view + 1) * n]
            found.append(replace(trained, codebooks=list(map(copy, books)), weights=final))
        return found

    def as_trained(self) -> TrellisPart:
        """Return all trellises in their current state as one part; further training changes it."""
        weights = self.weights.for_prediction(self.settings.l1)
        return TrellisPart(self.trellis, list(self.codebooks), self.loss, weights, self.n_labels)

    def precision(self, examples: Any, n_jobs: int | None) -> float:
        """Return how often the best path is one of a row's labels."""
        if self.shares_paths:
            return self._cluster_precision(examples, n_jobs)
        part, found = self.as_trained(), np.empty((len(examples), 1), np.int64)
        for first in range(0, len(examples), _ROWS_PER_CALL):
            some = slice(first, first + _ROWS_PER_CALL)
            found[some] = part.topk(examples.rows[some], 1, n_jobs)[0]
        return float(examples.contains(found).mean())

    def _cluster_precision(self, examples: Any, n_jobs: int | None) -> float:
        part, found = self.as_trained(), []
        blocks = part.blocks(part.edge_scores(examples.rows, n_jobs))
        for h, book in zip(blocks, self.codebooks, strict=True):
            best = self.trellis.viterbi(part.decode_scores(h), n_jobs)[0]
            clusters = replace(examples, labels=book.path_of(examples.labels))
            found.append(clusters.contains(best[:, None]).mean())
        return float(np.mean(found))

    # Training

    def scale_steps(self, plan: Any, row_length: float) -> None:
        """Make step sizes relative to the row length, for dense rows of any length."""
        power = 2.0 ** round(math.log2(row_length))  # a power of 2, so that products are exact
        if plan.one_vs_all:
            self.weights.start_average(power)
        elif plan.of_vectors:
            self.weights.row_length = power

    def prepare_further(self, plan: Any) -> None:
        """Undo what the plan did to steps and weights for the epochs of `fit` alone."""
        if plan.one_vs_all:
            self.weights.keep_step_size()
        if plan.ends_average:
            self.weights.end_average()
            self.settings = replace(self.settings, average=False)

    def task(self, examples: Any) -> _engine.TrainTask:
        """Pass the examples and the paths of their labels to the engine, which validates them."""
        return _engine.TrainTask(
            self.trellis.engine,
            examples.rows.engine,
            examples.indptr,
            examples.labels,
            self._paths(examples.labels),
            examples.weights,
            [book.engine for book in self.tables],
            loss=self.loss.name,
            multilabel=examples.multilabel,
            ranking_multiplier=self.settings.ranking_multiplier,
        )

    def run(
        self, task: _engine.TrainTask, rows: Ints, count_hits: bool, n_jobs: int | None
    ) -> tuple[float, float, int]:
        """Train on some rows; return the summed loss and hits, and the number of rows."""
        settings, weights = self.settings, self.weights
        result = task.run(
            weights.values,
            weights.squares,
            weights.sums,
            rows,
            step=weights.step,
            learning_rate=float(settings.learning_rate) / weights.row_length,
            # As in the authors' code, the soft threshold applies from the second epoch on.
            threshold=settings.l1 if weights.epochs > 0 else 0.0,
            count_hits=count_hits,
            batch_size=settings.batch_size,
            n_jobs=threads(n_jobs),
        )
        weights.step += len(rows)
        return result

    def end_epoch(self) -> None:
        """Count an epoch, and assign free paths to labels without rows."""
        self.weights.epochs += 1
        for book in self.tables:
            known = min(book.n_labels, self.n_labels)
            missing = np.flatnonzero(book.path_of(np.arange(known)) < 0).tolist()
            for label in [*missing, *range(known, self.n_labels)]:
                book.assign(label, book.free_path())

    def check_finite(self, losses: list[float], rows: Ints | None = None) -> None:
        """Raise an error if losses or the weights of some rows show that training has diverged."""
        trained = self.weights.tensors()
        arrays = [trained[name] for name in ("weights", "squares") if name in trained]
        arrays = [np.array(losses), *(each if rows is None else each[rows] for each in arrays)]
        with np.errstate(invalid="ignore"):
            finite = all(np.isfinite(array.sum(dtype=np.float64)) for array in arrays)
        if not finite:
            raise ValueError(
                "the weights became infinite: scale the features, or use a smaller learning_rate "
                "or smaller sample weights"
            )

    # Codebooks

    @property
    def tables(self) -> list[TableCodebook]:
        """The codebooks that may change in training."""
        return [book for book in self.codebooks if isinstance(book, TableCodebook)]

    def _paths(self, labels: Ints) -> Ints:
        """Return paths, shape (n_trellises, n_labels); −1 for labels without a path yet."""
        paths = np.full((len(self.codebooks), len(labels)), -1, np.int64)
        for row, codebook in zip(paths, self.codebooks, strict=True):
            known = labels < codebook.n_labels
            row[known] = codebook.path_of(labels[known])
        return paths

    def update_codebooks(self, batches: Iterable[tuple[Any, Ints]], n_jobs: int | None) -> None:
        """Let the codebook policy move labels to better paths."""
        if self.policy is None:
            return
        every = np.arange(self.n_labels)
        moved = self.policy.between_epochs(
            self.trellis,
            [book.path_of(every) for book in self.codebooks],
            lambda: self._label_score_sums(batches, n_jobs),
            n_jobs,
        )
        if moved is not None:
            n_paths = self.trellis.n_classes
            self.codebooks = [TableCodebook(n_paths, paths) for paths in moved]

    def _label_score_sums(self, batches: Iterable[tuple[Any, Ints]], n_jobs: int | None) -> Floats:
        """Return edge scores summed over the rows of labels, (n_trellises, n_labels, n_edges).

        Rows are weighted; the weight is divided among the labels if the loss does so.
        """
        n_trellises, n_edges = len(self.codebooks), self.trellis.n_edges
        sums = np.zeros((self.n_labels, n_trellises * n_edges), np.float32)
        part = self.as_trained()
        for examples, rows in batches:
            per_row = np.diff(examples.indptr)
            weights = np.zeros(len(examples), np.float32)
            weights[rows] = examples.row_weights()[rows]
            if self.loss.averages_positives:
                weights /= np.maximum(per_row, 1)
            for first in range(0, len(examples), _ROWS_PER_CALL):
                some = slice(first, min(first + _ROWS_PER_CALL, len(examples)))
                h = part.weights.edge_scores(examples.rows.engine, first, some.stop - first, n_jobs)
                indptr = examples.indptr[some.start : some.stop + 1]
                labels, column = np.unique(
                    examples.labels[indptr[0] : indptr[-1]], return_inverse=True
                )
                values = np.repeat(weights[some], per_row[some])
                shape = (len(h), len(labels))
                indicator = csr_array((values, column.reshape(-1), indptr - indptr[0]), shape=shape)
                sums[labels] += indicator.T @ part.weights.without_padding(h)
        blocks = sums.reshape(len(sums), n_trellises, n_edges).transpose(1, 0, 2)
        return np.ascontiguousarray(blocks)

    # Training by workers

    def some(self, first: int, last: int) -> TrellisTraining:
        """Return some of the trellises, which share weights with these until `unshare`."""
        weights = self.weights.some(first, last)
        return replace(self, codebooks=self.codebooks[first:last], weights=weights, n_views=1)

    def replace_some(self, first: int, last: int, trained: TrellisTraining) -> None:
        """Continue from some trellises that a worker has trained."""
        self.codebooks[first:last] = trained.codebooks
        self.weights.replace_some(first, last, trained.weights)

    # Further training

    def branch(self) -> TrellisTraining:
        """Return trellises to train further, which share weights with these until `unshare`."""
        return replace(self, weights=self.weights.branch())

    def grow(self, n_labels: int, batch: Any, old: Rows | None, n_jobs: int | None) -> None:
        """Add the new labels of a batch.

        If every label has its own path, the trellis grows until there are enough: old labels keep
        their paths and the weights of their edges. Otherwise, a label joins the cluster that scores
        highest on its rows; a label without rows joins a small cluster. `old` are the rows of the
        batch without new features.
        """
        if n_labels == self.n_labels:
            return
        if self.shares_paths:
            paths = self._paths_of_new_labels(n_labels, batch, old, n_jobs)
            pairs = zip(self.codebooks, paths, strict=True)
            self.codebooks = [book.extend(new) for book, new in pairs]  # type: ignore[union-attr]
            self.n_labels = n_labels
            return
        books = [book.grow(book.n_paths) for book in self.codebooks]  # type: ignore[union-attr]
        while self.trellis.n_classes < n_labels:
            self.trellis, edge_map = self.trellis.grow()
            books = [book.grow(self.trellis.n_classes) for book in books]
            self.weights.grow(self.trellis, edge_map)
        self.codebooks, self.n_labels = list(books), n_labels

    def _paths_of_new_labels(
        self, n_labels: int, batch: Any, old: Rows | None, n_jobs: int | None
    ) -> Ints:
        rows = batch.rows if old is None else old
        new = batch.indicators(n_labels)[:, self.n_labels :]
        part = self.as_trained()
        sums = new.T @ part.weights.without_padding(part.edge_scores(rows, n_jobs))
        with_rows = np.asarray(new.sum(axis=0)).ravel() > 0
        n_edges = self.trellis.n_edges
        paths = np.empty((len(self.codebooks), n_labels - self.n_labels), np.int64)
        for r, book in enumerate(self.codebooks):
            block = np.ascontiguousarray(sums[:, r * n_edges : (r + 1) * n_edges], np.float32)
            paths[r] = self.trellis.viterbi(part.decode_scores(block))[0]
            sizes = np.bincount(book.path_of(np.arange(book.n_labels)), minlength=book.n_paths)
            for label in np.flatnonzero(~with_rows):
                paths[r, label] = sizes.argmin()
                sizes[paths[r, label]] += 1
        return paths

    # Files

    def sections(self) -> dict[str, tuple[dict[str, Any], Tensors]]:
        """Return what to continue from: a sketch of the optimizer, and the exact state."""
        weights = self.weights
        found: dict[str, tuple[dict[str, Any], Tensors]] = {}
        if weights.squares is not None:
            sketch = SquaresSketch.of(weights.squares)
            found["optimizer"] = {}, {"features": sketch.features, "edges": sketch.edges}
        facts = {"step": weights.step, "epochs": weights.epochs, "settings": self.settings.stored()}
        return {**found, "resume": (facts, weights.tensors())}

    @classmethod
    def resumed(
        cls, parts: list[TrellisPart], described: dict[str, Any], tensors: Tensors
    ) -> TrellisTraining:
        """Return the exact training state from a resumable file."""
        settings = Trellises.from_dict(described["settings"])
        settings.average = "sums" in tensors
        settings.optimizer = "adagrad" if "squares" in tensors else "sgd"
        training = cls.of_parts(settings, parts, None, described["epochs"])
        training.weights.set_tensors(tensors, described["step"], described["epochs"])
        return training

    # The best epoch

    def best(self) -> tuple[Weights, list[Codebook]]:
        """Return a copy of weights and codebooks, to restore later."""
        return self.weights.for_prediction(self.settings.l1).copy(), list(map(copy, self.codebooks))

    def restore(self, best: tuple[Weights, list[Codebook]]) -> None:
        """Restore weights and codebooks returned by `best`."""
        weights, codebooks = best
        self.weights.load(weights, self.settings.l1)
        self.codebooks = codebooks
