"""TableClassifier: tables with texts, numbers and categories, from rows to model files."""

import numpy as np
import pytest
from sklearn.base import clone

import ltls
from ltls import TableClassifier
from ltls.settings import Table

COLUMNS = {"text": ("subject", "body"), "number": "amount", "category": ("country",)}


def rows_of(n, seed=0):
    """Rows whose label needs the text, the number and the category: no column is enough."""
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for _ in range(n):
        subject, large, country = rng.integers(2), rng.integers(2), rng.integers(2)
        amount = None if rng.random() < 0.05 else float(100 * large + rng.normal(0, 10))
        rows.append(
            {
                "subject": ["card lost", "which fee"][subject],
                "body": f"hello {rng.integers(9)}",
                "amount": amount,
                "country": ["CH", "AT"][country],
                "unused": object(),
            }
        )
        labels.append(f"{subject}{large}{country}")
    return rows, labels


def classifier(**columns):
    return TableClassifier(features=Table(**columns), random_state=0)


ROWS, LABELS = rows_of(400)
TEST, TRUTH = rows_of(200, seed=1)


@pytest.fixture(scope="module")
def model():
    return classifier(**COLUMNS).fit(ROWS, LABELS)


def test_every_kind_of_column_counts(model):
    assert model.score(TEST, TRUTH) > 0.9
    for kind in COLUMNS:
        other = clone(model).set_params(**{f"features__{kind}": ()}).fit(ROWS, LABELS)
        assert other.score(TEST, TRUTH) < 0.65


def test_a_file_has_all_of_it(model, tmp_path):
    path = tmp_path / "model.ltls"
    model.save(path)
    loaded = ltls.load(path, verify=True)
    assert isinstance(loaded, TableClassifier)
    assert repr(loaded) == repr(model)
    expected = {"text": ("subject", "body"), "number": ("amount",), "category": ("country",)}
    assert loaded.model_.front_end.describe() == {"input": "table", "columns": expected}
    for got, expected in zip(
        loaded.predict_topk(TEST, 3), model.predict_topk(TEST, 3), strict=True
    ):
        np.testing.assert_array_equal(got, expected)
    assert b"pickle" not in path.read_bytes()
    loaded.partial_fit(ROWS[:20], ["new"] * 20)
    assert "new" in loaded.classes_


@pytest.mark.parametrize(("kind", "columns"), [*COLUMNS.items(), ("text", ["subject"])])
def test_one_kind_of_column_is_enough(kind, columns, tmp_path):
    model = classifier(**{kind: columns}).fit(ROWS, LABELS)
    model.save(tmp_path / "model.ltls")
    loaded = ltls.load(tmp_path / "model.ltls")
    assert repr(loaded) == repr(model)
    assert (loaded.predict(TEST) == model.predict(TEST)).mean() > 0.95


def test_streams_learn_the_same_features(model):
    batches = [(ROWS[:150], LABELS[:150]), (ROWS[150:], LABELS[150:])]
    streamed = classifier(**COLUMNS).fit_stream(batches)
    ours, theirs = (each.model_.front_end.matrix(TEST).toarray() for each in (streamed, model))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert streamed.score(TEST, TRUTH) > 0.9


def test_explanations_name_columns_and_values(model):
    row = {"subject": "card lost", "body": "", "amount": 103, "country": "AT"}
    [[best]] = model.explain([row], k=1)
    assert best.label == "011"
    values = {each.feature: each.value for each in best.contributions}
    assert min(values["amount"], values["country=AT"], values["card"]) > 0
    total = sum(values.values()) + best.intercept
    assert total == pytest.approx(best.linear_score, rel=1e-4)
    assert sum(part.score for part in best.parts) == pytest.approx(best.score)
    spans = {each.feature: each.spans for each in best.contributions}
    assert spans["card"] == ((0, 4),)
    assert spans["amount"] == spans["country=AT"] == ()
    names = [each.feature for each in model.global_explanation("111", k=1000).contributions]
    assert {"amount", "country=CH", "country=AT"} <= set(names)
    assert list(model.get_feature_names_out()[-3:]) == ["amount", "country=AT", "country=CH"]


def test_a_predictor_takes_rows(model):
    predict = model.predictor(k=2)
    labels, scores = predict(TEST[0])
    many, _ = predict(TEST[:3])
    assert labels.shape == scores.shape == (2,)
    assert many.tolist()[0] == labels.tolist()
    np.testing.assert_array_equal(many, model.predict_topk(TEST[:3], 2)[0])


