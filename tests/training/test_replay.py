"""Replay: new labels do not displace old ones, in one batch or one by one, and after a file."""

import copy

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from ltls import LTLSClassifier, load
from ltls.model.examples import Examples
from ltls.training.replay import mixed_order, replayed_rows

N_FEATURES, N_LABELS, N_ROWS = 200, 70, 1400


def rows_of(labels, seed=0, n_labels=N_LABELS + 20):
    """Return rows of some labels: a few features of their own, and others of all."""
    rng = np.random.default_rng(7)
    prototypes = rng.random((n_labels, N_FEATURES)) * (rng.random((n_labels, N_FEATURES)) < 0.06)
    rng = np.random.default_rng(seed)
    keep = rng.random((len(labels), N_FEATURES)) < 0.6
    noise = rng.random((len(labels), N_FEATURES)) * (rng.random((len(labels), N_FEATURES)) < 0.02)
    return csr_matrix((prototypes[labels] * keep + noise).astype(np.float32))


def targets(labels, multilabel):
    return [[str(label)] for label in labels] if multilabel else [str(label) for label in labels]


def estimator(**changes):
    settings = {"epochs": 3, "n_trellises": 3, "random_state": 0}
    return LTLSClassifier(**{**settings, **changes})


CASES = {
    "trellises": {"label_weights": False},
    "label weights": {"label_weights": True},
    "buckets": {"label_weights": True, "bucket_size": 4},
    "dense": {"label_weights": False},
    "several labels": {"label_weights": True},
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    kind = request.param
    labels = np.arange(N_ROWS) % N_LABELS
    X = rows_of(labels)
    if kind == "dense":
        X = X.toarray()
    return kind, estimator(**CASES[kind]).fit(X, targets(labels, kind == "several labels"))


def rows_for(kind, labels, seed):
    X = rows_of(labels, seed)
    return X.toarray() if kind == "dense" else X


def accuracy(model, X, labels):
    best = model.predict_topk(X, 1)[0][:, 0].astype(str)
    return np.mean(best == np.array(labels).astype(str))


def held_out(kind):
    old = np.arange(N_LABELS).repeat(10)
    return rows_for(kind, old, 1), old


@pytest.mark.parametrize("loaded", [False, True], ids=["", "loaded"])
def test_old_labels_stay_and_a_new_one_is_found(case, loaded, tmp_path):
    kind, model = case
    X, old = held_out(kind)
    before = accuracy(model, X, old)
    assert before > 0.85
    new = np.full(100, N_LABELS)
    model.save(tmp_path / "model.ltls")
    X_new, X_test = rows_for(kind, new, 2), rows_for(kind, new, 3)
    found = []
    for size in (1, 10, 100):
        grown = load(tmp_path / "model.ltls") if loaded else copy.deepcopy(model)
        grown.partial_fit(X_new[:size], targets(new[:size], grown.multilabel_))
        assert accuracy(grown, X, old) > before - 0.015  # 700 rows
        found.append(accuracy(grown, X_test, new))
    assert found[-1] >= 0.8


def test_one_row_at_a_time(case):
    kind, model = case
    model = copy.deepcopy(model)
    X, old = held_out(kind)
    before = accuracy(model, X, old)
    new = np.full(60, N_LABELS)
    X_new = rows_for(kind, new, 2)
    for row in range(len(new)):
        model.partial_fit(X_new[row : row + 1], targets(new[:1], model.multilabel_))
    assert accuracy(model, X, old) > before - 0.015
    assert accuracy(model, rows_for(kind, new, 3), new) >= 0.8


def test_many_new_labels_in_turn(case):
    kind, model = case
    model = copy.deepcopy(model)
    X, old = held_out(kind)
    before = accuracy(model, X, old)
    for label in range(N_LABELS, N_LABELS + 10):
        new = np.full(50, label)
        model.partial_fit(rows_for(kind, new, label), targets(new, model.multilabel_))
    assert accuracy(model, X, old) > before - 0.03  # ten more labels to confuse them with
    new = np.arange(N_LABELS, N_LABELS + 10).repeat(10)
    assert accuracy(model, rows_for(kind, new, 4), new) >= 0.8


@pytest.mark.parametrize("bucket_size", [1, 4])
def test_only_label_weights_learn_rows_that_all_have_new_labels(bucket_size, monkeypatch):
    labels = np.arange(N_ROWS) % N_LABELS
    model = estimator(label_weights=True, bucket_size=bucket_size)
    model.fit(rows_of(labels), targets(labels, multilabel=True))
    step = model.model_.trainable.step
    new = np.full(20, N_LABELS)
    model.partial_fit(rows_of(new, 2), targets(new, multilabel=True))
    assert model.model_.trainable.step == step
    assert model.model_.label_weights.n_candidates == N_LABELS + 1  # so that it is always found
    # A row of an old label among them, or too many labels, and the trellises learn all of them.
    mixed = np.append(new, 0)
    model.partial_fit(rows_of(mixed, 3), targets(mixed, multilabel=True))
    assert model.model_.trainable.step > step
    step = model.model_.trainable.step
    monkeypatch.setattr("ltls.training.label_weights._MAX_RERANKED", N_LABELS)
    model.partial_fit(rows_of(new, 4), targets(new, multilabel=True))
    assert model.model_.trainable.step > step


def test_without_replay_old_labels_are_forgotten():
    """What replay is for: this is how it was without."""
    labels = np.arange(N_ROWS) % N_LABELS
    model = estimator(label_weights=False, replay_size=0).fit(rows_of(labels), labels)
    assert model.model_.reservoir is None
    X, old = held_out("trellises")
    before = accuracy(model, X, old)
    new = np.full(100, N_LABELS)
    model.partial_fit(rows_of(new, 2), new)
    assert accuracy(model, X, old) < before - 0.1
    assert model.model_.reservoir is None


def test_the_reservoir_is_bounded_and_can_be_switched_off(tmp_path):
    labels = np.arange(N_ROWS) % N_LABELS
    model = estimator(replay_size=100).fit(rows_of(labels), labels)
    assert len(model.model_.reservoir) == 100
    model.partial_fit(rows_of(labels, 1), labels)
    assert len(model.model_.reservoir) == 100
    model.set_params(replay_size=0).save(tmp_path / "model.ltls")
    assert load(tmp_path / "model.ltls").model_.reservoir is None
    model.partial_fit(rows_of(labels, 1), labels)
    assert model.model_.reservoir is None
    with pytest.raises(ValueError, match="replay_size"):
        estimator(replay_size=-1).fit(rows_of(labels), labels)


def test_a_stream_keeps_the_rows_of_fit():
    labels = np.arange(N_ROWS) % N_LABELS
    X = rows_of(labels)
    whole = estimator(replay_size=300, label_weights=False).fit(X, labels)
    parts = [(X[i : i + 100], labels[i : i + 100]) for i in range(0, N_ROWS, 100)]
    streamed = estimator(replay_size=300, label_weights=False).fit_stream(parts)
    ours, theirs = (np.sort(model.model_.reservoir.keys) for model in (streamed, whole))
    np.testing.assert_array_equal(ours, theirs)


def test_a_model_that_begins_with_partial_fit_replays_too():
    model, first = estimator(label_weights=False), np.arange(1000) % 10
    for _ in range(3):
        model.partial_fit(rows_of(first), first)
    X, old = rows_of(np.arange(10).repeat(20), 1), np.arange(10).repeat(20)
    before = accuracy(model, X, old)
    for label in (10, 11):
        model.partial_fit(rows_of(np.full(100, label), label), np.full(100, label))
    assert accuracy(model, X, old) > before - 0.02


def test_new_features_in_a_replayed_model():
    labels = np.arange(N_ROWS) % N_LABELS
    X = rows_of(labels)
    few = csr_matrix((X.data, 1000 * X.indices, X.indptr), shape=(N_ROWS, 200_000))
    model = estimator().fit(few, labels)
    other = csr_matrix((X.data, 1000 * X.indices + 7, X.indptr), shape=few.shape)[:100]
    before = accuracy(model, few, labels)
    model.partial_fit(other, ["new"] * 100)
    assert accuracy(model, few, labels) > before - 0.01
    reservoir, used = model.model_.reservoir, model.model_.feature_map.used
    row = int(np.flatnonzero(reservoir.strata == 0)[0])
    features = used[reservoir.indices[reservoir.indptr[row] : reservoir.indptr[row + 1]]]
    assert (features % 1000 == 0).all()


def test_the_same_rows_are_replayed_whatever_the_random_state():
    labels = np.arange(N_ROWS) % N_LABELS
    model = estimator(replay_size=200).fit(rows_of(labels), labels).model_
    X = rows_of([0])
    batch = Examples(X, np.array([0, 1]), np.array([0]), None, False)
    model.n_rows += 1
    first, again = replayed_rows(model, batch), replayed_rows(model, batch)
    assert (first.X != again.X).nnz == 0
    model.n_rows += 1
    other = replayed_rows(model, batch)
    assert first.X.shape != other.X.shape or (first.X != other.X).nnz > 0
    batch.weights = np.zeros(1, np.float32)
    assert replayed_rows(model, batch) is None


def test_the_more_unusual_a_batch_the_more_rows_are_replayed():
    labels = np.arange(N_ROWS) % N_LABELS
    model = estimator().fit(rows_of(labels), labels).model_
    usual = Examples(rows_of(labels[:140]), np.arange(141), labels[:140], None, False)
    one = Examples(usual.X, usual.indptr, np.zeros(140, np.int64), None, False)
    sizes = []
    for batch in (usual, one):
        counted = copy.copy(model)
        counted.counts = model.counts + np.bincount(batch.labels, minlength=N_LABELS)
        counted.n_rows = model.n_rows + 140
        sizes.append(len(replayed_rows(counted, batch)))
    assert sizes[0] == 32
    assert sizes[1] > 1000


@pytest.mark.parametrize(("n_batch", "n_past"), [(3, 9), (9, 3), (1, 100), (4, 0)])
def test_a_batch_is_spread_evenly(n_batch, n_past):
    order = np.arange(n_batch)[::-1]
    mixed = mixed_order(order, n_batch + n_past)
    assert sorted(mixed) == list(range(n_batch + n_past))
    assert [row for row in mixed if row < n_batch] == order.tolist()
    places = np.flatnonzero(mixed < n_batch)
    assert np.ptp(np.diff(places)) <= 1 if len(places) > 1 else True


def test_a_failure_leaves_weights_of_replayed_rows_as_they_were(monkeypatch):
    labels = np.arange(N_ROWS) % N_LABELS
    model = estimator(label_weights=True).fit(rows_of(labels), labels)
    weights = model.model_.trainable.values.copy()
    squares = model.model_.trainable.squares.copy()
    reservoir = model.model_.reservoir

    def fails(*_):
        raise RuntimeError("half-way")

    with monkeypatch.context() as patch:
        patch.setattr("ltls.training.fit.keep_rows", fails)
        with pytest.raises(RuntimeError, match="half-way"):
            model.partial_fit(rows_of([0] * 5, 5), ["new"] * 5)
    np.testing.assert_array_equal(model.model_.trainable.values, weights)
    np.testing.assert_array_equal(model.model_.trainable.squares, squares)
    assert model.model_.reservoir is reservoir
    assert len(model.classes_) == N_LABELS


def test_known_labels_learn_from_many_new_rows():
    labels = np.arange(N_ROWS) % N_LABELS
    model = estimator(label_weights=True).fit(rows_of(labels), labels)
    before = model.label_coef_.copy()
    model.partial_fit(rows_of(labels[:5], 3), labels[:5])
    assert (model.label_coef_ != before).nnz == 0  # few rows beside those of before
    model.partial_fit(rows_of(np.zeros(30, int), 3), np.zeros(30, int))
    change = np.abs((model.label_coef_ - before).toarray()).max(axis=1)
    assert change[0] > 0.1
    assert change[1:].max() < 0.02  # larger weights of a feature are rounded to larger steps
