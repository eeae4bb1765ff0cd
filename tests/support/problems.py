"""Small problems with fixed data, on which models of the archive were trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits

WORDS = ["refund", "card", "lost", "fee", "transfer", "limit", "pin", "blocked", "rate", "abroad"]


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


def texts() -> tuple[list[str], list[str]]:
    """Return sentences of a few words with the first of them as the label."""
    rng = np.random.RandomState(3)
    rows = [[WORDS[i] for i in rng.randint(len(WORDS), size=4)] for _ in range(300)]
    return [" ".join(row) for row in rows], [row[0] for row in rows]
