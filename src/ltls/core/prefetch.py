"""Prefetching: the next item is prepared in a background thread while the current one is used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
    queue: Queue[Any] = Queue(limit)
    end = object()

    def read() -> None:
        error = None
        try:
            for item in items:
                queue.put((item, None))
        except BaseException as raised:
            error = raised
        queue.put((end, error))

    threading.Thread(target=read, daemon=True).start()
    last = None
    while last is not end:
        arrived = [queue.get()]
        with suppress(Empty):
            while len(arrived) < limit:
                arrived.append(queue.get_nowait())
        last, error = arrived[-1]
        if some := [item for item, _ in arrived if item is not end]:
            yield some
        if error is not None:
            raise error