def test_data_frames(model):
    pandas = pytest.importorskip("pandas", reason="needs pandas: run make test-all")
    frame = pandas.DataFrame(TEST)
    np.testing.assert_array_equal(model.predict(frame), model.predict(TEST))
    frame["country"] = frame["country"].astype("category")
    frame["amount"] = frame["amount"].astype("Float64")  # with pandas.NA
    np.testing.assert_array_equal(model.predict(frame), model.predict(TEST))
    with pytest.raises(ValueError, match=r"must have a column 'amount', but it has 'subject'"):
        model.predict(frame.drop(columns="amount"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("text", "must be a data frame or a list of dicts"),
        ([], "at least one row"),
        ([[1, 2]], r"row 0 is \[1, 2\]"),
        ([{"subject": "a"}], "row 0: it has no 'body'"),
        ([{**ROWS[0], "amount": "ten"}], "row 0: 'amount' is 'ten', not a finite number"),
        ([ROWS[0], {**ROWS[0], "body": 3}], "row 1: 'body' is 3, not a text"),
    ],
)
def test_bad_rows(model, rows, message):
    with pytest.raises(ValueError, match=message):
        model.predict(rows)


def test_bad_parameters():
    with pytest.raises(ValueError, match="'amount' must be given once"):
        classifier(number=["amount", "amount"]).fit(ROWS, LABELS)
    with pytest.raises(ValueError, match=r"'number' parameter of features must be .* got 3"):
        classifier(number=3).fit(ROWS, LABELS)


# Columns of vectors


def with_vectors(rows, labels, seed=0):
    """Return rows whose vectors alone tell two halves of every label apart."""
    rng = np.random.default_rng(seed)
    halves = rng.integers(2, size=len(rows))
    found = []
    for row, half in zip(rows, halves, strict=True):
        vector = (2 * half - 1 + rng.normal(0, 0.2, 3)).tolist()
        found.append({**row, "vector": None if rng.random() < 0.03 else vector})
    return found, [f"{label}/{half}" for label, half in zip(labels, halves, strict=True)]


@pytest.fixture(scope="module")
def of_vectors():
    return classifier(**COLUMNS, vectors="vector").fit(*with_vectors(ROWS, LABELS))


def test_vectors_are_dense_features_beside_the_others(of_vectors, tmp_path):
    rows, truth = with_vectors(TEST, TRUTH, seed=1)
    assert of_vectors.score(rows, truth) > 0.75
    assert of_vectors.model_.columns.n_beside == 3
    assert of_vectors.get_feature_names_out()[-3:].tolist() == [f"vector[{n}]" for n in range(3)]
    [[best]] = of_vectors.explain(rows[:1], k=1)
    assert "vector[0]" in {each.feature for each in best.contributions}
    of_vectors.save(tmp_path / "m")
    loaded = ltls.load(tmp_path / "m", verify=True)
    np.testing.assert_array_equal(
        loaded.decision_function(rows), of_vectors.decision_function(rows)
    )
    batches = [(rows[i : i + 50], truth[i : i + 50]) for i in range(0, 200, 50)]
    streamed = clone(of_vectors).fit_stream(batches)
    assert streamed.model_.columns.n_beside == 3


def test_vectors_alone_are_dense_rows():
    rows, truth = with_vectors(ROWS, ["" for _ in LABELS])
    model = classifier(vectors=["vector"]).fit(rows, truth)
    assert model.model_.columns.n_beside == 0
    assert model.score(rows, truth) > 0.9


@pytest.mark.parametrize("frame", ["pandas", "polars", "pyarrow"])
def test_vectors_of_data_frames(frame, of_vectors):
    library = pytest.importorskip(frame, reason=f"needs {frame}: run make test-all")
    rows, _ = with_vectors(TEST, TRUTH, seed=1)
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "unused"}
    make = library.table if frame == "pyarrow" else library.DataFrame
    found = of_vectors.decision_function(make(columns))
    np.testing.assert_array_equal(found, of_vectors.decision_function(rows))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ([1.0, 2.0], "row 0: 'vector' has 2 numbers, but the vectors of the column have 3"),
        ("a", "row 0: 'vector' is 'a', not a list of numbers"),
        ([], "not a list of numbers"),
        ([[1.0, 2.0, 3.0]], "not a list of numbers"),
        ([1.0, None, 3.0], "'vector' has nan, not a finite number"),
        ([1.0, 1e300, 3.0], "'vector' has 1e\\+300, not a finite number"),
        ({"a": 1}, "not a list of numbers"),
    ],
)
def test_cells_that_are_no_vectors_are_errors(of_vectors, cell, message):
    with pytest.raises(ValueError, match=message):
        of_vectors.predict([{**TEST[0], "vector": cell}])


def test_a_column_without_vectors_is_an_error():
    rows = [{**row, "vector": None} for row in ROWS]
    with pytest.raises(ValueError, match="column 'vector' must have vectors, all are missing"):
        classifier(**COLUMNS, vectors="vector").fit(rows, LABELS)
