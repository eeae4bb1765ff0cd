"""LTLSClassifier and a reference learner that enumerates all paths, on the same rows."""

import numpy as np
import pytest
from reference_learner import ReferenceLearner, class_weights

from ltls import LTLSClassifier, TableCodebook
from ltls.settings import Numbers, Trellises
from ltls.structure.losses import LOSSES as REGISTERED

LOSSES = list(REGISTERED)
OPTIMIZERS = ["sgd", "adagrad"]
SIZES = [(22, 2), (13, 3), (30, 5)]  # classes, width; all have early exits
N_ROWS, N_FEATURES, EPOCHS = 100, 12, 2
MULTILABEL = pytest.mark.parametrize("multilabel", [False, True], ids=["one", "several"])

with_each_loss = pytest.mark.parametrize("loss", LOSSES)
with_each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)
with_each_size = pytest.mark.parametrize(("n_classes", "width"), SIZES)


def settings_of(loss, optimizer, average=False, l1=False):
    """Parameters of both learners.

    SGD steps of the separation loss are sums of small powers of two: nothing is rounded, and ties
    are ties for both learners.
    """
    exact = is_exact(loss, optimizer)
    return {
        "loss": loss,
        "optimizer": optimizer,
        "average": average,
        "learning_rate": 1.0 if exact else 0.3,
        "l1": 0.0 if not l1 else 0.125 if exact else 0.05,
    }


def is_exact(loss, optimizer):
    return loss == "separation" and optimizer == "sgd"


def draw(seed, n_classes, multilabel=False, exact=False):
    """Rows that have every label, and some without labels where that is allowed."""
    rng = np.random.default_rng(seed)
    shape = N_ROWS, N_FEATURES
    values = rng.integers(-4, 5, shape) / 4 if exact else rng.normal(size=shape)
    X = (values * (rng.random(shape) < 0.6)).astype(np.float32)
    one = rng.permutation(np.arange(N_ROWS) % n_classes).tolist()
    labels = [[label] for label in one]
    if multilabel:
        labels = [
            sorted({label, *rng.integers(0, n_classes, rng.integers(0, 4)).tolist()})
            for label in one
        ]
        for row in rng.choice(N_ROWS, 5, replace=False):
            if all(any(c in labels[i] for i in range(N_ROWS) if i != row) for c in labels[row]):
                labels[row] = []
    return X, labels


def as_target(labels, multilabel):
    return labels if multilabel else np.array([label for (label,) in labels])


def trellises_only(trellises, intercept=True, **parameters):
    """A classifier that is one trellis, whose weights are not rounded."""
    features = Numbers(normalize=False, standardize=False, fit_intercept=intercept)
    return LTLSClassifier(
        features=features, trellises=trellises, views=False, label_weights=False, **parameters
    )


def classifier(X, labels, *, multilabel=False, sample_weight=None, class_weight=None, **settings):
    plain = {"width": 2, "n_trellises": 1, "learning_rate": 0.3, "average": False}
    usual = {**plain, "shuffle": False, "epochs": EPOCHS, "dtype": "float32"}
    intercept = settings.pop("fit_intercept", True)
    given = Trellises(**{**usual, **settings})
    model = trellises_only(given, intercept, class_weight=class_weight)
    return model.fit(X, as_target(labels, multilabel), sample_weight=sample_weight)


def plain_learner(codebook, average=False):
    """One epoch of the paper's step, which can be worked out by hand."""
    trellises = Trellises(
        loss="separation",
        optimizer="sgd",
        learning_rate=1.0,
        average=average,
        epochs=1,
        shuffle=False,
        width=2,
        assignment=codebook,
        dtype="float32",
    )
    return trellises_only(trellises, intercept=False)


def trained_both(
    n_classes,
    multilabel,
    loss,
    optimizer,
    paths=None,
    sample_weight=None,
    class_weight=None,
    **more,
):
    """Train the classifier and the reference; return both, and the rows.

    Two paths may have the same score up to rounding, and both are right although training then
    diverges. So is AdaGrad's first step, ±rate whatever the size of the gradient, where the
    gradient is 0 up to rounding. Data on which a change in the last bits of the features changes
    the result are therefore skipped.
    """
    exact = is_exact(loss, optimizer) and class_weight is None  # a mean of weights is rounded
    parameters = {"loss": loss, "optimizer": optimizer, **more}
    assignment = "ranking" if paths is None else TableCodebook(n_classes, paths)
    for seed in range(30):
        X, labels = draw(seed, n_classes, multilabel, exact)
        model = classifier(
            X,
            labels,
            multilabel=multilabel,
            sample_weight=sample_weight,
            class_weight=class_weight,
            assignment=assignment,
            **parameters,
        )
        weights = np.ones(N_ROWS) if sample_weight is None else sample_weight
        if class_weight is not None:
            weights = weights * class_weights(labels, n_classes, class_weight)

        def reference_learner(
            X, labels=labels, weights=weights, hint=model.codebooks_[0].path_of, **more
        ):
            learner = ReferenceLearner(
                n_classes,
                N_FEATURES,
                multilabel=multilabel,
                paths=paths,
                hint=hint,
                closeness=0 if exact else 1e-5,
                **parameters,
                **more,
            )
            return learner.fit(X, labels, weights, EPOCHS)

        reference = reference_learner(X)
        if exact or (loss == "logistic" and paths is not None):
            return model, reference, X
        rng = np.random.default_rng(seed)
        nudges = (1 + 2.0**-22 * rng.choice([-1, 1], X.shape) for _ in range(3))
        others = (reference_learner(X * nudge, rounding=rng) for nudge in nudges)
        if all(
            np.array_equal(other.paths, reference.paths)
            and distance(other.learned, reference.learned) < 5e-6
            for other in others
        ):
            return model, reference, X
    raise AssertionError("every draw depends on rounding")


def distance(ours, theirs):
    """The largest difference, in units of the largest number."""
    assert ours.shape == theirs.shape
    scale = np.abs(theirs).max(initial=0)
    return np.abs(ours - theirs).max(initial=0) / (scale if scale else 1)


def assert_same_model(model, reference, tolerance=1e-5):
    weights = np.column_stack([model.coef_, model.intercept_])
    assert np.abs(reference.learned).max() > 0.1
    assert distance(weights, reference.learned.T) <= tolerance
    np.testing.assert_allclose(model.loss_curve_, reference.loss_curve, rtol=1e-4, atol=1e-6)


def assert_same_predictions(model, reference, X, k):
    labels, scores = model.predict_topk(X, k)
    expected_labels, expected_scores = reference.topk(X, k + 1)
    tolerance = 2e-5 * max(1, np.abs(expected_scores[:, :k]).max())
    assert labels.shape == scores.shape == (len(X), k)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected_scores[:, :k], rtol=0, atol=tolerance)
    clear = -np.diff(expected_scores, axis=1) > 3 * tolerance  # rank i and i + 1 are apart
    clear = clear & np.column_stack([np.full(len(X), True), clear[:, :-1]])
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(labels[clear], expected_labels[:, :k][clear])
