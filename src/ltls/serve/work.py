"""Reading and answering requests within their time limits."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from .messages import Answer, RequestError
from .settings import Settings

THREADS = "ltls-serve"  # prefix of the names of our threads
_MAX_THREADS = 4  # also the number of decoded requests in memory
_MAX_HELD = 16  # bodies of the largest size that wait for a thread
_MAX_ANSWER = 32 << 20  # bytes
_EXPLAINED = 64  # an explained label counts as so many labels
_QUICK_BYTES, _QUICK_K = 1 << 13, 32  # one row of this size is answered at once
# Limits of a piece of work: rows, rows × labels, and rows × bytes of the request.
_ROWS, _ROW_LABELS, _ROW_BYTES = 64, 4096, 4 << 20


class AbandonedError(Exception):
    """The client no longer waits for the answer."""


class NotQuickError(Exception):
    """The work would block the event loop for too long."""


class Job:
    """The work for a request, in pieces; each checks first that the client still waits.

    A quick job runs in the event loop, so it must not take long.
    """

    def __init__(self, settings: Settings, n_bytes: int, quick: bool) -> None:
        self._settings, self._n_bytes, self.quick = settings, n_bytes, quick
        self._n_answer, self._k = 0, 1
        self.started, self.cancelled = time.perf_counter(), False
        self.model: str | None = None  # for metrics and the log
        self.n_rows = 0

    @property
    def max_rows(self) -> int:
        """The maximum number of rows of the request."""
        return self._settings.max_rows

    def too_many_rows(self, n_rows: int | None = None) -> RequestError:
        """Return the error for too many rows."""
        got = "more" if n_rows is None else n_rows
        return RequestError(
            413, f"a request may have at most {self.max_rows} rows, got {got}: send several"
        )

    def begin(
        self,
        model: str,
        n_rows: int,
        k: int,
        slow: bool = False,
        explain: bool = False,
        k_name: str = "k",
    ) -> None:
        """Raise an error if there is too much work: rows, and labels for each.

        Anything but the best labels by score is slow.
        """
        self.model, self.n_rows, self._k = model, n_rows, k
        limits, times = self._settings, _EXPLAINED if explain else 1
        if k > limits.max_k:
            raise RequestError(422, f"{k_name} must be at most {limits.max_k}, got {k}")
        if n_rows < 1:
            raise RequestError(422, "a request must have at least one row, got none")
        if n_rows > self.max_rows:
            raise self.too_many_rows(n_rows)
        if n_rows * k * times > limits.max_labels:
            most = limits.max_labels // times
            what = "explained labels" if explain else "labels"
            raise RequestError(
                413,
                f"an answer may have at most {most} {what}, got {n_rows} rows times k={k}: send "
                "fewer rows, or a smaller k",
            )
        if self.quick and (slow or n_rows > 1 or k > _QUICK_K):
            raise NotQuickError

    def pieces(self, n: int | None = None, step: int | None = None) -> Iterator[slice]:
        """Yield slices of n items, by default rows, while the client waits for the answer."""
        limits = (_ROWS, _ROW_LABELS // self._k, _ROW_BYTES // max(self._n_bytes, 1))
        step, n = step or max(1, min(limits)), self.n_rows if n is None else n
        for first in range(0, n, step):
            if self.cancelled:
                raise AbandonedError
            if time.perf_counter() > self.started + self._settings.timeout:
                raise _late(self._settings)
            yield slice(first, min(first + step, n))

    def add(self, content: bytes) -> bytes:
        """Return a part of the answer; raise an error if the answer becomes too large."""
        self._n_answer += len(content)
        if self._n_answer > _MAX_ANSWER:
            raise RequestError(
                413, f"the answer has more than {_MAX_ANSWER >> 20} MiB: send fewer or shorter rows"
            )
        return content


class Work:
    """Reads the bodies of requests, and answers them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_THREADS), THREADS)
        self._n_held = 0  # bytes of bodies

    def close(self) -> None:
        """End the threads after their current pieces of work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: Request, respond: Callable[[bytearray, Job], Answer]) -> Answer:
        """Return the response of `respond`: at once for a small request, else from a thread."""
        content = bytearray()
        try:
            await self._receive(request, content)
            quick = len(content) <= _QUICK_BYTES
            job = request.scope["state"]["job"] = Job(self._settings, len(content), quick)
            if quick:
                try:
                    return respond(content, job)
                except NotQuickError:
                    job.quick = False
            return await self._in_thread(request, job, lambda: respond(content, job))
        finally:
            self._n_held -= len(content)

    async def _receive(self, request: Request, content: bytearray) -> None:
        """Read the body of a request into `content`, within the limits of size and time."""
        limit, seconds = self._settings.max_body, self._settings.timeout
        too_large = RequestError(
            413, f"a request may have at most {limit} bytes: send several", {"Connection": "close"}
        )
        if "content-encoding" in request.headers:
            raise RequestError(
                415, "compressed requests are not supported: send the request uncompressed"
            )
        if int(request.headers.get("content-length", 0)) > limit:
            raise too_large
        try:
            with anyio.fail_after(seconds):
                async for part in request.stream():
                    content += part
                    self._n_held += len(part)
                    if len(content) > limit:  # a chunked request does not announce its size
                        raise too_large
                    held = self._n_held > _MAX_HELD * limit
                    if held and len(content) > _QUICK_BYTES:  # small ones do not wait for a thread
                        raise busy("too many large requests are waiting")
        except TimeoutError:
            raise RequestError(408, f"the request did not arrive within {seconds:g} s") from None
        except ClientDisconnect:
            raise RequestError(499, "the client has left") from None

    async def _in_thread(self, request: Request, job: Job, work: Callable[[], Answer]) -> Answer:
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        left = asyncio.ensure_future(disconnected(request.receive))
        try:
            both: set[asyncio.Future[Any]] = {future, left}
            await asyncio.wait(both, timeout=self._settings.timeout, return_when=FIRST_COMPLETED)
            if future.done():
                return future.result()
            raise RequestError(499, "the client has left") if left.done() else _late(self._settings)
        finally:  # also if the server shuts down
            job.cancelled = True
            future.cancel()
            left.cancel()


async def disconnected(receive: Receive) -> None:
    """Wait until the connection is closed."""
    while (await receive())["type"] != "http.disconnect":
        pass


def busy(reason: str) -> RequestError:
    """Return the error of an overloaded server."""
    return RequestError(503, f"{reason}: try again", {"Retry-After": "1"})


def _late(settings: Settings) -> RequestError:
    return RequestError(504, f"the answer took longer than {settings.timeout:g} s: send fewer rows")
