"""A connection to a client, which leaves time for all others."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEAD = 32 << 10  # bytes of request line and headers
_READ = 64 << 10  # bytes; what was read is handled at once, before other connections
_CHUNKS, _MEAN = 1000, 64  # after so many chunks, they must have this many bytes on average
_MAX_PIPELINED = 32  # requests that were read together; more are not answered


class Connection(asyncio.BufferedProtocol):
    """Stands between a socket and uvicorn's protocol, with limits for those who send.

    uvicorn limits the time of an idle connection only between two requests, and only until the
    first byte of the next one. Its protocol is that with h11: the other parsers buffer headers of
    any length. Requests find their connection in the state of their scope.
    """

    def __init__(self, config: Config, app_state: dict[str, Any], **others: Any) -> None:
        state = {**app_state, "connection": self}
        self._http = H11Protocol(config=config, app_state=state, **others)
        self._http.conn = _Events(h11.SERVER, MAX_HEAD)
        self._seconds = config.timeout_keep_alive
        self._n_running = self._n_pipelined = 0  # requests

    def begin_request(self) -> bool:
        """Return whether this request must be the last one."""
        self._n_running += 1
        self._n_pipelined += 1
        self._idle.cancel()
        return self._n_pipelined >= _MAX_PIPELINED

    def end_request(self) -> None:
        """Wait for the next request, for a while."""
        self._n_running -= 1
        if not self._n_running and not self.is_closing:
            self._wait()

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport.is_closing()

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(self._seconds, self._transport.close)

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        self._transport = transport
        self._wait()
        self._http.connection_made(transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return space for what is read next."""
        self._buffer = bytearray(_READ)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what was read."""
        content = bytes(memoryview(self._buffer)[:nbytes])
        del self._buffer  # there may be many idle connections
        if self.is_closing:
            return
        self._n_pipelined = 0
        try:
            self._http.data_received(content)
        except h11.LocalProtocolError:  # no response to what is malformed may follow the last one
            self._transport.close()

    def eof_received(self) -> None:
        """Do as uvicorn does when the client sends no more."""
        self._http.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """End what is in progress."""
        self._idle.cancel()
        self._http.connection_lost(error)
        del self._http  # its state leads back here: both would stay until the next collection

    def pause_writing(self) -> None:
        """Let responses wait for a client that reads slowly."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Let responses go on."""
        self._http.resume_writing()


class _Events(h11.Connection):
    """Events of a connection; an error if a body comes in very many tiny chunks.

    A chunk costs as much time as a kilobyte of a large one.
    """

    _n_chunks = _n_bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._n_chunks = self._n_bytes = 0
        elif isinstance(event, h11.Data):
            self._n_chunks += event.chunk_start
            self._n_bytes += len(event.data)
            if self._n_chunks > _CHUNKS and self._n_bytes < _MEAN * self._n_chunks:
                raise h11.RemoteProtocolError("too many tiny chunks")
        return event


class RequestCounter:
    """ASGI middleware that tells connections when their requests begin and end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        connection: Connection | None = scope.get("state", {}).get("connection")
        if scope["type"] != "http" or connection is None:
            await self._app(scope, receive, send)
            return
        is_last = connection.begin_request()

        async def send_last(message: Message) -> None:
            if is_last and message["type"] == "http.response.start":
                message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await self._app(scope, receive, send_last)
        finally:
            connection.end_request()
