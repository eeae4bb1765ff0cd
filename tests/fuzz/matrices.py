"""The target of CSR inputs: a malformed matrix is a ValueError or TypeError, never a crash."""

import functools
import json
import warnings

import numpy as np
from scipy.sparse import csr_array

from ltls import LTLSClassifier
from ltls.settings import Trellises

from .mutate import NUMBERS, mutated_json, pick

SEED = {
    "indptr": [0, 2, 3, 3, 6],
    "indices": [0, 5, 3, 1, 2, 7],
    "data": [1, -0.5, 2, 1e-3, 4, 1],
    "shape": [4, 8],
    "types": ["int32", "int32", "float32"],
    "y": [0, 1, 2, 3],
    "weights": [1, 1, 0.5, 2],
}


def classifier():
    return LTLSClassifier(trellises=Trellises(width=2, epochs=1), random_state=0)


@functools.cache
def fitted():
    return classifier().fit(np.eye(8, dtype=np.float32), np.arange(8))


def generate(rng, folder):
    """Return a suffix and the arrays of a changed matrix as JSON."""
    changed = mutated_json(rng, SEED, int(rng.integers(1, 4)))
    if isinstance(changed, dict) and rng.random() < 0.3:
        changed["types"] = [
            pick(rng, ["int32", "int64"]),
            pick(rng, ["int32", "int64"]),
            pick(rng, ["float32", "float64", "float16", "int64", "complex64", "bool", "object"]),
        ]
    if isinstance(changed, dict) and rng.random() < 0.5:
        name = pick(rng, ["indptr", "indices", "data"])
        values = changed.get(name)
        if isinstance(values, list) and values:
            values[int(rng.integers(len(values)))] = pick(rng, NUMBERS)
    return ".json", json.dumps(changed).encode()


def mutate(rng, content, folder):
    """Return a matrix with one more change."""
    return json.dumps(mutated_json(rng, json.loads(content))).encode()


def run(content, path):
    """Build the matrix without scipy's checks and use it everywhere; return if all succeeded."""
    try:
        given = json.loads(content)
        X = _matrix(given)
    except Exception:  # numpy or scipy would not make such a thing
        return False
    y, model = given.get("y"), fitted()
    works = [
        lambda: model.predict(X),
        lambda: model.predictor(k=2)(X),
        lambda: model.predictor(k=2)(X.indptr, X.indices, X.data),
        lambda: model.predict_topk(X, 2, among=X),
        lambda: model.explain(X, k=1),
        lambda: classifier().fit(X, y, given.get("weights")),
        # Hundreds of millions of labels take time and memory in proportion.
        lambda: X.shape[1] in range(2**20, 2**31) or classifier().fit(np.eye(len(y), 3), X),
        lambda: classifier().partial_fit(X, y, sample_weight=given.get("weights")),
    ]
    good = [_attempt(work) for work in works]
    return good[0]


def _attempt(work):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            work()
        except (ValueError, TypeError):
            return False
        except MemoryError as error:  # too many columns, which is found before they are allocated
            if "training needs" not in str(error):
                raise
            return False
    return True


def _matrix(given):
    X = csr_array((4, 8), dtype=np.float32)
    n_rows, n_columns = given["shape"]
    if not (
        type(n_rows) is type(n_columns) is int
        and min(given["shape"]) >= 0
        and n_rows < 2**31
        and n_columns < 2**62
    ):
        raise ValueError("scipy makes no matrix of such a shape")
    if not set(given["types"][:2]) <= {"int32", "int64"}:
        raise ValueError("nor with such indices")
    parts = zip(("indptr", "indices", "data"), given["types"], strict=True)
    with np.errstate(all="ignore"):
        for name, dtype in parts:
            setattr(X, name, np.array(given[name], np.float64).astype(dtype))
    X._shape = n_rows, n_columns
    return X
