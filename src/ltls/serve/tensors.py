"""Tensors of the Open Inference Protocol, as JSON or, by the binary data extension, as bytes."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import msgspec
import numpy as np

from ..core.arrays import AnyArray
from .messages import RequestError, decoded, quoted

DTYPES = {
    f"{name}{8 * size}": np.dtype(f"<{kind}{size}")
    for name, kind, sizes in (("INT", "i", "1248"), ("UINT", "u", "1248"), ("FP", "f", "248"))
    for size in map(int, sizes)
}
_LENGTH = struct.Struct("<I")
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


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
        dtype = DTYPES.get(self.head.datatype)
        if dtype is None or (integers and dtype.kind != "i"):
            wanted = "INT32 or INT64" if integers else f"one of {', '.join(DTYPES)}"
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


def output(name: str, values: AnyArray, binary: bool) -> tuple[dict[str, Any], bytes]:
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
        values = values.astype(DTYPES[datatype])
        if not binary:
            return {**tensor, "data": values.reshape(-1).tolist()}, b""
        content = values.tobytes()
    return {**tensor, "parameters": {"binary_data_size": len(content)}}, content
