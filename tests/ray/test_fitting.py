"""Training on Ray: the bytes of `fit`, whoever does the work, and whatever happens to them."""

import functools
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs ray: run make test-all")

import pyarrow as pa
import pyarrow.parquet
from ray_workers import clusters_of_rows, dense, killing, workers
from scipy.sparse import csr_array

import ltls.ray
from ltls import LTLSClassifier, TableClassifier, TextClassifier
from ltls.io.errors import ColumnError
from ltls.ray import BatchPredictor, chunks
from ltls.ray.cluster import Tasks
from ltls.ray.workers import ClusterWorkers, shards_of
from ltls.settings import Table, Trellises
from ltls.storage.tensor_file import TensorFile
from ltls.training.checkpoint import _CHECKPOINT
from ltls.training.progress import TrainingInterruptedWarning

SPARSE = {"label": "label", "features": ["i", "v"], "n_features": 40}
TASKS = ("ray::train_trellises", "ray::train_shard", "ray::read", "ray::encode")


def small(**given):
    return LTLSClassifier(
        trellises=Trellises(width=3, n_trellises=2, epochs=given.pop("epochs", 3)),
        **{"random_state": 0, **given},
    )


def saved(model, tmp_path, name="model"):
    model.save(tmp_path / name)
    return (tmp_path / name).read_bytes()


def sparse_rows(n_rows=1300, n_labels=70):
    table, labels = clusters_of_rows(n_rows, n_labels)
    return table, csr_array(dense(table)), labels


def test_every_phase_is_shown_and_a_budget_is_checked_before_training(dataset, capsys):
    texts = [f"word{i % 50} word{i % 7}" for i in range(300)]
    rows = dataset(pa.table({"body": texts, "tag": [f"label {i % 50}" for i in range(300)]}))
    given = {"label": "tag", "text": "body", "n_workers": 1}
    ltls.ray.fit(TextClassifier(random_state=0, verbose=1), rows, **given)
    phases = [line.partition("  ")[0] for line in capsys.readouterr().err.splitlines()]
    first = ["reading rows", "features", "features of all rows", "counting rows and labels"]
    assert [each for each in phases if each in first] == first
    with pytest.raises(ValueError, match="size_budget of 100 bytes is too small"):
        ltls.ray.fit(TextClassifier(size_budget=100, verbose=1), rows, **given)
    assert "epoch" not in capsys.readouterr().err


# One chunk: the result is that of `fit`


def views():
    """Views of clusters, class weights and propensities."""
    table, X, y = sparse_rows()
    given = {"class_weight": "balanced", "propensity": True, "n_jobs": 2}
    return lambda: LTLSClassifier(random_state=0, **given), X, y, table, SPARSE


def early_stopping():
    table, X, y = sparse_rows()
    given = {"validation_fraction": 0.2, "class_weight": {"label 3": 2.0}, "memory": False}
    return lambda: LTLSClassifier(random_state=0, **given), X, y, table, SPARSE


def several_labels():
    """Classifiers of all labels in one cluster, neighbours, prototypes, threshold, a budget."""
    table, X, y = sparse_rows()
    y = [sorted({label, y[7 * row % len(y)]}) for row, label in enumerate(y)]
    table = table.set_column(3, "label", pa.array(y))
    given = {"neighbours": True, "prototypes": True, "size_budget": "100KB"}
    return lambda: LTLSClassifier(random_state=0, **given), X, y, table, SPARSE


def ranking():
    """Labels get their paths while they are trained on, and weights are averaged."""
    table, X, y = sparse_rows(600)
    given = Trellises(assignment="ranking", average=True, n_trellises=3, l1=0.01, shuffle=False)
    return lambda: LTLSClassifier(trellises=given, random_state=0), X, y, table, SPARSE


def learned():
    """Labels move to other paths between epochs."""
    table, X, y = sparse_rows(600)
    given = Trellises(assignment="learned", n_trellises=2, width=4)
    return lambda: LTLSClassifier(trellises=given, random_state=0), X, y, table, SPARSE


def dense_vectors():
    """Standardized features, and a trellis as wide as there are labels."""
    table, _, y = sparse_rows(600, 20)
    X = dense(table) * np.linspace(1, 1000, 40, dtype=np.float32) + 1000
    rows = pa.table({"x": list(X), "y": [int(label.split()[1]) for label in y]})
    y = rows["y"].to_numpy()
    return lambda: LTLSClassifier(random_state=0), X, y, rows, {"label": "y", "features": "x"}


def label_matrix():
    """A vector for every label."""
    table, _, y = sparse_rows(1300, 150)
    rows = pa.table({"x": list(dense(table)), "y": y})
    make = functools.partial(LTLSClassifier, random_state=0)
    return make, dense(table), y, rows, {"label": "y", "features": "x"}


