"""Sparse and dense features in one model: what it says is the sum of what each block says."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, hstack, random_array
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from ltls import Checkpoint, LTLSClassifier, load
from ltls.parts.label_matrix import MOST_FEATURES
from ltls.settings import Numbers, Trellises

N_ROWS, N_SPARSE, N_DENSE, N_LABELS = 1500, 400, 12, 80


def make_blocks(n_rows=N_ROWS, seed=0, n_labels=N_LABELS):
    """Return words and vectors, of which each tells something else of the label, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_labels, size=n_rows)
    fixed = np.random.default_rng(99)
    words = random_array((n_labels // 2, N_SPARSE), density=0.03, rng=fixed).tocsr()
    noise = random_array((n_rows, N_SPARSE), density=0.01, rng=rng).tocsr()
    sparse = csr_array(words[y // 2] + 0.3 * noise, dtype=np.float32)
    dense = fixed.normal(size=(2, N_DENSE))[y % 2] + 0.3 * rng.normal(size=(n_rows, N_DENSE))
    return [sparse, dense.astype(np.float32)], y


def joined(blocks):
    return csr_array(hstack(blocks))


@functools.cache
def model():
    return LTLSClassifier(random_state=0).fit(*make_blocks())


@pytest.fixture
def fitted():
    return model()


@pytest.fixture(scope="module")
def test_rows():
    return make_blocks(300, seed=1)


def names(model):
    return [part.name for part in model.model_.parts]


# What is learned


def test_both_blocks_are_needed_and_used(fitted, test_rows):
    X, y = test_rows
    assert "label_matrix" in names(fitted)
    assert "dense features beside" in fitted.plan_
    assert fitted.n_features_in_ == N_SPARSE + N_DENSE
    alone = [
        LTLSClassifier(random_state=0).fit(block, make_blocks()[1]).score(own, y)
        for block, own in zip(make_blocks()[0], X, strict=True)
    ]
    assert max(alone) < 0.65
    assert fitted.score(X, y) > 0.85


def test_scores_are_the_weighted_sum_of_those_of_the_blocks(fitted, test_rows):
    X, _ = test_rows
    model = fitted.model_
    ids = np.tile(np.arange(N_LABELS), (len(X[1]), 1))
    expected = np.zeros(ids.shape)
    for part, weight in zip(model.parts, model.weights, strict=True):
        if part.name == "label_matrix":
            own = X[1] @ part.vectors.matrix().T + part.vectors.offsets
        else:
            alone = model.columns.alone().rows(X[0])
            assert alone.beside is None
            own = part.score(alone, ids, None)
        expected += weight * own
    found = fitted.decision_function(X)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-2)


@settings(max_examples=20, deadline=None)
@given(
    st.permutations(range(4)),
    st.integers(1, N_SPARSE - 1),
    st.integers(1, N_DENSE - 1),
    st.booleans(),
)
def test_blocks_in_any_order_and_number_are_the_same_rows(order, first, second, one_matrix):
    X, _ = make_blocks(20, seed=2)
    expected = model().decision_function(X)
    pieces = [X[0][:, :first], X[0][:, first:], X[1][:, :second], X[1][:, second:]]
    places = iter([0, 1]), iter([2, 3])  # the order of blocks of a kind is that of their features
    mixed = [pieces[next(places[n // 2])] for n in order]
    given_rows = joined(X) if one_matrix else mixed
    np.testing.assert_array_equal(model().decision_function(given_rows), expected)


def test_everything_predicts_alike(fitted, test_rows):
    X, _ = test_rows
    labels, scores = fitted.predict_topk(X, 3)
    np.testing.assert_array_equal(labels[:, 0], fitted.predict(X))
    every = fitted.decision_function(X)
    np.testing.assert_array_equal(np.sort(every, axis=1)[:, ::-1][:, :3], scores)
    among, theirs = fitted.predict_topk(X, 2, among=[3, 7, 11])
    assert set(among.ravel()) <= {3, 7, 11}
    np.testing.assert_allclose(theirs[:, 0], every[:, [3, 7, 11]].max(axis=1))
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1, rtol=1e-4)
    predictor = fitted.predictor(3)
    np.testing.assert_array_equal(predictor(X)[0], labels)
    one = joined([X[0][:1], X[1][:1]])
    np.testing.assert_array_equal(predictor(one.indices, one.data)[0], labels[0])
    np.testing.assert_array_equal(clone(fitted).fit(*make_blocks()).decision_function(X), every)
    for n_jobs in (1, 2):
        model = LTLSClassifier(random_state=0, n_jobs=n_jobs).fit(*make_blocks())
        np.testing.assert_array_equal(model.decision_function(X), every)


def test_an_explanation_adds_up_and_names_dense_features(fitted, test_rows):
    X, _ = test_rows
    [[best]] = fitted.explain([X[0][:1], X[1][:1]], k=1)
    assert best.score == pytest.approx(fitted.predict_topk(X, 1)[1][0, 0], rel=1e-3)
    [of_vectors] = [part for part in best.parts if part.part == "label_matrix"]
    assert {each.feature for each in of_vectors.contributions} == {
        f"dense[{n}]" for n in range(N_DENSE)
    }
    total = sum(each.value for each in best.contributions) + best.intercept
    assert best.linear_score == pytest.approx(total)
    known = {each.feature for each in best.contributions}
    assert any(name.startswith("x") for name in known)
    assert any(name.startswith("dense") for name in known)
    whole = {each.feature for each in fitted.global_explanation(best.label, k=999).contributions}
    assert {f"dense[{n}]" for n in range(N_DENSE)} <= whole


def test_names_of_a_data_frame_are_kept():
    pd = pytest.importorskip("pandas", reason="needs pandas: run make test-all")
    (sparse, dense), y = make_blocks(300, n_labels=4)
    frame = pd.DataFrame(dense, columns=[f"mood {n}" for n in range(N_DENSE)])
    model = LTLSClassifier(random_state=0).fit([sparse, frame], y)
    [[best]] = model.explain([sparse[:1], frame.iloc[:1]], k=1)
    assert "mood 0" in {each.feature for each in best.contributions}


# Ways in


@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_half_precision_integers_and_memory_maps_are_not_copied(tmp_path, test_rows, dtype):
    (sparse, dense), y = make_blocks()
    scale = 1 if dtype == np.float16 else 20
    np.save(tmp_path / "vectors.npy", (scale * dense).astype(dtype))
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    model = LTLSClassifier(random_state=0).fit([sparse, mapped], y)
    X, y = test_rows
    assert model.score([X[0], scale * X[1]], y) > 0.85
    rows, _ = model._rows([sparse, mapped])
    assert np.shares_memory(rows.beside.X.mapped, mapped)


def test_two_blocks_of_one_kind_are_one_matrix(test_rows):
    (sparse, dense), y = make_blocks()
    several = [dense[:, :5], dense[:, 5:]]
    found = LTLSClassifier(random_state=0).fit(several, y)
    expected = LTLSClassifier(random_state=0).fit(dense, y)
    np.testing.assert_array_equal(
        found.decision_function(several), expected.decision_function(dense)
    )
    several = (coo_array(sparse[:, :5]), sparse[:, 5:].tocsc())
    found = LTLSClassifier(random_state=0).fit(several, y)
    expected = LTLSClassifier(random_state=0).fit([sparse], y)
    np.testing.assert_array_equal(
        found.decision_function(several), expected.decision_function(sparse)
    )


def test_a_list_of_rows_is_an_array_as_ever():
    X, y = [[0.0, 1.0], [1.0, 0.0]] * 20, ["a", "b"] * 20
    for rows in (X, [np.array(row) for row in X], [tuple(row) for row in X]):
        assert LTLSClassifier(random_state=0).fit(rows, y).n_features_in_ == 2


def test_the_last_columns_of_a_matrix_are_dense_if_one_says_so(fitted, test_rows):
    X, y = make_blocks()
    setting = Numbers(n_dense=N_DENSE)
    model = LTLSClassifier(features=setting, random_state=0).fit(joined(X), y)
    expected = fitted.decision_function(test_rows[0])
    np.testing.assert_array_equal(model.decision_function(joined(test_rows[0])), expected)
    with pytest.raises(ValueError, match="n_dense must be less than the 12 features"):
        LTLSClassifier(features=Numbers(n_dense=12)).fit(X[1], y)


def test_a_column_transformer_works_in_a_pipeline():
    pd = pytest.importorskip("pandas", reason="needs pandas: run make test-all")
    rng = np.random.default_rng(0)
    y = rng.integers(8, size=400)
    frame = pd.DataFrame(
        {"word": np.array(list("abcd"))[y // 2], "u": y % 2 + 0.2 * rng.normal(size=400)}
    )
    frame["v"] = -frame["u"]
    columns = ColumnTransformer(
        [("words", OneHotEncoder(), ["word"]), ("vector", "passthrough", ["u", "v"])]
    )
    model = LTLSClassifier(features=Numbers(n_dense=2), random_state=0)
    assert cross_val_score(make_pipeline(columns, model), frame, y, cv=3).mean() > 0.9


def test_streams_checkpoints_and_files(fitted, test_rows, tmp_path):
    (sparse, dense), y = make_blocks()
    X = test_rows[0]
    batches = [
        ([sparse[i : i + 300], dense[i : i + 300]], y[i : i + 300]) for i in range(0, 1500, 300)
    ]
    streamed = LTLSClassifier(random_state=0).fit_stream(batches)
    assert streamed.score(*test_rows) > 0.85
    path = tmp_path / "model.ltls"
    fitted.save(path)
    loaded = load(path)
    np.testing.assert_array_equal(loaded.decision_function(X), fitted.decision_function(X))
    few = LTLSClassifier(trellises=Trellises(epochs=1), random_state=0)
    few.fit([sparse, dense], y, checkpoint=tmp_path / "state")
    again = LTLSClassifier(trellises=Trellises(epochs=3), random_state=0)
    again.fit([sparse, dense], y, checkpoint=Checkpoint(tmp_path / "state", resume=True))
    whole = LTLSClassifier(trellises=Trellises(epochs=3), random_state=0).fit([sparse, dense], y)
    np.testing.assert_array_equal(again.decision_function(X), whole.decision_function(X))
    with pytest.raises(ValueError, match="other rows or labels"):
        LTLSClassifier(trellises=Trellises(epochs=3), random_state=0).fit(
            [sparse, dense + 1], y, checkpoint=Checkpoint(tmp_path / "state", resume=True)
        )


@pytest.mark.parametrize("from_file", [False, True])
def test_new_labels_are_learned_from_their_first_rows(from_file, test_rows, tmp_path):
    X, y = make_blocks()
    model = LTLSClassifier(random_state=0).fit(X, y)
    if from_file:
        model.save(tmp_path / "m")
        model = load(tmp_path / "m")
    new = [X[0][:3], X[1][:3] + 4]
    before = model.score(*test_rows)
    model.partial_fit(new, [999] * 3)
    assert (model.predict(new) == 999).all()
    assert model.score(*test_rows) > before - 0.05
    model.partial_fit(joined(new), [999] * 3)
    assert (model.predict(joined(new)) == 999).all()


def test_partial_fit_can_begin_with_blocks():
    X, y = make_blocks(200, n_labels=4)
    model = LTLSClassifier(random_state=0)
    for _ in range(5):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.8


def test_several_labels_per_row(test_rows):
    X, y = make_blocks()
    model = LTLSClassifier(random_state=0).fit(X, [[label, label % 2 + 500] for label in y])
    found = model.predict(test_rows[0], output="lists")
    truth = [{label, label % 2 + 500} for label in test_rows[1]]
    assert np.mean([len(own & set(row)) for own, row in zip(truth, found, strict=True)]) > 1.5


# Degenerate blocks


@pytest.mark.parametrize(
    "change",
    [
        lambda sparse, dense: (csr_array(sparse.shape, dtype=np.float32), dense),
        lambda sparse, dense: (sparse, np.zeros_like(dense)),
        lambda sparse, dense: (sparse, np.ones_like(dense)),
        lambda sparse, dense: (sparse, np.tile(dense[:1], (len(dense), 1))),
        lambda sparse, dense: (sparse, dense[:, :1]),
        lambda sparse, dense: (sparse[:, :1], dense),
        lambda sparse, dense: (sparse, 1e6 * dense),
        lambda sparse, dense: (sparse, dense + 1e4),
        lambda sparse, dense: (sparse, np.repeat(dense, 40, axis=1)),
    ],
)
def test_degenerate_blocks_are_models_that_work(change):
    X, y = make_blocks()
    blocks = list(change(*X))
    for rows in (slice(None), slice(0, 40)):
        some = [block[rows] for block in blocks]
        model = LTLSClassifier(random_state=0).fit(some, y[rows])
        assert np.isfinite(model.decision_function(some)).all()


def test_very_many_dense_features_are_left_to_other_parts():
    (sparse, dense), y = make_blocks(40)
    wide = np.pad(dense, ((0, 0), (0, MOST_FEATURES)))
    for X in ([sparse, wide], wide):
        model = LTLSClassifier(random_state=0).fit(X, y)
        assert "label_matrix" not in {part.name for part in model.model_.parts}
        with pytest.raises(ValueError, match="label_matrix takes at most 16,384 dense features"):
            LTLSClassifier(label_matrix=True).fit(X, y)


def test_a_block_that_says_nothing_costs_nothing(test_rows):
    (sparse, _), y = make_blocks()
    rng = np.random.default_rng(0)
    noise, other = (rng.normal(size=(n, N_DENSE)).astype(np.float32) for n in (N_ROWS, 300))
    alone = LTLSClassifier(random_state=0).fit(sparse, y).score(test_rows[0][0], test_rows[1])
    both = LTLSClassifier(random_state=0).fit([sparse, noise], y)
    assert both.score([test_rows[0][0], other], test_rows[1]) > alone - 0.03


# Errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, d: [s, d[:-1]], "same rows, got 1500 and 1499"),
        (lambda s, d: [s, d, d[:, 0]], r"X\[2\] is ndarray of 1 dimensions"),
        (lambda s, d: [s, ["a"] * 1500], r"X\[1\] is list"),
        (lambda s, d: [s, None], r"X\[1\] is NoneType"),
        (lambda s, d: [s, np.where(d == d[0, 0], np.nan, d)], r"Input X\[1\] contains NaN"),
        (lambda s, d: [s, np.full(d.shape, "a")], "could not convert string"),
        (lambda s, d: [s, d.astype(object) + 1j], "omplex"),
        (lambda s, d: [s, 1e20 * d.astype(float)], "at most 1e"),
        (lambda s, d: [s, np.ma.masked_array(d, mask=d > 0)], r"X\[1\]"),
        (lambda s, d: [s, d[:, :0]], "0 feature"),
        (lambda s, d: [], "."),
    ],
)
def test_blocks_that_cannot_be_trained_on_are_errors(change, message):
    X, y = make_blocks()
    with pytest.raises((ValueError, TypeError), match=message):
        LTLSClassifier().fit(change(*X), y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, d: [s], "400 features in 1 blocks .* expecting 412"),
        (lambda s, d: [s, d, d], r"\(400, 12 and 12\).* expecting 412"),
        (lambda s, d: [s[:, 1:], np.pad(d, ((0, 0), (0, 1)))], "400 sparse and 12 dense"),
        (lambda s, d: [s, d[:, 1:]], "expecting 412"),
        (lambda s, d: s, "400 sparse features alone, without the dense block of 12 columns"),
        (lambda s, d: [s, np.full_like(d, np.inf)], "infinity"),
        (lambda s, d: [s, d + 1j], "[Cc]omplex"),
    ],
)
def test_other_blocks_than_in_training_are_errors(fitted, change, message):
    X, _ = make_blocks(5)
    with pytest.raises(ValueError, match=message):
        fitted.predict(change(*X))
    with pytest.raises(ValueError, match=message):
        fitted.predictor(2)(change(*X))


def test_batches_of_other_blocks_are_errors():
    (sparse, dense), y = make_blocks()
    first = ([sparse[:700], dense[:700]], y[:700])
    for second, message in (
        (joined([sparse[700:], dense[700:]]), "batches must either all be lists"),
        ([sparse[700:, 1:], np.pad(dense[700:], ((0, 0), (0, 1)))], "12 dense features"),
        ([sparse[700:]], "expecting 412"),
    ):
        with pytest.raises(ValueError, match=message):
            LTLSClassifier().fit_stream([first, (second, y[700:])])
