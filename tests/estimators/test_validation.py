"""Validation of features, labels and parameters."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.utils._param_validation import InvalidParameterError

from ltls import LTLSClassifier, RandomCodebook, TextClassifier
from ltls.estimators.validation import ParameterError, check_parameters

BAD = {
    "rows differ": (lambda X, y: (X, y[:-1]), "1797 rows, y 1796"),
    "y is longer": (lambda X, y: (X[:-1], y), "1796 rows, y 1797"),
    "NaN": (lambda X, y: (np.where(X.max() == X, np.nan, X), y), "NaN"),
    "infinity": (lambda X, y: (np.where(X.max() == X, np.inf, X), y), "infinity"),
    "no rows": (lambda X, y: (X[:0], y[:0]), "0 sample"),
    "one class": (lambda X, y: (X, np.zeros(len(y))), "at least 2 classes"),
    "no labels": (lambda X, y: (X, [[] for _ in y]), "at least one label"),
    "negative index": (lambda X, y: (with_index(X, -1), y), "it has index -1"),
    "very negative index": (lambda X, y: (with_index(X, -50_000_000), y), "it has index -50000000"),
    "index too large": (lambda X, y: (with_index(X, 64), y), "it has index 64"),
    "a new label and a bad row": (lambda X, y: (X, [*y[:-1], np.nan]), "missing"),
    "continuous": (lambda X, y: (X, y + 0.5), "Unknown label type"),
    "three dimensions": (lambda X, y: (X, np.zeros((len(y), 2, 2))), "dimensions"),
    "no indicator": (lambda X, y: (X, np.full((len(y), 3), 2)), "indicator"),
    "no target": (lambda X, y: (X, None), "y is None"),
    "a label among lists": (lambda X, y: (X, [[1], *y[1:]]), "row 1 is"),
}


def with_index(X, index):
    X = csr_array(X)
    X.indices = X.indices.copy()
    X.indices[5] = index
    return X


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("assignment", ["random", "similarity"])
def test_a_failed_fit_leaves_the_estimator_unchanged(digits, name, method, assignment):
    if method == "partial_fit" and name == "one class":
        pytest.skip("partial_fit may begin with one class")
    X, y = digits
    spoil, message = BAD[name]
    model = LTLSClassifier(random_state=0, assignment=assignment).fit(X, y)
    scores, classes = model.decision_function(X), model.classes_.copy()
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(*spoil(X, y))
    assert model.n_features_in_ == 64
    np.testing.assert_array_equal(model.classes_, classes)
    np.testing.assert_array_equal(model.decision_function(X), scores)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"class_weight": {0: "x"}}, "class_weight"),
        ({"class_weight": {0: -1.0}}, "class_weight"),
        ({"class_weight": {0: np.nan}}, "class_weight"),
        ({"class_weight": "balanced"}, "balanced"),
        ({"loss": "separation"}, "loss must stay 'auto'"),
        ({"n_trellises": 2}, "n_trellises must stay 'auto'"),
        ({"fit_intercept": False}, "fit_intercept must stay True"),
        ({"l1": 1.0}, "l1 must stay 0.0"),
        ({"optimizer": "sgd"}, "optimizer must stay 'adagrad'"),
    ],
)
def test_a_failed_partial_fit_adds_no_label(digits, settings, message):
    X, y = digits
    model = LTLSClassifier(random_state=0).partial_fit(X, y)
    scores, paths = model.decision_function(X), model.trellis_.n_classes
    model.set_params(**settings)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X[:5], [99] * 5)
    assert model.trellis_.n_classes == paths
    assert model.classes_.tolist() == list(range(10))
    np.testing.assert_array_equal(model.decision_function(X), scores)


def test_values_too_large_for_float32_weights_are_rejected(digits):
    X, y = digits
    model = LTLSClassifier(random_state=0).fit(X, y)
    for call in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="X must hold values of at most"):
            call(X * 1e300, y)
    with pytest.raises(ValueError, match="learning_rate"):
        model.set_params(learning_rate=1e38, optimizer="sgd").fit(X, y)
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan])
def test_missing_labels_are_rejected(digits, missing):
    X, y = digits
    labels = [missing if i == 3 else f"{i}" for i in y]
    with pytest.raises(ValueError, match="missing labels"):
        LTLSClassifier().fit(X, labels)
    with pytest.raises(ValueError, match="missing labels"):
        LTLSClassifier().fit(X, [[label] for label in labels])


def test_labels_that_numpy_would_merge_stay_distinct(digits):
    X, _ = digits
    for labels in (["a", "a\0"], [2**63, 2**63 + 1, -1], [b"x", b"x\0"]):
        given = [labels[i % len(labels)] for i in range(len(X))]
        model = LTLSClassifier(epochs=1).fit(X, given)
        assert set(model.classes_.tolist()) == set(labels)


@pytest.mark.parametrize("y", [{"a", "b"}, {"a": 1}, "ab", 3, iter([1, 2])])
def test_targets_that_are_not_sequences_are_rejected(digits, y):
    with pytest.raises(ValueError, match="y must be an array or a list of labels"):
        LTLSClassifier().fit(digits[0], y)


def test_rows_of_zeros_and_ones_are_an_indicator(digits):
    X, y = digits
    rows = [[1, 0] if label < 5 else [0, 1] for label in y]
    model = LTLSClassifier(random_state=0).fit(X, rows)
    assert model.score(X, np.array(rows)) > 0.7


def test_classes_of_partial_fit_may_be_any_iterable(digits):
    X, y = digits
    for classes in (np.arange(10), [*range(10), 3], set(range(10))):
        model = LTLSClassifier(random_state=0).partial_fit(X, y, classes=classes)
        assert model.classes_.dtype.kind == "i"
        assert sorted(model.classes_.tolist()) == list(range(10))
    model.partial_fit(X, y, classes=[77])
    assert model.classes_.tolist()[-1] == 77


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("width", 1),
        ("loss", "hinge"),
        ("assignment", "best"),
        ("epochs", 0),
        ("learning_rate", 0),
        ("optimizer", "adam"),
        ("l1", -1),
        ("validation_fraction", 1.0),
        ("n_jobs", "many"),
    ],
)
def test_an_invalid_parameter_is_named(digits, parameter, value):
    with pytest.raises(ValueError, match=parameter):
        LTLSClassifier(**{parameter: value}).fit(*digits)


@pytest.mark.parametrize(
    ("parameter", "value", "reason"),
    [
        ("width", 1, "in the range [2, inf) or a str among {'auto'}. Got 1 instead."),
        ("density", 2.0, "Got 2.0 instead."),
        ("assignment", "best", "Got 'best' instead."),
        ("epochs", 0, "Got 0 instead."),
    ],
)
def test_a_parameter_error_has_the_parameter_and_the_reason(digits, parameter, value, reason):
    with pytest.raises(ParameterError) as raised:
        LTLSClassifier(**{parameter: value}).fit(*digits)
    error = raised.value
    assert isinstance(error, InvalidParameterError)  # as the estimators of scikit-learn raise
    assert isinstance(error, ValueError)
    assert error.parameter == parameter
    assert error.reason.startswith("must be ")
    assert error.reason.endswith(reason)
    assert str(error) == f"The {parameter!r} parameter of LTLSClassifier {error.reason}"


def test_a_parameter_error_names_the_estimator():
    with pytest.raises(ParameterError, match="The 'width' parameter of TextClassifier must be"):
        TextClassifier(width=1).fit(["a text", "another"], ["a", "b"])
    constraints = {"depth": [int], "size": [int]}
    with pytest.raises(ParameterError) as raised:
        check_parameters("Model", constraints, {"depth": 3, "size": "x"})
    assert raised.value.parameter == "size"
    check_parameters("Model", constraints, {"depth": 3, "size": 4, "other": object()})


def test_the_terminal_names_the_option_of_an_invalid_parameter(tmp_path, command):
    data = tmp_path / "data.svm"
    data.write_text("0 1:1\n1 2:1\n")
    result = command("train", data, "-o", tmp_path / "model.ltls", "--learning-rate", 0)
    assert (result.code, result.out) == (2, "")
    with pytest.raises(ParameterError) as raised:
        LTLSClassifier(learning_rate=0.0).fit(np.eye(2), [0, 1])
    assert result.err == f"ltls: --learning-rate {raised.value.reason}\n"


def test_too_few_paths_in_a_codebook_are_an_error(digits):
    with pytest.raises(ValueError, match="assignment has 5 paths, y has 10 labels"):
        LTLSClassifier(assignment=RandomCodebook(5)).fit(*digits)


def test_other_number_of_features_is_an_error(digits):
    X, y = digits
    model = LTLSClassifier().fit(X, y)
    with pytest.raises(ValueError, match="64 features"):
        model.predict(X[:, :60])
