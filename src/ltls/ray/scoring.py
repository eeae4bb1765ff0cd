"""Batch scoring: a callable class for Ray Data, and Parquet files, each row exactly once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core.version import __version__
from ..estimators.load import load
from ..estimators.table_predictor import TablePredictor, fitted_columns
from ..io.arrow import as_table
from ..io.tables import check_columns
from ..parts.base import PARTS, register_part
from .cluster import causes_raised, check_nodes, check_version, import_ray, set_options

_RESULTS = ("labels", "scores", "probabilities")
_BATCH_ROWS = 16_384


class BatchPredictor:
    """Adds the best labels to batches of rows, for `ray.data.Dataset.map_batches`.

    Every actor memory-maps the model file, so that the actors of a node share its memory. The file
    must be readable under the same path on every node.

    Parameters
    ----------
    path : path-like
        A model file, see `LTLSClassifier.save`.
    features : str or sequence of str, optional
        The columns of features: a column of vectors, or of structs with the fields ``indices`` and
        ``values``; or two columns with the lists of indices and of values of sparse rows; or
        numeric columns, one per feature. By default, the columns recorded by ``ltls train``.
    text : str, optional
        The column of texts. A table classifier knows its columns.
    k : int, default=5
        Labels per row.
    proba : bool, default=False
        Add a column of probabilities.
    threshold : bool, default=False
        Multi-label models: keep only those of the k labels that reach the model's threshold.
    among : list or array of labels, optional
        Allow only these labels; see `LTLSClassifier.predict_topk`.
    keep : sequence of str, optional
        The input columns to keep; by default, all but features and texts.
    n_jobs : int, optional
        Number of threads of an actor.
    parts : sequence of classes, optional
        Parts of the model from other packages, to register in every actor. Their modules must be
        importable on every node.
    version : str, optional
        If given, such as ``ltls.__version__``, actors with another version of ltls raise an error.

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
        """Return an Arrow table with columns of lists: labels, scores and probabilities.

        Parameters
        ----------
        batch : data frame, Arrow table or dict of NumPy arrays
        """
        table = as_table(batch)
        keep = self._keep
        if keep is None:
            keep = [name for name in table.column_names if name not in self.columns.inputs]
        check_columns(keep, table.column_names)
        clash = next((name for name in keep if name in _RESULTS), None)
        if clash is not None:
            raise ValueError(f"the input column {clash!r} would be overwritten: rename or drop it")
        kept = {name: table.column(name) for name in keep}
        return pa.table({**kept, **self._predict(table)})


def score_parquet(
    path: str | os.PathLike[str],
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    concurrency: int | tuple[int, int] | None = None,
    **options: Any,
) -> int:
    """Score the rows of Parquet files, and write them with their labels to a folder.

    Every row is written exactly once, even if workers die: Ray recomputes lost batches, and a batch
    that is written again replaces its file. Nodes that join later are used.

    Parameters
    ----------
    path : path-like
        A model file that every node can read.
    files : path-like, URI or sequence of them
        Parquet files or folders, as in `ray.data.read_parquet`.
    output : path-like or URI
        The folder to write to. A local folder must be empty or not exist; a URI is not checked.
    concurrency : int or (int, int), optional
        The number of actors, or their minimum and maximum. At first, at most n_cpus − 1 actors are
        started. By default, at least one, and as many as the cluster has room for.
    **options
        Parameters of `BatchPredictor`.

    Returns
    -------
    n_rows : int
        Number of rows written.

    Examples
    --------
    ``score_parquet("model.ltls", "in/", "out/", text="body", k=3)``
    """
    ray = import_ray()
    if not ray.is_initialized():
        ray.init()
    check_nodes()
    _check_empty(output)
    predictor = BatchPredictor(path, **options)  # report errors before any work
    with causes_raised():
        dataset = ray.data.read_parquet([os.fspath(file) for file in _listed(files)])
        set_options(dataset)
        check_columns([*predictor.columns.inputs, *(options.get("keep") or ())], _names(dataset))
        # Actors must leave a CPU for reading and writing, or there is a deadlock.
        n_cpus = int(ray.cluster_resources().get("CPU", 1))
        fewest, most = concurrency if isinstance(concurrency, tuple) else (concurrency or 1,) * 2
        size = {"min_size": max(1, min(fewest, n_cpus - 1)), "max_size": concurrency and most}
        scored = dataset.map_batches(
            BatchPredictor,
            batch_size=_BATCH_ROWS,
            batch_format="pyarrow",
            zero_copy_batch=True,
            fn_constructor_args=[os.fspath(path)],
            fn_constructor_kwargs={"parts": _other_parts(), **options, "version": __version__},
            compute=ray.data.ActorPoolStrategy(**size),
            num_cpus=1 if n_cpus > 1 else 0,
        )
        scored.write_parquet(os.fspath(output))
        return _count(output)


def _other_parts() -> list[type]:
    """Return the parts registered by other packages."""
    return [part for part in PARTS.values() if not part.__module__.startswith("ltls.")]


def _names(dataset: Any) -> list[str]:
    schema = dataset.schema()
    return [] if schema is None else list(schema.names)


def _listed(files: Any) -> list[Any]:
    return [files] if isinstance(files, (str, os.PathLike)) else list(files)


def _check_empty(output: str | os.PathLike[str]) -> None:
    if "://" in os.fspath(output):
        return
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{output}: not a folder; choose another output")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{output}: the folder is not empty; remove its files, or choose another")


def _count(output: str | os.PathLike[str]) -> int:
    """Return the number of rows written, from the footers of the files."""
    return int(import_ray().data.read_parquet(os.fspath(output)).count())
