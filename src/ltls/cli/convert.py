"""``ltls convert``: a data file in another format, a model in a smaller file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.streams import display_name
from ..io import formats
from ..io.errors import DataError
from ..io.files import is_model_file
from ..io.formats import Format
from ..io.tables import LabelledText, Rows, TableFormat, table_format
from . import options, settings
from .output import (
    binary_output,
    check_output,
    console,
    errors_named,
    note,
    progress,
    set_verbosity,
)
from .source import Source


def convert(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A data file or a model file.")],
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="File to write; - is standard output.")
    ],
    to: Annotated[
        str | None, options.file_format("by the suffix of OUTPUT", "Format to write.", "--to")
    ] = None,
    size_budget: Annotated[
        str | None,
        options.option(
            "none",
            "Maximum size of the model file, such as 5MB; small weights are dropped until it fits.",
            metavar="VALUE",
        ),
    ] = None,
    text: options.TextColumn = None,
    label: options.LabelColumn = None,
    separator: options.Separator = None,
    file_format: options.FileFormat = None,
    encoding: options.Encoding = None,
    zero_based: options.ZeroBased = None,
    skip_bad_rows: options.SkipBadRows = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Convert a data file or a model.

    Writes a data file in another format, or a model to a smaller file. Sparse features convert
    between svmlight and xmc, labelled texts between csv, tsv, jsonl, fasttext and parquet. The
    labels of a row are a list in jsonl and parquet, and are joined by --separator in csv and tsv.
    """
    set_verbosity(verbose, quiet)
    check_output(output, file, special=True)
    if str(file) != "-" and is_model_file(file):
        if to is not None:
            raise ValueError(f"--to is for data files, but {file} is a model file")
        _convert_model(file, output, size_budget)
        return
    if size_budget is not None:
        raise ValueError(
            f"--size-budget is for model files, but {display_name(file)} is a data file"
        )
    target = _target(output, to)
    source = Source.of(context.params, [file])
    source.check_columns()
    dense = "dense" in (source.format.kind, target.kind)
    if dense or source.sparse != (target.kind == "sparse"):
        raise ValueError(
            f"{source.name} is {source.format.name}, which cannot be converted to {target.name}: "
            f"sparse features convert between {formats.names('sparse')}; texts between "
            f"{formats.names('table', 'text')}"
        )
    if source.sparse:
        _convert_sparse(source, output, target)
    else:
        _convert_texts(source, output, table_format(target.name))
    source.report_bad_rows()


def _target(output: Path, to: str | None) -> Format:
    if to is not None:
        return formats.get(to)
    try:
        return formats.by_suffix(output)
    except DataError as error:
        raise ValueError(f"{error}; or name the format with --to") from None


def _convert_model(path: Path, output: Path, size_budget: str | None) -> None:
    given = [] if size_budget is None else [("--size-budget", "size_budget", size_budget)]
    values = settings.parse(given)
    from ..estimators.load import load

    estimator = load(path, verify=True)
    settings.apply(estimator, values)
    with errors_named(output):
        estimator.save(Path("/dev/stdout") if str(output) == "-" else output)
    if output.is_file():
        note(f"{path.stat().st_size:,} bytes became {output.stat().st_size:,}")


def _convert_sparse(source: Source, output: Path, target: Format) -> None:
    from ..io.readers import write  # slow; not needed to reject wrong options
    from .rows import read_sparse

    with console().status("reading"):
        data = read_sparse(source)
    try:
        labels = data.indicator()
    except ValueError as error:
        raise ValueError(f"{source.name}: {error}") from None
    with errors_named(output):
        write(output, data.X, labels, target.name)


def _convert_texts(source: Source, output: Path, target: TableFormat) -> None:
    if not target.has_labels:
        raise ValueError(f"{target.name} files have no labels; use --to csv or jsonl")
    columns = source.columns()
    if not columns.text:
        raise ValueError(f"name the text column of {source.name} with --text")
    batches = source.table_batches(columns, columns.label is not None)
    with binary_output(output) as stream:
        rows = (row for batch in progress("converting", batches) for row in _rows(batch))
        target.write(stream, rows, replace(columns, separator=source.separator))


def _rows(batch: Rows) -> Iterable[LabelledText]:
    labels: list[Any] = batch.labels or [None] * len(batch)
    return zip(batch.inputs, labels, strict=True)
