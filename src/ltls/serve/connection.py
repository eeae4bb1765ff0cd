"""HTTP connections with limits on what comes before a request's body."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .answers import RECEIVED

MAX_HEAD = 32 << 10  # bytes of request line and headers
HEAD_SECONDS = 10.0  # to send them


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection; too long headers get status 431, too slow ones 408."""

    _n_head = 0
    _waiting_since: float | None = None  # for the head of a request
    _timer: asyncio.TimerHandle | None = None  # kept from request to request: it costs time to set

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._n_head = 0
        if self._waiting_since is None:  # not the first request of the connection
            self._wait()

    def on_url(self, url: bytes) -> None:
        """Take a part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        self._waiting_since = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self.scope["state"][RECEIVED] = True
        super().on_message_complete()

    def _count(self, n_bytes: int) -> None:
        self._n_head += n_bytes
        if self._n_head > MAX_HEAD:
            self._waiting_since = None
            if not self.transport.is_closing():
                self._refuse(431)
            raise ValueError("the headers of a request are too long")  # stops the parser

    def data_received(self, data: bytes) -> None:
        """Parse what was received, unless the request was refused."""
        if not self.transport.is_closing():
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, unless it was refused already."""
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _wait(self) -> None:
        self._waiting_since = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._look)

    def _look(self) -> None:
        """Refuse a request whose head takes too long; look again later for a younger one."""
        self._timer = None
        if self._waiting_since is None or self.transport.is_closing():
            return
        left = self._waiting_since + HEAD_SECONDS - self.loop.time()
        if self.cycle is not None and not self.cycle.response_complete:
            left = HEAD_SECONDS  # an earlier request still waits for its answer
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        if self.cycle is None or self.cycle.response_complete:  # else its answer is being sent
            head = [STATUS_LINE[status], b"content-length: 0\r\nconnection: close\r\n\r\n"]
            self.transport.write(b"".join(head))
        self.transport.close()
