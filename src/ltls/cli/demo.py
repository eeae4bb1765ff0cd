"""``ltls demo``: a first look, on data that every machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import option


def demo(
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Complete the code that you type.")
    ] = False,
    source: Annotated[
        Path | None,
        option("the standard library", "A folder of Python files to learn from.", "--source"),
    ] = None,
    folder: Annotated[Path, typer.Option("--folder", help="Where model and pictures go.")] = Path(
        "demo"
    ),
    examples: Annotated[
        int, typer.Option("--examples", min=1000, help="How many tokens to learn from.")
    ] = 1_000_000,
) -> None:
    """Learn to predict the next token of Python code, and show what was learned.

    --interactive uses the model that an earlier run left in the folder, if there is one.
    """
    from .demo_job import run

    run(folder, source, examples, interactive)
