"""The argument `among` of predict_topk: its forms, and what is wrong with others."""

import numpy as np
import problems
import pytest
from scipy.sparse import coo_array, csr_array

from ltls import LTLSClassifier, TextClassifier

SOME = [3, 7, 11, 20]


@pytest.fixture(scope="module", params=[False, True], ids=["one label", "several labels"])
def case(request):
    """(X, fitted model) with buckets, label weights and propensities."""
    X, y = problems.sparse(multilabel=request.param)
    model = LTLSClassifier(
        width=4, n_trellises=2, label_weights=True, bucket_size=4, propensity=0.5, random_state=0
    )
    return X[:50], model.fit(X, y)


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
    for form in (
        names.tolist(),
        set(names.tolist()),
        [*names, *names],
        mask,
        mask.tolist(),
        csr_array(mask[None]),
    ):
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
        (
            "label 3",
            "a list of such lists [(]one per row[)] or a boolean mask, got 'label 3'",
        ),
        (3, "among must be a list of labels"),
        (["label 3", "visa"], "among must hold labels of classes_, got 'visa'"),
        ([], "among must hold at least one label"),
        ([["label 3"], ["label 4"]], "one set for each of 50 rows, got 2"),
        (["label 3", ["label 4"]], "all labels or all lists of labels, entry 0 is 'label 3'"),
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
    X, classes = np.eye(6, dtype=np.float32), np.arange(6)
    mask = np.array([0, 0, 1, 1, 0, 0])
    model = LTLSClassifier(epochs=5, random_state=0).fit(X, classes)
    for form in (
        mask.astype(bool),
        mask.astype(bool).tolist(),
        mask.astype(bool).astype(object),
        csr_array(mask[None]),
        coo_array(mask),
        [mask.astype(bool)] * 6,
        np.tile(mask.astype(bool), (6, 1)).tolist(),
    ):
        labels, _ = model.predict_topk(X, 2, among=form)
        assert np.sort(labels).tolist() == [[2, 3]] * 6
    for form in (mask, np.tile(mask, (6, 1)), mask.astype(float)):
        with pytest.raises(ValueError, match=r"got a mask of .*: pass it as bool"):
            model.predict_topk(X, 2, among=form)
    with pytest.raises(ValueError, match="one or two dimensions"):
        model.predict_topk(X, 2, among=np.zeros((1, 1, 6), bool))
    with pytest.raises(ValueError, match="a boolean for each class, got lists of several lengths"):
        model.predict_topk(X[:2], 2, among=[[True], [True, False]])


def test_arrow():
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow: run make test-all")
    X = np.eye(4, dtype=np.float32)
    model = LTLSClassifier(epochs=5, random_state=0).fit(X, ["a", "b", "c", "d"])
    for form in (pa.array(["b", "d"]), pa.chunked_array([["d"], ["b"]]),
                 pa.array([False, True, False, True])):  # fmt: skip
        same(model.predict_topk(X, 2, among=form), model.predict_topk(X, 2, among=["b", "d"]))


@pytest.mark.parametrize(
    "labels", [[0, 1, "x", "y", "z", ("t", 1)], ["a", "b", "c", "d", "e", "f" * 100]], ids=str
)
def test_a_list_of_booleans_is_a_mask_for_labels_of_any_type(labels):
    X = np.eye(6, dtype=np.float32)
    model = LTLSClassifier(epochs=5, random_state=0).fit(X, labels)
    mask = [False, False, True, True, False, False]
    same(model.predict_topk(X, 2, among=mask), model.predict_topk(X, 2, among=np.array(mask)))


def test_booleans_in_a_list_may_be_labels():
    X = np.eye(4, dtype=np.float32)
    model = LTLSClassifier(epochs=5, random_state=0).fit(X, [True, False, True, False])
    assert model.predict_topk(X, 2, among=[True])[0].tolist() == [[True]] * 4


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_dates(unit):
    days = np.arange("2020-01-01", "2020-01-07", dtype="M8[D]").astype(f"M8[{unit}]")
    X = np.eye(6, dtype=np.float32)
    model = LTLSClassifier(epochs=5, random_state=0).fit(X, days)
    labels, _ = model.predict_topk(X, 3, among=days[[1, 4]])
    assert np.isin(labels, days[[1, 4]]).all()
    assert (model.predict_topk(X, 1, among=model.classes_)[0] == model.predict_topk(X, 1)[0]).all()


@pytest.mark.parametrize("settings", [{}, {"label_weights": True}, {"loss": "logistic"}], ids=str)
def test_probabilities_of_many_rows_without_allowed_labels(settings):
    X, y = problems.sparse(multilabel="loss" in settings)
    model = LTLSClassifier(4, 1, epochs=1, random_state=0, **settings).fit(X, y)
    rows, some = X[np.zeros(4097, int)], model.classes_[[3, 4]].tolist()
    labels, probs = model.predict_topk(rows, 2, True, among=[[]] * 4096 + [some])
    assert (probs[:-1] == 0).all()
    same((labels[-1:], probs[-1:]), model.predict_topk(rows[-1:], 2, True, among=[some]))


def test_labels_that_cannot_be_looked_up_are_a_type_error(case):
    X, model = case
    with pytest.raises(TypeError, match="among must hold labels"):
        model.predict_topk(X, among=[{"a": 1}])


def test_texts():
    texts, kinds = problems.texts()
    model = TextClassifier(random_state=0).fit(texts, kinds)
    allowed = sorted(set(kinds))[:2]
    labels, _ = model.predict_topk(texts, 1, among=allowed)
    assert set(labels[:, 0]) <= set(allowed)
