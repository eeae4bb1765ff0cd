"""``ltls convert``: a data file in another format, a model with another weight type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.streams import display_name
from ..estimators.load import load
from ..io import formats
from ..io.errors import DataError
from ..io.formats import FORMATS, Format
from ..io.readers import write
from ..io.tables import LabelledText, Rows, TableFormat, table_format
from ..storage.model_file import describe
from .messages import note, set_verbosity
from .options import (
    DTYPES,
    Encoding,
    FormatOption,
    LabelColumn,
    NoProgress,
    Separator,
    SkipBadRows,
    TextColumn,
    Verbose,
    ZeroBased,
    choice,
)
from .output import binary_output, check_output, errors_named
from .rows import read_sparse, table_batches
from .source import Source, is_model_file
from .terminal import progress


def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A data file or a model file.")],
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="File to write; - is standard output.")
    ],
    to: Annotated[
        str | None, choice(FORMATS, "by the suffix of OUTPUT", "Format to write.", "--to")
    ] = None,
    dtype: Annotated[
        str | None, choice(DTYPES, "unchanged", "Weight type of a model.", "--dtype")
    ] = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    separator: Separator = None,
    file_format: FormatOption = None,
    encoding: Encoding = None,
    zero_based: ZeroBased = None,
    skip_bad_rows: SkipBadRows = False,
    verbose: Verbose = False,
    quiet: NoProgress = False,
) -> None:
    """Convert a data file or a model.

    A data file is written in another format, a model with another weight type. Sparse features
    convert between svmlight and xmc; labelled texts between csv, tsv, jsonl, fasttext and parquet.
    Several labels of a row are a list in jsonl and parquet, and are separated by --separator in
    csv and tsv.
    """
    set_verbosity(verbose, quiet)
    check_output(output, file, special=True)
    if str(file) != "-" and is_model_file(file):
        _convert_model(file, output, dtype)
        return
    if dtype is not None:
        raise ValueError(f"--dtype is for model files, {display_name(file)} is a data file")
    target = _target(output, to)
    source = Source(
        paths=[file],
        format_name=file_format,
        encoding=encoding,
        text=text,
        label=label,
        separator=separator,
        zero_based=zero_based,
        skip_bad_rows=skip_bad_rows,
    )
    if source.sparse != (target.kind == "sparse"):
        raise ValueError(
            f"{source.name} is {source.format.name}, which cannot become {target.name}: sparse "
            f"features convert between {formats.names('sparse')}, texts between "
            f"{formats.names('table', 'text')}"
        )
    if source.sparse:
        _convert_sparse(source, output, target)
    else:
        _convert_texts(source, output, table_format(target.name))


def _target(output: Path, to: str | None) -> Format:
    if to is not None:
        return formats.get(to)
    try:
        return formats.by_suffix(output)
    except DataError as error:
        raise ValueError(f"{error}; or name the format with --to") from None


def _convert_model(path: Path, output: Path, dtype: str | None) -> None:
    facts = describe(path)
    estimator = load(path, verify=False)
    with errors_named(output):
        estimator.save(output, dtype or facts["dtype"])
    note(f"{facts['bytes']:,} bytes became {output.stat().st_size:,}")


def _convert_sparse(source: Source, output: Path, target: Format) -> None:
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
    written = replace(columns, separator=source.separator)
    with progress("converting") as advance, binary_output(output) as stream:
        rows = _rows(table_batches(source, columns, columns.label is not None), advance)
        target.write(stream, rows, written)


def _rows(batches: Iterator[Rows], advance: Callable[[int], None]) -> Iterable[LabelledText]:
    for rows in batches:
        labels: list[Any] = rows.labels or [None] * len(rows)
        yield from zip(rows.texts, labels, strict=True)
        advance(len(rows))
