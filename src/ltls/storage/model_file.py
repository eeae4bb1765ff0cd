"""Model files: one safetensors file, no pickle, with weights that can be memory-mapped.

Beside a JSON description of the model, a file (see `ltls.storage.tensor_file`) has these tensors:

    weights      (features, edges of all trellises) float32, float16 or int8, padded as in memory
    weights.…    instead of it, of a pruned model: counts (features,), how many weights of a feature
                 are kept, and the columns (uint8 or uint16) and values (int8) of these
    scales       (features,) float32, for int8
    paths.0 …    (labels,), for each codebook that is a table or has buckets
    embedding.…  a reranker: vectors of features, their scales, and vectors of labels
    label_weights.…  a reranker: counts (features,), how many labels have a weight for a feature,
                 these labels (uint16 or uint32), values (int8) and scales (features,)
    calibration.…  scores and probabilities (knots,) float32: the curve from scores to probabilities
    labels       numbers, or for other labels their UTF-8 text as JSON
    counts       (labels,), training rows per label
    features     (features − 1,) int64, the features that have weights, if few of all have; the
                 last row of the weights, before that of the intercept, is for all others
    standardize.…  mean and scale (features,) float64 of dense features, if they are standardized
    text.…       of a model that takes strings: its vectorizer, see `ltls.features.vectorizer`
    table.…      of a model that takes tables: mean and scale (number columns,) float64, and the
                 categories of each column as JSON, see `ltls.features.table`
    replay.…, optimizer.…, resume.…  to train the model further, see `ltls.storage.continuation`

Integers that are not described otherwise have the smallest type that holds them all. Parts that
came after version 3 are sections: ``description["sections"]`` has the version of each, and whether
a model can be used without it. A reader skips sections that it does not know if it can, and tensors
in any case.

All tensors but the weights are read, and so verified, whenever a model is loaded; ``verify=True``
verifies those too.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.arrays import as_integer
from ..features.mapping import FeatureMap
from ..features.scaling import Standardizer
from ..features.table import KINDS
from ..linear.weights import AnyWeights, PrunedWeights, Weights, padded
from ..model.calibration import Calibration, ScoreCurve
from ..model.embedding import Embedding
from ..model.fitted import FittedModel
from ..model.label_weights import LabelWeights
from ..model.labels import Labels
from ..structure.codebook import BucketCodebook, Codebook, RandomCodebook, TableCodebook
from ..structure.losses import LOSSES
from ..structure.trellis import Trellis
from .compatibility import current_parameters
from .continuation import (
    FEW_BYTES,
    FRACTION,
    VERSIONS,
    Tensors,
    decode_reservoir,
    decode_resume,
    decode_sketch,
    encode_continuation,
    encode_resume,
    n_bytes,
    pointers,
    smallest,
)
from .tensor_file import DTYPES, Kind, ModelFileError, TensorFile, damage_reported, write
from .validation import check_description, check_model, check_n_paths, check_tensors
from .values import decode_labels, decode_parameters, encode_labels, encode_parameters

# Version 2 added rows of unit length, the embedding, and models that take strings; version 3 pruned
# weights and weights for some of the features; version 4 smaller integers, buckets and sections. A
# file has the oldest version that can read it.
MODEL = Kind("model file", "ltls", version=4)
_DENSE_VERSION = 2
_HEADER_OF_SECTIONS = 8192  # bytes of the header for the sections of training, at most
# The sections that this version reads, each with the highest version of it.
_SECTIONS = {"calibration": 1, "label_weights": 1, "propensity": 1, "standardize": 1, "table": 1,
             **VERSIONS}  # fmt: skip
# Verified only on request.
_MAPPED = (
    "weights",
    "embedding.features",
    *(f"weights.{name}" for name in ("row_ptr", "columns", "values")),
    *(f"label_weights.{name}" for name in ("labels", "values")),
)
# Attributes of a model by their names in the file.
_STATE = {
    "l1": "l1",
    "multilabel": "multilabel",
    "form": "target_format",
    "usual_labels": "typical_labels",
    "threshold": "threshold",
    "loss_curve": "loss_curve",
    "zero_based": "zero_based",
    "n_passes": "n_epochs",
}
_TRAINED_ON = ("n_rows", "columns")


@dataclass
class SavedModel:
    """What a model file holds.

    Parameters
    ----------
    model : FittedModel
    parameters : dict
        The parameters of the estimator.
    feature_names : list of str
        Empty if the features have no names.
    text : (dict, dict) or None
        Description and tensors of the vectorizer, for a model that takes strings.
    table : (dict, dict) or None
        Description and tensors of the columns, for a model that takes tables.
    """

    model: FittedModel
    parameters: dict[str, Any]
    feature_names: list[str] = field(default_factory=list)
    text: tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None = None
    table: tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None = None


def save_model(
    saved: SavedModel,
    path: str | os.PathLike[str],
    dtype: str,
    *,
    resumable: bool = False,
    budget: int | None = None,
) -> None:
    """Write a model with its weights as `dtype`; the file appears complete or not at all.

    What training continues from takes a tenth of the file at most, and never more than a `budget`
    in bytes leaves; that of a resumable file is complete.
    """
    description, tensors, version = _encode(saved, dtype, resumable)
    limit = None
    if not resumable:
        limit = max(FEW_BYTES, int(FRACTION * n_bytes(tensors)))
        if budget is not None:
            limit = min(limit, budget - _file_bytes(description, tensors) - _HEADER_OF_SECTIONS)
    n_rows = saved.parameters.get("replay_size", 0)
    sections, parts = encode_continuation(saved.model, n_rows, limit)
    if resumable:
        exact, arrays = encode_resume(saved.model)
        sections, parts = sections | exact, parts | arrays
    if sections:
        description["sections"] = description.get("sections", {}) | sections
    write(path, MODEL, description, tensors | parts, version)


def file_bytes(saved: SavedModel, dtype: str) -> int:
    """Return how large the file of a model will be, at most, without what is not required."""
    description, tensors, _ = _encode(saved, dtype)
    return _file_bytes(description, tensors)


def _file_bytes(description: dict[str, Any], tensors: Tensors) -> int:
    return 2 * len(json.dumps(description)) + 1024 + 512 * len(tensors) + n_bytes(tensors)


def _encode(
    saved: SavedModel, dtype: str, exact: bool = False
) -> tuple[dict[str, Any], Tensors, int]:
    """Return the description of a model, its tensors, and the version of its file.

    If it is to be exact, whatever is not stored elsewhere is not rounded.
    """
    model = saved.model
    weights = model.weights
    if dtype != "int8" and model.trainable is not None:  # all weights, pruned or not
        weights = model.trainable.for_prediction(model.l1)
    elif isinstance(weights, Weights) and model.frozen is None and model.density < 1:
        weights = weights.prune(weights.magnitude_at(model.density))
    if not exact or model.trainable is not None:
        weights = weights.astype(dtype)
    new = isinstance(weights, PrunedWeights) or model.feature_map is not None
    new = new or model.label_weights is not None or model.shares_paths or model.propensity > 0
    new = new or model.standardizer is not None or saved.table is not None
    codebooks, tensors = encode_codebooks(model.codebooks, small=new)
    if isinstance(weights, PrunedWeights):
        tensors["weights.counts"] = smallest(np.diff(weights.row_ptr))
        tensors["weights.columns"] = smallest(weights.columns)
        tensors["weights.values"] = weights.values
    else:
        tensors["weights"] = weights.values
    if weights.scales is not None:
        tensors["scales"] = weights.scales
    embedding = model.embedding
    if embedding is not None and not exact:
        embedding = embedding.astype(dtype)
    if embedding is not None:
        tensors["embedding.features"] = embedding.features.values
        tensors["embedding.labels"] = embedding.labels
        if embedding.features.scales is not None:
            tensors["embedding.scales"] = embedding.features.scales
    if model.counts is not None:
        tensors["counts"] = smallest(model.counts) if new else model.counts
    if model.feature_map is not None:
        tensors["features"] = smallest(model.feature_map.used)
    kind, tensors["labels"] = encode_labels(model.labels.values)
    state = {name: getattr(model, attribute) for name, attribute in _STATE.items()}
    description: dict[str, Any] = {
        "trellis": {"n_classes": model.trellis.n_classes, "width": model.trellis.width},
        "codebooks": codebooks,
        "labels": {"kind": kind, "n": len(model.labels)},
        "intercept": weights.intercept,
        "unit_length": weights.unit_length,
        "n_features": model.n_features,
        "embedding": embedding and {"rank": embedding.dim, "weight": embedding.weight},
        "state": {"loss": model.loss.name, **state},
        "trained_on": {name: getattr(model, name) for name in _TRAINED_ON},
        "feature_names": saved.feature_names,
        "parameters": encode_parameters(saved.parameters),
    }
    if new or model.calibration is not None:  # which any version can skip
        description["sections"] = {}
    if model.propensity:
        section = {"version": 1, "required": True, "strength": model.propensity}
        description["sections"]["propensity"] = section
    if model.calibration is not None:
        section = {"version": 1, "required": False, "scale": model.calibration.scale}
        description["sections"]["calibration"] = section
        if (curve := model.calibration.curve) is not None:
            tensors["calibration.scores"] = curve.scores
            tensors["calibration.probabilities"] = curve.probabilities
    if model.standardizer is not None:
        description["sections"]["standardize"] = {"version": 1, "required": True}
        tensors["standardize.mean"] = model.standardizer.mean
        tensors["standardize.scale"] = model.standardizer.scale
    if model.label_weights is not None:
        part = model.label_weights
        section = {"version": 1, "required": True, "weight": part.weight}
        description["sections"]["label_weights"] = section | {"n_candidates": part.n_candidates}
        tensors["label_weights.counts"] = smallest(np.diff(part.row_ptr))
        for name in ("labels", "values", "scales"):
            tensors[f"label_weights.{name}"] = getattr(part, name)
    if saved.text is not None:
        description["text"], parts = saved.text
        tensors.update({f"text.{name}": tensor for name, tensor in parts.items()})
    if saved.table is not None:
        columns, parts = saved.table
        description["sections"]["table"] = {"version": 1, "required": True, **columns}
        tensors.update({f"table.{name}": tensor for name, tensor in parts.items()})
    return description, tensors, MODEL.version if new else _DENSE_VERSION


def load_model(path: str | os.PathLike[str], mmap: bool = True, verify: bool = False) -> SavedModel:
    """Read what `save_model` has written; see `ltls.load`."""
    file = TensorFile(Path(path), MODEL, mmap)
    mapped = () if verify else _MAPPED
    file.verify([name for name in file.tensors if name not in mapped])
    with damage_reported(file.path):
        check_description(file)
        description = file.description
        sections = _known_sections(file)
        check_tensors(file, mapped, sections)
        parameters = current_parameters(decode_parameters(description["parameters"]))
        model = _decode_model(description, file, mmap, sections)
        check_model(model, description["labels"]["n"], description.get("n_features"))
        text = table = None
        if "text" in description:
            text = description["text"], _parts_of(file, "text.")
        if "table" in sections:
            table = sections["table"], _parts_of(file, "table.")
        return SavedModel(model, parameters, description["feature_names"], text, table)


def _parts_of(file: TensorFile, prefix: str) -> Tensors:
    """Return the tensors whose names begin like this, without it."""
    names = [name for name in file.tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): file.tensor(name) for name in names}


def _known_sections(file: TensorFile) -> dict[str, dict[str, Any]]:
    """Return the sections that can be read; it is an error if others are required."""
    known = {}
    for name, section in file.description.get("sections", {}).items():
        if section["version"] <= _SECTIONS.get(name, 0):
            known[name] = section
        elif section["required"]:
            raise ModelFileError(
                f"{file.path} has a section {name!r} of version {section['version']}, written by "
                f"ltls {file.metadata.get('ltls_version')}, which this version does not read: "
                "upgrade ltls"
            )
    return known


def describe(path: str | os.PathLike[str], verify: bool = True) -> dict[str, Any]:
    """Return facts about a model file, and verify its tensors unless verify=False.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from ltls import LTLSClassifier
    >>> X = np.eye(4, dtype=np.float32)
    >>> from ltls.storage.model_file import describe
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.ltls")
    ...     LTLSClassifier(random_state=0).fit(X, list("abcd")).save(path)
    ...     facts = describe(path)
    >>> facts["classes"], facts["features"]
    (4, 4)
    """
    file = TensorFile(Path(path), MODEL)
    file.verify([name for name in file.tensors if verify])
    with damage_reported(file.path):
        check_description(file)
        model = file.description
        trellis = Trellis(**model["trellis"])
        pruned = "weights" not in file.tensors
        kept = file.tensors["weights.values" if pruned else "weights"]
        n_rows = file.tensors["scales" if pruned else "weights"]["shape"][0]
        n_weights = n_rows * trellis.n_edges * len(model["codebooks"])
        return {
            "format_version": int(file.metadata["format_version"]),
            "ltls_version": file.metadata["ltls_version"],
            "classes": model["labels"]["n"],
            "features": model.get("n_features", n_rows - model["intercept"]),
            "edges": trellis.n_edges,
            "width": trellis.width,
            "paths": trellis.n_classes,
            "trellises": len(model["codebooks"]),
            "loss": model["state"]["loss"],
            "multilabel": model["state"]["multilabel"],
            "embedding_dim": (model.get("embedding") or {"rank": 0})["rank"],
            "label_weights": _length(file, "label_weights.values"),
            "codebook": model["codebooks"][0]["kind"],
            "dtype": np.dtype(DTYPES[kept["dtype"]]).name,
            "density": round(kept["shape"][0] / max(n_weights, 1), 4) if pruned else 1.0,
            "bytes": file.size,
            "resumable": "resume" in model.get("sections", {}),
            "replay_rows": _length(file, "replay.scales"),
            "verified": verify,
            **({"text": model["text"]} if "text" in model else {}),
            **_table_columns(model),
            **{name: value for name, value in model.get("trained_on", {}).items() if value},
            "parameters": current_parameters(decode_parameters(model["parameters"])),
        }


def _table_columns(description: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return the columns of a model that takes tables, by kind."""
    section = description.get("sections", {}).get("table")
    return {} if section is None else {"table": {kind: section[kind] for kind in KINDS}}


