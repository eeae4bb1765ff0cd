"""Settings at the terminal: ``--set trellises.width=16``, and ``ltls settings``, which lists them.

Settings are declared once, in the group of their part, with names, allowed values and help texts.
"""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..core.settings import Declared, ParameterError, parse_value
from .options import Json

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier

_NOT_HERE = {"features", "parts", "verbose", "warm_start"}  # in Python only
_OTHERS = "parts."  # settings of parts from other packages, such as parts.popularity.strength


class Setting(NamedTuple):
    """A setting of a group: its name at the terminal, and its declaration."""

    name: str
    group: type[Declared]
    default: Any
    allowed: str
    help: str


@cache
def known() -> dict[str, Setting]:
    """Return all settings by name; those that only texts have come from `Text`."""
    from ..estimators.parameters import Parameters  # slow; not needed for other commands
    from ..features.front_ends import Text

    groups: list[tuple[str, type[Declared]]] = [("", Parameters)]
    for name, kind in Parameters.groups().items():
        groups += [(f"{name}.", each) for each in ((kind, Text) if name == "features" else (kind,))]
    found: dict[str, Setting] = {}
    for prefix, group in groups:
        for name, default, allowed, about in group.declared():
            if prefix or name not in _NOT_HERE:
                full = prefix + name
                found.setdefault(full, Setting(full, group, default, allowed, about))
    return found


def _of_other_packages() -> dict[str, Setting]:
    from ..parts.base import load_parts

    own = {name.partition(".")[0] for name in known()}
    return {
        f"{_OTHERS}{name}.{each}": Setting(f"{_OTHERS}{name}.{each}", part.settings, *declared)
        for name, part in load_parts().items()
        if name not in own
        for each, *declared in part.settings.declared()
    }


def settings(
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="A group, such as trellises.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List all settings of training.

    Pass them to ltls train as --set NAME=VALUE. Values are JSON; strings need no quotes.
    """
    every = {**known(), **_of_other_packages()}
    if not any(group in (None, *_names(name)) for name in every):
        groups = dict.fromkeys(name.partition(".")[0] for name in every if "." in name)
        raise ValueError(f"GROUP must be one of {', '.join(groups)}, got {group!r}")
    shown = [each for name, each in every.items() if group in (None, *_names(name))]
    if as_json:
        facts = [
            {
                **each._asdict(),
                "group": each.group.__name__ if "." in each.name else "LTLSClassifier",
            }
            for each in shown
        ]
        print(json.dumps(facts, ensure_ascii=False))
        return
    for each in shown:
        print(f"{each.name}={written(each.default)}")
        print(textwrap.indent(textwrap.fill(f"{each.help} ({each.allowed})", 92), "    "))


def _names(name: str) -> tuple[str, str]:
    """Return the name of a setting and of its group."""
    return name, name.partition(".")[0]


def written(value: Any) -> str:
    """Return a value as it is passed to --set."""
    return value if isinstance(value, str) else json.dumps(value).replace("null", "none")


def parse(given: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Return checked values by the names of settings.

    Parameters
    ----------
    given : iterable of (str, str, str)
        The option as named in messages, the name of the setting, and its value.
    """
    values, every = {}, known()
    for called, name, text in given:
        if name not in every:
            every = {**known(), **_of_other_packages()}
        if name not in every:
            same = [each for each in every if each.endswith(f".{name}")]
            close = same or difflib.get_close_matches(name, every, n=1)
            hint = f"; did you mean {close[0]}?" if close else "; ltls settings lists them"
            raise ValueError(f"{called}: there is no setting {name!r}{hint}")
        values[name] = value = parse_value(text)
        made: Any = every[name].group(**{name.rpartition(".")[2]: value})
        try:
            made.check()
        except ParameterError as error:
            raise ValueError(f"{called} {error.reason}") from None
        except ValueError as error:
            raise ValueError(f"{called}: {error}") from None
    return values


def apply(estimator: LTLSClassifier, values: dict[str, Any]) -> None:
    """Set parameters of an estimator; a setting of a disabled group enables the group."""
    from ..features.front_ends import Text

    for name, value in sorted(values.items(), key=lambda item: "." in item[0]):
        group, nested, _ = name.partition(".")
        if nested and getattr(estimator, group) is False:
            if values.get(group) is False:
                raise ValueError(
                    f"--set {name} is a setting of {group}, which is false: leave out one of them"
                )
            estimator.set_params(**{group: "auto"})
        parameter = name.replace(".", "__")
        if group == "features" and parameter not in estimator.get_params():
            if known()[name].group is not Text:
                raise ValueError(f"--set {name} is for features; leave out --text")
            raise ValueError(f"--set {name} is for texts; name the text column with --text")
        estimator.set_params(**{parameter: value})
