import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import Graph
from sklearn.datasets import make_multilabel_classification

import ltls
from ltls import LTLSClassifier, RandomCodebook, TableCodebook, Trellis
from ltls.training.fit import examples_of
from ltls.structure.exchange import edge_score_sums, exchange, move_labels

# A single narrow trellis, which has the most to gain.
PLAIN = {
    "width": 2,
    "n_trellises": 1,
    "rescore": 0,
    "epochs": 5,
    "learning_rate": 0.3,
    "validation_fraction": 0,
    "random_state": 0,
}


def learner(**changes):
    return LTLSClassifier(**{**PLAIN, **changes})


def learned(**changes):
    return learner(assignment="learned", **changes)


@pytest.fixture(scope="module")
def tags():
    """Rows with up to 40 labels, some with none, of which a narrow trellis confuses many."""
    return make_multilabel_classification(
        600, n_features=30, n_classes=40, n_labels=4, random_state=0
    )


def total(graph, sums, paths):
    return sum(
        graph.scores(list(map(float, row)))[path] for row, path in zip(sums, paths, strict=True)
    )


@given(
    n_paths=st.integers(2, 40),
    n_free=st.integers(0, 5),
    width=st.integers(2, 5),
    seed=st.integers(0, 2**31),
)
def test_exchanges_keep_every_path_single_and_never_lower_the_score(n_paths, n_free, width, seed):
    rng = np.random.default_rng(seed)
    trellis, graph = Trellis(n_paths, width), Graph(n_paths, width)
    n_labels = max(1, n_paths - n_free)
    before = rng.permutation(n_paths)[:n_labels]
    sums = rng.normal(size=(n_labels, trellis.n_edges)).astype(np.float32)
    sums *= rng.integers(0, 5, (n_labels, 1))  # some labels have no examples
    given_paths = before.copy()
    after = exchange(trellis, sums, before)
    np.testing.assert_array_equal(before, given_paths)
    assert len(set(after.tolist())) == n_labels
    assert after.min() >= 0
    assert after.max() < n_paths
    assert total(graph, sums, after) >= total(graph, sums, before) - 1e-5
    if n_paths <= 16:  # every path is within every label's reach
        nothing_is_left_to_gain(graph, sums, after)


def nothing_is_left_to_gain(graph, sums, paths):
    """No two labels, and no label and a free path, would be better off the other way round."""
    scores = [graph.scores(list(map(float, row))) for row in sums]
    label_of = {path: label for label, path in enumerate(paths.tolist())}
    for label, here in enumerate(paths.tolist()):
        for there in range(graph.n_classes):
            gain = scores[label][there] - scores[label][here]
            if gain > 0 and there in label_of:
                other = scores[label_of[there]]
                gain += other[here] - other[there]
            assert gain < 1e-5


def test_two_labels_that_want_each_others_path_get_it():
    trellis = Trellis(22)
    sums = np.zeros((2, trellis.n_edges), np.float32)
    sums[0, trellis.path_edges(9)] = 1
    sums[1, trellis.path_edges(4)] = 1
    assert exchange(trellis, sums, np.array([4, 9])).tolist() == [9, 4]


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_the_rows_learned_from(tags, loss, weighted):
    X, Y = tags
    model = learner(n_trellises=2, loss=loss, epochs=1).fit(X, Y)
    weights = np.random.default_rng(1).uniform(0, 2, len(X)).astype(np.float32)
    fitted, h = model._learned, model.edge_scores(X)
    examples = examples_of(model, X, ltls.model.labels.as_targets(Y), weights if weighted else None)
    rows = np.arange(0, len(X), 3)
    sums = edge_score_sums(fitted, examples, rows, fitted.linear, None)
    expected = np.zeros((Y.shape[1], h.shape[1]))
    for row in rows:
        labels = np.flatnonzero(Y[row])
        share = weights[row] if weighted else 1
        for label in labels:
            expected[label] += h[row] * share / (len(labels) if loss == "softmax" else 1)
    n_edges = model.trellis_.n_edges
    for r in range(2):
        block = expected[:, r * n_edges : (r + 1) * n_edges]
        np.testing.assert_allclose(sums[r], block, rtol=1e-3, atol=1e-3)


def test_moving_labels_lowers_the_loss_of_the_weights_as_they_are(digits):
    X, y = digits
    model = learner(assignment=RandomCodebook(10, 1), epochs=1).fit(X, y)
    # Weights learned for other paths than these: there is much to gain.
    paths = np.random.default_rng(0).permutation(10)
    model._learned.codebooks[0] = TableCodebook(10, paths)
    before = -model.log_proba(X, y).mean()
    examples = examples_of(model, X, ltls.model.labels.as_targets(y), None)
    move_labels(model._learned, examples, np.arange(len(X)), model._learned.linear, None)
    after = -model.log_proba(X, y).mean()
    assert sorted(model.codebook_.paths) == list(range(10))
    assert after < before / 2


