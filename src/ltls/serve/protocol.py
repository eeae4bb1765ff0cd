"""The Open Inference Protocol, version 2, with its binary data extension.

https://github.com/kserve/open-inference-protocol
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any

import msgspec
import numpy as np

from ..core.arrays import AnyArray
from .messages import Answer, RequestError, decoded, encoded, quoted, without_escaped_quotes
from .models import ServedModel
from .work import Job

HEADER_LENGTH = "inference-header-content-length"
_OUTPUTS = ("labels", "scores", "probabilities")
_TYPES = {"str": "BYTES", "int64": "INT64", "float32": "FP32", "float64": "FP64"}
_DTYPES = {
    f"{name}{8 * size}": np.dtype(f"<{kind}{size}")
    for name, kind, sizes in (("INT", "i", "1248"), ("UINT", "u", "1248"), ("FP", "f", "248"))
    for size in map(int, sizes)
}
_LENGTH = struct.Struct("<I")
_MAX_LISTS = 4096  # of nested data
_MAX_CELLS = 1 << 48
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


# Tensors, as JSON or as bytes


class Parameters(msgspec.Struct):
    """The supported parameters of requests, inputs and outputs."""

    k: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 5
    binary_data_size: Size = 0
    binary_data: bool | None = None
    binary_data_output: bool = False


class TensorHead(msgspec.Struct):
    """An input tensor in the JSON part of a request."""

    name: str
    shape: Annotated[list[Size], msgspec.Meta(min_length=1, max_length=8)]
    datatype: str
    parameters: Parameters = msgspec.field(default_factory=Parameters)
    data: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))


@dataclass(frozen=True)
class Tensor:
    """An input tensor of a request, with its bytes after the JSON part."""

    head: TensorHead
    binary: bytes

    @property
    def n_cells(self) -> int:
        """The number of cells of a column: texts, numbers or vectors."""
        return self.head.shape[0] if self._holds_vectors else math.prod(self.head.shape)

    def cells(self) -> list[Any]:
        """Return a column of numbers, or of vectors."""
        numbers = self.numbers()
        return list(numbers) if self._holds_vectors else numbers.reshape(-1).tolist()

    @property
    def _holds_vectors(self) -> bool:
        _, *length = self.head.shape
        return self.head.datatype != "BYTES" and len(length) == 1 and length[0] > 1

    def texts(self) -> list[str]:
        """Return the values of a BYTES tensor as texts."""
        if self.head.datatype != "BYTES":
            raise self._mistake(f"must be BYTES, got {quoted(self.head.datatype)}")
        values: list[str] = self._strings() if self._is_binary else self._json(str)
        self._check_size(len(values))
        return values

    def numbers(self, integers: bool = False) -> AnyArray:
        """Return the values of a tensor of numbers, in its shape."""
        dtype = _DTYPES.get(self.head.datatype)
        if dtype is None or (integers and dtype.kind != "i"):
            wanted = "INT32 or INT64" if integers else f"one of {', '.join(_DTYPES)}"
            raise self._mistake(f"must be {wanted}, got {quoted(self.head.datatype)}")
        if self._is_binary:
            self._check_size(len(self.binary) / dtype.itemsize)
            return np.frombuffer(self.binary, dtype).reshape(self.head.shape)
        values = self._json(float if dtype.kind == "f" else int)
        self._check_size(len(values))
        try:
            with np.errstate(over="ignore"):  # infinity is reported with the rows
                return np.array(values, dtype).reshape(self.head.shape)
        except OverflowError:
            raise self._mistake(f"has numbers outside of {self.head.datatype}") from None

    @property
    def _is_binary(self) -> bool:
        return bytes(memoryview(self.head.data)[:5]) == b"null"

    def _json(self, kind: Any) -> list[Any]:
        """Return JSON data as a flat list; it may be nested like the shape."""
        first = bytes(memoryview(self.head.data)[:100]).translate(None, b" \t\r\n")
        n_lists = len(first) - len(first.lstrip(b"["))  # around the first value
        depth = max(1, min(n_lists, len(self.head.shape)))
        # A list without values has three bytes, but takes 80 once decoded.
        if depth > 1 and _n_lists(bytes(self.head.data)) > _MAX_LISTS:
            raise self._mistake(f"has more than {_MAX_LISTS} lists: send all values in one")
        try:
            values: list[Any] = decoded(_decoder(kind, depth), self.head.data)
        except RequestError as error:
            raise self._mistake(f"must hold {self.head.datatype}: {error.message}") from None
        for _ in range(depth - 1):
            values = [each for value in values for each in value]
        return values

    def _strings(self) -> list[str]:
        """Return texts, each preceded by its length in four bytes."""
        found, at, content = [], 0, self.binary
        while at < len(content):
            end = at + _LENGTH.size
            at = end + int.from_bytes(content[at:end], "little")
            if max(at, end) > len(content):
                raise self._mistake("is cut off")
            try:
                found.append(content[end:at].decode("utf-8"))
            except UnicodeDecodeError:
                raise self._mistake("must hold UTF-8 text") from None
        return found

    def _check_size(self, found: float) -> None:
        wanted, shape = math.prod(self.head.shape), quoted(self.head.shape)
        if math.prod(size or 1 for size in self.head.shape) > _MAX_CELLS:  # even if one is 0
            raise self._mistake(f"of shape {shape} is too large")
        if found != wanted:
            raise self._mistake(f"of shape {shape} must have {wanted} values, got {found:g}")

    def _mistake(self, message: str) -> RequestError:
        return RequestError(400, f"tensor {quoted(self.head.name)} {message}")


def _n_lists(content: bytes) -> int:
    """Return the number of lists in JSON: brackets after an even number of quotes."""
    text = np.frombuffer(without_escaped_quotes(content), np.uint8)
    outside = np.cumsum(text == ord('"'), dtype=np.uint8) % 2 == 0
    return int(np.count_nonzero(outside & (text == ord("["))))


@cache
def _decoder(kind: Any, depth: int) -> msgspec.json.Decoder[Any]:
    nested: Any = kind
    for _ in range(depth):
        nested = list[nested]
    return msgspec.json.Decoder(nested)


def _output(name: str, values: AnyArray, binary: bool) -> tuple[dict[str, Any], bytes]:
    """Return a tensor of a response, and its bytes if it is binary.

    Integers become INT64, scores FP32, everything else BYTES: labels are exact, even if numbers.
    """
    scores = {} if name == "labels" else {"f": "FP32"}
    datatype = {"i": "INT64", "u": "INT64", **scores}.get(values.dtype.kind, "BYTES")
    tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(values.shape)}
    if datatype == "BYTES":
        texts = [str(value) for value in values.reshape(-1).tolist()]
        if not binary:
            return {**tensor, "data": texts}, b""
        encoded = (text.encode("utf-8", "replace") for text in texts)
        content = b"".join(_LENGTH.pack(len(each)) + each for each in encoded)
    else:
        values = values.astype(_DTYPES[datatype])
        if not binary:
            return {**tensor, "data": values.reshape(-1).tolist()}, b""
        content = values.tobytes()
    return {**tensor, "parameters": {"binary_data_size": len(content)}}, content


# Requests


class RequestedOutput(msgspec.Struct):
    """An output that a request asks for."""

    name: str
    parameters: Parameters = msgspec.field(default_factory=Parameters)


class InferRequest(msgspec.Struct):
    """The JSON part of an inference request."""

    inputs: Annotated[list[TensorHead], msgspec.Meta(min_length=1, max_length=256)]
    id: str | None = None
    parameters: Parameters = msgspec.field(default_factory=Parameters)
    outputs: Annotated[list[RequestedOutput], msgspec.Meta(max_length=8)] | None = None


_DECODER = msgspec.json.Decoder(InferRequest)


def metadata(model: ServedModel) -> dict[str, Any]:
    """Describe a model and its tensors."""
    is_integer = model.estimator.classes_.dtype.kind in "iu"
    outputs = {"labels": "INT64" if is_integer else "BYTES", "scores": "FP32"}
    if model.description["probabilities"]:
        outputs["probabilities"] = "FP32"

    columns, inputs = model.estimator.model_.columns, _inputs(model)
    vectors = (model.description["columns"] or {}).get("vectors", ())
    shapes = {name: [-1, -1] for name in vectors}
    if "indptr" in inputs and columns.are_dense:
        inputs, shapes = {"features": "FP32"}, {"features": [-1, columns.n_features]}

    def listed(tensors: dict[str, str], n_axes: int) -> list[dict[str, Any]]:
        return [
            {"name": n, "datatype": kind, "shape": shapes.get(n, [-1] * n_axes)}
            for n, kind in tensors.items()
        ]

    return {
        "name": model.name,
        "versions": [model.version],
        "platform": "ltls",
        "inputs": listed(inputs, 1),
        "outputs": listed(outputs, 2),
    }


def _inputs(model: ServedModel) -> dict[str, str]:
    """Return the names and data types of input tensors."""
    arrays = model.estimator.model_.front_end.arrays
    return {name: _TYPES[kind] for name, kind in arrays.items()}


def infer(model: ServedModel, json_size: str | None, content: bytearray, job: Job) -> Answer:
    """Answer an inference request; `json_size` bytes of it are JSON, all if None."""
    size = _json_size(json_size, len(content))
    asked = decoded(_DECODER, content[:size] if size < len(content) else content, 400)
    wanted, k = _outputs(asked), asked.parameters.k
    proba = "probabilities" in wanted
    if proba:
        model.check_proba()
    begin = partial(job.begin, model.name, k=k, slow=proba)
    rows = _rows(model, _tensors(asked, content, size), begin)
    found = [model.best(rows[piece], k, proba, piece.start) for piece in job.pieces()]
    labels, scores = (np.concatenate(each) for each in zip(*found, strict=True))
    values = {"labels": labels, "scores": scores, "probabilities": scores}
    outputs = [_output(name, values[name], binary) for name, binary in wanted.items()]
    response = {
        "model_name": model.name,
        "model_version": model.version,
        "outputs": [tensor for tensor, _ in outputs],
        **({} if asked.id is None else {"id": asked.id}),
    }
    head = encoded(response)
    whole = job.add(b"".join([head, *(binary for _, binary in outputs)]))
    if len(whole) == len(head):
        return Answer(head)
    return Answer(whole, 200, {HEADER_LENGTH: str(len(head))}, "application/octet-stream")


def _json_size(given: str | None, n_bytes: int) -> int:
    if given is None:
        return n_bytes
    if not (given.isascii() and given.isdigit() and len(given) < 20 and int(given) <= n_bytes):
        raise RequestError(
            400, f"{HEADER_LENGTH} must be a number up to {n_bytes}, got {quoted(given)}"
        )
    return int(given)


def _outputs(asked: InferRequest) -> dict[str, bool]:
    """Return the requested outputs, and whether each is binary.

    With probabilities, labels are sorted by them, so scores need another request.
    """
    usual = asked.parameters.binary_data_output
    wanted = {} if asked.outputs else dict.fromkeys(("labels", "scores"), usual)
    for each in asked.outputs or ():
        if each.name not in _OUTPUTS:
            raise RequestError(
                400, f"outputs must be among {', '.join(_OUTPUTS)}, got {quoted(each.name)}"
            )
        binary = each.parameters.binary_data
        wanted[each.name] = usual if binary is None else binary
    if {"scores", "probabilities"} <= wanted.keys():
        raise RequestError(400, "outputs must be either scores or probabilities, got both")
    return wanted


def _tensors(asked: InferRequest, content: bytearray, at: int) -> dict[str, Tensor]:
    """Return the tensors with their bytes, which begin at position `at` of the request."""
    n_binary, tensors = len(content) - at, {}
    wanted = sum(head.parameters.binary_data_size for head in asked.inputs)
    if wanted != n_binary:
        raise RequestError(
            400, f"{n_binary} bytes follow the JSON part, but binary_data_size adds up to {wanted}"
        )
    for head in asked.inputs:
        end = at + head.parameters.binary_data_size
        tensors[head.name] = Tensor(head, bytes(content[at:end]))
        at = end
    return tensors


def _rows(model: ServedModel, tensors: Mapping[str, Tensor], begin: Callable[[int], None]) -> Any:
    """Return the rows of tensors as in JSON, or as an array.

    `begin` is called with their number before they are decoded, and may raise an error.
    """
    types = _inputs(model)
    if "indptr" in types and tensors.keys() == {"features"}:
        begin(tensors["features"].head.shape[0])
        return tensors["features"].numbers()
    if "indptr" in types and {"indices", "values"} <= tensors.keys() <= types.keys():
        return _sparse(tensors, begin)
    if "indptr" in types or tensors.keys() != types.keys():
        wanted = f"{', '.join(types)}{', or features' if 'indptr' in types else ''}"
        given = quoted(sorted(tensors))
        raise RequestError(
            400, f"the inputs of model {quoted(model.name)} are {wanted}, got {given}"
        )
    n_rows = {tensors[name].n_cells for name in types}
    if len(n_rows) > 1:
        raise RequestError(400, "all columns must have the same number of rows")
    begin(n_rows.pop())
    columns = [
        tensors[name].texts() if kind == "BYTES" else tensors[name].cells()
        for name, kind in types.items()
    ]
    if model.description["columns"] is None:
        return columns[0]
    return [dict(zip(types, row, strict=True)) for row in zip(*columns, strict=True)]


def _sparse(tensors: Mapping[str, Tensor], begin: Callable[[int], None]) -> list[Any]:
    begin(math.prod(tensors["indptr"].head.shape) - 1 if "indptr" in tensors else 1)
    indices = tensors["indices"].numbers(integers=True).reshape(-1)
    values = tensors["values"].numbers().reshape(-1)
    ends = np.array([0, len(indices)])
    if "indptr" in tensors:
        ends = tensors["indptr"].numbers(integers=True).reshape(-1)
    if ends[0] != 0 or ends[-1] != len(indices) or (ends[1:] < ends[:-1]).any():
        raise RequestError(
            422, f"indptr must start with 0, must not decrease, and must end with {len(indices)}"
        )
    if len(indices) != len(values):
        raise RequestError(
            422,
            f"indices and values must have the same length, got {len(indices)} and {len(values)}",
        )
    pairs = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    return [{"indices": indices[a:b], "values": values[a:b]} for a, b in pairs]
