"""Parameters of the estimators: groups of settings, as scikit-learn knows nested estimators."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.estimator_checks import parametrize_with_checks

from ltls import LTLSClassifier, RandomCodebook, TableClassifier, TextClassifier, presets
from ltls import settings as settings_module
from ltls.core.settings import ParameterError, Settings
from ltls.estimators.parameters import Parameters
from ltls.settings import Memory, Neighbours, Numbers, Propensity, Table, Text, Trellises, Views

LabelWeights, Prototypes = settings_module.LabelWeights, settings_module.Prototypes
GROUPS = {
    "trellises": Trellises,
    "views": Views,
    "label_weights": LabelWeights,
    "prototypes": Prototypes,
    "neighbours": Neighbours,
    "propensity": Propensity,
    "calibration": settings_module.Calibration,
    "memory": Memory,
}
X, Y = np.eye(4), list("abcd")


# scikit-learn's own checks

ORDER = "SGD takes rows one after another: a repeated row is not a row of double weight"
WHOLE = "views need all rows at once"


def expected_failures(estimator):
    failures = {
        "check_sample_weight_equivalence_on_dense_data": ORDER,
        "check_sample_weight_equivalence_on_sparse_data": ORDER,
    }
    if estimator.views not in (False, "auto"):
        failures |= {
            "check_n_features_in_after_fitting": WHOLE,  # by partial_fit
            "check_estimators_partial_fit_n_features": WHOLE,
        }
    return failures


@parametrize_with_checks(
    [
        LTLSClassifier(random_state=0),
        LTLSClassifier(trellises=Trellises(loss="logistic", width=4), random_state=0),
        LTLSClassifier(views=True, prototypes=True, neighbours=True, random_state=0),
        presets.paper(epochs=200, shuffle=True, features=Numbers(normalize=False), random_state=0),
    ],
    expected_failed_checks=expected_failures,
)
def test_estimator_checks_of_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_pipelines_and_searches(digits):
    X, y = digits
    pipeline = make_pipeline(MaxAbsScaler(), LTLSClassifier(random_state=0))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.7
    grid = {
        "trellises__width": [2, 8],
        "trellises__loss": ["softmax", "separation", "logistic"],
        "features__normalize": [False],
    }
    one = LTLSClassifier(trellises=Trellises(n_trellises=1, average=False), random_state=0)
    search = GridSearchCV(one, grid, cv=2).fit(X, y)
    assert search.best_params_["trellises__width"] == 8
    assert search.best_estimator_.trellis_.width == 8
    assert one.trellises.width == "auto"  # clones have their own settings
    whole = GridSearchCV(LTLSClassifier(random_state=0), {"views": [False, Views()]}, cv=2)
    assert whole.fit(X[:300], y[:300]).best_score_ > 0.8


# Groups


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_is_auto_an_object_or_left_out(name):
    kind = GROUPS[name]
    for value in ("auto", True, kind()):
        nested = LTLSClassifier(**{name: value}).get_params()
        assert nested[name] is value
        for each, default, *_ in kind.declared():
            assert nested[f"{name}__{each}"] == default
    off = LTLSClassifier(**{name: False}).get_params()
    assert off[name] is False
    assert not [key for key in off if key.startswith(f"{name}__")]
    shallow = LTLSClassifier(**{name: kind()}).get_params(deep=False)
    assert not [key for key in shallow if "__" in key]


def test_settings_are_shown_without_those_of_automatic_groups():
    assert repr(Parameters()) == "Parameters()"
    shown = "Parameters(n_jobs=2, trellises=Trellises(width=5))"
    assert repr(Parameters(trellises=Trellises(width=5), n_jobs=2)) == shown
    with pytest.raises(ValueError, match="'width' for Parameters, which has calibration, class_"):
        Parameters().set_params(width=5)


def test_a_setting_of_an_automatic_group_makes_it_an_object():
    model = LTLSClassifier().set_params(trellises__width=16, views__n_views=3)
    assert (model.trellises.width, model.trellises.epochs) == (16, "auto")
    assert model.views.n_views == 3
    assert LTLSClassifier().trellises == "auto"  # that of another estimator stays
    model.set_params(views=Views(cluster_size=9), views__n_views=2)
    assert (model.views.cluster_size, model.views.n_views) == (9, 2)
    assert model.set_params(trellises="auto").trellises == "auto"


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ({"views": False}, {"views__n_views": 2}),
        ({}, {"propensity__strength": 0.5}),
        ({}, {"views": "auto", "views__n_views": 2}),
    ],
    ids=str,
)
def test_a_setting_of_a_group_that_is_off_turns_it_on(before, change):
    *_, (key, value) = change.items()
    assert LTLSClassifier(**before).set_params(**change).get_params()[key] == value


@pytest.mark.parametrize(
    "estimator",
    [
        LTLSClassifier(trellises=Trellises(width=5), views=False, memory=Memory(n_rows=3)),
        TextClassifier(features=Text(stop_words=["a", "b"]), propensity=True),
        TableClassifier(features=Table(text="t", number=["a", "b"])),
        presets.paper(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_clones_have_equal_parameters_of_their_own(estimator):
    copy = clone(estimator)
    assert type(copy) is type(estimator)
    assert repr(copy) == repr(estimator)
    ours, theirs = copy.get_params(), estimator.get_params()
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if isinstance(value, Settings):
            assert ours[name] is not value
        else:
            assert ours[name] == value
    copy.set_params(trellises__epochs=77)
    assert estimator.get_params()["trellises__epochs"] != 77
    assert not hasattr(copy, "fitted_")


def test_front_ends():
    for kind, default in ((LTLSClassifier, Numbers), (TextClassifier, Text)):
        nested = kind().get_params()
        for name, value, *_ in default.declared():
            assert nested[f"features__{name}"] == value
    texts = LTLSClassifier(features=Text(char_ngram_range=None), random_state=0)
    texts.fit(["lost card", "which fee"], ["card", "fee"])
    assert texts.predict(["fee"]).tolist() == ["fee"]
    numbers = TextClassifier(features=Numbers(), random_state=0).fit(X, Y)
    assert numbers.predict(X).tolist() == Y
    assert repr(texts) == "LTLSClassifier(features=Text(char_ngram_range=None), random_state=0)"


# Errors


@pytest.mark.parametrize("kind", [LTLSClassifier, TextClassifier, *GROUPS.values()])
def test_arguments_have_names(kind):
    with pytest.raises(TypeError, match="positional argument"):
        kind("auto")
    for name in ("breadth", "bucket_size", "calibrate"):
        with pytest.raises(TypeError, match=name):
            kind(**{name: 2})
        with pytest.raises(ValueError, match=f"Invalid parameter '{name}'"):
            kind().set_params(**{name: 2})


INVALID = [
    (Trellises, "width", [1, 1.5, True, "wide", None]),
    (Trellises, "n_trellises", [0, 2**17]),
    (Trellises, "loss", ["hinge", None]),
    (Trellises, "assignment", ["best", 3]),
    (Trellises, "epochs", [0, 2.0, True]),
    (Trellises, "learning_rate", [0, -1.0, np.nan, np.inf]),
    (Trellises, "optimizer", ["adam"]),
    (Trellises, "average", ["yes", 1]),
    (Trellises, "l1", [-1, np.inf]),
    (Trellises, "density", [0, 2.0, np.nan]),
    (Trellises, "dtype", ["float64"]),
    (Views, "n_views", [0, 65]),
    (Views, "cluster_size", [1, "large"]),
    (LabelWeights, "cost", [0, -1.0]),
    (LabelWeights, "passes", [0]),
    (Prototypes, "n_features", [0]),
    (Neighbours, "n_neighbors", [0, 2**17]),
    (Propensity, "strength", [-1.0, "much"]),
    (Memory, "n_rows", [0, -1]),
    (Numbers, "normalize", ["yes", 1]),
    (Numbers, "fit_intercept", ["auto", 0]),
]


@pytest.mark.parametrize(("kind", "name", "values"), INVALID, ids=lambda each: str(each)[:40])
def test_an_invalid_setting_is_named_with_its_value(kind, name, values):
    groups = {group: each for each, group in GROUPS.items()} | {Numbers: "features"}
    for value in values:
        with pytest.raises(ParameterError) as raised:
            LTLSClassifier(**{groups[kind]: kind(**{name: value})}).fit(X, Y)
        error = raised.value
        assert isinstance(error, InvalidParameterError)  # as the estimators of scikit-learn raise
        assert error.parameter == name
        assert error.reason.startswith("must be ")
        assert error.reason.endswith(f"got {value!r}")
        assert str(error) == f"The {name!r} parameter of {groups[kind]} {error.reason}"
        assert str(pickle.loads(pickle.dumps(error))) == str(error)  # as processes pass it on
        with pytest.raises(ParameterError, match=name):
            LTLSClassifier(**{groups[kind]: kind(**{name: value})}).partial_fit(X, Y)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, ["x", 3, None, Text()]) for name in GROUPS),
        ("trellises", [False]),
        ("features", ["x", False, Views()]),
        ("parts", [{"toy": 1}, {"views": 3}, []]),
        ("size_budget", [0, 1.5, "0.5B", "5 parsecs", f"{10**400}B"]),
        ("class_weight", ["heavy", 3]),
        ("validation_fraction", [1.0, -0.1, "some"]),
        ("n_jobs", ["many", 0, 1.5]),
        ("random_state", ["x", np.random.default_rng(0)]),
        ("verbose", [-1, "yes"]),
        ("warm_start", ["yes"]),
    ],
)
def test_an_invalid_parameter_is_named_with_its_value(name, values):
    for value in values:
        with pytest.raises(ParameterError) as raised:
            LTLSClassifier(**{name: value}).fit(X, Y)
        assert raised.value.parameter == name
        assert str(raised.value).startswith(f"The {name!r} parameter of LTLSClassifier must be ")
        assert str(raised.value).endswith(f"got {value!r}")
    with pytest.raises(ParameterError, match=f"'{name}' parameter of TextClassifier"):
        TextClassifier(**{name: values[0]}).fit(["a text", "another"], ["a", "b"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"views": True, "label_weights": False}, "views need label_weights"),
        ({"neighbours": True, "memory": False}, "neighbours need rows in memory"),
        ({"class_weight": {"a": "x"}}, "class_weight must hold numbers .* got 'x' for 'a'"),
        ({"class_weight": {"a": -1.0}}, "class_weight must hold numbers"),
        ({"class_weight": {"a": np.nan}}, "class_weight must hold numbers"),
        ({"class_weight": {"z": 2}}, "labels that occur in y, got 'z'"),
        ({"trellises": Trellises(assignment=RandomCodebook(3))}, "has 3 paths, but y has 4 labels"),
    ],
    ids=str,
)
def test_parameters_that_contradict_each_other_or_the_data(given, message):
    with pytest.raises(ValueError, match=message):
        LTLSClassifier(**given).fit(X, Y)


def test_built_in_parts_are_no_registered_ones():
    with pytest.raises(ValueError, match="parts"):
        LTLSClassifier(parts={"views": Views()}).fit(X, Y)


@pytest.mark.parametrize("name", ["views", "label_weights", "prototypes", "neighbours"])
def test_parts_that_need_all_rows_are_refused_by_a_first_partial_fit(name):
    for value in (True, GROUPS[name]()):
        with pytest.raises(ValueError, match=f"{name}=.* needs all rows at once: call fit"):
            LTLSClassifier(**{name: value}).partial_fit(X, Y)
    LTLSClassifier(**{name: False}).partial_fit(X, Y)


def test_every_group_is_public_and_documented():
    for name in settings_module.__all__:
        kind = getattr(settings_module, name)
        for setting, _, allowed, sentence in kind.declared():
            assert allowed
            assert sentence.endswith(".")
            assert setting in kind.__doc__
