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
from .messages import Answer, RequestError, decoded, encoded, quoted
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
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


# Tensors, as JSON or as bytes


class Parameters(msgspec.Struct):
    """The parameters of requests, inputs and outputs that mean something here."""

    k: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 5
    binary_data_size: Size = 0
    binary_data: bool | None = None
    binary_data_output: bool = False


class TensorHead(msgspec.Struct):
    """An input tensor as the JSON part of a request has it."""

    name: str
    shape: Annotated[list[Size], msgspec.Meta(min_length=1, max_length=8)]
    datatype: str
    parameters: Parameters = msgspec.field(default_factory=Parameters)
    data: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))


@dataclass(frozen=True)
class Tensor:
    """An input tensor of a request, and its bytes that follow the JSON part."""

    head: TensorHead
    binary: bytes

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
            with np.errstate(over="ignore"):  # infinity is found with the rows
                return np.array(values, dtype).reshape(self.head.shape)
        except OverflowError:
            raise self._mistake(f"has numbers outside of {self.head.datatype}") from None

    @property
    def _is_binary(self) -> bool:
        return bytes(memoryview(self.head.data)[:5]) == b"null"

    def _json(self, kind: Any) -> list[Any]:
        """Return JSON data as one list: it may be nested as the shape is."""
        first = bytes(memoryview(self.head.data)[:100]).translate(None, b" \t\r\n")
        n_lists = len(first) - len(first.lstrip(b"["))  # that the first value is in
        depth = max(1, min(n_lists, len(self.head.shape)))
        try:
            values: list[Any] = decoded(_decoder(kind, depth), self.head.data)
        except RequestError as error:
            raise self._mistake(f"must hold {self.head.datatype}: {error.message}") from None
        for _ in range(depth - 1):
            values = [each for value in values for each in value]
        return values

    def _strings(self) -> list[str]:
        """Return texts that are each preceded by their length in four bytes."""
        found, at, content = [], 0, self.binary
        while at < len(content):
            end = at + _LENGTH.size
            at = end + int.from_bytes(content[at:end], "little")
            if max(at, end) > len(content):
                raise self._mistake("has bytes that are cut off")
            try:
                found.append(content[end:at].decode("utf-8"))
            except UnicodeDecodeError:
                raise self._mistake("must hold UTF-8 text") from None
        return found

    def _check_size(self, found: float) -> None:
        wanted = math.prod(self.head.shape)
        if found != wanted:
            shape = quoted(self.head.shape)
            raise self._mistake(f"of shape {shape} must have {wanted} values, got {found:g}")

    def _mistake(self, message: str) -> RequestError:
        return RequestError(400, f"tensor {quoted(self.head.name)} {message}")


@cache
def _decoder(kind: Any, depth: int) -> msgspec.json.Decoder[Any]:
    nested: Any = kind
    for _ in range(depth):
        nested = list[nested]
    return msgspec.json.Decoder(nested)


def _output(name: str, values: AnyArray, binary: bool) -> tuple[dict[str, Any], bytes]:
    """Return a tensor of a response, and its bytes if it is a binary one.

    Integers become INT64, floats FP32, everything else BYTES.
    """
    datatype = {"i": "INT64", "u": "INT64", "f": "FP32"}.get(values.dtype.kind, "BYTES")
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

    vectors = (model.description["columns"] or {}).get("vectors", ())

    def listed(tensors: dict[str, str], n_axes: int) -> list[dict[str, Any]]:
        return [
            {"name": n, "datatype": kind, "shape": [-1] * (2 if n in vectors else n_axes)}
            for n, kind in tensors.items()
        ]

    return {
        "name": model.name,
        "versions": [model.version],
        "platform": "ltls",
        "inputs": listed(_inputs(model), 1),
        "outputs": listed(outputs, 2),
    }


def _inputs(model: ServedModel) -> dict[str, str]:
    """Return the names and data types of input tensors."""
    arrays = model.estimator.model_.front_end.arrays
    return {name: _TYPES[kind] for name, kind in arrays.items()}


def infer(model: ServedModel, json_size: str | None, content: bytearray, job: Job) -> Answer:
    """Answer an inference request, of which so many bytes are JSON; None if all are."""
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
    """Return the outputs that a request asks for, and whether each shall be binary.

    With probabilities, labels are in their order; scores are then left to a request of their own.
    """
    usual = asked.parameters.binary_data_output
    wanted = {} if asked.outputs else dict.fromkeys(("labels", "scores"), usual)
    for each in asked.outputs or ():
        if each.name not in _OUTPUTS:
            raise RequestError(
                400, f"outputs are {', '.join(_OUTPUTS)}, there is no {quoted(each.name)}"
            )
        binary = each.parameters.binary_data
        wanted[each.name] = usual if binary is None else binary
    if {"scores", "probabilities"} <= wanted.keys():
        raise RequestError(400, "outputs may have scores or probabilities, got both")
    return wanted


def _tensors(asked: InferRequest, content: bytearray, at: int) -> dict[str, Tensor]:
    """Return the tensors with their bytes, which begin at a place of the request."""
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


def _rows(
    model: ServedModel, tensors: Mapping[str, Tensor], begin: Callable[[int], None]
) -> list[Any]:
    """Return the rows of tensors as JSON would have them.

    `begin` is called with their number before, and may refuse it.
    """
    types = _inputs(model)
    if "indptr" in types and tensors.keys() == {"features"}:
        dense = tensors["features"].numbers().astype(np.float64)
        begin(len(dense))
        return dense.tolist()  # type: ignore[no-any-return]
    if "indptr" in types and {"indices", "values"} <= tensors.keys() <= types.keys():
        return _sparse(tensors, begin)
    if "indptr" in types or tensors.keys() != types.keys():
        wanted = f"{', '.join(types)}{', or features' if 'indptr' in types else ''}"
        given = quoted(sorted(tensors))
        raise RequestError(
            400, f"the inputs of model {quoted(model.name)} are {wanted}, got {given}"
        )
    columns = [
        tensors[name].texts() if kind == "BYTES" else _cells(tensors[name].numbers())
        for name, kind in types.items()
    ]
    if len({len(column) for column in columns}) > 1:
        raise RequestError(400, "all columns must have the same number of rows")
    begin(len(columns[0]))
    if model.description["columns"] is None:
        return columns[0]
    return [dict(zip(types, row, strict=True)) for row in zip(*columns, strict=True)]


def _cells(numbers: AnyArray) -> list[Any]:
    """Return the cells of a column: numbers, or vectors."""
    cells = numbers if numbers.ndim == 2 and numbers.shape[1] > 1 else numbers.reshape(-1)
    return cells.tolist()  # type: ignore[no-any-return]


def _sparse(tensors: Mapping[str, Tensor], begin: Callable[[int], None]) -> list[Any]:
    indices = tensors["indices"].numbers(integers=True).reshape(-1)
    values = tensors["values"].numbers().reshape(-1)
    ends = np.array([0, len(indices)])
    if "indptr" in tensors:
        ends = tensors["indptr"].numbers(integers=True).reshape(-1)
    begin(len(ends) - 1)
    if ends[0] != 0 or ends[-1] != len(indices) or (ends[1:] < ends[:-1]).any():
        raise RequestError(
            422, f"indptr must begin with 0, not decrease, and end with {len(indices)}"
        )
    if len(indices) != len(values):
        raise RequestError(
            422, f"indices and values must be of one length, got {len(indices)} and {len(values)}"
        )
    pairs = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    return [{"indices": indices[a:b], "values": values[a:b]} for a, b in pairs]
