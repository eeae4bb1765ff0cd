"""Saving, logging and loading of models in MLflow's format."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import mlflow
from mlflow.models import Model, infer_signature
from sklearn.utils.validation import check_is_fitted

from ..core.version import __version__
from ..estimators.classifier import LTLSClassifier
from ..estimators.load import load as load_file
from ..estimators.table_predictor import fitted_columns
from .pyfunc import DEFAULTS, PyfuncModel

_FLAVOUR, _MODULE, _FILE = "ltls", "ltls.mlflow", "model.ltls"


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
        The columns of the features, see `ltls.ray.BatchPredictor`. By default all columns.
    text : str, optional
        The column of texts. By default the only column. A model of tables knows its columns.
    input_example : DataFrame, optional
        Some rows. The signature is inferred from them.
    signature : mlflow.models.ModelSignature, optional
        By default that of the example, with the parameters ``k`` and ``proba``.
    mlflow_model : mlflow.models.Model, optional
        The description to add to; `log_model` passes one.
    **options
        Of `mlflow.pyfunc.save_model`.
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
        signature = infer_signature(input_example, output, params=DEFAULTS)
    description = Model() if mlflow_model is None else mlflow_model
    description.add_flavor(_FLAVOUR, data=f"data/{_FILE}", ltls_version=__version__)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, _FILE)
        estimator.save(file)
        mlflow.pyfunc.save_model(
            os.fspath(path),
            loader_module=_MODULE,
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
        Of `mlflow.models.Model.log`, such as `registered_model_name`.

    Returns
    -------
    mlflow.models.model.ModelInfo
    """
    return Model.log(
        artifact_path=None,
        name=name,
        flavor=importlib.import_module(_MODULE),
        estimator=estimator,
        features=features,
        text=text,
        input_example=input_example,
        signature=signature,
        **options,
    )


def load(model_uri: str) -> LTLSClassifier:
    """Return the estimator of an MLflow model, as `ltls.load` does.

    Parameters
    ----------
    model_uri : str
        A folder, ``runs:/<run>/<name>``, ``models:/<name>/<version>`` or another URI of MLflow.
    """
    folder = mlflow.artifacts.download_artifacts(os.fspath(model_uri))
    flavours = Model.load(folder).flavors
    if _FLAVOUR not in flavours:
        raise ValueError(f"{model_uri} is not a model of ltls, its flavours are {list(flavours)}")
    place = Path(folder).resolve()
    file = place.joinpath(str(flavours[_FLAVOUR].get("data"))).resolve()
    if not file.is_relative_to(place):
        raise ValueError(f"{model_uri} must have its model file inside, got {file}")
    return load_file(file)