def _length(file: TensorFile, name: str) -> int:
    return int(file.tensors[name]["shape"][0]) if name in file.tensors else 0


def encode_codebooks(
    codebooks: list[Codebook], small: bool = False
) -> tuple[list[dict[str, Any]], dict[str, npt.NDArray[Any]]]:
    """Return descriptions of codebooks, and the tables of those that have one.

    With `small`, the tables of buckets have the smallest type of integers.
    """
    described: list[dict[str, Any]] = []
    tables: dict[str, npt.NDArray[Any]] = {}
    for number, book in enumerate(codebooks):
        if isinstance(book, TableCodebook):
            check_n_paths(book.n_paths, book.n_labels)
            described.append({"kind": "table", "paths": f"paths.{number}"})
            tables[f"paths.{number}"] = book.paths
        elif isinstance(book, BucketCodebook):
            described.append({"kind": "buckets", "paths": f"paths.{number}"})
            tables[f"paths.{number}"] = smallest(book.paths) if small else book.paths
        else:
            grown_from = list(book.grown_from)
            described.append({"kind": "random", "seed": book.seed, "grown_from": grown_from})
    return described, tables


def decode_codebooks(
    described: list[dict[str, Any]], n_paths: int, file: TensorFile
) -> list[Codebook]:
    """Return the codebooks that a file describes."""
    return [_decode_codebook(book, n_paths, file) for book in described]


