"""The target of degenerate data: a model whose every method answers, or a clear error.

An input describes rows, labels, settings and a way to train. Most rows have something that data
should not have: no signal, constant, repeated or empty rows, features of extreme magnitudes, labels
that nearly all rows have, that a single row has, or that outnumber the rows.
"""

import json
import traceback
import warnings
from pathlib import Path

import numpy as np
import sklearn
from asking import ask_everything
from scipy.sparse import csr_array

import ltls
from ltls import LTLSClassifier, TableClassifier, TextClassifier
from ltls.features.blocks import Blocks
from ltls.settings import Memory, Numbers, Table, Text, Trellises

from .mutate import pick

DEFECTS = {
    "none": lambda rng, X: X,
    "constant": lambda rng, X: np.ones_like(X),
    "a constant feature": lambda rng, X: np.column_stack([np.full(len(X), 3.0), X[:, 1:]]),
    "zeros": lambda rng, X: np.zeros_like(X),
    "rows of zeros": lambda rng, X: X * (rng.random((len(X), 1)) < 0.5),
    "repeated rows": lambda rng, X: X[np.arange(len(X)) % max(len(X) // 5, 1)],
    "two values": lambda rng, X: np.sign(X),
    "few values": lambda rng, X: X * (rng.random(X.shape) < 0.1),
    "one value": lambda rng, X: X * (np.arange(X.size).reshape(X.shape) == X.size // 2),
    "a far row": lambda rng, X: np.vstack([1e4 * X[:1], X[1:]]),
    "a far feature": lambda rng, X: np.column_stack([1e4 + X[:, :1], X[:, 1:]]),
    "small": lambda rng, X: 1e-8 * X,
    "large": lambda rng, X: 1e4 * X,
}
LABELS = {
    "no signal": lambda rng, X, n: rng.integers(n, size=len(X)),
    "signal": lambda rng, X, n: np.abs(10 * X[:, 0]).astype(int) % n,
    "nearly always one": lambda rng, X, n: (
        rng.integers(n, size=len(X)) * (rng.random(len(X)) < 0.03)
    ),
    "a row each": lambda rng, X, n: np.arange(len(X)),
    "one": lambda rng, X, n: np.zeros(len(X), int),
}
SEVERAL = {
    "a few": lambda rng, n: rng.integers(n, size=rng.integers(4)),
    "more than rows": lambda rng, n: rng.integers(20 * n, size=10),
    "nearly none": lambda rng, n: rng.integers(n, size=int(rng.random() < 0.1)),
    "all": lambda rng, n: np.arange(n),
}
WEIGHTS = {
    "ones": lambda rng, n: np.ones(n),
    "random": lambda rng, n: rng.exponential(size=n),
    "zeros": lambda rng, n: np.zeros(n),
    "some zeros": lambda rng, n: (rng.random(n) < 0.5).astype(float),
    "denormal": lambda rng, n: np.full(n, 1e-45),
    "tiny": lambda rng, n: np.full(n, 1e-30),
    "huge": lambda rng, n: np.full(n, 1e20),
    "far apart": lambda rng, n: 10.0 ** rng.integers(-45, 5, size=n),
}
FORMS = ("dense", "float32", "sparse", "text", "table", "blocks")
WAYS = ("fit", "fit_stream", "partial_fit")
PARTS = ("views", "label_weights", "prototypes", "neighbours", "propensity", "calibration")
SMALL = {"width": 2, "n_trellises": 1, "epochs": 1}


def generate(rng, folder):
    """Return a suffix and a description of data and settings as JSON."""
    way = pick(rng, WAYS)
    # The first partial_fit takes no parts that need all rows at once.
    parts = PARTS if way != "partial_fit" or rng.random() < 0.05 else ()
    described = {
        "seed": int(rng.integers(2**31)),
        "n_rows": pick(rng, [1, 2, 3, 7, 20, 60, 150]),
        "n_features": pick(rng, [1, 2, 5, 30]),
        "n_labels": pick(rng, [2, 3, 10, 70]),
        "defects": [pick(rng, list(DEFECTS)) for _ in range(int(rng.integers(1, 3)))],
        "labels": pick(rng, [*LABELS, *LABELS, *SEVERAL]),
        "form": pick(rng, FORMS),
        "way": way,
        "n_batches": pick(rng, [1, 2, 7]),
        "parts": {name: bool(rng.random() < 0.7) for name in parts if rng.random() < 0.3},
        "trellises": {},
        "numbers": {},
        "weights": pick(rng, list(WEIGHTS)) if rng.random() < 0.3 else None,
        "class_weight": None,
        "n_kept": pick(rng, [0, 1, 5]) if rng.random() < 0.2 else None,
    }
    if rng.random() < 0.2:
        described["class_weight"] = pick(rng, ["balanced", 0, 1e-45, 1e-30, 7, 1e20])
    if parts and rng.random() < 0.1:
        described["parts"] |= {"label_matrix": True, "label_weights": False}
    if rng.random() < 0.6:
        loss = pick(rng, ["softmax", "logistic", "separation"])
        described["trellises"] = SMALL | {"loss": loss, "width": pick(rng, [2, 3, 8])}
    if rng.random() < 0.2:
        described["numbers"] = {"standardize": bool(rng.random() < 0.5), "normalize": False}
    return ".json", json.dumps(described).encode()


def run(content, path):
    """Train a model and ask it everything; return whether there is one."""
    model, X, batches, way, tolerance = _made(described := json.loads(content))
    weights = [{} for _ in batches]
    if described.get("weights"):
        rng = np.random.default_rng(described["seed"])
        find = WEIGHTS[described["weights"]]
        weights = [{"sample_weight": find(rng, len(y))} for _, y in batches]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if way == "partial_fit":
                for (rows, y), given in zip(batches, weights, strict=True):
                    model.partial_fit(rows, y, **given)
            elif way == "fit_stream":
                model.fit_stream(batches)
            else:
                given = {}
                if weights[0]:
                    given["sample_weight"] = np.concatenate([w["sample_weight"] for w in weights])
                model.fit(X, [label for _, y in batches for label in y], **given)
        except ValueError as error:
            if not _is_clear(error):
                raise
            return False
        ask_everything(model, X, path.parent, tolerance)
    return True


def _is_clear(error):
    """Return whether an error was raised by a check, not by an operation that failed."""
    raised = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    checks = Path(sklearn.__file__).parent / "utils" / "validation.py"
    return raised == checks or Path(ltls.__file__).parent in raised.parents


def _made(described):
    """Return a model, rows, the same in batches with labels, how to train, and a tolerance."""
    rng = np.random.default_rng(described["seed"])
    X = rng.normal(size=(described["n_rows"], described["n_features"]))
    labels, n_labels = described["labels"], described["n_labels"]
    if labels in LABELS:
        y = LABELS[labels](rng, X, n_labels).tolist()
    else:
        y = [sorted({f"k{n}" for n in SEVERAL[labels](rng, n_labels)}) for _ in X]
    for defect in described["defects"]:
        X = DEFECTS[defect](rng, X)
    # Values beside far larger ones, or beside an intercept of 1, are rounded.
    values = np.abs(X[X != 0]) if X.any() else np.ones(1)
    spread = max(values.max(), 1) / min(np.median(values), 1)
    options = described["parts"] | {"random_state": 0, "n_jobs": 1}
    if described["trellises"]:
        options["trellises"] = Trellises(**described["trellises"])
    if described.get("n_kept") is not None:
        options["memory"] = described["n_kept"] > 0 and Memory(n_rows=described["n_kept"])
    weight = described.get("class_weight")
    if weight is not None:
        some = {label for each in y[:2] for label in (each if isinstance(each, list) else [each])}
        options["class_weight"] = (
            "balanced" if weight == "balanced" else dict.fromkeys(some, weight)
        )
    form = described["form"]
    if form == "text":
        model, X = TextClassifier(features=Text(), **options), _texts(X)
    elif form == "table":
        table = Table(text="t", number="n", category="c")
        model, X = TableClassifier(features=table, **options), _records(X)
    elif form == "blocks":
        model, X = LTLSClassifier(**options), Blocks(csr_array(X), X[:, : len(X[0]) // 2 + 1])
    else:
        model = LTLSClassifier(features=Numbers(**described["numbers"]), **options)
        X = {"sparse": csr_array, "float32": np.float32}.get(form, np.asarray)(X)
    size = -(-len(y) // described["n_batches"])
    firsts = range(0, len(y), size)
    batches = [(X[first : first + size], y[first : first + size]) for first in firsts]
    return model, X, batches, described["way"], max(spread / 1000, 1e-2)


def _texts(X):
    """Return a word for every feature that is above 0."""
    return [" ".join(f"w{place}" for place in np.flatnonzero(row > 0)) for row in X]


def _records(X):
    """Return cells of three kinds; numbers and categories of negative features are missing."""
    return [
        {
            "t": text,
            "n": row[0] if row[0] >= 0 else None,
            "c": str(row[-1]) if row[-1] > 0 else None,
        }
        for text, row in zip(_texts(X), X, strict=True)
    ]
