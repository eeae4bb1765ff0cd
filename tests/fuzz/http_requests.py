"""The target of requests: whatever is sent to a server, it answers as it should and goes on."""

import functools
import json
import logging
import socket
import struct
import threading

import numpy as np

from ltls import LTLSClassifier, TableClassifier, TextClassifier
from ltls.settings import Table

from .mutate import VALUES, mutated_bytes, mutated_json, pick

WAIT_S = 0.02  # for an answer to a request that may be incomplete; the client then leaves
ANSWERS = frozenset({400, 404, 405, 408, 413, 415, 422, 431, 501, 503, 504})
WORDS = [
    b"\r\n", b"\r\n\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"%00", b"..%2f",
    b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Content-Encoding: gzip\r\n",
    b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"Authorization: Bearer x\r\n", b"\0",
    b"GET / HTTP/1.1\r\n\r\n", b"HTTP/9.9", b"Inference-Header-Content-Length: 7\r\n", b"\xff",
    b"/v2/models/",
]  # fmt: skip
BODIES = [
    ("/predict", {"model": "text", "text": ["my card", "a fee"], "k": 2, "proba": True}),
    ("/predict", {"model": "text", "text": "my card", "k": 3, "trellis": 0, "explain": False}),
    ("/predict", {"model": "rows", "rows": [[0, 1, 0, 0.5], [1, 0, 0, 0]], "k": 2}),
    ("/predict", {"model": "rows", "rows": [{"indices": [0, 3], "values": [1.5, -2]}]}),
    ("/predict", {"model": "table", "rows": [{"item": "a", "price": 2, "vector": [1, 2, 3]}]}),
    ("/predict", {"model": "text", "text": ["my card", ""], "explain": True, "trellis": 1}),
    (
        "/v2/models/text/infer",
        {
            "id": "1",
            "inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}],
            "outputs": [{"name": "labels", "parameters": {"binary_data": True}}],
            "parameters": {"k": 2, "binary_data_output": True},
        },
    ),
    (
        "/v2/models/rows/infer",
        {
            "inputs": [
                {"name": "indptr", "shape": [3], "datatype": "INT64", "data": [0, 1, 2]},
                {"name": "indices", "shape": [2], "datatype": "INT32", "data": [0, 3]},
                {"name": "values", "shape": [2], "datatype": "FP32", "data": [1, 0.5]},
            ]
        },
    ),
    (
        "/v2/models/rows/infer",
        {
            "inputs": [
                {"name": "features", "shape": [1, 4], "datatype": "FP64", "data": [[0, 1, 2, 3]]}
            ],
            "outputs": [{"name": "labels"}, {"name": "probabilities"}],
        },
    ),
    (
        "/v2/models/rows/infer",
        {
            "inputs": [
                {"name": "features", "shape": [1, 2**40, 2**40, 0], "datatype": "INT8", "data": []}
            ]
        },
    ),
    (
        "/v2/models/rows/infer",
        {
            "inputs": [
                {"name": "indices", "shape": [0], "datatype": "INT64", "data": []},
                {"name": "values", "shape": [0, 2**40], "datatype": "FP16", "data": []},
            ]
        },
    ),
    (
        "/v2/models/table/infer",
        {
            "inputs": [
                {"name": "item", "shape": [1], "datatype": "BYTES", "data": ["tea"]},
                {"name": "price", "shape": [1], "datatype": "INT8", "data": [2]},
                {"name": "vector", "shape": [1, 3], "datatype": "INT8", "data": [-128, 0, 1]},
            ]
        },
    ),
]  # fmt: skip
PATHS = [
    "/",
    "/models",
    "/metrics",
    "/page.js",
    "/v2",
    "/v2/health/ready",
    "/v2/models/text",
    "/%2e%2e/",
]


