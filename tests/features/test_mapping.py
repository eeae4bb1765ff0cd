"""Models with weights for the features that occur, against models with weights for all."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import ltls
from ltls import LTLSClassifier, ModelFileError
from ltls.features.mapping import FeatureMap, used_features
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile, write

SETTINGS = {"width": 4, "n_trellises": 2, "epochs": 3, "density": 1, "random_state": 0}
SHIFT = 1000  # between used columns of the wide matrix


@pytest.fixture(scope="module")
def rows():
    """Rows of 40 features, and the same rows with the features far apart among 40,000."""
    rng = np.random.default_rng(0)
    y = rng.integers(12, size=600)
    X = sp.random(600, 40, 0.2, "csr", np.float32, rng)
    X = sp.csr_array(X + sp.csr_array((np.ones(600, np.float32), y, np.arange(601)), (600, 40)))
    X.sort_indices()
    wide = sp.csr_array((X.data, X.indices * SHIFT, X.indptr), shape=(600, 40 * SHIFT))
    return X, wide, y


@given(
    n_features=st.integers(1, 60),
    seed=st.integers(0, 10**6),
    density=st.floats(0, 0.6),
)
def test_compact_rows_keep_their_values_and_lengths(n_features, seed, density):
    rng = np.random.default_rng(seed)
    X = sp.random(7, n_features, density, "csr", np.float32, rng)
    used = rng.random(n_features) < 0.4
    found = FeatureMap.of(n_features, np.flatnonzero(used))
    if found is None:
        assert used.sum() > n_features / 2
        return
    compact = found.compact(X)
    assert compact.shape == (7, used.sum() + 1)
    dense = compact.toarray()
    np.testing.assert_array_equal(dense[:, :-1], X.toarray()[:, used])
    lengths = np.sqrt(X.multiply(X).sum(axis=1))
    squares = np.add.reduceat(np.append(compact.data, 0) ** 2, compact.indptr[:-1])
    squares[np.diff(compact.indptr) == 0] = 0
    np.testing.assert_allclose(np.sqrt(squares), np.asarray(lengths).ravel(), rtol=1e-5)
    other = found.compact(X.toarray())
    np.testing.assert_array_equal(other[:, :-1], dense[:, :-1])
    np.testing.assert_allclose(np.linalg.norm(other, axis=1), np.sqrt(squares), rtol=1e-5)


def test_most_features_or_dense_rows_need_no_map():
    assert FeatureMap.of(3, np.array([0, 1])) is None
    assert FeatureMap.of(3, np.array([0])) is not None
    assert used_features(np.eye(3)) is None


@given(seed=st.integers(0, 10**6), n_used=st.integers(1, 30))
def test_features_beyond_any_table_are_searched(seed, n_used):
    rng = np.random.default_rng(seed)
    used = rng.choice(2**31 - 2, n_used, replace=False)
    columns = np.concatenate([used[rng.integers(n_used, size=20)], rng.integers(0, 2**31 - 2, 20)])
    X = sp.csr_array((np.ones(40, np.float32), np.sort(columns), [0, 40]), (1, 2**31 - 2))
    X.sum_duplicates()
    places = FeatureMap(2**31 - 2, used).compact(X).indices
    known = {feature: place for place, feature in enumerate(used.tolist())}
    assert places.tolist() == [known.get(int(feature), n_used) for feature in X.indices]
    assert used_features(X).tolist() == sorted(set(X.indices.tolist()))


@pytest.mark.parametrize("embedding_dim", [0, 8])
def test_weights_and_predictions_are_those_of_all_features(rows, embedding_dim):
    X, wide, y = rows
    plain = LTLSClassifier(embedding_dim=embedding_dim, **SETTINGS).fit(X, y)
    mapped = LTLSClassifier(embedding_dim=embedding_dim, **SETTINGS).fit(wide, y)
    assert plain.model_.feature_map is None
    assert mapped.model_.feature_map.used.tolist() == [SHIFT * i for i in range(40)]
    assert (mapped.n_features_in_, mapped.model_.n_features) == (40 * SHIFT, 40 * SHIFT)
    assert mapped.model_.weights.n_features == 41
    if not embedding_dim:
        np.testing.assert_array_equal(mapped.coef_[:, ::SHIFT].toarray(), plain.coef_)
        assert mapped.coef_.shape == (len(plain.coef_), 40 * SHIFT)
        np.testing.assert_array_equal(mapped.predict_topk(wide, 3)[1], plain.predict_topk(X, 3)[1])
        np.testing.assert_array_equal(mapped.predict_proba(wide), plain.predict_proba(X))
    assert mapped.score(wide, y) > 0.9
    dense = sp.csr_array(wide[:5]).toarray()
    np.testing.assert_array_equal(mapped.predict(dense), mapped.predict(wide[:5]))


def test_features_that_did_not_occur_only_count_for_the_length(rows):
    _, wide, y = rows
    mapped = LTLSClassifier(embedding_dim=0, **SETTINGS).fit(wide, y)
    other = wide.tolil()
    other[0, [7, 8, 9]] = 1.0
    other = sp.csr_array(other)
    expected = mapped.coef_ @ (other[[0]].T / np.sqrt(other[[0]].multiply(other[[0]]).sum()))
    found = mapped.edge_scores(other[[0]])[0] - mapped.intercept_
    np.testing.assert_allclose(found, expected.toarray().ravel(), rtol=1e-4, atol=1e-5)


def test_predictors_take_single_rows_and_batches(rows):
    _, wide, y = rows
    model = LTLSClassifier(embedding_dim=0, **SETTINGS).fit(wide, y)
    predictor = model.predictor(3)
    expected = model.predict_topk(wide[:9], 3)
    for ours, theirs in zip(predictor(sp.csr_matrix(wide[:9])), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    first = sp.csr_matrix(wide[[0]])
    for order in (slice(None), slice(None, None, -1)):
        labels, scores = predictor(first.indices[order], first.data[order])
        np.testing.assert_array_equal(labels, expected[0][0])
        np.testing.assert_array_equal(scores, expected[1][0])
    with pytest.raises(ValueError, match="not one of 0 to 39999"):
        predictor([40_000], [1.0])


def test_files_partial_fit_and_streams(rows, tmp_path):
    X, wide, y = rows
    model = LTLSClassifier(embedding_dim=0, **SETTINGS).fit(wide, y)
    path = tmp_path / "model.ltls"
    model.save(path, dtype="float32")
    loaded = ltls.load(path)
    assert loaded.n_features_in_ == 40 * SHIFT
    np.testing.assert_array_equal(loaded.predict(wide), model.predict(wide))
    facts = describe(path)
    assert (facts["features"], facts["format_version"]) == (40 * SHIFT, 4)
    assert path.stat().st_size < 100_000
    other = sp.csr_array((np.ones(8, np.float32), np.full(8, 77), np.arange(9)), wide[:8].shape)
    for estimator in (model, loaded):
        for _ in range(10):
            estimator.partial_fit(sp.vstack([other, wide[:50]]).tocsr(), [99] * 8 + y[:50].tolist())
        assert 77 in estimator.model_.feature_map.used
        assert estimator.predict(other).tolist() == [99] * 8
        assert estimator.score(wide, y) > 0.6
    batches = [(wide[i : i + 200], y[i : i + 200]) for i in range(0, 600, 200)]
    plain = [(X[i : i + 200], y[i : i + 200]) for i in range(0, 600, 200)]
    streamed = LTLSClassifier(embedding_dim=0, **SETTINGS).fit_stream(batches)
    expected = LTLSClassifier(embedding_dim=0, **SETTINGS).fit_stream(plain)
    np.testing.assert_array_equal(streamed.coef_[:, ::SHIFT].toarray(), expected.coef_)


def test_warm_start_takes_new_features(rows):
    _, wide, y = rows
    model = LTLSClassifier(embedding_dim=0, warm_start=True, **SETTINGS).fit(wide, y)
    other = wide.tolil()
    other[:, 5] = 1.0
    model.fit(sp.csr_array(other), y)
    assert 5 in model.model_.feature_map.used
    assert model.score(sp.csr_array(other), y) > 0.9


def test_files_with_features_out_of_range_are_rejected(rows, tmp_path):
    _, wide, y = rows
    path = tmp_path / "model.ltls"
    LTLSClassifier(embedding_dim=0, **SETTINGS).fit(wide, y).save(path)
    file = TensorFile(path, MODEL)
    for change in (lambda used: used[:-1], lambda used: used + 40_000):
        tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
        tensors["features"] = change(tensors["features"])
        write(path, MODEL, file.description, tensors)
        with pytest.raises(ModelFileError):
            ltls.load(path)
