import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification

import ltls
from ltls import LTLSClassifier, RandomCodebook, TableCodebook

LOSSES = ["separation", "softmax", "logistic"]
POLICIES = ["ranking", "random", "similarity", "frequency", "learned"]


def score_of_label(model, X, label):
    """The sum over the trellises of the label's score."""
    trellis, total = model.trellis_, 0
    blocks = np.split(model.edge_scores(X), len(model.codebooks_), axis=1)
    for h, codebook in zip(blocks, model.codebooks_, strict=True):
        if model.loss == "logistic":
            h = model.model_.decoder().decode_scores(np.ascontiguousarray(h))
        total = total + trellis.score(h, np.full(len(X), codebook.path_of(label)))
        if model.loss == "softmax":
            total = total - trellis.log_partition(h)
    return total


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("assignment", POLICIES)
def test_scores_are_sums_over_the_trellises(digits, loss, assignment):
    X, y = digits
    model = LTLSClassifier(
        width=3, n_trellises=3, loss=loss, assignment=assignment, random_state=0, epochs=2
    ).fit(X, y)
    labels, scores = model.predict_topk(X[:40], 10)
    every = np.column_stack([score_of_label(model, X[:40], label) for label in range(10)])
    np.testing.assert_allclose(scores, -np.sort(-every, axis=1), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.decision_function(X[:40]), every, rtol=1e-3, atol=1e-3)
    assert sorted(labels[0]) == list(range(10))


@pytest.mark.parametrize("loss", LOSSES)
def test_trellises_are_trained_independently(digits, loss):
    X, y = digits
    books = [RandomCodebook(10, seed) for seed in range(3)]
    settings = {"width": 2, "loss": loss, "random_state": 0, "epochs": 2}
    together = LTLSClassifier(n_trellises=3, assignment=books, **settings).fit(X, y)
    alone = [LTLSClassifier(assignment=book, **settings).fit(X, y) for book in books]
    np.testing.assert_array_equal(together.coef_, np.vstack([model.coef_ for model in alone]))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("assignment", ["ranking", "similarity"])
def test_the_number_of_threads_changes_nothing(digits, loss, assignment):
    X, y = digits
    model = LTLSClassifier(
        width=4, n_trellises=5, loss=loss, assignment=assignment, random_state=0, average=True
    )
    one, two = clone(model).fit(X, y), clone(model).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.predict_topk(X, 3)[1], two.predict_topk(X, 3)[1])


def test_several_trellises_are_better_than_one(digits):
    X, y = digits
    one = LTLSClassifier(width=2, n_trellises=1, random_state=0).fit(X[::2], y[::2])
    five = LTLSClassifier(width=2, n_trellises=5, random_state=0).fit(X[::2], y[::2])
    assert five.score(X[1::2], y[1::2]) > one.score(X[1::2], y[1::2]) + 0.02


def test_codebooks_of_the_trellises_differ(digits):
    X, y = digits
    for assignment in ("random", "similarity", "frequency"):
        model = LTLSClassifier(n_trellises=2, assignment=assignment, random_state=0, epochs=1)
        first, second = model.fit(X, y).codebooks_
        assert (first.path_of(np.arange(10)) != second.path_of(np.arange(10))).any()


def test_probabilities_are_the_mean_over_the_trellises(digits):
    X, y = digits
    model = LTLSClassifier(width=3, n_trellises=3, calibrate=False, random_state=0).fit(X, y)
    blocks = np.split(model.edge_scores(X[:30]), 3, axis=1)
    for label in range(10):
        each = [
            np.exp(
                model.trellis_.score(h, np.full(30, book.path_of(label)))
                - model.trellis_.log_partition(h)
            )
            for h, book in zip(blocks, model.codebooks_, strict=True)
        ]
        found = np.exp(model.log_proba(X[:30], np.full(30, label)))
        np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-4, atol=1e-6)


