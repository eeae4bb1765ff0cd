"""A model file that is replaced is loaded again, and no request is lost by it."""

import os
import threading

import numpy as np
import pytest
from serving import eventually, in_thread

from ltls import LTLSClassifier, ModelFileError, load
from ltls.serve import Settings
from ltls.settings import Trellises
from ltls.storage.model_file import MODEL
from ltls.storage.tensor_file import TensorFile, write

pytest.importorskip("prometheus_client", reason="needs prometheus_client: run make test-all")
from ltls.serve.models import ModelStore
from ltls.serve.monitoring import Metrics

X = np.eye(8, dtype=np.float32)


def save(path, prefix):
    labels = [f"{prefix}{i}" for i in range(8)]
    LTLSClassifier(random_state=0).fit(X, labels).save(path)


def test_requests_are_answered_while_a_model_is_replaced(tmp_path):
    path = tmp_path / "model.ltls"
    save(path, "old")
    seen, stop = [], threading.Event()
    with in_thread(Settings(models={"model": path}, reload=0.02)) as server:
        before = server.ask("GET", "/v2/models/model").json["versions"]

        def ask():
            while not stop.is_set():
                answer = server.predict(rows=[[1] + [0] * 7])
                seen.append((answer.status, answer.json["predictions"][0]["labels"][0][:3]))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: len(seen) > 5)
        for prefix in ("new", "one", "two"):
            save(path, prefix)
            assert eventually(lambda prefix=prefix: seen[-1] == (200, prefix))
        stop.set()
        for thread in threads:
            thread.join()
        assert server.ask("GET", "/v2/models/model").json["versions"] > before
    assert {status for status, _ in seen} == {200}
    assert {prefix for _, prefix in seen} == {"old", "new", "one", "two"}


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "model.ltls"
    save(path, "old")
    metrics = Metrics()
    store = ModelStore({"model": path}, True, metrics)
    store.load()
    return store, path, metrics


def test_a_damaged_file_is_not_taken(store):
    store, path, metrics = store
    served = store.get("model")
    other = path.with_suffix(".tmp")
    other.write_bytes(path.read_bytes()[:-10])
    os.replace(other, path)
    store.reload()
    assert store.get("model") is served
    assert b'outcome="error"} 1.0' in metrics.text()
    store.reload()  # it is tried once
    assert b'outcome="error"} 1.0' in metrics.text()
    save(path, "new")
    store.reload()
    assert store.get("model").estimator.classes_[0] == "new0"


def test_a_model_whose_scores_overflow_is_not_taken(store):
    store, path, metrics = store
    served = store.get("model")
    trellises = Trellises(dtype="float32", density=1.0)
    LTLSClassifier(trellises=trellises, random_state=0).fit(X, [*"abcdefgh"]).save(path)
    file = TensorFile(path, MODEL)
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    tensors["parts.trellises.weights.values"][:] = 3e38
    write(path, MODEL, file.description, tensors)
    load(path, verify=True).predict(np.zeros_like(X))  # rows without features are answered
    store.reload()
    assert store.get("model") is served
    assert b'outcome="error"} 1.0' in metrics.text()


@pytest.mark.parametrize("place", ["load", "warm_up"])
@pytest.mark.parametrize(
    "error", [KeyError("x"), RecursionError(), MemoryError(), AssertionError()]
)
def test_no_error_ends_reloading(store, monkeypatch, place, error):
    from ltls.serve import models

    def fail(*_, **__):
        raise error

    store, path, metrics = store
    store.watch(0.01)
    with monkeypatch.context() as patch:
        patch.setattr(models if place == "load" else models.ServedModel, place, fail)
        save(path, "bad")
        assert eventually(lambda: b'outcome="error"} 1.0' in metrics.text())
    save(path, "new")
    assert eventually(lambda: store.get("model").estimator.classes_[0] == "new0")
    store.close()


def test_a_request_has_one_thread_whatever_the_model_was_trained_with(tmp_path):
    path = tmp_path / "model.ltls"
    LTLSClassifier(n_jobs=2).fit(np.eye(4), list("abcd")).save(path)
    store = ModelStore({"model": path}, True, Metrics())
    store.load()
    assert store.get(None).estimator.n_jobs is None


def test_a_file_that_is_removed_stays_loaded(store):
    store, path, metrics = store
    served = store.get("model")
    path.unlink()
    for _ in range(3):  # it is missed once
        store.reload()
        assert b'outcome="error"} 1.0' in metrics.text()
    assert store.get("model") is served
    assert served.best([{"indices": [3], "values": [1.0]}], 1)[0][0, 0] == "old3"


def test_a_file_that_is_not_replaced_is_not_loaded_again(store):
    store, _, _ = store
    served = store.get("model")
    store.reload()
    assert store.get("model") is served


def test_a_bad_file_stops_the_server_at_the_start(tmp_path):
    path = tmp_path / "model.ltls"
    path.write_bytes(b"no model")
    with pytest.raises(ModelFileError):
        ModelStore({"model": path}, True, Metrics()).load()
