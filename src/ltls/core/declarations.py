"""Declarations of what a section of a file may contain, and the checker that enforces them.

A checksum detects accidental damage, but not a forged file. So nothing in a file is trusted: every
tensor has a declared type, shape, smallest and largest value, and every number of the description
has a range. Anything undeclared is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .arrays import AnyArray, Tensors, pointers
from .shortened import shortened

Sizes: TypeAlias = "dict[str, int]"
Limit: TypeAlias = "float | str | None"

_KINDS = {
    "uint": ("uint8", "uint16", "uint32", "uint64"),
    "f8": ("float64",),
    "f4": ("float32",),
    "f2": ("float16",),
    "i8": ("int64",),
    "i1": ("int8",),
    "u1": ("uint8",),
    "u2": ("uint16",),
    "u4": ("uint32",),
}
_MOST = 2**53  # entries of lists


@dataclass(frozen=True)
class Array:
    """The declaration of a tensor.

    Parameters
    ----------
    kind : str
        "f8", "f4", "f2", "i1", "u1", "u2", "u4", "i8", or "uint" for unsigned integers of any size;
        several are separated by "|".
    shape : tuple of str or int
        Numbers, or names of sizes. A name that is not known yet is set to the length in the tensor.
    low, high : number or str, optional
        The smallest and the largest value; a str is a size, such as "n_labels - 1". Numbers must
        always be finite.
    total : str, optional
        The size that the values add up to: they are the lengths of lists.
    increasing : str, optional
        The values increase within lists whose lengths are in this tensor; "all" means a single
        list.
    distinct : bool
        No two values are equal.
    group : str, optional
        The tensors of a group are all present or all absent. Without a group, the tensor is
        required.
    mapped : bool
        The tensor is large: that its numbers are finite is checked only if the file is verified.
    """

    kind: str
    shape: tuple[str | int, ...]
    low: Limit = None
    high: Limit = None
    total: str | None = None
    increasing: str | None = None
    distinct: bool = False
    group: str | None = None
    mapped: bool = False


class Described:
    """A section of a file: a JSON description and tensors, which are checked as they are read.

    Parameters
    ----------
    description : dict
    tensors : mapping of str to callable
        Returns a tensor.
    prefix : str
        Prefix of the names of the tensors of this section.
    verify : bool
        Whether mapped tensors are checked, too.
    taken : set, optional
        The tensors that some section has declared.
    """

    def __init__(
        self,
        description: Any,
        tensors: Mapping[str, Callable[[], AnyArray]],
        prefix: str = "",
        verify: bool = False,
        taken: set[str] | None = None,
    ) -> None:
        if not isinstance(description, dict):
            raise ValueError(f"section {prefix or 'model'!r} must be an object")
        self._description, self._tensors, self._prefix = description, tensors, prefix
        self._verify = verify
        self._taken: set[str] = set() if taken is None else taken
        self._read: set[str] = set()
        self._sections: dict[str, Described] = {}

    # The description

    def get(
        self, name: str, wanted: str, accepts: Callable[[Any], bool], default: Any = None
    ) -> Any:
        """Return a value of the description that `accepts` returns True for."""
        self._read.add(name)
        value = self._description.get(name, default)
        if not accepts(value):
            raise ValueError(f"{self._prefix}{name} must be {wanted}, got {shortened(value)}")
        return value

    def integer(self, name: str, low: int, high: int = 2**62) -> int:
        """Return an integer of a range."""
        value: int = self.get(
            name,
            f"an integer from {low} to {high}",
            lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high,
        )
        return value

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float:
        """Return a finite number of a range."""
        value = self.get(
            name,
            f"a finite number from {low:g} to {high:g}",
            lambda v: _is_number(v, low, high),
        )
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return a boolean."""
        value: bool = self.get(name, "true or false", lambda v: isinstance(v, bool), default)
        return value

    def choice(self, name: str, values: Mapping[str, Any] | tuple[str, ...]) -> str:
        """Return one of some texts."""
        value: str = self.get(
            name, f"one of {', '.join(values)}", lambda v: isinstance(v, str) and v in values
        )
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts."""
        value: list[str] = self.get(
            name,
            "a list of texts",
            lambda v: isinstance(v, list) and all(isinstance(t, str) for t in v),
        )
        return value

    def numbers(self, name: str, low: float = -math.inf, high: float = math.inf) -> list[float]:
        """Return a list of finite numbers of a range."""
        value: list[float] = self.get(
            name,
            f"a list of finite numbers from {low:g} to {high:g}",
            lambda v: isinstance(v, list) and all(_is_number(n, low, high) for n in v),
        )
        return value

    def has(self, name: str) -> bool:
        """Return whether the description has a value."""
        return name in self._description

    def section(self, name: str) -> Described:
        """Return a subsection; the names of its tensors begin with its name."""
        value = self.get(name, "an object", lambda v: isinstance(v, dict))
        if name not in self._sections:
            prefix = f"{self._prefix}{name}."
            own = Described(value, self._tensors, prefix, self._verify, self._taken)
            self._sections[name] = own
        return self._sections[name]

    def check_all_read(self) -> None:
        """Raise an error if a value was not read, here or in a subsection."""
        for name in self._description:
            if name not in self._read:
                raise ValueError(f"{self._prefix}{name} is not known")
        for section in self._sections.values():
            section.check_all_read()

    # Tensors

    def tensors(self, declared: Mapping[str, Array], sizes: Sizes) -> Tensors:
        """Return the tensors of this section, checked; names of sizes are added to `sizes`."""
        found: Tensors = {}
        missing: dict[str, str] = {}
        for name, array in declared.items():
            if self._prefix + name in self._tensors:
                found[name] = self._tensors[self._prefix + name]()
                self._taken.add(self._prefix + name)
            elif array.group is None:
                raise ValueError(f"tensor {self._prefix + name!r} is missing")
            else:
                missing[array.group] = name
        for name in found:
            group = declared[name].group
            if group is not None and group in missing:
                raise ValueError(f"tensor {self._prefix + missing[group]!r} is missing")
        for name, tensor in found.items():
            try:
                check_array(declared[name], tensor, sizes, found, self._verify)
            except ValueError as error:  # noqa: PERF203
                raise ValueError(f"tensor {self._prefix + name!r} {error}") from None
        return found

    def check_all_taken(self) -> None:
        """Raise an error if the file has tensors that no section has declared."""
        for name in self._tensors:
            if name not in self._taken:
                raise ValueError(f"tensor {name!r} is not known")


def check_array(
    array: Array, tensor: AnyArray, sizes: Sizes, others: Mapping[str, AnyArray], verify: bool
) -> None:
    """Raise an error if a tensor is not as declared."""
    kinds = [kind for part in array.kind.split("|") for kind in _KINDS[part]]
    if tensor.dtype.name not in kinds:
        raise ValueError(f"must be {' or '.join(kinds)}, got {tensor.dtype.name}")
    if tensor.ndim != len(array.shape):
        raise ValueError(f"must have {len(array.shape)} dimension(s), got shape {tensor.shape}")
    for length, wanted in zip(tensor.shape, array.shape, strict=True):
        if isinstance(wanted, str) and wanted.isidentifier():
            sizes.setdefault(wanted, length)
        if length != (expected := _limit(wanted, sizes)):
            raise ValueError(
                f"must have shape {array.shape} with {wanted} {expected}, got {tensor.shape}"
            )
    if tensor.dtype.kind == "f" and (verify or not array.mapped):
        _check_finite(tensor)
    _check_values(array, tensor, sizes, others)


def _check_values(
    array: Array, tensor: AnyArray, sizes: Sizes, others: Mapping[str, AnyArray]
) -> None:
    if tensor.size:
        low, high = _limit(array.low, sizes), _limit(array.high, sizes)
        if low is not None and tensor.min() < low:
            raise ValueError(f"must have values of at least {low}, got {tensor.min()}")
        if high is not None and tensor.max() > high:
            raise ValueError(f"must have values of at most {high}, got {tensor.max()}")
    if array.total is not None:
        if tensor.sum(dtype=np.float64) > _MOST:  # a sum of integers would wrap around
            raise ValueError(f"must add up to at most {_MOST}")
        total, wanted = int(tensor.sum(dtype=np.uint64)), sizes.get(array.total)
        if sizes.setdefault(array.total, total) != total:
            raise ValueError(f"must add up to {array.total} {wanted}, got {total}")
    if array.increasing is not None and len(tensor) > 1:
        rises = tensor[1:] > tensor[:-1]
        if array.increasing != "all":
            ends = pointers(others[array.increasing])[1:-1]
            if len(ends) and ends[-1] > len(tensor):
                raise ValueError(f"must have {array.increasing} that add up to its length")
            inside = ends[(ends > 0) & (ends < len(tensor))]
            rises[inside - 1] = True
        if not rises.all():
            raise ValueError("must have values that increase")
    if array.distinct and len(np.unique(tensor)) != len(tensor):
        raise ValueError("must have distinct values")


def _limit(limit: Limit | int, sizes: Sizes) -> Any:
    """Return a number, or a size plus or minus a number."""
    if not isinstance(limit, str):
        return limit
    match = re.fullmatch(r"(\w+)(?: ([+-]) (\d+))?", limit)
    assert match is not None, limit
    offset = int(match[3] or 0)
    return sizes[match[1]] + (-offset if match[2] == "-" else offset)


def _is_number(value: Any, low: float, high: float) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and low <= value <= high
        and math.isfinite(value)
    )


def _check_finite(tensor: AnyArray) -> None:
    # The sum is not finite if a number is not. It rarely overflows; then numbers are tested.
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(tensor.sum(dtype=np.float64)) and not np.isfinite(tensor).all():
            raise ValueError("has numbers that are not finite")
