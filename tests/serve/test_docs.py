"""What the page about serving shows: commands that exist, requests that are answered."""

import json
import re
import shlex
from pathlib import Path

import pytest

from ltls.cli.app import COMMANDS
from ltls.serve import Settings as ServeSettings

pytest.importorskip("starlette", reason="needs starlette: run make test-all")
from ltls.serve import connection, plain, work

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8")
LINES = re.findall(r"(?:^\$ |bin/)ltls serve (.*)$", PAGE, re.M)
LISTS = [json.loads(found)[1:] for found in re.findall(r'\["serve", .*\]', PAGE)]


@pytest.mark.parametrize("words", [*map(shlex.split, LINES), *LISTS], ids=" ".join)
def test_command_lines_are_understood(words):
    serve = next(each for each in COMMANDS if each.name == "serve").load()
    assert serve.make_context("serve", list(words)).params["models"]


def test_there_are_command_lines():
    assert len(LINES) == 3  # two in a shell, one of systemd
    assert len(LISTS) == 2  # of Docker and of Kubernetes


@pytest.mark.parametrize("body", re.findall(r"/predict --json '(.*)'", PAGE))
def test_requests_are_answered(server, body):
    asked = json.loads(body)
    if asked["model"] == "products":
        asked["model"], asked["rows"] = "codes", [{"indices": [3, 11], "values": [1, 0.5]}]
    assert server.ask("POST", "/predict", asked).status == 200


def test_every_status_and_option_is_listed():
    for status in (400, 401, 404, 405, 408, 413, 415, 422, 503, 504):
        assert re.search(rf"^\|[^|]*\b{status}\b", PAGE, re.M), status
    without = {"models", "token", "verify", "access_log"}
    for name in {name for name, *_ in ServeSettings.declared()} - without:
        assert f"--{name.replace('_', '-').removesuffix('s')}" in PAGE, name


@pytest.mark.parametrize(
    ("start", "limits"),
    [
        ("| 400 ", {connection.MAX_HEAD >> 10}),
        ("| an answer ", {work._MAX_ANSWER >> 20, work._EXPLAINED}),
        ("| concurrent requests ", {work._MAX_HELD}),
        ("| an explanation ", {plain._MAX_EXPLAINED >> 10, plain._NUMBER}),
        ("| an explanation ", {plain._MAX_EXPLAINED // (5 * 4)}),  # k = 5, 4 parts
        ("| memory of a request ", {work._MAX_THREADS}),
        ("| a client that pipelines ", {connection._MAX_PIPELINED}),
        ("| a body in chunks ", {connection._MEAN, connection._CHUNKS}),
        ("Small requests ", {work._QUICK_BYTES >> 10, work._QUICK_K, work._ROWS}),
    ],
)
def test_limits_are_those_of_the_code(start, limits):
    """Only the numbers of a row or a paragraph: its words may change."""
    unwrapped = re.sub(r"(?<=\w)\n(?=\w)", " ", PAGE)
    [line] = [line for line in unwrapped.splitlines() if line.startswith(start)]
    assert limits <= {int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", line)}


@pytest.mark.parametrize("code", re.findall(r"^```py\n(.*?)^```", PAGE, re.M | re.S))
def test_python(code, server, models, monkeypatch, tmp_path):
    if "tritonclient" in code:
        pytest.importorskip("tritonclient", reason="needs tritonclient: run make test-all")
    code = code.replace("localhost:8000", server.address)
    exec(compile(code, "serving.md", "exec"), {})
