"""Structured logs: one JSON object per line on standard error."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from functools import lru_cache
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

_ENCODER = json.JSONEncoder(default=str)

logger = logging.getLogger("ltls.serve")


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object; `fields` of a record are its own keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        entry: dict[str, Any] = {
            "time": f"{_second(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "pid": record.process,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _line(entry)


def _line(entry: dict[str, Any]) -> str:
    """Return an entry as JSON that any stream can take: characters other than ASCII's escaped."""
    try:
        line = to_json(entry, fallback=str)
    except PydanticSerializationError:  # no Unicode
        return _ENCODER.encode(entry)
    return line.decode() if line.isascii() else _ENCODER.encode(entry)


@lru_cache(maxsize=2)
def _second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def log(level: int, event: str, exc_info: bool = False, **fields: Any) -> None:
    """Log an event with fields."""
    if logger.isEnabledFor(level):
        logger.handle(_record(level, event, fields, sys.exc_info() if exc_info else None))


def _record(level: int, event: str, fields: dict[str, Any], error: Any = None) -> Any:
    """Return a record, without a search for the line of code that logs."""
    return logger.makeRecord(logger.name, level, "", 0, event, (), error, extra={"fields": fields})


class AccessLog:
    """Logs requests, many at a time: one by one, each would take as long as its prediction.

    Parameters
    ----------
    seconds : float, default=0.05
        How long requests may wait to be logged.
    """

    def __init__(self, seconds: float = 0.05) -> None:
        self._seconds = seconds
        self._waiting: list[tuple[float, dict[str, Any]]] = []

    def add(self, fields: dict[str, Any]) -> None:
        """Log a request soon; an event loop must run."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(self._seconds, self.flush)
        self._waiting.append((time.time(), fields))

    def flush(self) -> None:
        """Log the requests that wait."""
        waiting, self._waiting = self._waiting, []
        if logger.isEnabledFor(logging.INFO):
            for created, fields in waiting:
                record = _record(logging.INFO, "request", fields)
                record.created, record.msecs = created, 1000 * (created % 1)
                logger.handle(record)


def configuration(level: str) -> dict[str, Any]:
    """Return the logging configuration of the server and of uvicorn."""
    own = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonFormatter}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "json",
                "stream": "ext://sys.stderr",
            }
        },
        "loggers": {"uvicorn": own, "ltls.serve": own},
    }
