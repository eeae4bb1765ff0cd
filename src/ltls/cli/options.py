"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from ..io.formats import FORMATS


def check_columns(**named: list[str] | None) -> None:
    """Raise an error for a column that has no name, as of ``--text`` without a value."""
    for name, columns in named.items():
        if "" in (columns or ()):
            raise ValueError(f"--{name} needs the name of the {name} column")


def option(default: str, help: str, *names: str, **settings: Any) -> Any:  # noqa: A002
    """Return an option that is None if it is not given; the help shows `default`."""
    return typer.Option(*names, help=help, show_default=default, **settings)


def switch(name: str, default: bool, help: str) -> Any:  # noqa: A002
    """Return an option with two names, ``--name`` and ``--no-name``."""
    return option(name if default else f"no-{name}", help, f"--{name}/--no-{name}")


def choice(choices: Collection[str], default: str, help: str, *names: str) -> Any:  # noqa: A002
    """Return an option whose value is one of `choices`, looked up when the command runs.

    `choices` may be a registry: what is registered later is a choice too.
    """

    def parse(value: str) -> str:
        if value not in choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}")
        return value

    def complete(incomplete: str) -> list[str]:
        return [each for each in choices if each.startswith(incomplete)]

    metavar = f"[{'|'.join(choices)}]"
    return option(default, help, *names, parser=parse, autocompletion=complete, metavar=metavar)


def _columns(default: str, help: str, *names: str, metavar: str = "COLUMN") -> Any:  # noqa: A002
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
DataFiles = Annotated[list[Path], typer.Argument(metavar="FILE...", help=DATA)]
FormatOption = Annotated[
    str | None,
    choice(FORMATS, "detected", "Format of the data; text is one text per line.", "--format"),
]
DTYPES = ("float32", "float16", "int8")
TextColumn = Annotated[str | None, _columns("none", "Text column.", "--text")]
TextColumns = Annotated[
    list[str] | None, _columns("none", "Text column; may be repeated.", "--text")
]
NumberColumns = Annotated[
    list[str] | None,
    _columns("none", "Number column, scaled; cells may be empty; may be repeated.", "--number"),
]
CategoryColumns = Annotated[
    list[str] | None,
    _columns("none", "Category column; cells may be empty; may be repeated.", "--category"),
]
# Its value may be left out, see `Command`.
TextOption = Annotated[
    str | None,
    _columns(
        "as in training",
        "Text column; without a value, every line is a text.",
        "--text",
        metavar="[COLUMN]",
    ),
]
LabelColumn = Annotated[str | None, _columns("none", "Label column.", "--label")]
LabelOption = Annotated[str | None, _columns("as in training", "Label column.", "--label")]
FeatureColumns = Annotated[
    str | None,
    _columns("none", "Numeric columns, comma-separated.", "--features", metavar="COLUMNS"),
]
Separator = Annotated[
    str | None,
    option("one label per cell", "Separator between labels in a cell, as ';'.", "--separator"),
]
ZeroBased = Annotated[
    bool | None,
    option(
        "as in training, or 1 unless a 0 occurs",
        "Whether svmlight feature indices start at 0 or 1.",
        "--zero-based/--one-based",
    ),
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Skip and count rows that cannot be read.")
]
Encoding = Annotated[
    str | None, option("UTF-8", "Encoding of text files, as latin-1.", "--encoding")
]
RayAddress = Annotated[
    str | None,
    option(
        "this process",
        "Read Parquet files on a Ray cluster: host:port, auto, or local.",
        "--ray",
        metavar="ADDRESS",
    ),
]
Verify = Annotated[
    bool, typer.Option("--verify/--no-verify", help="Verify the checksums of the weights.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary.")]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more on standard error.")]
