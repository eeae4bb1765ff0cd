"""Settings: hyperparameters that are declared once, for Python, the terminal, files and the docs.

A group of settings is a class of fields, each with a default, the values that it allows, and a
sentence on what it does::

    @settings
    class Trellises(Settings):
        "How labels are found."
        width: int | str = setting(Integer(2), AUTO, default=AUTO, help="States per slice.")

This module imports neither scikit-learn nor NumPy, which would take a second: the options of
commands are declared and checked with it before anything slow is imported.
"""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
elif sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Do nothing: it is for type checkers."""
        return lambda function: function


AUTO = "auto"
T = TypeVar("T")
_SECTION = r"\n\n(?=[A-Z][a-z]+\n-{3,}\n)"  # where the first section of a docstring begins


class ParameterError(ValueError, TypeError):
    """A parameter has an invalid value.

    `parameter` is its name, and `reason` says what it must be and what was given.
    """

    def __init__(self, owner: str, parameter: str, reason: str) -> None:
        super().__init__(owner, parameter, reason)  # all of them, so that it can be pickled
        self.owner, self.parameter, self.reason = owner, parameter, reason

    def __str__(self) -> str:
        return f"The {self.parameter!r} parameter of {self.owner} {self.reason}"


class Allowed:
    """A kind of value that a setting allows."""

    def __init__(self, description: str, accepts: Callable[[Any], bool]) -> None:
        self._description, self.accepts = description, accepts

    @property
    def description(self) -> str:
        """What is allowed, in words."""
        return self._description


class Integer(Allowed):
    """Integers in a range."""

    def __init__(self, low: int, high: int | None = None) -> None:
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        super().__init__(
            f"an integer {limits}",
            lambda value: (
                isinstance(value, Integral)
                and not isinstance(value, bool)
                and low <= int(value) <= (math.inf if high is None else high)
            ),
        )


class Number(Allowed):
    """Finite numbers in a range; `above` and `below` are exclusive limits."""

    def __init__(
        self,
        low: float = -math.inf,
        high: float = math.inf,
        *,
        above: float = -math.inf,
        below: float = math.inf,
    ) -> None:
        limits = {"of at least": low, "above": above, "of at most": high, "below": below}
        told = " and ".join(
            f"{word} {limit:g}" for word, limit in limits.items() if abs(limit) < math.inf
        )
        super().__init__(
            f"a number {told}".strip(),
            lambda value: (
                isinstance(value, Real)
                and not isinstance(value, bool)
                and low <= float(value) <= high
                and above < float(value) < below
                and math.isfinite(value)
            ),
        )


class Instance(Allowed):
    """Objects of some types."""

    def __init__(self, description: str, *types: type) -> None:
        super().__init__(description, lambda value: isinstance(value, types))


class OneOf(Allowed):
    """Strings from a collection, such as the names in a registry when a value is checked."""

    def __init__(self, values: Collection[str]) -> None:
        super().__init__("", lambda value: isinstance(value, str) and value in values)
        self._values = values

    @property
    def description(self) -> str:
        """What is allowed, in words."""
        return " or ".join(map(repr, self._values))


def _is_flag(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return isinstance(value, bool) or (numpy is not None and isinstance(value, numpy.bool_))


FLAG = Allowed("True or False", _is_flag)
NOTHING = Instance("None", type(None))
TEXT = Instance("a string", str)
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def n_bytes(size: Any) -> int | None:
    """Return a size such as "5MB" in bytes, None if it is not a size."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?B)\s*", str(size).upper())
    if not match or match[2] not in _UNITS:
        return None
    found = float(match[1]) * _UNITS[match[2]]
    return int(found) if 1 <= found < math.inf else None


SIZE = Allowed("a size such as '5MB' or '300KB'", lambda value: n_bytes(value) is not None)


def setting(*allowed: Allowed | str, default: Any, help: str) -> Any:  # noqa: A002
    """Declare a setting: what it allows, its default, and what it does."""
    kinds = tuple(OneOf((each,)) if isinstance(each, str) else each for each in allowed)
    return field(default=default, metadata={"allowed": kinds, "help": help})


