"""``POST /predict``: human-readable JSON."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from ..estimators.classifier import LTLSClassifier
from ..estimators.explain import Part
from .messages import Answer, RequestError, decoded, encoded, quoted, without_escaped_quotes
from .models import ModelStore, ServedModel
from .work import Job

# Limit of request bytes × k × parts of the model for explanations: every n-gram of a text, or every
# number, contributes to each. A number takes about 8 bytes.
_MAX_EXPLAINED, _NUMBER = 256 << 10, 8
_MAX_PATHS, _MAX_EDGES = 5, 2000  # limits of a trellis that the page draws, as in `ltls.plot`

Cell = int | float | str | bool | None | list[int | float]


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request for the best labels of texts or of rows of features."""

    model: Annotated[str | None, Meta(description="Name of a model, if there are several.")] = None
    text: Annotated[
        str | list[str] | None,
        Meta(description="A text, or a list of texts, for a model of texts."),
    ] = None
    rows: Annotated[
        list[list[float] | dict[str, Cell]] | None,
        Meta(
            description="For other models, a list of rows: lists of numbers, objects with "
            "indices and values, or objects with names of features or columns."
        ),
    ] = None
    k: Annotated[int, Meta(ge=1, le=1 << 31, description="Number of labels per row.")] = 5
    proba: Annotated[bool, Meta(description="Return probabilities instead of scores.")] = False
    explain: Annotated[bool, Meta(description="Also explain every label by features.")] = False
    trellis: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 31)] | None,
        Meta(description="Also return the paths of the first row through this trellis."),
    ] = None


class _Rows(msgspec.Struct):
    """The rows of a request, not decoded."""

    rows: msgspec.Raw = msgspec.Raw()


_DECODER = msgspec.json.Decoder(PredictRequest)
_ROWS_DECODER = msgspec.json.Decoder(_Rows)
_MANY_BYTES = 64 << 10
# A list of numbers, or the beginning of an object; and its content, in steps.
_ROW = re.compile(rb'[\s,]*(?:\[[^][{}"]*\]|{)')
_CELLS = re.compile(rb'[^{}"]*(?:"[^"]*"[^{}"]*){0,1000}')


def predict(models: ModelStore, content: bytearray, job: Job) -> Answer:
    """Return the best labels of the rows of a request."""
    if len(content) > _MANY_BYTES:
        _check_row_count(content, job)
    asked = decoded(_DECODER, content)
    model = models.get(asked.model)
    if (asked.text is None) == (asked.rows is None):
        raise RequestError(422, "a request must have either text or rows")
    given, takes = ("rows", "text") if asked.text is None else ("text", "rows")
    if (model.description["input"] == "text") != (given == "text"):
        raise RequestError(422, f"model {quoted(model.name)} takes {takes}, not {given}")
    rows = [asked.text] if isinstance(asked.text, str) else asked.text or asked.rows or []
    slow = asked.proba or asked.explain or asked.trellis is not None
    job.begin(model.name, len(rows), asked.k, slow, asked.explain)
    if asked.explain or asked.trellis is not None:
        _check_explained(
            model, len(content), asked.k if asked.explain else min(asked.k, _MAX_PATHS)
        )
    if asked.proba:
        model.check_proba()
    return Answer(encoded(_found(asked, model, rows, job)))


def _check_row_count(content: bytearray, job: Job) -> None:
    """Raise an error if there are too many rows, before any is decoded.

    A row without features has two bytes, but takes fifty or more once decoded.
    """
    if content.count(b"[") + content.count(b"{") <= job.max_rows:
        return
    rows = without_escaped_quotes(bytes(decoded(_ROWS_DECODER, content).rows))
    at = 1
    for _ in range(job.max_rows + 1):
        row = _ROW.match(rows, at)
        if row is None:  # the end, or an error that decoding will report
            return
        at = row.end()
        if rows[at - 1] == ord("{"):
            while (cells := _CELLS.match(rows, at)) and cells.end() > at:
                at = cells.end()
            at += 1
    raise job.too_many_rows()


