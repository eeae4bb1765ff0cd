"""The ``ltls`` command: its commands are imported when they are run."""

from __future__ import annotations

import errno
import glob
import importlib
import os
import sys
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..core.version import __version__
from .running import prepare_standard_streams, run


@dataclass(frozen=True)
class LazyCommand:
    """A command: the function of its name in a module, a line of help, and examples.

    The first `n_files` arguments are files that must exist.
    """

    name: str
    module: str
    help: str
    examples: tuple[str, ...]
    n_files: int = 0

    def load(self) -> Any:
        """Import the module of the command and return the command."""
        function = getattr(importlib.import_module(self.module, __package__), self.name)
        alone = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        alone.command(self.name, epilog=_epilog(self.examples))(function)
        return typer.main.get_command(alone)


COMMANDS = (
    LazyCommand(
        "train",
        ".train",
        "Train a model on files of labelled rows.",
        (
            "ltls train train.txt.gz -o model.ltls --width 8 --set trellises.n_trellises=3",
            "ltls train tickets.csv --text text --label category -o tickets.ltls",
            "ltls train orders.csv --text item --number price --label tax -o tax.ltls",
            "ltls train posts.jsonl --text body --label tags -o posts.ltls --epochs 10",
            "ltls train posts.csv --text body --label tags --separator ';' -o posts.ltls",
            "ltls train big.txt -o big.ltls --checkpoint big.checkpoint --resume",
        ),
        n_files=1,
    ),
    LazyCommand(
        "predict",
        ".predict",
        "Predict the k best labels of every row.",
        (
            "ltls predict model.ltls test.txt -k 3 -o predictions.tsv",
            "ltls predict tickets.ltls new.csv --proba --json",
            "echo 'my card is lost' | ltls predict tickets.ltls - --text",
        ),
        n_files=2,
    ),
    LazyCommand(
        "evaluate",
        ".evaluate",
        "Evaluate a model on labelled rows.",
        (
            "ltls evaluate model.ltls test.txt -k 1,5,10",
            "ltls evaluate tickets.ltls test.csv --report report.html",
        ),
        n_files=2,
    ),
    LazyCommand(
        "explain",
        ".explain",
        "Explain the best labels of a text or a row.",
        (
            "ltls explain tickets.ltls 'my card is lost'",
            "ltls explain tickets.ltls 'my card is lost' --html card.html",
            'ltls explain tax.ltls \'{"item": "tea", "price": 4.5}\'',
            "ltls explain model.ltls '3:0.5 17:1' -k 1 --json",
        ),
        n_files=1,
    ),
    LazyCommand(
        "convert",
        ".convert",
        "Convert a data file or a model.",
        (
            "ltls convert model.ltls small.ltls --size-budget 1MB",
            "ltls convert train.txt train.svm.gz",
            "ltls convert tickets.csv tickets.jsonl --text text --label category",
        ),
        n_files=1,
    ),
    LazyCommand(
        "serve",
        "..serve.command",
        "Serve models over HTTP, with a page to try them.",
        (
            "ltls serve tickets.ltls",
            "ltls serve tickets.ltls products.ltls --host 0.0.0.0 --port 80 --workers 4",
        ),
    ),
    LazyCommand("info", ".info", "Show what a model file contains.", ("ltls info model.ltls",), 1),
    LazyCommand(
        "settings", ".settings", "List all settings of training.", ("ltls settings trellises",)
    ),
)


class _Commands(TyperGroup):
    """The group of `COMMANDS`; listing them imports nothing."""

    by_name = {command.name: command for command in COMMANDS}  # noqa: RUF012

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.by_name)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a placeholder with the help of a command, for lists and shell completion."""
        command = self.by_name.get(cmd_name)
        return command and TyperCommand(cmd_name, help=command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is to be run, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is None:
            return name, None, rest
        lazy = self.by_name[str(command.name)]
        if not ctx.resilient_parsing and "--help" not in rest:
            _check_files(rest[: lazy.n_files])
        return name, lazy.load(), rest


def _check_files(words: list[str]) -> None:
    """Raise an error if a file does not exist, before a second is spent on imports."""
    for word in takewhile(lambda word: not word.startswith("-"), words):
        if not glob.has_magic(word) and not os.path.exists(word):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), word)


def _epilog(lines: tuple[str, ...]) -> str:
    r"""Return an epilog that shows command lines; \b keeps them from being wrapped."""
    title = "Examples:" if len(lines) > 1 else "Example:"
    return "\n".join(["\b", title, *(f"  {line}" for line in lines)])


app = typer.Typer(
    cls=_Commands,
    help="Classification with very many classes in logarithmic time and space.",
    epilog=_epilog(
        (
            "ltls train tickets.csv --text text --label category -o tickets.ltls",
            "ltls evaluate tickets.ltls test.csv",
            "echo 'my card is lost' | ltls predict tickets.ltls - --text",
        )
    ),
    rich_markup_mode=None,  # panels truncate the names of options
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"ltls {__version__}")
        raise typer.Exit


@app.callback()
def _app(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line of this process, and exit."""
    prepare_standard_streams()
    words = sys.argv[1:] or ["--help"]
    # The value of --text may be left out: then every line is a text.
    sys.exit(
        run(
            app,
            [
                "--text=" if word == "--text" and after.startswith("-") else word
                for word, after in pairwise([*words, "-"])
            ],
        )
    )
