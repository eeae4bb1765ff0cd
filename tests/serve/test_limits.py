"""Limits of size, time and number, who is let in, and what errors look like."""

import http.client
import socket
import threading

import pytest
from serving import POST, ask

from ltls.serve import Settings


@pytest.fixture(scope="module")
def small(serving):
    """A server with narrow limits."""
    with serving(max_body=2000, max_rows=4, max_concurrency=2, timeout=0.5) as server:
        yield server


@pytest.fixture
def slow(monkeypatch):
    """Probabilities that wait for an event."""
    from ltls.serve.models import ServedModel

    ready, begun = threading.Event(), threading.Semaphore(0)
    real = ServedModel.best

    def wait(self, items, k, proba=False, first=0):
        if proba:
            begun.release()
            ready.wait(20)
        return real(self, items, k, proba, first)

    monkeypatch.setattr(ServedModel, "best", wait)
    yield ready, begun
    ready.set()


def raw(server, content, wait=10):
    """Send bytes; return all that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as connection:
        connection.sendall(content)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def test_a_body_that_is_too_large(small):
    answer = small.ask("POST", "/predict", {"text": "a" * 3000})
    assert answer.status == 413
    assert "at most 2000 bytes" in answer.json["error"]


def test_a_chunked_body_that_is_too_large(small):
    head = POST + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    chunk = b"1f4\r\n" + b"a" * 500 + b"\r\n"
    assert b" 413 " in raw(small, head + 10 * chunk + b"0\r\n\r\n")
    assert b" 400 " in raw(small, head + 2 * chunk + b"0\r\n\r\n")  # no JSON


def test_a_body_that_announces_nonsense(small):
    for length in (b"-1", b"99999999999999999999999", b"1e3", b"2, 3"):
        received = raw(small, POST + b"content-length: " + length + b"\r\n\r\n{}")
        assert received.split()[1] in (b"400", b"413"), length


def test_a_body_that_is_malformed_from_the_beginning(small, monkeypatch, caplog):
    monkeypatch.setattr("ltls.serve.monitoring.logger.propagate", True)
    for path in (b"/predict", b"/nowhere", b"/v2/health/live"):
        head = POST.replace(b"/predict", path) + b"transfer-encoding: chunked\r\n\r\n"
        received = raw(small, head + b"no chunk\r\n")
        assert received.startswith(b"HTTP/1.1 400 ")
        assert received.count(b"HTTP/1.1 ") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    found = small.ask("GET", "/metrics").body.decode()
    assert 'ltls_requests_total{route="other",status="400"} 3.0' in found


def test_too_many_rows(small):
    assert small.predict(text=["a"] * 5).status == 413
    assert small.predict(text=["a"] * 4).status == 200


def test_a_body_that_does_not_arrive(small):
    assert b" 408 " in raw(small, POST + b"connection: close\r\ncontent-length: 10\r\n\r\n{")


def test_headers_that_are_too_long(small):
    for head in (b"GET /" + b"a" * 40_000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9000):
        assert b" 400 " in raw(small, head + b"\r\n\r\n")
    rest = b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert b" 404 " in raw(small, b"GET /" + b"a" * 9000 + rest)


def test_an_answer_that_takes_too_long(small, slow):
    answer = small.predict(text="a", proba=True)
    assert answer.status == 504
    assert "longer than 0.5 s" in answer.json["error"]
    slow[0].set()
    assert small.predict(text="a", proba=True).status == 200


def test_too_many_requests_at_once(serving, slow):
    ready, begun = slow
    with serving(max_concurrency=2) as server:
        answers = []
        given = {"text": "a", "proba": True}
        threads = [
            threading.Thread(target=lambda: answers.append(server.predict(**given)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=20)
        refused = server.predict(text="a")
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert server.ask("GET", "/v2/health/live").status == 200
        ready.set()
        for thread in threads:
            thread.join()
        assert [answer.status for answer in answers] == [200, 200]
        assert server.predict(text="a").status == 200


def test_compressed_requests_are_refused(small):
    assert small.ask("POST", "/predict", b"x", Content_Encoding="gzip").status == 415


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/nowhere", 404, "no such path; GET /openapi.json lists all paths"),
        ("GET", "/../../etc/passwd", 404, "no such path"),
        ("GET", "/page.js/..%2f..%2fapp.py", 404, "no such path"),
        ("GET", "/v2/models/..%2ftickets", 404, "no such path"),
        ("GET", "/v2/models/tickets.ltls", 404, "no model 'tickets.ltls'"),
        ("GET", "/predict", 405, "this path takes POST, not GET"),
        ("DELETE", "/v2/models/tickets", 405, "this path takes GET or HEAD, not DELETE"),
        ("POST", "/v2/repository/models/tickets/load", 404, "no such path"),
    ],
)
def test_what_there_is_not(small, method, path, status, message):
    answer = small.ask(method, path)
    assert answer.status == status
    assert set(answer.json) == {"error"}
    assert message in answer.json["error"]


def test_an_error_of_ours_does_not_end_the_server(small, monkeypatch, caplog):
    from ltls.serve.models import ServedModel

    def fail(*_):
        raise RuntimeError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(ServedModel, "best", fail)
        patch.setattr("ltls.serve.monitoring.logger.propagate", True)
        answer = small.predict(text="a")
    assert answer.status == 500
    assert b"secret" not in answer.body
    failed = [record for record in caplog.records if record.getMessage() == "error"]
    assert "secret" in str(failed[0].exc_info[1])
    assert small.predict(text="a").status == 200


def test_a_token_is_needed_where_one_is_set(serving):
    with serving(token="s3cret") as server:
        for path in ("/", "/page.js", "/page.css", "/v2/health/live", "/v2/health/ready"):
            assert server.ask("GET", path).status == 200
        for path in ("/models", "/metrics", "/v2", "/v2/models/tickets", "/openapi.json", "/x"):
            refused = server.ask("GET", path)
            assert refused.status == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert server.ask("GET", path, Authorization="Bearer s3cret").status != 401
        body = {"text": "a"}
        assert server.ask("POST", "/predict", body, Authorization="Bearer s3cret").status == 200
        for wrong in ("Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret", "Bearer \xe9"):
            assert server.ask("POST", "/predict", body, Authorization=wrong).status == 401


def test_other_origins_may_not_read_answers_unless_told(small, serving):
    asked = {"Origin": "https://example.org"}
    assert not [name for name in small.ask("GET", "/models", **asked).headers if "allow" in name]
    preflight = {**asked, "Access_Control_Request_Method": "POST"}
    assert small.ask("OPTIONS", "/predict", **preflight).status == 405
    with serving(cors_origins=("https://example.org",)) as server:
        answer = server.ask("OPTIONS", "/predict", **preflight)
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        other = server.ask("GET", "/models", Origin="https://example.com")
        assert "access-control-allow-origin" not in other.headers


KNOWN = ["localhost:8000", "LOCALHOST", "192.0.2.7:80", "[2001:db8::1]:80", "models.example.org"]
UNKNOWN = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:80@evil"]


def test_hosts_that_are_not_known_are_refused(serving):
    with serving(allowed_hosts=("models.example.org",)) as server:
        for path in ("/", "/models", "/v2/health/live"):
            for host in [*KNOWN, socket.gethostname()]:
                assert server.ask("GET", path, Host=host).status == 200
            for host in UNKNOWN:
                answer = server.ask("GET", path, Host=host)
                assert answer.status == 400
                assert answer.json["error"].startswith(f"unknown host '{host}'")
        for head in (b"GET / HTTP/1.1\r\nhost:\r\n", b"GET / HTTP/1.1\r\nhost: \r\n"):
            assert b" 400 " in raw(server, head + b"connection: close\r\n\r\n")
    for others in ({"token": "abc"}, {"allowed_hosts": ("*",)}):
        with serving(**others) as server:
            answer = server.ask("GET", "/models", Host="evil.example", Authorization="Bearer abc")
            assert answer.status == 200


def test_nothing_redirects(serving):
    with serving(token="abc") as server:
        for path in ("/models/", "//models", "/v2/", "/predict/", "//evil.example/.."):
            given = {"Host": "evil.example", "Authorization": "Bearer abc"}
            answer = server.ask("GET", path, **given)
            assert answer.status == 404
            assert "evil" not in str(answer.headers)


def test_requests_have_ids(small):
    assert small.ask("GET", "/v2", X_Request_Id="a-1").headers["x-request-id"] == "a-1"
    made = small.ask("GET", "/v2", X_Request_Id='"},{').headers["x-request-id"]
    assert len(made) == 16
    assert small.ask("GET", "/v2").headers["x-request-id"] != made


def test_connections_are_kept_alive(small):
    connection = http.client.HTTPConnection("127.0.0.1", small.port, timeout=10)
    for body in ({"text": "a"}, {"text": 1}, {"text": "b"}):
        ask(connection, "POST", "/predict", body)
    port = connection.sock.getsockname()[1]
    assert ask(connection, "GET", "/v2").status == 200
    assert connection.sock.getsockname()[1] == port
    connection.close()


def test_metrics(serving):
    with serving() as server:
        for text in ("a", ["b", "c"], 1):
            server.predict(text=text)
        server.ask("GET", "/secret/path")
        text = server.ask("GET", "/metrics").body.decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['ltls_requests_total{route="/predict",status="200"}'] == "2.0"
    assert values['ltls_requests_total{route="/predict",status="422"}'] == "1.0"
    assert values['ltls_rows_total{model="tickets"}'] == "3.0"
    assert values['ltls_request_seconds_count{route="/predict"}'] == "3.0"
    assert values['ltls_model_loads_total{model="tickets",outcome="loaded"}'] == "1.0"
    assert values["ltls_requests_in_progress"] == "1.0"
    assert "secret" not in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": {}}, "'models' .* must be a dict of model files"),
        ({"max_rows": 0}, "'max_rows' .* must be an integer of at least 1, got 0"),
        ({"timeout": 0}, "'timeout' .* must be a number above 0, got 0"),
        ({"timeout": float("nan")}, "'timeout' .* must be a number above 0"),
        ({"reload": -1}, "'reload' .* must be a number of at least 0"),
        ({"token": ""}, "'token' .* must be a non-empty ASCII string"),
        ({"token": "é"}, "'token' .* must be a non-empty ASCII string"),
    ],
)
def test_settings_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        Settings(**{"models": {"a": "a.ltls"}, **given})


def test_pipelined_requests_are_answered_up_to_a_limit(server):
    one = b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
    answers = raw(server, 100 * one).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200"] * 32
    assert [b"connection: close" in answer for answer in answers] == [False] * 31 + [True]


def test_pipelined_preflights_are_answered_up_to_the_limit(serving):
    head = b"origin: https://example.org\r\naccess-control-request-method: POST\r\n"
    one = b"OPTIONS /predict HTTP/1.1\r\nhost: localhost\r\n" + head + b"\r\n"
    with serving(cors_origins=("https://example.org",)) as server:
        assert raw(server, 100 * one).count(b"HTTP/1.1 200") == 32


def test_what_is_malformed_after_the_last_answer_is_not_an_error_in_the_log(serving, caplog):
    with serving(token="secret") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            head = b"POST /predict HTTP/1.1\r\nhost: localhost\r\n"
            client.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
            assert b" 401 " in client.recv(1 << 16)
            client.sendall(b"ZZ\r\n")
            while client.recv(1 << 16):
                pass
        assert server.ask("GET", "/v2/health/live").status == 200
    assert "failed" not in caplog.text


def test_requests_that_wait_for_answers_have_no_limit_per_connection(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.connect()
    connection.auto_open = 0
    for _ in range(100):
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().read() == b'{"live":true}'
    connection.close()
