"""The declarations of settings, read from the source, so that a wrong setting is an error at once.

The classes of settings are in modules that import scikit-learn, which takes a second. Here, their
declarations alone are evaluated. If one needs a name from elsewhere, such as a registry, only the
name of the setting is known, not the values that it allows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import Field
from functools import cache
from pathlib import Path
from typing import Any

from ..core import declared

_FOLDERS = ("features", "parts", "estimators")
NOT_HERE = {"features", "parts", "verbose", "warm_start"}  # in Python only


@cache
def declarations() -> dict[str, ast.Call]:
    """Return the declarations of all settings by name; an empty dict if there is no source."""
    classes = {each.name: each for each in _classes()}
    if not classes:
        return {}
    own = _declared("Parameters", classes)
    kinds = {"features": ["Numbers", "Text"]}
    for name, call in own.items():
        if ast.unparse(call.func) == "_part":
            kinds[name] = [ast.unparse(call.args[0])]
    found = {name: call for name, call in own.items() if name not in NOT_HERE}
    for group, names in kinds.items():
        for kind in names:
            nested = _declared(kind, classes)
            found |= {f"{group}.{name}": call for name, call in nested.items()}
    return found


def declaration(name: str) -> Field[Any] | None:
    """Return the declaration of a setting, None if it needs more than this module imports."""
    call = declarations().get(name)
    try:
        code = None if call is None else compile(ast.Expression(call), name, "eval")
        return None if code is None else eval(code, {**vars(declared)})
    except NameError:
        return None


def _classes() -> Iterator[ast.ClassDef]:
    root = Path(__file__).parents[1]
    for file in (file for folder in _FOLDERS for file in sorted((root / folder).glob("*.py"))):
        source = file.read_text("utf-8")
        if "\n@settings\n" in source:
            for node in ast.parse(source).body:
                if isinstance(node, ast.ClassDef):
                    yield node


def _declared(name: str, classes: dict[str, ast.ClassDef]) -> dict[str, ast.Call]:
    """Return the declarations in a class and in those that it inherits from."""
    found: dict[str, ast.Call] = {}
    for base in map(ast.unparse, classes[name].bases):
        found |= _declared(base, classes) if base in classes else {}
    for node in classes[name].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
            found[ast.unparse(node.target)] = node.value
    return found
