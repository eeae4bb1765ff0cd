"""Classification among very many classes in logarithmic time and space.

Every class is a path through a small graph, the trellis; a model learns one score per edge, and
dynamic programming finds the best class, the best k, and the sum over all of them in O(log C).
Jasinska and Karampatziakis, *Log-time and Log-space Extreme Classification*, 2016.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError as _NotInstalled
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import metrics, plot, presets, readers, tuning
    from .checkpoint import Checkpoint
    from .classifier import LTLSClassifier
    from .codebook import RandomCodebook, TableCodebook
    from .model_file import load
    from .tensor_file import ModelFileError
    from .text import TextClassifier
    from .trellis import Trellis

try:
    __version__ = _version("ltls")
except _NotInstalled:  # run from its sources, as far as they go without the engine
    __version__ = "0+source"
__all__ = [
    "Checkpoint",
    "LTLSClassifier",
    "ModelFileError",
    "RandomCodebook",
    "TableCodebook",
    "TextClassifier",
    "Trellis",
    "load",
    "metrics",
    "plot",
    "presets",
    "readers",
    "tuning",
]

# Public names load when they are first used, so that importing ltls stays fast (PEP 562).
_HOME = {
    "Checkpoint": "checkpoint",
    "LTLSClassifier": "classifier",
    "ModelFileError": "tensor_file",
    "RandomCodebook": "codebook",
    "TableCodebook": "codebook",
    "TextClassifier": "text",
    "Trellis": "trellis",
    "load": "model_file",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    if name in __all__ or name == "torch":  # not for `import *`, which needs no torch
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
