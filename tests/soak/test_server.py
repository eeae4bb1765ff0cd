"""A server among hostile clients: memory and connections are bounded, health checks go on.

Clients send bodies of the largest size, good and bad, do not read, trickle, say nothing or leave;
all at once, round after round.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from serving import in_process

from ltls import TextClassifier

for needed in ("starlette", "uvicorn", "msgspec", "prometheus_client"):
    pytest.importorskip(needed, reason=f"needs {needed}: run make test-all")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
BODY = 1 << 20
HEAD = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
# Per request 16 times its bytes in each of up to four threads, and 16 bodies that wait.
MOST = (16 * min(os.cpu_count() or 1, 4) + 16) * BODY + (64 << 20)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    words = [f"w{n} v{n % 40}" for n in range(100)] * 3
    model = TextClassifier(random_state=0).fit(words, [f"label {n}" for n in range(100)] * 3)
    path = tmp_path_factory.mktemp("models") / "words.ltls"
    model.save(path)
    return path


def memory(server, key):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split(f"{key}:")[1].split()[0]) << 10


def n_files(server):
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def eventually(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


class Client:
    """A connection that ends with its block, and how many requests were sent."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, content):
        try:
            self.socket.sendall(content)
        except ConnectionError:
            return False
        return True

    def closed(self):
        """Read until the server closes the connection."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


def body(head, item, tail=b"]}"):
    """Return a body of the largest size that repeats an item."""
    n = (BODY - len(head) - len(tail)) // (len(item) + 1)
    return head + b",".join([item] * n) + tail


LARGE = [
    body(b'{"text": [', b'"w1 v1"'),
    body(b'{"text": [', b"1"),
    body(b'{"rows": [', b"[]"),
    body(b'{"rows": [{"indices": [', b"3", b"]}]}"),
    b'{"text": "%s"}' % (b"w1 v1 " * (BODY // 6 - 10)),
    b"[" * BODY,
]
MANY = json.dumps({"text": ["w1 v1"] * 500, "k": 100}).encode()


def large(server, rng):
    with Client(server) as client:
        content = LARGE[rng.integers(len(LARGE))]
        client.send(HEAD % len(content) + content)
        status = client.socket.recv(12)[9:12]
        return status in (b"200", b"400", b"413", b"422", b"503", b"504") or status


def unread(server, rng):
    with Client(server) as client:
        client.send(20 * (HEAD % len(MANY) + MANY))
        time.sleep(1)
        return True


def pipelined(server, rng):
    with Client(server) as client:
        one = b"GET /page.js HTTP/1.1\r\nhost: localhost\r\n\r\n"
        while client.send(1000 * one):
            time.sleep(0.01)
        return True


def trickled_head(server, rng):
    with Client(server) as client:
        for byte in b"POST /predict HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 200:
            if not client.send(bytes([byte])):
                return True
            time.sleep(0.05)
        return client.closed()


def trickled_body(server, rng):
    with Client(server) as client:
        client.send(HEAD % 1000)
        for _ in range(200):
            if not client.send(b" "):
                return True
            time.sleep(0.05)
        return client.closed()


def silent(server, rng):
    with Client(server) as client:
        return client.closed()


def leaving(server, rng):
    for content in (HEAD % len(MANY) + MANY, HEAD % BODY + LARGE[0][:1000], b"GET"):
        with Client(server) as client:
            client.send(content)
            time.sleep(rng.uniform(0, 0.1))
    return True


CLIENTS = [large, large, large, unread, pipelined, trickled_head, trickled_body, silent, leaving]


def round_of(server, rng, failed):
    """Run all clients at once; return when they have ended."""

    def run(client, seed):
        try:
            good = client(server, np.random.default_rng(seed))
        except OSError as error:
            good, client = False, f"{client}: {error}"
        if good is not True:
            failed.append((client, good))

    seeds = rng.integers(2**32, size=len(CLIENTS))
    pairs = zip(CLIENTS, seeds, strict=True)
    threads = [threading.Thread(target=run, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    return threads


HOUR = float(os.environ.get("LTLS_SOAK_SECONDS", 3600))


@pytest.mark.parametrize(
    "seconds", [0, pytest.param(HOUR, marks=pytest.mark.long)], ids=["one round", "an hour"]
)
def test_a_server_goes_on_among_hostile_clients(path, record_property, seconds):
    options = ("--timeout", "1", "--max-body", BODY, "--drain", "2", "--no-access-log")
    rng, failed, n_rounds, n_checks = np.random.default_rng(0), [], 0, 0
    end = time.monotonic() + seconds
    with in_process(path, *options) as server:
        usual, n_usual = memory(server, "VmRSS"), n_files(server)
        while n_rounds == 0 or time.monotonic() < end:
            n_rounds += 1
            threads = round_of(server, rng, failed)
            while any(thread.is_alive() for thread in threads):
                check = socket.create_connection(("127.0.0.1", server.port), timeout=5)
                check.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert check.recv(12) == b"HTTP/1.1 200"  # within five seconds
                check.close()
                n_checks += 1
                time.sleep(0.02)
        assert not failed
        peak = memory(server, "VmHWM") - usual
        assert peak < MOST
        assert eventually(lambda: n_files(server) <= n_usual + 1)
        assert server.predict(text="w3 v3").json["predictions"][0]["labels"][0] == "label 3"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
    record_property("requests", n_rounds * (len(CLIENTS) + 20) + n_checks)
    record_property("bytes", peak)


def test_connections_that_take_all_descriptors_are_closed(path):
    resource = pytest.importorskip("resource")
    with in_process(path, "--timeout", "1") as server:
        n_usual = n_files(server)
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (n_usual + 20, limits[1]))
        clients = [Client(server) for _ in range(60)]
        for client in clients[::2]:
            client.send(b"GET /v2/health/live HTTP/1.1\r\n")
        assert server.ask("GET", "/v2/health/live").status == 200  # when they are closed
        assert all(client.closed() for client in clients)
        for client in clients:
            client.socket.close()
