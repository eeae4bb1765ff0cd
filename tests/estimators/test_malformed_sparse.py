"""Sparse matrices whose arrays point outside of them are errors and no crashes.

scipy trusts the arrays of a matrix, and so reads foreign memory. Every case runs in a process of
its own, where a crash is a failed test.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import faulthandler, sys
import numpy as np
import scipy.sparse as sp
from ltls import LTLSClassifier, metrics, readers
faulthandler.enable()

def spoiled(X, name, change):
    X = X.copy()
    array = getattr(X, name).copy()
    change(array)
    setattr(X, name, array)
    return X

def far(array):
    array[1] = 10**8

def negative(array):
    array[-1] = -(10**8)

def last(array):
    array[-1] = 10**8

eye = sp.csr_matrix(np.eye(6, dtype=np.float32))
labels, tags = list("abcdef"), sp.csr_matrix(np.eye(6, dtype=int))
single = LTLSClassifier(random_state=0).fit(eye, labels)
several = LTLSClassifier(random_state=0).fit(eye, tags)
views = LTLSClassifier(views=True, prototypes=True, neighbours=True, random_state=0)
views.fit(eye, labels)

def bad(matrix):
    yield "indptr too far", spoiled(matrix, "indptr", far)
    yield "indptr ends too far", spoiled(matrix, "indptr", last)
    yield "negative indptr", spoiled(matrix, "indptr", negative)
    yield "index too large", spoiled(matrix, "indices", far)
    yield "negative index", spoiled(matrix, "indices", negative)
    columns = matrix.tocsc()
    yield "column indptr too far", spoiled(columns, "indptr", far)
    yield "row index too large", spoiled(columns, "indices", far)
    pairs = matrix.tocoo()
    pairs.row = pairs.row.copy()
    pairs.row[0] = 10**8
    yield "coordinate", pairs

def uses_of_X(X):
    yield lambda: LTLSClassifier().fit(X, labels)
    yield lambda: LTLSClassifier().fit_stream([(eye, labels), (X, labels)])
    yield lambda: LTLSClassifier().partial_fit(X, labels)
    yield lambda: single.partial_fit(X, labels)
    yield lambda: single.predict(X)
    yield lambda: single.predict_topk(X, 2)
    yield lambda: single.predict_proba(X)
    yield lambda: single.decision_function(X)
    yield lambda: single.edge_scores(X)
    yield lambda: single.log_proba(X, labels)
    yield lambda: single.score(X, labels)
    yield lambda: several.predict(X)
    yield lambda: several.score(X, tags)
    yield lambda: single.explain(X)
    yield lambda: views.predict(X)
    yield lambda: views.explain(X)
    yield lambda: readers.write(path, X, tags, "svmlight")

def calls_of_predictors(X):
    if X.format != "coo":  # which a predictor does not take
        yield lambda: single.predictor(2)(X)

def uses_of_y(y):
    yield lambda: LTLSClassifier().fit(eye, y)
    yield lambda: LTLSClassifier().fit_stream([(eye, tags), (eye, y)])
    yield lambda: LTLSClassifier().partial_fit(eye, y)
    yield lambda: several.partial_fit(eye, y)
    yield lambda: several.score(eye, y)
    yield lambda: single.predict_topk(eye, among=y)
    yield lambda: readers.write(path, eye, y, "svmlight")
    yield lambda: metrics.precision_at_k(y, np.zeros((6, 1), int))
    yield lambda: metrics.propensities(y)

cases = {"X": (eye, uses_of_X), "predictor": (eye, calls_of_predictors), "y": (tags, uses_of_y)}
matrix, uses = cases[sys.argv[1]]
path = sys.argv[2]
for name, spoilt in bad(matrix):
    for number, use in enumerate(uses(spoilt)):
        print(name, number, flush=True)
        try:
            use()
        except ValueError as error:
            if "is not a valid" not in str(error) and sys.argv[1] != "predictor":
                raise
        else:
            raise AssertionError(f"{name}: no error")
print("all are errors")
"""


@pytest.mark.parametrize("argument", ["X", "y", "predictor"])
def test_malformed_matrices_are_value_errors(tmp_path, argument):
    path = tmp_path / "rows.svm"
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, argument, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert done.stdout.endswith("all are errors\n")
    assert not path.exists()
