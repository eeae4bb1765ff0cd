"""``ltls demo``: predict the next token of Python code, on data that every machine has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..estimators.load import load
from .demo_model import corpus, train_and_measure
from .demo_report import complete, plot_results, report, show_completions
from .options import option

N_HELD_OUT = 50_000
WIDTH = 12
MODEL = "python_tokens.ltls"


def demo(
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Complete the code that you type.")
    ] = False,
    source: Annotated[
        Path | None,
        option("the standard library", "Folder of Python files to train on.", "--source"),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", help="Folder for the model and the plots.")
    ] = Path("demo"),
    examples: Annotated[
        int, typer.Option("--examples", min=1000, help="Number of tokens to train on.")
    ] = 1_000_000,
) -> None:
    """Train on Python code to predict the next token.

    Prints accuracy and completions, and plots the path of a prediction. --interactive uses the
    model of an earlier run in the folder, if there is one.
    """
    console = Console()
    file = folder / MODEL
    if interactive and source is None and file.exists():
        complete(console, load(file))
        return
    folder.mkdir(parents=True, exist_ok=True)
    name = "the standard library" if source is None else str(source)
    console.print(f"Reading the Python code of [bold]{name}[/] …")
    start = time.perf_counter()
    train, test = corpus(source, examples, min(N_HELD_OUT, examples // 5))
    console.print(
        f"{len(train):,} tokens to train on and {len(test):,} from held-out files, "
        f"in {time.perf_counter() - start:.1f} s. Which token comes next?"
    )
    first = train_and_measure(WIDTH, train, test, file, verbose=1)
    report(console, first, train, test)
    show_completions(console, first.model)
    if interactive:
        complete(console, first.model)
    else:
        plot_results(console, folder, first, train, test)
        console.print("\n[bold]ltls demo --interactive[/] completes what you type.")
