"""Trellises: every label is a path, and its score is the sum of its edge scores.

The scores of several trellises over the same features, each with its own codebook, add up. Labels
may share paths: then trellises distinguish clusters of labels (see `ltls.parts.views`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ..core import _engine
from ..core.arrays import Floats, Ints, Tensors, smallest, threads
from ..core.caching import cached_property
from ..core.declarations import Array, Described
from ..core.settings import (
    AUTO,
    FLAG,
    Instance,
    Integer,
    Number,
    OneOf,
    Settings,
    setting,
    settings,
)
from ..features.rows import Rows
from ..structure.codebook import BucketCodebook, Codebook, RandomCodebook, TableCodebook
from ..structure.losses import LOSSES, Loss
from ..structure.policies import POLICIES
from ..structure.trellis import Trellis
from .base import Edge, PartExplanation, Sizes, register_part
from .edge_weights import DTYPES, AnyWeights, padded, weights_from_state, weights_state

_MIN_PATHS = 12  # per trellis, if there are several; and at least two more than labels to return
_SCAN = 64  # paths that are scored in the time in which list Viterbi finds one
_MAX_PATHS = 4096  # the widest search before all labels are scored exhaustively
_MAX_CELLS = 1 << 22  # rows × labels scored at a time
_MAX_PREDICTORS = 8  # cached ones; each has memory for its search
_FEATURES_PER_BLOCK = 4096
# Weights to try with label weights, and with a label matrix; the default first.
_WEIGHTS, _WEAK_WEIGHTS = (0.5, 0.25, 1.0, 2.0, 4.0), (0.1, 0.01, 0.3, 1.0)
# A table codebook takes memory for every path, labelled or not.
_PATHS_PER_LABEL, _FEW_PATHS = 16, 1 << 16

_CODEBOOKS = Instance("a codebook or a list of codebooks", TableCodebook, RandomCodebook, list)

_SHAPE = ("n_columns", "stride")
# What training continues from: the tensors of a `SquaresSketch`, and of `TrainableWeights`.
_TRAINING = {
    "optimizer": {
        "features": Array("u1", ("n_columns",)),
        "edges": Array("f4", ("stride",), low=0),
    },
    "resume": {
        "weights": Array("f4", _SHAPE),
        "squares": Array("f4", _SHAPE, low=0, group="squares"),
        "sums": Array("f8", _SHAPE, group="sums"),
    },
}


@settings
class Trellises(Settings):
    """How trellises are built and trained.

    Examples
    --------
    >>> from ltls import LTLSClassifier
    >>> from ltls.settings import Trellises
    >>> LTLSClassifier(trellises=Trellises(width=16)).set_params(trellises__epochs=3).trellises
    Trellises(epochs=3, width=16)
    """

    width: int | str = setting(
        Integer(2),
        AUTO,
        default=AUTO,
        help="States per slice; the paper uses 2. A wider trellis is more accurate, but larger and "
        "slower.",
    )
    n_trellises: int | str = setting(
        Integer(1, 1 << 16),
        AUTO,
        default=AUTO,
        help="Number of trellises, each with its own codebook; per view, if there are views. "
        "Several narrow trellises are more accurate than a wide one of the same size.",
    )
    loss: str = setting(
        OneOf(LOSSES),
        AUTO,
        default=AUTO,
        help='"softmax" normalizes over all classes and has probabilities; best for one label per '
        'row. "separation" is the paper\'s ranking loss. "logistic" is an independent logistic '
        'loss per edge; best for several labels per row. "auto" is softmax for one label per row '
        "and logistic for several.",
    )
    assignment: str | Codebook | list[Codebook] = setting(
        OneOf(POLICIES),
        _CODEBOOKS,
        default="random",
        help='How labels are assigned to paths. "ranking" is the paper\'s: the best free path '
        'when the label is first seen. "random" stores no table. "similarity" lets labels with '
        'similar rows share edges. "frequency" gives frequent labels short paths. "learned" '
        'starts as "similarity", and between epochs labels move to paths that the model scores '
        "higher for their rows; it helps narrow trellises. A codebook applies to the labels in "
        "the order of `classes_`. Views assign clusters at random.",
    )
    ranking_multiplier: int = setting(
        Integer(1, 1 << 16),
        default=1,
        help='With assignment="ranking", a new label takes the best free path among the '
        "ranking_multiplier · ⌈log₂ C⌉ highest-scoring ones.",
    )
    epochs: int | str = setting(
        Integer(1), AUTO, default=AUTO, help="Number of passes over the training data."
    )
    learning_rate: float | str = setting(
        Number(high=1e38, above=0),
        AUTO,
        default=AUTO,
        help='Step size. "auto" is 0.7, or 0.07 with a label matrix.',
    )
    optimizer: str = setting(
        OneOf(("adagrad", "sgd")),
        default="adagrad",
        help="Optimizer; the paper uses plain SGD with a constant learning rate.",
    )
    average: bool | str = setting(
        FLAG,
        AUTO,
        default=AUTO,
        help='Predict with the average of the weights over all steps. "auto" does so for dense '
        "rows with one of at most 128 labels each.",
    )
    shuffle: bool = setting(FLAG, default=True, help="Shuffle the rows before every epoch.")
    batch_size: int = setting(
        Integer(1, 1 << 30),
        default=1,
        help="Mini-batch size. Above 1, threads can share the work of a single trellis; accuracy "
        "stays the same up to about 64.",
    )
    l1: float = setting(
        Number(0, 1e38),
        default=0.0,
        help="Soft threshold (the paper's λ) applied to the weights for scoring, from the "
        "second epoch on.",
    )
    n_iter_no_change: int = setting(
        Integer(1), default=1, help="Epochs without improvement before early stopping."
    )
    density: float | str = setting(
        Number(high=1, above=0),
        AUTO,
        default=AUTO,
        help="Fraction of the weights, the largest ones, that a fitted model keeps. Further "
        "training continues with all weights.",
    )
    dtype: str = setting(
        OneOf(DTYPES),
        default="int8",
        help="Type that trained weights are rounded to. Pruned weights are int8.",
    )

    def stored(self) -> dict[str, Any]:
        """Return the settings as a file stores them; codebooks are stored with the model."""
        given = super().stored()
        return given if isinstance(self.assignment, str) else {**given, "assignment": "random"}

    @classmethod
    def from_dict(cls, given: Any) -> Any:
        """Return settings from a file; their policy, for training only, may be unregistered."""
        policy = given.get("assignment") if isinstance(given, dict) else None
        if not isinstance(policy, str) or policy in POLICIES:
            return super().from_dict(given)
        made = super().from_dict({**given, "assignment": "random"})
        made.assignment = policy
        return made

    def loss_for(self, multilabel: bool) -> Loss:
        """Return the loss, for one label per row or several."""
        usual = "logistic" if multilabel else "softmax"
        return LOSSES[usual if self.loss == AUTO else self.loss]


# Settings that determine the shape and state of the weights: they cannot change in further
# training.
FIXED = ("width", "n_trellises", "optimizer", "average", "l1", "dtype")


@register_part
@dataclass(frozen=True, eq=False)
class TrellisPart:
    """One or several trellises, their codebooks and weights.

    Parameters
    ----------
    trellis : Trellis
        The graph; all trellises have the same.
    codebooks : list of Codebook
        One per trellis.
    loss : Loss
    weights : Weights or PrunedWeights
    n_labels : int
    """

    name: ClassVar[str] = "trellises"
    settings: ClassVar[type[Settings]] = Trellises

    trellis: Trellis
    codebooks: list[Codebook]
    loss: Loss
    weights: AnyWeights
    n_labels: int
    _predictors: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def shares_paths(self) -> bool:
        """Whether labels are in clusters that share a path."""
        return isinstance(self.codebooks[0], BucketCodebook)

    def trellis_parts(self) -> list[TrellisPart]:
        """Return the trellises of a model, one part per view."""
        return [self]

    def weights_to_try(self, plan: Any) -> tuple[float, ...]:
        """Return weights for the choice on held-out rows, the usual one first."""
        if not plan.reranks:
            return (1.0,)
        tried = _WEAK_WEIGHTS if plan.of_vectors else _WEIGHTS
        return tuple(each / len(self.codebooks) for each in tried)

    # Prediction

    def predictor(self, k: int, n_paths: int, **reranking: Any) -> _engine.Predictor:
        """Return the engine's predictor of the k best labels on the `n_paths` best paths.

        With label weights, these are the best of `n_candidates` by the score of the view; see
        `ltls.parts.views`. A row with fewer labels is padded with −1.
        """
        key = (k, n_paths, *reranking.items())
        found: _engine.Predictor | None = self._predictors.get(key)
        if found is None:
            found = _engine.Predictor(
                self.trellis.engine,
                [book.decoding_engine for book in self.codebooks],
                self.weights.engine,
                self.weights.intercept,
                self.weights.unit_length,
                self.loss.name,
                self.n_labels,
                min(n_paths, self.trellis.n_classes),
                k,
                **reranking,
            )
            if len(self._predictors) >= _MAX_PREDICTORS:
                self._predictors.clear()
            self._predictors[key] = found
        return found

    def topk(self, rows: Rows, k: int, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return the ids and scores of the k best labels of every row, exactly."""
        k = min(k, self.n_labels)
        n_paths = self._n_paths(k)
        ids, scores = self._search(rows, k, n_paths, n_jobs)
        while len(lacking := np.flatnonzero(ids[:, -1] < 0)):  # free paths have no label
            n_paths *= 4
            some = rows if len(lacking) == len(rows) else rows[lacking]
            if n_paths <= _MAX_PATHS:
                ids[lacking], scores[lacking] = self._search(some, k, n_paths, n_jobs)
                continue
            ids[lacking], scores[lacking] = self._best_of_all(some, k, n_jobs)
            break
        return ids, scores

    def _n_paths(self, k: int) -> int:
        """Return how many paths of each trellis to search: all of them if that costs no more."""
        n_paths, n_trellises = self.trellis.n_classes, len(self.codebooks)
        if n_trellises == 1:
            return min(k, n_paths)
        usual = max(k + 2, _MIN_PATHS)
        return n_paths if _SCAN * n_trellises * usual >= n_paths else usual

    def _search(self, rows: Rows, k: int, n_paths: int, n_jobs: int | None) -> tuple[Ints, Floats]:
        ids, scores = np.empty((len(rows), k), np.int64), np.empty((len(rows), k), np.float32)
        self.predictor(k, n_paths).predict(rows.engine, 0, ids, scores, threads(n_jobs))
        return ids, scores

    def _best_of_all(self, rows: Rows, k: int, n_jobs: int | None) -> tuple[Ints, Floats]:
        ids, scores = np.empty((len(rows), k), np.int64), np.empty((len(rows), k), np.float32)
        step = max(1, _MAX_CELLS // self.n_labels)
        for first in range(0, len(rows), step):
            some = slice(first, first + step)
            every = np.tile(np.arange(self.n_labels), (len(ids[some]), 1))
            found = self.score(rows[some], every, n_jobs)
            _engine.select(every, found, ids[some], scores[some])
        return ids, scores

    def candidates(self, rows: Rows, n: int, n_jobs: int | None) -> Ints:
        """Return the n best labels of every row."""
        return self.topk(rows, n, n_jobs)[0]

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the sums of the labels' path scores over all trellises.

        For softmax, log-partitions are subtracted; for logistic, they are sums of log σ(h).
        """
        scores = np.empty(ids.shape, np.float32)
        self.predictor(1, 1).score(rows.engine, 0, ids, scores, threads(n_jobs))
        return scores

    def edge_scores(self, rows: Rows, n_jobs: int | None = None) -> Floats:
        """Return h = xW of every row, padded as W is."""
        return self.weights.edge_scores(rows.engine, 0, len(rows), n_jobs)

    def path_log_proba(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the log of the trellises' mean probability of the labels' paths, O(log C) each."""
        h = self.edge_scores(rows, n_jobs)
        parts = []
        for block, book in zip(self.blocks(h), self.codebooks, strict=True):
            scores = self.trellis.score(block, book.path_of(ids), n_jobs)
            parts.append(scores - self.trellis.log_partition(block, n_jobs)[:, None])
        mean: Floats = np.logaddexp.reduce(parts, axis=0) - np.float32(np.log(len(parts)))
        return mean

    def blocks(self, h: Floats) -> list[Floats]:
        """Return the edge scores of every trellis, without padding."""
        parts = h.reshape(len(h), len(self.codebooks), -1)[:, :, : self.trellis.n_edges]
        return [np.ascontiguousarray(parts[:, r]) for r in range(len(self.codebooks))]

    def decode_scores(self, h: Floats) -> Floats:
        """Return the edge scores of one trellis whose sums along paths rank the labels."""
        g = np.empty_like(h)
        _engine.decode_scores(self.trellis.engine, self.loss.name, h, g)
        return g

    # Explanation

    def explain(self, rows: Rows, label: int) -> PartExplanation:
        """Return what every feature of the only row adds to the score of a label."""
        features, values = rows.entries(0)
        h = np.zeros(self.weights.stride)
        if self.weights.intercept:
            h += self.weights.rows(np.array([self.weights.n_features]))[0]
        intercept, paths = h.copy(), [int(book.path_of([label])[0]) for book in self.codebooks]
        edges = [self.trellis.path_edges(path) for path in paths]
        block = self.weights.stride // len(paths)
        linear = np.empty((len(paths), len(features)))  # weights of the paths' edges, summed
        for first in range(0, len(features), _FEATURES_PER_BLOCK):
            some = slice(first, first + _FEATURES_PER_BLOCK)
            W = self.weights.rows(features[some])
            h += values[some] @ W
            for r, own in enumerate(edges):
                linear[r, some] = W[:, r * block + own].sum(axis=1, dtype=np.float64)
        each = [
            self._explain(r, paths[r], edges[r], features, values * linear[r], *parts)
            for r, parts in enumerate(
                zip(intercept.reshape(len(paths), -1), h.reshape(len(paths), -1), strict=True)
            )
        ]
        if len(each) == 1:
            return each[0]
        return PartExplanation.of_sum(self.name, each, "the sum over all trellises")

    def _explain(
        self,
        r: int,
        path: int,
        edges: Ints,
        features: Ints,
        contributions: Any,
        intercept: Any,
        h: Any,
    ) -> PartExplanation:
        """Explain one trellis, given its edge scores of the intercept and of the row."""
        linear, terms = float(h[edges].sum()), {}
        scores = h[None, : self.trellis.n_edges].astype(np.float32)
        if self.loss.normalized:
            terms["log_partition"] = float(self.trellis.log_partition(scores)[0])
            score, formula = linear - terms["log_partition"], "linear_score − log_partition"
        elif self.loss.independent_edges:
            score = float(self.trellis.score(self.decode_scores(scores), np.array([path]))[0])
            formula = "sum of log σ(edge score) over the edges of the path"
            terms["log_sigma"] = float(-np.logaddexp(0, -h[edges]).sum())
            if abs(score - terms["log_sigma"]) > 1e-4 * max(1, abs(score)):
                # A path that exits early is credited with the best edges of the slices that it
                # skips.
                terms["skipped_slices"] = score - terms["log_sigma"]
                formula += ", and over the best edges of the slices that the path skips"
        else:
            score, formula = linear, "linear_score"
        ends = self.trellis.edges[edges].tolist()
        pairs = zip(edges.tolist(), ends, strict=True)
        return PartExplanation(
            f"trellis {r + 1}" if len(self.codebooks) > 1 else "trellis",
            features,
            contributions,
            float(intercept[edges].sum()),
            score,
            formula,
            terms,
            path,
            [Edge(edge, tail, head, float(h[edge])) for edge, (tail, head) in pairs],
        )

    # Training

    @classmethod
    def fit(cls, given: Trellises, context: Any) -> TrellisPart:
        """Return the trellises that were trained before all other parts."""
        return context.trellis_parts()[0]  # type: ignore[no-any-return]

    def finish(self, context: Any) -> TrellisPart:
        """Return the trellises after training on the held-out rows, too, or on a further batch."""
        return context.trellis_parts()[0]  # type: ignore[no-any-return]

    learn = finish

    # Files

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        books, tensors = codebooks_state(self.codebooks)
        described, own = weights_state(self.weights)
        return {
            "n_classes": self.trellis.n_classes,
            "width": max(self.trellis.width, 2),
            "loss": self.loss.name,
            "codebooks": books,
            "weights": described,
        }, tensors | {f"weights.{name}": tensor for name, tensor in own.items()}

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> TrellisPart:
        """Restore trellises from their `state`."""
        trellis = Trellis(section.integer("n_classes", 1), section.integer("width", 2))
        books = codebooks_from_state(section, trellis.n_classes, sizes.n_labels)
        own = section.section("weights")
        weights = weights_from_state(own, trellis.n_edges, len(books), sizes)
        loss = LOSSES[section.choice("loss", LOSSES)]
        return cls(trellis, books, loss, weights, sizes.n_labels)

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        return {
            "trellises": len(self.codebooks),
            "width": self.trellis.width,
            "paths": self.trellis.n_classes,
            "edges": self.trellis.n_edges,
            "loss": self.loss.name,
            "codebook": type(self.codebooks[0]).__name__.removesuffix("Codebook").lower(),
            "dtype": self.weights.values.dtype.name,
            "density": round(self.weights.density, 4),
        }

    def pruned(self, density: float) -> TrellisPart:
        """Return the part with the largest weights only, a fraction `density` of those it has."""
        weights = self.weights
        dense = weights if not hasattr(weights, "to_dense") else weights.to_dense()
        return replace(self, weights=dense.pruned(density * weights.density))

    @cached_property
    def sizes_of_paths(self) -> Ints:
        """How many labels each path has."""
        book = self.codebooks[0]
        return np.bincount(book.path_of(np.arange(self.n_labels)), minlength=book.n_paths)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_predictors": {}}


def codebooks_state(codebooks: list[Codebook]) -> tuple[list[dict[str, Any]], Tensors]:
    """Return descriptions of codebooks, and the tables of those that have one."""
    described: list[dict[str, Any]] = []
    tensors: Tensors = {}
    for number, book in enumerate(codebooks):
        if isinstance(book, RandomCodebook):
            described.append(
                {"kind": "random", "seed": book.seed, "grown_from": list(book.grown_from)}
            )
            continue
        kind = "table" if isinstance(book, TableCodebook) else "buckets"
        described.append({"kind": kind})
        tensors[f"paths.{number}"] = smallest(book.paths)
        _check_n_paths(book.n_paths, book.n_labels)
    return described, tensors


def codebooks_from_state(section: Described, n_paths: int, n_labels: int) -> list[Codebook]:
    """Restore codebooks."""
    described = section.get(
        "codebooks",
        "a list of codebooks",
        lambda v: (
            isinstance(v, list)
            and len(v) > 0
            and all(isinstance(book, dict) for book in v)
            and {book.get("kind") for book in v} in ({"random"}, {"table"}, {"buckets"})
        ),
    )
    books: list[Codebook] = []
    for number, book in enumerate(described):
        if book["kind"] == "random":
            if n_paths < n_labels:
                raise ValueError(f"{n_paths} paths are too few for {n_labels} labels")
            books.append(RandomCodebook(n_paths, book["seed"], grown_from=book["grown_from"]))
            continue
        name, tables = f"paths.{number}", book["kind"] == "table"
        _check_n_paths(n_paths, n_labels)
        declared = Array("uint", ("n_labels",), high="n_paths - 1", distinct=tables)
        found = section.tensors({name: declared}, {"n_labels": n_labels, "n_paths": n_paths})
        kind = TableCodebook if tables else BucketCodebook
        books.append(kind(n_paths, found[name].astype(np.int64)))
    return books


def _check_n_paths(n_paths: int, n_labels: int) -> None:
    """Raise an error if a table codebook in a file would take too much memory."""
    limit = max(_FEW_PATHS, _PATHS_PER_LABEL * n_labels)
    if n_paths > limit:
        raise ValueError(
            f"a table codebook of {n_labels} labels may have at most {limit} paths in a file, "
            f"got {n_paths}; a random codebook takes no memory"
        )


def training_from_state(
    root: Described, trellises: list[TrellisPart], n_columns: int
) -> dict[str, tuple[dict[str, Any], Tensors]]:
    """Restore what training continues from, as far as a file has it; for `TrellisTraining`."""
    n = sum(len(part.codebooks) for part in trellises)
    sizes = {"n_columns": n_columns, "stride": n * padded(trellises[0].trellis.n_edges)}
    found = {}
    for name in filter(root.has, _TRAINING):
        section = root.section(name)
        described: dict[str, Any] = {}
        if name == "resume":
            settings = section.get("settings", "settings", lambda v: isinstance(v, dict))
            if AUTO in Trellises.from_dict(settings).get_params().values():
                raise ValueError("settings of training must not be 'auto'")
            described = {"step": section.integer("step", 1), "epochs": section.integer("epochs", 0)}
            described["settings"] = settings
        found[name] = described, section.tensors(_TRAINING[name], dict(sizes))
    return found
