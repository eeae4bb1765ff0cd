"""Models with weights for the features that occur, against models with weights for all."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from small_models import model_of
from small_parts import section_of

import ltls
from ltls import LTLSClassifier, ModelFileError
from ltls.features.numbers import FeatureStats
from ltls.features.rows import Columns, Standardizer, used_features
from ltls.settings import Numbers, Trellises
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile, write

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


def classifier(**parameters):
    trellises = Trellises(width=4, n_trellises=2, epochs=3, density=1.0, dtype="float32")
    return LTLSClassifier(trellises=trellises, random_state=0, **parameters)


# Columns


@given(n_features=st.integers(1, 60), seed=st.integers(0, 10**6), density=st.floats(0, 0.6))
def test_compact_rows_keep_their_values_and_lengths(n_features, seed, density):
    rng = np.random.default_rng(seed)
    X = sp.random(7, n_features, density, "csr", np.float32, rng)
    used = rng.random(n_features) < 0.4
    columns = Columns(n_features, True, False, np.flatnonzero(used))
    assert columns.n_columns == used.sum() + 2
    compact = columns.rows(X)
    assert compact.n_columns == columns.n_columns
    dense = compact.X.toarray()
    np.testing.assert_array_equal(dense[:, :-1], X.toarray()[:, used])
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    squares = np.add.reduceat(np.append(compact.X.data, 0) ** 2, compact.X.indptr[:-1])
    squares[np.diff(compact.X.indptr) == 0] = 0
    np.testing.assert_allclose(np.sqrt(squares), lengths, rtol=1e-5)
    other = columns.rows(X.toarray()).X
    np.testing.assert_array_equal(other[:, :-1], dense[:, :-1])
    np.testing.assert_allclose(np.linalg.norm(other, axis=1), lengths, rtol=1e-5, atol=1e-6)


def columns_of(X, **given):
    stats, settings = FeatureStats(), Numbers(**given)
    stats.add(X, settings.may_standardize(X))
    return stats.columns(settings)


def test_few_sparse_features_are_mapped_and_unscaled_dense_ones_standardized():
    X = sp.csr_array(([1.0, 1.0], ([0, 1], [2, 7])), shape=(2, 9))
    columns = columns_of(X)
    assert (columns.used.tolist(), columns.unit_length, columns.n_columns) == ([2, 7], True, 4)
    assert columns_of(sp.csr_array(np.eye(3))).used is None
    assert columns_of(np.eye(3)).used is None
    rng = np.random.default_rng(0)
    scaled = rng.normal(size=(500, 4))
    assert columns_of(scaled).standardizer is None
    for far in (scaled + np.array([9, 0, 0, 0]), scaled * [50, 1, 1, 1]):
        columns = columns_of(far)
        np.testing.assert_allclose(columns.standardizer.mean, far.mean(axis=0))
        np.testing.assert_allclose(columns.standardizer.scale, far.std(axis=0))
        found = columns.rows(far).X
        np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(found.std(axis=0), 1)
        assert columns_of(far, standardize=False).standardizer is None
    assert columns_of(scaled, standardize=True).standardizer is not None
    with pytest.raises(ValueError, match="standardize=True would make sparse features dense"):
        columns_of(X, standardize=True)


def test_weights_of_standardized_features_are_folded():
    rng = np.random.default_rng(0)
    X, W, b = rng.normal(3, 7, (20, 4)), rng.normal(size=(6, 4)), rng.normal(size=6)
    columns = Columns(4, True, False, standardizer=Standardizer(X.mean(axis=0), X.std(axis=0)))
    own, intercept = columns.of_all_features(W), columns.folded_intercept(W, b)
    np.testing.assert_allclose(X @ own.T + intercept, columns.rows(X).X @ W.T + b, rtol=1e-4)


@given(seed=st.integers(0, 10**6), n_used=st.integers(1, 30))
def test_features_beyond_any_table_are_searched(seed, n_used):
    rng = np.random.default_rng(seed)
    n = 2**31 - 2
    used = rng.choice(n, n_used, replace=False)
    columns = np.concatenate([used[rng.integers(n_used, size=20)], rng.integers(0, n, 20)])
    X = sp.csr_array((np.ones(40, np.float32), np.sort(columns), [0, 40]), (1, n))
    X.sum_duplicates()
    places = Columns(n, True, True, used).rows(X).X.indices
    known = {feature: place for place, feature in enumerate(used.tolist())}
    assert places.tolist() == [known.get(int(feature), n_used) for feature in X.indices]
    assert used_features(X).tolist() == sorted(set(X.indices.tolist()))


@given(seed=st.integers(0, 10**6))
def test_new_features_follow_the_old_ones(seed):
    rng = np.random.default_rng(seed)
    used = rng.permutation(50)[:10]
    X = sp.random(3, 50, 0.2, "csr", np.float32, rng)
    grown, n_new = Columns(50, True, True, used).grow(X)
    new = sorted(set(X.indices.tolist()) - set(used.tolist()))
    assert (grown.used.tolist(), n_new) == (used.tolist() + new, len(new))
    every = np.arange(grown.n_columns - 1)
    assert grown.features_of(every).tolist() == [*grown.used.tolist(), -1]
    coef = rng.normal(size=(2, len(every)))
    found = grown.of_all_features(coef).toarray()
    np.testing.assert_array_equal(found[:, grown.used], coef[:, :-1])
    assert not np.delete(found, grown.used, axis=1).any()
    assert Columns(50, True, True).grow(X)[1] == 0


@pytest.mark.parametrize(
    "columns",
    [
        Columns(9, True, False),
        Columns(9, False, True, np.array([7, 2])),
        Columns(2, True, False, standardizer=Standardizer(np.array([1.0, 2]), np.array([3.0, 1]))),
    ],
)
def test_states(columns):
    described, tensors = columns.state()
    section = section_of(described, tensors)
    found = Columns.from_state(section)
    section.check_all_read()
    section.check_all_taken()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, columns.n_features))
    np.testing.assert_array_equal(found.rows(X).X, columns.rows(X).X)
    assert found.n_columns == columns.n_columns
    for name, wrong in [
        ("used", np.array([2, 2], np.uint8)),
        ("used", np.array([2, 9], np.uint8)),
        ("mean", np.ones(columns.n_features)),  # without a scale
        ("n_features", 0),
        ("intercept", 1),
    ]:
        target = described if name in described else tensors
        changed = {**target, name: wrong}
        if name == "mean":
            changed.pop("scale", None)
        state = (changed, tensors) if target is described else (described, changed)
        with pytest.raises(ValueError, match=f"{name}|scale"):
            Columns.from_state(section_of(*state))


# Models


def test_weights_and_predictions_are_those_of_all_features(rows):
    X, wide, y = rows
    plain, mapped = classifier().fit(X, y), classifier().fit(wide, y)
    assert plain.model_.columns.used is None
    assert mapped.model_.columns.used.tolist() == [SHIFT * i for i in range(40)]
    assert (mapped.n_features_in_, mapped.model_.columns.n_columns) == (40 * SHIFT, 42)
    np.testing.assert_array_equal(mapped.coef_[:, ::SHIFT].toarray(), plain.coef_)
    assert mapped.coef_.shape == (len(plain.coef_), 40 * SHIFT)
    np.testing.assert_array_equal(mapped.predict_topk(wide, 3)[1], plain.predict_topk(X, 3)[1])
    np.testing.assert_array_equal(mapped.predict_proba(wide), plain.predict_proba(X))
    assert mapped.score(wide, y) > 0.9
    dense = sp.csr_array(wide[:5]).toarray()
    np.testing.assert_array_equal(mapped.predict(dense), mapped.predict(wide[:5]))


def test_features_that_did_not_occur_only_count_for_the_length(rows):
    _, wide, y = rows
    mapped = classifier().fit(wide, y)
    other = wide.tolil()
    other[0, [7, 8, 9]] = 1.0
    other = sp.csr_array(other)
    expected = mapped.coef_ @ (other[[0]].T / np.sqrt(other[[0]].multiply(other[[0]]).sum()))
    found = mapped.edge_scores(other[[0]])[0] - mapped.intercept_
    np.testing.assert_allclose(found, expected.toarray().ravel(), rtol=1e-4, atol=1e-5)


def test_predictors_take_single_rows_and_batches(rows):
    _, wide, y = rows
    model = classifier().fit(wide, y)
    predictor = model.predictor(3)
    expected = model.predict_topk(wide[:9], 3)
    for ours, theirs in zip(predictor(sp.csr_matrix(wide[:9])), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    first = sp.csr_matrix(wide[[0]])
    for order in (slice(None), slice(None, None, -1)):
        labels, scores = predictor(first.indices[order], first.data[order])
        np.testing.assert_array_equal(labels, expected[0][0])
        np.testing.assert_array_equal(scores, expected[1][0])
    with pytest.raises(ValueError, match="indices must be between 0 and 39999, got 40000"):
        predictor([40_000], [1.0])


def test_files_partial_fit_and_streams(rows, tmp_path):
    X, wide, y = rows
    model = classifier().fit(wide, y)
    path = tmp_path / "model.ltls"
    model.save(path)
    loaded = ltls.load(path)
    assert loaded.n_features_in_ == 40 * SHIFT
    np.testing.assert_array_equal(loaded.predict(wide), model.predict(wide))
    assert describe(path)["features"] == 40 * SHIFT
    assert path.stat().st_size < 150_000
    other = sp.csr_array((np.ones(8, np.float32), np.full(8, 77), np.arange(9)), wide[:8].shape)
    for estimator in (model, loaded):
        for _ in range(10):
            estimator.partial_fit(sp.vstack([other, wide[:50]]).tocsr(), [99] * 8 + y[:50].tolist())
        assert 77 in estimator.model_.columns.used
        assert estimator.predict(other).tolist() == [99] * 8
        assert estimator.score(wide, y) > 0.6
    batches = [(wide[i : i + 200], y[i : i + 200]) for i in range(0, 600, 200)]
    plain = [(X[i : i + 200], y[i : i + 200]) for i in range(0, 600, 200)]
    streamed, expected = classifier().fit_stream(batches), classifier().fit_stream(plain)
    np.testing.assert_array_equal(streamed.coef_[:, ::SHIFT].toarray(), expected.coef_)


def test_warm_start_takes_new_features(rows):
    _, wide, y = rows
    model = classifier(warm_start=True).fit(wide, y)
    other = wide.tolil()
    other[:, 5] = 1.0
    model.fit(sp.csr_array(other), y)
    assert 5 in model.model_.columns.used
    assert model.score(sp.csr_array(other), y) > 0.9


def test_files_with_features_out_of_range_are_rejected(rows, tmp_path):
    _, wide, y = rows
    path = tmp_path / "model.ltls"
    classifier().fit(wide, y).save(path)
    file = TensorFile(path, MODEL)
    for change in (lambda used: used[:-1], lambda used: used + 40_000):
        tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
        tensors["columns.used"] = change(tensors["columns.used"].astype(np.uint32))
        write(path, MODEL, file.description, tensors)
        with pytest.raises(ModelFileError):
            ltls.load(path)


@pytest.mark.parametrize("kind", ["dense", "text", "wide", "blocks, standardized"])
def test_a_sample_row_has_unit_length_and_is_answered(kind):
    model = model_of(kind).model_
    row = model.columns.sample_row()
    for rows in filter(None, (row, row.beside)):
        np.testing.assert_allclose(np.linalg.norm(rows.dense()), 1, rtol=1e-6)
    assert np.isfinite(model.topk(row, 3, None)[1]).all()
