"""The embedding reranker: its training step against NumPy, and its use in every prediction."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import ltls
from ltls import LTLSClassifier, TableCodebook, Trellis
from ltls.core import _engine
from ltls.features.rows import engine_features
from ltls.linear.weights import padded

RANK, STRIDE = 3, 16


def softmax_step(x, own, others, samples, log_importance, features, labels, rate, squares):
    """One step of AdaGrad on the softmax over a row's labels, candidates and samples, in place."""
    vector = x @ features
    vector[RANK] = 1
    certain = [*own, *(label for label in dict.fromkeys(others) if label not in own and label >= 0)]
    drawn = [i for i, label in enumerate(samples) if label >= 0 and label not in certain]
    taken = [*certain, *samples[drawn]]
    scores = labels[taken] @ vector + np.concatenate(
        [np.zeros(len(certain)), log_importance[drawn]]
    )
    share = np.exp(scores - scores.max())
    move = -share / share.sum()
    move[: len(own)] += 1 / len(own)
    step = np.zeros_like(vector)
    for label, amount in zip(taken, move, strict=True):
        step += amount * labels[label]
        gradient = amount * vector
        squares[1][label] += gradient**2
        labels[label] += rate * gradient / np.sqrt(squares[1][label])
    step[RANK] = 0
    for feature in np.flatnonzero(x):
        gradient = x[feature] * step
        squares[0][feature] += gradient**2
        features[feature] += rate * gradient / np.sqrt(squares[0][feature])
    return np.log(share.sum()) - (scores[: len(own)] - scores.max()).mean()


@pytest.mark.parametrize("multilabel", [False, True], ids=["one label", "several labels"])
def test_a_training_step_agrees_with_numpy(instruction_set, multilabel):
    rng = np.random.default_rng(0)
    X = random_array((30, 12), density=0.4, random_state=rng, dtype=np.float32).tocsr()
    own = [
        sorted(rng.choice(9, 1 + multilabel * (i % 3), replace=False).tolist()) for i in range(30)
    ]
    candidates = rng.integers(-1, 9, (30, 4))
    candidates.sort()
    samples = rng.integers(-1, 9, (30, 6))
    log_importance = rng.normal(size=(30, 6)).astype(np.float32)
    order = rng.permutation(30)
    features = np.zeros((12, STRIDE), np.float32)
    features[:, :RANK] = rng.normal(size=(12, RANK))
    labels = np.zeros((9, STRIDE), np.float32)
    labels[:, : RANK + 1] = rng.normal(size=(9, RANK + 1))
    squares = [np.full_like(features, 0.1), np.full_like(labels, 0.1)]
    slow = [array.astype(float) for array in (features, labels, *squares)]
    task = _engine.EmbeddingTask(
        engine_features(X, False, False), np.cumsum([0, *map(len, own)]), np.concatenate(own),
        candidates, None, n_labels=9,
    )  # fmt: skip
    loss = task.run(
        features, squares[0], labels, squares[1], order, samples, log_importance, rank=RANK,
        learning_rate=0.2,
    )  # fmt: skip
    dense = X.toarray().astype(float)
    expected = sum(
        softmax_step(
            dense[i], own[i], candidates[i].tolist(), samples[j], log_importance[j], *slow[:2], 0.2,
            slow[2:],
        )
        for j, i in enumerate(order)
    )  # fmt: skip
    assert loss == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(features, slow[0], atol=2e-4)
    np.testing.assert_allclose(labels, slow[1], atol=2e-4)


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_importance_weights_of_samples_are_unbiased(loss):
    # Importance weights sum to the number of labels, on average, whatever the proposal is.
    rng = np.random.default_rng(0)
    X, y = csr_array(rng.random((3, 5), np.float32)), ["a", "b", "c"]
    model = LTLSClassifier(width=2, n_trellises=2, loss=loss, random_state=0).fit(X, y).model_
    book = TableCodebook(50, rng.permutation(50)[:41])  # nine paths are free
    trellis = Trellis(50, 3)
    decoder = replace(model.decoder(None), trellis=trellis, codebooks=[book], n_labels=41)
    h = rng.normal(size=(400, padded(trellis.n_edges))).astype(np.float32)
    labels, log_importance = decoder.sample(h, 100, 4.0, np.random.RandomState(0))
    assert labels.min() == -1
    assert labels.max() == 40
    each = np.bincount(labels[labels >= 0], np.exp(log_importance[labels >= 0]), minlength=41)
    np.testing.assert_allclose(each / len(h), 1, rtol=0.2)


