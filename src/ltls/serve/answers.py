"""Answers to requests, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from fastapi import Response
from pydantic_core import PydanticSerializationError, to_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = "application/json"
RECEIVED = "received"  # in the state of a request whose body is complete


@dataclass(slots=True)
class Answer:
    """An answer to a request: less than Starlette's, which takes longer to make and to send."""

    content: bytes
    status: int = 200
    headers: dict[str, str] | None = None
    media_type: str = JSON

    async def send(self, send: Send) -> None:
        """Send it as ASGI messages."""
        headers = [
            (b"content-length", b"%d" % len(self.content)),
            (b"content-type", self.media_type.encode("latin-1")),
        ]
        for name, value in (self.headers or {}).items():
            headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
        start = {"type": "http.response.start", "status": self.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.content})

    def response(self) -> Response:
        """Return it as FastAPI needs it."""
        return Response(self.content, self.status, self.headers, self.media_type)


def _plain(value: Any) -> Any:
    """Return what JSON has no form for as numbers, if it is of NumPy, else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)


def encoded(value: Any) -> bytes:
    """Return a value as JSON; what is no Unicode in a label becomes a question mark."""
    try:
        return to_json(value, fallback=_plain)
    except PydanticSerializationError:  # no Unicode
        return _ENCODER.encode(value).encode("utf-8", "replace")
