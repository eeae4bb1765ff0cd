"""The processes that fit one model: what each does, and what the first one does for all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

Result = TypeVar("Result")
_LONGEST = timedelta(days=365)  # the first process may train for days


def n_processes() -> int:
    """Return how many processes have been launched to fit one model."""
    return int(os.environ.get("WORLD_SIZE", 1))


class Processes:
    """One process among those that fit one model.

    Parameters
    ----------
    rank, n : int
        The number of the process, and how many there are.
    group : ProcessGroup, optional
        How several processes reach each other on their CPUs.
    """

    def __init__(self, rank: int = 0, n: int = 1, group: Any = None) -> None:
        self.rank, self.n, self._group = rank, n, group

    @property
    def is_first(self) -> bool:
        """Whether this is the process that works for all."""
        return self.rank == 0

    def share(self, n_rows: int) -> slice:
        """Return the rows that are this process' to work on."""
        return slice(n_rows * self.rank // self.n, n_rows * (self.rank + 1) // self.n)

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self._group is not None:
            distributed.barrier(self._group)

    def first(self, work: Callable[[], Result]) -> Result:
        """Let the first process do some work; return its result, or raise an error, in all."""
        if self._group is None:
            return work()
        found: list[Any] = [None, ""]  # the result, or what went wrong
        if self.is_first:
            try:
                found[0] = work()
            except Exception as error:
                distributed.broadcast_object_list([None, repr(error)], 0, self._group)
                raise
        distributed.broadcast_object_list(found, 0, self._group)
        if found[1]:
            raise RuntimeError(f"the first process failed: {found[1]}")
        result: Result = found[0]
        return result


@contextmanager
def processes(device: torch.device) -> Iterator[Processes]:
    """Yield this process among those of `accelerate launch`, or of Ray Train."""
    if n_processes() == 1:
        yield Processes()
        return
    try:
        from accelerate import PartialState
    except ImportError as error:
        raise ImportError(
            "fit in several processes needs accelerate: pip install 'ltls[encoders]'"
        ) from error
    state = PartialState(cpu=device.type == "cpu")
    group = distributed.new_group(backend="gloo", timeout=_LONGEST)
    try:
        yield Processes(state.process_index, state.num_processes, group)
    finally:
        distributed.destroy_process_group(group)
