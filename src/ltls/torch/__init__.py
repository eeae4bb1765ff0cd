"""Trellises in PyTorch: an output layer that replaces a large softmax, and its building blocks.

`TrellisSoftmax` is the layer, `AdaptiveTrellisSoftmax` an adaptive softmax that ends in one, and
`TrellisEmbedding` an input table of logarithmic size. `functional` has the dynamic programs on
tensors of edge scores, most of them on the compiled engine (CPU) or as fused Triton kernels (GPU).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import functional
from .adaptive import AdaptiveTrellisSoftmax
from .base import HeadOutput
from .embedding import TrellisEmbedding
from .functional import log_partition, log_prob, marginals, path_scores, sample, topk, viterbi
from .head import TrellisSoftmax
from .layout import Layout, make_layout

if TYPE_CHECKING:
    from .convert import from_classifier, to_classifier
    from .encoders import EncoderClassifier
    from .probing import probe

__all__ = [
    "AdaptiveTrellisSoftmax",
    "EncoderClassifier",
    "HeadOutput",
    "Layout",
    "TrellisEmbedding",
    "TrellisSoftmax",
    "from_classifier",
    "functional",
    "log_partition",
    "log_prob",
    "make_layout",
    "marginals",
    "path_scores",
    "probe",
    "sample",
    "to_classifier",
    "topk",
    "viterbi",
]

# These need the estimators and with them the compiled engine. They are imported on first use, so
# that the layer also runs from source, on a GPU machine without the engine (PEP 562).
_LAZY = {
    "EncoderClassifier": ".encoders",
    "from_classifier": ".convert",
    "probe": ".probing",
    "to_classifier": ".convert",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
