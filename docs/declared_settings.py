"""An extension of griffe, which reads the code for the site: settings as they are at run time.

Docstrings and signatures of classes of settings are made from their declarations when they are
imported; griffe reads the source alone.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import griffe

_DECORATOR = "ltls.core.settings.settings"


class DeclaredSettings(griffe.Extension):
    """Gives classes of declared settings their docstrings and signatures."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace what the source says of a class of settings."""
        if _DECORATOR not in [decorator.callable_path for decorator in cls.decorators]:
            return
        found = getattr(import_module(cls.module.path), cls.name)
        if cls.docstring is not None:
            cls.docstring.value = inspect.getdoc(found) or ""
        parameters = griffe.Parameters(
            *(
                griffe.Parameter(
                    each.name,
                    kind=griffe.ParameterKind(each.kind.description),
                    default=None if each.default is each.empty else repr(each.default),
                )
                for each in inspect.signature(found).parameters.values()
            )
        )
        cls.set_member("__init__", griffe.Function("__init__", parameters=parameters))
