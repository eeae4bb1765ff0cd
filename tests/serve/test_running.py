"""`ltls serve` as a process: its end, its workers, its log and its mistakes."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from serving import POST, SIZED, ask, eventually, in_process

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
posix = pytest.mark.skipif(os.name == "nt", reason="needs signals")


def unfinished(server, body):
    """Begin a request on a new connection; return the connection and the rest of the request.

    A worker has it by then: it has asked for the content.
    """
    content = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    fields = b"content-length: %d\r\nexpect: 100-continue\r\n\r\n" % len(content)
    connection.sendall(POST + fields)
    assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(content[:5])
    return connection, content[5:]


def received(connection):
    found = b""
    while part := connection.recv(65536):
        found += part
    connection.close()
    return found


def refuses_connections(server):
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
    except OSError:
        return True
    return False


@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_lets_requests_finish(models, workers):
    with in_process(models["tickets"], "--workers", workers) as server:
        connection, rest = unfinished(server, {"text": "my card is gone"})
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        while not refuses_connections(server) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.process.poll() is None
        connection.sendall(rest)
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"card"' in answer
        assert server.process.wait(30) == 0


def test_connections_that_do_not_send_headers_are_closed(models):
    with in_process(models["tickets"], "--timeout", "1") as server:
        began = time.monotonic()
        address = "127.0.0.1", server.port
        silent, slow, used = (socket.create_connection(address, timeout=30) for _ in range(3))
        slow.sendall(b"GET / HTTP/1.1\r\nhost:")
        used.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\nGET")
        assert received(silent) == received(slow) == b""
        assert received(used).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began > 1
        assert server.predict(text="my card is gone").status == 200


def test_a_connection_in_use_stays_open_however_short_its_requests_are(models):
    with in_process(models["tickets"], "--timeout", "0.5") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        ask(connection, "GET", "/v2/health/live")
        first = connection.sock
        for _ in range(60):
            time.sleep(0.03)
            assert ask(connection, "GET", "/v2/health/live").status == 200
            assert connection.sock is first
        connection.close()


@posix
def test_a_request_that_does_not_finish_is_given_up(models):
    with in_process(models["tickets"], "--drain", "1", "--timeout", "60") as server:
        connection, _ = unfinished(server, {"text": "a"})
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        connection.close()


STUCK = """
import re, sys, time
from ltls.serve import Settings
from ltls.serve.models import ServedModel
from ltls.serve.running import run
usual = ServedModel.best
def best(self, items, *others):
    if items == ["stuck"]:
        print("stuck", file=sys.stderr, flush=True)
        if sys.argv[2] == "frozen":  # no other thread runs meanwhile
            re.match("(?:a+)+$", "a" * 60 + "b")
        time.sleep(1000)
    return usual(self, items, *others)
