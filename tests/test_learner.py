"""What LTLSClassifier learns, against a slow learner that enumerates all paths."""

import numpy as np
import pytest
from reference import Graph
from scipy.sparse import csr_array, csr_matrix
from scipy.sparse import random as sparse_random
from slow_learner import SlowLearner, class_weights

from ltls import LTLSClassifier, TableCodebook

LOSSES = ["separation", "softmax", "logistic"]
OPTIMIZERS = ["sgd", "adagrad"]
SIZES = [(22, 2), (13, 3), (30, 5)]  # classes, width; all have early exits
N_ROWS, N_FEATURES, EPOCHS = 100, 12, 2
MULTILABEL = pytest.mark.parametrize("multilabel", [False, True], ids=["one", "several"])

with_each_loss = pytest.mark.parametrize("loss", LOSSES)
with_each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)
with_each_size = pytest.mark.parametrize(("n_classes", "width"), SIZES)


def settings_of(loss, optimizer, average=False, l1=False):
    """Parameters that both learners understand.

    Plain steps of the separation loss have numbers that are sums of small powers of two: nothing is
    rounded, and ties are ties for both learners.
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
    """Examples that hold every label, and some without labels where that is allowed."""
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


def classifier(X, labels, *, multilabel=False, sample_weight=None, **parameters):
    plain = {"width": 2, "n_trellises": 1, "normalize": False, "learning_rate": 0.3}
    model = LTLSClassifier(**{**plain, "shuffle": False, "epochs": EPOCHS, **parameters})
    return model.fit(X, as_target(labels, multilabel), sample_weight=sample_weight)


def plain_learner(codebook, average=False):
    """One pass of the paper's step, whose numbers can be worked out by hand."""
    return LTLSClassifier(
        loss="separation",
        optimizer="sgd",
        learning_rate=1.0,
        average=average,
        epochs=1,
        shuffle=False,
        fit_intercept=False,
        width=2,
        assignment=codebook,
    )


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
    """The classifier, the slow learner, and the rows from which both have learned.

    Two paths may score the same but for rounding. The learner that takes the other one is as right
    as we are and learns something else. The same goes for AdaGrad's first step, ±rate whatever the
    gradient, where the gradient is 0 but for rounding. So features that are moved by their last
    bits must teach the same; if not, rounding decides, and other examples are drawn.
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

        def slow_learner(X, labels=labels, weights=weights, hint=model.codebook_.path_of, **more):
            learner = SlowLearner(
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

        slow = slow_learner(X)
        if exact or (loss == "logistic" and paths is not None):
            return model, slow, X
        rng = np.random.default_rng(seed)
        nudges = (1 + 2.0**-22 * rng.choice([-1, 1], X.shape) for _ in range(3))
        others = (slow_learner(X * nudge, rounding=rng) for nudge in nudges)
        if all(
            np.array_equal(other.paths, slow.paths) and distance(other.learned, slow.learned) < 5e-6
            for other in others
        ):
            return model, slow, X
    raise AssertionError("rounding decides everywhere")


def distance(ours, theirs):
    """The largest difference, in units of the largest number."""
    assert ours.shape == theirs.shape
    scale = np.abs(theirs).max(initial=0)
    return np.abs(ours - theirs).max(initial=0) / (scale if scale else 1)


def assert_same_model(model, slow, tolerance=1e-5):
    weights = np.column_stack([model.coef_, model.intercept_])
    assert np.abs(slow.learned).max() > 0.1
    assert distance(weights, slow.learned.T) <= tolerance
    np.testing.assert_allclose(model.loss_curve_, slow.loss_curve, rtol=1e-4, atol=1e-6)


def assert_same_answers(model, slow, X, k):
    labels, scores = model.predict_topk(X, k)
    expected_labels, expected_scores = slow.topk(X, k + 1)
    tolerance = 2e-5 * max(1, np.abs(expected_scores[:, :k]).max())
    assert labels.shape == scores.shape == (len(X), k)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected_scores[:, :k], rtol=0, atol=tolerance)
    clear = -np.diff(expected_scores, axis=1) > 3 * tolerance  # rank i and i + 1 are apart
    clear = clear & np.column_stack([np.full(len(X), True), clear[:, :-1]])
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(labels[clear], expected_labels[:, :k][clear])


# The oracle's own losses.


@with_each_loss
@MULTILABEL
def test_the_slow_step_is_minus_the_gradient_of_the_slow_loss(loss, multilabel):
    rng = np.random.default_rng(5)
    learner = SlowLearner(13, 1, 3, loss=loss, multilabel=multilabel, paths=range(13))
    h = rng.normal(size=len(learner.graph.edges)).astype(np.float32)
    positive = [2, 7, 11] if multilabel else [7]
    around = [
        [learner.loss((h + s * e).astype(np.float32), positive)[0] for s in (-0.01, 0.01)]
        for e in np.eye(len(h))
    ]
    gradient = [(above - below) / 0.02 for below, above in around]
    loss, step = learner.loss(h, positive)
    assert loss > 0
    np.testing.assert_allclose(step, np.negative(gradient), atol=1e-3)


# The same weights.


@pytest.mark.parametrize("paths", [None, "given"], ids=["ranking", "given"])
@pytest.mark.parametrize("batch_size", [2, 7, 1000])
@with_each_optimizer
@with_each_loss
@MULTILABEL
def test_learns_in_batches_what_the_slow_learner_learns(
    multilabel, loss, optimizer, batch_size, paths
):
    parameters = settings_of(loss, optimizer, False, False)
    parameters |= {"width": 3, "ranking_multiplier": 22, "batch_size": batch_size}
    if paths is not None:
        paths = np.random.default_rng(0).permutation(22)
    model, slow, X = trained_both(22, multilabel, paths=paths, **parameters)
    assert_same_model(model, slow)
    assert_same_answers(model, slow, X[:30], 4)


@pytest.mark.parametrize("n_trellises", [1, 3])
@pytest.mark.parametrize("assignment", ["random", "ranking"])
@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_threads_that_share_batches_change_nothing(batch_size, assignment, n_trellises):
    rng = np.random.default_rng(3)
    X = sparse_random(400, 60, 0.2, "csr", np.float32, rng)
    y = rng.integers(30, size=400)

    def model(n_jobs):
        shape = {"width": 3, "n_trellises": n_trellises, "assignment": assignment}
        how = {"batch_size": batch_size, "average": True, "random_state": 0, "epochs": 2}
        return LTLSClassifier(n_jobs=n_jobs, **shape, **how).fit(X, y)

    one = model(None)
    for n_jobs in (2, 5):
        other = model(n_jobs)
        np.testing.assert_array_equal(other.coef_, one.coef_)
        assert other.loss_curve_ == one.loss_curve_


def test_batches_are_as_accurate_as_single_rows():
    rng = np.random.default_rng(4)
    centers = sparse_random(200, 500, 0.04, "csr", np.float32, rng)
    y = rng.integers(200, size=6000)
    X = (centers[y] + sparse_random(6000, 500, 0.02, "csr", np.float32, rng)).tocsr()

    def precision(batch_size):
        shape = {"width": 2, "n_trellises": 1, "rescore": 0, "assignment": "random"}
        model = LTLSClassifier(random_state=0, epochs=3, batch_size=batch_size, **shape)
        return model.fit(X[:5000], y[:5000]).score(X[5000:], y[5000:])

    alone = precision(1)
    assert 0.3 < alone < 0.99
    assert precision(32) > alone - 0.02


@pytest.mark.parametrize("l1", [False, True], ids=["", "l1"])
@pytest.mark.parametrize("average", [False, True], ids=["", "average"])
@with_each_optimizer
@with_each_loss
@MULTILABEL
@with_each_size
def test_learns_what_the_slow_learner_learns(
    n_classes, width, multilabel, loss, optimizer, average, l1
):
    parameters = settings_of(loss, optimizer, average, l1) | {"width": width}
    paths = np.random.default_rng(n_classes).permutation(n_classes)
    model, slow, X = trained_both(n_classes, multilabel, paths=paths, **parameters)
    np.testing.assert_array_equal(model.classes_, np.arange(n_classes))
    assert model.coef_.shape == (model.trellis_.n_edges, N_FEATURES)
    assert model.coef_.dtype == model.intercept_.dtype == np.float32
    assert model.n_iter_ == EPOCHS
    assert_same_model(model, slow)
    assert_same_answers(model, slow, X[:30], 4)


@pytest.mark.parametrize(("average", "l1"), [(False, False), (True, True)], ids=["", "average-l1"])
@with_each_optimizer
@with_each_loss
@MULTILABEL
@with_each_size
def test_assigns_labels_to_paths_as_the_slow_learner_does(
    n_classes, width, multilabel, loss, optimizer, average, l1
):
    parameters = settings_of(loss, optimizer, average, l1)
    parameters |= {"width": width, "ranking_multiplier": n_classes}
    model, slow, X = trained_both(n_classes, multilabel, **parameters)
    assert model.codebook_ == TableCodebook(n_classes, slow.paths)
    assert_same_model(model, slow)
    assert_same_answers(model, slow, X[:30], 4)


@pytest.mark.parametrize("multiplier", [1, 2])
@MULTILABEL
@with_each_size
def test_ranks_only_a_few_paths_for_a_new_label(n_classes, width, multilabel, multiplier):
    parameters = settings_of("separation", "sgd", average=True)
    parameters |= {"width": width, "ranking_multiplier": multiplier, "multilabel": multilabel}
    X, labels = draw(0, n_classes, multilabel, exact=True)
    X = X[np.arange(N_ROWS) % 2]  # two rows, for which the best paths are soon taken
    model = classifier(X, labels, assignment="ranking", **parameters)
    slow = SlowLearner(n_classes, N_FEATURES, hint=model.codebook_.path_of, **parameters)
    slow.fit(X, labels, epochs=EPOCHS)
    assert 0 < len(slow.open_choices) < n_classes - 3
    assert model.codebook_ == TableCodebook(n_classes, slow.paths)
    assert_same_model(model, slow)


@MULTILABEL
def test_labels_that_were_never_learned_take_the_paths_that_are_left(multilabel):
    X, labels = draw(0, 22, multilabel)
    weights = [float(not {3, 4, 17} & set(some)) for some in labels]
    model = classifier(
        X, labels, multilabel=multilabel, sample_weight=weights, assignment="ranking"
    )
    assert sorted(model.codebook_.path_of(np.arange(22))) == list(range(22))


@with_each_size
def test_exact_ties_go_to_the_smaller_path(n_classes, width):
    parameters = settings_of("separation", "sgd") | {"width": width}
    paths = np.random.default_rng(1).permutation(n_classes)
    model, slow, X = trained_both(n_classes, False, paths=paths, **parameters)
    np.testing.assert_array_equal(model.coef_, slow.coef)
    for k in (1, 3, n_classes):
        expected_labels, expected_scores = slow.topk(X, k)
        labels, scores = model.predict_topk(X, k)
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_array_equal(scores, expected_scores)
    assert (np.diff(expected_scores) == 0).any()
    np.testing.assert_array_equal(model.predict(X), slow.topk(X, 1)[0][:, 0])


@with_each_loss
def test_without_intercept(loss):
    parameters = settings_of(loss, "adagrad") | {"fit_intercept": False}
    model, slow, _ = trained_both(22, False, paths=range(22), **parameters)
    np.testing.assert_array_equal(model.intercept_, np.zeros(19))
    assert_same_model(model, slow)


@with_each_loss
@MULTILABEL
def test_the_l1_threshold_is_for_scoring_from_the_second_epoch_and_for_the_result(loss, multilabel):
    parameters = settings_of(loss, "sgd", l1=True)
    X, labels = draw(0, 22, multilabel, is_exact(loss, "sgd"))
    codebook = TableCodebook(22, range(22))

    def weights(l1, epochs):
        model = classifier(
            X,
            labels,
            multilabel=multilabel,
            assignment=codebook,
            **parameters | {"l1": l1, "epochs": epochs},
        )
        return np.column_stack([model.coef_, model.intercept_])

    def thresholded(some, l1):
        return np.sign(some) * np.maximum(np.abs(some) - l1, 0)

    l1 = parameters["l1"]
    after_one, after_two = weights(0.0, 1), weights(0.0, 2)
    np.testing.assert_allclose(weights(l1, 1), thresholded(after_one, l1), atol=1e-6)
    assert distance(weights(l1, 2), thresholded(after_two, l1)) > 1e-3


# Weights of examples.


@pytest.mark.parametrize("average", [False, True], ids=["", "average"])
@with_each_optimizer
@with_each_loss
@MULTILABEL
def test_sample_weight(multilabel, loss, optimizer, average):
    weights = np.random.default_rng(3).integers(0, 5, N_ROWS) / 2
    assert (weights == 0).any()
    parameters = settings_of(loss, optimizer, average) | {"sample_weight": weights}
    model, slow, _ = trained_both(22, multilabel, paths=range(22), **parameters)
    assert_same_model(model, slow)


@pytest.mark.parametrize(
    "class_weight",
    [{c: 2.0 ** (c % 3 - 1) for c in range(22)}, "balanced"],
    ids=["dict", "balanced"],
)
@with_each_optimizer
@with_each_loss
@MULTILABEL
def test_class_weight(multilabel, loss, optimizer, class_weight):
    parameters = settings_of(loss, optimizer) | {"class_weight": class_weight}
    model, slow, _ = trained_both(22, multilabel, paths=range(22), **parameters)
    assert_same_model(model, slow)


@MULTILABEL
def test_class_weight_and_sample_weight_are_multiplied(multilabel):
    model, slow, _ = trained_both(
        22,
        multilabel,
        paths=range(22),
        sample_weight=np.random.default_rng(4).integers(0, 5, N_ROWS) / 4,
        class_weight={c: (1 + c) / 16 for c in range(22)},
        **settings_of("softmax", "sgd"),
    )
    assert_same_model(model, slow)


def test_an_example_of_weight_0_is_not_learned_but_counts_for_the_average():
    X = np.array([[1.0], [1.0], [1.0]])
    y = [0, 1, 0]

    def weight_of_the_first_edge(sample_weight, average):
        model = plain_learner(TableCodebook(2, [0, 1]), average=average)
        return model.fit(X, y, sample_weight=sample_weight).coef_[0, 0]

    assert weight_of_the_first_edge([1, 0, 0], average=False) == 1
    assert weight_of_the_first_edge([1, 0, 0], average=True) == pytest.approx(3 / 4)
    assert weight_of_the_first_edge([0, 0, 1], average=True) == pytest.approx(1 / 4)


# The same from all forms of the same examples.


@pytest.fixture(scope="module")
def plain():
    """Examples, and the classifier that learned them from dense float32."""
    X, labels = draw(23, 22)
    return X, labels, classifier(X, labels, random_state=0)


def as_csr(X, values, indices):
    X = csr_matrix(X.astype(values))
    X.indices, X.indptr = X.indices.astype(indices), X.indptr.astype(indices)
    return X


@pytest.mark.parametrize("indices", [np.int32, np.int64])
@pytest.mark.parametrize("values", [np.float32, np.float64])
def test_sparse_rows_teach_what_dense_rows_do(plain, values, indices):
    X, labels, expected = plain
    rows = as_csr(X, values, indices)
    assert rows.indices.dtype == indices
    model = classifier(rows, labels, random_state=0)
    assert distance(model.coef_, expected.coef_) <= 1e-5
    assert distance(model.intercept_, expected.intercept_) <= 1e-5
    expected_scores = expected.predict_topk(X, 3)[1]
    np.testing.assert_allclose(model.predict_topk(rows, 3)[1], expected_scores, atol=1e-4)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda X: X.astype(np.float64), id="float64"),
        pytest.param(np.asfortranarray, id="columns"),
        pytest.param(lambda X: np.repeat(X, 2, axis=1)[:, ::2], id="strides"),
        pytest.param(lambda X: csr_array(X), id="csr_array"),
        pytest.param(lambda X: csr_matrix(X).tocsc(), id="csc"),
        pytest.param(lambda X: csr_matrix(X).tocoo(), id="coo"),
        pytest.param(lambda X: X.tolist(), id="lists"),
    ],
)
def test_other_forms_of_rows_teach_the_same(plain, form):
    X, labels, expected = plain
    model = classifier(form(X), labels, random_state=0)
    assert distance(model.coef_, expected.coef_) <= 1e-5
    assert distance(model.edge_scores(form(X)), expected.edge_scores(X)) <= 1e-5


def test_entries_of_a_sparse_row_that_name_the_same_feature_are_summed(plain):
    X, labels, expected = plain
    whole = csr_matrix(X)
    halves = csr_matrix(
        (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), whole.indptr * 2), X.shape
    )
    assert halves.nnz == 2 * whole.nnz
    model = classifier(halves, labels, random_state=0)
    assert distance(model.coef_, expected.coef_) <= 1e-5
    assert distance(model.edge_scores(halves), expected.edge_scores(X)) <= 1e-5
    assert halves.nnz == 2 * whole.nnz


def test_zeros_that_a_sparse_row_stores_teach_nothing(plain):
    X, labels, expected = plain
    everything = csr_matrix(np.ones_like(X))
    everything.data[:] = X.ravel()
    model = classifier(everything, labels, random_state=0)
    assert distance(model.coef_, expected.coef_) <= 1e-5


@with_each_loss
def test_forms_of_several_labels_teach_the_same(loss):
    X, labels = draw(8, 22, multilabel=True)
    indicator = np.zeros((N_ROWS, 22), int)
    for row, some in enumerate(labels):
        indicator[row, some] = 1
    parameters = settings_of(loss, "adagrad") | {"assignment": TableCodebook(22, range(22))}
    parameters |= {"shuffle": False, "epochs": EPOCHS}
    expected = LTLSClassifier(**parameters).fit(X, labels)
    for form in (indicator, indicator.astype(bool), csr_matrix(indicator), csr_array(indicator)):
        model = LTLSClassifier(**parameters).fit(X, form)
        np.testing.assert_array_equal(model.classes_, np.arange(22))
        np.testing.assert_array_equal(model.coef_, expected.coef_)
    names = [[f"label {c:02}" for c in reversed(some)] for some in labels]
    model = LTLSClassifier(**parameters).fit(X, names)
    assert list(model.classes_) == [f"label {c:02}" for c in range(22)]
    np.testing.assert_array_equal(model.coef_, expected.coef_)


def test_the_names_of_classes_change_nothing(plain):
    X, labels, expected = plain
    named = [[f"class {label:02}"] for (label,) in labels]
    model = classifier(X, named, random_state=0)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert list(model.predict(X)) == [f"class {label:02}" for label in expected.predict(X)]


# Shuffling.


def test_a_shuffled_epoch_visits_every_example_once():
    X = np.eye(N_ROWS, dtype=np.float32)
    y = np.arange(N_ROWS) % 22
    parameters = {"loss": "separation", "optimizer": "sgd", "learning_rate": 1.0, "epochs": 1}
    parameters |= {"fit_intercept": False, "assignment": TableCodebook(22, range(22))}
    # Every example has a feature of its own, so that the order has no effect on the plain weights.
    in_order = LTLSClassifier(**parameters, shuffle=False).fit(X, y)
    shuffled = LTLSClassifier(**parameters, shuffle=True, random_state=0).fit(X, y)
    np.testing.assert_array_equal(shuffled.coef_, in_order.coef_)
    # The average weighs every example by its turn: 1 − turn / (N + 1) of every move is left.
    averaged = LTLSClassifier(**parameters, average=True, random_state=0).fit(X, y)
    left = np.abs(averaged.coef_).max(axis=0)
    turns = (N_ROWS + 1) * (1 - left)
    np.testing.assert_allclose(np.sort(turns), np.arange(1, N_ROWS + 1), atol=1e-3)
    assert (np.diff(turns) < 0).any()


# Answers.


@pytest.fixture(scope="module", params=LOSSES)
def trained(request):
    """(model, slow learner, rows) with one label per example."""
    loss = request.param
    paths = np.random.default_rng(6).permutation(22)
    return trained_both(22, False, paths=paths, **settings_of(loss, "adagrad"))


def test_edge_scores_are_the_rows_times_the_weights(trained):
    model, _, X = trained
    h = model.edge_scores(X)
    assert h.dtype == np.float32
    np.testing.assert_allclose(h, X @ model.coef_.T + model.intercept_, atol=1e-4)


def test_decision_function_has_the_score_of_every_class(trained):
    model, slow, X = trained
    scores = model.decision_function(X)
    np.testing.assert_allclose(scores, slow.label_scores(X), atol=2e-4)
    np.testing.assert_array_equal(model.predict(X), model.classes_[scores.argmax(axis=1)])


def test_topk_with_more_than_all_classes_has_all_classes(trained):
    model, _, X = trained
    labels, scores = model.predict_topk(X, 50)
    assert labels.shape == scores.shape == (N_ROWS, 22)
    np.testing.assert_array_equal(np.sort(labels), np.tile(np.arange(22), (N_ROWS, 1)))
    assert (np.diff(scores) <= 0).all()


def test_probabilities_exist_where_the_loss_has_them(trained):
    model, slow, X = trained
    if model.loss == "separation":
        assert not hasattr(model, "predict_proba")
        return
    expected = np.exp(slow.label_scores(X).astype(float))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-4)


def test_log_proba_is_the_score_of_the_given_label():
    X, labels = draw(2, 22)
    model = classifier(X, labels, loss="softmax", random_state=0)
    y = as_target(labels, multilabel=False)
    expected = model.decision_function(X)[np.arange(N_ROWS), y]
    np.testing.assert_allclose(model.log_proba(X, y), expected, atol=1e-4)
    everything = np.array([model.log_proba(X, np.full(N_ROWS, c)) for c in range(22)])
    np.testing.assert_allclose(np.exp(everything).sum(axis=0), 1, atol=1e-5)
    with pytest.raises(ValueError, match="22"):
        model.log_proba(X[:1], [22])


@with_each_loss
def test_two_classes_have_one_decision_the_second_minus_the_first(loss):
    X, labels = draw(0, 2)
    model = classifier(X, labels, loss=loss, random_state=0)
    labels, scores = model.predict_topk(X, 2)
    of_class = np.take_along_axis(scores, np.argsort(labels), axis=1)
    decision = model.decision_function(X)
    assert decision.shape == (N_ROWS,)
    np.testing.assert_allclose(decision, of_class[:, 1] - of_class[:, 0], atol=1e-4)
    np.testing.assert_array_equal(model.predict(X)[decision != 0], (decision > 0)[decision != 0])


@with_each_loss
def test_several_labels_are_those_from_the_threshold_on(loss):
    X, labels = draw(31, 22, multilabel=True)
    model = classifier(X, labels, multilabel=True, loss=loss, epochs=20, random_state=0)
    assert model.multilabel_
    scores = model.decision_function(X)
    answer = model.predict(X)
    answer = answer.toarray() if hasattr(answer, "toarray") else answer
    assert answer.shape == scores.shape == (N_ROWS, 22)
    clear = np.abs(scores - model.threshold_) > 1e-4
    np.testing.assert_array_equal(answer[clear], (scores >= model.threshold_)[clear])
    assert 0 < answer.sum() < answer.size


def test_the_probability_of_several_labels_is_their_score():
    X, labels = draw(31, 22, multilabel=True)
    model = classifier(X, labels, multilabel=True, loss="logistic", random_state=0)
    scores = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X), np.exp(scores), rtol=1e-4, atol=1e-7)


# Worked examples.


# Tail and head of e_0 … e_18 in the paper's figures 1 and 2.
PAPER_EDGES = [
    *[(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 10), (3, 5), (3, 6), (4, 5), (4, 6)],
    *[(5, 10), (5, 7), (5, 8), (6, 7), (6, 8), (7, 9), (8, 9), (9, 10)],
]


def paper_edges(numbers):
    """The engine's numbers of edges that have the paper's numbers."""
    edges = Graph(22).edges
    return [edges.index(PAPER_EDGES[number]) for number in numbers]


@MULTILABEL
def test_figure_2_of_the_paper(multilabel):
    graph = Graph(22)
    positive = graph.path_id(paper_edges([0, 2, 8, 14, 16, 18]))
    negative = graph.path_id(paper_edges([0, 2, 7, 12, 16, 18]))
    # The first example makes the red path the best for its feature, the second one belongs to the
    # green path; the other labels are there but not learned.
    labels = [[negative], [positive], *[[c] for c in range(22) if c not in (negative, positive)]]
    X = np.ones((22, 3), np.float32)
    X[0] = [1, 0, 0]
    X[1] = [0.5, -0.25, 2]

    def weights_after(n_examples):
        model = plain_learner(TableCodebook(22, range(22)))
        learned = (np.arange(22) < n_examples).astype(float)
        return model.fit(X, as_target(labels, multilabel), sample_weight=learned).coef_

    expected = np.zeros((19, 3), np.float32)
    expected[paper_edges([8, 14])] = X[1]
    expected[paper_edges([7, 12])] = -X[1]
    np.testing.assert_array_equal(weights_after(2) - weights_after(1), expected)


@MULTILABEL
def test_a_margin_of_just_1_moves_the_weights_of_one_label_but_not_of_several(multilabel):
    # After a step for x = 1 the two paths of C = 2, which share no edge but the last, score ±2x.
    # For x = 1/4 they are 1 apart.
    model = plain_learner(TableCodebook(2, [0, 1]))
    model.fit([[1], [0.25], [1]], as_target([[0], [0], [1]], multilabel), sample_weight=[1, 1, 0])
    weight = 1 if multilabel else 1.25
    np.testing.assert_array_equal(model.coef_[:, 0], [weight, -weight, weight, -weight, 0])


def test_several_labels_move_the_worst_of_them():
    # All paths score 0 at first: the smallest id is the worst positive and the best negative.
    model = plain_learner(TableCodebook(22, range(22)))
    model.fit([[1], [0]], [[9, 4, 0], list(range(22))])
    paths = Graph(22).paths
    expected = np.zeros(19)
    expected[paths[0]] += 1
    expected[paths[1]] -= 1
    np.testing.assert_array_equal(model.coef_[:, 0], expected)


@with_each_loss
def test_an_example_without_labels_teaches_only_the_logistic_loss(loss):
    model = LTLSClassifier(loss=loss, epochs=1, shuffle=False, random_state=0)
    model.fit([[0, 1], [1, 0], [0, 1]], [[0], [], [1]])
    assert np.any(model.coef_[:, 0] != 0) == (loss == "logistic")


@pytest.mark.parametrize("loss", ["separation", "logistic"])
def test_the_mean_loss_counts_the_examples_that_could_teach(loss):
    # Without a step every example has the loss of weights 0.
    model = LTLSClassifier(loss=loss, learning_rate=1e-30, optimizer="sgd", shuffle=False, epochs=1)
    X = np.ones((6, 1))
    y = [[0], [1], [], [2], [], [1, 2]]
    model.fit(X, y, sample_weight=[1, 0, 1, 3, 0, 1])
    if loss == "separation":
        expected = (1 + 3 + 1) / 3
    else:
        n_edges = model.trellis_.n_edges
        expected = n_edges * np.log(2) * (1 + 1 + 3 + 1) / 4
    np.testing.assert_allclose(model.loss_curve_, [expected], rtol=1e-6)


def test_the_mean_loss_of_softmax_at_the_start_is_log_c():
    X, labels = draw(0, 22)
    model = classifier(X, labels, loss="softmax", optimizer="sgd", learning_rate=1e-30)
    np.testing.assert_allclose(model.loss_curve_, [np.log(22)] * EPOCHS, rtol=1e-6)
