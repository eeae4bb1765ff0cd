"""Small models of every kind that files are changed from: all sections of a file occur in some."""

import functools
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_array, vstack

from ltls import LTLSClassifier, TableClassifier, TextClassifier
from ltls.parts.views import ViewPart
from ltls.settings import (
    Memory,
    Neighbours,
    Numbers,
    Propensity,
    Prototypes,
    Table,
    Text,
    Trellises,
    Views,
)

N_ROWS, N_FEATURES, N_LABELS = 60, 12, 9
NAMES = [f"label {n}" for n in range(N_LABELS)]
WORDS = ["lost", "card", "fee", "pin", "rate", "bank", "visa", "ß", "login"]
SMALL = Trellises(width=2, n_trellises=2, epochs=1)
ALL_PARTS = {
    "label_weights": True,
    "prototypes": Prototypes(),
    "neighbours": Neighbours(n_neighbors=3),
    "propensity": Propensity(strength=0.2),
}


def rows():
    """Sparse rows that tell their label, and labels."""
    rng = np.random.default_rng(5)
    owners = np.arange(N_ROWS) % N_LABELS
    X = np.eye(N_LABELS, N_FEATURES)[owners] + rng.random((N_ROWS, N_FEATURES)) * (
        rng.random((N_ROWS, N_FEATURES)) < 0.1
    )
    return csr_array(X.astype(np.float32)), owners


def texts():
    return [f"my {WORDS[owner]} is {WORDS[(owner + n) % 3]}" for n, owner in enumerate(rows()[1])]


def table():
    return [
        {"item": text, "price": n / 2, "shop": "north" if n % 2 else None, "place": [n % 9, 1, n]}
        for n, text in enumerate(texts())
    ]


def several(owners):
    return [[NAMES[owner], NAMES[(owner + 1) % N_LABELS]] for owner in owners]


def numbers(y=None, X=None, trellises=SMALL, **settings):
    own_X, owners = rows()
    model = LTLSClassifier(trellises=trellises, random_state=0, **settings)
    return model.fit(own_X if X is None else X, owners if y is None else y(owners))


def names(owners):
    return [NAMES[owner] for owner in owners]


def of_all_types(owners):
    values = ["a", b"b", 3, 2.5, ("a", (1, 2.0)), True, -(2**70), "", np.datetime64("2024-01-02")]
    return [[values[owner]] for owner in owners]


def later():
    """A model that began with a batch, and then got more labels and features."""
    X, owners = rows()
    model = LTLSClassifier(trellises=SMALL, random_state=0)
    model.partial_fit(X[owners < 6], owners[owners < 6])
    return model.partial_fit(X, owners)


def calibrated():
    """A model of enough rows for a curve of probabilities, most of which it does not keep."""
    X, owners = rows()
    model = LTLSClassifier(
        trellises=SMALL, label_weights=False, memory=Memory(n_rows=10), random_state=0
    )
    return model.fit(csr_array(vstack([X] * 20)), 20 * several(owners))


def clusters():
    """A model of views with weights of clusters, whatever held-out rows say."""
    real = ViewPart.fit

    def kept(given, context):
        return replace(real(given, context), cluster_weight=0.5)

    with patch.multiple(ViewPart, fit=kept, variants=lambda part: ()):
        return numbers(names, views=Views(n_views=2, cluster_size=3, cluster_weights=True))


def sgd():
    averaged = {"optimizer": "sgd", "average": True, "assignment": "ranking", "dtype": "float32"}
    return numbers(trellises=Trellises(width=3, n_trellises=1, epochs=2, **averaged))


MODELS = {
    "plain": lambda: numbers(
        label_weights=False, trellises=Trellises(n_trellises=1, epochs=1, dtype="float32")
    ),
    "views": lambda: numbers(names, **ALL_PARTS, views=Views(n_views=2, cluster_size=3)),
    "parts": lambda: numbers(names, **ALL_PARTS, views=False),
    "several": lambda: numbers(several, **ALL_PARTS, views=Views(n_views=1, cluster_size=3)),
    "pruned": lambda: numbers(
        label_weights=False,
        memory=False,
        size_budget="9KB",
        trellises=Trellises(width=2, n_trellises=3, epochs=1, density=0.3),
    ),
    "dense": lambda: numbers(
        X=rows()[0].toarray() * 100 + 1000,
        features=Numbers(standardize=True),
        trellises=Trellises(
            width=4, epochs=1, dtype="float16", n_trellises=2, assignment="frequency"
        ),
    ),
    "matrix": lambda: numbers(X=rows()[0].toarray(), label_matrix=True),
    "clusters": clusters,
    "blocks": lambda: numbers(names, X=[rows()[0], rows()[0].toarray()[:, :5] * 9]),
    "types": lambda: numbers(
        of_all_types, features=Numbers(fit_intercept=False), class_weight={"a": 2.0, 3: 0.5}
    ),
    "calibrated": calibrated,
    "later": later,
    "sgd": sgd,
    "text": lambda: TextClassifier(
        features=Text(max_features=20), trellises=SMALL, random_state=0
    ).fit(texts(), names(rows()[1])),
    "hashed": lambda: TextClassifier(
        features=Text(n_features=64, char_ngram_range=None), trellises=SMALL, random_state=0
    ).fit(texts(), several(rows()[1])),
    "table": lambda: TableClassifier(
        features=Table(text="item", number="price", category="shop", max_features=20),
        trellises=SMALL,
        memory=Memory(n_rows=10),
        random_state=0,
    ).fit(table(), names(rows()[1])),
    "vectors": lambda: TableClassifier(
        features=Table(text="item", vectors="place", max_features=20),
        trellises=SMALL,
        random_state=0,
    ).fit(table(), names(rows()[1])),
}
RESUMABLE = ("plain", "views", "sgd", "clusters", "blocks")


@functools.cache
def model(name):
    """Return a fitted model."""
    return MODELS[name]()


def files(folder):
    """Write a file of every model, those of `RESUMABLE` also with all that training had."""
    for name in MODELS:
        model(name).save(Path(folder, f"{name}.ltls"))
    for name in RESUMABLE:
        model(name).save(Path(folder, f"{name}_resumable.ltls"), resumable=True)
    return sorted(Path(folder).glob("*.ltls"))
