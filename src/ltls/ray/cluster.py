"""The cluster: connection, version check of all nodes, and functions as tasks."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.version import __version__

_SECONDS = 5.0  # to wait for an address to answer
_PORT = {"": 6379, "ray": 10001}


class ClusterError(OSError):
    """The cluster cannot be reached, or cannot run ltls."""


class VersionMismatchError(ClusterError):
    """A node has another version of ltls than the caller, or none."""


@contextmanager
def connect(address: str = "auto", **options: Any) -> Iterator[None]:
    """Connect to a Ray cluster in a ``with`` block; an existing connection is reused.

    Parameters
    ----------
    address : str, default="auto"
        ``host:port`` of the head node, ``ray://host:port``, "auto" for the cluster of this
        machine, or "local" to start Ray on this machine.
    **options
        Options of `ray.init`.

    Raises
    ------
    ClusterError
        If no cluster answers, or a node has another version of ltls.
    """
    ray = import_ray()
    if ray.is_initialized():
        check_nodes()
        yield
        return
    _check_address(address)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        ray.init(address, **{"log_to_driver": False, "logging_level": "ERROR", **options})
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(f"there is no Ray cluster at {address!r}: {error}") from None
    try:
        check_nodes()
        yield
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """Import Ray, which only this package needs."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ClusterError("a cluster needs Ray: pip install 'ltls[ray]'") from None
    return ray


def check_version(version: str) -> None:
    """Raise an error in a worker whose version of ltls differs from the caller's."""
    if version != __version__:
        raise VersionMismatchError(_mismatch(socket.gethostname(), __version__, version))


def check_nodes() -> None:
    """Raise an error if a node has another version of ltls than this process, or none."""
    ray = import_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # A nested function is pickled by value: a node without ltls can run it.
    def installed() -> str | None:
        try:
            from ltls.core.version import __version__ as version
        except ImportError:
            return None
        return version

    probe = ray.remote(installed)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    found = [
        probe.options(
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote()
        for node in nodes
    ]
    for node, version in zip(nodes, ray.get(found), strict=True):
        if version != __version__:
            raise VersionMismatchError(_mismatch(node["NodeManagerHostname"], version, __version__))


@contextmanager
def causes_raised() -> Iterator[None]:
    """Raise the original error of a task, without Ray's frames."""
    ray = import_ray()
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause: BaseException = error
        while isinstance(cause, ray.exceptions.RayError):
            inner = getattr(cause, "cause", None) or cause.__cause__
            if not isinstance(inner, BaseException) or inner is cause:
                raise
            cause = inner
        raise cause from None


def set_options(dataset: Any, preserve_order: bool = False) -> None:
    """Make a dataset raise original errors, hide progress bars, and optionally preserve order."""
    context = dataset.context
    context.raise_original_map_exception = True
    context.enable_progress_bars = False
    context.execution_options.preserve_order = preserve_order


def _mismatch(node: str, theirs: str | None, ours: str) -> str:
    has = "has no ltls" if theirs is None else f"has ltls {theirs}"
    return f"the node {node} {has}, this process has {ours}: install the same version on all nodes"


def _check_address(address: str) -> None:
    """Raise an error if an address does not answer; Ray itself would wait for minutes."""
    if address in ("local", "auto"):
        if address == "auto" and "RAY_ADDRESS" in os.environ:
            _check_address(os.environ["RAY_ADDRESS"])
        return
    scheme, _, rest = address.rpartition("://")
    host, _, port = rest.rpartition(":") if ":" in rest else (rest, "", "")
    if scheme not in _PORT or not host or (port and not port.isdecimal()):
        raise ClusterError(
            f"the address of a cluster must be host:port, ray://host:port, auto or local, got "
            f"{address!r}"
        )
    try:
        socket.create_connection((host, int(port or _PORT[scheme])), _SECONDS).close()
    except OSError as error:
        raise ClusterError(f"no Ray cluster answers at {address!r}: {error}") from None


# Tasks


class Tasks:
    """Runs functions as Ray tasks.

    Parameters
    ----------
    n_workers : int
        Maximum number of concurrent tasks.
    n_cpus : int, default=1
        CPUs of a task.
    max_retries : int, default=10
        How often Ray reruns a task whose process or node has died. Errors are not retried.
    """

    def __init__(self, n_workers: int, n_cpus: int = 1, max_retries: int = 10) -> None:
        self.n_workers, self.n_cpus = n_workers, n_cpus
        self._options = {"num_cpus": n_cpus, "max_retries": max_retries}

    def map(
        self, function: Callable[..., tuple[Any, Any]], arguments: Iterable[tuple[Any, ...]]
    ) -> list[tuple[Any, Any]]:
        """Call a function with each of several arguments.

        The function returns a small report and a result. Reports are returned with references to
        the results, in the order of the arguments. Errors are raised as soon as they occur.
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
    """Wait until a task has ended, remove it, and raise its error, if any."""
    ended, running[:] = ray.wait(running)
    ray.get(ended)


def values_of(references: Sequence[Any]) -> Iterator[Any]:
    """Yield the values of references one by one, prefetching the next."""
    ray = import_ray()
    for number, reference in enumerate(references):
        if following := references[number + 1 : number + 2]:
            ray.wait(following, timeout=0, fetch_local=True)
        with causes_raised():
            value = ray.get(reference)
        yield value
        del value
