"""Labels and parameters as JSON: types that JSON lacks become objects {"type": value}."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from ..core.arrays import AnyArray
from ..core.settings import Settings
from ..features.front_ends import Numbers, Table, Text
from ..parts.base import PARTS, load_parts
from ..parts.calibration import Calibration
from ..parts.memory import Memory
from ..structure.codebook import RandomCodebook, TableCodebook
from ..structure.policies import POLICIES


def encode_labels(labels: list[Any]) -> tuple[str, AnyArray]:
    """Return the kind of the labels, and a tensor that holds them."""
    kinds = {type(label) for label in labels}
    if kinds == {int} and all(-(2**63) <= label < 2**63 for label in labels):
        return "int", np.array(labels, np.int64)
    if kinds == {float}:
        return "float", np.array(labels, np.float64)
    text = json.dumps([_encode(label) for label in labels], ensure_ascii=False)
    return "json", np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def decode_labels(kind: str, tensor: AnyArray) -> list[Any]:
    """Return the labels that a tensor holds."""
    if kind == "json":
        text = tensor.tobytes().decode("utf-8", "surrogatepass")
        return [_decode(label) for label in json.loads(text)]
    labels: list[Any] = tensor.tolist()
    return labels


def encode_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return an estimator's parameters as JSON values.

    Codebooks and random generators become defaults: codebooks have tensors of their own, and a
    generator is not part of a model. A function is named: no file holds it, but a checkpoint
    compares it.
    """
    return {name: _encode_parameter(value) for name, value in parameters.items()}


def decode_parameters(encoded: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that `encode_parameters` encoded."""
    return {name: _decode(value) for name, value in encoded.items()}


def decode_settings(kind: Any, values: Any) -> Any:
    """Return a group of settings with values from a file, checked as those of a user are.

    The policy of a codebook need not be registered: nothing but training takes it.
    """
    policy = values.get("assignment") if isinstance(values, dict) else None
    if isinstance(policy, str) and policy not in POLICIES:
        values = {**values, "assignment": "random"}
    made = kind.from_dict(values)
    if isinstance(policy, str):
        made.assignment = policy
    return made


def _encode_parameter(value: Any) -> Any:
    if isinstance(value, np.random.RandomState):
        return None
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, (TableCodebook, RandomCodebook)):
        return "random"
    if callable(value):
        return {"function": getattr(value, "__qualname__", type(value).__qualname__)}
    return _encode(value)


def _groups(parts: dict[str, Any]) -> dict[str, Any]:
    """Return the groups of settings, by name."""
    kinds = [part.settings for part in parts.values()]
    return {kind.__name__: kind for kind in (*kinds, Numbers, Text, Table, Calibration, Memory)}


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
    if isinstance(value, (tuple, list)):
        return {type(value).__name__: [_encode(part) for part in value]}
    if isinstance(value, dict):  # class_weight, or settings of parts
        return {"dict": [[_encode(key), _encode(each)] for key, each in value.items()]}
    if isinstance(value, Settings):
        return {"settings": [type(value).__name__, encode_parameters(value.get_params(deep=False))]}
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
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(map(_decode, content))
    if kind == "dict":
        return {_decode(key): _decode(each) for key, each in content}
    if kind == "settings":
        name, values = content
        decoded = decode_parameters(values)
        group = _groups(PARTS).get(name) or _groups(load_parts()).get(name)
        if group is None:
            raise ValueError(f"{name} are settings of a part that is not known here")
        made = decode_settings(group, decoded)
        for each in decoded:  # lists that are no tuples
            setattr(made, each, decoded[each])
        return made
    raise ValueError(f"a label or parameter has the unknown type {kind!r}")
