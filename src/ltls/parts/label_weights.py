"""Label weights: sparse linear classifiers that distinguish every label from its siblings.

The siblings of a label are the other labels of its cluster or, in a model without views, all other
labels. A classifier is trained on the rows of its label and of its siblings, and on no others. The
score of the label is −max(0, 1 − s)³, where s is the output of its classifier.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from ..core import _engine
from ..core.arrays import Floats, Ints, Tensors, pointers, threads
from ..core.declarations import Described
from ..core.settings import AUTO, Integer, Number, Settings, setting, settings
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part
from .sparse_labels import SparseLabels, round_rows

_TOLERANCE = 0.1
_COST_ROWS = 1000  # rows that the precision of the trellises is measured on
_EXPECTED = 0.5  # precision that is assumed for new labels
_BLOCK_VALUES = 1 << 24  # values of streamed rows that are trained on at a time
_LABELS_AT_ONCE, _PIECES = 1 << 12, 16  # of a clustering that is trained in memory
_SECONDS = 0.1  # between two calls of `check_signals`


@settings
class LabelWeights(Settings):
    """Linear classifiers of labels, trained with an L2-regularized squared hinge loss."""

    cost: float | str = setting(
        Number(above=0),
        AUTO,
        default=AUTO,
        help='Cost of a violated margin. "auto" is 0.5 for several labels per row, where true '
        "labels are often missing from the data; below 16 rows per label on average, it rises, to "
        "2 at 4 rows. For one label per row, it is 5p − 0.5, but at least 0.25, where p is the P@1 "
        "of the trellises on held-out rows: if features tell little about labels, most violations "
        "are noise.",
    )
    passes: int = setting(
        Integer(1), default=10, help="Maximum number of passes over the training rows of a label."
    )
    threshold: float = setting(
        Number(0),
        default=0.1,
        help="Weights of smaller magnitude are dropped. Cost and threshold refer to rows of "
        "unit length: other rows are scaled to a root mean square length of 1 in training.",
    )


@register_part
@dataclass(frozen=True, eq=False)
class LabelWeightPart:
    """The weights of all labels."""

    name: ClassVar[str] = "label_weights"
    settings: ClassVar[type[Settings]] = LabelWeights
    keeps_threshold: ClassVar[bool] = True

    vectors: SparseLabels

    @classmethod
    def of_matrix(cls, W: csr_array, intercept: bool) -> LabelWeightPart:
        """Return weights of shape (n_labels, n_columns), rounded."""
        return cls(SparseLabels.of_matrix(W, intercept))

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the scores of labels, an array like `ids`."""
        gap: Floats = np.maximum(0, 1 - self.vectors.products(rows, ids, n_jobs))
        return -gap * gap * gap

    def explain(self, rows: Rows, label: int) -> PartExplanation:
        """Return what every feature of the only row adds to the score of a label."""
        features, values = rows.entries(0)
        contributions = values.astype(np.float64) * self.vectors.of_label(label, features)
        last, intercept = np.array([len(self.vectors.ptr) - 2]), 0.0
        if self.vectors.intercept:
            intercept = float(self.vectors.of_label(label, last)[0])
        linear = math.fsum([*contributions.tolist(), intercept])
        score = -(max(0.0, 1.0 - linear) ** 3)
        return PartExplanation(
            "label weights", features, contributions, intercept, score, "−max(0, 1 − linear_score)³"
        )

    # Training

    @classmethod
    def fit(cls, given: LabelWeights, context: Any) -> LabelWeightPart:
        """Train the classifiers of all labels, each against all others."""
        one_cluster = np.array([0, context.n_labels]), np.arange(context.n_labels)
        return cls.fit_clusters(given, context, [one_cluster])[0]

    @classmethod
    def fit_clusters(
        cls,
        given: LabelWeights,
        context: Any,
        clusters: list[tuple[Ints, Ints]],
        groups: Ints | None = None,
    ) -> list[LabelWeightPart]:
        """Train classifiers against their siblings, for several clusterings; see `train_clusters`.

        With `groups`, the group of every label, classifiers are trained for groups instead of
        labels. Those returned are not trained on held-out rows; `finish` returns those that are.
        """
        source, workers, precision = context.source, context.options.workers, 1.0
        if given.cost == AUTO and not context.several:
            rows = source.evaluation_rows()
            some = rows.take(np.arange(len(rows))[:: -(-len(rows) // _COST_ROWS)])
            precision = context.training.precision(some, context.options.n_jobs)
        given = given.filled(cost=usual_cost(context, precision))
        pieces = [[each] for each in clusters]
        if workers is not None:
            unseen = context.plan.early_stopping
            row_length, counts = context.row_length, context.counts
            if groups is not None:
                counts = np.bincount(groups, counts, len(clusters[0][1])).astype(np.int64)
            found = workers.train_clusters(
                given, source, clusters, counts, row_length, unseen, groups
            )
        elif source.whole is None:
            found = _train_in_blocks(given, context, clusters, groups)
        else:
            pieces = [_pieces(*each) for each in clusters]
            found = _train_in_memory(given, context, pieces, groups)
        parts, trained = [], iter(found)
        for own in pieces:
            # Weights trained on all rows, and without the held-out ones.
            rounded: tuple[list[Any], list[Any]] = [], []
            for pair in islice(trained, len(own)):
                for blocks, W in zip(rounded, pair, strict=True):
                    blocks += [] if W is None else [round_rows(W)]
            order = np.argsort(np.concatenate([members for _, members in own]))
            final, *others = (
                cls(SparseLabels.of_rounded(blocks, context.intercept, order))
                for blocks in rounded
                if blocks
            )
            parts.append(others[0] if others else final)
            context.kept[parts[-1]] = final
        return parts

    def finish(self, context: Any) -> LabelWeightPart:
        """Return the label weights that were trained on the held-out rows, too."""
        return context.kept.get(self, self)  # type: ignore[no-any-return]

    def learn(self, context: Any) -> LabelWeightPart:
        """Return the label weights after a further batch."""
        one_cluster = np.array([0, self.vectors.n_labels]), np.arange(self.vectors.n_labels)
        return self.learn_clusters(context, *one_cluster)

    def learn_clusters(self, context: Any, ptr: Ints, members: Ints) -> LabelWeightPart:
        """Train the weights of labels that are new, or have many rows in a further batch.

        They are trained from scratch on the available rows of their clusters: the batch and the
        memory.
        """
        wanted = context.labels_to_train()
        if not len(wanted):
            return self
        examples = context.rows_at_hand()
        cluster = np.searchsorted(ptr, np.argsort(members), side="right") - 1  # of every label
        some = [members[ptr[each] : ptr[each + 1]] for each in np.unique(cluster[wanted])]
        lists = pointers(np.array([len(each) for each in some])), np.concatenate(some)
        [(W, _)] = train_clusters(
            _further(context),
            examples,
            [lists],
            n_labels=context.n_labels,
            row_length=examples.rows.usual_length(),
            n_jobs=context.options.n_jobs,
        )
        place = {label: number for number, label in enumerate(lists[1].tolist())}
        return self.replaced(wanted, W[[place[label] for label in wanted.tolist()]])

    def learn_groups(self, context: Any, groups: Ints) -> LabelWeightPart:
        """Continue training the weights of groups that have labels to train; see `learn_clusters`.

        Training starts from the current weights, with all other groups merged into one.
        """
        wanted = np.unique(groups[context.labels_to_train()])
        if not len(wanted):
            return self
        place = np.full(self.vectors.n_labels, len(wanted))
        place[wanted] = np.arange(len(wanted))
        examples, members = context.rows_at_hand(), np.arange(len(wanted) + 1)
        initial = self.vectors.matrix()[wanted]
        initial.resize((len(members), initial.shape[1]))
        [(W, _)] = train_clusters(
            _further(context),
            examples.grouped(place[groups]),
            [(np.array([0, len(members)]), members)],
            n_labels=len(members),
            initial=initial,
            row_length=examples.rows.usual_length(),
            n_jobs=context.options.n_jobs,
        )
        return self.replaced(wanted, W[: len(wanted)])

    def grow(self, n_labels: int, n_new_columns: int) -> LabelWeightPart:
        """Return the weights with more labels and features, which have none yet."""
        return LabelWeightPart(self.vectors.grow(n_labels, n_new_columns))

    def replaced(self, labels: Ints, W: csr_array) -> LabelWeightPart:
        """Return the weights with those of some labels replaced by the rows of W."""
        old, n = self.vectors.matrix(), self.vectors.n_labels
        keep = np.ones(n, np.float32)
        keep[labels] = 0
        ones = np.ones(len(labels), np.float32)
        place = csr_array((ones, (labels, np.arange(len(labels)))), shape=(n, len(labels)))
        new: csr_array = (csr_array((keep, (np.arange(n),) * 2)) @ old + place @ W).tocsr()
        new.eliminate_zeros()
        return self.of_matrix(new, self.vectors.intercept)

    def pruned(self, density: float) -> LabelWeightPart:
        """Return the part with the largest weights only, a fraction `density` of them."""
        return LabelWeightPart(self.vectors.pruned(density))

    # Files

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        return {}, self.vectors.tensors()

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> LabelWeightPart:
        """Restore label weights from their `state`."""
        return cls(SparseLabels.from_state(section, sizes))

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        return {"label_weights": len(self.vectors.values)}


def usual_cost(context: Any, precision: float) -> float:
    """Return the default cost, from the rows per label or from the precision of the trellises."""
    if context.several:  # a few rows at a low cost stay far below their margin
        return float(np.clip(8 * context.n_labels / max(context.counts.sum(), 1), 0.5, 2))
    return max(5 * precision - 0.5, 0.25)


def _further(context: Any) -> LabelWeights:
    """Return the settings for a further batch."""
    given = context.options.given.label_weights
    settings = given if isinstance(given, LabelWeights) else LabelWeights()
    return settings.filled(cost=usual_cost(context, precision=_EXPECTED))


def _pieces(ptr: Ints, members: Ints) -> list[tuple[Ints, Ints]]:
    """Divide a clustering, since weights take much memory until they are rounded."""
    n_labels = max(len(members) // _PIECES, _LABELS_AT_ONCE)
    firsts = np.searchsorted(ptr, np.arange(0, len(members), n_labels))
    bounds = np.unique([*firsts, len(ptr) - 1]).tolist()
    return [
        (ptr[first : end + 1] - ptr[first], members[ptr[first] : ptr[end]])
        for first, end in pairwise(bounds)
    ]


def _train_in_memory(
    given: LabelWeights, context: Any, pieces: list[list[tuple[Ints, Ints]]], groups: Ints | None
) -> Iterator[tuple[csr_array, csr_array | None]]:
    examples, held_out = context.source.whole, context.source.held_out
    if context.plan.early_stopping:  # held-out rows stay unseen
        examples, held_out = context.source.whole_to_train(), None
    return train_clusters(
        given,
        examples if groups is None else examples.grouped(groups),
        [each for own in pieces for each in own],
        n_labels=sum(len(members) for _, members in pieces[0]),
        held_out=held_out,
        row_length=context.row_length,
        n_jobs=context.options.n_jobs,
    )


def _train_in_blocks(
    given: LabelWeights, context: Any, clusters: list[tuple[Ints, Ints]], groups: Ints | None
) -> list[tuple[csr_array, csr_array | None]]:
    """Train on blocks of rows that do not fit into memory together.

    Every block is trained from the weights of the blocks before: block coordinate descent in the
    dual problem (Yu, Hsieh, Chang and Lin 2010), once over all blocks.
    """
    found: list[Any] = [None] * len(clusters)
    seen = 0
    for block in context.blocks(_BLOCK_VALUES):
        seen += len(block)
        for number, (ptr, members) in enumerate(clusters):
            before = None
            if found[number] is not None:
                before = found[number][np.argsort(members)]
            [(found[number], _)] = train_clusters(
                given,
                block if groups is None else block.grouped(groups),
                [(ptr, members)],
                n_labels=len(members),
                initial=before,
                # Weights grow from block to block: those that will be large are still small.
                scale=min(seen / max(context.source.n_rows, 1), 1.0),
                row_length=context.row_length,
                n_jobs=context.options.n_jobs,
            )
    return [(each, None) for each in found]


def check_signals() -> None:
    """Do nothing, but let Python handle signals that have arrived, such as Ctrl-C."""


def train_clusters(
    given: LabelWeights,
    examples: Any,
    clusters: list[tuple[Ints, Ints]],
    *,
    n_labels: int,
    held_out: Ints | None = None,
    initial: csr_array | None = None,
    scale: float = 1.0,
    row_length: float = 1.0,
    n_jobs: int | None = None,
) -> Iterator[tuple[csr_array, csr_array | None]]:
    """Yield weights of labels that are trained against their siblings, for every clustering.

    Parameters
    ----------
    given : LabelWeights
        Without "auto" values.
    examples : ltls.model.examples.Examples
    clusters : list of (cluster_ptr, labels)
        A clustering: cluster i has the labels labels[cluster_ptr[i]:cluster_ptr[i + 1]].
    n_labels : int
    held_out : array, optional
        Rows that a second set of weights is not trained on.
    initial : sparse array of shape (n_labels, n_columns), optional
        Weights to start from.
    scale : float
        What the threshold is multiplied by.
    row_length : float
        Typical length that rows are divided by in training; the weights apply to undivided rows.

    Yields
    ------
    (all, without)
        Weights of shape (number of labels in the clustering, n_columns), in the order of these
        labels; and weights trained without the held-out rows, None if no rows are held out.
    """
    rows = examples.rows
    divisor = np.full(rows.n_columns, row_length, np.float32)
    if rows.intercept:
        divisor[-1] = 1
    if row_length != 1:
        rows = rows.like(rows.X / rows.X.dtype.type(row_length))
    labels = examples.indptr, examples.labels, examples.weights
    task = _engine.SiblingTask(rows.engine, *labels, n_labels=n_labels)
    mask = None
    if held_out is not None and len(held_out):
        mask = np.zeros(len(rows), bool)
        mask[held_out] = True
    start = None
    if initial is not None and initial.nnz:
        start = (
            initial.indptr.astype(np.int64),
            initial.indices.astype(np.int32),
            initial.data.astype(np.float32) * divisor[initial.indices],
        )
    for cluster_ptr, members in clusters:
        lists, without = task.run(
            cluster_ptr,
            members,
            cost=float(given.cost),
            passes=given.passes,
            tolerance=_TOLERANCE,
            threshold=scale * given.threshold,
            initial=start,
            held_out=mask,
            check=check_signals,
            seconds=_SECONDS,
            n_jobs=threads(n_jobs),
        )
        shape = (len(members), rows.n_columns)
        W, W_without = (
            None
            if each is None
            else csr_array((each[2] / divisor[each[1]], each[1], pointers(each[0])), shape=shape)
            for each in (lists, without)
        )
        found = [(W, W_without)]
        del lists, without, W, W_without
        yield found.pop()  # the caller's alone, who may free it