def _decode_codebook(book: dict[str, Any], n_paths: int, file: TensorFile) -> Codebook:
    if book["kind"] == "random":
        return RandomCodebook(n_paths, book["seed"], grown_from=book["grown_from"])
    paths = file.tensor(book["paths"]).astype(np.int64)
    check_n_paths(n_paths, len(paths))
    return (TableCodebook if book["kind"] == "table" else BucketCodebook)(n_paths, paths)


def _decode_model(
    description: dict[str, Any],
    file: TensorFile,
    mmap: bool,
    sections: dict[str, dict[str, Any]],
) -> FittedModel:
    labels = Labels(decode_labels(description["labels"]["kind"], file.tensor("labels")))
    trellis = Trellis(**description["trellis"])
    codebooks = decode_codebooks(description["codebooks"], trellis.n_classes, file)
    weights = _decode_weights(description, file, mmap, trellis.n_edges, len(codebooks))
    state = dict(description["state"])
    loss = LOSSES[state.pop("loss")]
    known = {_STATE[name]: value for name, value in state.items()}
    known |= description.get("trained_on", {})
    model = FittedModel(labels, trellis, codebooks, loss, frozen=weights, **known)
    if model.shares_paths and {book.n_labels for book in codebooks} != {len(labels)}:
        raise ValueError(f"each of {len(labels)} labels must have a path in every codebook")
    if description.get("embedding"):
        model.embedding = _decode_embedding(description, file, mmap)
    if "features" in file.tensors:
        used = file.tensor("features").astype(np.int64)
        model.feature_map = FeatureMap(description["n_features"], used)
        if model.feature_map.n_columns != weights.n_features:
            raise ValueError(f"{len(used)} features have {weights.n_features} rows of weights")
        if len(used) and not 0 <= used.min() <= used.max() < description["n_features"]:
            raise ValueError("the features that have weights are out of range")
    if "counts" in file.tensors:
        model.counts = file.tensor("counts").astype(np.int64)
    if "propensity" in sections:
        model.propensity = float(sections["propensity"]["strength"])
    if "standardize" in sections:
        parts = (file.tensor(f"standardize.{name}") for name in ("mean", "scale"))
        model.standardizer = Standardizer(*map(np.array, parts))
        shapes = model.standardizer.mean.shape, model.standardizer.scale.shape
        if shapes != 2 * ((weights.n_features,),) or (model.standardizer.scale <= 0).any():
            raise ValueError(f"{weights.n_features} features have means and scales {shapes}")
        if model.feature_map is not None:
            raise ValueError("only dense features are standardized")
    if "calibration" in sections:
        model.calibration = _decode_calibration(sections["calibration"], file, model.multilabel)
    if "label_weights" in sections:
        model.label_weights = _decode_label_weights(sections["label_weights"], file, mmap, model)
    if isinstance(weights, PrunedWeights):
        n_all = len(weights.scales) * weights.n_trellises * weights.n_edges
        model.density = len(weights.values) / max(n_all, 1)
    if "replay" in sections:
        model.reservoir = decode_reservoir(sections["replay"], file, model)
    if "optimizer" in sections:
        model.squares = decode_sketch(file, weights)
    if "resume" in sections:
        decode_resume(sections["resume"], file, model)
    return model