def test_rerank_sorts_by_the_sum_of_both_scores(instruction_set):
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(6, STRIDE)).astype(np.float32)
    labels = rng.normal(size=(40, STRIDE)).astype(np.float32)
    ids = np.array([rng.permutation(40)[:8] for _ in range(6)])
    ids[0, 5:] = -1
    scores = -np.sort(rng.random((6, 8)), axis=1).astype(np.float32)
    scores[0, 5:] = -np.inf
    total = scores + 0.5 * np.einsum("ij,ikj->ik", vectors, labels[ids])
    total[0, 5:] = -np.inf
    order = np.argsort(-total, axis=1, kind="stable")
    expected = np.take_along_axis(ids, order, 1)
    _engine.rerank(vectors, labels, RANK, 0.5, ids, scores, 1)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, np.take_along_axis(total, order, 1), rtol=1e-4)


def problem(multilabel=False, n_rows=1200):
    """Labels that depend on pairs of features, which an embedding separates."""
    rng = np.random.default_rng(2)
    centers = rng.random((80, 60)) < 0.08
    y = rng.integers(0, 80, n_rows)
    X = csr_array((centers[y] | (rng.random((n_rows, 60)) < 0.03)).astype(np.float32))
    return (X, [sorted({int(a), int(a) // 2}) for a in y]) if multilabel else (X, y)


@pytest.fixture(scope="module", params=[False, True], ids=["one label", "several labels"])
def reranked(request):
    X, y = problem(request.param)
    settings = {"width": 2, "n_trellises": 2, "label_weights": False, "random_state": 0}
    model = LTLSClassifier(embedding_dim=16, **settings).fit(X, y)
    assert model.model_.embedding is not None
    return X, y, model


def test_topk_scores_are_those_of_decision_function(reranked):
    X, _, model = reranked
    labels, scores = model.predict_topk(X, 80)
    at = np.searchsorted(model.classes_, labels)
    everything = model.decision_function(X)
    np.testing.assert_allclose(scores, np.take_along_axis(everything, at, 1), rtol=1e-3, atol=1e-3)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_reranking_is_more_accurate_than_the_trellises_alone():
    X, y = problem()
    settings = {"width": 2, "n_trellises": 1, "label_weights": False, "random_state": 0}
    plain = LTLSClassifier(embedding_dim=0, **settings).fit(X[:900], y[:900])
    model = LTLSClassifier(embedding_dim=32, **settings).fit(X[:900], y[:900])
    assert plain.model_.embedding is None
    assert model.score(X[900:], y[900:]) > plain.score(X[900:], y[900:]) + 0.02


def test_an_embedding_that_does_not_help_is_dropped():
    X, y = problem()
    noise = np.random.default_rng(0).permutation(y)
    model = LTLSClassifier(width=8, n_trellises=3, embedding_dim=4, random_state=0).fit(X, noise)
    embedding = model.model_.embedding
    assert embedding is None or embedding.weight > 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_model_files_hold_the_embedding(reranked, tmp_path, dtype):
    X, _, model = reranked
    model.save(tmp_path / "model.ltls", dtype)
    loaded = ltls.load(tmp_path / "model.ltls")
    agree = (loaded.predict_topk(X, 1)[0] == model.predict_topk(X, 1)[0]).mean()
    assert agree == 1 if dtype == "float32" else agree > 0.97
    assert ltls.storage.model_file.describe(tmp_path / "model.ltls")["embedding_dim"] == 16


def test_the_predictor_reranks_too(reranked):
    X, _, model = reranked
    labels, scores = model.predict_topk(X, 3)
    predictor = model.predictor(3)
    found, found_scores = predictor(X)
    np.testing.assert_array_equal(found, labels)
    np.testing.assert_allclose(found_scores, scores, rtol=1e-5)
    row = X[[5]]
    np.testing.assert_array_equal(predictor(row.indices, row.data)[0], labels[5])


def test_partial_fit_drops_the_embedding(reranked):
    X, y, _ = reranked
    model = LTLSClassifier(width=2, n_trellises=2, embedding_dim=16, random_state=0).fit(X, y)
    new = [[999]] * 5 if isinstance(y, list) else [999] * 5
    model.partial_fit(X[:5], new)
    assert model.model_.embedding is None
    assert 999 in model.classes_
    model.predict_topk(X, 3)


def test_fit_stream_rejects_an_embedding():
    X, y = problem()
    with pytest.raises(ValueError, match="embedding_dim=4 needs all rows in memory"):
        LTLSClassifier(embedding_dim=4).fit_stream([(X, y)])


def test_results_do_not_depend_on_n_jobs():
    X, y = problem()
    settings = {"width": 2, "n_trellises": 2, "embedding_dim": 8, "random_state": 0}
    one = LTLSClassifier(**settings).fit(X, y)
    two = LTLSClassifier(**settings, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.predict_topk(X, 3)[1], two.predict_topk(X, 3)[1])


def test_probabilities_agree_with_predictions(reranked):
    X, y, model = reranked
    if isinstance(y, list):
        return
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-4)
    best = model.classes_[probabilities.argmax(axis=1)]
    assert (best == model.predict(X)).mean() > 0.99
