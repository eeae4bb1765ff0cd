"""Metrics in Prometheus' text format; those of all workers together, if there are several."""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the variable that names the folder which workers share
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


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
