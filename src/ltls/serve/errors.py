"""Errors of requests, and the status codes that they get."""

from __future__ import annotations

import json

from .answers import Answer


class RequestError(Exception):
    """A request that cannot be answered.

    Parameters
    ----------
    status : int
        The HTTP status code.
    message : str
        What was wrong and what would do, for the client.
    headers : dict, optional
        Headers of the response.
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


def error_answer(error: RequestError) -> Answer:
    """Return an error in the form of the Open Inference Protocol."""
    content = json.dumps({"error": error.message})
    return Answer(content.encode(), error.status, error.headers)


MAX_QUOTED = 80  # characters of a request that an error repeats


def quoted(value: object) -> str:
    """Return a value of a request as a short literal."""
    text = repr(value)
    return text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - 4]} ..."
