"""Hyperparameter search: `tune`, and the search space in scikit-learn's searches."""

import json
import math
import time

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, HalvingRandomSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import ltls
from ltls import LTLSClassifier
from ltls.structure.policies import POLICIES, RandomPolicy, register_policy
from ltls.training import interrupt
from ltls.tuning import SEARCH_SPACE, precision_at_1, tune

# Fast, and with much to gain.
SMALL = LTLSClassifier(width=2, n_trellises=1, embedding_dim=0, epochs=5, learning_rate=0.3)
FAST = {"estimator": SMALL, "random_state": 0, "verbose": 0}


@pytest.fixture(scope="module")
def tags():
    X, Y = make_multilabel_classification(
        400, n_features=20, n_classes=12, n_labels=3, random_state=0
    )
    return X / np.linalg.norm(X, axis=1, keepdims=True), Y


def formats(Y):
    return [Y, csr_array(Y), [np.flatnonzero(row).tolist() for row in Y]]


def test_precision_at_1_is_the_fraction_of_rows_whose_best_label_is_true(digits, tags):
    X, y = digits
    model = LTLSClassifier(random_state=0).fit(X[:500], y[:500])
    expected = np.mean(model.predict_topk(X, 1)[0][:, 0] == y)
    assert precision_at_1(model, X, y) == pytest.approx(expected)
    names = np.array([f"digit {digit}" for digit in y])
    named = LTLSClassifier(random_state=0).fit(X[:500], names[:500])
    assert precision_at_1(named, X, names) == pytest.approx(expected)
    assert precision_at_1(model, X[:3], [77, 77, 77]) == 0  # labels never seen
    X, Y = tags
    for y in formats(Y):
        model = LTLSClassifier(random_state=0).fit(X, y)
        best = model.predict_topk(X, 1)[0][:, 0]
        assert precision_at_1(model, X, y) == pytest.approx(Y[np.arange(len(X)), best].mean())


def test_precision_at_1_of_a_pipeline(digits):
    X, y = digits
    pipeline = make_pipeline(MaxAbsScaler(), LTLSClassifier(random_state=0)).fit(X, y)
    expected = np.mean(pipeline.predict(X) == y)
    assert precision_at_1(pipeline, X, y) == pytest.approx(expected)


def test_every_value_of_the_search_space_can_be_fitted(tags):
    X, Y = tags
    for name, values in SEARCH_SPACE.items():
        for value in values:
            model = LTLSClassifier(random_state=0, epochs=1).set_params(**{name: value})
            assert model.fit(X[:50], Y[:50]).n_iter_ >= 1


@pytest.mark.parametrize("several", [False, True])
def test_searches_of_scikit_learn_accept_the_search_space(digits, tags, several):
    X, y = tags if several else (digits[0][:400], digits[1][:400])
    model = clone(SMALL).set_params(random_state=0)
    space = {**SEARCH_SPACE, "epochs": [1, 2], "n_trellises": [1, 2]}
    halving = HalvingRandomSearchCV(
        model, space, n_candidates=4, min_resources=60, cv=2, factor=2,
        scoring=precision_at_1, random_state=0,
    ).fit(X, y)  # fmt: skip
    assert halving.n_iterations_ > 1
    assert set(halving.best_params_) == set(SEARCH_SPACE)
    assert 0 < halving.best_score_ <= 1
    small = {"width": SEARCH_SPACE["width"][:2], "loss": SEARCH_SPACE["loss"]}
    grid = GridSearchCV(model, small, cv=2, scoring=precision_at_1).fit(X, y)
    assert len(grid.cv_results_["params"]) == 4
    assert not np.isnan(grid.cv_results_["mean_test_score"]).any()


@pytest.mark.parametrize("number", range(3))
def test_searches_of_scikit_learn_accept_every_multilabel_format(tags, number):
    X, Y = tags
    how = {"scoring": precision_at_1, "cv": KFold(2)}
    model, space = LTLSClassifier(random_state=0), {"width": [2, 4]}
    grid = GridSearchCV(model, space, **how).fit(X, formats(Y)[number])
    assert grid.best_score_ > 0.3
    halving = HalvingRandomSearchCV(
        model, space, n_candidates=2, min_resources=100, random_state=0, **how
    ).fit(X, formats(Y)[number])
    assert halving.best_score_ > 0.3


