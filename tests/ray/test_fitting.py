"""Training on Ray: the same bytes for the same seed, whatever happens to the workers."""

import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs ray: run make test-all")

import pyarrow as pa
import pyarrow.parquet
from ray_workers import clusters_of_rows, dense, killing, workers
from scipy.sparse import csr_array

import ltls.ray
from ltls import LTLSClassifier, TextClassifier
from ltls.io.errors import ColumnError
from ltls.ray import BatchPredictor
from ltls.storage.tensor_file import TensorFile
from ltls.training.checkpoint import _CHECKPOINT

SPARSE = {"label": "label", "features": ["i", "v"], "n_features": 40}
SMALL = {"width": 3, "n_trellises": 2, "epochs": 3, "random_state": 0}


def saved(model, tmp_path, name="model"):
    model.save(tmp_path / name)
    return (tmp_path / name).read_bytes()


def test_workers_with_a_trellis_each_are_one_worker(dataset, tmp_path):
    """Trellises do not talk to each other: the split changes nothing."""
    table, _ = clusters_of_rows(700)
    files = []
    for n_workers, n_blocks in [(1, 1), (5, 4)]:
        model = LTLSClassifier(**{**SMALL, "n_trellises": 5})
        ltls.ray.fit(model, dataset(table, n_blocks), n_workers=n_workers, **SPARSE)
        files.append(saved(model, tmp_path))
    assert files[0] == files[1]


def test_one_worker_is_a_local_fit(dataset):
    """Without shuffling, one worker makes the steps of `fit`: the same plan, rows and choices."""
    table, labels = clusters_of_rows(1300, n_labels=70)
    parameters = {"shuffle": False, "epochs": 2, "bucket_size": 2, "random_state": 0}
    model = LTLSClassifier(**parameters, density=0.3)
    ltls.ray.fit(model, dataset(table), n_workers=1, **SPARSE)
    X = csr_array(dense(table))
    local = LTLSClassifier(**parameters, density=0.3).fit(X, labels)
    assert np.array_equal(model.coef_, local.coef_)
    assert model.model_.density == local.model_.density == 0.3
    assert np.array_equal(model.model_.reservoir.keys, local.model_.reservoir.keys)
    assert np.array_equal(model.model_.reservoir.values, local.model_.reservoir.values)
    # Label weights see the held-out rows last.
    assert model.score(X, labels) == pytest.approx(local.score(X, labels), abs=0.003)
    found, expected = model.predict_proba(X), local.predict_proba(X)
    assert np.abs(found - expected).mean() < 0.002


def test_averaging(dataset, tmp_path):
    """Two shards end near one, twice with the same bytes; the model needs no Ray."""
    table, labels = clusters_of_rows(1500)
    test, test_labels = clusters_of_rows(600, seed=1)
    parameters = {**SMALL, "label_weights": True}
    files = []
    for _ in range(2):
        model = LTLSClassifier(**parameters)
        result = ltls.ray.fit(model, dataset(table), n_workers=2, split="rows", **SPARSE)
        assert result is model
        files.append(saved(model, tmp_path))
    assert files[0] == files[1]
    local = LTLSClassifier(**parameters).fit(dense(table), labels)
    X = dense(test)
    assert model.score(X, test_labels) > local.score(X, test_labels) - 0.03
    assert local.score(X, test_labels) > 0.9
    assert model.classes_.tolist() == local.classes_.tolist()
    assert model.partial_fit(X, test_labels).n_features_in_ == 40


def test_killed_workers_change_nothing(dataset, tmp_path):
    table, _ = clusters_of_rows(4000)
    parameters = {**SMALL, "epochs": 5, "label_weights": True}

    def fitted():
        model = LTLSClassifier(**parameters)
        ltls.ray.fit(model, dataset(table), n_workers=2, split="rows", **SPARSE)
        return saved(model, tmp_path)

    undisturbed = fitted()
    with killing([0, 0.1, 0.2], "ray::train", "ray::reduce", "ray::candidates") as killed:
        for _ in range(20):  # a fit may be over before a worker of it is found
            assert fitted() == undisturbed
            if killed:
                break
    assert killed


def test_the_driver_is_killed_and_resumes(cluster, dataset, command, tmp_path):
    """A command that dies after an epoch leaves a checkpoint, from which another one goes on."""
    table, _ = clusters_of_rows(600)
    rows, model, file = (tmp_path / name for name in ("rows.parquet", "m.ltls", "fit.checkpoint"))
    pa.parquet.write_table(table, rows)
    parameters = {**SMALL, "epochs": 60}
    whole = LTLSClassifier(**parameters)
    ltls.ray.fit(whole, dataset(table), n_workers=2, **SPARSE)
    words = ["train", rows, "--label", "label", "--features", "i,v", "-o", model, "-q"]
    words += ["--width", 3, "--n-trellises", 2, "--epochs", 60, "--random-state", 0]
    words += ["--ray", cluster.get_runtime_context().gcs_address, "--checkpoint", file]
    driver = subprocess.Popen([sys.executable, "-m", "ltls", *map(str, words)])
    deadline = time.monotonic() + 60
    while not file.exists() and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    driver.kill()
    assert driver.wait() == -9
    assert not model.exists()
    n_done = len(TensorFile(file, _CHECKPOINT).description["losses"])
    assert 1 <= n_done < 60
    done = command(*words, "--resume", "--workers", 3)
    assert (done.code, "n_workers=2, got 3" in done.err) == (2, True)
    done = command(*words, "--resume")
    assert done.code == 0, done.err
    resumed = ltls.load(model)
    whole.save(tmp_path / "whole.ltls")
    assert np.array_equal(resumed.coef_, ltls.load(tmp_path / "whole.ltls").coef_)
    assert resumed.n_iter_ == 60
    assert not file.exists()
    scored = BatchPredictor(model, k=1)(table)  # the model has recorded its columns
    assert scored["labels"].to_pylist() == [[name] for name in whole.predict(dense(table))]


