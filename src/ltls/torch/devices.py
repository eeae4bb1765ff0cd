"""Devices: which one to use, and what to change if it has too little memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def as_device(device: Any) -> torch.device:
    """Return a device that is available: by default a GPU if there is one, else the CPU."""
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device is None:
        return torch.device("cuda" if n_gpus else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be a torch.device or its name, got {device!r}") from error
    if found.type == "cuda" and (found.index or 0) >= n_gpus:
        there = f"{n_gpus} GPU{'s' * (n_gpus > 1)}" if n_gpus else "no GPU"
        raise ValueError(
            f"device must be available, got {str(device)!r} and {there}; use device='cpu'"
        )
    return found


@contextmanager
def enough_memory(work: str, device: torch.device, instead: str) -> Iterator[None]:
    """Raise an error that says what to do instead if some work takes too much memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"{work} does not fit into the memory of device={str(device)!r}: {instead}"
        ) from error
