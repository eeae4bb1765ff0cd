"""Models in MLflow: a pyfunc flavour for serving, batch scoring and Spark.

`save_model` and `log_model` write an MLflow model, `load` returns its estimator, and
`mlflow.pyfunc.load_model` and `mlflow.pyfunc.spark_udf` work as for every flavour. Requires ``pip
install 'ltls[mlflow]'``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.models import Model, infer_signature
from sklearn.utils.validation import check_is_fitted

from .core.version import __version__
from .estimators.classifier import LTLSClassifier
from .estimators.load import load as load_file
from .estimators.table_predictor import TablePredictor, fitted_columns
from .io.arrow import as_table
from .io.tables import Columns

__all__ = ["load", "log_model", "save_model"]

_FLAVOUR, _FILE = "ltls", "model.ltls"
_DEFAULTS: dict[str, Any] = {"k": 5, "proba": False}
_COLUMN = "input"


def save_model(
    estimator: LTLSClassifier,
    path: str | os.PathLike[str],
    *,
    features: str | Sequence[str] | None = None,
    text: str | None = None,
    input_example: Any = None,
    signature: Any = None,
    mlflow_model: Any = None,
    **options: Any,
) -> None:
    """Save a fitted estimator as an MLflow model.

    Parameters
    ----------
    estimator : LTLSClassifier
    path : path-like
        The folder to write.
    features : str or sequence of str, optional
        The columns of features; see `ltls.ray.BatchPredictor`. By default, all columns.
    text : str, optional
        The column of texts; by default, the only column. A `TableClassifier` stores its columns, so
        leave out both.
    input_example : DataFrame, optional
        Example rows, from which the signature is inferred.
    signature : mlflow.models.ModelSignature, optional
        By default that of the example, with the parameters ``k`` and ``proba``.
    mlflow_model : mlflow.models.Model, optional
        The `Model` object to which the flavour is added; `log_model` passes one.
    **options
        Options of `mlflow.pyfunc.save_model`.
    """
    check_is_fitted(estimator)
    estimator = copy(estimator)
    if features or text:
        columns = fitted_columns(estimator, features, text)
        before = estimator.fitted_.provenance.columns or {}
        named = {"text": columns.text, "features": list(columns.features)}
        estimator.record_source(columns={**before, **named})
    if signature is None and input_example is not None:
        output = PyfuncModel(estimator).predict(input_example)
        signature = infer_signature(input_example, output, params=_DEFAULTS)
    description = Model() if mlflow_model is None else mlflow_model
    description.add_flavor(_FLAVOUR, data=f"data/{_FILE}", ltls_version=__version__)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, _FILE)
        estimator.save(file)
        mlflow.pyfunc.save_model(
            os.fspath(path),
            loader_module=__name__,
            data_path=str(file),
            mlflow_model=description,
            signature=signature,
            input_example=input_example,
            **{"pip_requirements": [f"ltls[mlflow]=={__version__}"], **options},
        )


def log_model(
    estimator: LTLSClassifier,
    name: str,
    *,
    features: str | Sequence[str] | None = None,
    text: str | None = None,
    input_example: Any = None,
    signature: Any = None,
    **options: Any,
) -> Any:
    """Log a fitted estimator in the current MLflow run.

    Parameters
    ----------
    estimator, features, text, input_example, signature
        As in `save_model`.
    name : str
        The name of the model.
    **options
        Options of `mlflow.models.Model.log`, such as `registered_model_name`.

    Returns
    -------
    mlflow.models.model.ModelInfo
    """
    return Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        estimator=estimator,
        features=features,
        text=text,
        input_example=input_example,
        signature=signature,
        **options,
    )


def load(model_uri: str) -> LTLSClassifier:
    """Load the estimator of an MLflow model, as `ltls.load` does.

    Parameters
    ----------
    model_uri : str
        A folder, ``runs:/<run>/<name>``, ``models:/<name>/<version>`` or another URI of MLflow.

    Returns
    -------
    LTLSClassifier
        The fitted estimator.
    """
    folder = mlflow.artifacts.download_artifacts(os.fspath(model_uri))
    flavours = Model.load(folder).flavors
    if _FLAVOUR not in flavours:
        raise ValueError(
            f"model_uri must be an ltls model, got {model_uri} with the flavours {list(flavours)}"
        )
    place = Path(folder).resolve()
    file = place.joinpath(str(flavours[_FLAVOUR].get("data"))).resolve()
    if not file.is_relative_to(place):
        raise ValueError(f"the model file of {model_uri} must be inside its folder, got {file}")
    return load_file(file)


# What MLflow calls to predict


class PyfuncModel:
    """A model for `mlflow.pyfunc`: data frames in, data frames out."""

    def __init__(self, estimator: LTLSClassifier) -> None:
        self.estimator = estimator

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return a data frame with the columns labels and scores, and probabilities if requested.

        Parameters
        ----------
        model_input : DataFrame, dict of arrays, array, sparse matrix or list of texts
            A data frame must have the columns with which the model was saved. If none were given,
            texts are the only column, or features are all columns.
        params : dict, optional
            ``k``, the number of labels per row, and ``proba``, whether to return probabilities.
        """
        columns, table = self._table(model_input)
        chosen = {**_DEFAULTS, **(params or {})}
        unknown = next((name for name in chosen if name not in _DEFAULTS), None)
        if unknown is not None:
            raise ValueError(f"params must be among {' and '.join(_DEFAULTS)}, got {unknown!r}")
        predict = TablePredictor(self.estimator, columns, int(chosen["k"]), bool(chosen["proba"]))
        found = {name: column.to_pylist() for name, column in predict(table).items()}
        index = model_input.index if _is_frame(model_input) else None
        return pd.DataFrame(found, index=index)

    def _table(self, given: Any) -> tuple[Columns, Any]:
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
        return Columns(**front_end.columns_among(names)), table


def _is_frame(given: Any) -> bool:
    return hasattr(given, "columns")


def _load_pyfunc(path: str) -> PyfuncModel:
    """Load a model file; MLflow calls the function of this name."""
    return PyfuncModel(load_file(path))
