"""The server under load, on the loopback interface.

    python -m benchmarks.serving [--seconds 3] [--rounds 3]

It sends the texts of banking77 one by one: to ``ltls serve`` (and as rows of features, to a
model of these), to the same model behind a plain Starlette function, and to an endpoint that reads
the request and does nothing. All have one process of uvicorn with the same event loop and parser;
the client is another process. Rounds take turns, and the median counts. Then each server gets half
the requests per second that it could answer, at fixed times whether or not earlier ones have been
answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import datasets, machine, tables
from ltls import LTLSClassifier, TextClassifier

CONNECTIONS = (1, 8, 64)
N_TEXTS = 500


# Servers, each a process: python -m benchmarks.serving app NAME PORT MODEL


def app(name: str, path: str) -> Any:
    """Return an application as one would write it in a few lines."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    if name == "no-op":
        answer = b'{"labels":["a","b","c","d","e"],"scores":[1,2,3,4,5]}'

        async def endpoint(request: Request) -> Response:
            await request.body()
            return Response(answer, media_type="application/json")

    else:
        predict = predict_with_ltls(path)

        async def endpoint(request: Request) -> Response:
            question = await request.json()
            labels, scores = await run_in_threadpool(predict, question["text"], question["k"])
            return JSONResponse({"labels": labels, "scores": scores})

    return Starlette(routes=[Route("/predict", endpoint, methods=["POST"])])


def predict_with_ltls(path: str) -> Any:
    from ltls import load

    model = load(path)

    def predict(text: str, k: int) -> tuple[list[str], list[float]]:
        labels, scores = model.predict_topk([text], k)
        return labels[0].tolist(), scores[0].tolist()

    return predict


def serve_app(name: str, port: int, path: str) -> None:
    import uvicorn

    stack = {"http": "h11", "loop": "asyncio", "ws": "none"}  # that of `ltls serve`
    uvicorn.run(app(name, path), port=port, access_log=False, log_level="warning", **stack)


