"""The Open Inference Protocol, version 2, with its binary data extension.

https://github.com/kserve/open-inference-protocol
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
import numpy as np

from ..core.arrays import AnyArray
from .messages import Answer, RequestError, decoded, encoded, quoted
from .models import ServedModel
from .tensors import Parameters, Tensor, TensorHead, output
from .work import Job

HEADER_LENGTH = "inference-header-content-length"
_OUTPUTS = ("labels", "scores", "probabilities")
_TYPES = {"str": "BYTES", "int64": "INT64", "float32": "FP32", "float64": "FP64"}


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

    def listed(tensors: dict[str, str], shape: list[int]) -> list[dict[str, Any]]:
        return [{"name": n, "datatype": kind, "shape": shape} for n, kind in tensors.items()]

    return {
        "name": model.name,
        "versions": [model.version],
        "platform": "ltls",
        "inputs": listed(_inputs(model), [-1]),
        "outputs": listed(outputs, [-1, -1]),
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
    outputs = [output(name, values[name], binary) for name, binary in wanted.items()]
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
