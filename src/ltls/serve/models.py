"""The models of a server: loaded from their files, and again when a file is replaced."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..estimators.classifier import LTLSClassifier
from ..estimators.load import load
from ..estimators.table_classifier import TableClassifier
from ..estimators.text import TextClassifier
from ..features.table import TableColumns
from ..model.predictor import Predictor
from ..storage.tensor_file import ModelFileError
from .errors import RequestError, quoted
from .logs import log
from .metrics import Metrics

_MAX_PREDICTORS = 16  # of a model, for different k


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model as it was loaded; requests that have begun keep it when its file is replaced.

    Parameters
    ----------
    name : str
    version : str
        Modification time of the file, in milliseconds.
    estimator : LTLSClassifier
    feature_names : list of str, or None
        The names of the features, if the model was trained with names.
    """

    name: str
    version: str
    estimator: LTLSClassifier
    feature_names: list[str] | None = None

    @cached_property
    def columns(self) -> TableColumns | None:
        """The columns of a row, for a model of tables."""
        if not isinstance(self.estimator, TableClassifier):
            return None
        columns: TableColumns = self.estimator.vectorizer_.columns
        return columns

    @cached_property
    def takes_text(self) -> bool:
        """Whether rows are texts."""
        return isinstance(self.estimator, TextClassifier) and self.columns is None

    @cached_property
    def n_features(self) -> int:
        """The number of features of a row."""
        return self.estimator.model_.n_features

    @cached_property
    def n_labels(self) -> int:
        """The number of labels."""
        return len(self.estimator.classes_)

    @cached_property
    def places(self) -> dict[str, int]:
        """The index of every named feature."""
        return {name: place for place, name in enumerate(self.feature_names or ())}

    @cached_property
    def has_probabilities(self) -> bool:
        """Whether the model has probabilities."""
        return hasattr(self.estimator, "predict_proba")

    @cached_property
    def integer_labels(self) -> bool:
        """Whether all labels are integers."""
        return self.estimator.classes_.dtype.kind in "iu"

    @cached_property
    def _predictors(self) -> Any:
        return lru_cache(_MAX_PREDICTORS)(self.estimator.predictor)

    def warm_up(self) -> None:
        """Do what the first request would have to wait for."""
        predictor: Any = self.predictor(5)
        if self.columns is not None:
            predictor(dict.fromkeys(self.columns.names))
        elif self.takes_text:
            predictor("")
        else:
            predictor(np.empty(0, np.int64), np.empty(0))

    def predictor(self, k: int) -> Predictor:
        """Return the low-latency predictor of the k best labels."""
        predictor: Predictor = self._predictors(min(k, self.n_labels))
        return predictor

    def description(self) -> dict[str, Any]:
        """Return what a client has to know to use the model."""
        return {
            "name": self.name,
            "version": self.version,
            "input": "table" if self.columns else "text" if self.takes_text else "features",
            "labels": self.n_labels,
            "features": self.n_features,
            "feature_names": self.feature_names,
            "columns": self.columns and asdict(self.columns),
            "several_labels": self.estimator.multilabel_,
            "probabilities": self.has_probabilities,
            "trellises": len(self.estimator.codebooks_),
        }


class ModelStore:
    """Model files by name, and what was loaded from them.

    Parameters
    ----------
    paths : dict of str to Path
    verify : bool
        Verify checksums.
    metrics : Metrics
    """

    def __init__(self, paths: Mapping[str, Path], verify: bool, metrics: Metrics) -> None:
        self._paths, self._verify, self._metrics = dict(paths), verify, metrics
        self._models: dict[str, ServedModel] = {}
        self._seen: dict[str, tuple[int, ...]] = {}
        self._missing: set[str] = set()  # whose file was not there when it was looked for
        self._lock = threading.Lock()

    def load(self) -> None:
        """Load all models; the first that cannot be loaded is an error."""
        for name, path in self._paths.items():
            self._seen[name] = _identity(path)
            self._replace(name, path)

    def reload(self) -> None:
        """Load the models whose files were replaced; one that cannot be loaded stays as it was."""
        with self._lock:
            for name, path in self._paths.items():
                try:
                    found = _identity(path)
                    self._missing.discard(name)
                    if found == self._seen[name]:
                        continue
                    self._seen[name] = found  # a file that is replaced again is loaded again
                    self._replace(name, path)
                except FileNotFoundError as error:
                    if name not in self._missing:
                        self._missing.add(name)
                        self._failed(name, error)
                except (OSError, ModelFileError, MemoryError) as error:
                    self._failed(name, error)

    def get(self, name: str | None) -> ServedModel:
        """Return a model by its name; None for the only one."""
        if name is None:
            if len(self._models) == 1:
                return next(iter(self._models.values()))
            raise RequestError(422, f"model must be one of {', '.join(self._models)}")
        model = self._models.get(name)
        if model is None:
            names = ", ".join(self._models)
            raise RequestError(404, f"there is no model {quoted(name)}, only {names[:200]}")
        return model

    def all(self) -> list[ServedModel]:
        """Return all models."""
        return list(self._models.values())

    def _failed(self, name: str, error: Exception) -> None:
        self._metrics.loads.labels(name, "error").inc()
        log(logging.ERROR, "model not reloaded", model=name, error=str(error))

    def _replace(self, name: str, path: Path) -> None:
        version = str(path.stat().st_mtime_ns // 10**6)
        estimator = load(path, verify=self._verify)
        model = ServedModel(name, version, estimator, _taken_feature_names(estimator))
        model.warm_up()
        self._models[name] = model
        self._metrics.loads.labels(name, "loaded").inc()
        self._metrics.version.labels(name).set(int(version) / 1000)
        log(logging.INFO, "model loaded", model=name, version=version)


def _identity(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is replaced by a rename."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _taken_feature_names(estimator: LTLSClassifier) -> list[str] | None:
    """Return the names of an estimator's features, and let it forget them.

    scikit-learn would warn of rows without names.
    """
    names = estimator.__dict__.pop("feature_names_in_", None)
    if names is None and not isinstance(estimator, TextClassifier):
        names = (estimator.model_.columns or {}).get("features")
    return list(map(str, names)) if names is not None and len(names) else None
