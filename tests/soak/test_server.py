"""A server among hostile clients: memory and connections are bounded, health checks go on.

Clients send bodies of the largest size, good and bad, or in tiny chunks, do not read, trickle, say
nothing or leave; all at once, round after round, beside ordinary ones.
"""

import functools
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from serving import CHUNKED, POST, SIZED, ask, eventually, in_process

from ltls import TextClassifier

for needed in ("starlette", "uvicorn", "msgspec", "prometheus_client"):
    pytest.importorskip(needed, reason=f"needs {needed}: run make test-all")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SMALL, LARGE = 1 << 20, 8 << 20  # the largest size of bodies: the default is the latter
SLOWEST_S = 5  # health check
IDLE_S = 0.9  # the server closes connections that are idle for a second


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    words = [f"w{n} v{n % 40}" for n in range(100)] * 3
    model = TextClassifier(random_state=0).fit(words, [f"label {n}" for n in range(100)] * 3)
    path = tmp_path_factory.mktemp("models") / "words.ltls"
    model.save(path)
    return path


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


@functools.cache
def bodies(size):
    """Return bodies of a size."""

    def body(head, item, tail=b"]}"):
        """Return a body that repeats an item."""
        n = (size - len(head) - len(tail)) // (len(item) + 1)
        return head + b",".join([item] * n) + tail

    return [
        body(b'{"text": [', b'"w1 v1"'),
        body(b'{"text": [', b"1"),
        body(b'{"rows": [', b"[]"),
        body(b'{"rows": [{"indices": [', b"3", b"]}]}"),
        b'{"text": "%s"}' % (b"w1 v1 " * (size // 6 - 10)),
        b"[" * size,
    ]


MANY = json.dumps({"text": ["w1 v1"] * 500, "k": 100}).encode()


def large(server, rng, size):
    content = bodies(size)[rng.integers(len(bodies(size)))]
    with Client(server) as client:
        client.send(SIZED % len(content) + content)
        status = client.socket.recv(12)[9:12]
        return status in (b"200", b"400", b"408", b"413", b"422", b"503", b"504") or status


def unread(server, rng, size):
    with Client(server) as client:
        client.send(20 * (SIZED % len(MANY) + MANY))
        time.sleep(1)
        return True


def pipelined(server, rng, size):
    with Client(server) as client:
        one = b"GET /page.js HTTP/1.1\r\nhost: localhost\r\n\r\n"
        while client.send(1000 * one):
            time.sleep(0.01)
        return True


def trickled_head(server, rng, size):
    with Client(server) as client:
        for byte in POST + b"x: " + b"a" * 200:
            if not client.send(bytes([byte])):
                return True
            time.sleep(0.05)
        return client.closed()


def trickled_body(server, rng, size):
    with Client(server) as client:
        client.send(SIZED % 1000)
        for _ in range(200):
            if not client.send(b" "):
                return True
            time.sleep(0.05)
        return client.closed()


def silent(server, rng, size):
    with Client(server) as client:
        return client.closed()


def leaving(server, rng, size):
    for content in (SIZED % len(MANY) + MANY, SIZED % size + bodies(size)[0][:1000], b"GET"):
        with Client(server) as client:
            client.send(content)
            time.sleep(rng.uniform(0, 0.1))
    return True


def tiny_chunks(server, rng, size):
    with Client(server) as client:
        client.send(CHUNKED)
        while client.send(10_000 * b"1\r\n \r\n"):
            pass
        return True


def ordinary(server, rng, size):
    """Ask for one row after another; while the server is busy it may say so."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        answered = time.monotonic()
        for label in rng.integers(100, size=N_ORDINARY):
            try:
                answer = ask(connection, "POST", "/predict", {"text": f"w{label} v{label % 40}"})
            except ConnectionError:
                if time.monotonic() - answered < IDLE_S:
                    raise
                connection.close()  # it was idle
                continue
            finally:
                answered = time.monotonic()
            if answer.status == 200:
                if answer.json["predictions"][0]["labels"][0] != f"label {label}":
                    return label, answer.json
            elif answer.status not in (503, 504):
                return answer.status
        return True


N_ORDINARY = 250
CLIENTS = [
    large, large, large, unread, pipelined, trickled_head, trickled_body, tiny_chunks, tiny_chunks,
    silent, leaving, ordinary, ordinary, ordinary, ordinary,
]  # fmt: skip


def round_of(server, rng, size, failed):
    """Run all clients at once; return when they have ended."""

    def run(client, seed):
        try:
            good = client(server, np.random.default_rng(seed), size)
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
    ("seconds", "size"),
    [(0, SMALL), (0, LARGE), pytest.param(HOUR, LARGE, marks=pytest.mark.long)],
    ids=["one round", "of large bodies", "an hour"],
)
def test_a_server_goes_on_among_hostile_clients(path, record_property, seconds, size):
    options = ("--timeout", "1", "--max-body", size, "--drain", "2", "--no-access-log")
    rng, failed, times = np.random.default_rng(0), [], []
    bodies(size)  # takes longer than the server waits for them
    start = time.monotonic()
    with in_process(path, *options) as server:
        usual, n_usual = server.memory(), server.n_files()
        while not times or time.monotonic() < start + seconds:
            threads = round_of(server, rng, size, failed)
            while any(thread.is_alive() for thread in threads):
                times.append(health_check(server))
                time.sleep(0.02)
        assert not failed
        assert max(times) < SLOWEST_S
        peak = server.memory("VmHWM") - usual
        # Per request 16 times its bytes in each of up to four threads, and 16 bodies that wait.
        assert peak < (16 * min(os.cpu_count() or 1, 4) + 16) * size + (64 << 20)
        assert eventually(lambda: server.n_files() <= n_usual + 1)
        assert server.predict(text="w3 v3").json["predictions"][0]["labels"][0] == "label 3"
        record_property("requests", n_requests(server))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
    record_property("health_checks", len(times))
    record_property("slowest_health_check_s", max(times))
    record_property("seconds", time.monotonic() - start)
    record_property("bytes", peak)


def n_requests(server):
    """Return the number of requests that a server counted, without health checks."""
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    counted = [line for line in lines if line.startswith("ltls_requests_total{")]
    return sum(int(float(line.split()[-1])) for line in counted if "/health/" not in line)


def health_check(server):
    """Return the seconds until a health check is answered."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=2 * SLOWEST_S) as check:
        check.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert check.recv(12) == b"HTTP/1.1 200"
    return time.monotonic() - start


def test_connections_that_take_all_descriptors_are_closed(path):
    resource = pytest.importorskip("resource")
    with in_process(path, "--timeout", "1") as server:
        n_usual = server.n_files()
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (n_usual + 20, limits[1]))
        clients = [Client(server) for _ in range(60)]
        for client in clients[::2]:
            client.send(b"GET /v2/health/live HTTP/1.1\r\n")
        assert server.ask("GET", "/v2/health/live").status == 200  # when they are closed
        assert all(client.closed() for client in clients)
        for client in clients:
            client.socket.close()
