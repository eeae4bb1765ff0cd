"""Processes of the contenders, and environments for the peers, made by pip from pinned packages.

A peer's packages are what peers/NAME.txt says, dependencies included; peers/NAME.source.txt has
what must be compiled, with those already there. They are found by PYTHONPATH and nothing else is,
so that an environment works the same for a Python that has no venv.
"""

from __future__ import annotations

import functools
import glob
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import machine

REQUIREMENTS = Path(__file__).parent / "peers"
NEW = ("3.12", "3.11", "3.10", "3.13")
# The versions of Python, best first, that a peer's wheels or sources are for.
PYTHONS = {
    "omikuji": NEW,
    "napkinxc": NEW,
    "pecos": ("3.12", "3.11", "3.10"),
    "linearsvc": NEW,
    "fastxml": ("2.7",),
}


class RunError(Exception):
    """A run ended without a result; says why."""


class SetupError(RunError):
    """A peer's environment cannot be made here; says why."""


def run(
    script: Path,
    contender: str,
    data: Path,
    out: Path,
    settings: dict[str, Any],
    limit: float,
    memory: int | None = None,
) -> dict[str, Any]:
    """Run a script for a contender, in its environment and within limits of time and memory.

    Returns the measures that it writes; what it prints goes to a log beside the folder `out`.
    """
    start, variables = [sys.executable], dict(os.environ)
    if contender != "ltls":
        start, variables = command(contender, machine.BUILD / "peers")
    paths = filter(None, (variables.get("PYTHONPATH"), str(machine.ROOT)))
    variables["PYTHONPATH"] = os.pathsep.join(paths)  # after the peer's: scripts share contender.py
    words = [*start, str(script), contender, str(data), str(out), json.dumps(settings)]
    return compete(words, variables, out, limit, memory)


def compete(
    words: list[str],
    variables: dict[str, str],
    out: Path,
    limit: float,
    memory: int | None = None,
) -> dict[str, Any]:
    """Run a process, end it with all that it has started, and return its measures.

    It may take `limit` seconds, and `memory` bytes of its own.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    log = out.with_suffix(".log")
    with log.open("w") as stream:
        process = subprocess.Popen(
            words,
            env=variables,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            preexec_fn=None if memory is None else functools.partial(limit_memory, memory),
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise RunError(f"took longer than {limit:.0f} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise RunError(f"exit status {code}: {lines[-1] if lines else 'no message'}")
    measures: dict[str, Any] = json.loads((out / "measures.json").read_text())
    return measures


def limit_memory(n_bytes: int) -> None:
    """Let allocations of this process fail beyond so many bytes."""
    resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))


def interpreter(versions: tuple[str, ...]) -> str:
    """Find a Python of one of the versions that has pip."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for version in versions:
        found = [sys.executable, shutil.which(f"python{version}")]
        found += sorted(glob.glob(f"{pyenv}/versions/{version}*/bin/python{version}"))
        for python in filter(None, found):
            code = "import sys, pip; sys.stdout.write('%d.%d' % sys.version_info[:2])"
            answer = subprocess.run([python, "-c", code], capture_output=True, text=True)
            if answer.returncode == 0 and answer.stdout == version:
                return python
    raise SetupError(f"needs Python {' or '.join(versions)} with pip on the PATH or in pyenv")


def command(peer: str, root: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts a peer's Python, and its environment variables.

    The packages are installed first, unless they are there; raises `SetupError` if that fails.
    """
    python, folder = interpreter(PYTHONS[peer]), (root / peer).absolute()
    files = [REQUIREMENTS / f"{peer}.txt", REQUIREMENTS / f"{peer}.source.txt"]
    files = [file for file in files if file.exists()]
    made_from = "\n".join([python, *(file.read_text() for file in files)])
    stamp = folder / "made_from"
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    if not stamp.exists() or stamp.read_text() != made_from:
        shutil.rmtree(folder, ignore_errors=True)
        for file in files:
            install(python, file, folder, variables)
        stamp.write_text(made_from)
    return [python, "-S"], variables


def install(python: str, requirements: Path, folder: Path, variables: dict[str, str]) -> None:
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    way = "--no-build-isolation" if requirements.suffixes[0] == ".source" else "--only-binary=:all:"
    target = ["--target", str(folder), "--requirement", str(requirements)]
    done = subprocess.run([*pip, way, *target], capture_output=True, text=True, env=variables)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["no reason given"]
        raise SetupError(f"pip install of {requirements.name} failed: {last[-1]}")


def versions(peer: str) -> dict[str, str]:
    """Return the pinned version of every package of a peer."""
    pins = {}
    for file in sorted(REQUIREMENTS.glob(f"{peer}.*")):
        for line in file.read_text().splitlines():
            name, _, version = line.partition("==")
            pins[name] = version
    return pins
