"""Commands on a Ray cluster: Parquet files to train on, and to score."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .labels import labels_in
from .output import note
from .source import Source

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier
    from ..training.checkpoint import Checkpoint


def fit_on_cluster(
    estimator: LTLSClassifier,
    source: Source,
    address: str,
    n_workers: int,
    checkpoint: Checkpoint | None,
) -> None:
    """Train on Parquet files that every node can read."""
    from ..io.arrow import with_text_labels
    from ..ray.cluster import connect, import_ray
    from ..ray.fitting import fit

    columns = source.columns()
    label = columns.label or ""
    with connect(address):
        rows = import_ray().data.read_parquet([str(path.resolve()) for path in source.paths])
        if label in rows.schema().names:
            rows = rows.map_batches(with_text_labels, fn_args=(label,), batch_format="pyarrow")
        inputs: dict[str, Any] = {"features": columns.features, "text": columns.text}
        fit(estimator, rows, label=label, **inputs, n_workers=n_workers, checkpoint=checkpoint)


def check_for_cluster(source: Source, stream: bool | None) -> None:
    """Raise an error for files and options that only one process can read."""
    _check_parquet(source)
    check_not_given(
        {
            "--separator": source.separator,
            "--skip-bad-rows": source.skip_bad_rows,
            "--stream": stream,
        }
    )


def check_not_given(options: dict[str, Any]) -> None:
    """Raise an error for options that do not go with --ray."""
    for name, given in options.items():
        if given:
            raise ValueError(f"{name} cannot be used with --ray")


def _check_parquet(source: Source) -> None:
    if source.format.name != "parquet":
        raise ValueError(
            f"--ray reads Parquet files, but {source.name} is {source.format.name}: convert it, "
            "or leave out --ray"
        )


def score_on_cluster(
    address: str,
    model: Path,
    files: list[Path],
    output: Path | None,
    features: str | None,
    among: Path | None,
    options: dict[str, Any],
) -> None:
    """Score Parquet files."""
    from ..estimators.load import load
    from ..ray.cluster import connect
    from ..ray.scoring import score_parquet

    if output is None:
        raise ValueError("--ray needs a folder to write to: give --output")
    for file in [model, *files]:
        if not file.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    for file in filter(Path.is_file, files):
        _check_parquet(Source(paths=[file]))
    labels = load(model).model_.labels  # report a bad model before contacting the cluster
    allowed = None if among is None else labels_in(among, labels)
    names = features.split(",") if features else None
    with connect(address):
        n_rows = score_parquet(model, files, output, features=names, among=allowed, **options)
    note(f"{n_rows:,} rows written to {output}")
