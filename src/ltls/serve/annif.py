"""What the ``http`` backend of Annif asks for: suggestions of a project, here a model."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta

from .messages import Answer, RequestError, converted, encoded, quoted
from .models import ServedModel
from .work import Job

_MAX_FIELDS = 100  # of a form: those of a request, and the metadata of a document


class SuggestRequest(msgspec.Struct):
    """A form with a text; other fields, such as metadata of the document, are ignored."""

    text: Annotated[str, Meta(description="The text.")]
    limit: Annotated[int, Meta(ge=1, le=1 << 31, description="Number of labels.")] = 10
    project: Annotated[str | None, Meta(description="The name of the model, if at all.")] = None


def project(model: ServedModel) -> dict[str, Any]:
    """Return what Annif shows of a project."""
    modified = datetime.fromtimestamp(int(model.version) / 1000, timezone.utc)
    return {
        "project_id": model.name,
        "name": model.name,
        "backend": {"backend_id": "ltls"},
        "is_trained": True,
        "modification_time": modified.isoformat(),
    }


def suggest(model: ServedModel, content: bytearray, job: Job) -> Answer:
    """Answer a request with the best labels of a text and their probabilities."""
    try:
        fields = parse_qsl(
            content.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:
        raise RequestError(400, f"the request is not a form in UTF-8: {error}") from None
    asked = converted(SuggestRequest, dict(fields))
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


def _uri(label: Any) -> str:
    """Return a label as text, without the angle brackets that URIs have in Annif's files."""
    text = str(label)
    return text[1:-1] if text.startswith("<") and text.endswith(">") else text
