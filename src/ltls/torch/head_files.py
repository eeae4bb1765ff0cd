"""Heads of encoders in files: their descriptions and tensors, checked when they are read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from ..core.arrays import Ints, Tensors
from ..core.declarations import Array, Described
from ..parts.trellises import codebooks_from_state, codebooks_state
from ..structure.codebook import TableCodebook
from ..structure.trellis import Trellis
from .adaptive import AdaptiveTrellisSoftmax
from .adaptive_head import AdaptiveHead
from .head import TrellisSoftmax

Head: TypeAlias = "TrellisSoftmax | AdaptiveHead"
_DIV_VALUES = 2.0**-8, 2.0**8  # powers of them are finite
_MOST_CLUSTERS = 64


def head_state(head: Head) -> tuple[dict[str, Any], Tensors]:
    """Return a JSON description and the tensors of a head."""
    if isinstance(head, TrellisSoftmax):
        return _trellis_state(head)
    softmax = head.softmax
    described, own = _trellis_state(softmax.trellis)
    tensors = {f"trellis.{name}": tensor for name, tensor in own.items()}
    tensors["label_of"] = head.label_of.cpu().numpy()
    for name, layer in _dense_layers(softmax).items():
        for each, tensor in layer.state_dict().items():
            tensors[f"{name}.{each}"] = tensor.detach().float().cpu().numpy()
    return {
        "cutoffs": softmax.cutoffs[:-1],
        "div_value": float(softmax.div_value),
        "trellis": described,
    }, tensors


def head_from_state(section: Described, n_labels: int) -> Head:
    """Restore a head from its `head_state`; labels of later batches are unknown to it."""
    if not section.has("cutoffs"):
        return _trellis_from_state(section, n_labels)
    cutoffs = section.get("cutoffs", "a list of increasing positive integers", _are_cutoffs)
    low, high = _DIV_VALUES
    div_value = section.number("div_value", low, high)
    trellis = _trellis_from_state(section.section("trellis"), n_labels)
    sizes = {
        "n_classes": cutoffs[-1] + trellis.n_classes,
        "n_head": cutoffs[0] + len(cutoffs),
        "n_trellis": trellis.in_features,
    }
    if sizes["n_classes"] > n_labels:
        raise ValueError(f"a head of {sizes['n_classes']} labels has too many for {n_labels}")
    declared = {
        "label_of": Array("i8", ("n_classes",), low=0, high="n_classes - 1", distinct=True),
        "head.weight": Array("f4", ("n_head", "n_vector")),
        "head.bias": Array("f4", ("n_head",), group="bias"),
    }
    for i, (first, end) in enumerate(pairwise(cutoffs)):
        sizes[f"n_{i}"] = end - first
        declared[f"narrow.{i}.weight"] = Array("f4", (f"size_{i}", "n_vector"))
        declared[f"cluster.{i}.weight"] = Array("f4", (f"n_{i}", f"size_{i}"))
    declared[f"narrow.{len(cutoffs) - 1}.weight"] = Array("f4", ("n_trellis", "n_vector"))
    tensors = section.tensors(declared, sizes)
    for i in range(len(cutoffs) - 1):
        if sizes[f"size_{i}"] != (wanted := max(1, int(sizes["n_vector"] // div_value ** (i + 1)))):
            raise ValueError(f"cluster {i} must have {wanted} features, got {sizes[f'size_{i}']}")
    softmax = AdaptiveTrellisSoftmax(
        sizes["n_vector"],
        sizes["n_classes"],
        cutoffs,
        div_value,
        "head.bias" in tensors,
        trellis_features=trellis.in_features,
    )
    softmax.tail[-1][1] = trellis
    for name, layer in _dense_layers(softmax).items():
        names = {each: f"{name}.{each}" for each in layer.state_dict()}
        layer.load_state_dict(
            {each: torch.from_numpy(np.array(tensors[own])) for each, own in names.items()}
        )
    label_of: Ints = np.array(tensors["label_of"])
    return AdaptiveHead(softmax, label_of)


def _dense_layers(softmax: AdaptiveTrellisSoftmax) -> dict[str, nn.Module]:
    """Return the layers of an adaptive softmax beside its trellis, by their names in a file."""
    found: dict[str, nn.Module] = {"head": softmax.head}
    for i, (narrow, within) in enumerate(softmax.tail):
        found[f"narrow.{i}"] = narrow
        if within is not softmax.trellis:
            found[f"cluster.{i}"] = within
    return found


def _are_cutoffs(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= _MOST_CLUSTERS
        and all(type(each) is int for each in value)
        and all(a < b for a, b in pairwise([0, *value]))
    )


def _trellis_state(head: TrellisSoftmax) -> tuple[dict[str, Any], Tensors]:
    """Return a JSON description and the tensors of a trellis."""
    classes = torch.arange(head.n_classes, device=head.edges.weight.device)
    paths = head.codebooks[0].path_of(classes).cpu().numpy()
    books, tensors = codebooks_state([TableCodebook(head.layout.n_classes, paths)])
    for name, each in head.edges.state_dict().items():
        tensors[name] = each.detach().float().cpu().numpy()
    return {
        "n_classes": head.n_classes,
        "n_paths": head.layout.n_classes,
        "width": head.width,
        "loss": head.loss_name,
        "unit_length": head.unit_length,
        "codebooks": books,
    }, tensors


def _trellis_from_state(section: Described, n_labels: int) -> TrellisSoftmax:
    """Restore a trellis from its `_trellis_state`; labels of later batches are unknown to it."""
    n_classes, n_paths = section.integer("n_classes", 2, n_labels), section.integer("n_paths", 2)
    width = section.integer("width", 2)
    (book,) = codebooks_from_state(section, n_paths, n_classes)
    declared = {
        "weight": Array("f4", ("n_edges", "n_vector")),
        "bias": Array("f4", ("n_edges",), group="bias"),
    }
    sizes = {"n_edges": Trellis(n_paths, width).n_edges}
    tensors = section.tensors(declared, sizes)
    head = TrellisSoftmax(
        sizes["n_vector"],
        n_classes,
        width,
        assignment=book,
        bias="bias" in tensors,
        unit_length=section.flag("unit_length"),
        loss=section.choice("loss", ("softmax", "logistic")),
    )
    own = {name: torch.from_numpy(np.array(each)) for name, each in tensors.items()}
    head.edges.load_state_dict(own)
    return head
