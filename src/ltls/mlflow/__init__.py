"""Models in MLflow: a pyfunc flavour, which serves, batch scoring and Spark read.

`save_model` and `log_model` write a model as MLflow stores it, `load` returns the estimator, and
`mlflow.pyfunc.load_model` and `mlflow.pyfunc.spark_udf` work as for every flavour. It needs
``pip install 'ltls[mlflow]'``.
"""

from __future__ import annotations

from .flavour import load, log_model, save_model
from .pyfunc import load_pyfunc as _load_pyfunc  # the name that MLflow looks for

__all__ = ["_load_pyfunc", "load", "log_model", "save_model"]
