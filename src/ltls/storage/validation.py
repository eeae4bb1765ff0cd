"""Checks of a model file beyond its checksums: what loads also predicts.

A checksum shows accidents. Whoever writes a file on purpose computes it too, so nothing that a file
claims is trusted: types and ranges of the description, types and shapes of the tensors, and that
the parts of the model fit together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import numpy as np

from ..linear.weights import padded
from ..model.fitted import FittedModel
from ..structure.codebook import BucketCodebook, TableCodebook
from ..structure.losses import LOSSES
from .tensor_file import TensorFile

# A test of a value, and what the value must be.
Rule: TypeAlias = "tuple[Callable[[Any], bool], str]"

# A table codebook takes memory for every path, labelled or not.
_PATHS_PER_LABEL, _FEW_PATHS = 16, 1 << 16


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_integer(value)


def _integer(low: int, high: int) -> Rule:
    return lambda value: _is_integer(value) and low <= value <= high, f"an integer from {low}"


def _one_of(*names: str) -> Rule:
    return lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}"


def _optional(rule: Rule) -> Rule:
    return lambda value: value is None or rule[0](value), f"{rule[1]} or null"


def _list_of(rule: Rule) -> Rule:
    return lambda value: isinstance(value, list) and all(map(rule[0], value)), f"a list: {rule[1]}"


_BOOL: Rule = (lambda value: isinstance(value, bool), "true or false")
_TEXT: Rule = (lambda value: isinstance(value, str), "a text")
_OBJECT: Rule = (lambda value: isinstance(value, dict), "an object")
_FINITE: Rule = (lambda value: _is_number(value) and math.isfinite(value), "a finite number")
_NOT_NEGATIVE: Rule = (lambda value: _FINITE[0](value) and value >= 0, "a number from 0")
_LARGEST = 2**62
NUMBER: Rule = (_is_number, "a number")
NUMBERS = _list_of(NUMBER)
INTEGER = _integer(0, _LARGEST)

# By their names in the description. What a file of an older version lacks is not checked.
_RULES: dict[str, Rule] = {
    "trellis": _OBJECT,
    "trellis.n_classes": _integer(1, _LARGEST),
    "trellis.width": _integer(1, _LARGEST),
    "codebooks": _list_of(_OBJECT),
    "labels": _OBJECT,
    "labels.kind": _one_of("int", "float", "json"),
    "labels.n": _integer(1, _LARGEST),
    "intercept": _BOOL,
    "unit_length": _BOOL,
    "n_features": _integer(0, 2**40),
    "embedding": _optional(_OBJECT),
    "embedding.rank": _integer(1, 2**16),
    "embedding.weight": _NOT_NEGATIVE,
    "state": _OBJECT,
    "state.loss": _one_of(*LOSSES),
    "state.l1": _FINITE,
    "state.multilabel": _BOOL,
    "state.form": _one_of("single", "lists", "sparse", "dense"),
    "state.usual_labels": INTEGER,
    "state.threshold": _optional(NUMBER),
    "state.loss_curve": NUMBERS,
    "state.zero_based": _optional(_BOOL),
    "state.n_passes": _integer(0, _LARGEST),
    "trained_on": _OBJECT,
    "trained_on.n_rows": _integer(0, _LARGEST),
    "trained_on.columns": _optional(_OBJECT),
    "trained_on.columns.text": _optional(_TEXT),
    "trained_on.columns.label": _optional(_TEXT),
    "trained_on.columns.separator": _optional(_TEXT),
    "trained_on.columns.features": _list_of(_TEXT),
    "feature_names": _list_of(_TEXT),
    "parameters": _OBJECT,
    "sections": _OBJECT,
    "sections.calibration": _OBJECT,
    "sections.calibration.version": _integer(1, _LARGEST),
    "sections.calibration.scale": _FINITE,
    "sections.label_weights": _OBJECT,
    "sections.label_weights.version": _integer(1, _LARGEST),
    "sections.label_weights.weight": _FINITE,
    "sections.label_weights.n_candidates": _integer(1, 2**31),
    "sections.propensity": _OBJECT,
    "sections.propensity.version": _integer(1, _LARGEST),
    "sections.propensity.strength": _FINITE,
    "sections.standardize": _OBJECT,
    "sections.standardize.version": _integer(1, _LARGEST),
    "sections.table": _OBJECT,
    "sections.table.version": _integer(1, _LARGEST),
    "sections.table.text": _list_of(_TEXT),
    "sections.table.number": _list_of(_TEXT),
    "sections.table.category": _list_of(_TEXT),
    "sections.replay": _OBJECT,
    "sections.replay.version": _integer(1, _LARGEST),
    "sections.replay.first_late": _integer(0, _LARGEST),
    "sections.optimizer": _OBJECT,
    "sections.optimizer.version": _integer(1, _LARGEST),
    "sections.resume": _OBJECT,
    "sections.resume.version": _integer(1, _LARGEST),
    "sections.resume.step": _integer(1, _LARGEST),
    "sections.resume.epochs": _integer(0, _LARGEST),
    "sections.resume.settings": _OBJECT,
    "sections.resume.frozen": _BOOL,
    "sections.resume.density": _FINITE,
    "text": _OBJECT,
}
_REQUIRED = (
    "trellis.n_classes", "trellis.width", "codebooks", "labels.kind", "labels.n", "intercept",
    "state.loss", "state.multilabel", "state.form", "feature_names", "parameters",
)  # fmt: skip
_INTEGERS = ("I64", "U64", "U32", "U16", "U8")
# The types and the number of dimensions of tensors; any others are ignored.
_TENSORS: dict[str, tuple[tuple[str, ...], int]] = {
    "weights": (("F32", "F16", "I8"), 2),
    "weights.row_ptr": (("I64",), 1),
    "weights.counts": (_INTEGERS, 1),
    "weights.columns": (("U16", "U8"), 1),
    "weights.values": (("I8",), 1),
    "scales": (("F32",), 1),
    "embedding.features": (("F32", "F16", "I8"), 2),
    "embedding.scales": (("F32",), 1),
    "embedding.labels": (("F32", "F16"), 2),
    "labels": (("I64", "F64", "U8"), 1),
    "label_weights.counts": (_INTEGERS, 1),
    "label_weights.labels": (("U32", "U16"), 1),
    "label_weights.values": (("I8",), 1),
    "label_weights.scales": (("F32",), 1),
    "standardize.mean": (("F64",), 1),
    "standardize.scale": (("F64",), 1),
    "table.mean": (("F64",), 1),
    "table.scale": (("F64",), 1),
    "table.categories": (("U8",), 1),
    "calibration.scores": (("F32",), 1),
    "calibration.probabilities": (("F32",), 1),
    "counts": (_INTEGERS, 1),
    "features": (_INTEGERS, 1),
    **{f"replay.{name}": (_INTEGERS, 1)
       for name in ("counts", "features", "labels", "label_counts", "strata")},
    "replay.values": (("I8",), 1),
    "replay.scales": (("F32",), 1),
    "replay.weights": (("F32",), 1),
    "replay.keys": (("U32",), 1),
    "optimizer.features": (("U8",), 1),
    "optimizer.edges": (("F32",), 1),
    "resume.weights": (("F32",), 2),
    "resume.squares": (("F32",), 2),
    "resume.sums": (("F64",), 2),
}  # fmt: skip
_LABEL_TYPES = {"int": "I64", "float": "F64", "json": "U8"}


def check_description(file: TensorFile) -> None:
    """Raise an error if a description has values of a wrong type or out of range."""
    description = file.description
    if not isinstance(description, dict):
        raise ValueError("its description is not an object")
    check_types(description, _RULES, _REQUIRED)
    for book in description["codebooks"]:
        if book.get("kind") in ("table", "buckets"):
            if book.get("paths") not in file.tensors:
                raise ValueError("a codebook has no table")
        elif book.get("kind") != "random" or not _is_integer(book.get("seed")):
            raise ValueError(f"a codebook must be a table or have a seed, got {str(book)[:40]}")


def check_types(
    description: dict[str, Any], rules: dict[str, Rule], required: tuple[str, ...] = ()
) -> None:
    """Raise an error for the first value that violates its rule."""
    for name, (is_valid, needed) in rules.items():
        found, value = _look_up(description, name)
        if not found and name in required:
            raise ValueError(f"{name} is missing")
        if found and not is_valid(value):
            raise ValueError(f"{name} must be {needed}, got {repr(value)[:40]}")


def _look_up(description: dict[str, Any], name: str) -> tuple[bool, Any]:
    value: Any = description
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            return False, None
        value = value[key]
    return True, value


def check_tensors(file: TensorFile, mapped: tuple[str, ...], sections: Collection[str]) -> None:
    """Raise an error for tensors of wrong types or shapes, or with numbers that are not finite.

    Those in `mapped` are not read, and so not checked for the latter. Those of sections that are
    not among `sections`, the known ones, are ignored.
    """
    unknown = set(file.description.get("sections", ())) - set(sections)
    for name in file.tensors:
        if name.partition(".")[0] in unknown:
            continue
        dtypes, ndim = _TENSORS.get(name, (_INTEGERS, 1) if name.startswith("paths.") else ((), 0))
        dtype, shape = file.tensors[name]["dtype"], file.tensors[name]["shape"]
        if dtypes and (dtype not in dtypes or len(shape) != ndim):
            raise ValueError(
                f"tensor {name!r} must be {' or '.join(dtypes)} of {ndim} dimension(s), got "
                f"{dtype} of shape {tuple(shape)}"
            )
        if dtype in ("F64", "F32", "F16") and name not in mapped:
            check_finite(file, name)
    expected = _LABEL_TYPES[file.description["labels"]["kind"]]
    if file.tensors["labels"]["dtype"] != expected:
        raise ValueError(f"tensor 'labels' must be {expected} for labels of this kind")


def check_finite(file: TensorFile, name: str) -> None:
    """Raise an error if a tensor has NaN or infinity."""
    # The sum is not finite if a number is not; that it overflows is rare, and tested then.
    tensor = file.tensor(name)
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(tensor.sum(dtype=np.float64)) and not np.isfinite(tensor).all():
            raise ValueError(f"tensor {name!r} has numbers that are not finite")


def check_n_paths(n_paths: int, n_labels: int) -> None:
    """Raise an error if a table codebook has more paths than a file may ask memory for."""
    limit = max(_FEW_PATHS, _PATHS_PER_LABEL * n_labels)
    if n_paths > limit:
        raise ValueError(
            f"a table codebook of {n_labels} labels may have {limit} paths in a file, got "
            f"{n_paths}; a random codebook takes no memory"
        )


def check_model(model: FittedModel, n_labels: int, n_features: int | None) -> None:
    """Raise an error if the parts of a model do not fit together."""
    labels = model.labels
    if len(labels) != n_labels or len(labels) != len(set(labels.values)):
        raise ValueError(f"there must be {n_labels} different labels, got {len(labels)}")
    for book in model.codebooks:
        if isinstance(book, TableCodebook | BucketCodebook) and (
            book.n_labels < len(labels) or book.paths[: len(labels)].min() < 0
        ):
            raise ValueError(f"a codebook lacks some of the {len(labels)} labels")
    if model.counts is not None and len(model.counts) > len(labels):
        raise ValueError(f"{len(labels)} labels have {len(model.counts)} counts")
    if model.multilabel and model.threshold is None:
        raise ValueError("a model of several labels per row needs a threshold")
    if model.n_features < 1:
        raise ValueError("a model must have at least one feature")
    if n_features is not None and n_features != model.n_features:
        raise ValueError(f"the weights are of {model.n_features} features, not {n_features}")
    if model.embedding is not None:
        _check_embedding(model)


def _check_embedding(model: FittedModel) -> None:
    embedding = model.embedding
    assert embedding is not None
    columns, stride = model.weights.n_features, padded(embedding.dim + 1)
    shapes = embedding.features.values.shape, embedding.labels.shape
    if shapes != ((columns, stride), (len(model.labels), stride)):
        raise ValueError(f"an embedding of dimension {embedding.dim} has arrays of {shapes}")
    embedding.features.engine  # noqa: B018 - checks the arrays against each other
