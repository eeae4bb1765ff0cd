"""The busy endpoints, past FastAPI: its own work would take as long as a prediction."""

from __future__ import annotations

import re
from typing import Any

from .answers import Receive, Scope, Send
from .errors import RequestError, error_answer
from .plain import Plain
from .protocol import Protocol

_PATHS = re.compile(r"/predict|/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")


class Direct:
    """ASGI middleware that answers predictions; all else goes on to FastAPI.

    FastAPI has the same endpoints too, for its schema.

    Parameters
    ----------
    app : ASGI application
    plain : Plain
    protocol : Protocol
    """

    def __init__(self, app: Any, plain: Plain, protocol: Protocol) -> None:
        self._app, self._plain, self._protocol = app, plain, protocol

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        found = None
        if scope["type"] == "http" and scope["method"] == "POST":
            found = _PATHS.fullmatch(scope["path"])
        if found is None:
            await self._app(scope, receive, send)
            return
        try:
            name, version = found.groups()
            if name is None:
                answer = await self._plain.answer(scope, receive)
            else:
                answer = await self._protocol.answer(scope, receive, name, version)
        except RequestError as error:
            answer = error_answer(error)
        await answer.send(send)
