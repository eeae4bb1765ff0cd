"""Work that goes on for ever takes no more memory: a budget in bytes after a warm-up."""

import gc
import itertools
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import random_array

from ltls import LTLSClassifier, load
from ltls.readers import read
from ltls.settings import Memory, Trellises, Views

BUDGET = 2 << 20  # bytes: what the allocator may keep; a leak of 3 bytes per prediction exceeds it
ROUND = 1000  # predictions
N_FEATURES, N_LABELS = 300, 50
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def resident():
    """Return the memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return random_array((ROUND, N_FEATURES), density=0.03, format="csr", rng=rng, dtype=np.float32)


@pytest.fixture
def model(rows):
    settings = {
        "trellises": Trellises(n_trellises=2, epochs=1),
        "views": Views(n_views=1, cluster_size=10),
        "memory": Memory(n_rows=500),
    }
    model = LTLSClassifier(**settings, prototypes=True, neighbours=True, random_state=0)
    return model.fit(rows, np.arange(ROUND) % N_LABELS)


def predict_single_rows(model, rows, folder):
    predictor = model.predictor(k=3)
    for row in range(ROUND):
        part = slice(rows.indptr[row], rows.indptr[row + 1])
        predictor(rows.indices[part], rows.data[part])


def predict_batches(model, rows, folder):
    model.predict_topk(rows, 5)


def predict_with_any_k(model, rows, folder):
    """Trellises alone search with memory that depends on k."""
    if not hasattr(model, "trellises_alone"):
        alone = LTLSClassifier(label_weights=False, random_state=0).set_params(trellises__epochs=1)
        model.trellises_alone = alone.fit(rows, np.arange(ROUND) % 500), itertools.count(1)
    alone, numbers = model.trellises_alone
    for k in itertools.islice(numbers, 20):
        alone.predict_topk(rows[:2], k)


def explain(model, rows, folder):
    for row in range(20):
        model.explain(rows[[row]], k=2)


def load_and_predict(model, rows, folder):
    if not (folder / "model.ltls").exists():
        model.save(folder / "model.ltls")
    for first in range(0, ROUND, 100):
        load(folder / "model.ltls").predict(rows[first : first + 100])


def read_and_predict(model, rows, folder):
    path = folder / "rows.svm"
    if not path.exists():
        path.write_text("".join(f"{i % N_LABELS} {i % N_FEATURES}:1\n" for i in range(ROUND)))
    model.predict(read(path, "svmlight", n_features=N_FEATURES).X)


def train_and_predict(model, rows, folder):
    for first in range(0, ROUND, 100):
        some = slice(first, first + 100)
        model.partial_fit(rows[some], np.arange(100) % N_LABELS)
        model.predict(rows[some])


WORKS = [
    predict_single_rows,
    predict_batches,
    predict_with_any_k,
    explain,
    load_and_predict,
    read_and_predict,
    train_and_predict,
]


@pytest.mark.parametrize(
    "n_rounds", [10, pytest.param(200, marks=pytest.mark.long)], ids=["short", "long"]
)
@pytest.mark.parametrize("work", WORKS)
def test_memory_does_not_grow(tmp_path, record_property, model, rows, work, n_rounds):
    for _ in range(5):
        work(model, rows, tmp_path)
    before = resident()
    for _ in range(n_rounds):
        work(model, rows, tmp_path)
    growth = resident() - before
    record_property("predictions", n_rounds * ROUND)
    record_property("bytes", growth)
    assert growth <= BUDGET
