"""The argument `among` of predict_topk: its forms, and what is wrong with others."""

import numpy as np
import problems
import pytest
from scipy.sparse import coo_array, csr_array

from ltls import LTLSClassifier
from ltls.settings import Propensity, Trellises, Views

SOME = [3, 7, 11, 20]


@pytest.fixture(scope="module", params=[False, True], ids=["one label", "several labels"])
def case(request):
    """(X, fitted model) with views, prototypes, neighbours and propensities."""
    X, y = problems.sparse(multilabel=request.param)
    model = LTLSClassifier(
        views=Views(cluster_size=4),
        prototypes=True,
        neighbours=True,
        propensity=Propensity(strength=0.5),
        random_state=0,
    )
    return X[:50], model.fit(X, y)


def small(labels):
    """A model of labels with a feature each."""
    X = np.eye(len(labels), dtype=np.float32)
    model = LTLSClassifier(random_state=0).set_params(trellises__epochs=5)
    return X, model.fit(X, labels)


def same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_it_is_the_top_k_of_the_decision_function(case):
    X, model = case
    labels, scores = model.predict_topk(X, 3, among=model.classes_[SOME])
    every = model.decision_function(X)[:, SOME]
    np.testing.assert_allclose(scores, np.sort(every)[:, :-4:-1], rtol=1e-5, atol=1e-5)
    places = np.searchsorted(model.classes_[SOME], labels)
    np.testing.assert_allclose(np.take_along_axis(every, places, 1), scores, rtol=1e-5, atol=1e-5)


def test_all_forms_of_one_set(case):
    X, model = case
    names = model.classes_[SOME]
    mask = np.zeros(len(model.classes_), bool)
    mask[SOME] = True
    expected = model.predict_topk(X, 3, among=names)
    forms = (names.tolist(), set(names.tolist()), [*names, *names], mask, csr_array(mask[None]))
    for form in (*forms, mask.tolist()):
        same(model.predict_topk(X, 3, among=form), expected)


def test_all_forms_of_a_set_per_row(case):
    X, model = case
    rng = np.random.default_rng(0)
    mask = rng.random((X.shape[0], len(model.classes_))) < 0.2
    mask[0] = False
    sets = [model.classes_[row].tolist() for row in mask]
    labels, scores = expected = model.predict_topk(X, 4, among=sets)
    assert labels.dtype == object
    assert labels[0].tolist() == [None] * 4
    assert (scores[0] == -np.inf).all()
    for form in (mask, mask.tolist(), csr_array(mask), [set(row) for row in sets]):
        same(model.predict_topk(X, 4, among=form), expected)
    for row, allowed in enumerate(sets):
        if allowed:
            one = model.predict_topk(X[[row]], 4, among=allowed)
            n = len(one[0][0])
            same((labels[[row], :n], scores[[row], :n]), one)
    table = np.array([model.classes_[[row % 5, 5 + row % 7]] for row in range(X.shape[0])])
    same(model.predict_topk(X, 4, among=table), model.predict_topk(X, 4, among=table.tolist()))


def test_probabilities_given_the_allowed_labels(case):
    X, model = case
    labels, found = model.predict_topk(X, 4, proba=True, among=model.classes_[SOME])
    expected = model.predict_proba(X)[:, SOME]
    if not model.multilabel_:
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
        expected /= expected.sum(axis=1, keepdims=True)
    assert (np.diff(found) <= 0).all()
    places = np.searchsorted(model.classes_[SOME], labels)
    np.testing.assert_allclose(found, np.take_along_axis(expected, places, 1), atol=1e-5)


@pytest.mark.parametrize(
    ("among", "message"),
    [
        ("label 3", "a list of such lists [(]one per row[)] or a boolean mask, got 'label 3'"),
        (3, "among must be a list of labels"),
        (["label 3", "visa"], "among must contain only labels in classes_, got 'visa'"),
        ([], "among must hold at least one label"),
        ([["label 3"], ["label 4"]], "one set for each of 50 rows, got 2"),
        (["label 3", ["label 4"]], "either labels or lists of labels, but entry 0 is 'label 3'"),
        (np.ones(7, bool), "a column for each of the 40 classes, got 7"),
        (np.ones((3, 40), bool), "one set for each of 50 rows, got 3"),
        (np.zeros(40, bool), "at least one label"),
        (np.zeros((2, 2, 2)), "one or two dimensions"),
    ],
)
def test_anything_else_is_an_error(case, among, message):
    X, model = case
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        model.predict_topk(X, among=among)