def words_of(y):
    rng = np.random.default_rng(0)
    first = [int(label.split()[1]) * 3 for label in y]
    return [" ".join(f"word{at + each}" for each in rng.integers(6, size=6)) for at in first]


def texts():
    _, _, y = sparse_rows()
    given = words_of(y)
    rows = pa.table({"body": given, "tag": y})
    return lambda: TextClassifier(random_state=0), given, y, rows, {"label": "tag", "text": "body"}


def table_rows():
    _, _, y = sparse_rows(700)
    given = [
        {"body": text, "n": None if row % 5 == 0 else row % 7, "kind": "abc"[row % 3]}
        for row, text in enumerate(words_of(y))
    ]
    rows = pa.Table.from_pylist([{**row, "tag": tag} for row, tag in zip(given, y, strict=True)])
    columns = Table(text="body", number="n", category="kind")
    return (
        lambda: TableClassifier(features=columns, random_state=0), given, y, rows, {"label": "tag"}
    )  # fmt: skip


def texts_and_vectors():
    """A label matrix beside views; a vector is missing."""
    table, _, y = sparse_rows()
    vectors = [None, *dense(table)[1:].tolist()]
    given = [{"body": text, "v": v} for text, v in zip(words_of(y), vectors, strict=True)]
    kind = pa.list_(pa.float16(), 40)
    rows = pa.table({"body": words_of(y), "v": pa.array(vectors, kind), "tag": y})
    for row, vector in zip(given, rows["v"].to_pylist(), strict=True):
        row["v"] = vector  # rounded
    columns = Table(text="body", vectors="v", char_ngram_range=None)
    make = functools.partial(TableClassifier, features=columns, random_state=0)
    return make, given, y, rows, {"label": "tag"}


@pytest.mark.parametrize(
    "problem",
    [views, early_stopping, several_labels, ranking, learned, dense_vectors, label_matrix, texts,
     table_rows, texts_and_vectors],
)  # fmt: skip
def test_any_number_of_workers_is_fit(dataset, tmp_path, problem):
    make, X, y, table, options = problem()
    expected = saved(make().fit(X, y), tmp_path)
    for n_workers, n_blocks in [(1, 1), (3, 4)]:
        model = make()
        assert (
            ltls.ray.fit(model, dataset(table, n_blocks), n_workers=n_workers, **options) is model
        )
        assert saved(model, tmp_path) == expected
    assert model.n_features_in_ == model.fit(X, y).n_features_in_


# Several chunks


def test_several_chunks_are_batches_of_a_stream(dataset, tmp_path, monkeypatch):
    """Trellises are those of `fit_stream`; label weights see all rows of their cluster at once."""
    table, X, y = sparse_rows(1500)
    test, test_y = clusters_of_rows(600, 70, seed=1)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 400)  # four chunks of 375
    batches = [(X[first : first + 375], y[first : first + 375]) for first in range(0, 1500, 375)]
    local = LTLSClassifier(random_state=0).fit_stream(batches)
    files = []
    for n_workers, n_blocks in [(1, 1), (3, 5)]:
        model = LTLSClassifier(random_state=0)
        ltls.ray.fit(model, dataset(table, n_blocks), n_workers=n_workers, **SPARSE)
        files.append(saved(model, tmp_path))
    assert files[0] == files[1]
    np.testing.assert_array_equal(model.coef_, local.coef_)
    assert model.loss_curve_ == local.loss_curve_
    whole = LTLSClassifier(random_state=0).fit(X, y).score(dense(test), test_y)
    assert whole > 0.9
    assert model.score(dense(test), test_y) > whole - 0.02
    assert model.partial_fit(dense(test), test_y).n_features_in_ == 40


@pytest.mark.parametrize("n_shards", [1, 2, 3, 8, 200])
def test_shards_have_every_cluster_once(n_shards):
    rng = np.random.default_rng(n_shards)
    counts = rng.integers(1, 50, size=60)
    clusters = []
    for n in (7, 12):
        sizes = np.bincount(rng.integers(n, size=60), minlength=n)
        sizes[0], sizes[1] = sizes[0] + sizes[1], 0  # an empty cluster
        clusters.append((np.concatenate([[0], np.cumsum(sizes)]), rng.permutation(60)))
    shards = shards_of(clusters, counts, n_shards)
    assert 1 <= len(shards) <= n_shards

    def lists(ptr, labels):
        return [labels[a:b].tolist() for a, b in pairwise(ptr)]

    for number, whole in enumerate(clusters):
        assert [each for shard in shards for each in lists(*shard[number])] == lists(*whole)
    work = [
        sum(counts[each].sum() * len(each) for own in shard for each in lists(*own) if each)
        for shard in shards
    ]
    largest = max(counts[each].sum() * len(each) for own in clusters for each in lists(*own))
    assert max(work) <= sum(work) / n_shards + largest


