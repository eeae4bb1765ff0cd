"""Model files: one safetensors file, no pickle, its weights usable where they lie.

The file's metadata holds a description of the model as JSON, a checksum of every tensor, and one of
the whole header, which is checked whenever a file is opened. The tensors are

    weights      (features, edges of all trellises) float32, float16 or int8, padded as in memory
    scales       (features,) float32, for int8
    paths.0 …    (labels,) int64, for each table codebook
    embedding.*  what rescores, if anything does: features, with their scales, and labels
    labels       numbers, or for other labels their UTF-8 text as JSON

All but the weights are read, and so checked, whenever a model is loaded; `verify` checks those too.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .atomic import replacing
from .codebook import RandomCodebook, TableCodebook
from .labels import Labels
from .linear import LinearModel
from .model import Model
from .rescoring import Embedding
from .trellis import Trellis

if TYPE_CHECKING:
    from .classifier import LTLSClassifier

FORMAT_VERSION = 2
_DTYPES: dict[str, npt.DTypeLike] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I8": np.int8,
    "U8": np.uint8,
}
_STATE = ("loss", "l1", "multilabel", "form", "usual_labels", "threshold", "loss_curve",
          "zero_based", "n_passes")  # fmt: skip
_MAPPED = ("weights", "embedding.features")  # read only where they are needed
_NO_CHECKSUM = "0" * 64
_MOST_HEADER = 100_000_000  # safetensors' own limit


class ModelFileError(ValueError):
    """A file is no model, is damaged, or comes from a newer version."""


def save(model: LTLSClassifier, path: str | os.PathLike[str], dtype: str = "float32") -> None:
    """Write a fitted estimator to a file; see `LTLSClassifier.save`."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    learned = model._learned
    linear = learned.linear.stored_as(dtype)
    tensors: dict[str, npt.NDArray[Any]] = {"weights": linear.weights}
    if linear.scales is not None:
        tensors["scales"] = linear.scales
    codebooks: list[dict[str, Any]] = []
    for number, book in enumerate(learned.codebooks):
        if isinstance(book, TableCodebook):
            codebooks.append({"kind": "table", "paths": f"paths.{number}"})
            tensors[f"paths.{number}"] = book.paths
        else:
            grown_from = list(book.grown_from)
            codebooks.append({"kind": "random", "seed": book.seed, "grown_from": grown_from})
    embedding = None if learned.embedding is None else learned.embedding.stored_as(dtype)
    if embedding is not None:
        tensors["embedding.features"] = embedding.features.weights
        tensors["embedding.labels"] = embedding.labels
        if embedding.features.scales is not None:
            tensors["embedding.scales"] = embedding.features.scales
    kind, tensors["labels"] = _encode_labels(learned.labels.values)
    description = {
        "trellis": {"n_classes": learned.trellis.n_classes, "width": learned.trellis.width},
        "codebooks": codebooks,
        "labels": {"kind": kind, "n": len(learned.labels)},
        "intercept": linear.intercept,
        "unit_length": linear.unit_length,
        "embedding": embedding and {"rank": embedding.rank, "weight": embedding.weight},
        "state": {name: getattr(learned, name) for name in _STATE},
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
        "parameters": _encode_parameters(model.get_params(deep=False)),
    }
    from . import __version__

    metadata = {
        "format": "ltls",
        "format_version": str(FORMAT_VERSION),
        "ltls_version": __version__,
        "model": json.dumps(description),
        "sha256": json.dumps({name: _checksum(tensor) for name, tensor in tensors.items()}),
        "header_sha256": _NO_CHECKSUM,
    }
    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:  # a full disk, for one
            raise OSError(errno.EIO, str(error), str(path)) from error
        temporary.chmod(mode)  # safetensors writes for the owner alone
        _seal(temporary)


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
        Ready to predict. `partial_fit` goes on from its weights.

    Raises
    ------
    ModelFileError
        If the file is no model, is damaged, or comes from a newer version.
    """
    from .classifier import LTLSClassifier

    file = _File(Path(path))
    file.verify([name for name in file.tensors if verify or name not in _MAPPED])
    with _damage_reported(file.path):
        description = file.description
        model = LTLSClassifier(**_decode_parameters(description["parameters"]))
        labels = Labels(_decode_labels(description["labels"]["kind"], file.tensor("labels")))
        trellis = Trellis(**description["trellis"])
        codebooks = [_codebook(book, trellis.n_classes, file) for book in description["codebooks"]]
        weights = file.tensor("weights")
        linear = LinearModel(
            weights if mmap else np.array(weights),
            np.array(file.tensor("scales")) if "scales" in file.tensors else None,
            trellis.n_edges,
            len(codebooks),
            description["intercept"],
            description.get("unit_length", False),  # files of the first version have none
        )
        model._learned = Model(labels, trellis, codebooks, scoring=linear, **description["state"])
        if description.get("embedding"):
            model._learned.embedding = _embedding(description, file, mmap)
        model.n_features_in_ = linear.n_features
        if description["feature_names"]:
            model.feature_names_in_ = np.array(description["feature_names"], object)
    return model


def describe(path: str | os.PathLike[str], verify: bool = True) -> dict[str, Any]:
    """Return facts about a model file, and check its tensors unless told not to."""
    file = _File(Path(path))
    file.verify([name for name in file.tensors if verify])
    with _damage_reported(file.path):
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
            "dtype": np.dtype(_DTYPES[weights["dtype"]]).name,
            "bytes": file.size,
            "verified": verify,
            "parameters": _decode_parameters(model["parameters"]),
        }


@contextmanager
def _damage_reported(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong inside a file that passed its checks into one kind of error."""
    try:
        yield
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {error!r}") from error


