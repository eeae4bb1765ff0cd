"""Logs and metrics: JSON lines on standard error, and Prometheus' text format.

With several workers, metrics are the totals of all workers.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import datetime, timezone
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

logger = logging.getLogger("ltls.serve")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # environment variable with the folder that workers share
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object; the `fields` of a record become keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of ASCII, which every stream accepts."""
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


def log_settings(level: str) -> dict[str, Any]:
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


class Metrics:
    """Counters of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(
            "ltls_requests", "Requests by route and status.", ["route", "status"], **own
        )
        self.seconds = Histogram(
            "ltls_request_seconds", "Time to answer.", ["route"], buckets=_SECONDS, **own
        )
        self.in_progress = Gauge(
            "ltls_requests_in_progress",
            "Requests being handled.",
            multiprocess_mode="livesum",
            **own,
        )
        self.rows = Counter("ltls_rows", "Rows predicted.", ["model"], **own)
        self.loads = Counter("ltls_model_loads", "Model files loaded.", ["model", "outcome"], **own)
        self.version = Gauge(
            "ltls_model_version",
            "Modification time of the file that is served.",
            ["model"],
            multiprocess_mode="livemin",
            **own,
        )

    def text(self) -> bytes:
        """Return all metrics."""
        registry = self.registry
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return bytes(generate_latest(registry))
