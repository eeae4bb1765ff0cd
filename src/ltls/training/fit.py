"""The pipeline: from rows to a fitted model.

In-memory, streamed and cluster training differ only in where batches come from and who trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import starmap
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Floats, Ints
from ..features.blocks import Blocks
from ..features.front_ends import FrontEnd
from ..features.rows import Rows
from ..model.examples import Examples
from ..model.labels import Labels, Targets, warn_of_joined_labels
from ..model.model import Fitted, Model, Provenance
from ..parts.base import PARTS, Part
from ..parts.label_trainer import LabelTrainer
from ..parts.memory import StoredRows
from ..parts.trellis_training import TrellisTraining
from ..storage.budget import check_smallest, within_budget
from .checkpoint import Checkpoint
from .choose import affordable, choose, threshold_on
from .data import DatasetStats, Problem, Source
from .further import as_before, warm_start
from .progress import InterruptGuard, phase, show
from .recipes import REPLAYED, Plan, plan_for
from .trainer import TrainedTrellises, Trainer, TrainerState, TrainOptions

# Returns an iterator over all batches; the argument is True for the first pass.
Batches: TypeAlias = Callable[[bool], Iterator[tuple[Any, Targets]]]
# Turns features and targets of a batch into rows to train on.
Encoder: TypeAlias = Callable[[Any, Targets], Examples]
# Returns the rows to train on, once the learning problem is known.
NewSource: TypeAlias = Callable[[Encoder, Plan, Problem, Any], Source]

ROWS_FOR_VECTORS = 32  # rows of a label from which its vector is computed, in a stream


def fit(
    options: TrainOptions,
    X: Any,
    targets: Targets,
    sample_weight: Floats | None,
    front_end: FrontEnd,
    rng: Any,
    *,
    checkpoint: Checkpoint | None = None,
    previous: Fitted | None = None,
    labels: Labels | None = None,
) -> Fitted:
    """Train a model on all rows; with `previous`, continue from that model's weights.

    `labels` are the labels in their order, some of which may have no rows; by default, they are
    those of the rows, sorted.
    """
    stats, training = DatasetStats(), None
    stats.add(X, targets, previous is None and front_end.settings.may_standardize(X))
    problem = stats.problem(front_end, labels)
    if previous is not None:
        columns, training = warm_start(previous, options, problem.labels, X, targets)
        problem = stats.problem(front_end, previous.model.labels, columns)
    class_weight = problem.class_weights(options.class_weight)
    examples = problem.examples(X, targets, sample_weight, class_weight)
    if checkpoint is not None:
        own, beside = (
            None if rows is None else getattr(rows.X, "mapped", rows.X)
            for rows in (examples.rows, examples.rows.beside)
        )
        checkpoint.add_rows(own, examples.indptr, examples.labels, examples.weights, beside)

    def label_sums(unit_length: bool) -> csr_array:
        return examples.label_sums(len(problem.labels), unit_length)[0](slice(None))

    def new_source(plan: Plan) -> Source:
        return Source.in_memory(examples, problem, plan, rng)

    return _fit(options, problem, label_sums, new_source, rng, checkpoint, training)


def fit_first_batch(
    options: TrainOptions,
    X: Any,
    targets: Targets,
    classes: list[Any],
    sample_weight: Floats | None,
    front_end: FrontEnd,
    rng: Any,
) -> Fitted | None:
    """Train a model on the first batch of `partial_fit`; None if it cannot have a label matrix.

    Trellises of dense rows alone are much less accurate, and later batches do not add parts.
    """
    if isinstance(X, Blocks) or hasattr(X, "indptr"):
        return None
    labels, stats = Labels(classes), DatasetStats()
    labels.add(targets)
    stats.add(X, targets, scale=False)
    if (
        len(labels) < 2
        or not plan_for(options.given, stats.problem(front_end, labels).size).of_vectors
    ):
        return None
    if isinstance(options.class_weight, dict):  # others may follow
        known = {label: weight for label, weight in options.class_weight.items() if label in labels}
        options = replace(options, class_weight=known)
    options = replace(options, keep_on_interrupt=False)
    return fit(options, X, targets, sample_weight, front_end, rng, labels=labels)


def fit_stream(
    options: TrainOptions,
    batches: Batches,
    front_end: FrontEnd,
    rng: Any,
    checkpoint: Checkpoint | None = None,
    new_source: NewSource | None = None,
    rows_for_vectors: int = ROWS_FOR_VECTORS,
) -> Fitted:
    """Train a model: one pass to collect statistics, then all epochs.

    `new_source` returns the rows to train on; by default, batches are iterated again.
    """
    stats = DatasetStats(rows_for_vectors)
    with phase(bool(options.verbose), "counting rows and labels"):
        for X, targets in batches(True):
            ids = stats.add(X, targets, front_end.settings.may_standardize(X))
            if checkpoint is not None:
                checkpoint.add_rows(X, targets.indptr, ids)
    if not stats.n_labels:
        raise ValueError("y must have at least 2 classes, got none")
    problem = stats.problem(front_end)
    if checkpoint is not None:
        checkpoint.add_rows(problem.counts)
    class_weight = problem.class_weights(options.class_weight)
    encoder = partial(problem.examples, class_weight=class_weight)

    def source(plan: Plan) -> Source:
        stats.forget_rows()  # which the paths of dense rows do not depend on
        if new_source is not None:
            return new_source(encoder, plan, problem, rng)
        return Source(lambda: starmap(encoder, batches(False)), problem, plan, rng)

    label_sums = partial(stats.label_sums, problem)
    return _fit(options, problem, label_sums, source, rng, checkpoint)


def _fit(
    options: TrainOptions,
    problem: Problem,
    label_sums: Callable[[bool], csr_array],
    new_source: Callable[[Plan], Source],
    rng: Any,
    checkpoint: Checkpoint | None,
    training: TrellisTraining | None = None,
) -> Fitted:
    """Train on the rows of a source; with `training`, continue with these trellises."""
    if len(problem.labels) < 2 and training is None:
        raise ValueError(
            f"y must have at least 2 classes, got 1 class: {problem.labels.values[0]!r}; "
            "partial_fit can start with one"
        )
    if training is None and not problem.size.multilabel:
        warn_of_joined_labels(problem.labels.values, problem.counts)
    plan = plan_for(options.given, problem.size)
    if training is None:
        if options.size_budget is not None:
            n_tables = 0 if not problem.size.sparse else 1 if plan.label_weights is None else 2
            check_smallest(
                problem, n_tables, options.given.get_params(deep=False), options.size_budget
            )
        with phase(bool(options.verbose), "clusters and paths of labels"):
            training = TrellisTraining.of_plan(plan, problem, label_sums, rng, options.n_jobs)
    else:
        plan = as_before(plan, training)
        training.scale_steps(plan, 1.0 if plan.one_vs_all else problem.row_length)
    source, state = new_source(plan), TrainerState()
    if checkpoint is not None and checkpoint.resume:
        state = checkpoint.restore(training, source)
        place = f"after epoch {len(state.losses)}" if state.losses else "in epoch 1"
        show(bool(options.verbose), f"resuming from {checkpoint.path} {place}")
    return _train(options, plan, problem, source, training, state, checkpoint)


def _train(
    options: TrainOptions,
    plan: Plan,
    problem: Problem,
    source: Source,
    training: TrellisTraining,
    state: TrainerState,
    checkpoint: Any = None,
) -> Fitted:
    """Train all parts of a model, and choose weights and calibration on held-out rows."""
    verbose = bool(options.verbose)
    show(verbose, str(plan))
    guard = InterruptGuard(options.keep_on_interrupt)
    trainer = Trainer(training, guard, options.n_jobs, options.verbose, options.workers)
    trainer.fit(source, state, plan.early_stopping, checkpoint)
    context = Context(options, plan, problem, source, training)
    parts = []
    for name, given in plan.trained.items():
        with phase(verbose, name):
            parts.append(PARTS[name].fit(given, context))
    model = problem.new_model(plan, training.loss, len(training.codebooks), parts)
    held_out, precision = source.held_out_rows(), None
    if held_out is not None and not guard.interrupted:
        with phase(verbose, "choosing weights"):
            model = _choose(options, plan, problem, model, held_out)
            precision = model.held_out_precision
        if precision is not None:
            show(
                verbose, f"P@1 {precision:.4f} on the held-out rows that the weights were chosen on"
            )
        if not plan.early_stopping:
            with phase(verbose, "training on held-out rows"):
                _train_on_held_out(trainer, source, held_out)
                context.trained_further()
    else:
        # Optional parts are kept only if they help on held-out rows.
        model = model.keeping(lambda part: 0 not in plan.weights_to_try(part))
    recipe = _what_was_trained(options, plan, model, chosen=precision is not None)
    if recipe != str(plan):
        show(verbose, recipe.removeprefix(f"{plan}; "))
    model = _finished(context, model)
    training.prepare_further(plan)
    state.completed = not guard.interrupted
    provenance = Provenance(
        problem.size.n_rows,
        problem.counts,
        state.losses,
        len(state.losses),
        recipe,
        held_out_precision=precision,
    )
    if len(model.trellises()) < training.n_views:  # the others did not fit into the budget
        return _within_budget(options, Fitted(model, provenance))
    return _within_budget(options, Fitted(model, provenance, training))


def _finished(context: Context, model: Model) -> Model:
    """Return the model with finished parts, the rows that it stores, and a threshold."""
    options, verbose = context.options, bool(context.options.verbose)
    finished = []
    for part in model.parts:
        if hasattr(part, "finish"):
            with phase(verbose, f"finishing {part.name}"):
                finished.append(part.finish(context))
        else:
            finished.append(part)
    model = model.with_parts(finished)
    memory = model.needed_rows
    if memory is None and context.plan.memory is not None:
        with phase(verbose, "rows to remember"):
            memory = context.memory(REPLAYED, held_out=True)
    model = replace(model, memory=memory)
    if model.multilabel and model.calibration.threshold is None:
        with phase(verbose, "threshold"):
            rows = context.source.evaluation_rows()
            model = model.with_threshold(threshold_on(model, rows, options.n_jobs))
    return model


def _within_budget(options: TrainOptions, fitted: Fitted) -> Fitted:
    """Return a model that is pruned until its file fits into the size budget, if there is one."""
    if options.size_budget is None:
        return fitted
    with phase(bool(options.verbose), "weights within size_budget"):
        parameters = options.given.get_params(deep=False)
        return replace(fitted, model=within_budget(fitted, parameters, options.size_budget))


def _choose(
    options: TrainOptions, plan: Plan, problem: Problem, model: Model, held_out: Examples
) -> Model:
    """Choose weights on held-out rows and, with a size budget, what to leave out."""

    def chosen(model: Model) -> Model:
        return choose(model, plan, held_out, problem.counts, problem.size.n_rows, options.n_jobs)

    model = chosen(model)
    if options.size_budget is None:
        return model
    provenance = Provenance(problem.size.n_rows, problem.counts, recipe=str(plan))
    needed, budget = plan.asked_for, options.size_budget
    return affordable(model, budget, provenance, needed, held_out, chosen, options.n_jobs)


def _what_was_trained(options: TrainOptions, plan: Plan, model: Model, chosen: bool) -> str:
    """Return the plan, and which of the parts that it names are not in the model."""
    kept = {part.name for part in model.parts}
    missing = [name for name in plan.trained if name not in kept]
    if not missing:
        return str(plan)
    reason = "no gain on held-out rows" if chosen else "no held-out rows to choose on"
    if options.size_budget is not None:
        reason += ", or no room in size_budget"
    return f"{plan}; left out: {', '.join(missing)} ({reason})"


def _train_on_held_out(trainer: Trainer, source: Source, held_out: Examples) -> None:
    """Train the trellises on the held-out rows, as often as on the others."""
    rows = np.arange(len(held_out))
    for _ in range(int(trainer.settings.epochs)):
        trainer.run_epoch([(held_out, source.rng.permutation(rows))])


class Context(TrainedTrellises):
    """Rows to train parts on.

    Parameters
    ----------
    options : TrainOptions
    plan : Plan
    problem : Problem
    source : Source
        Rows to train on, and held-out rows.
    training : TrellisTraining
    """

    def __init__(
        self,
        options: TrainOptions,
        plan: Plan,
        problem: Problem,
        source: Source,
        training: TrellisTraining,
    ) -> None:
        super().__init__(options, training, problem.columns, problem.counts, problem.size.n_rows)
        self.plan, self.source = plan, source
        # Some of the batches may be sparse, if only the last one is not.
        self.dense = not problem.size.sparse and problem.columns.used is None
        self.several = problem.size.several
        self.row_length = problem.row_length
        self.kept: dict[Part, Any] = {}  # what a part needs to finish

    def label_trainer(self, trainer: LabelTrainer) -> LabelTrainer:
        """Return a trainer of label vectors that continues from the given one."""
        workers = self.options.workers
        return trainer if workers is None else workers.label_trainer(trainer)

    # Rows

    def blocks(self, n_values: int) -> Iterator[Examples]:
        """Yield all rows to train on in blocks of at most about `n_values` values."""
        parts: list[Examples] = []
        held = 0
        for examples, rows in self.source.in_order():
            part = examples.take(rows)
            if parts and held + part.rows.n_values > n_values:
                block, parts, held = Examples.concatenate(parts), [], 0
                yield block
                del block
            parts.append(part)
            held += part.rows.n_values
            del examples, part
        if any(map(len, parts)):
            yield Examples.concatenate(parts)

    def label_sums(self, held_out: bool = False) -> tuple[Callable[[slice], csr_array], Ints]:
        """Return the sums and numbers of the rows of labels; see `Examples.label_sums`."""
        if self.source.whole is not None:
            examples = self.source.whole if held_out else self.source.whole_to_train()
            return examples.label_sums(self.n_labels)
        total = csr_array((self.n_labels, self.n_columns), dtype=np.float32)
        counts = np.zeros(self.n_labels, np.int64)
        for part in self._parts(held_out):
            sums, own = part.label_sums(self.n_labels)
            both = sums(slice(None))
            total, counts = both if not counts.any() else csr_array(total + both), counts + own
        total.sort_indices()
        return total.__getitem__, counts

    def memory(
        self,
        n_rows: int,
        held_out: bool = False,
        coordinates: Callable[[Rows], Rows] | None = None,
    ) -> StoredRows:
        """Return the rows that a model stores: `n_rows`, unless the user sets another number.

        With `coordinates`, these are stored instead of the features.
        """
        assert self.plan.memory is not None
        capacity = int(self.plan.memory.filled(n_rows=n_rows).n_rows)
        kept, first_row = None, 0
        for part in self._parts(held_out):
            if coordinates is not None:
                part = replace(part, rows=coordinates(part.rows))
            more = StoredRows.of(part, capacity, self.counts, self.n_labels, first_row)
            kept = more if kept is None else kept.merge(more, capacity)
            first_row += len(part)
        assert kept is not None
        return kept

    def _parts(self, held_out: bool) -> Iterator[Examples]:
        """Yield all rows to train on; with `held_out`, those that were held out, too."""
        if held_out or not len(self.source.held_out):
            yield from self.source.all_rows()
            return
        for examples, rows in self.source.in_order():
            yield examples.take(rows)
