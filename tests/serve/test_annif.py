"""What Annif's http backend sends, and what it gets."""

from datetime import datetime
from types import SimpleNamespace
from urllib.parse import urlencode

import numpy as np
import pytest
from serving import in_thread

from ltls import TextClassifier, load
from ltls.serve import Settings


def suggest(server, name="tickets", **fields):
    return server.ask("POST", f"/v1/projects/{name}/suggest", urlencode(fields).encode())


def test_suggestions_are_the_best_labels_with_their_probabilities(server, models):
    text = "my card & visa are gone, été?"
    answer = suggest(server, text=text, limit=2, project="tickets", metadata_title="a title")
    labels, probabilities = load(models["tickets"]).predict_topk([text], 2, proba=True)
    results = answer.json["results"]
    assert answer.status == 200
    assert [each["uri"] for each in results] == labels[0].tolist()
    assert [each["label"] for each in results] == labels[0].tolist()
    np.testing.assert_allclose([each["score"] for each in results], probabilities[0], rtol=1e-5)
    assert len(suggest(server, text=text).json["results"]) == 3  # of ten


def test_angle_brackets_of_uris_are_left_out(tmp_path):
    texts, uris = ["a card", "a fee"], ["<http://example.org/card>", "<http://example.org/fee>"]
    TextClassifier(random_state=0).fit(texts, uris).save(tmp_path / "uris.ltls")
    with in_thread(Settings(models={"uris": tmp_path / "uris.ltls"}, reload=0)) as server:
        found = suggest(server, "uris", text="card").json["results"]
    assert found[0]["uri"] == "http://example.org/card"


def test_a_project_is_trained_and_has_a_time(server, models):
    found = server.ask("GET", "/v1/projects/tickets").json
    assert found["is_trained"]
    assert found["project_id"] == "tickets"
    modified = datetime.fromisoformat(found["modification_time"]).timestamp()
    assert modified == pytest.approx(models["tickets"].stat().st_mtime, abs=0.01)
    assert server.ask("GET", "/v1/projects/nobody").status == 404


@pytest.mark.parametrize("year", [1900, 2026, 20_000])
def test_a_file_of_any_year_has_a_time(year):
    from ltls.serve.annif import project

    model = SimpleNamespace(
        name="tickets", version=str(np.datetime64(f"{year}-01-02", "ms").astype(int))
    )
    assert project(model)["modification_time"] == f"{year}-01-02T00:00:00.000+00:00"


@pytest.mark.parametrize(
    ("name", "body", "status", "message"),
    [
        ("tickets", b"", 422, "object missing required field `text`"),
        ("tickets", b'{"text": "a"}', 422, "object missing required field `text`"),
        ("tickets", b"text=a&limit=x", 422, "limit: expected `int`, got `str`"),
        ("tickets", b"text=a&limit=0", 422, "limit: expected `int` >= 1"),
        ("tickets", b"text=a&limit=1001", 422, "limit must be at most 1000, got 1001"),
        ("tickets", b"text=a&project=x", 422, "project must be 'tickets' as in the path, got 'x'"),
        ("tickets", b"text=\xff", 400, "the request is not a form in UTF-8"),
        ("tickets", b"text=%ff", 400, "the request is not a form in UTF-8"),
        ("tickets", b"&" * 200, 400, "a form may have at most 100 fields"),
        ("codes", b"text=a", 422, "model 'codes' must take texts and be probabilistic"),
        ("nobody", b"text=a", 404, "there is no model 'nobody'"),
    ],
)
def test_what_cannot_be_answered(server, name, body, status, message):
    answer = server.ask("POST", f"/v1/projects/{name}/suggest", body)
    assert answer.status == status
    assert message in answer.json["error"]


def test_token_limits_and_metrics_hold(serving):
    with serving(token="s3cret", max_body=100) as server:
        assert suggest(server, text="a").status == 401
        assert server.ask("GET", "/v1/projects/tickets").status == 401
        path, token = "/v1/projects/tickets/suggest", "Bearer s3cret"
        assert server.ask("POST", path, b"text=a", Authorization=token).status == 200
        assert server.ask("POST", path, b"text=" + b"a" * 100, Authorization=token).status == 413
        text = server.ask("GET", "/metrics", Authorization=token).body.decode()
    route = 'route="/v1/projects/{name}/suggest"'
    assert f'ltls_requests_total{{{route},status="200"}} 1.0' in text
    assert 'ltls_rows_total{model="tickets"} 1.0' in text


def test_the_schema_describes_the_form(server):
    described = server.ask("GET", "/openapi.json").json["paths"]["/v1/projects/{name}/suggest"]
    assert "application/x-www-form-urlencoded" in described["post"]["requestBody"]["content"]
