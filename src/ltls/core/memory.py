"""How much memory this process may use, and whether the rows of files fit into it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from .streams import is_compressed

# The memory limit of a container, on Linux: cgroup 2 and cgroup 1.
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_COMPRESSION_RATIO = 6  # of a text file of rows, about


def memory_limit() -> int | None:
    """Return the number of bytes that this process may use, None if it is unknown."""
    limits = []
    if hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in _CONTAINER_LIMITS:
        try:
            text = Path(name).read_text()
        except OSError:
            continue
        if text.strip().isdigit():
            limits.append(int(text))
    if sys.platform != "win32":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min((limit for limit in limits if limit > 0), default=None)


def available_memory() -> int | None:
    """Return the number of bytes that this process can still allocate, None if it is unknown."""
    limits = [limit] if (limit := memory_limit()) is not None else []
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        text = ""
    limits += [1024 * int(found[1]) for found in re.finditer(r"MemAvailable:\s+(\d+) kB", text)]
    return min(limits, default=None)


def needed_memory(paths: Iterable[str | os.PathLike[str]], per_byte: float = 2.0) -> int:
    """Return about how many bytes the rows of files take in memory; 0 for what is no file.

    `per_byte` is the memory for a byte of an uncompressed file.
    """
    needed = 0.0
    for path in paths:
        if os.path.isfile(path):
            ratio = _COMPRESSION_RATIO if is_compressed(path) else 1
            needed += os.path.getsize(path) * ratio * per_byte
    return int(needed)


def fits_in_memory(needed: int) -> bool:
    """Return whether so many bytes are available, if that is known."""
    available = available_memory()
    return available is None or needed <= available
