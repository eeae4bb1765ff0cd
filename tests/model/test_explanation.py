"""Explanations are exact: against weights and edges put together by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import random as random_matrix

from ltls import LTLSClassifier


def fitted(seed: int = 0, n_labels: int = 20, several: bool = False, **parameters):
    rng = np.random.default_rng(seed)
    X = random_matrix(200, 40, 0.3, "csr", random_state=seed, dtype=np.float64)
    if several:
        y = (rng.random((200, n_labels)) < 0.15).astype(int)
        y[:n_labels] |= np.eye(n_labels, dtype=int)
    else:
        y = np.concatenate([np.arange(n_labels), rng.integers(0, n_labels, 200 - n_labels)])
    return LTLSClassifier(epochs=2, random_state=seed, **parameters).fit(X, y), X


MODELS = [
    {},
    {"several": True},
    {"label_weights": True},
    {"several": True, "label_weights": True, "density": 0.3},
    {"label_weights": True, "bucket_size": 4},
    {"embedding_dim": 4, "label_weights": True},
    {"loss": "separation", "label_weights": False, "fit_intercept": False},
    {"several": True, "propensity": 0.5},
    {"normalize": False, "width": 2, "n_trellises": 1},
]


@pytest.mark.parametrize("parameters", MODELS, ids=str)
def test_contributions_and_intercept_are_the_linear_score_and_parts_the_score(parameters):
    model, X = fitted(**parameters)
    labels, scores = model.predict_topk(X[:5], 4)
    for row, explained in enumerate(model.explain(X[:5], k=4)):
        assert [each.label for each in explained] == labels[row].tolist()
        for each, score in zip(explained, scores[row], strict=True):
            assert each.score == pytest.approx(score, rel=1e-4, abs=1e-4)
            total = sum(c.value for c in each.contributions) + each.intercept
            assert total == pytest.approx(each.linear_score, rel=1e-12, abs=1e-9)
            assert sum(p.linear_score for p in each.parts) == pytest.approx(each.linear_score)
            for part in each.parts:
                total = sum(c.value for c in part.contributions) + part.intercept
                assert total == pytest.approx(part.linear_score, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("parameters", MODELS[:4], ids=str)
def test_contributions_are_those_of_the_weights(parameters):
    model, X = fitted(**parameters)
    [[best]] = model.explain(X[7], k=1)
    label = model.model_.labels.id(best.label)
    x = X[7].toarray()[0]
    x /= np.linalg.norm(x)
    n_edges = model.trellis_.n_edges
    expected = np.zeros(len(x))
    for number, (book, part) in enumerate(zip(model.codebooks_, best.parts, strict=False)):
        path = int(book.path_of(np.array([label]))[0])
        edges = number * n_edges + model.trellis_.path_edges(path)
        assert part.path == path
        assert [edge.edge for edge in part.edges] == model.trellis_.path_edges(path).tolist()
        h = model.edge_scores(X[[7]])[0, edges]
        assert [edge.score for edge in part.edges] == pytest.approx(h.tolist(), rel=1e-4, abs=1e-4)
        assert part.linear_score == pytest.approx(part.weight * h.sum(), rel=1e-4, abs=1e-4)
        expected += part.weight * x * model.coef_[edges].sum(axis=0)
    if model.label_coef_ is not None:
        own = model.label_coef_.toarray()[label]
        z = x @ own + model.label_intercept_[label]
        assert best.parts[-1].linear_score == pytest.approx(z, rel=1e-5, abs=1e-5)
        assert best.parts[-1].score == pytest.approx(-(max(0, 1 - z) ** 3), rel=1e-4, abs=1e-5)
        expected += x * own
    values = {each.feature: each.value for each in best.contributions}
    for feature, value in enumerate(expected):
        assert values.get(f"x{feature}", 0) == pytest.approx(value, rel=1e-4, abs=1e-5)


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 100), st.integers(2, 30), st.integers(2, 5), st.integers(1, 3))
def test_sums_are_exact_for_any_shape(seed, n_labels, width, n_trellises):
    model, X = fitted(seed, n_labels, width=width, n_trellises=n_trellises)
    for each in model.explain(X[:2], labels=model.classes_.tolist())[1]:
        total = sum(c.value for c in each.contributions) + each.intercept
        assert total == pytest.approx(each.linear_score, rel=1e-12, abs=1e-9)
        scores = model.decision_function(X[[1]])
        if scores.ndim == 2:
            wanted = scores[0, model.model_.labels.id(each.label)]
            assert each.score == pytest.approx(wanted, rel=1e-4, abs=1e-3)


def test_labels_that_are_no_candidates_stay_below_these():
    model, X = fitted(n_labels=60, label_weights=True)
    all_scores = model.decision_function(X[[3]])[0]
    for each in model.explain(X[3], labels=model.classes_.tolist())[0]:
        assert each.score == pytest.approx(all_scores[each.label], rel=1e-4, abs=1e-4)


def test_dense_rows_and_probabilities():
    model, X = fitted()
    dense = LTLSClassifier(random_state=0).fit(X.toarray(), model.predict(X))
    for explained in dense.explain(X[:2].toarray(), k=2):
        for each in explained:
            assert 0 <= each.probability <= 1
    [[best]] = dense.explain(X[[0]].toarray(), k=1)
    assert best.probability == pytest.approx(dense.predict_proba(X[[0]].toarray()).max(), rel=1e-5)


def test_features_that_never_occur_have_no_part():
    X = np.zeros((4, 100))
    X[np.arange(4), [3, 30, 60, 90]] = 1
    from scipy.sparse import csr_array

    model = LTLSClassifier(epochs=20, random_state=0).fit(csr_array(X), list("abcd"))
    row = np.zeros((1, 100))
    row[0, [5, 60]] = 1
    [[best]] = model.explain(csr_array(row), k=1)
    assert best.label == "c"
    assert [each.feature for each in best.contributions] == ["x60"]


def test_the_global_explanation_has_the_weights_of_all_paths():
    model, _ = fitted(label_weights=True)
    n_edges = model.trellis_.n_edges
    expected = model.label_coef_.toarray()[4].astype(float)
    for number, book in enumerate(model.codebooks_):
        path = int(book.path_of(np.array([4]))[0])
        edges = number * n_edges + model.trellis_.path_edges(path)
        expected += model.model_.label_weights.weight * model.coef_[edges].sum(axis=0)
    found = model.global_explanation(4, k=5)
    best = np.argsort(-np.abs(expected))[:5]
    assert [each.feature for each in found.contributions] == [f"x{at}" for at in best]
    values = [each.value for each in found.contributions]
    assert values == pytest.approx(expected[best].tolist(), rel=1e-4)


@pytest.mark.parametrize("labels", [["nobody"], [], "card"])
def test_labels_that_are_not_known_are_an_error(labels):
    model, X = fitted()
    with pytest.raises(ValueError, match="labels must"):
        model.explain(X[:1], labels=labels)