# Faults


def test_killed_workers_change_nothing(dataset, tmp_path):
    table, _, _ = sparse_rows(4000)

    def fitted():
        model = LTLSClassifier(random_state=0)
        ltls.ray.fit(model, dataset(table), n_workers=2, **SPARSE)
        return saved(model, tmp_path)

    undisturbed = fitted()
    with killing([0, 0.1, 0.2], *TASKS) as killed:
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
    whole = small(epochs=60)
    ltls.ray.fit(whole, dataset(table), n_workers=2, **SPARSE)
    words = ["train", rows, "--label", "label", "--features", "i,v", "-o", model, "-q"]
    words += ["--width", 3, "--set", "trellises.n_trellises=2", "--epochs", 60]
    words += ["--ray", cluster.get_runtime_context().gcs_address, "--checkpoint", file]
    driver = subprocess.Popen(
        [sys.executable, "-m", "ltls", *map(str, words), "--random-state", "0"]
    )
    deadline = time.monotonic() + 60
    while not file.exists() and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    driver.kill()
    assert driver.wait() == -9
    assert not model.exists()
    n_done = len(TensorFile(file, _CHECKPOINT).description["losses"])
    assert 1 <= n_done < 60
    done = command(*words, "--resume", "--random-state", 1)
    assert (done.code, "random_state=0, got 1" in done.err) == (2, True)
    done = command(*words, "--resume", "--random-state", 0, "--workers", 1)
    assert done.code == 0, done.err
    resumed = ltls.load(model)
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    assert resumed.n_iter_ == 60
    assert not file.exists()
    scored = BatchPredictor(model, k=1)(table)  # the model has recorded its columns
    assert scored["labels"].to_pylist() == [[name] for name in whole.predict(dense(table))]


def test_an_interrupted_epoch_is_left_out(dataset, monkeypatch):
    table, _ = clusters_of_rows(300)
    run_epoch = ClusterWorkers.run_epoch

    def interrupted(self, training, *others):
        if training.weights.epochs == 2:
            raise KeyboardInterrupt
        return run_epoch(self, training, *others)

    monkeypatch.setattr(ClusterWorkers, "run_epoch", interrupted)
    model = small(epochs=5)
    with pytest.warns(TrainingInterruptedWarning):
        ltls.ray.fit(model, dataset(table), **SPARSE)
    two = ltls.ray.fit(small(epochs=2), dataset(table), **SPARSE)
    assert model.n_iter_ == 2
    np.testing.assert_array_equal(model.coef_, two.coef_)


def test_an_error_ends_the_other_tasks(cluster):
    def wait_or_fail(seconds):
        for _ in range(seconds):
            time.sleep(0.1)
        if seconds == 1:
            raise ValueError("a bad row")
        return None, None

    start = time.monotonic()
    with pytest.raises(ValueError, match="a bad row"):
        Tasks(2, n_cpus=0).map(wait_or_fail, [(6000,), (1,)])
    while workers("ray::wait_or_fail") and time.monotonic() < start + 60:
        time.sleep(0.1)
    assert not workers("ray::wait_or_fail")


# Arguments


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"label": "tag"}, ColumnError, "no column 'tag', only 'id', 'i', 'v', 'label'"),
        ({"features": "x"}, ColumnError, "no column 'x'"),
        ({"features": None}, ValueError, "takes features: name their columns with features="),
        ({"features": None, "text": "label"}, ValueError, "takes features"),
        ({"n_workers": 0}, ValueError, "n_workers must be at least 1, got 0"),
        ({"n_features": 3}, ValueError, "must be from 0 to 2, got "),
    ],
)
def test_bad_arguments(dataset, change, error, text):
    table, _ = clusters_of_rows(50)
    model = LTLSClassifier()
    with pytest.raises(error, match=text):
        ltls.ray.fit(model, dataset(table, 1), **{**SPARSE, **change})
    assert not hasattr(model, "fitted_")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"x": [[1.0], [2.0]], "y": ["a", None]}, "'y' must not have nulls, row 1 is null"),
        ({"x": [[1.0], [2.0, 3.0]], "y": ["a", "b"]}, "'x' must have the same length"),
        ({"x": [[1.0], [np.nan]], "y": ["a", "b"]}, "NaN"),
        ({"x": [[1.0], [2.0]], "y": ["a", "a"]}, "at least 2 classes, got 1"),
    ],
)
def test_bad_rows(dataset, rows, text):
    with pytest.raises(ValueError, match=text):
        ltls.ray.fit(LTLSClassifier(), dataset(pa.table(rows), 1), label="y", features="x")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ([np.inf, 0.0], "infinity"),
        ([1e20, 0.0], "at most 1e"),
        ([1.0], "same length"),
        ([1.0, None], "null|NaN"),
        (None, "must not have nulls"),
    ],
)
def test_a_hostile_row_in_one_of_several_shards(dataset, cell, text):
    """It is an error of ours, the estimator stays as it was, and the cluster goes on."""
    good = [{"x": [float(n % 3 == i) for i in range(2)], "y": f"{n % 3}"} for n in range(300)]
    bad = [{**row, "x": cell} if n == 250 else row for n, row in enumerate(good)]
    options = {"label": "y", "features": "x", "n_workers": 2}
    model = small(epochs=1)
    ltls.ray.fit(model, dataset(pa.Table.from_pylist(good), 4), **options)
    before = model.fitted_
    with pytest.raises(ValueError, match=text):
        ltls.ray.fit(model, dataset(pa.Table.from_pylist(bad), 4), **options)
    assert model.fitted_ is before
    ltls.ray.fit(model, dataset(pa.Table.from_pylist(good), 4), **options)


