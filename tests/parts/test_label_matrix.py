"""The label matrix against brute force: scores, steps of training, and what a user sees."""

import copy
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ltls
from ltls import LTLSClassifier
from ltls.core import _engine
from ltls.features.rows import Rows
from ltls.parts import discriminant
from ltls.parts.dense_vectors import DenseVectors
from ltls.parts.discriminant import Transform
from ltls.parts.label_matrix import LabelMatrixPart
from ltls.parts.label_trainer import BatchTargets, LabelTrainer
from ltls.settings import LabelMatrix


def random_part(rng, n_labels, n_features):
    vectors = rng.normal(size=(n_labels, n_features)).astype(np.float32)
    offsets = rng.normal(size=n_labels).astype(np.float32)
    return part_of(vectors, offsets)


def part_of(vectors, offsets):
    mean = np.zeros(vectors.shape[1], np.float32)
    return LabelMatrixPart(DenseVectors.rounded(vectors, offsets, lambda _: mean), mean, 1.0)


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 70), st.integers(0, 2**32 - 1))
def test_scores_and_candidates_are_those_of_brute_force(n_labels, n_features, n_rows, seed):
    rng = np.random.default_rng(seed)
    part = random_part(rng, n_labels, n_features)
    X = rng.normal(size=(n_rows, n_features)).astype(np.float32)
    expected = X.astype(float) @ part.vectors.matrix().T.astype(float) + part.vectors.offsets
    rows = Rows(X, True, False)
    every = np.tile(np.arange(n_labels), (n_rows, 1))
    scores = part.score(rows, every, None)
    np.testing.assert_allclose(scores, expected, atol=2e-3 * (1 + np.abs(expected).max(initial=0)))
    ids = rng.integers(-1, n_labels, (n_rows, 7))
    some = part.score(rows, ids, None)
    assert (some[ids >= 0] == np.take_along_axis(scores, np.maximum(ids, 0), 1)[ids >= 0]).all()
    k = min(5, n_labels)
    order = np.lexsort((every, -scores), axis=1)[:, :k] if n_rows else np.empty((0, k))
    np.testing.assert_array_equal(part.candidates(rows, k, None), order)


def test_instruction_sets_and_threads_agree_to_the_last_bit():
    rng = np.random.default_rng(0)
    part, found = random_part(rng, 333, 37), []
    X = rng.normal(size=(150, 37)).astype(np.float32)
    every = np.tile(np.arange(333), (150, 1))
    for name in _engine.instruction_sets():
        before = _engine.use_instruction_set(name)
        for n_jobs in (1, 2, 3):
            rows = Rows(X, True, False)
            found.append((part.score(rows, every, n_jobs), part.candidates(rows, 9, n_jobs)))
        _engine.use_instruction_set(before)
    for scores, ids in found[1:]:
        np.testing.assert_array_equal(scores, found[0][0])
        np.testing.assert_array_equal(ids, found[0][1])


def test_ties_go_to_the_smaller_label(instruction_set):
    part = random_part(np.random.default_rng(0), 4, 3)
    same = np.tile(part.vectors.matrix()[:1], (100, 1))
    part = part_of(same, np.zeros(100, np.float32))
    rows = Rows(np.ones((9, 3), np.float32), False, False)
    np.testing.assert_array_equal(part.candidates(rows, 6, None), np.tile(np.arange(6), (9, 1)))


def test_the_engine_rejects_what_would_overflow():
    vectors = _engine.DenseVectors(
        np.ones(32, np.int8), np.ones(1, np.float32), np.zeros(1, "f4"), 1
    )
    rows, ids = np.full((1, 2), 2**15 - 1, np.int16), np.zeros((1, 1), np.int64)
    out = np.empty((1, 1), np.float32)
    vectors.scores(rows, np.ones(1, np.float32), ids, out, 1)
    assert out[0, 0] == 2 * (2**15 - 1)
    for bad in (np.zeros(1, np.float32), np.full(1, np.nan, np.float32)):
        with pytest.raises(ValueError, match="units must be above 0"):
            vectors.scores(rows, bad, ids, out, 1)
    with pytest.raises(ValueError, match="ids must be between -1 and 0"):
        vectors.scores(rows, np.ones(1, np.float32), ids + 1, out, 1)
    with pytest.raises(ValueError, match="values must have 32 entries"):
        _engine.DenseVectors(np.ones(31, np.int8), np.ones(1, np.float32), np.zeros(1, "f4"), 1)


