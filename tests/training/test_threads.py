"""Any number of threads trains the same model, bit for bit."""

import numpy as np
import pytest
from scipy.sparse import random_array

from ltls import LTLSClassifier, TextClassifier

N_LABELS = 80


def rows(n_labels_per_row):
    rng = np.random.default_rng(0)
    X = random_array((1200, 60), density=0.1, rng=rng, dtype=np.float32).tocsr()
    W = rng.normal(size=(60, N_LABELS))
    best = np.argsort(-(X @ W), axis=1)[:, :n_labels_per_row]
    if n_labels_per_row == 1:
        return X, best[:, 0]
    y = np.zeros((1200, N_LABELS), int)
    np.put_along_axis(y, best, 1, axis=1)
    return X, y


def saved(estimator, X, y, n_jobs, folder):
    """Return the bytes of the model file."""
    path = folder / "model"
    estimator.set_params(n_jobs=n_jobs).fit(X, y)
    estimator.set_params(n_jobs=None).save(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("n_labels_per_row", "settings"),
    [
        (1, {}),
        (3, {}),
        (1, {"bucket_size": 4, "n_trellises": 3}),
        (3, {"bucket_size": 4, "n_trellises": 1}),
        (1, {"n_trellises": 1, "batch_size": 128}),
        (1, {"assignment": "learned", "label_weights": False}),
        (1, {"embedding_dim": 8, "label_weights": False, "density": 0.5}),
    ],
    ids=["one label", "several", "buckets", "one trellis", "batches", "learned", "embedding"],
)
def test_models_do_not_depend_on_n_jobs(n_labels_per_row, settings, tmp_path):
    X, y = rows(n_labels_per_row)
    model = LTLSClassifier(width=4, epochs=1, random_state=0, **settings)
    first, *others = (saved(model, X, y, n_jobs, tmp_path) for n_jobs in (1, 2, 3))
    assert all(other == first for other in others)


@pytest.mark.parametrize("n_features", [None, 500])
def test_models_of_texts_do_not_depend_on_n_jobs(n_features, tmp_path):
    rng = np.random.default_rng(0)
    words = np.array(["card", "lost", "fee", "why", "naïve", "Straße", "a", "7"])
    y = rng.integers(0, 5, 200)
    texts = [" ".join(rng.choice(words[label : label + 4], 6)) for label in y]
    model = TextClassifier(n_features=n_features, epochs=1, random_state=0)
    first, *others = (saved(model, texts, y, n_jobs, tmp_path) for n_jobs in (1, 2, 3))
    assert all(other == first for other in others)
