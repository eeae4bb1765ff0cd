"""Where and how a figure was measured; the clock, the tables and the files of all benchmarks."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BUILD = ROOT / "build"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """Return the commit of this repository, "?" where there is none."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "?"


def description(*packages: str) -> dict[str, str]:
    """Return machine, date, versions and command; also where there is no compiled engine."""
    import ltls

    machine = f"{processor()}, {os.cpu_count()} cores"
    try:
        from ltls.core import _engine
    except ImportError:
        machine += ", no compiled engine"
    else:
        machine += f", {_engine.instruction_sets()[-1]}"
    return {
        "machine": machine,
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "ltls": ltls.__version__,
        "commit": commit(),
        **{package: version(package) for package in packages},
        "command": command(),
    }


def command() -> str:
    """Return the command that is running, without the folders of this machine."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem
    arguments = (Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:])
    return shlex.join(["python", "-m", name, *arguments])


def source(about: dict[str, str]) -> str:
    """Return the caption of a figure: machine, date and command."""
    where = ", ".join(filter(None, (about.get("gpu"), about["machine"])))
    runs = [(about["date"], about["command"])]
    if "other heads" in about:
        day, _, command = about["other heads"].partition(", ")
        runs.insert(0, (day, command))
    # Where files were and where the results went says nothing.
    plain = ((day, re.sub(r" --output.*|\S+/", "", command)) for day, command in runs)
    named = (f"{day}; `{command}`" for day, command in plain)
    return f"*{where}; {', some heads '.join(named)}.*"


def write_json(path: Path, content: Any) -> None:
    """Write a file that is either the old one or the new one, whenever this is stopped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    part.replace(path)


def read(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Return what a benchmark has stored; nothing is an empty dict."""
    path = folder / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def write(name: str, result: dict[str, Any], folder: Path = RESULTS) -> None:
    """Store what a benchmark has measured."""
    write_json(folder / f"{name}.json", result)


def data_folder() -> Path:
    """Return the folder of the data sets, or end with what to do."""
    if not os.environ.get("LTLS_DATA"):
        sys.exit("LTLS_DATA must name the folder with the data sets")
    return Path(os.environ["LTLS_DATA"])


def parser(documentation: str | None) -> argparse.ArgumentParser:
    """Return a parser of options whose help is the documentation of a module."""
    return argparse.ArgumentParser(
        description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def table(heads: list[str], rows: list[list[str]], n_words: int = 1) -> list[str]:
    """Make a Markdown table: first columns of words, the others numbers."""
    lines = [heads, ["---"] * n_words + ["---:"] * (len(heads) - n_words), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def say(words: str) -> None:
    print(time.strftime("%H:%M:%S"), words, flush=True)


def memory(name: str) -> int:
    """Return bytes of this process, by their name in /proc/self/status."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[name].split()[0]) * 1024


def saved_bytes(model: Any) -> int:
    """Return the size of the file of an estimator."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ltls")
        model.save(path)
        return path.stat().st_size


def peak_bytes() -> int:
    """Return the most memory that this process has held."""
    return memory("VmHWM")


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
