"""Checks of every request: host, token and concurrency limit; also metrics and the log."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import random
import re
import socket
import time
from contextlib import suppress

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .connection import Connection
from .messages import RequestError, quoted
from .monitoring import Metrics, log
from .settings import Settings
from .work import busy, disconnected

OPEN_ROUTES = frozenset(
    {"/", "/page.css", "/page.js", "/v2/health/live", "/v2/health/ready"}
)  # need no token and have no limit: they reveal nothing about the models, and cost nothing
_REQUEST_ID = re.compile(rb"[\w.-]{1,64}", re.ASCII)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")


class Gate:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        token = settings.token
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._any_host = token is not None or "*" in settings.allowed_hosts
        names = (*settings.allowed_hosts, "localhost", socket.gethostname())
        self._hosts = frozenset(name.lower() for name in names)
        self._n_running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id"))
        connection: Connection | None = scope.setdefault("state", {}).get("connection")

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        self._n_running += 1
        self._metrics.in_progress.inc()
        error: RequestError | None = None
        try:
            # The times to receive, to work and to send. Then uvicorn closes unfinished requests.
            with anyio.move_on_after(3 * self._settings.timeout):
                if connection is not None and connection.is_closing:
                    status = 400  # uvicorn has found that the body is malformed, and said so
                    await disconnected(receive)
                else:
                    self._check(scope, headers)
                    await self._app(scope, receive, send_and_note)
        except RequestError as refused:
            # Its traceback leads back to it, and would keep the request until the next collection.
            error = refused.with_traceback(None)
        except asyncio.CancelledError:  # the server shuts down
            error = busy("the server is shutting down")
        except Exception:
            log(logging.ERROR, "error", exc_info=True, request=request_id)
            error = RequestError(500, "internal error; see the log of the server")
        finally:
            try:
                if error is not None and not status:
                    await error.answer()(scope, receive, send_and_note)
            finally:
                self._n_running -= 1
                self._metrics.in_progress.dec()
            self._note(scope, status, time.perf_counter() - started, request_id)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Raise an error if a request is not allowed."""
        host = headers.get(b"host", b"localhost").decode("latin-1").lower()
        if not self._any_host and not self._is_known(host):
            raise RequestError(
                400,
                f"unknown host {quoted(host)}: start the server with this name as "
                "--allowed-host, or with a token",
            )
        if scope["path"] in OPEN_ROUTES:
            return
        given = headers.get(b"authorization", b"")
        if self._expected is not None and not hmac.compare_digest(given, self._expected):
            raise RequestError(
                401,
                "a bearer token is needed: send it as the header Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )
        if self._n_running > self._settings.max_concurrency:
            raise busy(f"{self._settings.max_concurrency} requests are in progress")

    def _is_known(self, host: str) -> bool:
        """Return whether a host is a name of the server, or an address.

        A foreign page can resolve its own name to our address and then send requests as if it were
        ours (DNS rebinding). It cannot use an address as its name.
        """
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        with suppress(ValueError):
            return bool(ipaddress.ip_address(found[1].strip("[]")))
        return found[1] in self._hosts

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = str(getattr(scope.get("route"), "path", "other"))
        job = scope["state"].get("job")
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        if job is not None and status == 200:
            self._metrics.rows.labels(job.model).inc(job.n_rows)
        if self._settings.access_log:
            client = scope.get("client")
            log(
                logging.INFO,
                "request",
                method=scope["method"],
                path=scope["path"][:200],
                status=status,
                milliseconds=round(1000 * seconds, 3),
                model=job and job.model,
                rows=job and job.n_rows,
                client=client and client[0],
                request=request_id,
            )


def _request_id(given: bytes | None) -> str:
    """Return the client's request id if it is a plain word, else a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    return f"{random.getrandbits(64):016x}"
