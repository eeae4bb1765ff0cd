"""Labels and parameters as JSON: types that JSON lacks become objects {"type": value}."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from ..structure.codebook import RandomCodebook, TableCodebook


def encode_labels(labels: list[Any]) -> tuple[str, npt.NDArray[Any]]:
    """Return the kind of the labels, and a tensor that holds them."""
    kinds = {type(label) for label in labels}
    if kinds == {int} and all(-(2**63) <= label < 2**63 for label in labels):
        return "int", np.array(labels, np.int64)
    if kinds == {float}:
        return "float", np.array(labels, np.float64)
    text = json.dumps([_encode(label) for label in labels], ensure_ascii=False)
    return "json", np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def decode_labels(kind: str, tensor: npt.NDArray[Any]) -> list[Any]:
    """Return the labels that a tensor holds."""
    if kind == "json":
        text = tensor.tobytes().decode("utf-8", "surrogatepass")
        return [_decode(label) for label in json.loads(text)]
    labels: list[Any] = tensor.tolist()
    return labels


def encode_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return an estimator's parameters as JSON values.

    Codebooks and random generators are left out: codebooks have tensors of their own, and a
    generator is not part of a model.
    """
    encoded = {}
    for name, value in parameters.items():
        if isinstance(value, dict):  # class_weight
            pairs = [[_encode(label), _encode(weight)] for label, weight in value.items()]
            encoded[name] = {"dict": pairs}
        elif not isinstance(value, (TableCodebook, RandomCodebook, list, np.random.RandomState)):
            encoded[name] = _encode(value)
    return encoded


def decode_parameters(encoded: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that `encode_parameters` encoded."""
    return {
        name: {_decode(label): _decode(weight) for label, weight in value["dict"]}
        if isinstance(value, dict) and "dict" in value
        else _decode(value)
        for name, value in encoded.items()
    }


def _encode(value: Any) -> Any:
    if isinstance(value, (np.datetime64, np.timedelta64)):  # which is a np.number
        kind, unit = type(value).__name__, np.datetime_data(value.dtype)
        return {kind: [int(value.astype(np.int64)), unit[0], unit[1]]}
    if isinstance(value, (np.bool_, np.number, np.str_, np.bytes_)):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, tuple):
        return {"tuple": [_encode(part) for part in value]}
    raise TypeError(
        "a model file holds labels that are str, int, float, bool, bytes, numpy.datetime64, "
        "numpy.timedelta64 or tuples of these, "
        f"got {value!r} of type {type(value).__name__}; train on str(label) instead"
    )


def _decode(value: Any) -> Any:
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
    if kind == "tuple":
        return tuple(_decode(part) for part in content)
    raise ValueError(f"a label or parameter has the unknown type {kind!r}")
