"""Trellises in torch: an output layer that replaces a huge softmax, and what it is made of.

`TrellisSoftmax` is the layer. `functional` has the dynamic programs on tensors of edge scores:
on a CPU by the compiled engine, on a GPU by fused Triton kernels.
"""

from . import functional
from . import operators
from .export import from_classifier, to_classifier
from .functional import log_partition, log_prob, marginals, path_scores, sample, topk, viterbi
from .head import HeadOutput, TrellisSoftmax
from .layout import Layout, make_layout

__all__ = [
    "HeadOutput",
    "Layout",
    "TrellisSoftmax",
    "from_classifier",
    "functional",
    "log_partition",
    "log_prob",
    "make_layout",
    "marginals",
    "operators",
    "path_scores",
    "sample",
    "to_classifier",
    "topk",
    "viterbi",
]