ServedModel.best = best
run(Settings(models={"tickets": sys.argv[1]}, drain=1, timeout=500), "127.0.0.1", 0, 1, "info")
"""


@posix
@pytest.mark.parametrize("how", ["waiting", "frozen"])
def test_sigterm_ends_even_work_that_does_not_end(models, how):
    """A piece of work cannot be interrupted, but the process ends when the time is over."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, models["tickets"], how], stderr=subprocess.PIPE, text=True
    )
    lines = iter(process.stderr)
    running = next(line for line in lines if "running on" in line)
    port = int(re.search(r":(\d+)\"", running)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        body = b'{"text": ["stuck"], "k": 50}'  # no quick work
        connection.sendall(SIZED % len(body) + body)
        assert next(line for line in lines if "stuck" in line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        if how == "waiting":
            assert b" 503 " in connection.recv(1000)
    process.stderr.close()


@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_ends_the_server(models, workers):
    with in_process(models["tickets"], "--workers", workers) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 130


def workers_of(server):
    """Return the processes that answer requests."""
    found = set()
    pid = server.process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        command = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"spawn_main" in command:
            found.add(int(child))
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@linux
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_workers(models, tmp_path, how):
    with in_process(models["tickets"], "--workers", "2", TMPDIR=str(tmp_path)) as server:
        assert eventually(lambda: len(workers_of(server)) == 2)
        workers = workers_of(server)
        assert eventually(lambda: len(list(tmp_path.glob("ltls-metrics-*/*.db"))) > 2)
        server.process.send_signal(how)
        server.process.wait(60)
        assert eventually(lambda: not any(map(is_running, workers)))
    assert list(tmp_path.glob("ltls-metrics-*")) == []


def mapped(pid, path):
    """Return the kilobytes of a file that a process maps, by the kinds of smaps."""
    sizes, inside = {}, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first = line.split()[0]
        if not first.endswith(":"):
            inside = line.endswith(str(path))
        elif inside and line.endswith("kB"):
            sizes[first] = sizes.get(first, 0) + int(line.split()[1])
    return sizes


@linux
def test_workers_share_the_mapped_file(models):
    path = models["tickets"]
    with in_process(path, "--workers", "2", "--reload", "0") as server:
        assert eventually(lambda: all(mapped(each, path) for each in workers_of(server)))
        workers = workers_of(server)
        assert len(workers) == 2
        for worker in workers:
            sizes = mapped(worker, path)
            assert sizes["Size:"] > 0
            assert sizes["Private_Dirty:"] == 0  # nothing is a copy of its own
        n_requests = 40
        for _ in range(n_requests):  # new connections go to either worker
            assert server.predict(text="my card is gone").status == 200
        asked = {entry["pid"] for entry in server.log if entry["event"] == "request"}
        assert asked <= workers
        line = f'ltls_requests_total{{route="/predict",status="200"}} {n_requests:.1f}'
        # Those of both workers; a request is counted when it has been answered.
        assert eventually(lambda: line in server.ask("GET", "/metrics").body.decode())
        waiting = [unfinished(server, {"text": "a"})[0] for _ in range(4)]
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        assert eventually(lambda: len(workers_of(server) - workers) == 2)
        assert server.predict(text="my card is gone").status == 200
        line = "ltls_requests_in_progress 1.0"  # this one, none of the dead
        assert eventually(lambda: line in server.ask("GET", "/metrics").body.decode())
        for connection in waiting:
            connection.close()


def test_the_log_is_json_and_tells_no_texts(models):
    with in_process(models["tickets"]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        ask(connection, "POST", "/predict", {"text": ["my secret", "b"]}, X_Request_Id="seven")
        ask(connection, "GET", "/no\u001b[31m".encode().decode().replace("\u001b", "%1b"))
        connection.close()
    requests = [entry for entry in server.log if entry["event"] == "request"]
    predicted, missing = [entry for entry in requests if "health" not in entry["path"]]
    assert predicted["path"] == "/predict"
    assert predicted["status"] == 200
    assert (predicted["model"], predicted["rows"]) == ("tickets", 2)
    assert predicted["request"] == "seven"
    assert predicted["milliseconds"] > 0
    assert missing["status"] == 404
    assert {"time", "level", "event", "pid"} <= set(predicted)
    assert "secret" not in json.dumps(server.log)
    assert [entry for entry in server.log if entry["event"] == "model loaded"]


def test_a_token_comes_from_a_file_or_the_environment(models, tmp_path):
    (tmp_path / "token").write_text("abc\n")
    with in_process(models["tickets"], "--token-file", tmp_path / "token") as server:
        assert server.ask("GET", "/models").status == 401
        allowed = {"Authorization": "Bearer abc", "Host": "any.example"}
        assert server.ask("GET", "/models", **allowed).status == 200
    with in_process(models["tickets"], LTLS_SERVE_TOKEN="def") as server:
        assert server.ask("GET", "/models", Authorization="Bearer def").status == 200
        assert server.ask("GET", "/models", Authorization="Bearer abc").status == 401
        assert server.process.poll() is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.ltls"], "No such file"),
        (["{tickets}", "{tickets}"], "different file names"),
        (["{tickets}", "--log-level", "loud"], "--log-level must be one of debug"),
        (["{tickets}", "--timeout", "0"], "--timeout must be a number above 0, got 0"),
        (["{tickets}", "--token-file", "/dev/null"], "token in /dev/null must not be empty"),
        (["{broken}"], "not an ltls model file"),
        ([], "Missing argument"),
    ],
)
def test_mistakes_are_one_line(command, models, tmp_path, words, message):
    (tmp_path / "broken.ltls").write_bytes(b"no model at all, but long enough to be read")
    places = {"tickets": models["tickets"], "broken": tmp_path / "broken.ltls"}
    result = command("serve", *(word.format(**places) for word in words))
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert message in result.err


@pytest.mark.parametrize("token", ["", " "])
def test_an_empty_token_is_not_no_token(command, models, monkeypatch, token):
    monkeypatch.setenv("LTLS_SERVE_TOKEN", token)
    result = command("serve", models["tickets"])
    assert result.code == 2
    assert "token in LTLS_SERVE_TOKEN must not be empty" in result.err


def test_an_address_that_is_taken(command, models):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = command("serve", models["tickets"], "--port", port)
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in result.err
    assert "--port" in result.err


def test_packages_are_asked_for_if_they_are_missing(command, models, monkeypatch):
    from ltls.serve import command as module

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    result = command("serve", models["tickets"])
    assert result.code == 2
    assert "needs starlette, uvicorn" in result.err
    assert "pip install 'ltls[serve]'" in result.err


def test_small_requests_are_answered_beside_large_ones_that_do_not_finish(models):
    size = 1 << 16
    with in_process(models["tickets"], "--max-body", str(size), "--timeout", "60") as server:
        held = []
        for _ in range(17):  # more than may wait
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            connection.sendall(SIZED % size + b" " * (size - 1))
            held.append(connection)
        time.sleep(0.5)
        for _ in range(3):
            assert server.predict(text="my card is gone").status == 200
        for connection in held:
            connection.close()
