"""Devices: which one to use, and what to change if it has too little memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_ON_CPU = "DefaultCPUAllocator"  # in the message when it has no memory


def as_device(device: Any) -> torch.device:
    """Return a device that is available: by default a GPU if there is one, else the CPU.

    In one of several processes, a GPU without an index is that of the process.
    """
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device is None:
        device = "cuda" if n_gpus else "cpu"
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be a torch.device or its name, got {device!r}") from error
    if found.type == "cuda" and (found.index or 0) >= n_gpus:
        there = f"{n_gpus} GPU{'s' * (n_gpus > 1)}" if n_gpus else "no GPU"
        raise ValueError(
            f"device must be available, got {str(device)!r} and {there}; use device='cpu'"
        )
    if found.type not in ("cpu", "cuda") and not _is_there(found):
        raise ValueError(
            f"device must be available, got {str(device)!r}, which this machine, or this torch, "
            "does not have; use device='cpu'"
        )
    if found == torch.device("cuda") and "LOCAL_RANK" in os.environ:
        own = f"cuda:{int(os.environ['LOCAL_RANK']) % n_gpus}"  # as Accelerate numbers them
        return torch.device(os.environ.get("ACCELERATE_TORCH_DEVICE", own))  # which Ray sets
    return found


def _is_there(device: torch.device) -> bool:
    """Return whether a device other than a GPU of CUDA can be used."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, NotImplementedError, AssertionError):
        return False
    return True


@contextmanager
def enough_memory(work: str, device: torch.device, instead: str) -> Iterator[None]:
    """Raise an error that says what to do instead if some work takes too much memory.

    The device is the current one meanwhile: Accelerate and Triton use no other GPU.
    """
    try:
        with torch.cuda.device(device if device.type == "cuda" else -1):  # −1 changes nothing
            yield
    except RuntimeError as error:
        # On a CPU, torch has no type of its own for this error.
        if not isinstance(error, torch.OutOfMemoryError) and _ON_CPU not in str(error):
            raise
        raise MemoryError(
            f"{work} does not fit into the memory of device={str(device)!r}: {instead}"
        ) from error
