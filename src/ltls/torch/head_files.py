"""Heads of encoders in files: their parameters and tensors, checked when they are read."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch

from ..core.arrays import Ints, Tensors
from ..core.declarations import Array, Described
from ..parts.trellises import codebooks_from_state, codebooks_state
from ..structure.codebook import TableCodebook
from .adaptive import AdaptiveTrellisSoftmax
from .adaptive_head import AdaptiveHead
from .head import LOSSES, TrellisSoftmax

Head: TypeAlias = "TrellisSoftmax | AdaptiveHead"
_MOST_FEATURES = 1 << 31
_DIV_VALUES = 2.0**-8, 2.0**8  # powers of them are finite
_MOST_CLUSTERS = 64


def head_state(head: Head) -> tuple[dict[str, Any], Tensors]:
    """Return a JSON description and the tensors of a head."""
    softmax = head.softmax if isinstance(head, AdaptiveHead) else head
    trellis = softmax if isinstance(softmax, TrellisSoftmax) else softmax.trellis
    classes = torch.arange(trellis.n_classes, device=trellis.edges.weight.device)
    paths = trellis.codebooks[0].path_of(classes).cpu().numpy()
    books, tensors = codebooks_state([TableCodebook(trellis.layout.n_classes, paths)])
    for name, each in softmax.named_parameters():
        tensors[name] = each.detach().float().cpu().numpy()
    described = {
        "in_features": softmax.in_features,
        "n_classes": softmax.n_classes,
        "n_paths": trellis.layout.n_classes,
        "width": trellis.width,
        "bias": trellis.edges.bias is not None,
        "unit_length": trellis.unit_length,
        "codebooks": books,
    }
    if isinstance(head, TrellisSoftmax):
        return {**described, "loss": head.loss_name}, tensors
    tensors["label_of"] = head.label_of.cpu().numpy()
    return {
        **described,
        "cutoffs": head.softmax.cutoffs[:-1],
        "div_value": float(head.softmax.div_value),
        "head_bias": head.softmax.head.bias is not None,
        "trellis_features": trellis.in_features,
    }, tensors


def head_from_state(section: Described, n_labels: int) -> Head:
    """Restore a head from its `head_state`; labels of later batches are unknown to it."""
    n_classes, is_adaptive = section.integer("n_classes", 2, n_labels), section.has("cutoffs")
    options: dict[str, Any] = {
        "width": section.integer("width", 2),
        "bias": section.flag("bias"),
        "unit_length": section.flag("unit_length"),
    }
    n_dense = 0
    if is_adaptive:
        cutoffs = section.get("cutoffs", "a list of increasing positive integers", _are_cutoffs)
        n_dense = cutoffs[-1]
        options |= {
            "cutoffs": cutoffs,
            "div_value": section.number("div_value", *_DIV_VALUES),
            "head_bias": section.flag("head_bias"),
            "trellis_features": section.integer("trellis_features", 1, _MOST_FEATURES),
        }
    else:
        options["loss"] = section.choice("loss", LOSSES)
    n_paths = section.integer("n_paths", 2)
    (options["assignment"],) = codebooks_from_state(section, n_paths, n_classes - n_dense)
    kind = AdaptiveTrellisSoftmax if is_adaptive else TrellisSoftmax
    make = partial(kind, section.integer("in_features", 1, _MOST_FEATURES), n_classes, **options)
    try:
        expected = make(device="meta")  # which takes no memory
    except RuntimeError as error:
        raise ValueError(f"a head of these sizes is too large: {error}") from error
    shapes = {name: each.shape for name, each in expected.named_parameters()}
    tensors = section.tensors({name: Array("f4", (*each,)) for name, each in shapes.items()}, {})
    softmax = make(device="cpu")
    with torch.no_grad():
        for name, each in softmax.named_parameters():
            each.copy_(torch.from_numpy(np.array(tensors[name])))
    if isinstance(softmax, TrellisSoftmax):
        return softmax
    declared = Array("i8", (n_classes,), low=0, high=n_classes - 1, distinct=True)
    label_of: Ints = np.array(section.tensors({"label_of": declared}, {})["label_of"])
    return AdaptiveHead(softmax, label_of)


def _are_cutoffs(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= _MOST_CLUSTERS
        and all(type(each) is int for each in value)
        and all(a < b for a, b in pairwise([0, *value]))
    )
