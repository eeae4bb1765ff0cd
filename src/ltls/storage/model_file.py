"""Model files: one safetensors file, no pickle, its weights usable where they lie.

The tensors of a checked file (`ltls.storage.tensor_file`), beside a description of the model, are

    weights      (features, edges of all trellises) float32, float16 or int8, padded as in memory
    scales       (features,) float32, for int8
    paths.0 …    (labels,) int64, for each table codebook
    embedding.…  what rescores, if anything does: features, with their scales, and labels
    labels       numbers, or for other labels their UTF-8 text as JSON
    counts       (labels,) int64, how many rows of training had each label
    text.…       of a model that takes strings: its vectoriser, see `ltls.features.vectorizer`

All but the weights are read, and so checked, whenever a model is loaded; `verify` checks those too.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..structure.codebook import RandomCodebook, TableCodebook
from ..model.labels import Labels
from ..linear.weights import LinearModel
from ..model.fitted import Model
from ..model.embedding import Embedding
from .tensor_file import DTYPES, Kind, ModelFileError, TensorFile, damage_reported, write
from ..structure.trellis import Trellis

if TYPE_CHECKING:
    from ..structure.policies import Codebook
    from ..estimators.classifier import LTLSClassifier

# Version 2 scales rows to length 1, rescores, or takes strings.
MODEL = Kind("model file", "ltls", version=2)
_STATE = ("loss", "l1", "multilabel", "form", "usual_labels", "threshold", "loss_curve",
          "zero_based", "n_passes")  # fmt: skip
_MAPPED = ("weights", "embedding.features")  # read only where they are needed
_TRAINED_ON = ("n_rows", "columns")


def save(model: LTLSClassifier, path: str | os.PathLike[str], dtype: str = "float32") -> None:
    """Write a fitted estimator to a file; see `LTLSClassifier.save`."""
    learned = model._learned
    linear = learned.linear.stored_as(dtype)
    codebooks, tensors = encode_codebooks(learned.codebooks)
    tensors["weights"] = linear.weights
    if linear.scales is not None:
        tensors["scales"] = linear.scales
    embedding = None if learned.embedding is None else learned.embedding.stored_as(dtype)
    if embedding is not None:
        tensors["embedding.features"] = embedding.features.weights
        tensors["embedding.labels"] = embedding.labels
        if embedding.features.scales is not None:
            tensors["embedding.scales"] = embedding.features.scales
    if learned.counts is not None:
        tensors["counts"] = learned.counts
    kind, tensors["labels"] = _encode_labels(learned.labels.values)
    description = {
        "trellis": {"n_classes": learned.trellis.n_classes, "width": learned.trellis.width},
        "codebooks": codebooks,
        "labels": {"kind": kind, "n": len(learned.labels)},
        "intercept": linear.intercept,
        "unit_length": linear.unit_length,
        "embedding": embedding and {"rank": embedding.rank, "weight": embedding.weight},
        "state": {name: getattr(learned, name) for name in _STATE},
        "trained_on": {name: getattr(learned, name) for name in _TRAINED_ON},
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
        "parameters": encode_parameters(model.get_params(deep=False)),
    }
    vectoriser = getattr(model, "vectoriser_", None)
    if vectoriser is not None:
        description["text"], parts = vectoriser.state()
        tensors.update({f"text.{name}": tensor for name, tensor in parts.items()})
    write(path, MODEL, description, tensors)


def load(path: str | os.PathLike[str], mmap: bool = True, verify: bool = False) -> LTLSClassifier:
    """Read a model that `LTLSClassifier.save` has written.

    Parameters
    ----------
    path : path
    mmap : bool, default=True
        Use the weights where they lie in the file: loading takes no longer for a larger model, and
        processes share its memory. Otherwise they are read into memory.
    verify : bool, default=False
        Also check the tensors' checksums, which reads the whole file.

    Returns
    -------
    LTLSClassifier
        Ready to predict. `partial_fit` goes on from its weights. It is a `TextClassifier`, which
        takes strings, if it was one.

    Raises
    ------
    ModelFileError
        If the file is no model, is damaged, or comes from a newer version.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from ltls import LTLSClassifier
    >>> X = np.eye(4, dtype=np.float32)
    >>> from ltls import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.ltls")
    ...     LTLSClassifier(epochs=20, random_state=0).fit(X, list("abcd")).save(path)
    ...     load(path, mmap=False).predict(X)
    array(['a', 'b', 'c', 'd'], dtype='<U1')
    """
    file = TensorFile(Path(path), MODEL)
    file.verify([name for name in file.tensors if verify or name not in _MAPPED])
    with damage_reported(file.path):
        description = file.description
        model = _estimator(file)
        labels = Labels(_decode_labels(description["labels"]["kind"], file.tensor("labels")))
        trellis = Trellis(**description["trellis"])
        codebooks = decode_codebooks(description["codebooks"], trellis.n_classes, file)
        weights = file.tensor("weights")
        linear = LinearModel(
            weights if mmap else np.array(weights),
            np.array(file.tensor("scales")) if "scales" in file.tensors else None,
            trellis.n_edges,
            len(codebooks),
            description["intercept"],
            description.get("unit_length", False),  # files of the first version have none
        )
        known = {**description["state"], **description.get("trained_on", {})}
        model._learned = Model(labels, trellis, codebooks, scoring=linear, **known)
        if description.get("embedding"):
            model._learned.embedding = _embedding(description, file, mmap)
        if "counts" in file.tensors:
            model._learned.counts = np.array(file.tensor("counts"))
        model.n_features_in_ = linear.n_features
        if description["feature_names"]:
            model.feature_names_in_ = np.array(description["feature_names"], object)
    return model


def describe(path: str | os.PathLike[str], verify: bool = True) -> dict[str, Any]:
    """Return facts about a model file, and check its tensors unless told not to.

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
        model = file.description
        weights = file.tensors["weights"]
        trellis = Trellis(**model["trellis"])
        return {
            "format_version": int(file.metadata["format_version"]),
            "ltls_version": file.metadata["ltls_version"],
            "classes": model["labels"]["n"],
            "features": weights["shape"][0] - model["intercept"],
            "edges": trellis.n_edges,
            "width": trellis.width,
            "paths": trellis.n_classes,
            "trellises": len(model["codebooks"]),
            "loss": model["state"]["loss"],
            "multilabel": model["state"]["multilabel"],
            "rescore": (model.get("embedding") or {"rank": 0})["rank"],
            "codebook": model["codebooks"][0]["kind"],
            "dtype": np.dtype(DTYPES[weights["dtype"]]).name,
            "bytes": file.size,
            "verified": verify,
            **({"text": model["text"]} if "text" in model else {}),
            **{name: value for name, value in model.get("trained_on", {}).items() if value},
            "parameters": _decode_parameters(model["parameters"]),
        }