def _decode_weights(
    description: dict[str, Any], file: TensorFile, mmap: bool, n_edges: int, n_trellises: int
) -> AnyWeights:
    def tensor(name: str) -> Any:
        return file.tensor(name) if mmap else np.array(file.tensor(name))

    scales = np.array(file.tensor("scales")) if "scales" in file.tensors else None
    # Version 1 had no rows of unit length.
    unit_length = description.get("unit_length", False)
    shape = n_edges, n_trellises, description["intercept"], unit_length
    weights: AnyWeights
    if "weights" in file.tensors:
        weights = Weights(tensor("weights"), scales, *shape)
        n_rows, stride = weights.values.shape
    else:
        if "weights.counts" in file.tensors:
            row_ptr = pointers(file.tensor("weights.counts"))
        else:  # before version 4
            row_ptr = tensor("weights.row_ptr")
        columns = tensor("weights.columns").astype(np.uint16, copy=False)
        scales = np.array(file.tensor("scales"))
        weights = PrunedWeights(row_ptr, columns, tensor("weights.values"), scales, *shape)
        stride, n_rows = weights.stride, len(scales)
    if not n_trellises or stride != n_trellises * padded(n_edges) or n_rows < weights.intercept:
        raise ValueError(
            f"{n_rows} rows of {stride} weights do not fit {n_trellises} trellises of {n_edges} "
            "edges"
        )
    weights.engine  # noqa: B018 - checks the arrays against each other
    return weights


