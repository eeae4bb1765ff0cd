"""Ctrl-C and time limits."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class TrainingInterruptedWarning(RuntimeWarning):
    """Training was interrupted by Ctrl-C; the estimator keeps the weights so far."""


class TimeLimitExceededError(Exception):
    """Training took longer than its `time_limit`."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Make training in this block raise `TimeLimitExceededError` when the time is up."""
    token = _deadline.set(time.perf_counter() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def check_time() -> None:
    """Raise `TimeLimitExceededError` if the `time_limit` is exceeded."""
    if time.perf_counter() > _deadline.get():
        raise TimeLimitExceededError


class InterruptGuard:
    """Turns Ctrl-C into a warning, once, and remembers it.

    Parameters
    ----------
    keep : bool
        If False, `KeyboardInterrupt` propagates.
    """

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.interrupted = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Guard a block: after Ctrl-C, execution continues behind it."""
        try:
            yield
        except KeyboardInterrupt:
            if not self.keep:
                raise
            if not self.interrupted:
                self.interrupted = True
                warnings.warn(
                    "training was interrupted; the estimator keeps the weights so far",
                    TrainingInterruptedWarning,
                    stacklevel=2,
                )
