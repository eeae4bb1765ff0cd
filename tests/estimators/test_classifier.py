"""LTLSClassifier as a scikit-learn estimator."""

import os
import signal
import threading
import time
import warnings

import joblib
import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ltls import LTLSClassifier, RandomCodebook, TableCodebook, presets
from ltls.training.interrupt import TrainingInterruptedWarning

LOSSES = ["separation", "softmax", "logistic"]
POLICIES = ["ranking", "random", "similarity", "frequency", "learned"]

ORDER = "SGD takes rows one after another: a repeated row is not a row of double weight"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": ORDER,
    "check_sample_weight_equivalence_on_sparse_data": ORDER,
}


@parametrize_with_checks(
    [
        LTLSClassifier(random_state=0),
        LTLSClassifier(random_state=0, loss="logistic", width=4),
        presets.paper(epochs=200, shuffle=True, fit_intercept=True, random_state=0),
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_estimator_checks_of_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.fixture(scope="module")
def tags():
    return make_multilabel_classification(
        300, n_features=20, n_classes=12, n_labels=3, random_state=0
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("assignment", POLICIES)
@pytest.mark.parametrize("width", [2, 5, 10])
def test_every_loss_assignment_and_width_learns_digits(digits, loss, assignment, width):
    X, y = digits
    model = LTLSClassifier(width=width, loss=loss, assignment=assignment, random_state=0, epochs=8)
    assert model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.6


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("l1", [0.0, 0.01])
def test_parameters_work_together(digits, loss, optimizer, average, l1):
    X, y = digits
    model = LTLSClassifier(
        width=4,
        loss=loss,
        optimizer=optimizer,
        learning_rate=0.1,
        average=average,
        l1=l1,
        epochs=8,
        shuffle=False,
        validation_fraction=0.1,
        n_jobs=2,
        random_state=0,
    )
    assert model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.7


@pytest.mark.parametrize(
    "labels",
    [
        [f"digit {i}" for i in range(10)],
        [i * 10**12 for i in range(10)],
        [(i, "x") for i in range(10)],
        [bool(i % 2) for i in range(10)],
        [f"{i}" if i % 2 else i for i in range(10)],
        [float(i) for i in range(10)],
    ],
    ids=["str", "large int", "tuple", "bool", "mixed", "float"],
)
def test_labels_of_any_hashable_type_are_returned_unchanged(digits, labels):
    X, y = digits
    given = [labels[i] for i in y]
    model = LTLSClassifier(width=4, random_state=0).fit(X, given)
    assert set(model.classes_.tolist()) == set(given)
    predicted = model.predict(X).tolist()
    assert np.mean([a == b for a, b in zip(predicted, given, strict=True)]) > 0.9
    assert {type(label) for label in predicted} <= {type(label) for label in given}


@pytest.mark.parametrize("container", [csr_array, csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_and_dense_features_give_the_same_model(digits, container, dtype, index):
    X, y = digits
    dense = LTLSClassifier(normalize=False, random_state=0).fit(X.astype(dtype), y)
    sparse = container(X.astype(dtype))
    sparse.indices, sparse.indptr = sparse.indices.astype(index), sparse.indptr.astype(index)
    model = LTLSClassifier(normalize=False, random_state=0).fit(sparse, y)
    np.testing.assert_array_equal(model.coef_, dense.coef_)
    np.testing.assert_array_equal(model.predict(sparse), dense.predict(X.astype(dtype)))


def test_duplicate_entries_of_a_row_are_summed(digits):
    X, y = digits
    once = csr_array(X)
    twice = csr_array(
        (np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), once.indptr * 2),
        shape=once.shape,
    )
    entries = twice.nnz
    expected = LTLSClassifier(random_state=0).fit(once, y)
    model = LTLSClassifier(random_state=0).fit(twice, y)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert twice.nnz == entries


@pytest.mark.parametrize("loss", LOSSES)
def test_multilabel_formats_of_y_agree(tags, loss):
    X, Y = tags
    lists = [np.flatnonzero(row).tolist() for row in Y]
    model = LTLSClassifier(width=4, loss=loss, random_state=0)
    dense = clone(model).fit(X, Y).predict(X)
    sparse = clone(model).fit(X, csr_array(Y)).predict(X)
    listed = clone(model).fit(X, lists).predict(X)
    assert isinstance(dense, np.ndarray)
    np.testing.assert_array_equal(sparse.toarray(), dense)
    np.testing.assert_array_equal(listed.toarray(), dense)
    assert dense.any(axis=1).mean() > 0.5


def test_multilabel_lists_may_hold_strings(tags):
    X, Y = tags
    lists = [[f"tag{j}" for j in np.flatnonzero(row)] for row in Y]
    model = LTLSClassifier(loss="logistic", epochs=20, random_state=0).fit(X, lists)
    assert model.classes_.tolist() == sorted({label for row in lists for label in row})
    labels, scores = model.predict_topk(X, 3)
    assert np.mean([best in row for best, row in zip(labels[:, 0], lists, strict=True)]) > 0.7
    assert (np.diff(scores, axis=1) <= 0).all()


def test_the_threshold_gives_a_better_f1_than_others(tags):
    X, Y = tags
    model = LTLSClassifier(width=4, loss="logistic", random_state=0).fit(X, Y)

    def f1(threshold):
        model.threshold_ = threshold
        predicted = model.predict(X)
        return 2 * (predicted & Y).sum() / (predicted.sum() + Y.sum())

    chosen = model.threshold_
    best = f1(chosen)
    assert best > 0.5
    assert all(f1(chosen + change) <= best for change in (-1, -0.3, 0.3, 1))


def test_probabilities_over_all_paths_sum_to_one(digits):
    X, y = digits
    model = LTLSClassifier(width=3, random_state=0).fit(X, y)
    every = [model.log_proba(X[:50], np.full(50, label)) for label in model.classes_]
    np.testing.assert_allclose(np.exp(every).sum(axis=0), 1, rtol=1e-5)
    one = LTLSClassifier(width=3, n_trellises=1, calibrate=False, random_state=0).fit(X, y)
    every = [one.log_proba(X[:50], np.full(50, label)) for label in one.classes_]
    np.testing.assert_allclose(np.exp(every).T, one.predict_proba(X[:50]), atol=1e-5)


def test_probabilities_of_free_paths_are_those_of_labels_not_seen_yet(digits):
    X, y = digits
    model = LTLSClassifier(width=4, n_trellises=1, random_state=0)
    model.partial_fit(X[y < 3], y[y < 3])
    h = model.edge_scores(X[:50])
    paths = np.arange(model.trellis_.n_classes)
    all_paths = model.trellis_.score(h, np.tile(paths, (50, 1)))
    all_paths -= model.trellis_.log_partition(h)[:, None]
    known = np.exp([model.log_proba(X[:50], np.full(50, label)) for label in model.classes_])
    free = np.setdiff1d(paths, model.codebook_.path_of(np.arange(len(model.classes_))))
    assert len(free)
    np.testing.assert_allclose(known.sum(axis=0) + np.exp(all_paths[:, free]).sum(axis=1), 1, 1e-4)


def test_an_unseen_label_has_no_log_probability(digits):
    X, y = digits
    model = LTLSClassifier(random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="labels of classes_, got 77"):
        model.log_proba(X[:2], [1, 77])


def test_decision_function_and_topk_agree(digits):
    X, y = digits
    for loss in LOSSES:
        model = LTLSClassifier(width=3, loss=loss, random_state=0).fit(X, y)
        scores = model.decision_function(X)
        labels, best = model.predict_topk(X, 10)
        np.testing.assert_allclose(-np.sort(-scores, axis=1), best, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(labels[:, 0], model.predict(X))


def test_dense_results_that_are_too_large_are_rejected():
    X = csr_array((3_000_000, 5), dtype=np.float32)
    model = LTLSClassifier(epochs=1).fit(np.eye(200, 5), np.arange(200))
    with pytest.raises(ValueError, match=r"decision_function .* 3000000 rows × 200 classes"):
        model.decision_function(X)
    with pytest.raises(ValueError, match="predict_topk"):
        model.predict_proba(X)


def test_only_losses_with_probabilities_have_predict_proba():
    assert hasattr(LTLSClassifier(loss="softmax"), "predict_proba")
    assert hasattr(LTLSClassifier(loss="logistic"), "predict_proba")
    assert not hasattr(LTLSClassifier(loss="separation"), "predict_proba")
    assert not hasattr(LTLSClassifier(loss="logistic"), "log_proba")


@pytest.mark.parametrize(
    "codebook", [RandomCodebook(10, 3), TableCodebook(12, np.arange(10)[::-1])]
)
def test_a_given_codebook_is_used_and_not_modified(digits, codebook):
    X, y = digits
    paths = codebook.path_of(np.arange(10))
    model = LTLSClassifier(assignment=codebook, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.codebook_.path_of(np.arange(10)), paths)
    assert model.trellis_.n_classes == codebook.n_paths
    model.partial_fit(X[:20], np.full(20, 99))
    assert codebook.n_paths in (10, 12)
    assert np.array_equal(codebook.path_of(np.arange(10)), paths)


def test_similarity_puts_similar_labels_on_similar_paths():
    rng = np.random.default_rng(0)
    groups = np.arange(64) // 8
    centers = rng.normal(size=(8, 30))[groups] + 0.1 * rng.normal(size=(64, 30))
    y = np.tile(np.arange(64), 5)
    X = centers[y] + 0.01 * rng.normal(size=(320, 30))
    model = LTLSClassifier(assignment="similarity", epochs=1, random_state=0).fit(X, y)
    matrix = model.trellis_.matrix()[model.codebook_.path_of(np.arange(64))].toarray()
    shared = matrix @ matrix.T
    same_group = groups[:, None] == groups
    others = ~np.eye(64, dtype=bool)
    assert shared[same_group & others].mean() > 1.3 * shared[~same_group].mean()


def test_frequency_gives_frequent_labels_the_small_paths(digits):
    X, _ = digits
    y = np.random.default_rng(0).geometric(0.3, len(X)).clip(max=12)
    model = LTLSClassifier(assignment="frequency", epochs=1).fit(X, y)
    counts = np.bincount(y)[model.classes_]
    order = np.argsort(model.codebook_.path_of(np.arange(len(counts))))
    assert (np.diff(counts[order]) <= 0).all()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_same_random_state_gives_the_same_model(digits, n_jobs):
    X, y = digits
    model = LTLSClassifier(width=3, random_state=7, n_jobs=n_jobs, validation_fraction=0.2)
    first, second = clone(model).fit(X, y), clone(model).fit(X, y)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    other = clone(model).set_params(random_state=8).fit(X, y)
    assert not np.array_equal(first.coef_, other.coef_)


def test_early_stopping_keeps_the_best_epoch(digits):
    X, y = digits
    model = LTLSClassifier(
        width=10, epochs=60, validation_fraction=0.3, n_iter_no_change=4, random_state=0
    ).fit(X, y)
    assert 4 < model.n_iter_ < 60
    assert len(model.loss_curve_) == model.n_iter_
    stopped_at_best = clone(model).set_params(epochs=model.n_iter_ - 4).fit(X, y)
    np.testing.assert_array_equal(model.coef_, stopped_at_best.coef_)
    one_less = clone(model).set_params(epochs=model.n_iter_ - 5).fit(X, y)
    assert not np.array_equal(model.coef_, one_less.coef_)


def test_warm_start_continues_training(digits):
    X, y = digits
    settings = {"n_trellises": 3, "shuffle": False, "calibrate": False, "random_state": 0}
    model = LTLSClassifier(epochs=1, warm_start=True, **settings)
    model.fit(X, y).fit(X, y)
    twice = LTLSClassifier(epochs=2, **settings).fit(X, y)
    np.testing.assert_array_equal(model.coef_, twice.coef_)
    with pytest.raises(ValueError, match=r"classes of the last fit, got 10, .* partial_fit"):
        model.fit(X, y + 1)
    with pytest.raises(ValueError, match=r"got no row of 9; use partial_fit"):
        model.fit(X[y < 9], y[y < 9])
    with pytest.raises(ValueError, match="X must have 64 features, as in the last fit, got 63"):
        model.fit(X[:, 1:], y)
    model.learning_rate = 1e38
    with pytest.raises(ValueError, match="became infinite"):
        model.fit(X, y)
    np.testing.assert_array_equal(model.coef_, twice.coef_)


def test_rows_of_weight_0_are_ignored(digits):
    X, y = digits
    weight = (y != 3).astype(float)
    model = LTLSClassifier(width=4, random_state=0).fit(X, y, sample_weight=weight)
    assert (model.predict(X) == 3).mean() < 0.02


def test_class_weight_favours_a_class(digits):
    X, y = digits
    plain = LTLSClassifier(random_state=0, epochs=2).fit(X, y)
    heavy = LTLSClassifier(random_state=0, epochs=2, class_weight={8: 20.0}).fit(X, y)
    assert (heavy.predict(X) == 8).sum() > (plain.predict(X) == 8).sum()
    balanced = LTLSClassifier(random_state=0, class_weight="balanced").fit(X, y)
    assert balanced.score(X, y) > 0.8


def test_multilabel_score_of_own_predictions_and_of_unseen_labels(tags):
    X, Y = tags
    lists = [[f"tag{j:02d}" for j in np.flatnonzero(row)] for row in Y]
    model = LTLSClassifier(width=4, random_state=0).fit(X, lists)
    assert model.score(X, model.predict(X)) == 1.0
    assert model.score(X, [["never seen"]] * len(X)) == 0.0
    with pytest.raises(ValueError, match="several labels per row"):
        model.score(X, ["tag01"] * len(X))


@pytest.mark.perf
def test_one_row_of_all_labels_does_not_slow_the_others_down():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 10))
    rows = [[int(label)] for label in rng.integers(4000, size=2000)]
    rows[7] = list(range(4000))
    start = time.perf_counter()
    LTLSClassifier(loss="softmax", epochs=1, random_state=0).fit(X, rows)
    assert time.perf_counter() - start < 3


def test_partial_fit_after_early_stopping_continues_from_the_best_weights(digits):
    X, y = digits
    model = LTLSClassifier(
        width=10, epochs=60, validation_fraction=0.3, random_state=0, average=True, l1=0.01
    ).fit(X, y)
    before = model.coef_.copy()
    model.partial_fit(X[:1], y[:1], sample_weight=[0])
    np.testing.assert_allclose(model.coef_, before, atol=1e-6)


@pytest.mark.perf
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
def test_ctrl_c_stops_training_within_a_second():
    X, y = make_classification(
        20_000, n_features=60, n_informative=30, n_classes=20, random_state=0
    )
    model = LTLSClassifier(epochs=100_000, width=4, random_state=0)
    pressed = []

    def press():
        time.sleep(1.0)
        pressed.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.warns(TrainingInterruptedWarning):
        model.fit(X, y)
    stopped = time.perf_counter()
    thread.join()
    assert stopped - pressed[0] < 1
    assert model.score(X, y) > 0.2


def test_pipelines_and_searches_of_scikit_learn(digits):
    X, y = digits
    pipeline = make_pipeline(MaxAbsScaler(), LTLSClassifier(random_state=0))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.7
    search = GridSearchCV(
        LTLSClassifier(n_trellises=1, random_state=0), {"width": [2, 8], "loss": LOSSES}, cv=2
    ).fit(X, y)
    assert search.best_params_["width"] == 8


def test_joblib_round_trip(digits, tmp_path):
    X, y = digits
    model = LTLSClassifier(random_state=0, average=True, shuffle=False).fit(X, y)
    joblib.dump(model, tmp_path / "model.joblib")
    copy = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(copy.predict_topk(X, 3)[1], model.predict_topk(X, 3)[1])
    copy.partial_fit(X, y)
    model.partial_fit(X, y)
    np.testing.assert_array_equal(copy.coef_, model.coef_)


def test_pandas_frames_and_series(digits):
    pandas = pytest.importorskip("pandas", reason="pandas is missing; make test-all installs it")
    X, y = digits
    frame = pandas.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])
    model = LTLSClassifier(width=4, random_state=0).fit(frame, pandas.Series(y).map("{}".format))
    assert model.feature_names_in_[3] == "pixel 3"
    assert model.score(frame, [f"{i}" for i in y]) > 0.9
    tags = pandas.Series([[f"tag {i}", "digit"] for i in y])
    assert "digit" in LTLSClassifier(epochs=1).fit(frame, tags).classes_
    with pytest.raises(ValueError, match="missing labels"):
        LTLSClassifier().fit(frame, pandas.Series([pandas.NA, *"abc"] * 449 + ["a"]))


def test_verbose_shows_progress(digits, capsys):
    LTLSClassifier(epochs=2, verbose=1).fit(*digits)
    shown = capsys.readouterr().err
    assert "epoch 2/2" in shown
    assert "P@1" in shown
    LTLSClassifier(epochs=2).fit(*digits)
    assert capsys.readouterr().err == ""