def test_other_bad_input(cluster, dataset):
    rows = pa.table({"x": [[1.0], [2.0]], "y": ["a", "b"]})
    options = {"label": "y", "features": "x"}
    for model, text in [
        (LTLSClassifier(n_jobs=-1), "n_jobs must be at least 1 on a cluster"),
        (LTLSClassifier(class_weight={"c": 1.0}), "labels that occur in y, got 'c'"),
        (LTLSClassifier(trellises=Trellises(width=1)), "'width' parameter"),
        (TextClassifier(), "the model takes texts: name their column with text="),
        (LTLSClassifier(features=Table(text="x")), "takes the columns x: do not name others"),
    ]:
        with pytest.raises(ValueError, match=text):
            ltls.ray.fit(model, dataset(rows, 1), **options)
    with pytest.raises(ValueError, match="dataset must have at least one row"):
        ltls.ray.fit(LTLSClassifier(), cluster.data.from_items([]), **options)


def test_bad_commands(cluster, command, tmp_path):
    (tmp_path / "rows.csv").write_text("x,label\n1,a\n2,b\n")
    pa.parquet.write_table(pa.table({"x": [1.0, 2.0], "label": ["a", "b"]}), tmp_path / "r.parquet")
    columns = ["--label", "label", "--features", "x", "-o", tmp_path / "m.ltls"]
    for file, options, text in [
        ("rows.csv", ["--ray", "auto"], "--ray reads Parquet files, "),
        ("r.parquet", ["--ray", "auto", "--stream"], "--stream cannot be used with --ray"),
        (
            "r.parquet",
            ["--ray", "auto", "--skip-bad-rows"],
            "--skip-bad-rows cannot be used with --ray",
        ),
        ("r.parquet", ["--ray", "auto", "--features", "y"], "no column 'y'"),
    ]:
        done = command("train", tmp_path / file, *columns, *options)
        assert done.code == 2
        assert text in done.err
    assert not (tmp_path / "m.ltls").exists()


def test_tables_at_the_terminal(cluster, command, tmp_path):
    """Numbers and categories are trained on and scored; labels are texts, as in every format."""
    rows = pa.table(
        {"n": [1.0, 2.0, 8.0, 9.0] * 9, "kind": list("aabb") * 9, "y": [1, 1, 2, 2] * 9}
    )
    pa.parquet.write_table(rows, tmp_path / "rows.parquet")
    model, address = tmp_path / "m.ltls", ["--ray", "auto", "-q"]
    words = ["--number", "n", "--category", "kind", "--label", "y", "-o", model]
    done = command("train", tmp_path / "rows.parquet", *words, *address)
    assert done.code == 0, done.err
    scored = ["-o", tmp_path / "out", "-k", 1]
    done = command("predict", model, tmp_path / "rows.parquet", *scored, *address)
    assert done.code == 0, done.err
    found = pa.parquet.read_table(tmp_path / "out").to_pylist()
    assert len(found) == 36
    assert all(row["labels"] == [str(row["y"])] for row in found)


def test_nothing_is_left_behind(cluster):
    """After all tests above: no task runs, and every CPU is free again."""

    def busy():
        return workers(*TASKS), 2 - cluster.available_resources().get("CPU", 0)

    deadline = time.monotonic() + 60
    while busy() != ([], 0) and time.monotonic() < deadline:  # Ray gives CPUs back after a while
        time.sleep(0.1)
    assert busy() == ([], 0)
