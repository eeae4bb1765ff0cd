"""Batch scoring: a callable class for `ray.data.Dataset.map_batches`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.arrays import as_integer
from ..estimators.load import load
from .cluster import check_version
from .columns import InputColumns, as_table, list_column

RESULTS = ("labels", "scores", "probabilities")


class BatchPredictor:
    """Adds the best labels to batches of rows, for `ray.data.Dataset.map_batches`.

    The model file is memory-mapped once per actor, and the actors of a node share its memory. It
    must be readable under the same path on every node.

    Parameters
    ----------
    path : path-like
        A model file, see `LTLSClassifier.save`.
    features : str or sequence of str, optional
        The columns of the features: a column of vectors, or of structs with the fields ``indices``
        and ``values``; or two columns of lists, the indices and the values of sparse rows; or
        numeric columns, one per feature. By default the columns that ``ltls train`` has recorded.
    text : str, optional
        The column of texts, for a `TextClassifier`.
    k : int, default=5
        Labels per row.
    proba : bool, default=False
        Add a column of probabilities.
    threshold : bool, default=False
        Multi-label models: keep only those of the k labels that reach the model's threshold.
    keep : sequence of str, optional
        The columns of the input to keep; by default all but features and texts.
    n_jobs : int, optional
        Threads of an actor.
    version : str, optional
        Raise an error in an actor whose ltls has another version: pass ``ltls.__version__``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from ltls import LTLSClassifier
    >>> from ltls.ray import BatchPredictor
    >>> X = np.eye(4, dtype=np.float32)
    >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.ltls")
    ...     model.save(path)
    ...     predictor = BatchPredictor(path, features="vector", k=1)
    ...     result = predictor(pa.table({"id": [7], "vector": [[0.0, 1.0, 0.0, 0.0]]}))
    ...     result.select(["id", "labels"]).to_pylist()
    [{'id': 7, 'labels': ['bee']}]

    In Ray, ``dataset.map_batches(BatchPredictor, fn_constructor_args=[path], concurrency=4,
    batch_format="pyarrow")`` starts four actors.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        features: str | Sequence[str] | None = None,
        text: str | None = None,
        k: int = 5,
        proba: bool = False,
        threshold: bool = False,
        keep: Sequence[str] | None = None,
        n_jobs: int | None = None,
        version: str | None = None,
    ) -> None:
        if version is not None:
            check_version(version)
        self._k = as_integer("k", k, at_least=1)
        self._keep = None if keep is None else list(keep)
        self._estimator = estimator = load(path)
        estimator.n_jobs = n_jobs
        if proba and not hasattr(estimator, "predict_proba"):
            loss = estimator.model_.loss.name
            raise ValueError(f"{path}: models with loss={loss!r} have no probabilities (proba)")
        if threshold and not estimator.multilabel_:
            raise ValueError(f"{path}: threshold is for multi-label models; use k=1")
        self._proba, self._threshold = proba, threshold
        self.columns = self._columns(path, features, text)

    def __call__(self, batch: Any) -> Any:
        """Return an Arrow table with columns of labels, scores and probabilities, lists of k.

        Parameters
        ----------
        batch : Arrow table, pandas DataFrame, or dict of NumPy arrays
        """
        table = as_table(batch)
        keep = self._keep
        if keep is None:
            keep = [name for name in table.column_names if name not in self.columns.names]
        clash = next((name for name in keep if name in RESULTS), None)
        if clash is not None:
            raise ValueError(f"the column {clash!r} would be overwritten: rename it, or drop it")
        results = self._results(table)
        return pa.table({**{name: table.column(name) for name in keep}, **results})

    def _results(self, table: Any) -> dict[str, Any]:
        estimator = self._estimator
        model = estimator.model_
        k = min(self._k, len(model.labels))
        if len(table):
            rows = self.columns.read(table, model.n_features)
            X, model = estimator._checked(rows)
            ids, scores = model.topk(X, k, estimator.n_jobs)
        else:
            X, ids, scores = None, np.empty((0, k), np.int64), np.empty((0, k), np.float32)
        kept = np.ones(ids.shape, bool)
        if self._threshold:
            kept = scores >= model.threshold
        counts = kept.sum(axis=1)
        labels = model.labels.array[ids[kept]]
        if labels.dtype == object:
            labels = np.array([str(label) for label in labels], str)
        found = {"labels": list_column(labels, counts), "scores": list_column(scores[kept], counts)}
        if self._proba:
            shares = model.proba_of(X, ids, estimator.n_jobs) if len(table) else scores
            found["probabilities"] = list_column(shares[kept], counts)
        return found

    def _columns(
        self,
        path: str | os.PathLike[str],
        features: str | Sequence[str] | None,
        text: str | None,
    ) -> InputColumns:
        """Return the columns to read: as given, else as in training."""
        recorded = self._estimator.model_.columns or {}
        takes_text = hasattr(self._estimator, "vectorizer_")
        if not features and not text:
            features, text = recorded.get("features") or None, recorded.get("text")
        if bool(text) != takes_text or not (features or text):
            wants = ("features", "text")[takes_text]
            raise ValueError(f"{path} takes {wants}: name the columns with {wants}")
        return InputColumns.of(features, text)
