"""The Open Inference Protocol, version 2, with its binary data extension.

https://github.com/kserve/open-inference-protocol
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ..core.version import __version__
from .answers import Answer, Receive, Scope, encoded
from .errors import RequestError, quoted
from .models import ModelStore, ServedModel
from .predicting import Best, best_by_probability, best_by_score, is_quick
from .rows import Rows, dense_rows, sparse_rows, table_rows, text_rows
from .settings import Settings
from .tensors import Tensor, output
from .work import Work, parsed

HEADER_LENGTH = "inference-header-content-length"
_HEADER_LENGTH = HEADER_LENGTH.encode()
OUTPUTS = ("labels", "scores", "probabilities")


class RequestedOutput(BaseModel):
    """An output that a request asks for."""

    model_config = ConfigDict(strict=True)
    name: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class InferRequest(BaseModel):
    """The JSON part of an inference request."""

    model_config = ConfigDict(strict=True)
    id: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    inputs: list[Tensor] = Field(min_length=1, max_length=256)
    outputs: list[RequestedOutput] | None = Field(None, max_length=8)


class Protocol:
    """The endpoints below ``/v2``.

    Parameters
    ----------
    settings : Settings
    models : ModelStore
    work : Work
    """

    def __init__(self, settings: Settings, models: ModelStore, work: Work) -> None:
        self._settings, self._models, self._work = settings, models, work

    async def server(self) -> dict[str, Any]:
        """Describe the server."""
        return {"name": "ltls", "version": __version__, "extensions": ["binary_tensor_data"]}

    async def live(self) -> dict[str, Any]:
        """Say that the server runs."""
        return {"live": True}

    async def ready(self) -> Response:
        """Say whether all models are loaded."""
        is_ready = bool(self._models.all())
        return Response(
            json.dumps({"ready": is_ready}), 200 if is_ready else 503, media_type="application/json"
        )

    async def model(self, name: str, version: str | None = None) -> dict[str, Any]:
        """Describe a model and its tensors."""
        model = self._model(name, version)
        if model.columns is not None:
            numbers = model.columns.number
            inputs = [
                {"name": each, "datatype": "FP64" if each in numbers else "BYTES", "shape": [-1]}
                for each in model.columns.names
            ]
        elif model.takes_text:
            inputs = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
        else:
            inputs = [
                {"name": "indptr", "datatype": "INT64", "shape": [-1]},
                {"name": "indices", "datatype": "INT64", "shape": [-1]},
                {"name": "values", "datatype": "FP32", "shape": [-1]},
            ]
        labels = "INT64" if model.integer_labels else "BYTES"
        outputs = [
            {"name": "labels", "datatype": labels, "shape": [-1, -1]},
            {"name": "scores", "datatype": "FP32", "shape": [-1, -1]},
        ]
        if model.has_probabilities:
            outputs.append({"name": "probabilities", "datatype": "FP32", "shape": [-1, -1]})
        return {
            "name": model.name,
            "versions": [model.version],
            "platform": "ltls",
            "inputs": inputs,
            "outputs": outputs,
        }

    async def model_ready(self, name: str, version: str | None = None) -> dict[str, Any]:
        """Say that a model is loaded."""
        return {"name": self._model(name, version).name, "ready": True}

    async def infer(self, request: Request, name: str, version: str | None = None) -> Response:
        """Return the best labels of the rows of a request."""
        return (await self.answer(request.scope, request.receive, name, version)).response()

    async def answer(
        self, scope: Scope, receive: Receive, name: str, version: str | None
    ) -> Answer:
        """Answer an inference request."""
        content = await self._work.body(scope, receive)
        size = _json_size(dict(scope["headers"]).get(_HEADER_LENGTH), len(content))
        asked = parsed(InferRequest, content[:size] if size < len(content) else content, 400)
        model = self._model(name, version)
        scope["state"]["model"] = model.name
        k = self._k(asked)
        wanted = _outputs(asked)
        quick = is_quick(len(content), k) and "probabilities" not in wanted

        def found() -> tuple[dict[str, Any], list[bytes]]:
            rows = self._rows(asked, model, content[size:])
            scope["state"]["n_rows"] = rows.n_rows
            return _tensors(model, rows, k, wanted)

        tensors, binaries = await self._work.run(found, quick)
        if asked.id is not None:
            tensors["id"] = asked.id
        head = encoded(tensors)
        if not any(binaries):
            return Answer(head)
        headers = {HEADER_LENGTH: str(len(head))}
        return Answer(b"".join([head, *binaries]), 200, headers, "application/octet-stream")

    def _model(self, name: str, version: str | None) -> ServedModel:
        model = self._models.get(name)
        if version not in (None, model.version):
            raise RequestError(
                404, f"model {quoted(name)} has version {model.version}, not {quoted(version)}"
            )
        return model

    def _k(self, asked: InferRequest) -> int:
        k = asked.parameters.get("k", 5)
        if type(k) is not int or not 1 <= k <= self._settings.max_k:
            raise RequestError(
                400,
                f"parameter k must be a number from 1 to {self._settings.max_k}, got {quoted(k)}",
            )
        return k

    def _rows(self, asked: InferRequest, model: ServedModel, binary: bytes) -> Rows:
        most, tensors, at = self._settings.max_rows, {}, 0
        for tensor in asked.inputs:
            own = binary[at : at + tensor.n_binary]
            at += tensor.n_binary
            tensors[tensor.name] = (tensor, own)
        if at != len(binary):
            raise RequestError(
                400, f"{len(binary)} bytes follow the JSON part, but tensors take {at}"
            )
        names = sorted(tensors)
        if model.columns is not None:
            return table_rows(model, _records(model, tensors), most)
        if names == ["text"]:
            tensor, own = tensors["text"]
            return text_rows(model, tensor.texts(own), most)
        if names == ["features"]:
            tensor, own = tensors["features"]
            values = tensor.numbers(own)
            return dense_rows(model, _floats(values), most)
        if names in (["indices", "values"], ["indices", "indptr", "values"]):
            indices = tensors["indices"][0].integers(tensors["indices"][1])
            values = _floats(tensors["values"][0].numbers(tensors["values"][1]).reshape(-1))
            indptr = np.array([0, len(indices)])
            if "indptr" in tensors:
                indptr = tensors["indptr"][0].integers(tensors["indptr"][1])
            if not len(indptr):
                raise RequestError(400, "tensor 'indptr' must have at least one value")
            return sparse_rows(model, indptr, indices, values, most)
        wanted = "text" if model.takes_text else "indices and values (and indptr), or features"
        raise RequestError(
            400, f"the inputs of model {quoted(model.name)} are {wanted}, got {quoted(names)}"
        )


def _records(model: ServedModel, tensors: dict[str, tuple[Tensor, bytes]]) -> list[dict[str, Any]]:
    """Return the rows of a table from one tensor per column."""
    assert model.columns is not None
    wanted = model.columns.names
    if sorted(tensors) != sorted(wanted):
        raise RequestError(
            400,
            f"the inputs of model {quoted(model.name)} are {', '.join(wanted)}, "
            f"got {quoted(sorted(tensors))}"[:300],
        )
    cells = {}
    for name, (tensor, own) in tensors.items():
        is_number = name in model.columns.number
        cells[name] = tensor.numbers(own).reshape(-1).tolist() if is_number else tensor.texts(own)
    if len({len(column) for column in cells.values()}) > 1:
        raise RequestError(400, "all columns must have the same number of rows")
    return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]


def _json_size(given: bytes | None, n_bytes: int) -> int:
    if given is None:
        return n_bytes
    if not (given.isdigit() and len(given) < 20 and int(given) <= n_bytes):
        text = given.decode("latin-1")
        raise RequestError(
            400, f"{HEADER_LENGTH} must be a number up to {n_bytes}, got {quoted(text)}"
        )
    return int(given)


def _floats(values: Any) -> Any:
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _outputs(asked: InferRequest) -> dict[str, bool]:
    """Return the outputs that a request asks for, and whether each shall be binary."""
    usual = asked.parameters.get("binary_data_output") is True
    if not asked.outputs:
        return {"labels": usual, "scores": usual}
    wanted = {}
    for each in asked.outputs:
        if each.name not in OUTPUTS:
            raise RequestError(
                400, f"outputs are {', '.join(OUTPUTS)}, there is no {quoted(each.name)}"
            )
        wanted[each.name] = each.parameters.get("binary_data", usual) is True
    return wanted


def _tensors(
    model: ServedModel, rows: Rows, k: int, wanted: dict[str, bool]
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the response and the bytes of its binary tensors.

    With probabilities, labels are in their order; scores are then left to a request of their own.
    """
    by_probability = "probabilities" in wanted
    if by_probability and "scores" in wanted:
        raise RequestError(400, "outputs may have scores or probabilities, got both")
    best: Best = (best_by_probability if by_probability else best_by_score)(model, rows, k)
    values = {"labels": best.labels, "scores": best.scores, "probabilities": best.scores}
    pairs = [output(name, values[name], binary) for name, binary in wanted.items()]
    response = {
        "model_name": model.name,
        "model_version": model.version,
        "outputs": [tensor for tensor, _ in pairs],
    }
    return response, [content for _, content in pairs]
