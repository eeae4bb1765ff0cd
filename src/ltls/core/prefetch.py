"""Prefetching: the next item is prepared in a background thread while the current one is used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from typing import Any, TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield items, preparing each next one in a background thread.

    It pays where the loop body or the iterator releases the GIL. Items must not be None.
    """
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, items, None)
        while (item := following.result()) is not None:
            following = thread.submit(next, items, None)
            yield item


def arriving(items: Iterator[T], limit: int) -> Iterator[list[T]]:
    """Yield items as they arrive: those that are there, at least one and at most `limit`.

    They are read in a background thread, which is abandoned when the process ends.
    """
    queue: Queue[tuple[str, Any]] = Queue(limit)

    def read() -> None:
        try:
            for item in items:
                queue.put(("item", item))
        except BaseException as error:
            queue.put(("error", error))
        else:
            queue.put(("end", None))

    threading.Thread(target=read, daemon=True).start()
    kind, value = queue.get()
    while kind == "item":
        arrived = [value]
        kind = "none"
        while len(arrived) < limit:
            try:
                kind, value = queue.get_nowait()
            except Empty:
                kind = "none"
                break
            if kind != "item":
                break
            arrived.append(value)
        yield arrived
        if kind in ("none", "item"):
            kind, value = queue.get()
    if kind == "error":
        raise value
