"""Running the server: one process or several, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import functools
import gc
import logging
import logging.config
import math
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from ..core import _engine
from .app import create_app
from .connection import Connection
from .monitoring import FOLDER, log, log_settings
from .settings import Settings
from .work import THREADS

_GRACE = 2.0  # seconds after the drain timeout until everything must have ended
_NOT_STARTED = 3  # exit code of a worker
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def configuration(settings: Settings, log_level: str = "info") -> uvicorn.Config:
    """Return uvicorn's configuration."""
    return uvicorn.Config(
        functools.partial(create_app, settings),
        factory=True,
        http=Connection,
        timeout_keep_alive=math.ceil(settings.timeout),
        loop="asyncio",  # uvloop is no faster with it
        ws="none",
        lifespan="on",
        log_config=log_settings(log_level),
        access_log=False,  # ours has more details
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, int(settings.drain)),
    )


def listen(settings: Settings, host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another address with --host "
            "and --port"
        ) from None
    # Inherited by connections. Without it, headers wait 40 ms for the body: asyncio sets it only
    # for sockets that name their protocol, which those of `create_server` do not.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # drop connections whose clients do not read
        milliseconds = int(1000 * settings.timeout)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return listening


def run(settings: Settings, host: str, port: int, workers: int, log_level: str) -> None:
    """Serve until a signal, then finish the requests in progress.

    Workers are processes that share a socket and memory-mapped model files.
    """
    logging.config.dictConfig(log_settings(log_level))
    with listen(settings, host, port) as listening, _signals() as received:
        if workers == 1:
            with _ended_within(settings.drain + 2 * _GRACE):
                _serve(settings, listening, log_level, received)
        else:
            _supervise(settings, listening, log_level, workers, received)
    if signal.SIGINT in received:
        raise KeyboardInterrupt


@contextmanager
def _ended_within(seconds: float) -> Iterator[None]:
    """End the process this long after a signal even if Python code in the block never yields."""
    if os.name == "nt":
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _engine.exit_after_signal(reading, seconds)  # which closes it
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Yield a list that collects the signals to end the server."""
    received: list[int] = []
    before = {each: signal.signal(each, lambda n, _: received.append(n)) for each in _SIGNALS}
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _serve(
    settings: Settings, listening: socket.socket, log_level: str, received: list[int]
) -> None:
    """Serve in a thread, so that this thread can always end the process in time."""
    # A large request has millions of values: garbage collections while it is decoded would take
    # several times as long.
    gc.freeze()
    gc.set_threshold(50_000)
    server = uvicorn.Server(configuration(settings, log_level))
    thread = threading.Thread(
        target=server.run, args=([listening],), name=f"{THREADS}-loop", daemon=True
    )
    thread.start()
    told = False
    while thread.is_alive() and not received:
        thread.join(0.1)
        if server.started and not told:  # models are loaded
            told = True
            host, port, *_ = listening.getsockname()
            address = f"[{host}]" if ":" in host else host
            log(logging.INFO, f"running on http://{address}:{port}")
    server.should_exit = True
    end = time.monotonic() + settings.drain + _GRACE
    for each in threading.enumerate():
        if each.name.startswith(THREADS):
            each.join(max(0.0, end - time.monotonic()))
            if each.is_alive():  # a thread cannot be ended, but the process can
                log(logging.ERROR, "threads are still busy at the end")
                logging.shutdown()
                os._exit(0)
    if not server.started:
        raise ValueError("the server could not start; see its log")


def _supervise(
    settings: Settings, listening: socket.socket, log_level: str, n: int, received: list[int]
) -> None:
    """Keep workers running until a signal, then let them finish."""
    spawn = multiprocessing.get_context("spawn")

    def started() -> Any:
        worker = spawn.Process(target=_worker, args=(settings, listening, log_level))
        worker.start()
        return worker

    with tempfile.TemporaryDirectory(prefix="ltls-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[FOLDER] = folder  # read by workers when they start
        workers, n_failed = [started() for _ in range(n)], 0
        try:
            while not received:
                wait([worker.sentinel for worker in workers], timeout=0.2)
                for place, worker in enumerate(workers):
                    if worker.exitcode is None or received:
                        continue
                    log(logging.ERROR, "worker ended", worker=worker.pid, code=worker.exitcode)
                    mark_process_dead(worker.pid)  # its requests are no longer in progress
                    n_failed = n_failed + 1 if worker.exitcode == _NOT_STARTED else 0
                    if n_failed > n:
                        raise ValueError("workers cannot start; see the log")
                    workers[place] = started()
        finally:
            listening.close()  # otherwise new connections would wait forever
            for worker in workers:
                worker.terminate()
            end = time.monotonic() + settings.drain + 2 * _GRACE
            for worker in workers:
                worker.join(max(0.0, end - time.monotonic()))
                worker.kill()
                worker.join()
            del os.environ[FOLDER]


def _worker(settings: Settings, listening: socket.socket, log_level: str) -> None:
    """Serve until SIGTERM, or until the parent is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    with _signals() as received:

        def follow() -> None:
            parent.join()
            received.append(signal.SIGTERM)

        threading.Thread(target=follow, daemon=True).start()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too
        try:
            _serve(settings, listening, log_level, received)
        except ValueError:
            sys.exit(_NOT_STARTED)
        finally:
            if not parent.is_alive():
                _remove_metrics()


def _remove_metrics() -> None:
    """Remove the metrics of this process, and their folder if it is the last one."""
    folder = Path(os.environ[FOLDER])
    for path in folder.glob(f"*_{os.getpid()}.db"):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
