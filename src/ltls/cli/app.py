"""The ``ltls`` command: train, tune, predict, evaluate, explain, convert, serve, info and demo."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ..core.version import __version__
from .lazy_group import LazyCommand, LazyGroup, epilog
from .running import run

COMMANDS = (
    LazyCommand(
        "train",
        ".train",
        "Train a model on files of labelled rows.",
        (
            "ltls train train.txt.gz -o model.ltls --width 8 --n-trellises 3",
            "ltls train tickets.csv --text text --label category -o tickets.ltls",
            "ltls train orders.csv --text item --number price --label tax -o tax.ltls",
            "ltls train posts.jsonl --text body --label tags -o posts.ltls --epochs 10",
            "ltls train posts.csv --text body --label tags --separator ';' -o posts.ltls",
            "ltls train big.txt -o big.ltls --checkpoint big.checkpoint --resume",
        ),
    ),
    LazyCommand(
        "tune",
        ".tune",
        "Search for good hyperparameters in limited time.",
        ("ltls tune train.txt -o model.ltls --seconds 300",),
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
    ),
    LazyCommand(
        "evaluate",
        ".evaluate",
        "Evaluate a model on labelled rows.",
        (
            "ltls evaluate model.ltls test.txt -k 1,5,10",
            "ltls evaluate tickets.ltls test.csv --report report.html",
        ),
    ),
    LazyCommand(
        "convert",
        ".convert",
        "Convert a data file or a model.",
        (
            "ltls convert model.ltls small.ltls --dtype int8",
            "ltls convert train.txt train.svm.gz",
            "ltls convert tickets.csv tickets.jsonl --text text --label category",
        ),
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
    LazyCommand("info", ".info", "Show what a model file contains.", ("ltls info model.ltls",)),
    LazyCommand(
        "demo",
        ".demo",
        "Train on Python code to predict the next token.",
        (
            "ltls demo",
            "ltls demo --interactive",
            "ltls demo --source my_project/src --examples 200000",
        ),
    ),
)


class _Commands(LazyGroup):
    commands_by_name = {command.name: command for command in COMMANDS}  # noqa: RUF012


app = typer.Typer(
    cls=_Commands,
    help="Classification with very many classes in logarithmic time and space.",
    epilog=epilog(
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
    # They are None if they were closed, as by >&-.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    sys.exit(run(app, sys.argv[1:] or ["--help"]))
