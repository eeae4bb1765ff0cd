"""Model files: one safetensors file, no pickle, with weights that can be memory-mapped.

A file (see `ltls.storage.tensor_file`) has a JSON description and tensors, in sections. The names
of tensors begin with that of their section:

    labels       numbers, or other labels as JSON in UTF-8
    front_end    how inputs are turned into features: names, a vocabulary, columns of a table
    columns      the features that have weights; means and deviations
    parts        one section per part of the model, with its weight
    calibration  from scores to probabilities and to predicted labels
    memory       training rows, see `ltls.parts.memory`
    provenance   what the model was trained on
    optimizer    a sketch of AdaGrad's sums of squares, to train the model further
    resume       weights and optimizer state in full precision, in a resumable file

Every section declares its tensors (`ltls.core.declarations`) and is checked when it is read. A file
with anything else is rejected.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..core.arrays import Tensors
from ..core.declarations import Array, Described
from ..features.front_ends import FRONT_ENDS
from ..features.rows import Columns
from ..model.labels import Labels
from ..model.model import Fitted, Model, Provenance
from ..parts.base import PARTS, Sizes, load_parts
from ..parts.calibration import Calibrator
from ..parts.memory import StoredRows
from ..parts.trellises import training_from_state
from .tensor_file import (
    Kind,
    ModelFileError,
    TensorFile,
    damage_reported,
    decode_labels,
    decode_parameters,
    encode,
    encode_labels,
    encode_parameters,
    write_content,
)

MODEL = Kind("model file", "ltls-model", version=1)
_LABEL_KINDS = {"int": "uint|i8", "float": "f8", "json": "u1"}
# Sections for further training: their size relative to all others, and bytes that they always get.
_FRACTION, _FEW_BYTES = 0.1, 96 << 10
_SMALL_FILE = 256 << 10  # bytes that the file of a label matrix always gets
_HEADER = 3 << 10  # bytes that added sections take in the header, at most
# The names that `ltls train` prints.
_CALLED = {"n_rows": "rows", "n_epochs": "epochs", "recipe": "plan"}
_MOST_WEIGHT = 1e30  # of a part: scores are float32


def save_model(
    fitted: Fitted,
    parameters: dict[str, Any],
    path: str | os.PathLike[str],
    *,
    resumable: bool = False,
    budget: int | None = None,
) -> None:
    """Write a model and the parameters of its estimator, atomically.

    Unless `resumable`, what only further training needs is left out, as far as it takes more than
    96 KiB and more than a tenth of the other sections, or makes the file larger than `budget`
    bytes. The default budget of a model with a label matrix for dense rows is 1.1 times the size of
    its vectors and of the rows of neighbours, at least 256 KiB. The content is checked before it is
    written.
    """
    content = encoded(fitted, parameters, resumable, budget)
    try:
        _decode(TensorFile(Path(path), MODEL, content=content), True)
    except ModelFileError as error:
        # No file is damaged: none was written.
        raise ValueError(f"the model cannot be saved: {error.__cause__ or error}") from error
    write_content(path, content)


def load_model(
    path: str | os.PathLike[str], mmap: bool = True, verify: bool = False
) -> tuple[Fitted, dict[str, Any]]:
    """Read a file written by `save_model`; see `ltls.load`."""
    file = TensorFile(Path(path), MODEL, mmap)
    large = [name for name in file.tensors if name.endswith(".values")]
    file.verify([name for name in file.tensors if verify or name not in large])
    return _decode(file, verify)


def describe(path: str | os.PathLike[str], verify: bool = True) -> dict[str, Any]:
    """Return facts about a model file, and verify its tensors unless verify=False."""
    file = TensorFile(Path(path), MODEL)
    fitted, parameters = load_model(path, verify=verify)
    model = fitted.model
    return {
        "format_version": int(file.metadata["format_version"]),
        "ltls_version": file.written_by,
        "labels": len(model.labels),
        "features": model.columns.n_features,
        "multilabel": model.multilabel,
        **model.front_end.describe(),
        **{name: value for part in model.parts for name, value in part.describe().items()},
        "weights": {
            part.name: weight for part, weight in zip(model.parts, model.weights, strict=True)
        },
        "bytes": file.size,
        "resumable": "resume" in fitted.further,
        "rows_in_memory": 0 if model.memory is None else len(model.memory),
        "verified": verify,
        **{
            _CALLED.get(name, name): value
            for name, value in fitted.provenance.facts().items()
            if value
        },
        "parameters": parameters,
    }


def encoded(
    fitted: Fitted,
    parameters: dict[str, Any],
    complete: bool = True,
    budget: int | None = None,
) -> memoryview:
    """Return the bytes of a model file; see `save_model`."""
    model = fitted.model
    of_labels, tensors = labels_state(model.labels)
    description: dict[str, Any] = {
        **of_labels,
        "multilabel": model.multilabel,
        "target_format": model.target_format,
        "probabilistic": model.probabilistic,
        "typical_labels": model.typical_labels,
        "front_end_kind": model.front_end.name,
        "weights": [float(weight) for weight in model.weights],
        "part_names": [part.name for part in model.parts],
    }

    def add(name: str, state: tuple[dict[str, Any], Tensors]) -> None:
        described, own = state
        *outer, last = name.split(".")
        target = description
        for each in outer:
            target = target.setdefault(each, {})
        target[last] = described
        tensors.update({f"{name}.{key}": tensor for key, tensor in own.items()})

    add("provenance", fitted.provenance.state())
    add("front_end", model.front_end.state())
    add("columns", model.columns.state())
    add("calibration", model.calibration.state())
    for part in model.parts:
        add(f"parts.{part.name}", part.state())
    description["parameters"] = encode_parameters(parameters)
    memory, n_inputs = model.memory, model.columns.n_columns - model.columns.intercept
    if memory is not None and model.needed_rows is not None:
        add("memory", memory.state(model.multilabel, n_inputs))
        memory = None
    used = sum(tensor.nbytes for tensor in tensors.values())
    room = None if complete else max(_FEW_BYTES, int(_FRACTION * used))
    if budget is None and not complete:
        budget = _usual_size(model)
    if budget is not None:
        room = min(room or budget, budget - len(encode(MODEL, description, tensors)) - _HEADER)
    for name, (described, own) in fitted.sections(complete).items():
        if name == "optimizer" and parameters.get("memory") is False:
            continue
        size = sum(tensor.nbytes for tensor in own.values())
        if room is None or size <= room:
            add(name, (described, own))
            room = None if room is None else room - size
    if memory is not None:
        state = _memory_within(memory, model.multilabel, n_inputs, room)
        if state is not None:
            add("memory", state)
    return encode(MODEL, description, tensors)


def _usual_size(model: Model) -> int | None:
    """Return the default budget of a model with a label matrix for dense rows; None for others.

    Without it, stored rows would take much space: a dense row is as large as a vector.
    """
    sizes = [part.n_bytes for part in model.parts if hasattr(part, "n_bytes")]
    if not sizes or model.columns.n_beside or model.needed_rows is not None:
        return None
    return max(int((1 + _FRACTION) * sum(sizes)), _SMALL_FILE)


def _memory_within(
    memory: StoredRows, multilabel: bool, n_inputs: int, room: int | None
) -> tuple[dict[str, Any], Tensors] | None:
    """Return as many rows as fit, None if none do."""
    while len(memory):
        described, tensors = memory.state(multilabel, n_inputs)
        size = sum(tensor.nbytes for tensor in tensors.values())
        if room is None or size <= room:
            return described, tensors
        fewer = min(int(0.99 * len(memory) * room / size), len(memory) - 1)
        memory = memory.shrink(max(fewer, 0))
    return None


def _decode(file: TensorFile, verify: bool) -> tuple[Fitted, dict[str, Any]]:
    with damage_reported(file.path):
        root = file.section(verify)
        labels = labels_from_state(root)
        front_end = FRONT_ENDS[root.choice("front_end_kind", FRONT_ENDS)].from_state(
            root.section("front_end")
        )
        columns = Columns.from_state(root.section("columns"))
        _check_features(front_end, columns.n_features)
        _check_parts(file.path, root.texts("part_names"))
        model = _decode_model(root, labels, front_end, columns)
        provenance = Provenance.from_state(root.section("provenance"), len(labels))
        given = root.get("parameters", "an object", lambda v: isinstance(v, dict))
        if given.get("parts"):  # settings of parts of other packages
            load_parts()
        parameters = decode_parameters(given)
        further = training_from_state(root, model.trellises(), columns.n_columns)
        fitted = Fitted(model, provenance, further=further)
        root.check_all_read()
        root.check_all_taken()
        return fitted, parameters


def labels_state(labels: Labels) -> tuple[dict[str, Any], Tensors]:
    """Return a JSON description and a tensor of labels."""
    kind, tensor = encode_labels(labels.values)
    return {"kind": kind, "n_labels": len(labels)}, {"labels": tensor}


def labels_from_state(section: Described) -> Labels:
    """Restore labels from their `labels_state`."""
    kind = section.choice("kind", _LABEL_KINDS)
    n_labels = section.integer("n_labels", 1)
    length = "n_bytes" if kind == "json" else "n_labels"
    declared = {"labels": Array(_LABEL_KINDS[kind], (length,))}
    tensors = section.tensors(declared, {"n_labels": n_labels})
    labels = Labels(decode_labels(kind, tensors["labels"]))
    if len(labels) != n_labels or len(set(labels.values)) != n_labels:
        raise ValueError(f"there must be {n_labels} different labels, got {len(labels)}")
    return labels


def _check_features(front_end: Any, n_features: int) -> None:
    if getattr(front_end, "n_features", n_features) != n_features:
        raise ValueError("its n-grams and columns do not match the features of its weights")
    if len(getattr(front_end, "given_names", ())) not in (0, n_features):
        raise ValueError(f"there must be {n_features} feature names")


def _check_parts(path: Path, names: list[str]) -> None:
    for name in names:
        if name not in PARTS and name not in load_parts():
            raise ModelFileError(
                f"{path} has an unknown part {name!r}: install the package that has it, import "
                "the module that registers it, or upgrade ltls"
            )
    with_trellises = [name for name in names if hasattr(PARTS[name], "trellis_parts")]
    if len(set(names)) != len(names) or len(with_trellises) != 1:
        raise ValueError("a model must have parts of different names: trellises or views, and more")


def _decode_model(root: Described, labels: Labels, front_end: Any, columns: Columns) -> Model:
    multilabel = root.flag("multilabel")
    formats = ("lists", "sparse", "dense") if multilabel else ("single",)
    sizes = Sizes(
        len(labels),
        columns.n_columns,
        columns.intercept,
        columns.unit_length,
        multilabel,
        columns.n_beside,
        front_end.sparse or columns.used is not None or columns.n_beside > 0,
    )
    memory = None
    if root.has("memory"):
        memory = StoredRows.from_state(root.section("memory"), sizes)
    names, weights = root.texts("part_names"), root.numbers("weights", 0, _MOST_WEIGHT)
    if len(weights) != len(names):
        raise ValueError("a model must have a weight for each of its parts")
    own = root.section("parts")
    return Model(
        labels,
        front_end,
        columns,
        tuple(PARTS[name].from_state(own.section(name), sizes, memory) for name in names),
        tuple(weights),
        multilabel,
        root.choice("target_format", formats),
        root.flag("probabilistic"),
        Calibrator.from_state(root.section("calibration"), multilabel),
        root.integer("typical_labels", 1),
        memory,
    )
