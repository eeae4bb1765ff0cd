"""A connection to a client, which leaves time for all others."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEAD = 32 << 10  # bytes of request line and headers
_READ = 64 << 10  # bytes; what was read is handled at once, before other connections
_CHUNKS, _MEAN = 1000, 64  # after so many chunks, they must have this many bytes on average


class Connection(H11Protocol):
    """uvicorn's connection with h11, and limits for those who send.

    The other parsers buffer everything a client sends: headers of any length, and any number of
    requests before it reads responses.
    """

    def __init__(self, config: Config, *others: Any, **named: Any) -> None:
        super().__init__(config, *others, **named)
        self.conn = _Events(h11.SERVER, MAX_HEAD)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read less at a time than asyncio does by default."""
        reading: Any = transport
        reading.max_size = _READ
        super().connection_made(transport)


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
