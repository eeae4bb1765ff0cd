"""Weights that do not fit into memory are an error before they are allocated."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

from ltls import LTLSClassifier
from ltls.core.memory import available_memory, memory_limit


def test_available_memory_is_within_the_limit():
    available, limit = available_memory(), memory_limit()
    if available is None or limit is None:
        pytest.skip("the system does not say how much memory there is")
    assert 0 < available <= limit


@pytest.mark.parametrize(
    ("method", "settings"), [("fit", {"bucket_size": 1}), ("fit", {}), ("partial_fit", {})]
)
def test_too_many_weights_name_the_estimate_and_what_would_do(method, settings):
    if available_memory() is None:
        pytest.skip("the system does not say how much memory there is")
    n_trellises = 9000 if settings else 90_000  # buckets have fewer paths
    estimator = LTLSClassifier(width=4096, n_trellises=n_trellises, random_state=0, **settings)
    y = [f"label {i}" for i in range(8192)]
    rows = sp.csr_array((np.ones(8192, np.float32), np.arange(8192) % 900, np.arange(8193)))
    with pytest.raises(MemoryError) as error:
        getattr(estimator, method)(rows, y)
    message = str(error.value)
    assert re.search(r"training needs [\d.]+ GB for the weights of 900 features", message)
    assert re.search(r"n_trellises=\d+ would fit|use a smaller width", message)
    assert not hasattr(estimator, "model_")


def test_hashed_features_that_do_not_occur_take_no_memory():
    """2**30 columns, of which 300 occur: a matrix of weights for all would take terabytes."""
    rng = np.random.default_rng(0)
    y = rng.integers(20, size=1000)
    columns = rng.integers(0, 2**30, 300)
    own = columns[15 * y[:, None] + rng.integers(0, 15, (1000, 4))]
    own.sort(axis=1)
    ones = np.ones(4000, np.float32)
    X = sp.csr_array((ones, own.ravel(), np.arange(0, 4001, 4)), shape=(1000, 2**30))
    X.sum_duplicates()
    assert LTLSClassifier(random_state=0).fit(X, y).score(X, y) > 0.9
