"""Reading requests and doing their work, each within its time."""

from __future__ import annotations

import asyncio
import difflib
import os
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from .answers import RECEIVED, Receive, Scope
from .errors import RequestError
from .settings import Settings

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit
else:
    from anyio import fail_after

    @asynccontextmanager
    async def time_limit(seconds: float) -> AsyncIterator[None]:
        """Raise TimeoutError in this block after some seconds."""
        with fail_after(seconds):
            yield


Result = TypeVar("Result")
Body = TypeVar("Body", bound=BaseModel)


class Work:
    """Reads the bodies of requests, and runs what they ask for.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, "ltls-serve")

    def close(self) -> None:
        """End the threads when they have done their work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body of a request that is small enough and arrives in time."""
        limit = self._settings.max_body
        headers = dict(scope["headers"])
        if b"content-encoding" in headers:
            raise RequestError(415, "compressed requests are not supported: send it uncompressed")
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > limit:
            raise _too_large(limit)
        if RECEIVED in scope["state"]:  # nothing to wait for
            return await _received(receive, limit)
        try:
            async with time_limit(self._settings.timeout):
                return await _received(receive, limit)
        except TimeoutError:
            raise RequestError(
                408, f"the request did not arrive within {self._settings.timeout:g} s"
            ) from None

    async def run(self, work: Callable[[], Result], quick: bool) -> Result:
        """Return the result of some work: quick work at once, other work from a thread."""
        if quick:
            return work()
        loop = asyncio.get_running_loop()
        try:
            async with time_limit(self._settings.timeout):
                return await loop.run_in_executor(self._threads, work)
        except TimeoutError:
            raise RequestError(
                504,
                f"the answer took longer than {self._settings.timeout:g} s: send fewer rows",
            ) from None


async def _received(receive: Receive, limit: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError(499, "the client has left")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:  # a chunked request does not announce its size
            raise _too_large(limit)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> RequestError:
    return RequestError(
        413,
        f"a request may have at most {limit} bytes: send several requests",
        {"Connection": "close"},
    )


def parsed(kind: type[Body], content: bytes, invalid: int = 422) -> Body:
    """Return JSON as an object of a kind; `invalid` is the status if it is another JSON value."""
    try:
        found: Body = kind.model_validate_json(content)
        return found
    except ValidationError as error:
        errors: list[Any] = error.errors(include_url=False, include_input=False)
        if errors[0]["type"] == "json_invalid":
            raise RequestError(400, f"the request is not JSON: {errors[0]['msg']}") from None
        raise RequestError(invalid, _mistake(kind, errors)[:300]) from None


def _mistake(kind: type[Body], errors: list[Any]) -> str:
    """Return what is wrong with a request, and what would do."""
    # Of the forms that a value can have, the one that fits furthest is meant.
    worst = max(errors, key=lambda each: len(each["loc"]))
    name = str(worst["loc"][0]) if worst["loc"] else ""
    if worst["type"] == "extra_forbidden" and len(worst["loc"]) == 1:
        close = difflib.get_close_matches(name, kind.model_fields, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"{name[:40]} must be one of {', '.join(kind.model_fields)}{hint}"
    field = kind.model_fields.get(name)
    if field is not None and field.description and len(errors) > 1 and len(worst["loc"]) == 2:
        wanted = field.description.rstrip(".")
        return f"{name} must be {wanted[0].lower()}{wanted[1:]}"
    places = [str(place)[:40] for place in worst["loc"]]
    place = ".".join(place for place in places[:4] if place and "[" not in place)
    return f"{place or 'the request'}: {worst['msg']}"
