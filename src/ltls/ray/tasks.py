"""Functions as Ray tasks, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .cluster import causes_raised, import_ray


class Tasks:
    """Runs functions as Ray tasks.

    Parameters
    ----------
    n_cpus : int, default=1
        CPUs of a task.
    max_retries : int, default=10
        How often Ray runs a task again whose process or node has died. Errors are not retried.
    """

    def __init__(self, n_cpus: int = 1, max_retries: int = 10) -> None:
        self._options = {"num_cpus": n_cpus, "max_retries": max_retries}
        self._remote: dict[Callable[..., Any], Any] = {}
        self._pending: list[Any] = []

    def run(self, function: Callable[..., Any], *args: Any, n_returns: int = 1) -> Any:
        """Start a task; return a reference, or a list of them."""
        if function not in self._remote:
            self._remote[function] = import_ray().remote(function)
        task = self._remote[function].options(num_returns=n_returns, **self._options)
        found = task.remote(*args)
        self._pending.append(found[0] if isinstance(found, list) else found)
        return found

    def put(self, value: Any) -> Any:
        """Put a value into the object store."""
        return import_ray().put(value)

    def get(self, references: Any) -> Any:
        """Return the values of references, when they are there."""
        with causes_raised():
            return import_ray().get(references)

    def in_order(self, references: Sequence[Any]) -> Iterator[Any]:
        """Yield values one by one, so that they are not all in memory together."""
        for reference in references:
            yield self.get(reference)

    def cancel(self) -> None:
        """Cancel all tasks that still run."""
        ray = import_ray()
        for reference in self._pending:
            ray.cancel(reference)
        self._pending = []

    def finished(self) -> None:
        """Forget the tasks so far: their results are there."""
        self._pending = []


def fetched(chunks: Sequence[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield numbered values of references; the next one is fetched meanwhile."""
    ray = import_ray()
    for place, (number, reference) in enumerate(chunks):
        following = [each for _, each in chunks[place + 1 : place + 2]]
        if following:
            ray.wait(following, timeout=0, fetch_local=True)
        yield number, ray.get(reference)