def parse_value(text: str) -> Any:
    """Parse a value from the terminal: as JSON if it is valid JSON, else as a string."""
    known = {"none": None, "true": True, "false": False}
    if text.lower() in known:
        return known[text.lower()]
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


@dataclass_transform(kw_only_default=True, field_specifiers=(setting, field))
def settings(cls: type[T]) -> type[T]:
    """Make a class of declared settings: keyword-only, documented by their declarations."""
    made = dataclass(kw_only=True, repr=False, eq=False)(cls)
    lines = []
    for each in sorted(fields(made), key=lambda each: bool(each.kw_only)):  # type: ignore[arg-type]
        kinds = [kind.description for kind in each.metadata.get("allowed", ())]
        default = "" if each.default is MISSING else f", default={each.default!r}"
        lines.append(f"{each.name} : {' or '.join(kinds)}{default}")
        lines.append(textwrap.indent(textwrap.fill(each.metadata.get("help", ""), 96), "    "))
    section = ["\n".join(["Parameters", "----------", *lines])] if lines else []
    about, *others = re.split(_SECTION, textwrap.dedent(f"    {cls.__doc__}"), maxsplit=1)
    made.__doc__ = "\n\n".join([about.rstrip(), *section, *others])
    return made


class Declared:
    """A group of declared settings; see `settings`."""

    def check(self, owner: str | None = None) -> None:
        """Raise a `ParameterError` for the first setting with an invalid value."""
        self.check_own(owner)
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            named = value if isinstance(value, dict) else {each.name: value}
            for name, group in named.items():
                if isinstance(group, Declared):
                    group.check(name)

    def check_own(self, owner: str | None = None) -> None:
        """Check all but the settings of groups within this one."""
        owner = owner or type(self).__name__
        for each in fields(self):  # type: ignore[arg-type]
            value, kinds = getattr(self, each.name), each.metadata.get("allowed", ())
            is_default = type(value) is type(each.default) and value == each.default
            if not (is_default or not kinds or any(kind.accepts(value) for kind in kinds)):
                wanted = " or ".join(kind.description for kind in kinds)
                raise ParameterError(owner, each.name, f"must be {wanted}, got {value!r}")

    @classmethod
    def declared(cls) -> Iterator[tuple[str, Any, str, str]]:
        """Yield name, default, allowed values and help of every setting."""
        for each in fields(cls):  # type: ignore[arg-type]
            kinds = " or ".join(kind.description for kind in each.metadata.get("allowed", ()))
            yield each.name, each.default, kinds, each.metadata.get("help", "")

    def filled(self, **automatic: Any) -> Self:
        """Return a copy in which the given values replace "auto"."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        chosen = {
            name: automatic[name] if isinstance(value, str) and value == AUTO else value
            for name, value in given.items()
            if name in automatic
        }
        return type(self)(**{**given, **chosen})

    @classmethod
    def from_dict(cls, given: Any) -> Self:
        """Return settings with values from a file, checked like those of a user."""
        names = [name for name, *_ in cls.declared()]
        if not isinstance(given, dict) or not given.keys() <= set(names):
            raise ValueError(f"settings must be among {', '.join(names)}, got {str(given)[:80]}")
        made = cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
        made.check()
        return made


GROUPS: dict[str, type[Settings]] = {}  # all groups by name, as model files name them


class Settings(Declared):
    """A group of settings; see `settings`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        GROUPS.setdefault(cls.__name__, cls)

    def stored(self) -> dict[str, Any]:
        """Return the settings as a file stores them; see `from_dict`."""
        return self.get_params(deep=False)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings, as an estimator returns its parameters."""
        return {name: getattr(self, name) for name in sorted(each.name for each in fields(self))}  # type: ignore[arg-type]

    def set_params(self, **params: Any) -> Self:
        """Set some of the settings."""
        known = self.get_params(deep=False)
        for name, value in params.items():
            if name not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for {type(self).__name__}, which has "
                    f"{', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: default for name, default, *_ in self.declared()}
        pairs = ((name, repr(value)) for name, value in self.get_params(deep=False).items())
        given = [f"{name}={text}" for name, text in pairs if text != repr(defaults[name])]
        return f"{type(self).__name__}({', '.join(given)})"