def test_the_best_candidate_beats_the_defaults_on_the_validation_set(digits):
    X, y = digits
    # The search ends when all candidates are tried, long before the time is up.
    space = {name: SEARCH_SPACE[name][:1] for name in SEARCH_SPACE}
    space |= {"width": [2, 8], "epochs": [5], "learning_rate": [0.3, 0.7]}
    model, tried = tune(X, y, seconds=600, space=space, **FAST)
    assert tried[0]["note"] == "defaults"
    assert {**SEARCH_SPACE, "rows": 0, "score": 0, "seconds": 0, "note": ""}.keys() == set(tried[0])
    own = SMALL.get_params()
    assert all(tried[0][name] == own[name] for name in SEARCH_SPACE)
    most = max(each["rows"] for each in tried)
    full = [each for each in tried if each["rows"] == most and not math.isnan(each["score"])]
    default = next(each for each in full if each["note"] == "defaults")
    best = max(full, key=lambda each: each["score"])
    assert best["score"] > default["score"]  # width 2 alone leaves room
    assert {name: model.get_params()[name] for name in SEARCH_SPACE} == {
        name: best[name] for name in SEARCH_SPACE
    }
    # Fitted on all rows.
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_candidates_are_fitted_once_and_other_parameters_are_kept(digits):
    X, y = digits
    space = {"width": [2, 3], "epochs": [1, 2], "loss": ["auto", "softmax"]}
    own = clone(SMALL).set_params(width=3, epochs=1, learning_rate=0.123, random_state=7)
    model, tried = tune(X, y, seconds=60, space=space, **{**FAST, "estimator": own})
    pairs = [(each["width"], each["epochs"]) for each in tried]
    # For one label per row, "auto" is softmax; the search ends when all are tried.
    assert sorted(pairs) == [(2, 1), (2, 2), (3, 1), (3, 2)]
    assert model.learning_rate == 0.123
    assert model.random_state == 7


def test_the_best_third_continues_with_more_rows(digits):
    X, y = (np.concatenate([part] * 7) for part in digits)
    space = {"learning_rate": [0.1, 0.2, 0.3, 0.4, 0.5], "width": [2, 3, 4, 5], "epochs": [1]}
    _, tried = tune(X[:, ::4], y, seconds=600, space=space, **FAST)
    sizes = sorted({each["rows"] for each in tried})
    assert sizes == [1118, 3354, 10063]
    counts = [sum(each["rows"] == size for each in tried) for size in sizes]
    assert counts[0] > 2 * counts[1] > 2 * counts[2]
    # The best three of the first nine continued.
    first = tried[2:11]
    assert {each["rows"] for each in first} == {1118}
    kept = {(each["learning_rate"], each["width"], each["epochs"]) for each in tried[11:14]}
    ranked = sorted(first, key=lambda each: -each["score"])
    assert (
        min(e["score"] for e in first if tuple(e[n] for n in space) in kept) >= (ranked[2]["score"])
    )


@pytest.mark.perf
def test_the_time_limit_is_kept(tags):
    X, Y = tags
    start = time.perf_counter()
    _, tried = tune(np.tile(X, (10, 5)), np.tile(Y, (10, 1)), seconds=3, **FAST)
    assert time.perf_counter() - start < 9
    assert len(tried) > 2


def test_candidates_estimated_to_be_too_slow_are_skipped(digits):
    X, y = digits
    model, tried = tune(X, y, seconds=3, space={"epochs": [10**6]}, **FAST)
    assert [each["epochs"] for each in tried] == [model.epochs]


class SlowPolicy(RandomPolicy):
    """Between epochs, all the time that the fit may take passes."""

    name = "slow"

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def between_epochs(self, trellis, paths, score_sums, n_jobs):
        deadline = interrupt._deadline.get()
        assert deadline < math.inf
        with self.monkeypatch.context() as patched:
            patched.setattr(interrupt.time, "perf_counter", lambda: deadline + 1)
            interrupt.check_time()


def test_a_slow_candidate_is_stopped(digits, monkeypatch):
    X, y = digits
    register_policy(SlowPolicy(monkeypatch))
    try:
        model, tried = tune(X, y, seconds=600, space={"assignment": ["slow"]}, **FAST)
    finally:
        POLICIES.pop("slow")
    assert "stopped after" in tried[-1]["note"]
    assert math.isnan(tried[-1]["score"])
    assert model.assignment == "random"