def test_bad_commands(cluster, command, tmp_path):
    (tmp_path / "rows.csv").write_text("x,label\n1,a\n2,b\n")
    pa.parquet.write_table(pa.table({"x": [1.0, 2.0], "label": ["a", "b"]}), tmp_path / "r.parquet")
    columns = ["--label", "label", "--features", "x", "-o", tmp_path / "m.ltls"]
    for file, options, text in [
        ("rows.csv", ["--ray", "auto"], "--ray reads Parquet files, "),
        ("r.parquet", ["--ray", "auto", "--stream"], "--stream is not for --ray"),
        ("r.parquet", ["--ray", "auto", "--skip-bad-rows"], "--skip-bad-rows is not for --ray"),
        ("r.parquet", ["--ray", "auto", "--features", "y"], "no column 'y'"),
    ]:
        done = command("train", tmp_path / file, *columns, *options)
        assert done.code == 2
        assert text in done.err
    assert not (tmp_path / "m.ltls").exists()


def test_texts_and_several_labels(dataset):
    words = ["ant bee", "bee cat", "cat dog", "dog ant"] * 30
    rows = pa.table({"body": words, "tags": [text.split() for text in words]})
    model = TextClassifier(random_state=0, epochs=8)
    ltls.ray.fit(model, dataset(rows), label="tags", text="body", n_workers=2)
    assert model.multilabel_
    found = model.predict(["bee cat", "dog ant"])
    named = [set(model.classes_[found[[i]].indices]) for i in range(2)]
    assert named == [{"bee", "cat"}, {"ant", "dog"}]


def test_empty_shards_and_labels_of_one_shard(dataset):
    """Three rows for four workers; each label is known to one of them only."""
    rows = pa.table({"x": [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]], "label": [5, 7, 9]})
    model = LTLSClassifier(epochs=20, random_state=0, n_trellises=1, replay_size=0)
    ltls.ray.fit(model, dataset(rows, 1), label="label", features="x", n_workers=4, split="rows")
    assert model.model_.reservoir is None
    assert model.predict(np.eye(3)).tolist() == [5, 7, 9]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"label": "tag"}, ColumnError, "no column 'tag', only 'id', 'i', 'v', 'label'"),
        ({"features": "x"}, ColumnError, "no column 'x'"),
        ({"features": None}, ValueError, "either features or text must name columns"),
        ({"n_workers": 0}, ValueError, "n_workers must be at least 1, got 0"),
        ({"split": "labels"}, ValueError, 'split must be "auto", "rows" or "trellises"'),
        ({"sync_rows": 0}, ValueError, "sync_rows must be at least 1"),
        ({"n_features": 3}, ValueError, "n_features must be at least 40, got 3"),
        ({"features": None, "text": "label"}, ValueError, "LTLSClassifier takes features"),
    ],
)
def test_bad_arguments(dataset, change, error, text):
    table, _ = clusters_of_rows(50)
    model = LTLSClassifier()
    with pytest.raises(error, match=text):
        ltls.ray.fit(model, dataset(table, 1), **{**SPARSE, **change})
    assert not hasattr(model, "model_")


def test_bad_rows(dataset):
    model = LTLSClassifier()
    options = {"label": "label", "features": "x"}
    for rows, text in [
        ({"x": [[1.0], [2.0]], "label": ["a", None]}, "'label' must not have nulls, row 1 is null"),
        ({"x": [[1.0], [2.0, 3.0]], "label": ["a", "b"]}, "'x' must have one length"),
        ({"x": [[1.0], [2.0]], "label": ["a", "a"]}, "at least 2 different labels, got 1"),
    ]:
        with pytest.raises(ValueError, match=text):
            ltls.ray.fit(model, dataset(pa.table(rows), 1), **options)
    for parameters, text in [
        ({"assignment": "ranking"}, "needs one machine"),
        ({"average": True}, "average=True"),
        ({"n_jobs": -1}, "n_jobs must be at least 1 on a cluster"),
        ({"embedding_dim": 8}, "embedding_dim=8 needs all rows in memory"),
        ({"standardize": True}, "standardize=True needs one machine"),
    ]:
        with pytest.raises(ValueError, match=text):
            ltls.ray.fit(LTLSClassifier(**parameters), dataset(pa.table(rows), 1), **options)


def test_nothing_is_left_behind(cluster):
    """After all tests above: no task runs, and every CPU is free again."""

    def busy():
        tasks = workers("ray::train", "ray::reduce", "ray::candidates", "ray::_other")
        return tasks, 2 - cluster.available_resources().get("CPU", 0)

    deadline = time.monotonic() + 60
    while busy() != ([], 0) and time.monotonic() < deadline:  # Ray gives CPUs back after a while
        time.sleep(0.1)
    assert busy() == ([], 0)
