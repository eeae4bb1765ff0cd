"""Classification among very many classes in logarithmic time and space.

Every class is a path through a small graph, the trellis; a model learns one score per edge, and
dynamic programming finds the best class, the best k, and the sum over all of them in O(log C).
Jasinska and Karampatziakis, *Log-time and Log-space Extreme Classification*, 2016.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .codebook import RandomCodebook, TableCodebook
    from .trellis import Trellis

__version__ = _version("ltls")
__all__ = ["RandomCodebook", "TableCodebook", "Trellis"]

# Public names load when they are first used, so that importing ltls stays fast (PEP 562).
_HOME = {
    "RandomCodebook": "codebook",
    "TableCodebook": "codebook",
    "Trellis": "trellis",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
