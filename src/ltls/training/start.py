"""A model when learning begins: a new one, or one that learns on."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..structure.policies import assign, given_codebooks
from .auto import Plan
from ..model.labels import Labels, Targets
from ..linear.trainable import Learner
from ..model.fitted import Model
from ..structure.trellis import Trellis

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier

# What shapes a model and its learner, and cannot change while it learns.
_SETTINGS = ("width", "n_trellises", "size_budget", "loss", "optimizer", "average", "normalize",
             "fit_intercept", "l1")  # fmt: skip


def new_model(
    estimator: LTLSClassifier,
    X: Any,
    targets: Targets,
    labels: Labels,
    plan: Plan,
    rng: Any,
    room: int = 0,
    counts: npt.NDArray[np.int64] | None = None,
) -> Model:
    """Begin anew: trellis, codebooks and weights of 0.

    The rows given may be only some; then `counts` says how often each label occurs in all.
    """
    assignment = estimator.assignment
    if isinstance(assignment, str):
        trellis = Trellis(max(len(labels), room), plan.width)
        ids = labels.ids(targets)
        if counts is None:
            counts = np.bincount(ids, minlength=len(labels))
        codebooks = assign(
            assignment, trellis, plan.n_trellises, X, targets.indptr, ids, counts, rng
        )
    else:
        codebooks = given_codebooks(assignment, plan.n_trellises, len(labels))
        trellis = Trellis(codebooks[0].n_paths, plan.width)
    loss = estimator.loss
    if loss == "auto":
        loss = "logistic" if targets.multilabel else "softmax"
    model = Model(labels, trellis, codebooks, loss, estimator.l1, targets.multilabel, targets.form)
    normalize = estimator.normalize
    unit_length = hasattr(X, "indptr") if normalize == "auto" else bool(normalize)
    model.learner = _new_learner(estimator, model, X.shape[1], unit_length)
    return model


def taken_up_again(estimator: LTLSClassifier, X: Any, targets: Targets) -> Model:
    """Return a copy of the model of the last `fit`, to learn on from rows of the same classes."""
    estimator._check_same_kind(targets)
    model = estimator._learned
    if set(Labels.sorted(targets).values) != set(model.labels.values):
        raise ValueError(
            "warm_start goes on with the classes of the last fit, and y has others; "
            "use partial_fit for new labels, or warm_start=False"
        )
    if X.shape[1] != model.linear.n_features:
        raise ValueError("warm_start needs X with the features of the last fit")
    model = copy.deepcopy(model)  # the old one stays if learning fails
    model.n_rows, model.counts = 0, np.zeros(0, np.int64)
    let_learn(estimator, model)
    return model


def let_learn(estimator: LTLSClassifier, model: Model) -> None:
    """See that a model can learn on: from its weights if it came from a file, and as before."""
    if model.learner is None:
        linear = model.linear
        learner = _new_learner(estimator, model, linear.n_features, linear.unit_length)
        learner.go_on_from(linear, estimator.l1)
        learner.epochs = model.n_passes
        model.learner = learner
    for name, value in model.learner.settings.items():
        if getattr(estimator, name) != value:
            raise ValueError(
                f"{name} must stay {value!r} while a model learns on, got "
                f"{getattr(estimator, name)!r}; fit without warm_start begins anew"
            )


def _new_learner(
    estimator: LTLSClassifier, model: Model, n_features: int, unit_length: bool
) -> Learner:
    return Learner(
        model.trellis,
        len(model.codebooks),
        n_features,
        intercept=estimator.fit_intercept,
        unit_length=unit_length,
        adagrad=estimator.optimizer == "adagrad",
        average=estimator.average,
        settings={name: getattr(estimator, name) for name in _SETTINGS},
    )
