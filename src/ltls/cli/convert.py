"""``ltls convert``: the same rows in another format, the same model with other weights."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from ..core.streams import called, without_compression
from .terminal import counting, listen, note
from .data import Source, read_sparse, table_batches
from .options import (
    SPARSE,
    Dtype,
    Format,
    FormatOption,
    LabelColumn,
    NoProgress,
    Separator,
    SkipBadRows,
    TextColumn,
    Verbose,
    ZeroBased,
    option,
    plain,
)
from .writing import check_output, lines_to, naming

_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl",
             ".parquet": "parquet", ".svm": "svmlight", ".svmlight": "svmlight", ".xmc": "xmc",
             ".ft": "fasttext", ".fasttext": "fasttext"}  # fmt: skip


def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A data file or a model file.")],
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="The file to write; - for data.")
    ],
    to: Annotated[Format | None, option("by the output's name", "The format to write.")] = None,
    dtype: Annotated[Dtype | None, option("as they are", "Of a model's weights.")] = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    separator: Separator = None,
    file_format: FormatOption = None,
    zero_based: ZeroBased = None,
    skip_bad_rows: SkipBadRows = False,
    verbose: Verbose = False,
    quiet: NoProgress = False,
) -> None:
    """Write the rows of a file in another format, or a model with weights of another type.

    Sparse features go between svmlight and xmc; texts with labels go between csv, tsv, jsonl,
    fasttext and parquet. Several labels of a row are a list in jsonl and parquet, and have
    --separator between them in csv and tsv.
    """
    listen(verbose, quiet)
    check_output(output, file)
    if _is_model(file):
        _convert_model(file, output, plain(dtype))
        return
    if dtype is not None:
        raise ValueError(f"--dtype is for model files, {called(file)} holds rows")
    kind = plain(to) or _SUFFIXES.get(os.path.splitext(without_compression(output))[1])
    if kind is None:
        raise ValueError(f"{output}: its name does not tell the format to write; use --to")
    source = Source(file, plain(file_format), text, label, None, separator, zero_based,
                    skip_bad_rows)  # fmt: skip
    if source.sparse != (kind in SPARSE):
        raise ValueError(
            f"{called(file)} is {source.format}, which cannot become {kind}: features go between "
            "svmlight and xmc, texts between csv, tsv, jsonl, fasttext and parquet"
        )
    if source.sparse:
        _convert_sparse(source, output, kind)
    else:
        _convert_texts(source, output, kind)


def _is_model(path: Path) -> bool:
    """Tell a model file: a length of 8 bytes, then JSON."""
    if str(path) == "-":
        return False
    with path.open("rb") as stream:
        return stream.read(10)[8:] == b'{"'


def _convert_model(path: Path, output: Path, dtype: str | None) -> None:
    from .. import load
    from ..storage.model_file import describe

    facts = describe(path)
    model = load(path, verify=False)
    with naming(output):
        model.save(output, dtype or facts["dtype"])
    note(f"{facts['bytes']:,} bytes became {output.stat().st_size:,}")


def _convert_sparse(source: Source, output: Path, kind: str) -> None:
    import numpy as np
    from scipy.sparse import csr_matrix

    from ..io.readers import write

    if str(output) == "-":
        raise ValueError("rows of features cannot be written to standard output; name a file")
    data = read_sparse(source)
    if data.classes is None or (data.single_label and (data.y >= 0).all()):
        Y: Any = data.Y if data.classes is None else data.y
    elif data.classes.min(initial=0) < 0:
        raise ValueError(f"{called(source.path)}: labels below 0 cannot be converted")
    else:  # columns are the labels
        indices, shape = (
            data.classes[data.Y.indices],
            (data.X.shape[0], int(data.classes.max()) + 1),
        )
        Y = csr_matrix((np.ones(len(indices)), indices, data.Y.indptr), shape=shape)
    with naming(output):
        write(output, data.X, Y, kind)  # type: ignore[arg-type]


def _convert_texts(source: Source, output: Path, kind: str) -> None:
    if kind == "text":
        raise ValueError("plain texts hold no labels; use --to csv or jsonl")
    columns = source.columns()
    if not columns.text:
        raise ValueError("name the column of texts with --text")
    names = (columns.text, columns.label)
    with counting("converting") as count:
        rows = _counted(table_batches(source, columns, columns.label is not None), count)
        if kind == "parquet":
            with naming(output):
                _write_parquet(output, rows, names)
        else:
            with lines_to(output) as stream:
                _WRITERS[kind](stream, rows, names, source.separator)


def _counted(batches: Iterator[Any], count: Callable[[int], None]) -> Iterator[tuple[str, Any]]:
    for rows in batches:
        yield from zip(rows.texts, rows.labels or [None] * len(rows.texts), strict=True)
        count(len(rows.texts))


def _write_delimited(
    stream: IO[Any], rows: Iterator[Any], names: Any, separator: str | None, delimiter: str
) -> None:
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow([name for name in names if name])
    for number, (text, labels) in enumerate(rows, 1):
        if labels is None:
            writer.writerow([text])
            continue
        if separator is None and len(labels) != 1:
            raise ValueError(
                f"row {number} has {len(labels)} labels; say what parts them by --separator"
            )
        if separator and any(separator in label for label in labels):
            raise ValueError(
                f"row {number} has the --separator {separator!r} in a label; use another"
            )
        writer.writerow([text, (separator or "").join(labels)])


def _write_csv(stream: IO[Any], rows: Iterator[Any], names: Any, separator: str | None) -> None:
    _write_delimited(stream, rows, names, separator, ",")


def _write_tsv(stream: IO[Any], rows: Iterator[Any], names: Any, separator: str | None) -> None:
    _write_delimited(stream, rows, names, separator, "\t")


def _write_json_lines(
    stream: IO[Any], rows: Iterator[Any], names: Any, separator: str | None
) -> None:
    for text, labels in rows:
        record = {names[0]: text}
        if labels is not None:
            record[names[1]] = labels[0] if len(labels) == 1 and not separator else labels
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def _write_fasttext(
    stream: IO[Any], rows: Iterator[Any], names: Any, separator: str | None
) -> None:
    from ..io.tables import LABEL

    for text, labels in rows:
        # Its labels end at a blank, its rows at the end of the line.
        words = [LABEL + "_".join(label.split()) for label in labels or ()]
        stream.write(" ".join([*words, *text.split()]) + "\n")


_WRITERS: dict[str, Callable[..., None]] = {
    "csv": _write_csv,
    "tsv": _write_tsv,
    "jsonl": _write_json_lines,
    "fasttext": _write_fasttext,
}


def _write_parquet(output: Path, rows: Iterator[Any], names: Any) -> None:
    from ..core.atomic import replacing
    from ..io.tables import pyarrow

    if str(output) == "-":
        raise ValueError("Parquet cannot be written to standard output; name a file")
    parquet, arrow = pyarrow("parquet"), pyarrow("lib")
    texts, labels = map(list, zip(*rows, strict=True))
    columns: dict[str, Any] = {names[0]: texts}
    if names[1]:
        single = all(len(row) == 1 for row in labels)
        columns[names[1]] = [row[0] for row in labels] if single else labels
    with replacing(output) as temporary:
        parquet.write_table(arrow.table(columns), temporary)