def test_candidates_above_max_bytes_are_skipped(digits):
    X, y = digits
    space = {"n_trellises": [1, 2, 50]}
    _, tried = tune(X, y, seconds=30, space=space, max_bytes=100_000, **FAST)
    assert {each["n_trellises"] for each in tried} == {1, 2}


@pytest.mark.parametrize("number", range(3))
def test_tune_accepts_every_multilabel_format(tags, number):
    X, Y = tags
    model, tried = tune(
        csr_array(X), formats(Y)[number], seconds=30, space={"width": [2, 4], "epochs": [2]}, **FAST
    )
    assert model.multilabel_
    assert len(tried) >= 3
    assert model.predict_topk(X, 2)[0].shape == (400, 2)


def test_tune_accepts_lists_and_string_labels(digits):
    X, y = digits
    names = [f"digit {digit}" for digit in y]
    model, _ = tune(X.tolist(), names, seconds=30, space={"width": [2, 4]}, **FAST)
    assert set(model.classes_) == set(names)


def test_a_candidate_that_fails_has_a_note(digits):
    X, y = digits
    model, tried = tune(X, y, seconds=30, space={"epochs": [0]}, **FAST)
    assert "'epochs' parameter" in tried[-1]["note"]
    assert math.isnan(tried[-1]["score"])
    assert model.epochs == 5


def test_the_defaults_can_be_tuned(digits):
    model, tried = tune(*digits, seconds=2, random_state=0, verbose=0)
    assert tried[0]["width"] == "auto"
    assert model.score(*digits) > 0.9


def test_a_size_budget_is_kept(digits, tmp_path):
    X, y = digits
    space = {"width": [2, 8], "n_trellises": [1, 5], "epochs": [1, 2]}
    own = LTLSClassifier(size_budget="9KB", epochs=1)
    model, tried = tune(X, y, 60, estimator=own, space=space, random_state=0, verbose=0)
    assert {(each["width"], each["n_trellises"]) for each in tried} >= {(2, 1), (8, 5)}
    assert not any("size_budget" in each["note"] for each in tried)
    model.save(tmp_path / "model.ltls")
    assert (tmp_path / "model.ltls").stat().st_size <= 9000


def test_ctrl_c_ends_the_search_and_refits_the_best(digits):
    X, y = digits
    calls = []

    def scoring(model, X, y):
        calls.append(model)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return model.width

    model, tried = tune(X, y, seconds=60, space={"width": [4, 8]}, scoring=scoring, **FAST)
    assert len(tried) == 2
    assert model.width == tried[1]["width"] > 2
    assert model.score(X, y) > 0.9


def test_progress_is_shown_on_standard_error(digits, capsys):
    tune(*digits, seconds=30, estimator=SMALL, space={"width": [2, 4]}, random_state=0)
    captured = capsys.readouterr()
    assert "fits" in captured.err
    assert not captured.out


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("seconds", 0, ValueError),
        ("seconds", "a minute", ValueError),
        ("max_bytes", -1, ValueError),
        ("validation_fraction", 1.0, ValueError),
        ("validation_fraction", 0, ValueError),
        ("space", {"depth": [3]}, ValueError),
        ("estimator", LogisticRegression(), TypeError),
    ],
)
def test_invalid_arguments_are_named(digits, argument, value, error):
    with pytest.raises(error, match=argument):
        tune(*digits, **{"seconds": 1, **FAST, argument: value})


def test_too_little_data_is_rejected(digits):
    X, y = digits
    with pytest.raises(ValueError, match="y must have at least 2 rows"):
        tune(X[:1], y[:1], seconds=1, **FAST)
    with pytest.raises(ValueError, match="2 classes"):
        tune(X[:20], [1] * 20, seconds=1, **FAST)


def test_the_tune_command(command, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{label} {label + 1}:1 {rng.integers(6, 20)}:1" for label in rng.integers(0, 5, 300)]
    (tmp_path / "train.svm").write_text("\n".join(rows) + "\n")
    words = ["tune", tmp_path / "train.svm", "-o", tmp_path / "model.ltls", "--seconds", 3]
    result = command(*map(str, words), "--random-state", "0", "--json", "-q")
    assert (result.code, result.err) == (0, "")
    tried = json.loads(result.out)["tried"]
    assert tried[0]["note"] == "defaults"
    assert ltls.load(tmp_path / "model.ltls").predict_topk(np.eye(19)[:5], 1)[0][:, 0].tolist() == [
        0, 1, 2, 3, 4,
    ]  # fmt: skip
