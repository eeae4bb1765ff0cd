"""What every request passes: the token, the limit of concurrency, metrics and the log."""

from __future__ import annotations

import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .logs import log
from .metrics import Metrics
from .settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

OPEN_ROUTES = frozenset(
    {"/", "/page.css", "/page.js", "/v2/health/live", "/v2/health/ready"}
)  # without a token: they tell nothing about the models
_REQUEST_ID = re.compile(rb"[\w.-]{1,64}", re.ASCII)


class Gate:
    """ASGI middleware around the application.

    Parameters
    ----------
    app : ASGI application
    settings : Settings
    metrics : Metrics
    """

    def __init__(self, app: Any, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        token = settings.token
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._n_running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        headers = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id"))
        state = scope.setdefault("state", {})

        async def send_and_note(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        self._n_running += 1
        self._metrics.in_progress.inc()
        try:
            refusal = self._refusal(scope, headers)
            if refusal is None:
                await self._app(scope, receive, send_and_note)
            else:
                await _refuse(send_and_note, *refusal)
        except Exception:
            log(logging.ERROR, "error", exc_info=True, request=request_id.decode())
            if not status:
                await _refuse(send_and_note, 500, "internal error; see the log of the server", {})
        finally:
            self._n_running -= 1
            self._metrics.in_progress.dec()
            seconds = time.perf_counter() - started
            self._metrics.observe(_route(scope), status, seconds)
            if "n_rows" in state and status == 200:
                self._metrics.rows.labels(state["model"]).inc(state["n_rows"])
            if self._settings.access_log:
                self._log(scope, status, seconds, request_id)

    def _refusal(
        self, scope: Scope, headers: dict[bytes, bytes]
    ) -> tuple[int, str, dict[str, str]] | None:
        """Return status, message and headers if a request is not let in."""
        if self._expected is not None and scope["path"] not in OPEN_ROUTES:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                return 401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"}
        if self._n_running > self._settings.max_concurrency and scope["method"] == "POST":
            limit = self._settings.max_concurrency
            return 503, f"{limit} requests are being handled: try again", {"Retry-After": "1"}
        return None

    def _log(self, scope: Scope, status: int, seconds: float, request_id: bytes) -> None:
        state = scope["state"]
        client = scope.get("client")
        log(
            logging.INFO,
            "request",
            method=scope["method"],
            path=scope["path"][:200],
            status=status,
            milliseconds=round(1000 * seconds, 3),
            model=state.get("model"),
            rows=state.get("n_rows"),
            client=client[0] if client else None,
            request=request_id.decode(),
        )


def _request_id(given: bytes | None) -> bytes:
    """Return the client's id of a request if it is a plain word, else a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return secrets.token_hex(8).encode()


def _route(scope: Scope) -> str:
    """Return the pattern of a request's path; paths themselves would be endless."""
    if "route" in scope:  # found by FastAPI
        return str(getattr(scope["route"], "path", "other"))
    if scope["path"] == "/predict":
        return "/predict"
    return "/v2/models/{name}/infer" if "model" in scope["state"] else "other"


async def _refuse(send: Send, status: int, message: str, headers: dict[str, str]) -> None:
    content = json.dumps({"error": message}).encode()
    lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    lines += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": content})
