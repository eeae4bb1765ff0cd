"""Batch scoring: a callable class for `ray.data.Dataset.map_batches`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ..estimators.load import load
from ..estimators.table_predictor import TablePredictor, fitted_columns
from ..io.arrow import as_table
from ..io.tables import check_columns
from ..parts.base import register_part
from .cluster import check_version

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
        The column of texts. A model of tables knows its columns.
    k : int, default=5
        Labels per row.
    proba : bool, default=False
        Add a column of probabilities.
    threshold : bool, default=False
        Multi-label models: keep only those of the k labels that reach the model's threshold.
    among : list or array of labels, optional
        Allow only these labels; see `LTLSClassifier.predict_topk`.
    keep : sequence of str, optional
        The columns of the input to keep; by default all but features and texts.
    n_jobs : int, optional
        Threads of an actor.
    parts : sequence of classes, optional
        Parts of the model that are not of ltls, to register them in every actor. Their modules must
        be importable on every node.
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
    >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.ltls")
    ...     model.save(path)
    ...     predictor = BatchPredictor(path, features="vector", k=1)
    ...     result = predictor(pa.table({"id": [7], "vector": [[0.0, 1.0, 0.0, 0.0]]}))
    ...     result.select(["id", "labels"]).to_pylist()
    [{'id': 7, 'labels': ['bee']}]

    In Ray, ``dataset.map_batches(BatchPredictor, fn_constructor_args=[path],
    compute=ray.data.ActorPoolStrategy(size=4), batch_format="pyarrow")`` starts four actors.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        features: str | Sequence[str] | None = None,
        text: str | None = None,
        k: int = 5,
        proba: bool = False,
        threshold: bool = False,
        among: Any = None,
        keep: Sequence[str] | None = None,
        n_jobs: int | None = None,
        parts: Sequence[type] = (),
        version: str | None = None,
    ) -> None:
        if version is not None:
            check_version(version)
        for part in parts:
            register_part(part)
        self._keep = None if keep is None else list(keep)
        estimator = load(path)
        estimator.n_jobs = n_jobs
        self.columns = fitted_columns(estimator, features, text)
        self._predict = TablePredictor(estimator, self.columns, k, proba, threshold, among)

    def __call__(self, batch: Any) -> Any:
        """Return an Arrow table with columns of labels, scores and probabilities, lists of k.

        Parameters
        ----------
        batch : data frame, Arrow table or dict of NumPy arrays
        """
        table = as_table(batch)
        keep = self._keep
        if keep is None:
            keep = [name for name in table.column_names if name not in self.columns.names]
        check_columns(keep, table.column_names)
        clash = next((name for name in keep if name in RESULTS), None)
        if clash is not None:
            raise ValueError(f"the column {clash!r} would be overwritten: rename it, or drop it")
        kept = {name: table.column(name) for name in keep}
        return pa.table({**kept, **self._predict(table)})
