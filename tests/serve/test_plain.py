"""POST /predict: what people send, and what they get."""

import json

import numpy as np
import pytest

from ltls import load


def row(features):
    X = np.zeros((1, 12))
    X[0, list(features)] = list(features.values())
    return X


@pytest.mark.parametrize("texts", ["my card is gone", ["my card is gone", "a fee", "", "?"]])
@pytest.mark.parametrize("k", [1, 2, 50])
def test_texts(server, models, texts, k):
    answer = server.predict(model="tickets", text=texts, k=k)
    assert answer.status == 200
    given = [texts] if isinstance(texts, str) else texts
    labels, scores = load(models["tickets"]).predict_topk(given, k)
    predictions = answer.json["predictions"]
    assert [each["labels"] for each in predictions] == labels.tolist()
    np.testing.assert_allclose([each["scores"] for each in predictions], scores, rtol=1e-4)
    assert answer.json["milliseconds"] > 0


def test_rows_are_answered_in_pieces_as_at_once(server, models):
    texts = [f"my {word} {n}" for n in range(32) for word in ("card", "fee")]
    for k in (3, 500):  # of the second, a piece has few rows
        answer = server.predict(model="words", text=texts, k=k)
        labels, scores = load(models["words"]).predict_topk(texts, k)
        found = answer.json["predictions"]
        np.testing.assert_allclose([each["scores"] for each in found], scores, rtol=1e-4)
        assert [each["labels"][0] for each in found] == labels[:, 0].tolist()


@pytest.mark.parametrize("name", ["tickets", "codes", "tags"])
def test_probabilities(server, models, name):
    X = ["my card is gone", "a fee"] if name == "tickets" else np.eye(12)[:2]
    given = {"text": X} if name == "tickets" else {"rows": X.tolist()}
    answer = server.predict(model=name, k=3, proba=True, **given)
    labels, probabilities = load(models[name]).predict_topk(X, 3, proba=True)
    found = answer.json["predictions"]
    assert [each["labels"] for each in found] == labels.tolist()
    np.testing.assert_allclose([each["probabilities"] for each in found], probabilities, rtol=1e-5)


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 0, 0, 1, 0, 0.5, 0, 0, 0, 0, 0, 0]],
        [{"indices": [3, 5], "values": [1, 0.5]}],
        [{"indices": [5, 3], "values": [0.5, 1]}],
        [{"indices": [3, 5, 3], "values": [0.25, 0.5, 0.75]}],
    ],
    ids=["dense", "sparse", "unsorted", "duplicates"],
)
def test_rows_of_every_form(server, models, rows):
    answer = server.predict(model="codes", rows=rows, k=2)
    labels, scores = load(models["codes"]).predict_topk(row({3: 1, 5: 0.5}), 2)
    prediction = answer.json["predictions"][0]
    assert prediction["labels"] == labels[0].tolist()
    np.testing.assert_allclose(prediction["scores"], scores[0], rtol=1e-4)


def test_rows_of_tables(server, models):
    rows = [
        {"item": "green tea", "price": 20, "shop": None},
        {"item": "milk", "price": None, "shop": "north"},
    ]
    estimator = load(models["orders"])
    for proba in (False, True):
        answer = server.predict(model="orders", rows=rows, k=3, proba=proba)
        labels, scores = estimator.predict_topk(rows, 3, proba=proba)
        found = answer.json["predictions"]
        assert [each["labels"] for each in found] == labels.tolist()
        given = [each["probabilities" if proba else "scores"] for each in found]
        np.testing.assert_allclose(given, scores, rtol=1e-4)
    answer = server.predict(model="orders", rows=rows[:1], k=1, explain=True, trellis=0)
    names = [each["feature"] for each in answer.json["explanations"][0][0]["contributions"]]
    assert {"green", "price", "shop="} <= set(names)
    assert answer.json["trellis"]["paths"]
    listed = {each["name"]: each for each in server.ask("GET", "/models").json}
    assert listed["orders"]["input"] == "table"
    columns = {"text": ["item"], "number": ["price"], "category": ["shop"]}
    assert listed["orders"]["columns"] == columns