@contextmanager
def server(name: str, path: Path) -> Iterator[tuple[int, int]]:
    """Yield the port and the process id of a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.serving", "app", name, str(port), str(path)]
    if name.startswith("ltls serve"):
        command = [sys.executable, "-m", "ltls", "serve", str(path), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, f"{name} did not start"
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# The client


class Connection(asyncio.Protocol):
    """Sends requests one after the other, and notes how long every answer takes.

    With `interval`, a request is due at fixed times, and late ones count from when they were due.
    """

    def __init__(self, requests: list[bytes], first: int, end: float, interval: float) -> None:
        self.requests, self.number, self.end, self.interval = requests, first, end, interval
        self.loop = asyncio.get_running_loop()
        self.done, self.received = self.loop.create_future(), b""
        self.seconds: list[float] = []
        self.n_failed = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.free = time.perf_counter()
        self.due = self.free + self.interval * (self.number % 97) / 97
        self.loop.call_later(self.due - self.free, self.ask)

    def ask(self) -> None:
        now = time.perf_counter()
        if now >= self.end:
            self.transport.close()
            return
        # Timers are late by up to a millisecond; that is not the server's fault.
        self.started = self.due if self.interval and self.free > self.due else now
        self.transport.write(self.requests[self.number % len(self.requests)])
        self.number += 1

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.split(b"content-length: ")[1].split(b"\r\n")[0]):
            return
        self.free = time.perf_counter()
        self.seconds.append(self.free - self.started)
        self.n_failed += not head.startswith(b"HTTP/1.1 200")
        self.received = b""
        self.due += self.interval
        if self.interval and self.due > self.free:
            self.loop.call_later(self.due - self.free, self.ask)
        else:
            self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self.n_failed += exc is not None
        self.done.set_result(None)


async def ask(
    port: int, requests: list[bytes], n_connections: int, seconds: float, per_second: float
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    end = time.perf_counter() + seconds
    interval = n_connections / per_second if per_second else 0.0
    connections = [
        (
            await loop.create_connection(
                lambda i=i: Connection(requests, 13 * i, end, interval), "127.0.0.1", port
            )
        )[1]
        for i in range(n_connections)
    ]
    await asyncio.gather(*(each.done for each in connections))
    times = sorted(t for each in connections for t in each.seconds)
    return {
        "requests": len(times),
        "failed": sum(each.n_failed for each in connections),
        "p50_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[int(0.99 * len(times))],
    }


def measure(
    port: int, pid: int, requests: list[bytes], n: int, seconds: float, per_second: float = 0.0
) -> dict[str, float]:
    """Return requests per second, latencies, and the processor time of server and client."""
    try:
        from uvloop import run
    except ImportError:  # the client takes more of the processor then, as `client_share` says
        from asyncio import run

    own, theirs, start = time.process_time(), processor_seconds(pid), time.perf_counter()
    found: dict[str, float] = run(ask(port, requests, n, seconds, per_second))
    wall = time.perf_counter() - start
    assert not found["failed"], f"{found['failed']} requests failed"
    found["per_second"] = found["requests"] / wall
    found["client_share"] = (time.process_time() - own) / wall
    found["server_share"] = (processor_seconds(pid) - theirs) / wall
    found["server_us"] = 1e6 * (processor_seconds(pid) - theirs) / found["requests"]
    return found


def requests_of(texts: list[str], vectorizer: Any = None) -> list[bytes]:
    """Return requests of one text each, or of its features."""
    questions: list[dict[str, Any]] = [{"text": text} for text in texts]
    if vectorizer is not None:
        found = [[part.tolist() for part in vectorizer.row(text)] for text in texts]
        questions = [{"rows": [{"indices": row[0], "values": row[1]}]} for row in found]
    bodies = [json.dumps({**question, "k": 5}).encode() for question in questions]
    head = "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]


# The benchmarks


def trained(folder: Path) -> tuple[dict[str, Path], Any]:
    """Train the models of all servers; also return a vectorizer."""
    texts, labels = datasets.texts("banking77", "train")
    path, rows_path = folder / "banking77.ltls", folder / "rows.ltls"
    model = TextClassifier(random_state=0).fit(texts, labels)
    model.save(path)
    vectorizer = model.model_.front_end
    LTLSClassifier(random_state=0).fit(vectorizer.transform(texts), labels).save(rows_path)
    return {
        "no-op": path,
        "ltls serve": path,
        "ltls serve, rows": rows_path,
        "plain": path,
    }, vectorizer


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


def load(options: argparse.Namespace) -> dict[str, Any]:
    texts = datasets.texts("banking77", "test")[0][:N_TEXTS]
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as name:
        servers, vectorizer = trained(Path(name))
        for turn in range(options.rounds):
            for title, path in servers.items():
                requests = requests_of(texts, vectorizer if title.endswith("rows") else None)
                with server(title, path) as (port, pid):
                    measure(port, pid, requests, 8, 0.5)
                    own = found.setdefault(title, {})
                    for n in CONNECTIONS:
                        result = measure(port, pid, requests, n, options.seconds)
                        own.setdefault(str(n), []).append(result)
                    half = own["8"][-1]["per_second"] / 2
                    result = measure(port, pid, requests, 8, options.seconds, half)
                    own.setdefault("half", []).append(result)
                machine.say(f"round {turn + 1}: {title}")
    return {
        "about": machine.description("starlette", "uvicorn"),
        "seconds": options.seconds,
        "rounds": options.rounds,
        "servers": {
            title: {case: medians(rounds) for case, rounds in own.items()}
            for title, own in found.items()
        },
    }


def main() -> None:
    if sys.argv[1:2] == ["app"]:
        name, port, path = sys.argv[2:]
        serve_app(name, int(port), path)
        return
    parser = machine.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    options = parser.parse_args()
    result = load(options)
    machine.write("serving", result, options.output)
    print("\n".join(tables.serving(result)))


if __name__ == "__main__":
    main()