class _File:
    """An open model file whose header has been checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        if self.size < 10:
            raise ModelFileError(f"{path} is not a model file of ltls, or is cut short")
        # One map of the whole file: it stays the same file, whatever takes its place meanwhile.
        self._bytes = np.memmap(path, np.uint8, "r").view(np.ndarray)
        self.size = len(self._bytes)
        length = int.from_bytes(self._bytes[:8].tobytes(), "little")
        if not 2 <= length <= min(_MOST_HEADER, self.size - 8):
            raise ModelFileError(f"{path} is not a model file of ltls, or is cut short")
        header = self._bytes[8 : 8 + length].tobytes()
        try:
            self.tensors: dict[str, Any] = json.loads(header)
            self.metadata: dict[str, str] = self.tensors.pop("__metadata__")
            foreign = self.metadata["format"] != "ltls"
            version = int(self.metadata["format_version"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ModelFileError(f"{path} is not a model file of ltls") from None
        if foreign:
            raise ModelFileError(f"{path} is not a model file of ltls")
        if version > FORMAT_VERSION:
            raise ModelFileError(
                f"{path} has format version {version}, written by ltls "
                f"{self.metadata.get('ltls_version')}; this version reads up to {FORMAT_VERSION}: "
                "upgrade ltls"
            )
        if _header_checksum(header, self.size - 8 - length) != self.metadata.get("header_sha256"):
            raise ModelFileError(f"{path} is damaged: its header or its size was changed")
        self._start = 8 + length
        with _damage_reported(path):
            self.description: dict[str, Any] = json.loads(self.metadata["model"])

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor, mapped from the file."""
        entry = self.tensors[name]
        begin, end = entry["data_offsets"]
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        if not 0 <= begin <= end <= self.size - self._start:
            raise ModelFileError(f"{self.path} is damaged: tensor {name!r} lies outside of it")
        data = self._bytes[self._start + begin : self._start + end]
        return data.view(dtype).reshape(entry["shape"])

    def verify(self, names: list[str]) -> None:
        """Check tensors against their checksums."""
        with _damage_reported(self.path):
            expected = json.loads(self.metadata["sha256"])
            for name in names:
                if _checksum(self.tensor(name)) != expected[name]:
                    raise ModelFileError(f"{self.path} is damaged: tensor {name!r} was changed")


def _seal(path: Path) -> None:
    """Put the checksum of the header into the header."""
    with path.open("r+b") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(length)
        data = path.stat().st_size - 8 - length
        before, after = _around_checksum(header)
        sealed = before + _header_checksum(header, data).encode() + after
        stream.seek(8)
        stream.write(sealed)
        stream.flush()
        os.fsync(stream.fileno())


def _around_checksum(header: bytes) -> tuple[bytes, bytes]:
    """Return what stands before and after the header's own checksum."""
    before, name, after = header.rpartition(b'"header_sha256":"')
    return before + name, after[len(_NO_CHECKSUM) :]


def _header_checksum(header: bytes, data_bytes: int) -> str:
    """Return the checksum of a header, its own counted as zeros, and of the data's size."""
    before, after = _around_checksum(header)
    blank = before + _NO_CHECKSUM.encode() + after
    return hashlib.sha256(blank + data_bytes.to_bytes(8, "little")).hexdigest()


def _checksum(tensor: npt.NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(tensor).data).hexdigest()


def _codebook(
    description: dict[str, Any], n_paths: int, file: _File
) -> TableCodebook | RandomCodebook:
    if description["kind"] == "table":
        return TableCodebook(n_paths, file.tensor(description["paths"]))
    return RandomCodebook(n_paths, description["seed"], grown_from=description["grown_from"])


def _embedding(description: dict[str, Any], file: _File, mmap: bool) -> Embedding:
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


def _encode_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
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
