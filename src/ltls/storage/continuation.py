"""Sections of a model file that are for training only: a model predicts the same without them.

`replay` has training rows: how many features a row has, these features, values (int8) and scales,
labels, and the order in which rows are kept. `optimizer` has AdaGrad's sums of squares, roughly: a
byte per feature and a number per edge. `resume`, of a resumable file, has weights, sums of squares
and averages in full precision.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..linear.squares import SquaresSketch
from ..linear.trainable import TrainableWeights
from ..linear.weights import AnyWeights
from ..model.fitted import FittedModel
from ..model.reservoir import Reservoir
from .tensor_file import TensorFile
from .values import decode_parameters, encode_parameters

Tensors: TypeAlias = "dict[str, npt.NDArray[Any]]"
Section: TypeAlias = "dict[str, Any]"

VERSIONS = {"replay": 1, "optimizer": 1, "resume": 1}
FRACTION, FEW_BYTES = 0.1, 96 << 10  # of a file, for what is not needed to predict


def smallest(integers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers that are not negative in the smallest type that holds them."""
    return integers.astype(np.min_scalar_type(int(integers.max(initial=0))))


def pointers(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return where lists of given lengths begin and end."""
    ends: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return ends


def encode_continuation(
    model: FittedModel, n_rows: int, limit: int | None
) -> tuple[dict[str, Section], Tensors]:
    """Return the sections to continue from approximately, in at most `limit` bytes of tensors.

    `n_rows` is the most rows to store. Nothing is stored for a model without a reservoir.
    """
    reservoir = model.reservoir
    if reservoir is None or not n_rows:
        return {}, {}
    sections: dict[str, Section] = {}
    tensors: Tensors = {}
    sketch = model.squares
    if model.trainable is not None:
        squares = model.trainable.squares
        sketch = None if squares is None else SquaresSketch.of(squares)
    if sketch is not None:
        sections["optimizer"] = {"version": VERSIONS["optimizer"], "required": False}
        tensors = {"optimizer.features": sketch.features, "optimizer.edges": sketch.edges}
    room = None if limit is None else limit - n_bytes(tensors)
    if room is not None and room < 0:
        return {}, {}
    reservoir = reservoir.shrink(n_rows)
    rows = _encode_reservoir(reservoir, model.multilabel)
    while room is not None and n_bytes(rows) > room and len(reservoir):
        reservoir = reservoir.shrink(int(0.99 * len(reservoir) * room / n_bytes(rows)))
        rows = _encode_reservoir(reservoir, model.multilabel)
    if len(reservoir):
        section = {"version": VERSIONS["replay"], "required": False}
        sections["replay"] = section | {"first_late": reservoir.first_late}
        tensors |= rows
    return sections, tensors


def n_bytes(tensors: Tensors) -> int:
    """Return the size of some tensors."""
    return sum(tensor.nbytes for tensor in tensors.values())


def _encode_reservoir(reservoir: Reservoir, multilabel: bool) -> Tensors:
    tensors = {
        "counts": smallest(np.diff(reservoir.indptr)),
        "features": smallest(reservoir.indices),
        "values": reservoir.values,
        "scales": reservoir.scales,
        "labels": smallest(reservoir.labels),
        "keys": reservoir.keys,
    }
    if multilabel:
        tensors["label_counts"] = smallest(np.diff(reservoir.label_ptr))
        tensors["strata"] = smallest(reservoir.strata + 1)
    if (reservoir.weights != 1).any():
        tensors["weights"] = reservoir.weights
    return {f"replay.{name}": tensor for name, tensor in tensors.items()}


def decode_reservoir(section: Section, file: TensorFile, model: FittedModel) -> Reservoir:
    """Return the training rows that a file holds, after checks that they fit the model."""

    def integers(name: str) -> npt.NDArray[np.int64]:
        return file.tensor(f"replay.{name}").astype(np.int64)

    counts, labels = integers("counts"), integers("labels")
    n = len(counts)
    label_counts, strata = np.ones(n, np.int64), labels
    if model.multilabel:
        label_counts, strata = integers("label_counts"), integers("strata") - 1
    weights = np.ones(n, np.float32)
    if "replay.weights" in file.tensors:
        weights = np.array(file.tensor("replay.weights"))
    reservoir = Reservoir(
        pointers(counts),
        integers("features"),
        np.array(file.tensor("replay.values")),
        np.array(file.tensor("replay.scales")),
        pointers(label_counts),
        labels,
        weights,
        strata,
        np.array(file.tensor("replay.keys")),
        section["first_late"],
    )
    _check_reservoir(reservoir, model)
    return reservoir


def _check_reservoir(rows: Reservoir, model: FittedModel) -> None:
    n = len(rows.indptr) - 1
    per_row = (rows.scales, rows.weights, rows.strata, rows.keys, rows.label_ptr[1:])
    if any(len(array) != n for array in per_row):
        raise ValueError(f"the {n} rows to replay must have a scale, a label and a key each")
    if not rows.indptr[-1] == len(rows.indices) == len(rows.values):
        raise ValueError("the rows to replay must have as many features as values")
    if rows.label_ptr[-1] != len(rows.labels):
        raise ValueError("the labels of the rows to replay do not add up")
    n_labels, n_columns = len(model.labels), model.weights.n_features
    if rows.labels.max(initial=0) >= n_labels or rows.strata.max(initial=0) >= n_labels:
        raise ValueError(f"the rows to replay have labels beyond the {n_labels} of the model")
    if rows.indices.max(initial=0) >= n_columns:
        raise ValueError(f"the rows to replay have features beyond the {n_columns} of the model")
    same_row = np.ones(len(rows.indices), bool)
    same_row[rows.indptr[:-1][rows.indptr[:-1] < len(same_row)]] = False
    if (np.diff(rows.indices)[same_row[1:]] <= 0).any():
        raise ValueError("the features of a row to replay must increase")
    if (rows.scales < 0).any() or (rows.weights < 0).any():
        raise ValueError("the rows to replay must have positive scales and weights")


def decode_sketch(file: TensorFile, weights: AnyWeights) -> SquaresSketch:
    """Return the rough state of the optimizer that a file holds."""
    sketch = SquaresSketch(
        np.array(file.tensor("optimizer.features")), np.array(file.tensor("optimizer.edges"))
    )
    shape = (len(sketch.features), len(sketch.edges))
    expected = (weights.n_features + weights.intercept, weights.stride)
    if shape != expected or (sketch.edges < 0).any():
        raise ValueError(f"the optimizer's state must be of shape {expected}, got {shape}")
    return sketch


def encode_resume(model: FittedModel) -> tuple[dict[str, Section], Tensors]:
    """Return the section to continue from exactly; a model without trained weights needs none."""
    trainable = model.trainable
    section: Section = {"version": VERSIONS["resume"], "required": False}
    if trainable is None:
        return {"resume": section}, {}
    section |= {
        "step": trainable.step,
        "epochs": trainable.epochs,
        "settings": encode_parameters(trainable.settings),
        "frozen": model.frozen is not None,
        "density": model.density,
    }
    tensors = {f"resume.{name}": array for name, array in trainable.tensors().items()}
    return {"resume": section}, tensors


def decode_resume(section: Section, file: TensorFile, model: FittedModel) -> None:
    """Give a model the exact state of training that a file holds."""
    if "resume.weights" not in file.tensors:
        return
    weights = model.weights
    trainable = TrainableWeights(
        model.trellis,
        len(model.codebooks),
        weights.n_features,
        intercept=weights.intercept,
        unit_length=weights.unit_length,
        adagrad="resume.squares" in file.tensors,
        average="resume.sums" in file.tensors,
        settings=decode_parameters(section["settings"]),
    )
    arrays = trainable.tensors()
    for name, array in arrays.items():
        tensor = file.tensor(f"resume.{name}")
        if tensor.shape != array.shape or tensor.dtype != array.dtype:
            raise ValueError(f"resume.{name} must be {array.dtype} of shape {array.shape}")
        if name == "squares" and (tensor < 0).any():
            raise ValueError("sums of squares must not be negative")
    saved = {name: file.tensor(f"resume.{name}") for name in arrays}
    trainable.set_tensors(saved, section["step"], section["epochs"])
    model.trainable, model.density = trainable, section["density"]
    if not section["frozen"]:
        model.frozen = None
