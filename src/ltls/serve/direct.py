"""The busy endpoints, past FastAPI: its own work would take as long as a prediction."""

from __future__ import annotations

import re
from typing import Any

from fastapi import Request, Response

from .errors import RequestError, error_response
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

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        found = None
        if scope["type"] == "http" and scope["method"] == "POST":
            found = _PATHS.fullmatch(scope["path"])
        if found is None:
            await self._app(scope, receive, send)
            return
        response: Response
        try:
            request, (name, version) = Request(scope, receive), found.groups()
            if name is None:
                response = await self._plain.predict(request)
            else:
                response = await self._protocol.infer(request, name, version)
        except RequestError as error:
            response = error_response(error)
        await response(scope, receive, send)
