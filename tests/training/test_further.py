"""Replay: new labels do not displace old ones, in one batch or one by one, and after a file."""

import copy

import numpy as np
import pytest
from problems import in_batches
from scipy.sparse import csr_matrix

from ltls import LTLSClassifier, load
from ltls.features.rows import Rows
from ltls.model.examples import Examples
from ltls.settings import LabelWeights, Memory, Trellises, Views
from ltls.training.further import _mixed, _replayed

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


def estimator(**parts):
    given = Trellises(epochs=3, n_trellises=3)
    return LTLSClassifier(
        **{"trellises": given, "random_state": 0, "label_weights": False, **parts}
    )


CASES = {
    "trellises": {},
    "label weights": {"label_weights": True, "views": False},
    "views": {"label_weights": True, "views": Views(n_views=2, cluster_size=10)},
    "dense": {},
    "several labels": {"label_weights": True, "views": False},
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


def test_old_labels_stay_and_a_new_one_is_found_by_a_loaded_model(case, tmp_path):
    kind, model = case
    X, old = held_out(kind)
    before = accuracy(model, X, old)
    assert before > 0.85
    new = np.full(100, N_LABELS)
    model.save(tmp_path / "model.ltls")
    X_new, X_test = rows_for(kind, new, 2), rows_for(kind, new, 3)
    found = []
    for size in (1, 10, 100):
        grown = load(tmp_path / "model.ltls")
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


def test_without_replay_old_labels_are_forgotten():
    """What replay is for: this is how it was without."""
    labels = np.arange(N_ROWS) % N_LABELS
    model = estimator(memory=False).fit(rows_of(labels), labels)
    assert model.model_.memory is None
    X, old = held_out("trellises")
    before = accuracy(model, X, old)
    new = np.full(100, N_LABELS)
    model.partial_fit(rows_of(new, 2), new)
    assert accuracy(model, X, old) < before - 0.1
    assert model.model_.memory is None


def test_a_stream_keeps_the_rows_of_fit_and_no_more_than_wanted():
    labels = np.arange(N_ROWS) % N_LABELS
    X = rows_of(labels)
    model = estimator(memory=Memory(n_rows=300)).fit(X, labels)
    whole = np.sort(model.model_.memory.keys)
    model.fit_stream(in_batches(X, labels, 100))
    np.testing.assert_array_equal(np.sort(model.model_.memory.keys), whole)
    for _ in range(2):
        model.partial_fit(rows_of(labels, 1), labels)
        assert len(model.model_.memory) == 300


def test_a_model_that_begins_with_partial_fit_replays_too():
    model, first = estimator(), np.arange(1000) % 10
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
    memory, used = model.model_.memory, model.model_.columns.used
    row = int(np.flatnonzero(memory.strata == 0)[0])
    features = used[memory.features[memory.ptr[row] : memory.ptr[row + 1]]]
    assert (features % 1000 == 0).all()


def batch_of(labels, X=None):
    rows = Rows(rows_of(labels) if X is None else X, True, True)
    return Examples(rows, np.arange(len(labels) + 1), np.array(labels), None, False)


def test_the_same_rows_are_replayed_whatever_the_random_state():
    labels = np.arange(N_ROWS) % N_LABELS
    memory = estimator(memory=Memory(n_rows=200)).fit(rows_of(labels), labels).model_.memory
    counts, batch = np.bincount(labels), batch_of([0])
    counts[0] += 1
    first, again, other, later = (
        _replayed(memory, batch, counts, n_rows).rows.X
        for n_rows in (N_ROWS + 1, N_ROWS + 1, N_ROWS + 2, 2**40)
    )
    assert (first != again).nnz == 0
    for another in (other, later):
        assert first.shape != another.shape or (first != another).nnz > 0
    batch.weights = np.zeros(1, np.float32)
    assert _replayed(memory, batch, counts, N_ROWS + 1) is None


def test_the_more_unusual_a_batch_the_more_rows_are_replayed():
    labels = np.arange(N_ROWS) % N_LABELS
    memory = estimator().fit(rows_of(labels), labels).model_.memory
    sizes = []
    for batch in (batch_of(labels[:140]), batch_of(np.zeros(140, np.int64))):
        counts = np.bincount(np.append(labels, batch.labels), minlength=N_LABELS)
        sizes.append(len(_replayed(memory, batch, counts, N_ROWS + 140)))
    assert sizes[0] == 64
    assert sizes[1] > 1000


@pytest.mark.parametrize(("n_batch", "n_past"), [(3, 9), (9, 3), (1, 100), (4, 0)])
def test_a_batch_is_spread_evenly(n_batch, n_past):
    order = np.arange(n_batch)[::-1]
    mixed = _mixed(order, n_batch + n_past)
    assert sorted(mixed) == list(range(n_batch + n_past))
    assert [row for row in mixed if row < n_batch] == order.tolist()
    places = np.flatnonzero(mixed < n_batch)
    assert np.ptp(np.diff(places)) <= 1 if len(places) > 1 else True


def test_known_labels_learn_from_many_new_rows():
    labels = np.arange(N_ROWS) % N_LABELS
    parts = {"label_weights": LabelWeights(), "views": False, "prototypes": False}
    model = estimator(**parts).fit(rows_of(labels), labels)

    def weights():
        return model.model_.part("label_weights").vectors.matrix().toarray()

    before = weights()
    model.partial_fit(rows_of(labels[:5], 3), labels[:5])
    np.testing.assert_array_equal(weights(), before)  # few rows beside those of before
    model.partial_fit(rows_of(np.zeros(30, int), 3), np.zeros(30, int))
    change = np.abs(weights() - before).max(axis=1)
    assert change[0] > 0.1
    assert change[1:].max() < 0.02  # larger weights of a feature are rounded to larger steps
