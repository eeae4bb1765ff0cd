"""What MLflow calls to predict."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..estimators.classifier import LTLSClassifier
from ..estimators.load import load
from ..estimators.table_predictor import TablePredictor, fitted_columns
from ..io.arrow import InputColumns, as_table

DEFAULTS: dict[str, Any] = {"k": 5, "proba": False}
_COLUMN = "input"


class PyfuncModel:
    """A model for `mlflow.pyfunc`: data frames in, data frames out."""

    def __init__(self, estimator: LTLSClassifier) -> None:
        self.estimator = estimator

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return a frame with the columns labels and scores, and probabilities if asked for.

        Parameters
        ----------
        model_input : DataFrame, dict of arrays, array, sparse matrix or list of texts
            A frame has the columns that the model was saved with; without such, texts are the
            only column, and features are all columns.
        params : dict, optional
            ``k``, the number of labels per row, and ``proba``, whether to return probabilities.
        """
        columns, table = self._table(model_input)
        chosen = {**DEFAULTS, **(params or {})}
        unknown = next((name for name in chosen if name not in DEFAULTS), None)
        if unknown is not None:
            raise ValueError(f"params must be {' and '.join(DEFAULTS)}, got {unknown!r}")
        predict = TablePredictor(self.estimator, columns, int(chosen["k"]), bool(chosen["proba"]))
        found = {name: column.to_pylist() for name, column in predict(table).items()}
        index = model_input.index if _is_frame(model_input) else None
        return pd.DataFrame(found, index=index)

    def _table(self, given: Any) -> tuple[InputColumns, Any]:
        """Return the input as a table, and which of its columns to read."""
        if hasattr(given, "tocsr"):
            given = given.toarray()
        if isinstance(given, (list, str)) or (hasattr(given, "ndim") and not _is_frame(given)):
            given = pd.DataFrame({_COLUMN: [given] if isinstance(given, str) else list(given)})
        names = list(given) if isinstance(given, dict) else list(map(str, given.columns))
        table = as_table(given)
        if self.estimator.fitted_.provenance.columns:
            return fitted_columns(self.estimator, None, None), table
        front_end = self.estimator.model_.front_end.settings
        return InputColumns(**front_end.columns_among(names)), table


def _is_frame(given: Any) -> bool:
    return hasattr(given, "columns")


def load_pyfunc(path: str) -> PyfuncModel:
    """Return the model in a file; MLflow calls it."""
    return PyfuncModel(load(path))