class _Errors(logging.Handler):
    """Keeps what the server logs as errors."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.found = []

    def emit(self, record):
        self.found.append(f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}")


@functools.cache
def server():
    """Start a server in a thread of this process, for as long as it lives."""
    import tempfile
    from pathlib import Path

    from serving import in_thread

    from ltls.serve import Settings

    kept = tempfile.TemporaryDirectory()
    folder = Path(kept.name)
    X, texts = np.eye(4, dtype=np.float32), ["my card", "a fee", "the login", "no idea"]
    table = [{"item": text, "price": n, "vector": [n, 1, 0]} for n, text in enumerate(texts)]
    LTLSClassifier(random_state=0).fit(X, [0.0, 1e300, 16777217.0, -1.0]).save(folder / "rows.ltls")
    TextClassifier(random_state=0).fit(texts, list("abcd")).save(folder / "text.ltls")
    columns = Table(text="item", number="price", vectors="vector")
    mixed = TableClassifier(features=columns, random_state=0).fit(table, [7, 2**62, -1, 0])
    mixed.save(folder / "table.ltls")
    settings = Settings(
        models={path.stem: path for path in folder.iterdir()},
        max_body=1 << 20,
        timeout=0.5,
        reload=0,
        access_log=False,
    )
    context = in_thread(settings)
    running, errors = context.__enter__(), _Errors()
    for name in ("ltls.serve", "uvicorn"):
        logging.getLogger(name).handlers[:] = [errors]
    given = {"model": "text", "text": ["a"] * 500, "proba": True}
    threads = [threading.Thread(target=running.predict, kwargs=given) for _ in range(8)]
    for thread in threads:  # so that all its threads have begun
        thread.start()
    for thread in threads:
        thread.join()
    errors.found.clear()
    return running, errors, (context, kept)


def generate(rng, folder):
    """Return a suffix and the bytes of a request with some changes."""
    if rng.random() < 0.1:
        path, body, method = pick(rng, PATHS), b"", pick(rng, ["GET", "HEAD", "OPTIONS", "PUT"])
    else:
        path, value = pick(rng, BODIES)
        method = "POST"
        value = mutated_json(rng, value, int(rng.integers(0, 3)))
        if isinstance(value, dict) and rng.random() < 0.1:
            value[pick(rng, ["k", "text", "rows", "model", "trellis", "inputs"])] = pick(
                rng, VALUES
            )
        body = json.dumps(value).encode()
    headers = []
    if rng.random() < 0.15:
        headers.append(f"Inference-Header-Content-Length: {len(body) + int(rng.integers(-1, 2))}")
        texts = [b"card", b"\xff", b"", bytes(rng.bytes(5))][: int(rng.integers(5))]
        body += b"".join(
            struct.pack("<I", len(each) + (rng.random() < 0.1)) + each for each in texts
        )
    if rng.random() < 0.15:
        body = mutated_bytes(rng, body)
    length = len(body) + (int(rng.integers(-2, 3)) if rng.random() < 0.1 else 0)
    head = "\r\n".join(
        [
            f"{method} {path} HTTP/1.1",
            "Host: localhost",
            "Connection: close",
            f"Content-Length: {length}",
            *headers,
        ]
    )
    content = head.encode() + b"\r\n\r\n" + body
    if rng.random() < 0.2:
        content = mutated_bytes(rng, content, WORDS)
    return ".http", content


def run(content, path):
    """Send a request; return whether it was answered with 200."""
    running, errors, _ = server()
    received = _sent(running, content)
    assert not errors.found, errors.found.pop()
    for status in _statuses(received):
        assert status < 400 or status in ANSWERS, received[:300]
    if not received:
        alive = _sent(
            running,
            b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            4,
        )
        assert _statuses(alive) == [200], "the server does not answer any more"
    return 200 in _statuses(received)


def _sent(running, content, wait=WAIT_S):
    """Return what comes back until the server closes the connection, or nothing more comes."""
    received = b""
    with socket.create_connection(("127.0.0.1", running.port), timeout=4) as connection:
        try:
            connection.sendall(content)
            connection.settimeout(wait)
            while part := connection.recv(1 << 16):
                received += part
        except (TimeoutError, ConnectionError):
            pass
    return received


def _statuses(received):
    """Return the status codes of all answers in what was received."""
    lines = [line for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    return [int(line.split()[1]) for line in lines]
