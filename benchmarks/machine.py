"""What a benchmark says of itself: machine, date, versions and command."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def description(*packages: str) -> dict[str, str]:
    """Say where and how a figure was measured."""
    from ltls import _engine

    return {
        "machine": f"{processor()}, {os.cpu_count()} cores, {_engine.instruction_sets()[-1]}",
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        **{package: version(package) for package in ("ltls", *packages)},
        "command": "python " + " ".join(sys.argv),
    }


def seconds(work: Callable[[], object], repeats: int = 5, at_least: float = 0.02) -> float:
    """Return the median time of a call, each repeat long enough for the clock."""
    work()
    start = time.perf_counter()
    work()
    calls = max(1, int(at_least / max(time.perf_counter() - start, 1e-9)))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)
