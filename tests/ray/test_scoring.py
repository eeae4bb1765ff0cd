"""Scoring on Ray: every row once, whatever happens to the workers, and clear errors."""

import time

import numpy as np
import pytest

ray = pytest.importorskip("ray", reason="needs ray: run make test-all")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from ray_workers import clusters_of_rows, dense, killing, workers  # noqa: E402
from toy_part import Toy, ToyPart  # noqa: E402

import ltls.ray  # noqa: E402
from ltls import LTLSClassifier, TextClassifier  # noqa: E402
from ltls.io.errors import ColumnError  # noqa: E402
from ltls.parts.base import PARTS  # noqa: E402
from ltls.ray import cluster as cluster_module  # noqa: E402
from ltls.ray.cluster import ClusterError, VersionMismatchError  # noqa: E402
from ltls.ray.scoring import BatchPredictor  # noqa: E402
from ltls.settings import Table, Trellises  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A fitted estimator and its file."""
    table, labels = clusters_of_rows(600)
    trellises = Trellises(width=3, n_trellises=2, epochs=3)
    estimator = LTLSClassifier(trellises=trellises, random_state=0)
    estimator.fit(dense(table), labels)
    path = tmp_path_factory.mktemp("model") / "model.ltls"
    estimator.save(path)
    return ltls.load(path), path


def batches(table):
    """The same rows as Ray passes them: Arrow, pandas and NumPy; sparse and dense."""
    sparse = table.select(["id", "i", "v"])
    vectors = pa.table({"id": table["id"], "x": list(dense(table))})
    structs = pa.array(
        [
            {"indices": i, "values": v}
            for i, v in zip(table["i"].to_pylist(), table["v"].to_pylist(), strict=True)
        ]
    )
    numeric = pa.table({f"f{j}": column for j, column in enumerate(dense(table).T)})
    return [
        (sparse, ["i", "v"]),
        (sparse.to_pandas(), ["i", "v"]),
        ({name: sparse[name].to_numpy() for name in sparse.column_names}, ["i", "v"]),
        (vectors, "x"),
        (vectors.to_pandas(), "x"),
        ({"id": table["id"].to_numpy(), "x": dense(table)}, "x"),
        (pa.table({"id": table["id"], "s": structs}), "s"),
        (numeric, numeric.column_names),
    ]


@pytest.mark.parametrize("kind", range(8))
def test_batches_of_every_kind(model, kind):
    estimator, path = model
    table, _ = clusters_of_rows(20, seed=2)
    batch, features = batches(table)[kind]
    result = BatchPredictor(path, features=features, k=3, proba=True)(batch)
    labels, scores = estimator.predict_topk(dense(table), 3)
    assert result["labels"].to_pylist() == labels.tolist()
    np.testing.assert_allclose(result["scores"].to_pylist(), scores, rtol=1e-4, atol=1e-4)
    by_label = estimator.predict_proba(dense(table))
    column = {label: j for j, label in enumerate(estimator.classes_)}
    for row, (names, given) in enumerate(
        zip(result["labels"].to_pylist(), result["probabilities"].to_pylist(), strict=True)
    ):
        np.testing.assert_allclose(given, by_label[row, [column[n] for n in names]], rtol=1e-3)
    assert result.column_names == (["id"] if kind != 7 else []) + [
        "labels", "scores", "probabilities"]  # fmt: skip


@pytest.mark.parametrize("k", [2, 9])
def test_only_some_labels_are_allowed(model, k):
    estimator, path = model
    table, _ = clusters_of_rows(20, seed=2)
    among = estimator.classes_[[5, 1, 3]].tolist()
    predictor = BatchPredictor(path, features=["i", "v"], k=k, proba=True, among=among)
    result = predictor(table.select(["i", "v"]))
    labels, scores = estimator.predict_topk(dense(table), k, among=among)
    assert labels.shape == (20, min(k, 3))
    assert result["labels"].to_pylist() == labels.tolist()
    np.testing.assert_allclose(result["scores"].to_pylist(), scores, rtol=1e-4, atol=1e-4)
    if k > 3:
        np.testing.assert_allclose(np.sum(result["probabilities"].to_pylist(), 1), 1, rtol=1e-4)
    assert predictor(table.select(["i", "v"]).slice(0, 0)).num_rows == 0


def test_texts_thresholds_and_empty_batches(tmp_path):
    texts = ["ant bee", "bee cat", "cat dog", "dog ant"] * 10
    estimator = TextClassifier(trellises=Trellises(epochs=8), random_state=0)
    estimator.fit(texts, [text.split() for text in texts]).save(tmp_path / "m.ltls")
    predictor = BatchPredictor(tmp_path / "m.ltls", text="body", threshold=True, keep=["body"])
    result = predictor(pa.table({"body": ["bee cat", "dog ant"], "other": [1, 2]}))
    assert [sorted(row) for row in result["labels"].to_pylist()] == [["bee", "cat"], ["ant", "dog"]]
    assert result.column_names == ["body", "labels", "scores"]
    empty = predictor(pa.table({"body": pa.array([], pa.string())}))
    assert empty.num_rows == 0
    assert empty.schema.field("labels").type == result.schema.field("labels").type


def test_rows_of_tables(tmp_path):
    rows = [{"n": float(row % 4), "kind": "ab"[row % 2]} for row in range(40)]
    columns = Table(number="n", category="kind")
    estimator = LTLSClassifier(features=columns, random_state=0)
    estimator.fit(rows, [f"{row['n']} {row['kind']}" for row in rows])
    estimator.save(tmp_path / "m.ltls")
    with pytest.raises(ValueError, match="takes the columns n, kind: do not name others"):
        BatchPredictor(tmp_path / "m.ltls", text="kind")
    result = BatchPredictor(tmp_path / "m.ltls", k=1)(pa.Table.from_pylist(rows[:4]))
    assert result.column_names == ["labels", "scores"]
    assert result["labels"].to_pylist() == [["0.0 a"], ["1.0 b"], ["2.0 a"], ["3.0 b"]]


def test_bad_batches(model, tmp_path):
    _, path = model
    with pytest.raises(ValueError, match="takes features: name their columns with features="):
        BatchPredictor(path)
    with pytest.raises(ValueError, match="takes features"):
        BatchPredictor(path, text="body")
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        BatchPredictor(path, features="x", k=0)
    with pytest.raises(ValueError, match="threshold needs a multi-label model"):
        BatchPredictor(path, features="x", threshold=True)
    with pytest.raises(
        ValueError, match="among must contain only labels in classes_, got 'unknown'"
    ):
        BatchPredictor(path, features="x", among=["unknown"])
    with pytest.raises(VersionMismatchError, match=r"this process has 9\.9"):
        BatchPredictor(path, features="x", version="9.9")
    sparse = BatchPredictor(path, features=["i", "v"])
    for rows, text in [
        ({"i": [[40]], "v": [[1.0]]}, "must be from 0 to 39, got 40"),
        ({"i": [[-1]], "v": [[1.0]]}, "must be from 0 to 39, got -1"),
        ({"i": [[1, 2]], "v": [[1.0]]}, "must have the same length"),
        ({"i": [[0.5]], "v": [[1.0]]}, "must be integers"),
        ({"i": [["a"]], "v": [[1.0]]}, "must have numbers"),
        ({"i": [[1]], "v": [None]}, "must not have nulls, row 0 is null"),
        ({"i": [[1]], "v": [[1.0]], "labels": ["x"]}, "'labels' would be overwritten"),
        ({"i": [[1]]}, "no column 'v', only 'i'"),
    ]:
        with pytest.raises(ValueError, match=text):
            sparse(pa.table(rows))
    with pytest.raises(TypeError, match="a batch must be"):
        sparse([1, 2])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for number in range(4):
        table, _ = clusters_of_rows(3000, seed=number)
        ids = np.arange(number * 3000, (number + 1) * 3000)
        pq.write_table(
            table.set_column(0, "id", pa.array(ids)).drop_columns(["label"]),
            folder / f"{number}.parquet",
            row_group_size=500,
        )
    return folder


def test_a_killed_worker_loses_no_row_and_scores_none_twice(cluster, model, files, tmp_path):
    estimator, path = model
    with killing([0.1, 0.3], "ray::MapWorker", "ray::Write", most=2) as killed:
        n_rows = ltls.ray.score_parquet(
            path, files, tmp_path / "out", features=["i", "v"], k=1, concurrency=1
        )
    assert killed
    assert n_rows == 12_000
    result = pq.read_table(tmp_path / "out").sort_by("id")
    assert result["id"].to_pylist() == list(range(12_000))
    expected = estimator.predict(
        np.concatenate([dense(pq.read_table(f)) for f in sorted(files.iterdir())])
    )
    assert [row[0] for row in result["labels"].to_pylist()] == expected.tolist()


def test_a_part_from_outside(cluster, monkeypatch, tmp_path):
    """Actors know the parts that are registered here, if they can import them."""
    monkeypatch.setitem(PARTS, "toy", ToyPart)
    table, labels = clusters_of_rows(300)
    estimator = LTLSClassifier(parts={"toy": Toy(strength=100.0)}, random_state=0)
    estimator.fit(dense(table), labels).save(tmp_path / "m.ltls")
    assert (estimator.predict(dense(table)) != np.array(labels)).mean() > 0.5  # it is heard
    pq.write_table(table, tmp_path / "rows.parquet")
    options = {"features": ["i", "v"], "k": 1}
    ltls.ray.score_parquet(
        tmp_path / "m.ltls", tmp_path / "rows.parquet", tmp_path / "o", **options
    )
    result = pq.read_table(tmp_path / "o").sort_by("id")
    expected = estimator.predict(dense(table)).tolist()
    assert [row[0] for row in result["labels"].to_pylist()] == expected


def test_the_command(cluster, command, model, files, tmp_path):
    estimator, path = model
    out = tmp_path / "out"
    names = sorted(files.iterdir())[:2]
    options = ["--features", "i,v", "-k", "2", "-q"]
    done = command("predict", path, *names, "--ray", "auto", "-o", out, *options)
    assert done.code == 0, done.err
    result = pq.read_table(out)
    assert sorted(result["id"].to_pylist()) == list(range(6000))
    assert {len(row) for row in result["labels"].to_pylist()} == {2}
    allowed = estimator.classes_[[4, 2]].tolist()
    (tmp_path / "allowed.txt").write_text("".join(f"{label}\n" for label in allowed))
    among = ["--among", tmp_path / "allowed.txt", "-o", tmp_path / "among"]
    done = command("predict", path, *names, "--ray", "auto", *options, *among)
    assert done.code == 0, done.err
    result = pq.read_table(tmp_path / "among")
    assert all(sorted(row) == sorted(allowed) for row in result["labels"].to_pylist())
    for arguments, text in [
        ([*names, "--ray", "auto", "-o", out], "the folder is not empty"),
        ([*names, "--ray", "auto"], "--ray needs a folder"),
        (names, "one file can be predicted at a time without --ray, got 2"),
        (["no.parquet", "--ray", "auto", "-o", tmp_path / "new"], "no.parquet"),
        ([*names, "--ray", "auto", "-o", tmp_path / "new", "--features", "i,w"], "no column 'w'"),
        (
            [*names, "--ray", "auto", "-o", tmp_path / "new", "--json"],
            "--json cannot be used with --ray",
        ),
        (
            [*names, "--ray", "auto", "-o", out, "--row-numbers"],
            "--row-numbers cannot be used with --ray",
        ),
    ]:
        done = command("predict", path, *options, *arguments)
        assert done.code == 2
        assert text in done.err
    deadline = time.monotonic() + 60
    while workers("ray::MapWorker") and time.monotonic() < deadline:  # they end after a while
        time.sleep(0.2)
    assert not workers("ray::MapWorker")


def test_errors_of_workers_are_ours(cluster, model, tmp_path):
    _, path = model
    pq.write_table(pa.table({"i": [[1]], "v": [[1.0, 2.0]]}), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match="must have the same length") as caught:
        ltls.ray.score_parquet(path, tmp_path / "bad.parquet", tmp_path / "o", features=["i", "v"])
    assert type(caught.value) is ValueError
    with pytest.raises(ColumnError, match="no column 'x'"):
        ltls.ray.score_parquet(path, tmp_path / "bad.parquet", tmp_path / "o", features="x")


def test_another_version_on_a_node(cluster, monkeypatch):
    monkeypatch.setattr(cluster_module, "__version__", "9.9")
    with pytest.raises(VersionMismatchError, match=r"has ltls .*, this process has 9\.9"):
        cluster_module.check_nodes()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at '127.0.0.1:9'"),
        ("ray://127.0.0.1:9", "no Ray cluster answers at 'ray://127.0.0.1:9'"),
        ("127.0.0.1:port", "must be host:port"),
        ("http://127.0.0.1:9", "must be host:port"),
    ],
)
def test_no_cluster_at_the_address(address, text, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ClusterError, match=text), ltls.ray.connect(address):
        pass
