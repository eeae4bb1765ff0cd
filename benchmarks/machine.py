"""What a benchmark says: machine, date, versions and command, tables, and the files of both."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "docs" / "benchmarks"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def description(*packages: str) -> dict[str, str]:
    """Say where and how a figure was measured; where there is no engine, without it."""
    import ltls

    machine = f"{processor()}, {os.cpu_count()} cores"
    try:
        from ltls import _engine
    except ImportError:
        machine += ", no compiled engine"
    else:
        machine += f", {_engine.instruction_sets()[-1]}"
    return {
        "machine": machine,
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "ltls": ltls.__version__,
        **{package: version(package) for package in packages},
        "command": shlex.join(["python", *map(_shown, sys.argv)]),
    }


def _shown(argument: str) -> str:
    """Return a path as it is from the top of the repository, without the folders of a machine."""
    path = Path(argument)
    top = RESULTS.parent.parent
    if path.is_absolute() and path.is_relative_to(top):
        return str(path.relative_to(top))
    return path.name if path.is_absolute() else argument


def write(folder: Path, name: str, result: dict[str, Any], text: str) -> None:
    """Write what was measured, as JSON and for people."""
    from ltls.atomic import replacing

    folder.mkdir(parents=True, exist_ok=True)
    contents = {"json": json.dumps(result, indent=1, ensure_ascii=False) + "\n", "md": text}
    for suffix, content in contents.items():
        with replacing(folder / f"{name}.{suffix}") as path:
            path.write_text(content)


def table(heads: list[str], rows: list[list[str]], n_words: int = 1) -> list[str]:
    """Make a table: first columns of words, the others numbers."""
    lines = [heads, ["---"] * n_words + ["---:"] * (len(heads) - n_words), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


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
