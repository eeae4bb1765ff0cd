"""A codebook policy that is registered from outside works wherever a built-in one does."""

import numpy as np
import pytest
from problems import in_batches
from toy_policy import ToyPolicy

from ltls import LTLSClassifier, load
from ltls.settings import Trellises
from ltls.structure.policies import POLICIES, register_policy


@pytest.fixture
def toy():
    policy = ToyPolicy()
    register_policy(policy)
    yield policy
    POLICIES.pop(policy.name)


def classifier(**parameters):
    given = Trellises(width=4, n_trellises=2, assignment="toy", **parameters)
    return LTLSClassifier(trellises=given, random_state=0)


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_training(digits, toy, stream):
    X, y = digits
    model = classifier(epochs=3)
    model = model.fit_stream(in_batches(X, y, 300)) if stream else model.fit(X, y)
    first, *between = toy.seen
    assert first == ("initial", 10, 2, 10)
    np.testing.assert_array_equal(toy.counts, np.bincount(y))
    start = np.arange(10)[::-1]
    for turn, (what, paths, shape) in enumerate(between):
        assert what == "between epochs"
        assert shape == (2, 10, model.trellis_.n_edges)
        for each in paths:
            np.testing.assert_array_equal(each, np.roll(start, turn))
    assert len(between) == 2
    for book in model.codebooks_:
        np.testing.assert_array_equal(book.paths, np.roll(start, 2))
    assert model.n_iter_ == 3


def test_partial_fit_gives_new_labels_free_paths(digits, toy):
    X, y = digits
    model = classifier().partial_fit(X[y < 3], y[y < 3])
    assert toy.seen[0] == ("initial", 4, 2, 3)
    model.partial_fit(X, y)
    assert sorted(model.classes_) == list(range(10))
    for book in model.codebooks_:
        paths = book.path_of(np.arange(10))
        np.testing.assert_array_equal(paths[:3], [3, 2, 1])
        assert len(set(paths.tolist())) == 10


def test_a_saved_model_predicts_without_the_policy(digits, toy, tmp_path):
    X, y = digits
    model = classifier(epochs=2).fit(X, y)
    model.save(tmp_path / "model.ltls")
    POLICIES.pop("toy")
    try:
        loaded = load(tmp_path / "model.ltls", verify=True)
        assert (loaded.trellises.assignment, loaded.codebooks_) == ("toy", model.codebooks_)
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        with pytest.raises(ValueError, match=r"'assignment' parameter of trellises .* got 'toy'"):
            loaded.fit(X, y)
    finally:
        POLICIES["toy"] = toy
    assert "new" in loaded.partial_fit(X[:20], ["new"] * 20).classes_