@pytest.mark.parametrize("loss", ["separation", "softmax", "logistic"])
@pytest.mark.parametrize("n_trellises", [1, 3])
def test_learned_codebooks_are_the_same_for_any_number_of_threads(tags, loss, n_trellises):
    X, Y = tags
    settings = {"loss": loss, "n_trellises": n_trellises}
    one, two = (learned(**settings, n_jobs=n_jobs).fit(X, Y) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.codebooks_ == two.codebooks_
    assert len(one.codebooks_) == n_trellises
    for book in one.codebooks_:
        assert sorted(book.paths) == list(range(40))


def test_labels_move_only_between_epochs(tags):
    X, Y = tags
    start = learner(assignment="similarity", epochs=1).fit(X, Y)
    once = learned(epochs=1).fit(X, Y)
    twice = learned(epochs=2).fit(X, Y)
    assert once.codebook_ == start.codebook_
    np.testing.assert_array_equal(once.coef_, start.coef_)
    assert twice.codebook_ != start.codebook_


def skewed_tags(seed, n_rows=800, n_labels=60, n_features=80):
    """Rows with three labels each, a few of which are frequent, and features that tell of them."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, n_labels + 1)
    Y = np.zeros((n_rows, n_labels), int)
    for row in Y:
        row[rng.choice(n_labels, 3, replace=False, p=frequency / frequency.sum())] = 1
    X = Y @ rng.normal(size=(n_labels, n_features)) + rng.normal(size=(n_rows, n_features))
    return X / np.linalg.norm(X, axis=1, keepdims=True), Y


def test_learned_codebooks_help_a_narrow_trellis():
    def precision(assignment, seed):
        X, Y = skewed_tags(seed)
        model = learner(assignment=assignment, random_state=seed).fit(X[:500], Y[:500])
        best = model.predict_topk(X[500:], 1)[0][:, 0]
        return Y[np.arange(500, len(X)), best].mean()

    mean = {
        assignment: np.mean([precision(assignment, seed) for seed in range(6)])
        for assignment in ("random", "similarity", "learned")
    }
    assert mean["learned"] > mean["random"] + 0.02
    assert mean["learned"] > mean["similarity"] + 0.005


def test_early_stopping_keeps_the_codebook_of_the_best_epoch(tags, monkeypatch):
    X, Y = tags
    seen = []
    true = ltls.model.fitted.Model.precision

    def noted(model, *args):
        reached = true(model, *args)
        seen.append((reached, [book.paths for book in model.codebooks]))
        return reached

    monkeypatch.setattr("ltls.model.fitted.Model.precision", noted)
    model = learned(n_trellises=2, epochs=12, validation_fraction=0.2, n_iter_no_change=12)
    model.fit(X, Y)
    best = int(np.argmax([reached for reached, _ in seen]))
    assert best < len(seen) - 1, "the last epoch was the best: this tests nothing"
    for book, paths in zip(model.codebooks_, seen[best][1], strict=True):
        np.testing.assert_array_equal(book.paths, paths)


def test_a_model_with_learned_codebooks_learns_on_and_is_saved(tags, tmp_path):
    X, Y = tags
    y = [np.flatnonzero(row).tolist() for row in Y]
    model = learned(n_trellises=2).fit(X, y)
    model.save(tmp_path / "model")
    loaded = ltls.load(tmp_path / "model")
    assert loaded.codebooks_ == model.codebooks_
    for ours, theirs in zip(model.predict_topk(X, 3), loaded.predict_topk(X, 3), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    before = [book.paths for book in loaded.codebooks_]
    loaded.partial_fit(X[:20], [[*labels, "new"] for labels in y[:20]])
    assert "new" in loaded.classes_
    for book, paths in zip(loaded.codebooks_, before, strict=True):
        np.testing.assert_array_equal(book.paths[:40], paths)
        assert len(set(book.paths.tolist())) == 41


def test_warm_start_moves_on_from_any_codebook(tags):
    X, Y = tags
    model = learner(warm_start=True).fit(X, Y)
    before = model.codebook_.path_of(range(40))
    model.set_params(assignment="learned").fit(X, Y)
    assert sorted(model.codebook_.paths) == list(range(40))
    assert (model.codebook_.paths != before).any()


def test_partial_fit_begins_with_a_similarity_codebook(digits):
    X, y = digits
    model = learned(width=4).partial_fit(X, y)
    similar = learner(assignment="similarity", width=4).partial_fit(X, y)
    np.testing.assert_array_equal(model.predict(X), similar.predict(X))


def test_learned_codebooks_work_with_the_defaults(digits, tags):
    for X, y in (digits, tags):
        model = LTLSClassifier(assignment="learned", random_state=0).fit(X, y)
        for book in model.codebooks_:
            assert sorted(book.paths) == list(range(len(model.classes_)))
