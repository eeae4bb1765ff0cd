"""``ltls`` at the terminal: train, tune, predict, evaluate, convert, info and demo.

Each command is a file in `ltls.commands`; here they are put together, with the examples that their
help shows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from .. import __version__
from .convert import convert
from .demo import demo
from .evaluate import evaluate
from .info import info
from .options import Command, examples
from .predict import predict
from .train import train
from .tune import tune
from .terminal import run

app = typer.Typer(
    help="Classification among very many classes in logarithmic time and space.",
    epilog=examples(
        "ltls train tickets.csv --text text --label category -o tickets.ltls",
        "ltls evaluate tickets.ltls held_out.csv",
        "echo 'my card is lost' | ltls predict tickets.ltls - --text",
    ),
    rich_markup_mode=None,  # panels cut the names of options short
    pretty_exceptions_enable=False,
)

_COMMANDS: dict[Callable[..., None], str] = {
    train: examples(
        "ltls train train.txt.gz -o model.ltls --width 8 --n-trellises 3",
        "ltls train tickets.csv --text text --label category -o tickets.ltls",
        "ltls train posts.jsonl --text body --label tags -o posts.ltls --epochs 10",
        "ltls train posts.csv --text body --label tags --separator ';' -o posts.ltls",
        "ltls train big.txt -o big.ltls --checkpoint big.checkpoint --resume",
    ),
    tune: examples("ltls tune train.txt -o model.ltls --seconds 300"),
    predict: examples(
        "ltls predict model.ltls test.txt -k 3 -o answers.tsv",
        "ltls predict tickets.ltls new.csv --proba --json",
        "echo 'my card is lost' | ltls predict tickets.ltls - --text",
    ),
    evaluate: examples(
        "ltls evaluate model.ltls test.txt -k 1,5,10",
        "ltls evaluate tickets.ltls held_out.csv --report report.html",
    ),
    convert: examples(
        "ltls convert model.ltls small.ltls --dtype int8",
        "ltls convert train.txt train.svm.gz",
        "ltls convert tickets.csv tickets.jsonl --text text --label category",
    ),
    info: examples("ltls info model.ltls"),
    demo: examples(
        "ltls demo",
        "ltls demo --interactive",
        "ltls demo --source my_project/src --examples 200000",
    ),
}
for _command, _epilog in _COMMANDS.items():
    app.command(cls=Command, epilog=_epilog)(_command)


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
    """Run the command line that the process was started with, and end it."""
    # They are None where they were closed, with >&-.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    sys.exit(run(app, sys.argv[1:] or ["--help"]))


if __name__ == "__main__":
    main()
