"""Classification among very many classes in logarithmic time and space.

Every class is a path through a small graph, the trellis; a model learns one score per edge, and
dynamic programming finds the best class, the best k, and the sum over all of them in O(log C).
Jasinska and Karampatziakis, *Log-time and Log-space Extreme Classification*, 2016.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .core.version import __version__ as __version__

if TYPE_CHECKING:
    from . import metrics, plot, presets, readers, settings
    from .estimators.classifier import LTLSClassifier
    from .estimators.front_ends import TableClassifier, TextClassifier
    from .estimators.load import load
    from .storage.tensor_file import ModelFileError
    from .structure.codebook import RandomCodebook, TableCodebook
    from .structure.trellis import Trellis
    from .training.checkpoint import Checkpoint

__all__ = [
    "Checkpoint",
    "LTLSClassifier",
    "ModelFileError",
    "RandomCodebook",
    "TableClassifier",
    "TableCodebook",
    "TextClassifier",
    "Trellis",
    "load",
    "metrics",
    "plot",
    "presets",
    "readers",
    "settings",
]

# Public names are imported on first use, so that `import ltls` stays fast (PEP 562).
_HOME = {
    "Checkpoint": "training.checkpoint",
    "LTLSClassifier": "estimators.classifier",
    "ModelFileError": "storage.tensor_file",
    "RandomCodebook": "structure.codebook",
    "TableClassifier": "estimators.front_ends",
    "TableCodebook": "structure.codebook",
    "TextClassifier": "estimators.front_ends",
    "Trellis": "structure.trellis",
    "load": "estimators.load",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    if name in __all__ or name in (
        "hub",
        "mlflow",
        "ray",
        "torch",
    ):  # `import *` must not need them
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