def test_masks_of_every_kind():
    """Labels are integers, which a mask must not be taken for."""
    X, model = small(np.arange(6))
    mask = np.array([0, 0, 1, 1, 0, 0])
    truth = mask.astype(bool)
    plain = [truth, truth.tolist(), truth.astype(object), csr_array(mask[None]), coo_array(mask)]
    for form in (*plain, [truth] * 6, np.tile(truth, (6, 1)).tolist()):
        labels, _ = model.predict_topk(X, 2, among=form)
        assert np.sort(labels).tolist() == [[2, 3]] * 6
    for form in (mask, np.tile(mask, (6, 1)), mask.astype(float)):
        with pytest.raises(ValueError, match=r"got .* values .*: pass a mask as bool"):
            model.predict_topk(X, 2, among=form)
    with pytest.raises(ValueError, match="one or two dimensions"):
        model.predict_topk(X, 2, among=np.zeros((1, 1, 6), bool))
    with pytest.raises(ValueError, match="each class, got lists of different lengths"):
        model.predict_topk(X[:2], 2, among=[[True], [True, False]])


def test_any_iterable_and_pandas():
    pandas = pytest.importorskip("pandas", reason="needs pandas: run make test-all")
    X, model = small(np.arange(6))
    mask = np.isin(np.arange(6), [2, 3])
    arrays = [np.array([2, 3], dtype) for dtype in (float, np.uint8, object)]
    frames = [pandas.Series([2, 3]), pandas.Index([2, 3]), pandas.Categorical([2, 3])]
    masks = [pandas.Series(mask), pandas.DataFrame(np.tile(mask, (6, 1)))]
    others = [range(2, 4), (2, 3), iter([2, 3]), {2: "", 3: ""}.keys(), np.ma.array([2, 3])]
    for form in (*arrays, *frames, *masks, *others):
        labels, _ = model.predict_topk(X, 2, among=form)
        assert np.sort(labels, axis=1).tolist() == [[2, 3]] * 6
    for bad in ({2: ""}, np.int64(3), np.array(3), [None], [np.nan], [-1], ["2"], [(2, 3)] * 6):
        with pytest.raises(ValueError, match="among must"):
            model.predict_topk(X, 2, among=bad)
    missing = pandas.array([None, True, *[False] * 4], dtype="boolean")
    with pytest.raises(ValueError, match="among must"):
        model.predict_topk(X, 2, among=missing)


@pytest.mark.parametrize(
    "labels", [[0, 1, "x", "y", "z", ("t", 1)], ["a", "b", "c", "d", "e", "f" * 100]], ids=str
)
def test_a_list_of_booleans_is_a_mask_for_labels_of_any_type(labels):
    X, model = small(labels)
    mask = [False, False, True, True, False, False]
    same(model.predict_topk(X, 2, among=mask), model.predict_topk(X, 2, among=np.array(mask)))


def test_booleans_in_a_list_may_be_labels():
    X, model = small([True, False, True, False])
    assert model.predict_topk(X, 2, among=[True])[0].tolist() == [[True]] * 4


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_dates(unit):
    days = np.arange("2020-01-01", "2020-01-07", dtype="M8[D]").astype(f"M8[{unit}]")
    X, model = small(days)
    two = days[[1, 4]]
    for form in (two, two.astype("M8[s]"), list(two), np.tile(two, (6, 1)), np.isin(days, two)):
        labels, _ = model.predict_topk(X, 3, among=form)
        assert labels.dtype == days.dtype
        assert np.sort(labels, axis=1).tolist() == np.tile(two, (6, 1)).tolist()
    with pytest.raises(ValueError, match="among must contain only labels in classes_"):
        model.predict_topk(X, 3, among=np.array(["NaT", "2020-01-02"], "M8[D]"))
    assert (model.predict_topk(X, 1, among=model.classes_)[0] == model.predict_topk(X, 1)[0]).all()


@pytest.mark.parametrize(
    "given", [{}, {"label_weights": True}, {"trellises": Trellises(loss="logistic")}], ids=str
)
def test_probabilities_of_many_rows_without_allowed_labels(given):
    X, y = problems.sparse(multilabel="trellises" in given)
    model = LTLSClassifier(random_state=0, **given).fit(X, y)
    rows, some = X[np.zeros(4097, int)], model.classes_[[3, 4]].tolist()
    labels, probs = model.predict_topk(rows, 2, True, among=[[]] * 4096 + [some])
    assert (probs[:-1] == 0).all()
    same((labels[-1:], probs[-1:]), model.predict_topk(rows[-1:], 2, True, among=[some]))


def test_labels_that_cannot_be_looked_up_are_a_type_error(case):
    X, model = case
    with pytest.raises(TypeError, match="among must hold labels"):
        model.predict_topk(X, among=[{"a": 1}])
