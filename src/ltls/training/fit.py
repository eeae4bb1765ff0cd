"""What an estimator does with rows and labels: all epochs of a `fit`, one pass of a `partial_fit`.

`Training` passes over rows; here is what it is given, and what follows: the weights of the best
epoch, the embedding that rescores, and the threshold of several labels a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .checkpoint import Checkpoint
from ..model.decoder import best_threshold
from .auto import Plan
from ..estimators.validation import class_weights
from ..model.labels import Labels, Targets
from ..linear.weights import LinearModel
from ..structure.exchange import move_labels
from ..model.embedding import learn_embedding
from .trainer import Part, Standing, Training, interruptible
from ..model.examples import Examples

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier

THRESHOLD_ROWS = 4_000  # that choose the threshold
_LONGEST_CURVE = 10_000  # passes of partial_fit whose loss is kept


def examples_of(
    estimator: LTLSClassifier, X: Any, targets: Targets, weights: npt.NDArray[np.float32] | None
) -> Examples:
    """Return rows as its model learns from them, and let the model count their labels."""
    model = estimator._learned
    usual = int(np.quantile(np.diff(targets.indptr), 0.99, method="higher"))
    model.usual_labels = max(model.usual_labels, usual)
    examples = as_examples(model.labels, X, targets, weights, estimator.class_weight)
    model.count(examples.labels, targets.n_rows)
    return examples


def as_examples(
    labels: Labels,
    X: Any,
    targets: Targets,
    weights: npt.NDArray[np.float32] | None,
    class_weight: dict[Any, float] | str | None,
) -> Examples:
    """Return rows with labels as ids, weighted by row and by label."""
    ids = labels.ids(targets)
    if targets.multilabel:  # in every row by id, as from an indicator matrix
        rows = np.repeat(np.arange(targets.n_rows), np.diff(targets.indptr))
        ids = ids[np.lexsort((ids, rows))]
    if class_weight is not None:
        of_rows = class_weights(class_weight, labels, ids, targets.indptr)
        weights = of_rows if weights is None else weights * of_rows
    return Examples(X, targets.indptr, ids, weights, targets.multilabel)


def learn(
    estimator: LTLSClassifier,
    examples: Examples,
    plan: Plan,
    rng: Any,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Run all epochs, holding some rows out if asked to; then learn what rescores."""
    model, n_jobs = estimator._learned, estimator.n_jobs
    n_held_out = plan.n_held_out
    mixed = rng.permutation(len(examples)) if n_held_out else np.arange(len(examples))
    held_out, standing = np.sort(mixed[:n_held_out]), Standing()
    if checkpoint is not None:
        checkpoint.begin(estimator.get_params(deep=False))
        checkpoint.see(examples.X, examples.indptr, examples.labels, examples.weights)
        if checkpoint.resume:
            standing, held_out, rng = checkpoint.restore(model)
    rows = np.setdiff1d(np.arange(len(examples)), held_out)

    def parts() -> Iterator[Part]:
        if estimator.assignment == "learned" and len(standing.losses) > 1:  # between two epochs
            move_labels(model, examples, rows, model.linear, n_jobs)
        yield examples, rng.permutation(rows) if estimator.shuffle else rows

    def after_epoch(standing: Standing) -> None:
        if checkpoint is not None:
            checkpoint.save(model, standing, held_out, rng)

    def rescoring() -> None:
        if plan.rank:
            again = None if plan.stops_early else _training(estimator)
            learn_embedding(
                model, examples, rows, held_out, plan.rank, rng, n_jobs, again, plan.epochs
            )

    judges = examples, held_out if plan.stops_early else rows
    learn_epochs(
        estimator, parts, len(rows), lambda: judges, plan, standing, after_epoch, rescoring
    )


def learn_epochs(
    estimator: LTLSClassifier,
    parts: Callable[[], Iterator[Part]],
    n_rows: int,
    judges: Callable[[], Part | None],
    plan: Plan,
    standing: Standing,
    after_epoch: Callable[[Standing], None],
    rescoring: Callable[[], None] = lambda: None,
) -> None:
    """Pass over all rows in every epoch, from where the training stands.

    The `judges`, asked for after the first one, are the rows that choose the threshold and, if
    they are held out, when to stop.
    """
    model, training = estimator._learned, _training(estimator)
    model.scoring = model.embedding = None

    def precision(linear: LinearModel) -> float:
        chosen = judges()
        return 0.0 if chosen is None else model.precision(*chosen, estimator.n_jobs, linear)

    best = training.run(
        parts,
        n_rows,
        epochs=plan.epochs,
        patience=estimator.n_iter_no_change,
        precision=precision if plan.stops_early else None,
        standing=standing,
        after_epoch=after_epoch,
    )
    if best is not None:
        training.learner.go_on_from(best, estimator.l1)
    model.loss_curve = training.losses
    model.n_passes = len(training.losses)
    if not np.isfinite(model.linear.weights).all():
        raise ValueError(
            "the weights became infinite: scale the features, or use a smaller learning_rate"
        )
    rescoring()
    if model.multilabel:
        chosen = judges()
        model.threshold = 0.0 if chosen is None else _best_threshold(estimator, *chosen)


def learn_batch(estimator: LTLSClassifier, examples: Examples, rng: Any) -> None:
    """Pass once over a batch; the threshold is the mean of the batches' best ones."""
    model, training = estimator._learned, _training(estimator)
    rows = np.arange(len(examples))
    order = rng.permutation(rows) if estimator.shuffle else rows
    model.scoring = model.embedding = None
    training.run(lambda: [(examples, order)], len(rows), epochs=1)
    model.loss_curve = [*model.loss_curve[-_LONGEST_CURVE:], *training.losses]
    model.n_passes += 1
    if model.multilabel:
        best = _best_threshold(estimator, examples, rows)
        before = best if model.threshold is None else model.threshold
        model.threshold = before + (best - before) / model.n_passes


def _training(estimator: LTLSClassifier) -> Training:
    model = estimator._learned
    assert model.learner is not None
    return Training(
        model.trellis,
        model.codebooks,
        model.learner,
        len(model.labels),
        model.loss,
        estimator.learning_rate,
        estimator.l1,
        estimator.ranking_multiplier,
        estimator.batch_size,
        estimator.n_jobs,
        bool(estimator.verbose),
    )


def _best_threshold(
    estimator: LTLSClassifier, examples: Examples, rows: npt.NDArray[np.int64]
) -> float:
    model = estimator._learned
    rows = rows[:: -(-len(rows) // THRESHOLD_ROWS)]
    for limit in (len(rows), 100):  # Ctrl-C leaves a threshold of fewer rows
        with interruptible():
            some = rows[:limit]
            ids, scores = model.topk(examples.X[some], model.n_candidates, estimator.n_jobs)
            n_true = int(np.diff(examples.indptr)[some].sum())
            return best_threshold(scores, examples.contains(some, ids), n_true)
    return 0.0
