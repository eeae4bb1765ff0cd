"""Scoring of Parquet files: rows in, rows with labels out, each exactly once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.version import __version__
from ..io.tables import check_columns
from ..parts.base import PARTS
from .batch_predictor import BatchPredictor
from .cluster import causes_raised, check_nodes, import_ray, set_options

_BATCH_ROWS = 16_384


def score_parquet(
    path: str | os.PathLike[str],
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    concurrency: int | tuple[int, int] | None = None,
    **options: Any,
) -> int:
    """Score the rows of Parquet files, and write them with their labels to a folder.

    Every row is written exactly once, also if workers die on the way: Ray computes a lost batch
    again, and a batch that is written again replaces its file. Nodes that join later are used.

    Parameters
    ----------
    path : path-like
        A model file that every node can read.
    files : path-like, URI or sequence of them
        Parquet files or folders, as `ray.data.read_parquet` takes them.
    output : path-like or URI
        The folder to write to. A local one must be empty or not exist yet; a URI is not checked.
    concurrency : int or (int, int), optional
        The number of actors, or the fewest and the most. They start with at most one fewer than
        the cluster has CPUs. By default one, and as many more as there is room for.
    **options
        Parameters of `BatchPredictor`.

    Returns
    -------
    n_rows : int
        How many rows were written.

    Examples
    --------
    ``score_parquet("model.ltls", "in/", "out/", text="body", k=3)``
    """
    ray = import_ray()
    if not ray.is_initialized():
        ray.init()
    check_nodes()
    _check_empty(output)
    predictor = BatchPredictor(path, **options)  # its errors come before any work
    with causes_raised():
        dataset = ray.data.read_parquet([os.fspath(file) for file in _listed(files)])
        set_options(dataset)
        check_columns([*predictor.columns.names, *(options.get("keep") or ())], _names(dataset))
        # Actors must leave a CPU to those who read and write, or all wait for each other.
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
    """Return the parts that were registered besides those of ltls."""
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
    """Return the number of rows that were written, from the footers of the files."""
    return int(import_ray().data.read_parquet(os.fspath(output)).count())
