"""Messages: requests as typed structs, values as JSON, and errors with a status."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_PIECE = 64 << 10  # bytes; two pieces are buffered if a client does not read
_MAX_QUOTED = 80  # characters of a request that are quoted in an error
T = TypeVar("T")


class RequestError(Exception):
    """A request that cannot be answered: a status, and a message that says what to change."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message[:300], headers

    def answer(self) -> Answer:
        """Return the error in the form of the Open Inference Protocol."""
        return Answer(encoded({"error": self.message}), self.status, self.headers)


class Answer(Response):
    """A response that is sent in pieces, each after the client has read the previous ones."""

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it as ASGI messages."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        body, size = bytes(self.body), len(self.body)
        for first in range(0, max(size, 1), _PIECE):
            piece = {"body": body[first : first + _PIECE], "more_body": first + _PIECE < size}
            await send({"type": "http.response.body", **piece})


def quoted(value: object) -> str:
    """Return a value of a request as a short literal."""
    text = repr(value)
    return text if len(text) <= _MAX_QUOTED else f"{text[: _MAX_QUOTED - 4]} ..."


def encoded(value: Any) -> bytes:
    """Return a value as JSON; invalid Unicode in labels becomes a question mark."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, default=_plain)
        return text.encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    return json.loads(bytes(value)) if isinstance(value, msgspec.Raw) else str(value)


def decoded(
    decoder: msgspec.json.Decoder[T], content: bytearray | msgspec.Raw, invalid: int = 422
) -> T:
    """Decode JSON to the decoder's type, up to the first error.

    JSON of another type gets status `invalid`, invalid JSON status 400.
    """
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        raise RequestError(invalid, _mistake(str(error), decoder.type)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        place = _place_of_bad_text(bytes(content), decoder.type)
        raise RequestError(400, f"{place or 'the request'} is not JSON: {error}") from None


# Half of a UTF-16 pair, which is not a character.
_SURROGATE = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]", re.DOTALL
)


def _place_of_bad_text(content: bytes, kind: Any) -> str | None:
    """Return the field with invalid Unicode, None if there is none."""
    found = _SURROGATE.search(content)
    end = found.start() if found else None
    try:
        content.decode()
    except UnicodeDecodeError as error:
        end = error.start
    names = "|".join(getattr(kind, "__struct_fields__", ()))
    fields = re.findall(rb'"(%s)"\s*:' % names.encode(), content[:end]) if names else []
    return None if end is None or not fields else fields[-1].decode()


def without_escaped_quotes(content: bytes) -> bytes:
    """Return JSON without its escaped quotes: each of its strings ends at the next quote."""
    return content.replace(b"\\\\", b"").replace(b'\\"', b"")


def converted(kind: type[T], fields: dict[str, str]) -> T:
    """Convert the fields of a form to a type, up to the first error."""
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(422, _mistake(str(error), kind)) from None


def _mistake(message: str, kind: Any) -> str:
    """Return the name of a field and what is wrong with its value."""
    wrong, _, place = message.partition(" - at `$")
    if "unknown field" in wrong:
        wrong += f"; there are {', '.join(kind.__struct_fields__)}"
    return f"{place.strip('.`') or 'the request'}: {wrong[:1].lower()}{wrong[1:]}"
