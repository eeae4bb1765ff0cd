"""Models in MLflow: what is saved predicts the same, also as a function of Spark."""

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

mlflow = pytest.importorskip("mlflow", reason="needs mlflow-skinny: run make test-all")

import pandas as pd  # noqa: E402

import ltls.mlflow  # noqa: E402
from ltls import LTLSClassifier, TableClassifier, TextClassifier  # noqa: E402
from ltls.settings import Table, Trellises  # noqa: E402
from tests.fuzz import model_files  # noqa: E402

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text("utf-8")
[SPARK] = re.findall(r"^```py\n(.*?)^```", PAGE, re.M | re.S)
X = np.eye(4, dtype=np.float32)
TEXTS = ["the card is lost", "lost my card", "what is the fee", "a fee was charged"]
ROWS = pd.DataFrame({"indices": [[0], [2]], "values": [[1.0], [1.0]]})

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def classifier():
    return LTLSClassifier(trellises=Trellises(epochs=20), random_state=0).fit(X, list("abcd"))


@pytest.fixture(scope="module")
def tagger():
    return TextClassifier(random_state=0).fit(TEXTS, ["card", "card", "fee", "fee"])


def test_features(classifier, tmp_path):
    path = tmp_path / "model"
    ltls.mlflow.save_model(classifier, path, features=["indices", "values"], input_example=ROWS)
    assert classifier.fitted_.provenance.columns is None  # the estimator stays as it was
    loaded = mlflow.pyfunc.load_model(str(path))
    labels, scores = ltls.mlflow.load(str(path)).predict_topk(X[[0, 2]], 4)
    result = loaded.predict(ROWS)
    assert result["labels"].tolist() == labels.tolist()
    np.testing.assert_allclose(result["scores"].tolist(), scores, rtol=1e-6)
    best = loaded.predict(ROWS, params={"k": 1, "proba": True})
    assert best["labels"].tolist() == [["a"], ["c"]]
    assert (np.array(best["probabilities"].tolist()) > 0.9).all()
    names = loaded.metadata.signature.inputs.input_names()
    assert names == ["indices", "values"]
    assert loaded.metadata.signature.outputs.input_names() == ["labels", "scores"]
    assert loaded.metadata.load_input_example(str(path)).equals(ROWS)
    assert ltls.mlflow.load(str(path)).predict(X).tolist() == list("abcd")
    with pytest.raises(mlflow.exceptions.MlflowException, match="values"):
        loaded.predict(ROWS[["indices"]])


def test_folders_that_lie_are_refused(classifier, tmp_path):
    path = tmp_path / "model"
    ltls.mlflow.save_model(classifier, path)
    description = (path / "MLmodel").read_text()
    (tmp_path / "other.ltls").write_bytes((path / "data/model.ltls").read_bytes())
    for data in ("../other.ltls", str(tmp_path / "other.ltls"), "..", "none", "[1]", "", "'\\0'"):
        changed = description.replace("data: data/model.ltls\n    ltls", f"data: {data}\n    ltls")
        assert changed != description
        (path / "MLmodel").write_text(changed)
        with pytest.raises((ValueError, OSError)):
            ltls.mlflow.load(str(path))


@pytest.mark.parametrize("seed", range(5))
def test_resealed_model_files_in_folders(classifier, tmp_path, seed):
    path = tmp_path / "model"
    ltls.mlflow.save_model(classifier, path)
    file, n_accepted = path / "data/model.ltls", 0
    for number in range(20):
        rng = np.random.default_rng([seed, number])
        file.write_bytes(model_files.generate(rng, tmp_path)[1])
        try:
            loaded = ltls.mlflow.load(str(path))
        except ltls.ModelFileError as error:
            assert str(file) in str(error)  # noqa: PT017
            continue
        n_accepted += 1
        assert len(loaded.classes_)
        model_files.run(file.read_bytes(), tmp_path / "copy.ltls")
    assert n_accepted < 20


def test_dense_features_and_texts_without_names(classifier, tagger, tmp_path):
    ltls.mlflow.save_model(classifier, tmp_path / "dense")
    dense = mlflow.pyfunc.load_model(str(tmp_path / "dense"))
    for given in (pd.DataFrame(X), X):
        assert [row[0] for row in dense.predict(given)["labels"]] == list("abcd")
    ltls.mlflow.save_model(tagger, tmp_path / "texts")
    texts = mlflow.pyfunc.load_model(str(tmp_path / "texts"))
    for given in (pd.DataFrame({"body": TEXTS[1:3]}), TEXTS[1:3]):
        assert [row[0] for row in texts.predict(given)["labels"]] == ["card", "fee"]
    with pytest.raises(ValueError, match="pass one column, or save the model with text="):
        texts.predict(pd.DataFrame({"a": ["x"], "b": ["y"]}))


def test_log_model(tagger, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/runs")
    with mlflow.start_run():
        info = ltls.mlflow.log_model(tagger, "tickets", text="body")
    assert ltls.mlflow.load(info.model_uri).predict(["lost card"]).tolist() == ["card"]


def test_other_models_are_refused(tmp_path):
    model = mlflow.models.Model()
    model.add_flavor("sklearn", version=1)
    model.save(str(tmp_path / "MLmodel"))
    with pytest.raises(ValueError, match=r"ltls model, got .* with the flavours \['sklearn'\]"):
        ltls.mlflow.load(str(tmp_path))


def test_spark(classifier, tagger, tmp_path, monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="needs pyspark: run make test-all")
    if shutil.which("java") is None:
        pytest.skip("needs Java: apt-get install default-jre-headless")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    spark = (
        sql.SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    try:
        options = {"result_type": "labels array<string>, scores array<float>",
                   "env_manager": "local"}  # fmt: skip
        ltls.mlflow.save_model(tagger, tmp_path / "t", input_example=pd.DataFrame({"body": TEXTS}))
        tag = mlflow.pyfunc.spark_udf(spark, str(tmp_path / "t"), **options)
        rows = spark.createDataFrame([(text,) for text in TEXTS], ["body"])
        found = [row.r.labels[0] for row in rows.select(tag("body").alias("r")).collect()]
        assert found == ["card", "card", "fee", "fee"]
        names = ["indices", "values"]
        ltls.mlflow.save_model(classifier, tmp_path / "model", features=names, input_example=ROWS)
        monkeypatch.chdir(tmp_path)
        rows = spark.createDataFrame([([0], [1.0]), ([3], [1.0])], names)
        page = {"mlflow": mlflow, "spark": spark, "frame": rows}
        exec(compile(SPARK, "cluster.md", "exec"), page)
        found = [row.best.labels for row in page["predictions"].collect()]
        assert found == [["a"], ["d"]]
    finally:
        spark.stop()


def test_mixed_columns(tmp_path):
    rows = pd.DataFrame({"text": TEXTS, "amount": [0.0, np.nan, 9.0, 8.0], "country": list("aabb")})
    columns = Table(text="text", number="amount", category="country")
    table = TableClassifier(features=columns, random_state=0)
    table.fit(rows, ["card", "card", "fee", "fee"])
    ltls.mlflow.save_model(table, tmp_path / "model", input_example=rows)
    result = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(rows, params={"k": 1})
    assert [each[0] for each in result["labels"]] == table.predict(rows).tolist()
    with pytest.raises(ValueError, match="takes the columns text, amount, country"):
        ltls.mlflow.save_model(table, tmp_path / "other", text="text")