def test_rows_by_feature_names(server, models):
    by_name = server.predict(model="boxes", rows=[{"width": 1}, {"größe": 2, "height": 1}])
    X = np.array([[0, 1, 0, 0], [1, 0, 0, 2]])
    by_place = server.predict(model="boxes", rows=X.tolist())
    assert by_name.json["predictions"] == by_place.json["predictions"]
    estimator = load(models["boxes"])
    with pytest.warns(UserWarning, match="feature names"):  # which the server has none of
        labels = estimator.predict_topk(X, 1, proba=True)[0]
    assert server.predict(model="boxes", rows=X.tolist(), proba=True).status == 200
    best = [each["labels"][0] for each in by_name.json["predictions"]]
    assert best == labels[:, 0].tolist()


def test_the_only_model_needs_no_name(serving):
    with serving() as one:
        assert one.predict(text="my visa card").json["model"] == "tickets"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b'{"text": "\xff"}', 400, "not JSON"),
        (b'{"text": "\\ud800"}', 400, "not JSON"),
        (b'{"model": "codes", "rows": [[NaN]]}', 400, "not JSON"),
        (b"[" * 100_000, 422, "the request: expected `object`, got `array`"),
        ({"text": "a"}, 422, "model must be one of boxes, codes, margins, orders, parcels, tags"),
        ({"model": "../tickets", "text": "a"}, 404, "no model '../tickets'"),
        ({"model": "tickes", "text": "a"}, 404, "there is no model 'tickes', only "),
        ({"model": "tickets"}, 422, "either text or rows"),
        ({"model": "tickets", "text": "a", "rows": [[1]]}, 422, "either text or rows"),
        ({"model": "tickets", "rows": [[1]]}, 422, "model 'tickets' takes text, not rows"),
        ({"model": "codes", "text": "a"}, 422, "model 'codes' takes rows, not text"),
        ({"model": "tickets", "text": 1}, 422, "text: expected `str | array | null`, got `int`"),
        ({"model": "tickets", "text": ["a", 1]}, 422, "text[1]: expected `str`, got `int`"),
        ({"model": "tickets", "text": []}, 422, "at least one row, got none"),
        ({"model": "codes", "rows": []}, 422, "at least one row, got none"),
        ({"model": "codes", "rows": [1]}, 422, "rows[0]: expected `object | array`, got `int`"),
        ({"model": "codes", "rows": [[]]}, 422, "a list of 12 numbers, got 0 entries"),
        ({"model": "codes", "rows": [[0] * 12, [1, 2]]}, 422, "row 1 must be a list of 12"),
        ({"model": "codes", "rows": [[1e300] * 12]}, 422, "at most 1e+15"),
        ({"model": "codes", "rows": [[10**400] * 12]}, 422, "rows[0][0]: number out of range"),
        ({"model": "codes", "rows": [[1, "x"]]}, 422, "rows[0][1]: expected `float`, got `str`"),
        ({"model": "codes", "rows": [{"indices": [12], "values": [1]}]}, 422, "from 0 to 11"),
        ({"model": "codes", "rows": [{"indices": [-1], "values": [1]}]}, 422, "from 0 to 11"),
        ({"model": "codes", "rows": [{"indices": [0.5], "values": [1]}]}, 422, "from 0 to 11"),
        ({"model": "codes", "rows": [{"indices": [1], "values": []}]}, 422, "as many indices as"),
        ({"model": "codes", "rows": [{"height": 1}]}, 422, "have no names"),
        ({"model": "boxes", "rows": [{"weight": 1}]}, 422, "no feature 'weight'"),
        ({"model": "boxes", "rows": [{"width": "a"}]}, 422, "values must be numbers"),
        ({"model": "boxes", "rows": [{"width": 10**400}]}, 422, "values must be numbers"),
        ({"model": "orders", "rows": [{"weight": 1}]}, 422, "no column 'weight'"),
        ({"model": "orders", "rows": [{"item": "tea"}]}, 422, "row 0: it has no 'price'"),
        ({"model": "orders", "rows": [[1, 2, 3]]}, 422, "rows must be dicts, but row 0 is [1.0"),
        (
            {"model": "parcels", "rows": [{"item": "a", "vector": [1]}]},
            422,
            "'vector' has 1 numbers",
        ),
        ({"model": "orders", "text": "tea"}, 422, "model 'orders' takes rows, not text"),
        (
            {"model": "orders", "rows": [{"item": "tea", "price": "ten", "shop": None}]},
            422,
            "row 0: 'price' is 'ten', not a finite number",
        ),
        ({"model": "tickets", "text": "a", "k": 0}, 422, "k: expected `int` >= 1"),
        ({"model": "tickets", "text": "a", "k": 10**6}, 422, "k must be at most 1000"),
        ({"model": "tickets", "text": "a", "k": 10**4000}, 422, "k: expected `int` <= "),
        ({"model": "tickets", "text": "a", "k": "5"}, 422, "k: expected `int`, got `str`"),
        ({"model": "tickets", "text": "a", "top": 5}, 422, "unknown field `top`; there are model,"),
        ({"model": "margins", "rows": [[0] * 12], "proba": True}, 422, "has no probabilities"),
        ({"model": "tickets", "text": ["a"] * 65}, 413, "at most 64 rows, got 65"),
        ({"model": "tickets", "text": "a", "trellis": 99}, 422, "trellis must be at most"),
    ],
)
def test_mistakes_are_explained(server, body, status, message):
    answer = server.ask("POST", "/predict", body)
    assert answer.status == status
    assert message in answer.json["error"]
    assert len(answer.body) < 500