def test_new_labels_get_paths_in_all_trellises(digits):
    X, y = digits
    model = LTLSClassifier(n_trellises=3, width=2, assignment="ranking", random_state=0)
    for label in range(10):
        model.partial_fit(X[y == label][:50], y[y == label][:50])
    assert model.trellis_.n_classes >= 10
    for _ in range(5):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.7
    for book in model.codebooks_:
        assert len(set(book.path_of(np.arange(10)).tolist())) == 10


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_model_files_hold_all_trellises(digits, tmp_path, dtype):
    X, y = digits
    for assignment in ("random", "similarity"):
        model = LTLSClassifier(n_trellises=3, width=3, assignment=assignment, random_state=0)
        model.fit(X, y).save(tmp_path / "model.ltls", dtype=dtype)
        loaded = ltls.load(tmp_path / "model.ltls", verify=True)
        assert (loaded.predict(X) == model.predict(X)).mean() > 0.99


def test_multilabel_predictions_use_all_trellises():
    X, Y = make_multilabel_classification(300, n_classes=12, random_state=0)
    model = LTLSClassifier(n_trellises=4, width=4, loss="logistic", random_state=0).fit(X, Y)
    predicted = model.predict(X)
    assert 2 * (predicted & Y).sum() / (predicted.sum() + Y.sum()) > 0.55
    np.testing.assert_array_equal(predicted, model.decision_function(X) >= model.threshold_)


def test_given_codebooks_must_match_the_trellises(digits):
    with pytest.raises(ValueError, match="one codebook for each of 2 trellises"):
        LTLSClassifier(n_trellises=2, assignment=RandomCodebook(10)).fit(*digits)
    books = [RandomCodebook(10), RandomCodebook(11)]
    with pytest.raises(ValueError, match="all of the same size"):
        LTLSClassifier(n_trellises=2, assignment=books).fit(*digits)
    for given in ([RandomCodebook(10), TableCodebook(10)], ["random", "random"], [1, 2], []):
        with pytest.raises(ValueError, match="codebooks of one kind"):
            LTLSClassifier(n_trellises=2, assignment=given).fit(*digits)


def test_one_codebook_given_for_several_trellises_is_copied_for_each(digits):
    X, y = digits
    book = TableCodebook(10)
    model = LTLSClassifier(n_trellises=3, assignment=[book] * 3, random_state=0, n_jobs=2, epochs=1)
    model.fit(X, y)
    assert len({id(each) for each in model.codebooks_}) == 3
    assert book.n_free == 10


def test_a_label_without_a_path_in_one_trellis_gets_one(digits):
    X, y = digits
    books = [TableCodebook(6, [0, 1, 2]), TableCodebook(6, [-1, -1, -1, 3, 4, 5])]
    weight = (y[y < 3] != 2).astype(float)
    model = LTLSClassifier(n_trellises=2, assignment=books, random_state=0)
    model.fit(X[y < 3], y[y < 3], sample_weight=weight)
    for book in model.codebooks_:
        assert (book.path_of([0, 1, 2]) >= 0).all()
    assert model.predict_topk(X, 3)[0].shape == (len(X), 3)
    assert model.decision_function(X).shape == (len(X), 3)


def test_predict_proba_is_the_exponential_of_log_proba(digits):
    X, y = digits
    model = LTLSClassifier(n_trellises=4, width=3, random_state=0).fit(X, y)
    every = np.column_stack([model.log_proba(X[:50], np.full(50, label)) for label in range(10)])
    np.testing.assert_allclose(model.predict_log_proba(X[:50]), every, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("k", [1, 5, 300])
def test_the_best_of_many_labels_are_found_among_the_candidates(loss, k):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(400, 30))
    y = np.tile(np.arange(400), 5)
    X = centers[y] + 0.3 * rng.normal(size=(2000, 30))
    settings = {"loss": loss, "assignment": "similarity", "label_weights": False}
    model = LTLSClassifier(width=8, n_trellises=3, random_state=0, **settings).fit(X, y)
    labels, scores = model.predict_topk(X[:100], k)
    every = model.decision_function(X[:100])
    of_labels = np.take_along_axis(every, labels, axis=1)
    np.testing.assert_allclose(scores, of_labels, rtol=1e-3, atol=1e-3)
    best = -np.sort(-every, axis=1)[:, :k]
    assert (np.abs(scores - best) < 1e-2).mean() > (0.97 if k < 300 else 0.999)
    assert all(len(set(row)) == k for row in labels)
