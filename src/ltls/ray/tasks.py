"""Functions as Ray tasks, a limited number of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..core.version import __version__
from .cluster import causes_raised, check_version, import_ray


class Tasks:
    """Runs functions as Ray tasks.

    Parameters
    ----------
    n_workers : int
        Tasks that run at the same time, at most.
    n_cpus : int, default=1
        CPUs of a task.
    max_retries : int, default=10
        How often Ray runs a task again whose process or node has died. Errors are not retried.
    """

    def __init__(self, n_workers: int, n_cpus: int = 1, max_retries: int = 10) -> None:
        self.n_workers, self.n_cpus = n_workers, n_cpus
        self._options = {"num_cpus": n_cpus, "max_retries": max_retries}

    def map(
        self, function: Callable[..., tuple[Any, Any]], arguments: Iterable[tuple[Any, ...]]
    ) -> list[tuple[Any, Any]]:
        """Call a function with each of some arguments.

        It returns a small report and a result. Reports are returned with references to the results,
        in the order of the arguments. Errors are raised as soon as they occur.
        """
        ray = import_ray()
        named = {"name": function.__name__, "num_returns": 2}
        task = ray.remote(_call).options(**named, **self._options)
        results: list[tuple[Any, Any]] = []
        running: list[Any] = []
        try:
            with causes_raised():
                for each in arguments:
                    if len(running) == self.n_workers:
                        _wait_for_one(ray, running)
                    results.append(tuple(task.remote(__version__, function, *each)))
                    running.append(results[-1][0])
                while running:
                    _wait_for_one(ray, running)
                return [(ray.get(report), result) for report, result in results]
        except BaseException:
            for reference in running:
                ray.cancel(reference)
            raise


def _call(version: str, function: Callable[..., tuple[Any, Any]], *arguments: Any) -> Any:
    check_version(version)
    return function(*arguments)


def _wait_for_one(ray: Any, running: list[Any]) -> None:
    """Wait until a task has ended, remove it, and raise its error if there is one."""
    ended, running[:] = ray.wait(running)
    ray.get(ended)


def values_of(references: Sequence[Any]) -> Iterator[Any]:
    """Yield the values of references, one by one; the next one is fetched meanwhile."""
    ray = import_ray()
    for number, reference in enumerate(references):
        if following := references[number + 1 : number + 2]:
            ray.wait(following, timeout=0, fetch_local=True)
        with causes_raised():
            value = ray.get(reference)
        yield value
        del value