def _estimator(file: TensorFile) -> LTLSClassifier:
    """Return the estimator that was saved, with its parameters and nothing learned yet."""
    parameters = _decode_parameters(file.description["parameters"])
    if "text" not in file.description:
        from ..estimators.classifier import LTLSClassifier

        return LTLSClassifier(**parameters)
    from ..estimators.text import TextClassifier
    from ..features.vectorizer import Vectoriser

    model = TextClassifier(**parameters)
    names = [name for name in file.tensors if name.startswith("text.")]
    parts = {name.removeprefix("text."): file.tensor(name) for name in names}
    model.vectoriser_ = Vectoriser.from_state(file.description["text"], parts)
    return model


def encode_codebooks(
    codebooks: list[Codebook],
) -> tuple[list[dict[str, Any]], dict[str, npt.NDArray[Any]]]:
    """Return what describes codebooks, and the tables of those that have one."""
    described: list[dict[str, Any]] = []
    tables: dict[str, npt.NDArray[Any]] = {}
    for number, book in enumerate(codebooks):
        if isinstance(book, TableCodebook):
            described.append({"kind": "table", "paths": f"paths.{number}"})
            tables[f"paths.{number}"] = book.paths
        else:
            grown_from = list(book.grown_from)
            described.append({"kind": "random", "seed": book.seed, "grown_from": grown_from})
    return described, tables


def decode_codebooks(
    described: list[dict[str, Any]], n_paths: int, file: TensorFile
) -> list[Codebook]:
    """Return the codebooks that a file describes."""
    return [
        TableCodebook(n_paths, file.tensor(book["paths"]))
        if book["kind"] == "table"
        else RandomCodebook(n_paths, book["seed"], grown_from=book["grown_from"])
        for book in described
    ]


def _embedding(description: dict[str, Any], file: TensorFile, mmap: bool) -> Embedding:
    features = file.tensor("embedding.features")
    linear = LinearModel(
        features if mmap else np.array(features),
        np.array(file.tensor("embedding.scales")) if "embedding.scales" in file.tensors else None,
        features.shape[1],
        1,
        False,
        description["unit_length"],
    )
    labels = file.tensor("embedding.labels").astype(np.float32)
    return Embedding(linear, labels, **description["embedding"])


# Labels and parameters as JSON: what JSON has no word for is an object {"kind": value}.


def _encode_labels(labels: list[Any]) -> tuple[str, npt.NDArray[Any]]:
    kinds = {type(label) for label in labels}
    if kinds == {int} and all(-(2**63) <= label < 2**63 for label in labels):
        return "int", np.array(labels, np.int64)
    if kinds == {float}:
        return "float", np.array(labels, np.float64)
    text = json.dumps([_encode(label) for label in labels], ensure_ascii=False)
    return "json", np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def _decode_labels(kind: str, tensor: npt.NDArray[Any]) -> list[Any]:
    if kind == "json":
        text = tensor.tobytes().decode("utf-8", "surrogatepass")
        return [_decode(label) for label in json.loads(text)]
    labels: list[Any] = tensor.tolist()
    return labels


def _encode(value: Any) -> Any:
    if isinstance(value, (np.bool_, np.number, np.str_, np.bytes_)):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, tuple):
        return {"tuple": [_encode(part) for part in value]}
    raise TypeError(
        f"a model file holds labels that are str, int, float, bool, bytes or tuples of these, "
        f"got {value!r} of type {type(value).__name__}"
    )


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "tuple":
        return tuple(_decode(part) for part in content)
    raise ModelFileError(f"a label or parameter of unknown kind {kind!r}")


def encode_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return an estimator's parameters as JSON can hold them."""
    encoded = {}
    for name, value in parameters.items():
        if isinstance(value, dict):  # class_weight
            pairs = [[_encode(label), _encode(weight)] for label, weight in value.items()]
            encoded[name] = {"dict": pairs}
        elif isinstance(value, (TableCodebook, RandomCodebook, list, np.random.RandomState)):
            continue  # codebooks are stored by themselves; a generator is not part of a model
        else:
            encoded[name] = _encode(value)
    return encoded


def _decode_parameters(encoded: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {_decode(label): _decode(weight) for label, weight in value["dict"]}
        if isinstance(value, dict) and "dict" in value
        else _decode(value)
        for name, value in encoded.items()
    }
