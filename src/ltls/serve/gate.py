"""What every request passes: the token, the limit of concurrency, metrics and the log."""

from __future__ import annotations

import hmac
import logging
import random
import re
import time
from collections.abc import MutableMapping
from typing import Any

from .answers import Receive, Scope, Send
from .errors import RequestError, error_answer
from .logs import AccessLog, log
from .metrics import Metrics
from .settings import Settings

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
        self._access_log = AccessLog() if settings.access_log else None

    def close(self) -> None:
        """Log the last requests."""
        if self._access_log is not None:
            self._access_log.flush()

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
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        self._n_running += 1
        self._metrics.in_progress.inc()
        try:
            refusal = self._refusal(scope, headers)
            if refusal is None:
                await self._app(scope, receive, send_and_note)
            else:
                await error_answer(refusal).send(send_and_note)
        except Exception:
            log(logging.ERROR, "error", exc_info=True, request=request_id)
            if not status:
                error = RequestError(500, "internal error; see the log of the server")
                await error_answer(error).send(send_and_note)
        finally:
            self._n_running -= 1
            self._metrics.in_progress.dec()
            seconds = time.perf_counter() - started
            self._metrics.observe(_route(scope), status, seconds)
            if "n_rows" in state and status == 200:
                self._metrics.count_rows(state["model"], state["n_rows"])
            if self._access_log is not None:
                self._log(scope, status, seconds, request_id)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> RequestError | None:
        """Return an error if a request is not let in."""
        if self._expected is not None and scope["path"] not in OPEN_ROUTES:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                return RequestError(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
        if self._n_running > self._settings.max_concurrency and scope["method"] == "POST":
            limit = self._settings.max_concurrency
            return RequestError(
                503, f"{limit} requests are being handled: try again", {"Retry-After": "1"}
            )
        return None

    def _log(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        assert self._access_log is not None
        state = scope["state"]
        client = scope.get("client")
        self._access_log.add(
            {
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status,
                "milliseconds": round(1000 * seconds, 3),
                "model": state.get("model"),
                "rows": state.get("n_rows"),
                "client": client[0] if client else None,
                "request": request_id,
            }
        )


def _request_id(given: bytes | None) -> str:
    """Return the client's id of a request if it is a plain word, else a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    return f"{random.getrandbits(64):016x}"


def _route(scope: Scope) -> str:
    """Return the pattern of a request's path; paths themselves would be endless."""
    if "route" in scope:  # found by FastAPI
        return str(getattr(scope["route"], "path", "other"))
    if scope["path"] == "/predict":
        return "/predict"
    return "/v2/models/{name}/infer" if "model" in scope["state"] else "other"
