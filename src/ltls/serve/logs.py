"""Structured logs: one JSON object per line on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import lru_cache
from typing import Any

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
        return _ENCODER.encode(entry)


@lru_cache(maxsize=2)
def _second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def log(level: int, event: str, exc_info: bool = False, **fields: Any) -> None:
    """Log an event with fields."""
    if logger.isEnabledFor(level):  # without a search for the line of code that logs
        error = sys.exc_info() if exc_info else None
        record = logger.makeRecord(
            logger.name, level, "", 0, event, (), error, extra={"fields": fields}
        )
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
