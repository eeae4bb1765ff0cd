"""Tensor files: safetensors with a JSON description and checksums.

The metadata of the file holds the description, a checksum of every tensor, and a checksum of the
header, which is verified whenever a file is opened. Model files and checkpoints are tensor files.
Labels and parameters of types that JSON lacks become objects {"type": value}.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import operator
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from ..core.arrays import AnyArray, Tensors, smallest
from ..core.atomic import replacing
from ..core.declarations import Described
from ..core.settings import GROUPS, Settings
from ..core.streams import is_special, open_special
from ..core.version import __version__

DTYPES: dict[str, npt.DTypeLike] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
}
_NO_CHECKSUM = "0" * 64
# Limits of a header: parsed JSON is many times as large as its text.
_MOST_HEADER = 1 << 24  # bytes
_MOST_CONTAINERS = 1 << 20  # lists and objects


class ModelFileError(ValueError):
    """A file is not a model or checkpoint, is damaged, or comes from a newer version.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ltls import ModelFileError, load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "note.txt")
    ...     _ = path.write_text("not a model")
    ...     try:
    ...         model = load(path)
    ...     except ModelFileError:
    ...         print("no model")
    no model
    """


@dataclass(frozen=True)
class Kind:
    """A kind of tensor file: its name in messages, its format mark, and its newest version."""

    name: str
    mark: str
    version: int


def write(
    path: str | os.PathLike[str],
    kind: Kind,
    description: dict[str, Any],
    tensors: Tensors,
) -> None:
    """Write a file atomically."""
    write_content(path, encode(kind, description, tensors))


def write_content(path: str | os.PathLike[str], content: memoryview) -> None:
    """Write the bytes of a file atomically.

    Named pipes and devices, such as /dev/stdout, are written to directly.
    """
    if is_special(path):
        with open_special(path) as stream:
            stream.write(content)
        return
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def encode(kind: Kind, description: dict[str, Any], tensors: Tensors) -> memoryview:
    """Return the bytes of a file."""
    metadata = {
        "format": kind.mark,
        "format_version": str(kind.version),
        "ltls_version": __version__,
        "model": json.dumps(description, default=_plain),
        "sha256": json.dumps({name: _checksum(tensor) for name, tensor in tensors.items()}),
        "header_sha256": _NO_CHECKSUM,
    }
    content = _sealed(save(tensors, metadata))
    _check_header_size(bytes(content[8 : 8 + int.from_bytes(content[:8], "little")]))
    return content


def _plain(value: Any) -> Any:
    """Return a NumPy number, which a setting may have, as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a description cannot hold a {type(value).__name__}, got {value!r}")


