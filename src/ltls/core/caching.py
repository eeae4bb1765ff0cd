"""Properties that are computed once, without a lock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:
    # In Python 3.10 and 3.11, cached_property has one lock for all objects of a class: threads wait
    # for each other, and a process that is forked while a thread holds the lock waits forever.

    class cached_property:  # noqa: N801
        """A property whose value is kept in the object."""

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._function(instance)
            return value
