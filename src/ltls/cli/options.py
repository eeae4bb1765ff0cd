"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..io.formats import FORMATS


def option(default: str, help: str, *names: str, **settings: Any) -> Any:  # noqa: A002
    """Return an option that is None if it is not given; the help shows `default`."""
    return typer.Option(*names, help=help, show_default=default, **settings)


def flag(help: str, *names: str) -> Any:  # noqa: A002
    """Return an option without a value."""
    return typer.Option(*names, help=help)


def file_format(default: str, help: str, name: str) -> Any:  # noqa: A002
    """Return an option for a registered format; others may be registered later."""

    def complete(start: str) -> list[str]:
        return [each for each in FORMATS if each.startswith(start)]

    metavar = f"[{'|'.join(FORMATS)}]"
    return option(default, help, name, autocompletion=complete, metavar=metavar)


def _column(default: str, help: str, *names: str, metavar: str = "COLUMN") -> Any:  # noqa: A002
    return option(default, help, *names, metavar=metavar)


DATA = "The data file, plain or compressed (.gz, .xz, .bz2, .zst); - is standard input."
DATA_FILES = (
    "The data files, plain or compressed (.gz, .xz, .bz2, .zst), or a quoted pattern; - is "
    "standard input."
)
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, written by ltls train.")
]
DataFile = Annotated[Path, typer.Argument(metavar="FILE", help=DATA)]
FileFormat = Annotated[
    str | None,
    file_format("detected", "Format of the data; text is one text per line.", "--format"),
]
Encoding = Annotated[
    str | None, option("UTF-8", "Encoding of text files, such as latin-1.", "--encoding")
]
TextColumn = Annotated[str | None, _column("none", "Text column.", "--text")]
# Its value may be left out, see `app`.
TextOption = Annotated[
    str | None,
    _column(
        "as in training",
        "Text column; without a value, every line is a text.",
        "--text",
        metavar="[COLUMN]",
    ),
]
LabelColumn = Annotated[str | None, _column("none", "Label column.", "--label")]
LabelOption = Annotated[str | None, _column("as in training", "Label column.", "--label")]
LabelFile = Annotated[
    Path | None,
    option("none", "File with the labels of an npy file, one line per row.", "--labels"),
]


def _features(default: str) -> Any:
    help_text = "Numeric columns, comma-separated, or a column of vectors."
    return _column(default, help_text, "--features", "--vectors", metavar="COLUMNS")


def _separator(default: str) -> Any:
    return option(default, "Separator between labels in a cell, such as ';'.", "--separator")


FeatureColumns = Annotated[str | None, _features("none")]
FeatureOption = Annotated[str | None, _features("as in training")]
Separator = Annotated[str | None, _separator("one label per cell")]
SeparatorOption = Annotated[str | None, _separator("as in training")]
ZeroBased = Annotated[
    bool | None,
    option(
        "as in training, else 1 unless a 0 occurs",
        "Whether svmlight feature indices start at 0 or 1.",
        "--zero-based/--one-based",
    ),
]
SkipBadRows = Annotated[bool, flag("Skip and count rows that cannot be read.", "--skip-bad-rows")]
RayAddress = Annotated[
    str | None,
    option(
        "this process",
        "Read Parquet files on a Ray cluster: host:port, auto, or local.",
        "--ray",
        metavar="ADDRESS",
    ),
]
Verify = Annotated[bool, flag("Verify the checksums of the weights.", "--verify/--no-verify")]
Json = Annotated[bool, flag("Print JSON instead of a table.", "--json")]
Quiet = Annotated[bool, flag("Print no progress and no summary.", "--quiet", "-q")]
Verbose = Annotated[bool, flag("Print more on standard error.", "--verbose", "-v")]