def _check_explained(model: ServedModel, n_bytes: int, k: int) -> None:
    """Raise an error if explanations would be too large, before computing any."""
    k = min(k, model.description["labels"])
    n_bytes //= _NUMBER if model.description["input"] == "features" else 1
    if n_bytes * k * model.n_parts > _MAX_EXPLAINED:
        most = _MAX_EXPLAINED // (k * model.n_parts)
        raise RequestError(
            413,
            f"model {quoted(model.name)} explains k={k} labels for requests of at most {most} "
            f"bytes, got {n_bytes}: send fewer or shorter rows, or a smaller k",
        )


def _found(asked: PredictRequest, model: ServedModel, rows: list[Any], job: Job) -> dict[str, Any]:
    key = "probabilities" if asked.proba else "scores"
    predictions, explanations, trellis = [], [], None
    for piece in job.pieces():
        labels, scores = model.best(rows[piece], asked.k, asked.proba, piece.start)
        best = labels.tolist()
        for own, values in zip(best, scores.tolist(), strict=True):
            found = {"labels": [_json_label(label) for label in own], key: values}
            predictions.append(msgspec.Raw(job.add(encoded(found))))
        if asked.trellis is not None and trellis is None:
            trellis = _paths(model.estimator, model.read(rows[:1]), labels[0], asked.trellis)
        if asked.explain:
            pairs = zip(rows[piece], labels, strict=True)
            explanations += [_explained(model, row, own, job) for row, own in pairs]
    return {
        "model": model.name,
        "version": model.version,
        "predictions": predictions,
        **({"explanations": explanations} if asked.explain else {}),
        **({} if trellis is None else {"trellis": trellis}),
        "milliseconds": round(1000 * (time.perf_counter() - job.started), 3),
    }


def _explained(model: ServedModel, row: Any, labels: Any, job: Job) -> list[msgspec.Raw]:
    """Return the explanations of labels of a row, in their order."""
    found = []
    for some in job.pieces(len(labels), 1):
        ((explained,),) = model.estimator.explain(model.read([row]), labels[some])
        found.append(msgspec.Raw(job.add(encoded(explained.to_dict()))))
    return found


def _json_label(label: Any) -> Any:
    """Return a label as a JSON value: strings and finite numbers as they are, others as text."""
    if isinstance(label, float) and not math.isfinite(label):
        return str(label)
    return label if isinstance(label, str | int | float) else str(label)


def _paths(estimator: LTLSClassifier, X: Any, labels: Any, which: int) -> dict[str, Any]:
    """Return one trellis of a model and the paths of labels through it, as JSON values.

    Parameters
    ----------
    estimator : LTLSClassifier
    X : one row, in the form that the estimator takes
    labels : array
        The best labels of the row, best first.
    which : int
        Index of the trellis; a label has a different path in each. They are numbered view by view.
    """
    parts = [part for part in estimator.model_.trellises() for _ in part.codebooks]
    if which >= len(parts):
        raise RequestError(422, f"trellis must be at most {len(parts) - 1}, got {which}")
    trellis = parts[which].trellis
    if trellis.n_edges > _MAX_EDGES:
        raise RequestError(
            422, f"a trellis of {trellis.n_edges} edges is too large to draw: leave out trellis"
        )
    (explained,) = estimator.explain(X, labels[:_MAX_PATHS])
    found = {each.label: list(_trellises(each.parts))[which] for each in explained}
    edges = np.asarray(trellis.edges).reshape(-1, 2)
    n_inner = trellis.n_slices * trellis.width
    return {
        "trellis": which,
        "trellises": len(parts),
        "clusters": parts[which].shares_paths,
        "width": trellis.width,
        "slices": trellis.n_slices,
        "auxiliary": max(int(edges.max(initial=0)) - 1 - n_inner, 0),
        "edges": edges.tolist(),
        "paths": [_drawn(found[label]) for label in labels[:_MAX_PATHS]],
    }


def _trellises(parts: list[Part]) -> Iterator[Part]:
    """Yield the explanations of trellises, also inside views."""
    for part in parts:
        if part.path is not None:
            yield part
        yield from _trellises(part.parts)


def _drawn(part: Part) -> dict[str, Any]:
    return {
        "path": part.path,
        "vertices": [0, *(edge.head for edge in part.edges)],
        "scores": [round(edge.score, 4) for edge in part.edges],
    }
