"""Structured logs: one JSON object per line on standard error."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Any

logger = logging.getLogger("ltls.serve")


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object; `fields` of a record are its own keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of ASCII, which any stream can take."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        entry: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "pid": record.process,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def log(level: int, event: str, exc_info: bool = False, **fields: Any) -> None:
    """Log an event with fields."""
    logger.log(level, event, exc_info=exc_info, extra={"fields": fields})


def configuration(level: str) -> dict[str, Any]:
    """Return the logging configuration of the server and of uvicorn."""
    own = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    handler = {
        "class": "logging.StreamHandler",
        "formatter": "json",
        "stream": "ext://sys.stderr",
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonFormatter}},
        "handlers": {"stderr": handler},
        "loggers": {"uvicorn": own, "ltls.serve": own},
    }
