"""``POST /predict``: JSON for people."""

from __future__ import annotations

import time
from itertools import accumulate, chain
from typing import Annotated, Any, TypeAlias

import numpy as np
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from . import trellis
from .answers import Answer, Receive, Scope, encoded
from .errors import RequestError
from .explaining import explanations
from .models import ModelStore, ServedModel
from .predicting import best_by_probability, best_by_score, is_quick, json_labels
from .rows import Rows, dense_rows, named_rows, sparse_rows, text_rows
from .settings import Settings
from .work import Work, parsed

Number = Annotated[float, Field(allow_inf_nan=False)]
Cell: TypeAlias = Number | str | bool | None  # of a table


class SparseRow(BaseModel):
    """The non-zero features of a row."""

    model_config = ConfigDict(strict=True, extra="forbid")
    indices: list[Annotated[int, Field(ge=0, lt=2**62)]]
    values: list[Number]


class PredictRequest(BaseModel):
    """A request for the best labels of some rows: either texts, or rows of features."""

    model_config = ConfigDict(strict=True, extra="forbid")
    model: str | None = Field(None, description="Name of a model, if there are several.")
    text: str | list[str] | None = Field(None, description="A text, or a list of texts.")
    rows: list[list[Number]] | list[SparseRow] | list[dict[str, Cell]] | None = Field(
        None,
        union_mode="left_to_right",
        description="A list of rows: lists of numbers, objects with indices and values, or objects "
        "with names of features or columns.",
    )
    k: int = Field(5, ge=1, description="Number of labels per row.")
    proba: bool = Field(False, description="Probabilities instead of scores.")
    explain: bool = Field(False, description="Also which features speak for every label.")
    trellis: int | None = Field(
        None,
        ge=0,
        description="Also the paths of the first row through the trellis of this number.",
    )


class Plain:
    """The endpoint, and what it needs.

    Parameters
    ----------
    settings : Settings
    models : ModelStore
    work : Work
    """

    def __init__(self, settings: Settings, models: ModelStore, work: Work) -> None:
        self._settings, self._models, self._work = settings, models, work

    async def predict(self, request: Request) -> Response:
        """Return the best labels of the rows of a request."""
        return (await self.answer(request.scope, request.receive)).response()

    async def answer(self, scope: Scope, receive: Receive) -> Answer:
        """Answer a request."""
        started = time.perf_counter()
        content = await self._work.body(scope, receive)
        asked = parsed(PredictRequest, content)
        model = self._models.get(asked.model)
        scope["state"]["model"] = model.name
        quick = (
            is_quick(len(content), asked.k)
            and not (asked.proba or asked.explain)
            and asked.trellis is None
        )
        found = await self._work.run(lambda: self._found(asked, model, scope), quick)
        found["milliseconds"] = round(1000 * (time.perf_counter() - started), 3)
        return Answer(encoded(found))

    def _found(self, asked: PredictRequest, model: ServedModel, scope: Scope) -> dict[str, Any]:
        if asked.k > self._settings.max_k:
            raise RequestError(422, f"k must be at most {self._settings.max_k}, got {asked.k}")
        rows = self._rows(asked, model)
        scope["state"]["n_rows"] = rows.n_rows
        best = (best_by_probability if asked.proba else best_by_score)(model, rows, asked.k)
        key = "probabilities" if asked.proba else "scores"
        pairs = zip(json_labels(best.labels), best.scores.tolist(), strict=True)
        found: dict[str, Any] = {
            "model": model.name,
            "version": model.version,
            "predictions": [{"labels": labels, key: scores} for labels, scores in pairs],
        }
        if asked.explain:
            found["explanations"] = explanations(model.estimator, rows.X, asked.k)
        if asked.trellis is not None:
            first = rows.X[:1] if rows.arrays is None else rows.X[[0]]
            found["trellis"] = trellis.paths(
                model.estimator, first, best.labels[0].tolist(), asked.trellis
            )
        return found

    def _rows(self, asked: PredictRequest, model: ServedModel) -> Rows:
        most = self._settings.max_rows
        if (asked.text is None) == (asked.rows is None):
            wanted = "text" if model.takes_text else "rows"
            raise RequestError(422, f"a request must have either text or rows: send {wanted}")
        if asked.text is not None:
            texts = [asked.text] if isinstance(asked.text, str) else asked.text
            return text_rows(model, texts, most)
        rows: list[Any] = asked.rows or []
        if rows and isinstance(rows[0], SparseRow):
            if any(len(row.indices) != len(row.values) for row in rows):
                raise RequestError(422, "indices and values of a row must have equal lengths")
            indptr = np.array([0, *accumulate(len(row.indices) for row in rows)])
            indices = np.array([*chain.from_iterable(row.indices for row in rows)], np.int64)
            values = np.array([*chain.from_iterable(row.values for row in rows)], np.float64)
            return sparse_rows(model, indptr, indices, values, most)
        if rows and isinstance(rows[0], dict):
            return named_rows(model, rows, most)
        if len({len(row) for row in rows}) > 1:
            raise RequestError(422, "all rows of a request must have the same number of values")
        return dense_rows(model, np.array(rows, np.float64), most)
