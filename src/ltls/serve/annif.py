"""The API for Annif's ``http`` backend: suggestions of a project, which is a model here."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from .messages import Answer, RequestError, converted, encoded, quoted
from .models import ServedModel
from .work import Job

_MAX_FIELDS = 100  # fields of a form: those below, and the metadata of a document
_DIGITS = np.full(256, 16, np.uint8)  # the value of every character as a digit; 16 for others
for _number, _digit in enumerate(b"0123456789abcdef"):
    _DIGITS[[_digit, ord(chr(_digit).upper())]] = _number


class SuggestRequest(msgspec.Struct):
    """A form with a text; other fields, such as metadata of the document, are ignored."""

    text: Annotated[str, Meta(description="The text.")]
    limit: Annotated[int, Meta(ge=1, le=1 << 31, description="Number of labels.")] = 10
    project: Annotated[str | None, Meta(description="The name of the model; optional.")] = None


def project(model: ServedModel) -> dict[str, Any]:
    """Return the facts that Annif shows about a project."""
    modified = np.datetime64(int(model.version), "ms")  # of any year
    return {
        "project_id": model.name,
        "name": model.name,
        "backend": {"backend_id": "ltls"},
        "is_trained": True,
        "modification_time": f"{modified}+00:00",
    }


def suggest(model: ServedModel, content: bytearray, job: Job) -> Answer:
    """Return the best labels of a text and their probabilities."""
    asked = converted(SuggestRequest, _fields(content))
    if asked.project not in (None, model.name):
        raise RequestError(
            422, f"project must be {quoted(model.name)} as in the path, got {quoted(asked.project)}"
        )
    if model.description["input"] != "text" or not model.description["probabilities"]:
        raise RequestError(422, f"model {quoted(model.name)} must take texts and be probabilistic")
    job.begin(model.name, 1, asked.limit, slow=True, k_name="limit")
    (piece,) = job.pieces()
    labels, scores = model.best([asked.text][piece], asked.limit, proba=True)
    pairs = zip(map(_uri, labels[0].tolist()), scores[0].tolist(), strict=True)
    results = [{"uri": uri, "label": uri, "score": score} for uri, score in pairs]
    return Answer(job.add(encoded({"results": results})))


def _fields(form: bytearray) -> dict[str, str]:
    """Return the fields of a form. `urllib.parse.parse_qsl` takes 80 times the size in memory."""
    if form.count(b"&") >= _MAX_FIELDS:
        raise RequestError(400, f"a form may have at most {_MAX_FIELDS} fields")
    pairs = (field.partition(b"=") for field in form.replace(b"+", b" ").split(b"&"))
    try:
        return {_unquoted(name): _unquoted(value) for name, _, value in pairs}
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the request is not a form in UTF-8: {error}") from None


def _unquoted(text: bytearray) -> str:
    """Return a text after its hexadecimal codes of bytes are replaced."""
    found = np.frombuffer(text, np.uint8).copy()
    digits = _DIGITS[found]
    at = np.flatnonzero((found[:-2] == ord("%")) & (digits[1:-1] < 16) & (digits[2:] < 16))
    found[at] = 16 * digits[at + 1] + digits[at + 2]
    kept = np.ones(len(found), bool)
    kept[at + 1] = kept[at + 2] = False
    return found[kept].tobytes().decode()


def _uri(label: Any) -> str:
    """Return a label as text, without the angle brackets that URIs have in Annif's files."""
    text = str(label)
    return text[1:-1] if text.startswith("<") and text.endswith(">") else text
