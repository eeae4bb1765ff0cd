"""Explanations are exact: they add up, follow their formulas, and are those of the weights."""

import math

import numpy as np
import pytest
from formulas import value_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse import random as random_matrix

from ltls import LTLSClassifier
from ltls.model import model as model_module
from ltls.settings import LabelWeights, Neighbours, Numbers, Propensity, Trellises, Views

ROUNDING = 2e-3  # what rows of 14 bits change of a score


def fitted(seed=0, n_labels=20, several=False, **parameters):
    rng = np.random.default_rng(seed)
    X = random_matrix(200, 40, 0.3, "csr", random_state=seed, dtype=np.float64)
    if several:
        y = (rng.random((200, n_labels)) < 0.15).astype(int)
        y[:n_labels] |= np.eye(n_labels, dtype=int)
    else:
        y = np.concatenate([np.arange(n_labels), rng.integers(0, n_labels, 200 - n_labels)])
    return LTLSClassifier(random_state=seed, **parameters).fit(X, y), X


EVERYTHING = {
    "views": Views(n_views=2, cluster_size=5),
    "prototypes": True,
    "neighbours": Neighbours(n_neighbors=7),
    "propensity": Propensity(strength=0.5),
}
MODELS = {
    "softmax": {},
    "logistic": {"several": True},
    "separation": {"trellises": Trellises(loss="separation")},
    "one narrow trellis": {"trellises": Trellises(width=2, n_trellises=1)},
    "no intercept": {"features": Numbers(fit_intercept=False, normalize=False)},
    "label weights": {"label_weights": True},
    "label weights, several": {"several": True, "label_weights": LabelWeights(threshold=0.0)},
    "a view": {"views": Views(n_views=1, cluster_size=4), "prototypes": False},
    "views of several trellises": {"views": True, "trellises": Trellises(n_trellises=2)},
    "everything": EVERYTHING,
    "everything, several labels": {"several": True, **EVERYTHING},
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def case(request):
    return fitted(**request.param)


def check(part):
    total = math.fsum(each.value for each in part.contributions) + part.intercept
    assert total == pytest.approx(part.linear_score, rel=1e-12, abs=1e-9)
    assert value_of(part) == pytest.approx(part.score, rel=1e-4, abs=1e-4)
    for own in part.parts:
        check(own)
    if part.part == "views":
        shares = [part.terms[f"share of view {n + 1}"] for n in range(len(part.parts))]
        assert math.fsum(shares) == pytest.approx(1)
        total = math.fsum(s * own.linear_score for s, own in zip(shares, part.parts, strict=True))
        assert total == pytest.approx(part.linear_score)
    elif part.parts:
        total = math.fsum(own.linear_score for own in part.parts)
        assert total == pytest.approx(part.linear_score)


def test_parts_add_up_to_the_score_and_contributions_to_the_linear_score(case):
    model, X = case
    labels, scores = model.predict_topk(X[:5], 4)
    for row, explained in enumerate(model.explain(X[:5], k=4)):
        assert [each.label for each in explained] == labels[row].tolist()
        for each, score in zip(explained, scores[row], strict=True):
            assert each.score == pytest.approx(score, rel=1e-4, abs=ROUNDING)
            assert math.fsum(part.score for part in each.parts) == pytest.approx(each.score)
            total = math.fsum(c.value for c in each.contributions) + each.intercept
            assert total == pytest.approx(each.linear_score, rel=1e-12, abs=1e-9)
            assert math.fsum(p.linear_score for p in each.parts) == pytest.approx(total)
            assert len(each.parts) == len(model.model_.parts)
            for part in each.parts:
                check(part)


def test_probabilities_are_those_of_predict_proba(case):
    model, X = case
    if not hasattr(model, "predict_proba"):
        assert model.explain(X[:1], k=1)[0][0].probability is None
        return
    every = model.predict_proba(X[:3])
    for row, explained in enumerate(model.explain(X[:3], labels=model.classes_.tolist())):
        for each in explained:
            place = model.model_.labels.id(each.label)
            assert each.probability == pytest.approx(every[row, place], rel=1e-5)


def test_scores_of_all_labels_are_those_of_the_decision_function(case):
    model, X = case
    every = model.decision_function(X[[3]])[0]
    explained = model.explain(X[[3]], labels=model.classes_.tolist())[0]
    assert [each.score for each in explained] == sorted((e.score for e in explained), reverse=True)
    for each in explained:
        place = model.model_.labels.id(each.label)
        assert each.score == pytest.approx(every[place], rel=1e-4, abs=ROUNDING)


@settings(max_examples=6)
@given(st.integers(0, 100), st.integers(3, 30), st.integers(2, 5), st.integers(1, 3))
def test_sums_are_exact_for_any_shape(seed, n_labels, width, n_trellises):
    given_ = Trellises(width=width, n_trellises=n_trellises)
    model, X = fitted(seed, n_labels, trellises=given_)
    every = model.decision_function(X[[1]])[0]
    for each in model.explain(X[:2], labels=model.classes_.tolist())[1]:
        for part in each.parts:
            check(part)
        assert each.score == pytest.approx(every[each.label], rel=1e-4, abs=1e-3)


def test_labels_that_are_no_candidates_stay_below_these(monkeypatch):
    monkeypatch.setattr(model_module, "FEW_LABELS", 10)
    monkeypatch.setattr(model_module, "CANDIDATES", 5)
    model, X = fitted(n_labels=60, **EVERYTHING)
    every, limited = model.decision_function(X[[3]])[0], 0
    for each in model.explain(X[[3]], labels=model.classes_.tolist())[0]:
        assert each.score == pytest.approx(every[each.label], rel=1e-4, abs=ROUNDING)
        if "since no part proposes the label" in each.formula:
            assert math.fsum(part.score for part in each.parts) > each.score
            limited += 1
        else:
            assert math.fsum(part.score for part in each.parts) == pytest.approx(each.score)
    assert limited


def test_features_that_never_occur_have_no_part():
    X = np.zeros((4, 100))
    X[np.arange(4), [3, 30, 60, 90]] = 1
    model = LTLSClassifier(random_state=0).set_params(trellises__epochs=20)
    model.fit(csr_array(X), list("abcd"))
    row = np.zeros((1, 100))
    row[0, [5, 60]] = 1
    [[best]] = model.explain(csr_array(row), k=1)
    assert best.label == "c"
    assert [each.feature for each in best.contributions] == ["x60"]


def test_the_global_explanation_has_the_weights_of_all_parts():
    model, _ = fitted(label_weights=True, prototypes=False)
    weights = dict(zip([p.name for p in model.model_.parts], model.model_.weights, strict=True))
    own = model.model_.part("label_weights").vectors.matrix()[[4]].toarray()[0]
    expected = own[: model.n_features_in_].astype(float)
    n_edges = model.trellis_.n_edges
    for number, book in enumerate(model.codebooks_):
        path = int(book.path_of(np.array([4]))[0])
        edges = number * n_edges + model.trellis_.path_edges(path)
        expected += weights["trellises"] * model.coef_[edges].sum(axis=0)
    found = model.global_explanation(4, k=5)
    best = np.argsort(-np.abs(expected))[:5]
    assert [each.feature for each in found.contributions] == [f"x{at}" for at in best]
    values = [each.value for each in found.contributions]
    assert values == pytest.approx(expected[best].tolist(), rel=1e-4)
    with pytest.raises(ValueError, match="label must be in classes_, got 99"):
        model.global_explanation(99)


@pytest.mark.parametrize("labels", [["nobody"], [], "card"])
def test_labels_that_are_not_known_are_an_error(labels):
    model, X = fitted()
    with pytest.raises(ValueError, match="labels must"):
        model.explain(X[:1], labels=labels)