def _decode_calibration(section: dict[str, Any], file: TensorFile, multilabel: bool) -> Calibration:
    curve = None
    if "calibration.scores" in file.tensors:
        names = ("calibration.scores", "calibration.probabilities")
        curve = ScoreCurve(*(np.array(file.tensor(name)) for name in names))
        p = curve.probabilities
        if not len(p) or len(p) != len(curve.scores) or (np.diff(curve.scores) <= 0).any():
            raise ValueError("the scores of a calibration must increase, one per probability")
        if p.min() <= 0 or p.max() >= 1 or (np.diff(p) < 0).any():
            raise ValueError("the probabilities of a calibration must be in (0, 1) and sorted")
    if section["scale"] <= 0 or (multilabel and curve is None):
        raise ValueError("a calibration must have a scale above 0, or a curve")
    return Calibration(multilabel, float(section["scale"]), curve)


def _decode_label_weights(
    section: dict[str, Any], file: TensorFile, mmap: bool, model: FittedModel
) -> LabelWeights:
    labels, values = (
        file.tensor(name) if mmap else np.array(file.tensor(name))
        for name in ("label_weights.labels", "label_weights.values")
    )
    weights = LabelWeights(
        pointers(file.tensor("label_weights.counts")),
        labels,
        values,
        np.array(file.tensor("label_weights.scales")),
        len(model.labels),
        model.weights.unit_length,
        float(section["weight"]),
        as_integer("n_candidates", section["n_candidates"], at_least=1),
    )
    if values.dtype != np.int8:
        raise ValueError(f"label weights must be int8, they are {values.dtype}")
    if weights.engine.n_rows != model.weights.n_features + 1:
        raise ValueError(
            f"{weights.engine.n_rows} rows of label weights do not fit "
            f"{model.weights.n_features} features"
        )
    return weights


def _decode_embedding(description: dict[str, Any], file: TensorFile, mmap: bool) -> Embedding:
    features = file.tensor("embedding.features")
    weights = Weights(
        features if mmap else np.array(features),
        np.array(file.tensor("embedding.scales")) if "embedding.scales" in file.tensors else None,
        features.shape[1],
        1,
        False,
        description["unit_length"],
    )
    labels = file.tensor("embedding.labels").astype(np.float32)
    described = description["embedding"]
    return Embedding(weights, labels, described["rank"], described["weight"])
