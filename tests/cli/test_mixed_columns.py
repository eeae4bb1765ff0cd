"""Tables with columns of texts, numbers and categories, at the terminal."""

import csv
import io
import json

import numpy as np
import pytest

import ltls
from ltls import TableClassifier
from ltls.settings import Table

COLUMNS = ("--text", "subject", "--text", "body", "--number", "amount", "--category", "country")
TRAIN = (*COLUMNS, "--label", "kind", "-q", "--random-state", 0)


def rows_of(n):
    """Rows whose label is decided by text and number, with some cells missing."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        subject, large = rng.integers(2), rng.integers(2)
        yield {
            "subject": ["card, lost", "which fee"][subject],
            "body": f"hello {rng.integers(5)}",
            "amount": "" if rng.random() < 0.05 else f"{100 * large + rng.normal(0, 10):.2f}",
            "country": rng.choice(["CH", "AT", ""]),
            "kind": f"k{subject}{large}",
        }


ROWS = list(rows_of(200))


def delimited(rows, delimiter):
    written = io.StringIO()
    writer = csv.DictWriter(written, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def typed(row):
    amount = float(row["amount"]) if row["amount"] else None
    return {**row, "amount": amount, "country": row["country"] or None}


FORMS = {
    "csv": delimited(ROWS, ","),
    "tsv": delimited(ROWS, "\t"),
    "jsonl": "".join(json.dumps(typed(row)) + "\n" for row in ROWS),
}


@pytest.fixture
def trained(folder, command, model_file):
    path = folder / "mixed.ltls"
    if not model_file:
        result = command("train", "rows.csv", *TRAIN, "-o", "mixed.ltls")
        assert (result.code, result.err) == (0, "")
        model_file.append(path.read_bytes())
    path.write_bytes(model_file[0])
    return path


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_every_format_trains_the_same_model(folder, trained, command, form):
    result = command("train", f"rows.{form}", *TRAIN, "-o", "other.ltls")
    assert (result.code, result.err) == (0, "")
    assert (folder / "other.ltls").read_bytes() == trained.read_bytes()


def test_the_model_is_that_of_the_estimator(trained):
    model = ltls.load(trained)
    rows = [typed(row) for row in ROWS]
    columns = Table(text=["subject", "body"], number="amount", category="country")
    whole = TableClassifier(features=columns, random_state=0)
    whole.fit(rows, [row["kind"] for row in ROWS])
    np.testing.assert_array_equal(model.decision_function(rows), whole.decision_function(rows))
    assert model.score(rows, [row["kind"] for row in ROWS]) > 0.9


@pytest.mark.parametrize("form", FORMS)
def test_predict_and_evaluate(trained, command, form):
    result = command("predict", "mixed.ltls", f"rows.{form}", "-k", 1)
    assert (result.code, result.err) == (0, "")
    best = [line.rpartition(":")[0] for line in result.out.splitlines()]
    assert best == ltls.load(trained).predict([typed(row) for row in ROWS]).tolist()
    report = json.loads(command("evaluate", "mixed.ltls", f"rows.{form}", "--json").out)
    assert report["metrics"][0]["precision"] > 0.9


def test_parquet(folder, trained, command):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is missing; make test-all installs it")
    from pyarrow import parquet

    parquet.write_table(
        arrow.Table.from_pylist([typed(row) for row in ROWS]), folder / "rows.parquet"
    )
    assert command("train", "rows.parquet", *TRAIN, "-o", "other.ltls").code == 0
    assert (folder / "other.ltls").read_bytes() == trained.read_bytes()
    predicted = command("predict", "mixed.ltls", "rows.parquet").out
    assert predicted == command("predict", "mixed.ltls", "rows.csv").out


def test_streams(folder, trained, command):
    assert command("train", "rows.csv", *TRAIN, "-o", "stream.ltls", "--stream").code == 0
    streamed, whole = ltls.load("stream.ltls"), ltls.load(trained)
    rows = [typed(row) for row in ROWS]
    found, expected = (each.model_.front_end.matrix(rows).toarray() for each in (streamed, whole))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_explain_shows_columns_and_values(trained, command):
    row = json.dumps({"subject": "card, lost", "body": "", "amount": 101.5, "country": "CH"})
    result = command("explain", "mixed.ltls", row, "-k", 1)
    assert result.code == 0
    assert "k01  score" in result.out
    assert "  amount  " in result.out
    assert "  country=CH  " in result.out
    [found] = json.loads(command("explain", "mixed.ltls", row, "-k", 1, "--json").out)
    spans = {each["feature"]: each.get("spans") for each in found["contributions"]}
    assert spans["card"] == [[0, 4]]
    assert spans["amount"] is None
    result = command("explain", "mixed.ltls", "card lost")
    assert "a row must be a JSON object, or index:value pairs such as " in result.err
    result = command("explain", "mixed.ltls", '{"subject": "a"}')
    assert "it has no 'body'" in result.err


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_explain_takes_a_row_of_a_file(folder, trained, command, form):
    rows = [json.loads(line) for line in FORMS["jsonl"].splitlines()[:3]]
    (folder / f"some.{form}").write_text("\n".join(FORMS[form].splitlines()[: 3 + (form == "csv")]))
    for number, row in enumerate(rows, 1):
        expected = command("explain", "mixed.ltls", json.dumps(row), "-k", 1, "--json")
        found = command("explain", "mixed.ltls", f"some.{form}", "--row", number, "-k", 1, "--json")
        assert json.loads(found.out) == json.loads(expected.out)
    result = command("explain", "mixed.ltls", f"some.{form}", "--row", 4)
    assert result.code == 2
    assert "--row must be at most 3, the number of rows in" in result.err


def test_info_lists_the_columns(trained, command):
    facts = json.loads(command("info", "mixed.ltls", "--json").out)
    columns = {"text": ["subject", "body"], "number": ["amount"], "category": ["country"]}
    assert facts["parameters"]["features"].items() >= columns.items()
    assert facts["columns"]["label"] == "kind"


def test_rows_that_cannot_be_read(folder, trained, command):
    header, first = FORMS["csv"].splitlines()[:2]
    (folder / "bad.csv").write_text(f"{header}\n{first}\na,b,ten,CH,k00\n{first}\n")
    result = command("predict", "mixed.ltls", "bad.csv")
    assert result.code == 2
    assert "bad.csv, line 3: 'amount' is 'ten', not a finite number; fix it" in result.err
    result = command("predict", "mixed.ltls", "bad.csv", "-k", 1, "--skip-bad-rows")
    assert [bool(line) for line in result.out.splitlines()] == [True, False, True]
    assert "1 bad row was skipped" in result.err


def test_mistakes_are_explained(folder, trained, assert_mistakes):
    (folder / "rows.svm").write_text("__label__k0 1:1\n")
    (folder / "other.csv").write_text(FORMS["csv"].replace("amount", "sum", 1))
    assert_mistakes("mixed_columns.txt")


# Vectors


@pytest.fixture(scope="module")
def vector_rows():
    rng = np.random.default_rng(0)
    halves = rng.integers(2, size=len(ROWS))
    return [
        {
            **typed(row),
            "vector": (2 * half - 1 + rng.normal(0, 0.2, 3)).tolist(),
            "kind": f"{row['kind']}{half}",
        }
        for row, half in zip(ROWS, halves.tolist(), strict=True)
    ]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_texts_and_vectors_go_together(folder, command, vector_rows, form, stream):
    data = f"vectors.{form}"
    if form == "parquet":
        arrow = pytest.importorskip("pyarrow", reason="pyarrow is missing; make test-all has it")
        from pyarrow import parquet

        table = arrow.Table.from_pylist(vector_rows)
        half = np.array([row["vector"] for row in vector_rows], np.float16).ravel()
        column = arrow.FixedSizeListArray.from_arrays(arrow.array(half), 3)
        at = table.column_names.index("vector")
        parquet.write_table(table.set_column(at, "vector", column), folder / data)
    else:
        (folder / data).write_text("\n".join(map(json.dumps, vector_rows)))
    given = (*TRAIN, "--vectors", "vector", stream, "-o", "beside.ltls")
    assert command("train", data, *given).code == 0
    model = ltls.load(folder / "beside.ltls")
    assert model.model_.columns.n_beside == 3
    report = json.loads(command("evaluate", "beside.ltls", data, "--json").out)
    assert report["metrics"][0]["precision"] > 0.8
    explained = command("explain", "beside.ltls", data, "--row", 1, "-k", 1, "--json")
    assert "vector[0]" in explained.out


def test_features_alone_stay_features(folder, command, vector_rows):
    (folder / "vectors.jsonl").write_text("\n".join(map(json.dumps, vector_rows)))
    given = ("--vectors", "vector", "--label", "kind", "-q", "-o", "alone.ltls")
    assert command("train", "vectors.jsonl", *given).code == 0
    assert ltls.load(folder / "alone.ltls").model_.front_end.name == "features"


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize(
    "cell", [[], [1, 2], [1, 2, 3, 4], [1, None, 3], "x", [[1, 2, 3]], [1e39] * 3]
)
def test_the_row_of_a_bad_vector_is_named(folder, command, vector_rows, cell, beside, stream):
    for number in (0, 7):
        rows = [dict(row) for row in vector_rows]
        rows[number]["vector"] = cell
        (folder / "vectors.jsonl").write_text("\n".join(map(json.dumps, rows)))
        columns = TRAIN if beside else ("--label", "kind", "-q")
        given = ("vectors.jsonl", *columns, "--vectors", "vector", stream, "-o", "bad.ltls")
        result = command("train", *given)
        assert result.code == 2
        assert "vectors.jsonl, line" in result.err
        assert result.err.count("\n") == 1
        if number:
            assert "line 8: " in result.err
            assert command("train", *given, "--skip-bad-rows").code == 0
