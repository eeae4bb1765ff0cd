"""From LTLSClassifier to a torch module and back."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import LTLSClassifier, TextClassifier, load  # noqa: E402
from ltls.settings import Numbers, Propensity, Prototypes, Trellises, Views  # noqa: E402
from ltls.torch import TrellisSoftmax, from_classifier, to_classifier  # noqa: E402

X, Y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
NAMES = np.array([f"digit {digit}" for digit in range(10)])


def rows(n=200):
    return torch.from_numpy(X[:n])


def trellises_alone(width=4, n_trellises=1, features="auto", **settings):
    given = {"width": width, "n_trellises": n_trellises, "epochs": 2, "dtype": "float32"}
    return LTLSClassifier(
        trellises=Trellises(**{**given, **settings}),
        features=features,
        label_weights=False,
        calibration=False,
        random_state=0,
    )


@pytest.fixture(
    scope="module",
    params=[
        {"width": 2},
        {"width": 4, "n_trellises": 3},
        {"width": 3, "assignment": "frequency", "features": Numbers(fit_intercept=False)},
        {"assignment": "ranking", "n_trellises": 2, "features": Numbers(normalize=True)},
    ],
    ids=str,
)
def classifier(request):
    return trellises_alone(**request.param).fit(X, NAMES[Y])


def test_the_module_scores_as_the_classifier_does(classifier):
    head = from_classifier(classifier)
    found = head.edge_scores(rows()).flatten(1).detach()
    np.testing.assert_allclose(found, classifier.edge_scores(X[:200]), rtol=1e-4, atol=1e-5)
    labels = torch.from_numpy(Y[:200].astype(np.int64))
    expected = classifier.path_log_proba(X[:200], NAMES[Y[:200]])
    found = head.log_prob(rows(), labels).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_one_trellis_has_the_same_probabilities():
    classifier = trellises_alone().fit(X, NAMES[Y])
    found = from_classifier(classifier).log_prob(rows()).exp().detach()
    np.testing.assert_allclose(found, classifier.predict_proba(X[:200]), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_rounded_weights(dtype):
    classifier = trellises_alone(dtype=dtype).fit(X, NAMES[Y])
    found = from_classifier(classifier).edge_scores(rows()).flatten(1).detach()
    np.testing.assert_allclose(found, classifier.edge_scores(X[:200]), rtol=1e-4, atol=1e-5)


def test_the_features_of_texts():
    texts = ["a red apple", "the blue sky", "green grass", "a red rose"]
    classifier = TextClassifier(label_weights=False, random_state=0)
    classifier = classifier.set_params(trellises__n_trellises=1, trellises__epochs=20)
    classifier = classifier.fit(texts, ["red", "blue", "green", "red"])
    features = classifier.model_.front_end.matrix(texts).toarray()
    labels = from_classifier(classifier).predict(torch.from_numpy(features).float())
    assert classifier.classes_[labels].tolist() == ["red", "blue", "green", "red"]


def test_round_trip_gives_the_same_classifier(classifier, tmp_path):
    again = to_classifier(from_classifier(classifier), classifier.classes_.tolist())
    for each in (again, save_and_load(again, tmp_path / "model.ltls")):
        np.testing.assert_array_equal(each.classes_, classifier.classes_)
        for method in ("edge_scores", "predict", "predict_proba", "decision_function"):
            found, expected = (getattr(model, method)(X[:200]) for model in (each, classifier))
            np.testing.assert_array_equal(found, expected)


def save_and_load(classifier, path):
    classifier.save(path)
    return load(path)


def test_a_grown_classifier_keeps_its_free_paths():
    classifier = trellises_alone(epochs=1)
    for first in range(0, 1500, 300):
        digits = Y[first : first + 300]
        known = digits <= first // 150
        classifier.partial_fit(X[first : first + 300][known], NAMES[digits[known]])
    n_labels = len(classifier.classes_)
    assert classifier.trellis_.n_classes > n_labels
    head = from_classifier(classifier)
    found = classifier.classes_[head.predict(rows())]
    np.testing.assert_array_equal(found, classifier.predict(X[:200]))
    again = to_classifier(head, classifier.classes_.tolist())
    again.partial_fit(X[:300], NAMES[Y[:300]])
    assert len(again.classes_) == 10


@pytest.mark.parametrize("assignment", ["frequency", "random"])
def test_a_trained_head_becomes_a_classifier(assignment):
    torch.manual_seed(0)
    head = TrellisSoftmax(64, 10, 4, assignment=assignment)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        head(rows(1000), torch.from_numpy(Y[:1000].astype(np.int64))).loss.backward()
        optimizer.step()
    classifier = to_classifier(head)
    np.testing.assert_array_equal(classifier.predict(X[:200]), head.predict(rows()))
    assert classifier.score(X[1000:], Y[1000:]) > 0.8


def test_codebooks_of_several_kinds_can_be_saved(tmp_path):
    head = TrellisSoftmax(64, 10, 4, n_trellises=2)  # the first has no table, the second a key
    with torch.no_grad():
        head.gate.weight.zero_()
        head.gate.bias.zero_()
    classifier = to_classifier(head)
    loaded = save_and_load(classifier, tmp_path / "model.ltls")
    np.testing.assert_array_equal(loaded.predict(X[:200]), classifier.predict(X[:200]))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("views", {"views": Views(n_views=1, cluster_size=4), "label_weights": True}),
        ("label_weights", {"label_weights": True}),
        ("prototypes", {"prototypes": Prototypes()}),
        ("propensity", {"propensity": Propensity(strength=0.5)}),
    ],
)
def test_a_model_of_other_parts_is_refused(name, settings):
    classifier = trellises_alone().set_params(**settings).fit(X, Y)
    wanted = f"trellises alone, got {name}: fit it with label_weights=False"
    with pytest.raises(ValueError, match=wanted):
        from_classifier(classifier)


def test_what_cannot_be_converted_raises():
    digits = trellises_alone(loss="separation").fit(X, Y)
    with pytest.raises(ValueError, match="loss='softmax', got 'separation'"):
        from_classifier(digits)
    unscaled = trellises_alone(features=Numbers(standardize=True)).fit(X, Y)
    with pytest.raises(ValueError, match="features__standardize=False"):
        from_classifier(unscaled)
    with pytest.raises(NotFittedError):
        from_classifier(LTLSClassifier())
    with pytest.raises(ValueError, match="weights its trellises equally"):
        to_classifier(TrellisSoftmax(4, 10, 2, n_trellises=2))
    with pytest.raises(ValueError, match="classes must be 10 distinct labels, got 2"):
        to_classifier(TrellisSoftmax(4, 10, 2), ["a", "b"])
