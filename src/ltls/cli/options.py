"""Arguments and options that several commands have, and how a command line is parsed."""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

SPARSE = ("svmlight", "xmc")
Format = Enum(
    "Format",
    {
        "svmlight": "svmlight",
        "xmc": "xmc",
        "csv": "csv",
        "tsv": "tsv",
        "jsonl": "jsonl",
        "fasttext": "fasttext",
        "parquet": "parquet",
        "text": "text",
    },
)
Dtype = Enum("Dtype", {"float32": "float32", "float16": "float16", "int8": "int8"})


def option(default: str, help: str, *names: str, **limits: Any) -> Any:  # noqa: A002
    """Return an option whose None means `default`, which the help shows."""
    return typer.Option(*names, help=help, show_default=default, **limits)


def switch(name: str, default: bool, help: str) -> Any:  # noqa: A002
    """Return an option of two names, one for yes and one for no."""
    return option(name if default else f"no-{name}", help, f"--{name}/--no-{name}")


def plain(value: Any) -> Any:
    """Return a choice's own value, and the text of what is no number or text."""
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, written by ltls train.")
]
ROWS = "Rows in one of the formats of --format; plain, .gz, .xz, .bz2 or .zst; - is standard input."
DataFile = Annotated[Path, typer.Argument(metavar="FILE", help=ROWS)]
FormatOption = Annotated[
    Format | None, option("by content", "Of the data; text is one text a line.", "--format")
]
TextColumn = Annotated[
    str | None,
    option("none", "The column of texts.", "--text", metavar="COLUMN"),
]
# Its value may be left out, see `Command`.
TextOption = Annotated[
    str | None,
    option("as in training", "The column of texts; alone, every line is a text.", "--text",
           metavar="[COLUMN]"),
]  # fmt: skip
_LABEL = ("The column of labels.", "--label")
LabelColumn = Annotated[str | None, option("none", *_LABEL, metavar="COLUMN")]
LabelOption = Annotated[str | None, option("as in training", *_LABEL, metavar="COLUMN")]
FeatureColumns = Annotated[
    str | None,
    option("none", "Columns of numbers, with commas between.", "--features", metavar="COLUMNS"),
]
Separator = Annotated[
    str | None,
    option("one label a cell", "What parts the labels of a cell, as ';'.", "--separator"),
]
ZeroBased = Annotated[
    bool | None,
    option(
        "as in training, or 1 unless a 0 occurs",
        "Where svmlight features count from.",
        "--zero-based/--one-based",
    ),
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Count rows that cannot be read; do not stop.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on standard error.")]


class Command(TyperCommand):
    """A command whose --text may stand without a value: then every line is a text."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; a --text that no column follows becomes --text=."""
        words = [
            "--text=" if word == "--text" and after.startswith("-") else word
            for word, after in pairwise([*args, "-"])
        ]
        return super().parse_args(ctx, words)


def examples(*lines: str) -> str:
    r"""Return an epilog that shows command lines; \b keeps them from being wrapped."""
    return "\n".join(
        ["\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)]
    )
