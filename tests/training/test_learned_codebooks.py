"""assignment="learned": labels move to better paths between epochs."""

import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification

import ltls
from ltls import LTLSClassifier

# A single narrow trellis, which has the most to gain.
PLAIN = {
    "width": 2,
    "n_trellises": 1,
    "embedding_dim": 0,
    "epochs": 5,
    "learning_rate": 0.3,
    "validation_fraction": 0,
    "random_state": 0,
}


def classifier(**changes):
    return LTLSClassifier(**{**PLAIN, **changes})


def learned(**changes):
    return classifier(assignment="learned", **changes)


@pytest.fixture(scope="module")
def tags():
    """Multi-label rows of 40 labels, some without labels; a narrow trellis confuses many."""
    return make_multilabel_classification(
        600, n_features=30, n_classes=40, n_labels=4, random_state=0
    )


@pytest.mark.parametrize("loss", ["separation", "softmax", "logistic"])
@pytest.mark.parametrize("n_trellises", [1, 3])
def test_learned_codebooks_do_not_depend_on_n_jobs(tags, loss, n_trellises):
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
    start = classifier(assignment="similarity", epochs=1).fit(X, Y)
    once = learned(epochs=1).fit(X, Y)
    twice = learned(epochs=2).fit(X, Y)
    assert once.codebook_ == start.codebook_
    np.testing.assert_array_equal(once.coef_, start.coef_)
    assert twice.codebook_ != start.codebook_


def skewed_tags(seed, n_rows=800, n_labels=60, n_features=80):
    """Rows with three labels each, a few of them frequent, and features that depend on them."""
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
        model = classifier(assignment=assignment, random_state=seed).fit(X[:500], Y[:500])
        best = model.predict_topk(X[500:], 1)[0][:, 0]
        return Y[np.arange(500, len(X)), best].mean()

    mean = {
        assignment: np.mean([precision(assignment, seed) for seed in range(6)])
        for assignment in ("random", "similarity", "learned")
    }
    assert mean["learned"] > mean["random"] + 0.02
    assert mean["learned"] > mean["similarity"] + 0.005


def test_early_stopping_keeps_the_codebook_of_the_best_epoch(tags):
    X, Y = tags
    settings = {"n_trellises": 2, "validation_fraction": 0.2, "n_iter_no_change": 12}
    model = learned(**settings, epochs=12).fit(X, Y)
    # The best epoch is the first after which more epochs no longer change the model.
    shorter = [learned(**settings, epochs=epochs).fit(X, Y) for epochs in range(1, 12)]
    best = next(i for i, other in enumerate(shorter) if same_weights(other, model))
    assert best > 0, "labels have not moved before the first epoch: this tests nothing"
    assert shorter[best].codebooks_ == model.codebooks_
    assert all(not same_weights(other, model) for other in shorter[:best])


def same_weights(one, other):
    return np.array_equal(one.coef_, other.coef_)


def test_learned_codebooks_are_saved_and_trained_further(tags, tmp_path):
    X, Y = tags
    y = [np.flatnonzero(row).tolist() for row in Y]
    model = learned(n_trellises=2).fit(X, y)
    model.save(tmp_path / "model", dtype="float32")
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


def test_warm_start_continues_from_any_codebook(tags):
    X, Y = tags
    model = classifier(warm_start=True).fit(X, Y)
    before = model.codebook_.path_of(range(40))
    model.set_params(assignment="learned").fit(X, Y)
    assert sorted(model.codebook_.paths) == list(range(40))
    assert (model.codebook_.paths != before).any()


def test_partial_fit_starts_with_the_similarity_codebook(digits):
    X, y = digits
    model = learned(width=4).partial_fit(X, y)
    similar = classifier(assignment="similarity", width=4).partial_fit(X, y)
    np.testing.assert_array_equal(model.predict(X), similar.predict(X))


def test_learned_codebooks_work_with_the_defaults(digits, tags):
    for X, y in (digits, tags):
        model = LTLSClassifier(assignment="learned", random_state=0).fit(X, y)
        for book in model.codebooks_:
            assert sorted(book.paths) == list(range(len(model.classes_)))


def test_fit_stream_learns_codebooks_as_fit_does(digits):
    X, y = digits
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    train, test = slice(0, 1400), slice(1400, None)
    batches = [(X[i : i + 200], y[i : i + 200]) for i in range(0, 1400, 200)]
    fitted, streamed = [], []
    for seed in range(3):
        model = learned(random_state=seed)
        fitted.append(model.fit(X[train], y[train]).score(X[test], y[test]))
        streamed.append(model.fit_stream(batches).score(X[test], y[test]))
        assert sorted(model.codebook_.paths) == list(range(10))
    assert np.mean(fitted) > 0.75
    assert np.mean(streamed) > np.mean(fitted) - 0.05


def test_fit_stream_moves_labels_between_epochs(tags):
    X, Y = tags
    batches = [(X[i : i + 100], Y[i : i + 100]) for i in range(0, len(X), 100)]
    once, often = (learned(epochs=epochs).fit_stream(batches) for epochs in (1, 4))
    assert once.codebook_ != often.codebook_


def test_one_batch_gives_the_codebooks_of_fit(tags):
    X, Y = tags
    whole = learned(n_trellises=2, shuffle=False).fit(X, Y)
    # The stream computes label vectors from the first 16 rows of every label.
    streamed = learned(n_trellises=2, shuffle=False).fit_stream([(X, Y)])
    for book in streamed.codebooks_:
        assert sorted(book.paths) == list(range(40))
    assert abs(precision(streamed, X, Y) - precision(whole, X, Y)) < 0.1


def precision(model, X, Y):
    return Y[np.arange(len(X)), model.predict_topk(X, 1)[0][:, 0]].mean()