@given(st.integers(1, 100), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_rounding_changes_no_score_at_the_means_and_rounded_vectors_stay(n, d, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.choice([-1, 1], size=(n, d)) * rng.uniform(1, 2, (n, d)).astype("f4")
    vectors, offsets = vectors.astype("f4"), rng.normal(size=n).astype("f4")
    means = rng.normal(size=(n, d)).astype("f4")
    found = DenseVectors.rounded(vectors, offsets, means.__getitem__)
    scores = (found.matrix() * means).sum(axis=1) + found.offsets
    np.testing.assert_allclose(scores, (vectors * means).sum(axis=1) + offsets, atol=1e-4)
    again = DenseVectors.rounded(
        found.matrix(), found.offsets, means.__getitem__, found.feature_scales
    )
    np.testing.assert_array_equal(again.values, found.values)
    np.testing.assert_allclose(again.offsets, found.offsets, atol=1e-4)


@pytest.mark.parametrize("n_features", [1, 2])
def test_few_features_tell_as_many_labels_apart_as_the_nearest_mean(n_features):
    """A vector of int8 has only 255 different values in each of them."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(size=(150, n_features))
    if n_features == 1:
        centres = np.linspace(0, 1, 150)[:, None]
    y = np.repeat(np.arange(150), 20)
    X, X_test = (
        (centres[y] + 0.002 * rng.normal(size=(len(y), n_features))).astype("f4") for _ in range(2)
    )
    model = LTLSClassifier(random_state=0).fit(X, y)
    nearest = ((X_test[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    precision = (nearest == y).mean()
    assert precision > 0.85
    assert model.score(X_test, y) > precision - 0.02


def test_coordinates_are_undone_and_those_of_few_rows_are_found_in_their_span():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 90)) * np.geomspace(1, 9, 20)[:, None]
    covariance = X.T @ X / 20
    variances, axes = discriminant._axes_of(covariance, 20)
    assert variances.shape == (90,)
    assert axes.shape == (90, 28)
    np.testing.assert_allclose(variances[-62:], 0)
    np.testing.assert_allclose((axes * variances[:28]) @ axes.T, covariance, atol=1e-9)
    np.testing.assert_allclose(axes.T @ axes, np.eye(28), atol=1e-9)
    mean = rng.normal(size=90).astype("f4")
    scales = np.sqrt(variances + 0.5)
    few = Transform(mean, scales[:28], axes, scales[-1])
    every, all_axes = np.linalg.eigh(covariance)
    whole = Transform(mean, np.sqrt(every + 0.5), all_axes)
    np.testing.assert_allclose(few.matrix, whole.matrix, atol=1e-5)
    V, offsets, rows = (rng.normal(size=shape).astype("f4") for shape in ((5, 90), 5, (7, 90)))
    for transform in (few, whole, Transform(mean, np.geomspace(0.1, 9, 90))):
        W, b = transform.from_original(V, offsets)
        np.testing.assert_allclose(
            transform(rows) @ W.T + b, rows @ V.T + offsets, rtol=1e-3, atol=1e-3
        )
        for found, expected in zip(transform.to_original(W, b), (V, offsets), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose((rows - mean) @ transform.matrix, transform(rows), atol=1e-4)


def test_training_takes_the_memory_of_a_few_matrices():
    rng = np.random.default_rng(0)
    y = np.arange(20_000)
    X = rng.normal(size=(20_000, 64)).astype("f4")
    model = LTLSClassifier(label_matrix=LabelMatrix(epochs=1), neighbours=False, random_state=0)
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * X.nbytes


def test_a_step_follows_the_gradient_of_the_cross_entropy():
    rng = np.random.default_rng(1)
    W, b = rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=6).astype(np.float32)
    X, weights = rng.normal(size=(4, 3)).astype(np.float32), np.array([1, 2, 0, 1], np.float32)
    ptr, labels = np.array([0, 1, 3, 4, 4]), np.array([5, 0, 2, 1])

    def loss(W, b):
        total = 0.0
        for row, weight in enumerate(weights):
            own = labels[ptr[row] : ptr[row + 1]]
            scores = W @ X[row] + b
            log_p = scores - np.log(np.exp(scores).sum())
            total -= weight * log_p[own].mean() if len(own) else 0
        return total

    trainer = LabelTrainer(W.copy(), b.copy(), np.full(6, 1e-8, np.float32), np.ones(6), 6, rng)
    trainer.step(X, BatchTargets(ptr, labels, weights), 1e-3)
    moved = trainer.W - W
    eps = 1e-4
    for label in range(6):
        slope = np.array(
            [
                loss(W + eps * (np.arange(18).reshape(6, 3) == 3 * label + j), b)
                - loss(W - eps * (np.arange(18).reshape(6, 3) == 3 * label + j), b)
                for j in range(3)
            ]
        )
        # One accumulator per label: the step has the direction of the gradient.
        cosine = -slope @ moved[label] / (np.linalg.norm(slope) * np.linalg.norm(moved[label]))
        assert cosine > 0.999


@pytest.fixture(scope="module")
def embeddings():
    """150 labels around random centres, in correlated features."""
    rng = np.random.default_rng(0)
    centres, mix = rng.normal(size=(150, 24)), rng.normal(size=(24, 24))
    y = np.repeat(np.arange(150), 14)
    X = ((centres[y] + 0.8 * rng.normal(size=(len(y), 24))) @ mix).astype(np.float32)
    order = rng.permutation(len(y))
    return X[order], y[order]


@pytest.fixture(scope="module")
def model(embeddings):
    X, y = embeddings
    return LTLSClassifier(random_state=0).fit(X[:1600], y[:1600])


def test_dense_rows_get_a_label_matrix_that_beats_the_nearest_mean(embeddings, model):
    X, y = embeddings
    assert model.plan_.startswith("label matrix: dense rows")
    means = np.array([X[:1600][y[:1600] == label].mean(axis=0) for label in range(150)])
    nearest = ((X[1600:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    found = model.predict(X[1600:])
    assert (found == y[1600:]).mean() > (nearest == y[1600:]).mean() + 0.02
    proba = model.predict_proba(X[1600:])
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-4)


@pytest.mark.parametrize(
    ("n_labels", "n_rows", "noise", "anisotropic"),
    [(200, 12, 1.4, False), (300, 4, 1.2, False), (200, 8, 1.6, True)],
)
def test_labels_of_few_rows_are_found_as_often_as_by_the_nearest_mean(
    n_labels, n_rows, noise, anisotropic
):
    """Softmax training alone overfits them, by 2 to 7 points."""
    rng = np.random.default_rng(0)
    mix = np.diag(np.geomspace(0.3, 2, 48)) if anisotropic else np.eye(48)
    centres, y = rng.normal(size=(n_labels, 48)), np.tile(np.arange(n_labels), n_rows + 8)
    X = (centres[y] + noise * rng.normal(size=(len(y), 48)) @ mix).astype(np.float32)
    train, test = slice(n_labels * n_rows), slice(n_labels * n_rows, None)
    means = X[train].reshape(n_rows, n_labels, -1).mean(axis=0)
    nearest = (X[test] @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1)
    found = LTLSClassifier(random_state=0).fit(X[train], y[train]).predict(X[test])
    gain = (found == y[test]).mean() - (nearest == y[test]).mean()
    assert gain > (0.35 if anisotropic else -0.01)


@pytest.mark.parametrize(
    ("n_labels", "n_rows", "n_features", "size"),
    [(150, 2, 256, 2.0), (300, 1, 384, 2.2), (600, 1, 64, 1.0), (60, 1, 64, 1.0), (30, 3, 64, 1.7)],
)
def test_fewer_than_a_thousand_rows_are_enough_to_be_as_good_as_the_nearest_mean(
    n_labels, n_rows, n_features, size
):
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(n_labels, n_features)), np.tile(np.arange(n_labels), n_rows + 8)
    X = (centres[y] + size * rng.normal(size=(len(y), n_features))).astype(np.float32)
    train, test = slice(n_labels * n_rows), slice(n_labels * n_rows, None)
    means = X[train].reshape(n_rows, n_labels, -1).mean(axis=0)
    nearest = (X[test] @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1)
    model = LTLSClassifier(random_state=0).fit(X[train], y[train])
    assert (model.model_.part("label_matrix") is not None) == (n_labels > 128)
    assert (nearest == y[test]).mean() < 0.95
    assert model.score(X[test], y[test]) > (nearest == y[test]).mean() - 0.01
    pairs = [[int(label), int(label) + n_labels] for label in y]
    several = LTLSClassifier(random_state=0).fit(X[train], pairs[train])
    assert (several.model_.part("label_matrix") is not None) == (n_labels >= 32)


def test_neighbours_are_not_tried_on_few_held_out_rows(embeddings):
    X, y = embeddings
    assert "Neighbours" not in LTLSClassifier(random_state=0).fit(X[:1999], y[:1999]).plan_
    assert "Neighbours" in LTLSClassifier(random_state=0).fit(X[:2000], y[:2000]).plan_


def test_a_label_without_rows_does_not_harm_the_others(embeddings, model):
    X, y = embeddings
    weights = (y[:1600] > 0).astype(float)
    without = LTLSClassifier(random_state=0).fit(X[:1600], y[:1600], weights)
    others = y[1600:] > 0
    expected = model.score(X[1600:][others], y[1600:][others])
    assert without.score(X[1600:][others], y[1600:][others]) > expected - 0.02
    assert 0 not in without.predict(X[1600:])


def test_rows_may_be_of_any_scale_and_threads_of_any_number(embeddings, model):
    X, y = embeddings
    same = LTLSClassifier(random_state=0, n_jobs=2).fit(X[:1600], y[:1600])
    np.testing.assert_array_equal(same.model_.part("label_matrix").vectors.values,
                                  model.model_.part("label_matrix").vectors.values)  # fmt: skip
    large = LTLSClassifier(random_state=0).fit(1000 * X[:1600], y[:1600])
    agree = large.predict(1000 * X[1600:]) == model.predict(X[1600:])
    assert agree.mean() > 0.95


def test_a_file_is_at_most_a_tenth_larger_than_the_vectors(tmp_path):
    rng = np.random.default_rng(0)
    n_labels, n_features = 2500, 256
    centres = rng.normal(size=(n_labels, n_features))
    y = np.repeat(np.arange(n_labels), 2)
    X = (centres[y] + rng.normal(size=(len(y), n_features))).astype(np.float32)
    model = LTLSClassifier(label_matrix=LabelMatrix(epochs=1), neighbours=False, random_state=0)
    model.fit(X, y).save(tmp_path / "model")
    size = (tmp_path / "model").stat().st_size
    assert 1.05 < size / (n_labels * n_features) <= 1.1
    loaded = ltls.load(tmp_path / "model")
    assert len(loaded.model_.memory) > 20  # they fill it up
    loaded.partial_fit(-X[:2], [n_labels] * 2)
    assert (loaded.predict(-X[:2]) == n_labels).all()
    assert loaded.score(X, y) > 0.95 * model.score(X, y)


def test_new_labels_are_found_from_their_first_rows(embeddings, model):
    X, y = embeddings
    known = y < 145
    first = LTLSClassifier(random_state=0).fit(X[:1600][known[:1600]], y[:1600][known[:1600]])
    test, late = slice(1600, None), ~known[1600:]
    before = (first.predict(X[test]) == y[test])[~late].mean()
    first.partial_fit(X[:1600][~known[:1600]], y[:1600][~known[:1600]])
    right = first.predict(X[test]) == y[test]
    assert right[late].mean() > 0.5
    assert right[~late].mean() > before - 0.03


def test_a_tiny_row_does_not_make_the_steps_of_replayed_ones_larger(embeddings, model):
    X, y = embeddings
    after = copy.deepcopy(model).partial_fit(1e-8 * X[:1], y[:1])
    assert after.score(X[1600:], y[1600:]) > model.score(X[1600:], y[1600:]) - 0.01


def test_a_large_first_batch_is_fitted_and_others_follow(embeddings, model):
    X, y = embeddings
    weights = {3: 2.0, "later": 2.0}
    first = LTLSClassifier(class_weight=weights, random_state=0)
    first.partial_fit(X[:1600], y[:1600], classes=[7, 1000])
    assert first.classes_[:3].tolist() == [7, 1000, y[0]]
    assert first.model_.part("label_matrix") is not None
    assert first.score(X[1600:], y[1600:]) > model.score(X[1600:], y[1600:]) - 0.03
    assert 1000 not in first.predict(X[1600:])
    first.partial_fit(5 - X[:9], [1000] * 9)
    assert (first.predict(5 - X[:9]) == 1000).mean() > 0.5
    small = LTLSClassifier(random_state=0).partial_fit(X[:300], y[:300])  # of 130 labels or so
    assert small.model_.part("label_matrix") is not None
    few = LTLSClassifier(random_state=0).partial_fit(X[:100], y[:100])
    assert [part.name for part in few.model_.parts] == ["trellises"]
    with pytest.raises(ValueError, match="label_matrix=True needs all rows at once"):
        LTLSClassifier(label_matrix=True).partial_fit(X[:1], y[:1])


def test_several_labels_per_row_streams_and_weights(embeddings):
    X, y = embeddings
    pairs = [[int(label), int(label) // 10 + 200] for label in y]
    several = LTLSClassifier(random_state=0).fit(X[:1600], pairs[:1600])
    top = several.predict_topk(X[1600:], 2)[0]
    hits = [len(set(a) & set(b)) for a, b in zip(top.tolist(), pairs[1600:], strict=True)]
    assert np.mean(hits) / 2 > 0.5
    batches = [(X[i : i + 400], y[i : i + 400]) for i in range(0, 1600, 400)]
    streamed = LTLSClassifier(random_state=0).fit_stream(batches)
    assert (streamed.predict(X[1600:]) == y[1600:]).mean() > 0.5
    weights = (y[:1600] != 3).astype(float)
    without = LTLSClassifier(random_state=0).fit(X[:1600], y[:1600], sample_weight=weights)
    assert (without.predict(X[1600:]) != 3).all()


def test_labels_without_rows_do_not_change_the_answers():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 9)).astype(np.float32)
    few = part_of(vectors, np.zeros(20, np.float32))
    many = few.grow(40, 0)  # those that are new have no rows
    rows = Rows(rng.normal(size=(30, 9)).astype(np.float32), True, False)
    every = np.tile(np.arange(20), (30, 1))
    scores = few.score(rows, every, None)
    np.testing.assert_allclose(many.score(rows, every, None), scores, atol=0.05)
    assert (many.candidates(rows, 20, None) < 20).all()


def test_half_precision_is_taken_as_single_precision(embeddings):
    X, y = embeddings[0].astype(np.float16), embeddings[1]
    found = [
        LTLSClassifier(random_state=0).fit(each, y).decision_function(each[:20])
        for each in (X, X.astype(np.float32))
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("n_jobs", [2, 3, -1])
def test_the_number_of_threads_does_not_change_what_is_trained(n_jobs):
    """1,300 labels are three chunks."""
    rng = np.random.default_rng(0)
    y = rng.integers(1300, size=2600)
    X = (rng.normal(size=(1300, 8))[y] + 0.1 * rng.normal(size=(2600, 8))).astype(np.float32)
    settings = LabelMatrix(epochs=2, n_negatives=1200)
    found = [
        LTLSClassifier(label_matrix=settings, random_state=0, n_jobs=n)
        .fit(X, y)
        .decision_function(X)
        for n in (1, n_jobs)
    ]
    np.testing.assert_array_equal(*found)
