"""Running the server: one process or several, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import functools
import os
import signal
import tempfile

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.supervisors import Multiprocess

from . import logs
from .app import create_app
from .connection import LimitedConnection
from .settings import Settings


def configuration(settings: Settings, log_level: str = "info", workers: int = 1) -> uvicorn.Config:
    """Return uvicorn's configuration."""
    return uvicorn.Config(
        functools.partial(create_app, settings),
        factory=True,
        http=LimitedConnection,
        ws="none",
        lifespan="on",
        log_config=logs.configuration(log_level),
        access_log=False,  # ours has more to say
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(settings.drain)),
        timeout_worker_healthcheck=20,  # a worker that is importing does not answer
        workers=workers,
    )


class Workers(Multiprocess):
    """uvicorn's processes; the parent stops listening when they do."""

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have died; what they were doing is no longer in progress."""
        before = {each.pid for each in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {each.pid for each in self.processes}:
            mark_process_dead(pid)

    def terminate_all(self) -> None:
        """Ask all workers to finish."""
        for each in self.sockets:  # else new connections would wait for nobody
            each.close()
        super().terminate_all()


def run(settings: Settings, host: str, port: int, workers: int, log_level: str) -> None:
    """Serve until a signal; requests that have begun are answered before the end.

    Workers are processes that share a socket, and the memory of the mapped model files.
    """
    config = configuration(settings, log_level, workers)
    config.host, config.port = host, port
    if workers == 1:
        # uvicorn raises SIGTERM again at the end: a drained server has ended as it should.
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            uvicorn.Server(config).run()
        finally:
            signal.signal(signal.SIGTERM, before)
        return
    with tempfile.TemporaryDirectory(prefix="ltls-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # read by workers when they begin
        Workers(config, sockets=[config.bind_socket()]).run()