@contextmanager
def damage_reported(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `ModelFileError` for any error while the contents of a file are decoded."""
    try:
        yield
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged: {error}") from error
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {error!r}") from error


class TensorFile:
    """An open file with a verified header."""

    def __init__(
        self, path: Path, kind: Kind, mmap: bool = True, content: memoryview | None = None
    ) -> None:
        self.path = path
        foreign = ModelFileError(f"{path} is not an ltls {kind.name}")
        if content is None and path.stat().st_size < 10:
            raise ModelFileError(f"{foreign}, or is cut short")
        # One map of the whole file, which stays valid if the file is replaced.
        self._bytes: AnyArray
        if content is not None:
            self._bytes = np.frombuffer(content, np.uint8)
        elif mmap:
            self._bytes = np.memmap(path, np.uint8, "r").view(np.ndarray)
        else:
            self._bytes = np.fromfile(path, np.uint8)
        self.size = len(self._bytes)
        length = int.from_bytes(self._bytes[:8].tobytes(), "little")
        if not 2 <= length <= self.size - 8:
            raise ModelFileError(f"{foreign}, or is cut short")
        header = self._bytes[8 : 8 + min(length, _MOST_HEADER + 1)].tobytes()
        with damage_reported(path):
            _check_header_size(header)
        try:
            self.tensors: dict[str, Any] = json.loads(header)
            self.metadata: dict[str, str] = self.tensors.pop("__metadata__")
            mark = self.metadata["format"]
            version = int(self.metadata["format_version"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise foreign from None
        if mark != kind.mark:
            raise foreign
        if version > kind.version:
            raise ModelFileError(
                f"{path} has format version {version}, written by ltls "
                f"{self.metadata.get('ltls_version')}; this version reads up to {kind.version}: "
                "upgrade ltls"
            )
        if _header_checksum(header, self.size - 8 - length) != self.metadata.get("header_sha256"):
            raise ModelFileError(f"{path} is damaged: its header or its size was changed")
        self._start = 8 + length
        with damage_reported(path):
            self.description: dict[str, Any] = json.loads(self.metadata["model"])
            self.written_by = str(self.metadata["ltls_version"])

    def tensor(self, name: str) -> AnyArray:
        """Return a tensor: a view of the file, mapped or read."""
        with damage_reported(self.path):
            entry = self.tensors[name]
            begin, end = map(operator.index, entry["data_offsets"])
            shape = tuple(map(operator.index, entry["shape"]))
            dtype = np.dtype(DTYPES[entry["dtype"]])
            if not 0 <= begin <= end <= self.size - self._start:
                raise ValueError(f"tensor {name!r} lies outside of it")
            if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != end - begin:
                raise ValueError(f"tensor {name!r} does not have the size of its shape {shape}")
            tensor = self._bytes[self._start + begin : self._start + end].view(dtype)
            if not tensor.flags.aligned:
                raise ValueError(f"tensor {name!r} begins at byte {begin}, which is not aligned")
            return tensor.reshape(shape)

    def section(self, verify: bool) -> Described:
        """Return the content of the file, to be read as declared."""
        tensors = {name: partial(self.tensor, name) for name in self.tensors}
        return Described(self.description, tensors, verify=verify)

    def verify(self, names: list[str]) -> None:
        """Verify the checksums of some tensors."""
        with damage_reported(self.path):
            expected = json.loads(self.metadata["sha256"])
            for name in names:
                if _checksum(self.tensor(name)) != expected[name]:
                    raise ModelFileError(f"{self.path} is damaged: tensor {name!r} was changed")


def _check_header_size(header: bytes) -> None:
    n_containers = header.count(b"[") + header.count(b"{")
    if len(header) > _MOST_HEADER or n_containers > _MOST_CONTAINERS:
        raise ValueError(
            "the description of a model, with feature names and class weights, may have at most "
            f"{_MOST_HEADER} bytes and {_MOST_CONTAINERS} lists, got {len(header)} and "
            f"{n_containers}"
        )


def _sealed(content: bytes) -> memoryview:
    """Sort the header of a file and add its checksum."""
    whole = bytearray(content)
    length = int.from_bytes(whole[:8], "little")
    header = _in_order(bytes(whole[8 : 8 + length]))
    before, after = _around_checksum(header)
    checksum = _header_checksum(header, len(whole) - 8 - length)
    whole[8 : 8 + length] = before + checksum.encode() + after
    return memoryview(whole)


def _in_order(header: bytes) -> bytes:
    """Sort the metadata, whose order safetensors does not fix: equal models give equal files."""
    entries = json.loads(header)
    entries["__metadata__"] = dict(sorted(entries["__metadata__"].items()))
    ordered = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    return ordered.ljust(len(header)) if len(ordered) <= len(header) else header


def _around_checksum(header: bytes) -> tuple[bytes, bytes]:
    """Return the header before and after its own checksum."""
    before, name, after = header.rpartition(b'"header_sha256":"')
    return before + name, after[len(_NO_CHECKSUM) :]


def _header_checksum(header: bytes, data_bytes: int) -> str:
    """Return the checksum of a header with its own checksum zeroed, and of the size of the data."""
    before, after = _around_checksum(header)
    blank = before + _NO_CHECKSUM.encode() + after
    return hashlib.sha256(blank + data_bytes.to_bytes(8, "little")).hexdigest()


def _checksum(tensor: AnyArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(tensor).data).hexdigest()


# Labels and parameters as JSON


def encode_labels(labels: list[Any]) -> tuple[str, AnyArray]:
    """Return the kind of the labels, and a tensor that holds them."""
    kinds = {type(label) for label in labels}
    if kinds == {int} and all(-(2**63) <= label < 2**63 for label in labels):
        integers = np.array(labels, np.int64)
        return "int", integers if integers.min() < 0 else smallest(integers)
    if kinds == {float}:
        return "float", np.array(labels, np.float64)
    text = json.dumps([_to_json(label) for label in labels], ensure_ascii=False)
    return "json", np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def decode_labels(kind: str, tensor: AnyArray) -> list[Any]:
    """Return the labels that a tensor holds."""
    if kind == "json":
        text = tensor.tobytes().decode("utf-8", "surrogatepass")
        return [_from_json(label) for label in json.loads(text)]
    labels: list[Any] = tensor.tolist()
    return labels


def encode_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return an estimator's parameters as JSON values.

    A random generator, which is not part of a model, is replaced by the default. A function is
    replaced by its name, for checkpoints to compare.
    """
    return {name: _parameter(value) for name, value in parameters.items()}


def decode_parameters(encoded: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that `encode_parameters` encoded."""
    return {name: _from_json(value) for name, value in encoded.items()}


def _parameter(value: Any) -> Any:
    if isinstance(value, np.random.RandomState):
        return None
    if callable(value):
        return {"function": getattr(value, "__qualname__", type(value).__qualname__)}
    return _to_json(value)


def _to_json(value: Any) -> Any:
    if isinstance(value, (np.datetime64, np.timedelta64)):  # timedelta64 is a np.number
        kind, unit = type(value).__name__, np.datetime_data(value.dtype)
        return {kind: [int(value.astype(np.int64)), unit[0], unit[1]]}
    if isinstance(value, (np.bool_, np.number, np.str_, np.bytes_)):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, (tuple, list)):
        return {type(value).__name__: [_to_json(part) for part in value]}
    if isinstance(value, dict):  # class_weight, or settings of parts
        return {"dict": [[_to_json(key), _to_json(each)] for key, each in value.items()]}
    if isinstance(value, Settings):
        return {"settings": [type(value).__name__, encode_parameters(value.stored())]}
    raise TypeError(
        "a model file can store labels that are str, int, float, bool, bytes, numpy.datetime64, "
        f"numpy.timedelta64 or tuples of these, got {value!r} of type {type(value).__name__}; "
        "train on str(label) instead"
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        raise ValueError("a label or parameter is a list")
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "bytes":
        return base64.b64decode(content)
    if kind in ("datetime64", "timedelta64"):
        number, unit, step = content
        moment = np.datetime64 if kind == "datetime64" else np.timedelta64
        return moment(number, (unit, step))
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(map(_from_json, content))
    if kind == "dict":
        return {_from_json(key): _from_json(each) for key, each in content}
    if kind == "settings":
        name, values = content
        decoded = decode_parameters(values)
        if name not in GROUPS:
            raise ValueError(f"{name} are settings of an unknown part")
        made = GROUPS[name].from_dict(decoded)
        for each in decoded:  # lists that are not tuples
            setattr(made, each, decoded[each])
        return made
    raise ValueError(f"a label or parameter has the unknown type {kind!r}")
