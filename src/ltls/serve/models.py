"""The models of a server: loaded from files, and reloaded when a file is replaced."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.arrays import AnyArray, Floats
from ..core.caching import cached_property
from ..estimators.classifier import LTLSClassifier
from ..estimators.explain import Part
from ..estimators.load import load
from .messages import RequestError, encoded, quoted
from .monitoring import Metrics, log
from .work import THREADS


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model; requests in progress keep it when its file is replaced.

    Its version is the modification time of the file, in milliseconds.
    """

    name: str
    version: str
    estimator: LTLSClassifier

    @cached_property
    def description(self) -> dict[str, Any]:
        """What a client needs to know to use the model."""
        model = self.estimator.model_
        return {
            "name": self.name,
            "version": self.version,
            "labels": len(model.labels),
            "features": model.columns.n_features,
            "feature_names": None,
            "columns": None,
            **model.front_end.describe(),
            "several_labels": model.multilabel,
            "probabilities": model.probabilistic,
            "trellises": len(self.estimator.codebooks_),
        }

    @cached_property
    def json(self) -> bytes:
        """The description, encoded."""
        return encoded(self.description)

    @cached_property
    def n_parts(self) -> int:
        """The number of parts in an explanation, including nested parts and the total."""

        def count(parts: list[Part]) -> int:
            return sum(1 + count(each.parts) for each in parts)

        ((explained,),) = self.estimator.explain(
            self.read([self.estimator.model_.front_end.empty()]), k=1
        )
        return 1 + count(explained.parts)

    def read(self, items: list[Any]) -> Any:
        """Return rows from JSON in the form that the estimator takes."""
        model = self.estimator.model_
        return model.front_end.read(items, model.columns.n_features)

    def best(
        self, items: list[Any], k: int, proba: bool = False, first: int = 0
    ) -> tuple[AnyArray, Floats]:
        """Return the k best labels of rows and their scores or probabilities, best first.

        `first` is the position of the rows in the request, for errors.
        """
        try:
            return self.estimator.predict_topk(self.read(items), k, proba)
        except (ValueError, OverflowError) as error:
            place = f"counting rows from row {first}: " if first else ""
            raise RequestError(422, f"model {quoted(self.name)}: {place}{error}") from None

    def check_proba(self) -> None:
        """Raise an error if there are no probabilities."""
        if not self.description["probabilities"]:
            raise RequestError(
                422, f"model {quoted(self.name)} has no probabilities: request scores"
            )

    def warm_up(self) -> None:
        """Do the work that the first request would otherwise wait for.

        Raises an error if the model cannot answer because its weights are too large.
        """
        model = self.estimator.model_
        self.best([model.front_end.empty()], 5)
        model.topk(model.columns.sample_row(), 5, None)
        assert self.json


class ModelStore:
    """Model files by name, and the models loaded from them."""

    def __init__(
        self, paths: Mapping[str, str | os.PathLike[str]], verify: bool, metrics: Metrics
    ) -> None:
        self._paths = {name: Path(path) for name, path in paths.items()}
        self._verify, self._metrics = verify, metrics
        self._models: dict[str, ServedModel] = {}
        self._seen: dict[str, tuple[int, ...] | None] = {}  # None for a missing file
        self._stop = threading.Event()

    def load(self) -> None:
        """Load all models; raise an error for the first that cannot be loaded."""
        for name, path in self._paths.items():
            self._seen[name] = _identity(path)
            self._replace(name, path)

    def watch(self, seconds: float) -> None:
        """Look for replaced files at this interval, in a thread, until `close`."""

        def look() -> None:
            while not self._stop.wait(seconds):
                self.reload()

        threading.Thread(target=look, name=f"{THREADS}-reload", daemon=True).start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()

    def reload(self) -> None:
        """Load the models whose files were replaced; keep the old model if that fails."""
        for name, path in self._paths.items():
            self._reload(name, path)

    def _reload(self, name: str, path: Path) -> None:
        try:
            found = _identity(path)
            if found != self._seen[name]:
                self._seen[name] = found  # each file is tried once
                self._replace(name, path)
        except Exception as error:  # whatever the error, continue with the next file
            self._metrics.loads.labels(name, "error").inc()
            log(logging.ERROR, "model not reloaded", model=name, error=str(error)[:500])

    def get(self, name: str | None, version: str | None = None) -> ServedModel:
        """Return a model by name and version; None means the only one."""
        names = ", ".join(self._models)[:200]
        if name is None and len(self._models) > 1:
            raise RequestError(422, f"model must be one of {names}")
        model = self._models.get(name) if name is not None else self.all()[0]
        if model is None:
            raise RequestError(404, f"there is no model {quoted(name)}, only {names}")
        if version not in (None, model.version):
            raise RequestError(
                404, f"model {quoted(name)} has version {model.version}, not {quoted(version)}"
            )
        return model

    def all(self) -> list[ServedModel]:
        """Return all models."""
        return list(self._models.values())

    def _replace(self, name: str, path: Path) -> None:
        version = str(path.stat().st_mtime_ns // 10**6)
        estimator = load(path, verify=self._verify)
        # The front end knows the names; scikit-learn would warn about rows without names.
        estimator.__dict__.pop("feature_names_in_", None)
        estimator.n_jobs = None  # requests are answered in threads
        model = ServedModel(name, version, estimator)
        model.warm_up()
        self._models[name] = model
        self._metrics.loads.labels(name, "loaded").inc()
        self._metrics.version.labels(name).set(int(version) / 1000)
        log(logging.INFO, "model loaded", model=name, version=version)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return the identity of a file, which a rename changes; None if there is no file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
