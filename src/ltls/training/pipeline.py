"""The pipeline: from rows to a fitted model.

Rows in memory, a stream and a cluster differ in their `Source` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

from ..core.arrays import Ints
from ..features.front_ends import FrontEnd
from ..features.rows import Columns
from ..model.labels import Labels
from ..model.model import Model
from ..model.provenance import Provenance
from ..parts.base import PARTS, can
from ..parts.calibration import Calibrator, best_threshold
from ..parts.trainable import SquaresSketch
from ..structure.policies import POLICIES, LabelStats
from .choose import choose, usual_weights
from .context import Context
from .data import Examples, Source
from .progress import InterruptGuard, phase
from .recipes import DatasetSize, Given, Plan
from .trainer import Trainer, TrainerState
from .trellis_training import TrellisTraining
from .workers import Workers


@dataclass(frozen=True)
class Fitted:
    """A model, and what it can be trained further from.

    Parameters
    ----------
    model : Model
    provenance : Provenance
    training : TrellisTraining or None
        The trellises' weights in full precision; None for a model from a file.
    sketch : SquaresSketch or None
        The optimizer's state, roughly, of a model from a file.
    """

    model: Model
    provenance: Provenance
    training: TrellisTraining | None = None
    sketch: SquaresSketch | None = None

    def without_rows(self) -> Fitted:
        """Return it without training rows, as ``memory=False`` asks for."""
        for part in self.model.parts:
            if getattr(part, "needs_memory", False):
                raise ValueError(
                    f"memory=False: the model has {part.name}, which are training rows; fit again "
                    f"with {part.name}=False"
                )
        return replace(self, model=replace(self.model, memory=None))


@dataclass(frozen=True)
class Problem:
    """What is to be learned: labels and features, and how targets were given."""

    labels: Labels
    front_end: FrontEnd
    columns: Columns
    size: DatasetSize
    counts: Ints
    target_format: str
    typical_labels: int


@dataclass(frozen=True)
class How:
    """What concerns all of training."""

    given: Given
    n_jobs: int | None = None
    verbose: int = 0
    class_weight: dict[Any, float] | str | None = None
    keep_on_interrupt: bool = True
    workers: Workers | None = None  # who trains; None is this process


def new_training(
    plan: Plan,
    problem: Problem,
    label_sums: Callable[[bool], csr_array],
    rng: Any,
    n_jobs: int | None,
    min_paths: int = 0,
) -> TrellisTraining:
    """Return trellises with weights of 0.

    `label_sums` returns the sum of every label's rows, scaled to unit length or not; it is called
    if codebooks depend on what the rows of labels are like.
    """
    views, assignment = plan.views, plan.trellises.assignment
    policy = POLICIES[assignment] if isinstance(assignment, str) else None
    needs_vectors = views is not None or (policy is not None and policy.needs_sample)
    vectors = normalize(label_sums(views is not None)) if needs_vectors else None
    return TrellisTraining.new(
        plan.trellises,
        LabelStats(len(problem.labels), problem.counts, vectors),
        rng,
        multilabel=problem.size.multilabel,
        n_columns=problem.columns.n_columns,
        intercept=problem.columns.intercept,
        unit_length=problem.columns.unit_length,
        n_views=1 if views is None else int(views.n_views),
        cluster_size=1 if views is None else int(views.cluster_size),
        min_paths=min_paths,
        n_jobs=n_jobs,
    )


def train(
    how: How,
    plan: Plan,
    problem: Problem,
    source: Source,
    training: TrellisTraining,
    state: TrainerState,
    checkpoint: Any = None,
) -> Fitted:
    """Train all parts of a model, and choose on held-out rows what is not trained."""
    guard = InterruptGuard(how.keep_on_interrupt)
    trainer = Trainer(training, guard, how.n_jobs, how.verbose, how.workers)
    trainer.fit(source, state, plan.early_stopping, checkpoint)
    context = Context(
        plan,
        source,
        training,
        problem.columns,
        problem.counts,
        problem.size.n_rows,
        problem.size.several,
        how.n_jobs,
        not problem.size.sparse,
        how.workers,
    )
    verbose = bool(how.verbose)
    parts = []
    for name, given in _parts_of(plan):
        with phase(verbose, name):
            part = PARTS[name].fit(given, context)
        if part is not None:
            parts.append(part)
    model = new_model(plan, problem, training, parts)
    held_out = source.held_out_rows()
    if held_out is not None and not guard.interrupted:
        with phase(verbose, "choosing weights"):
            model = choose(model, plan, held_out, problem.counts, problem.size.n_rows, how.n_jobs)
        if not plan.early_stopping:
            with phase(verbose, "training on held-out rows"):
                _train_on_held_out(trainer, source, held_out)
                context.trained_further()
    else:
        model = _without_optional(model, plan)
    finished = [part.finish(context) if can(part, "finish") else part for part in model.parts]
    memory = None
    if plan.memory is not None:
        uses_memory = next(
            (part.memory for part in finished if getattr(part, "needs_memory", False)), None
        )
        memory = uses_memory if uses_memory is not None else _small_memory(context)
    model = model.with_parts(finished, memory=memory)
    if model.multilabel and model.threshold is None:
        threshold = threshold_on(model, source.evaluation_rows(), how.n_jobs)
        model = replace(model, threshold=threshold)
    if plan.small_dense:
        training.weights.end_average()
        training.settings = replace(training.settings, average=False)
    state.completed = not guard.interrupted
    provenance = Provenance(
        problem.size.n_rows, problem.counts, state.losses, len(state.losses), str(plan)
    )
    return Fitted(model, provenance, training)


def _parts_of(plan: Plan) -> list[tuple[str, Any]]:
    """Return the parts to train, in order, and their settings."""
    if plan.views is not None:
        required: list[tuple[str, Any]] = [("views", plan.views)]
    else:
        required = [("trellises", plan.trellises)]
        if plan.label_weights is not None:
            required.append(("label_weights", plan.label_weights))
        if plan.label_matrix is not None:
            required.append(("label_matrix", plan.label_matrix))
    return [*required, *plan.parts.items()]


def new_model(plan: Plan, problem: Problem, training: TrellisTraining, parts: list[Any]) -> Model:
    """Return a model of some parts, with their usual weights and no calibration."""
    multilabel, loss = problem.size.multilabel, training.loss
    scale = 1.0 if plan.reranks else 1 / len(training.codebooks)
    return Model(
        problem.labels,
        problem.front_end,
        problem.columns,
        tuple(parts),
        tuple(usual_weights(parts, plan)),
        multilabel,
        problem.target_format,
        loss.probabilistic,
        Calibrator(multilabel and loss.independent_edges, scale),
        typical_labels=problem.typical_labels,
    )


def _without_optional(model: Model, plan: Plan) -> Model:
    """Leave out parts that are only worth having if held-out rows say so."""
    pairs = [
        (part, weight)
        for part, weight in zip(model.parts, model.weights, strict=True)
        if weight and (part.name in plan.asked_for or part.name not in ("prototypes", "neighbours"))
    ]
    parts, weights = zip(*pairs, strict=True)
    return replace(model, parts=parts, weights=weights)


def _train_on_held_out(trainer: Trainer, source: Source, held_out: Examples) -> None:
    """Train the trellises on the held-out rows, as often as on the others."""
    rows = np.arange(len(held_out))
    for _ in range(int(trainer.settings.epochs)):
        trainer.run_epoch([(held_out, source.rng.permutation(rows))], [0.0])


def _small_memory(context: Context) -> Any:
    context.plan.parts.pop("neighbours", None)  # which would keep all rows
    return context.memory(held_out=True)


def threshold_on(model: Model, examples: Examples | None, n_jobs: int | None) -> float:
    """Return the multi-label threshold with the best micro-averaged F1 on some rows."""
    if examples is None:
        return 0.0
    k = min(2 * model.typical_labels + 1, len(model.labels))
    ids, scores = model.topk(examples.rows, k, n_jobs)
    return best_threshold(scores, examples.contains(ids), len(examples.labels))