@pytest.mark.parametrize("name", ["tickets", "codes", "words"])
def test_the_paths_of_a_prediction(server, models, name):
    estimator = load(models[name])
    X = np.eye(12)[:1] if name == "codes" else ["my card w7 w8"]
    given = {"rows": X.tolist()} if name == "codes" else {"text": X}
    parts = [(part, r) for part in estimator.model_.trellises() for r in range(len(part.codebooks))]
    rows = estimator.model_.columns.rows(estimator.model_.front_end.matrix(X))
    for which, (part, r) in enumerate(parts):
        answer = server.predict(model=name, trellis=which, k=3, **given).json
        drawn, trellis = answer["trellis"], part.trellis
        assert drawn["edges"] == trellis.edges.tolist()
        assert drawn["clusters"] == (name == "words")
        h = part.blocks(part.edge_scores(rows))[r][0]
        for label, found in zip(answer["predictions"][0]["labels"], drawn["paths"], strict=True):
            path = part.codebooks[r].path_of([estimator.model_.labels.id(label)])[0]
            assert found["path"] == path
            edges = trellis.path_edges(int(path))
            np.testing.assert_allclose(found["scores"], h[edges], atol=1e-3)
            pairs = list(zip(found["vertices"], found["vertices"][1:], strict=False))
            assert pairs == [tuple(pair) for pair in trellis.edges[edges].tolist()]
    assert drawn["trellises"] == len(parts)


@pytest.mark.parametrize("k", [2, 20])  # the second in several pieces
def test_explanations_are_those_of_the_estimator(server, models, k):
    answer = server.predict(model="words", text=["a w3", "w4 v4"], k=k, explain=True).json
    estimator = load(models["words"])
    for row, text in enumerate(["a w3", "w4 v4"]):
        labels = answer["predictions"][row]["labels"]
        expected = {each.label: each for each in estimator.explain([text], labels)[0]}
        found = answer["explanations"][row]
        assert [each["label"] for each in found] == labels
        expected = [expected[label].to_dict() for label in labels]
        assert found == json.loads(json.dumps(expected))


def test_models_are_listed(server):
    listed = {each["name"]: each for each in server.ask("GET", "/models").json}
    known = {"boxes", "codes", "margins", "orders", "parcels", "tags", "tickets", "words"}
    assert set(listed) == known
    assert listed["tickets"]["input"] == "text"
    assert listed["codes"]["input"] == "features"
    assert (listed["codes"]["labels"], listed["codes"]["features"]) == (12, 12)
    assert listed["boxes"]["feature_names"] == ["height", "width", "depth", "größe"]
    assert listed["tags"]["several_labels"]
    assert not listed["margins"]["probabilities"]


def test_the_schema_describes_requests(server):
    schema = server.ask("GET", "/openapi.json").json
    body = schema["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
    name = body["schema"]["$ref"].removeprefix("#/components/schemas/")
    described = schema["components"]["schemas"][name]["properties"]
    assert set(described) == {"model", "text", "rows", "k", "proba", "explain", "trellis"}
    assert described["k"]["description"]
    assert set(schema["paths"]["/v2/models/{name}"]) == {"get"}
