"""Several trellises over the same labels: each has a codebook, and is trained for itself."""

import numpy as np
import pytest

from ltls import LTLSClassifier, RandomCodebook, TableCodebook
from ltls.settings import Trellises

with_each_loss = pytest.mark.parametrize("loss", ["separation", "softmax", "logistic"])


def classifier(**trellises):
    return LTLSClassifier(
        trellises=Trellises(**trellises), views=False, label_weights=False, random_state=0
    )


@with_each_loss
def test_trellises_are_trained_independently(digits, loss):
    X, y = digits
    books = [RandomCodebook(10, seed) for seed in range(3)]
    given = {"width": 2, "loss": loss, "epochs": 2, "dtype": "float32"}
    together = classifier(n_trellises=3, assignment=books, **given).fit(X, y)
    alone = [classifier(assignment=book, **given).fit(X, y) for book in books]
    np.testing.assert_array_equal(together.coef_, np.vstack([model.coef_ for model in alone]))


def test_several_trellises_are_better_than_one(digits):
    X, y = digits
    one, five = (classifier(width=2, n_trellises=n).fit(X[::2], y[::2]) for n in (1, 5))
    assert five.score(X[1::2], y[1::2]) > one.score(X[1::2], y[1::2]) + 0.02


def test_new_labels_get_paths_in_all_trellises(digits):
    X, y = digits
    model = classifier(n_trellises=3, width=2, assignment="ranking")
    for label in range(10):
        model.partial_fit(X[y == label][:50], y[y == label][:50])
    assert model.trellis_.n_classes >= 10
    for _ in range(5):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.7
    for book in model.codebooks_:
        assert len(set(book.path_of(np.arange(10)).tolist())) == 10


@pytest.mark.parametrize("n_new", [1, 3, 40])
@pytest.mark.parametrize("assignment", ["random", "frequency", "learned"])
def test_new_labels_change_no_path_and_no_score_of_an_old_one(digits, n_new, assignment):
    X, y = digits
    model = classifier(n_trellises=2, width=4, loss="separation", assignment=assignment)
    model.fit(X, y)
    before, n_paths = model.decision_function(X), model.trellis_.n_classes
    paths = [book.path_of(np.arange(10)) for book in model.codebooks_]
    model.partial_fit(X[:n_new], 100 + np.arange(n_new), sample_weight=np.zeros(n_new))
    assert model.classes_.tolist() == [*range(10), *range(100, 100 + n_new)]
    assert model.trellis_.n_classes >= max(n_paths, 10 + n_new)
    after = model.decision_function(X)[:, :10]
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)
    for book, old in zip(model.codebooks_, paths, strict=True):
        np.testing.assert_array_equal(book.path_of(np.arange(10)), old)
        assert len(set(book.path_of(np.arange(10 + n_new)).tolist())) == 10 + n_new


def test_given_codebooks_must_match_the_trellises(digits):
    with pytest.raises(ValueError, match="one codebook for each of 2 trellises"):
        classifier(n_trellises=2, assignment=RandomCodebook(10)).fit(*digits)
    with pytest.raises(ValueError, match="all of the same size"):
        classifier(n_trellises=2, assignment=[RandomCodebook(10), RandomCodebook(11)]).fit(*digits)
    for given in ([RandomCodebook(10), TableCodebook(10)], ["random", "random"], [1, 2], []):
        with pytest.raises(ValueError, match="all of the same type"):
            classifier(n_trellises=2, assignment=given).fit(*digits)


def test_one_codebook_given_for_several_trellises_is_copied_for_each(digits):
    book = TableCodebook(10)
    model = classifier(n_trellises=3, assignment=[book] * 3, epochs=1).set_params(n_jobs=2)
    assert len({id(each) for each in model.fit(*digits).codebooks_}) == 3
    assert book.n_free == 10


def test_a_label_without_a_path_in_one_trellis_gets_one(digits):
    X, y = digits
    books = [TableCodebook(6, [0, 1, 2]), TableCodebook(6, [-1, -1, -1, 3, 4, 5])]
    weight = (y[y < 3] != 2).astype(float)
    model = classifier(n_trellises=2, assignment=books)
    model.fit(X[y < 3], y[y < 3], sample_weight=weight)
    for book in model.codebooks_:
        assert (book.path_of([0, 1, 2]) >= 0).all()
    assert model.predict_topk(X, 3)[0].shape == (len(X), 3)
    assert model.decision_function(X).shape == (len(X), 3)
