"""Small problems with fixed data, on which models of the archive were trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits

WORDS = ["refund", "card", "lost", "fee", "transfer", "limit", "pin", "blocked", "rate", "abroad"]


def in_batches(X: Any, y: Any, size: int) -> list[tuple[Any, Any]]:
    """Return rows in batches, as `fit_stream` takes them."""
    return [
        (X[first : first + size], y[first : first + size]) for first in range(0, X.shape[0], size)
    ]


def digits() -> tuple[Any, Any]:
    """Return dense rows with one integer label each."""
    X, y = load_digits(return_X_y=True)
    return (X[:600] / 16).astype(np.float32), y[:600]


def sparse(n_labels: int = 40, multilabel: bool = False) -> tuple[Any, Any]:
    """Return sparse rows around a prototype for each label; labels are strings."""
    rng = np.random.RandomState(7)
    prototypes = rng.rand(n_labels, 60) * (rng.rand(n_labels, 60) < 0.15)
    owners = [
        sorted(set(rng.randint(n_labels, size=1 + 2 * multilabel).tolist())) for _ in range(500)
    ]
    rows = np.array([prototypes[own].sum(axis=0) for own in owners])
    rows += rng.rand(*rows.shape) * (rng.rand(*rows.shape) < 0.05)
    names = [[f"label {owner}" for owner in own] for own in owners]
    y = names if multilabel else [own[0] for own in names]
    return sp.csr_matrix(rows.astype(np.float32)), y


def indicator() -> tuple[Any, Any]:
    """Return the sparse rows of several labels each, with a matrix of zeros and ones."""
    X, lists = sparse(multilabel=True)
    return X, np.array([[f"label {c}" in row for c in range(40)] for row in lists], int)


def wide(multilabel: bool = False) -> tuple[Any, Any]:
    """Return rows of a few of very many features."""
    X, y = sparse(multilabel=multilabel)
    return sp.csr_matrix((X.data, 50 * X.indices, X.indptr), shape=(X.shape[0], 3000)), y


def repeated(multilabel: bool = False) -> tuple[Any, Any]:
    """Return the sparse rows three times: enough of them to calibrate probabilities."""
    X, y = sparse(multilabel=multilabel)
    return sp.csr_matrix(sp.vstack([X] * 3)), 3 * y


def labels_of_all_types() -> tuple[Any, Any]:
    """Return rows whose labels have every type that a model file holds."""
    X, y = digits()
    names = ["text", b"bytes", 3, 2.5, ("a", 1), True, "ß", -(2**70), ("nested", (2.0,)), ""]
    return X, [[names[label]] for label in y]


def rows_of(problem: str) -> tuple[Any, Any]:
    """Return X and y of a problem by its name; `_multilabel` is for several labels per row."""
    name = problem.removesuffix("_multilabel")
    options = {"multilabel": True} if name != problem else {}
    X, y = globals()[name](**options)
    return X, y


def texts() -> tuple[list[str], list[str]]:
    """Return sentences of a few words with the first of them as the label."""
    rng = np.random.RandomState(3)
    rows = [[WORDS[i] for i in rng.randint(len(WORDS), size=4)] for _ in range(300)]
    return [" ".join(row) for row in rows], [row[0] for row in rows]
