"""Tensors of the Open Inference Protocol, as JSON or, by the binary data extension, as bytes."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from .errors import RequestError, quoted

DTYPES: dict[str, type[np.generic]] = {
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
_LENGTH = struct.Struct("<I")


class Tensor(BaseModel):
    """An input tensor of a request."""

    model_config = ConfigDict(strict=True)
    name: str
    shape: list[int] = Field(min_length=1, max_length=8)
    datatype: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: list[Any] | None = None

    @property
    def n_binary(self) -> int:
        """The number of bytes that follow the JSON part of the request."""
        size = self.parameters.get("binary_data_size", 0)
        if type(size) is not int or size < 0:
            raise RequestError(400, f"binary_data_size must be a number, got {quoted(size)}")
        return size

    @property
    def n_values(self) -> int:
        """The number of values of its shape."""
        if min(self.shape) < 0:
            raise RequestError(400, f"tensor {quoted(self.name)} has shape {quoted(self.shape)}")
        return math.prod(self.shape)

    def texts(self, binary: bytes) -> list[str]:
        """Return the values of a BYTES tensor as texts."""
        if self.datatype != "BYTES":
            raise RequestError(
                400,
                f"tensor {quoted(self.name)} must be BYTES, got {quoted(self.datatype)}",
            )
        values = self._flat() if self.data is not None else _strings(binary, self.name)
        self._check_size(len(values))
        if not all(type(value) is str for value in values):
            raise RequestError(400, f"tensor {quoted(self.name)} must hold strings")
        return values

    def numbers(self, binary: bytes) -> npt.NDArray[Any]:
        """Return the values of a tensor of numbers, in its shape."""
        dtype = DTYPES.get(self.datatype)
        if dtype is None:
            raise RequestError(
                400,
                f"tensor {quoted(self.name)} must be one of {', '.join(DTYPES)}, "
                f"got {quoted(self.datatype)}",
            )
        if self.data is None:
            size = np.dtype(dtype).itemsize
            if len(binary) != self.n_values * size:
                raise RequestError(
                    400,
                    f"tensor {quoted(self.name)} of shape {self.shape} must have "
                    f"{self.n_values * size} bytes, got {len(binary)}",
                )
            values = np.frombuffer(binary, np.dtype(dtype).newbyteorder("<"))
            return values.astype(dtype).reshape(self.shape)
        given = self._flat()
        self._check_size(len(given))
        allowed = (int, float) if np.issubdtype(dtype, np.floating) else (int,)
        if not all(type(value) in allowed for value in given):
            raise RequestError(400, f"tensor {quoted(self.name)} must hold {self.datatype} numbers")
        try:
            with np.errstate(over="ignore"):  # infinity is found with the rows
                return np.array(given, dtype).reshape(self.shape)
        except OverflowError:
            raise RequestError(
                400, f"tensor {quoted(self.name)} has numbers outside of {self.datatype}"
            ) from None

    def integers(self, binary: bytes) -> npt.NDArray[np.int64]:
        """Return the values of a tensor of integers of one dimension, or of a single row."""
        values = self.numbers(binary).reshape(-1)
        if values.dtype.kind not in "iu" or values.dtype == np.uint64:
            raise RequestError(400, f"tensor {quoted(self.name)} must be INT32 or INT64")
        return values.astype(np.int64)

    def _check_size(self, found: int) -> None:
        if found != self.n_values:
            raise RequestError(
                400,
                f"tensor {quoted(self.name)} of shape {self.shape} must have {self.n_values} "
                f"values, got {found}",
            )

    def _flat(self) -> list[Any]:
        """Return JSON data as one list: it may be nested as the shape is."""
        values = self.data or []
        for _ in self.shape[1:]:
            if values and all(type(value) is list for value in values):
                values = [each for value in values for each in value]
        return values


def _strings(binary: bytes, name: str) -> list[Any]:
    """Return texts that are each preceded by their length in four bytes."""
    found, at = [], 0
    while at < len(binary):
        end = at + _LENGTH.size
        length = _LENGTH.unpack_from(binary, at)[0] if end <= len(binary) else len(binary)
        if end + length > len(binary):
            raise RequestError(400, f"the bytes of tensor {quoted(name)} are cut off")
        try:
            found.append(binary[end : end + length].decode("utf-8"))
        except UnicodeDecodeError:
            raise RequestError(400, f"tensor {quoted(name)} must hold UTF-8 text") from None
        at = end + length
    return found


def output(name: str, values: npt.NDArray[Any], binary: bool) -> tuple[dict[str, Any], bytes]:
    """Return a tensor of a response, and its bytes if it is a binary one.

    Integers become INT64, floats FP32, everything else BYTES.
    """
    if values.dtype.kind in "iu":
        values, datatype = values.astype("<i8"), "INT64"
    elif values.dtype.kind == "f" and values.dtype.itemsize == 4:
        values, datatype = values.astype("<f4"), "FP32"
    else:
        datatype = "BYTES"
    tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(values.shape)}
    if datatype == "BYTES":
        texts = [str(value) for value in values.reshape(-1).tolist()]
        if not binary:
            return {**tensor, "data": texts}, b""
        encoded = (text.encode("utf-8", "replace") for text in texts)
        content = b"".join(_LENGTH.pack(len(each)) + each for each in encoded)
    else:
        if not binary:
            return {**tensor, "data": values.reshape(-1).tolist()}, b""
        content = values.tobytes()
    return {**tensor, "parameters": {"binary_data_size": len(content)}}, content
