"""Servers to test: in a thread of this process, or as `ltls serve` in a process of its own."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

POST = b"POST /predict HTTP/1.1\r\nhost: localhost\r\n"
SIZED = POST + b"content-length: %d\r\n\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


def eventually(condition, seconds=60):
    """Wait until a condition holds, but not for ever; return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Server:
    """A running server."""

    port: int
    process: subprocess.Popen | None = None
    log: list = field(default_factory=list)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"http://{self.address}"

    def ask(self, method, path, body=None, **headers):
        """Send one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            return ask(connection, method, path, body, **headers)
        finally:
            connection.close()

    def predict(self, **body):
        return self.ask("POST", "/predict", body)

    def memory(self, key="VmRSS"):
        """Return bytes of the process: resident ones, or with "VmHWM" the most there were."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(f"{key}:")[1].split()[0]) << 10

    def n_files(self):
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


def ask(connection, method, path, body=None, **headers):
    """Send one request; anything but bytes is sent as JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    connection.request(
        method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    response = connection.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


@contextmanager
def in_thread(settings):
    """Serve in a thread of this process."""
    import uvicorn

    from ltls.serve.running import configuration

    config = configuration(settings)
    config.port, config.log_config = 0, None
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    try:
        yield Server(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@contextmanager
def in_process(*words, **environment):
    """Run `ltls serve` on a free port; its log is collected as JSON objects."""
    kept = {key: value for key, value in os.environ.items() if key != "LTLS_SERVE_TOKEN"}
    process = subprocess.Popen(
        [sys.executable, "-m", "ltls", "serve", *map(str, words), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**kept, **environment},
    )
    server = Server(0, process)
    reader = threading.Thread(target=_read, args=(process.stderr, server.log), daemon=True)
    reader.start()
    try:
        server.port = _port(server)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if server.ask("GET", "/v2/health/ready").status == 200:
                    break
            except OSError:
                time.sleep(0.05)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reader.join(10)
        process.stderr.close()


def _read(stream, log):
    for line in stream:
        log.append(_entry(line))


def _entry(line):
    try:
        return json.loads(line)
    except ValueError:
        return {"event": line}


def _port(server):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for entry in list(server.log):
            if "running on http://" in entry["event"]:
                return int(entry["event"].split("http://")[1].split()[0].rsplit(":", 1)[1])
        assert server.process.poll() is None, server.log
        time.sleep(0.02)
    raise AssertionError(f"the server did not start: {server.log}")
