"""The pipeline: from rows to a fitted model.

Rows in memory, a stream and a cluster differ in their `Source` alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

from ..core.settings import AUTO
from ..model.examples import Examples
from ..model.fitted import Fitted, Provenance
from ..model.model import Model
from ..parts.base import PARTS, can, has
from ..parts.calibration import Calibrator, best_threshold
from ..parts.views import Views
from ..structure.policies import POLICIES, LabelStats
from .budget import affordable
from .choose import choose, weights_to_try
from .context import Context, How, Problem
from .data import Source
from .progress import InterruptGuard, phase, show
from .recipes import REPLAYED, Plan
from .trainer import Trainer, TrainerState
from .trellis_training import TrellisTraining


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
    training = TrellisTraining.new(
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
    scale_steps(training, plan, problem.row_length)
    return training


def scale_steps(training: TrellisTraining, plan: Plan, row_length: float) -> None:
    """Take steps as for rows of unit length, where rows are dense and of any length."""
    power = 2.0 ** round(math.log2(row_length))  # of 2, so that products are exact
    if plan.small_dense:
        training.weights.start_average(power)
    elif plan.label_matrix is not None:
        training.weights.row_length = power


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
    verbose = bool(how.verbose)
    show(verbose, str(plan))
    guard = InterruptGuard(how.keep_on_interrupt)
    trainer = Trainer(training, guard, how.n_jobs, how.verbose, how.workers)
    trainer.fit(source, state, plan.early_stopping, checkpoint)
    context = Context(how, plan, problem, source, training)
    parts = []
    for name, given in plan.trained.items():
        with phase(verbose, name):
            parts.append(PARTS[name].fit(given, context))
    model = new_model(plan, problem, training, parts)
    held_out = source.held_out_rows()
    if held_out is not None and not guard.interrupted:
        with phase(verbose, "choosing weights"):
            model = _choose(how, plan, problem, model, held_out)
        if not plan.early_stopping:
            with phase(verbose, "training on held-out rows"):
                _train_on_held_out(trainer, source, held_out)
                context.trained_further()
    else:
        model = _without_optional(model, plan)
    finished = []
    for part in model.parts:
        if can(part, "finish"):
            with phase(verbose, f"finishing {part.name}"):
                finished.append(part.finish(context))
        else:
            finished.append(part)
    memory = next((part.memory for part in finished if has([part], "needs_memory")), None)
    if memory is None and plan.memory is not None:
        with phase(verbose, "rows to remember"):
            memory = context.memory(REPLAYED, held_out=True)
    model = model.with_parts(finished, memory=memory)
    if model.multilabel and model.threshold is None:
        with phase(verbose, "threshold"):
            threshold = threshold_on(model, source.evaluation_rows(), how.n_jobs)
        model = replace(model, threshold=threshold)
    if plan.small_dense:
        training.weights.end_average()
        training.settings = replace(training.settings, average=False)
    state.completed = not guard.interrupted
    provenance = Provenance(
        problem.size.n_rows, problem.counts, state.losses, len(state.losses), str(plan)
    )
    if len(model.trellises()) < training.n_views:  # the others did not fit into the budget
        return Fitted(model, provenance)
    return Fitted(model, provenance, training)


def _choose(how: How, plan: Plan, problem: Problem, model: Model, held_out: Examples) -> Model:
    """Choose weights on held-out rows, and within a size budget what is left out."""

    def chosen(model: Model) -> Model:
        return choose(model, plan, held_out, problem.counts, problem.size.n_rows, how.n_jobs)

    model = chosen(model)
    if how.size_budget is None:
        return model
    needed = set(plan.asked_for)
    if isinstance(how.given.views, Views) and how.given.views.n_views != AUTO:
        needed.add("views")
    provenance = Provenance(problem.size.n_rows, problem.counts, recipe=str(plan))
    return affordable(model, how.size_budget, provenance, needed, held_out, chosen, how.n_jobs)


def new_model(plan: Plan, problem: Problem, training: TrellisTraining, parts: list[Any]) -> Model:
    """Return a model of some parts, with their usual weights and no calibration."""
    multilabel, loss = problem.size.multilabel, training.loss
    scale = 1.0 if plan.reranks else 1 / len(training.codebooks)
    return Model(
        problem.labels,
        problem.front_end,
        problem.columns,
        tuple(parts),
        tuple(weights_to_try(part, plan)[0] for part in parts),
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
        if 0 not in weights_to_try(part, plan)
    ]
    parts, weights = zip(*pairs, strict=True)
    return replace(model, parts=parts, weights=weights)


def _train_on_held_out(trainer: Trainer, source: Source, held_out: Examples) -> None:
    """Train the trellises on the held-out rows, as often as on the others."""
    rows = np.arange(len(held_out))
    for _ in range(int(trainer.settings.epochs)):
        trainer.run_epoch([(held_out, source.rng.permutation(rows))])


def threshold_on(model: Model, examples: Examples | None, n_jobs: int | None) -> float:
    """Return the multi-label threshold with the best micro-averaged F1 on some rows."""
    if examples is None:
        return 0.0
    k = min(2 * model.typical_labels + 1, len(model.labels))
    ids, scores = model.topk(examples.rows, k, n_jobs)
    return best_threshold(scores, examples.contains(ids), len(examples.labels))
