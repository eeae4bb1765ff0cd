"""``ltls tune``: a search for good hyperparameters, evaluated on held-out rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..estimators.table_classifier import TableClassifier
from ..estimators.tuning import tune as search
from ..io.table_stream import split_columns
from .messages import set_verbosity
from .options import (
    DATA_FILES,
    DTYPES,
    CategoryColumns,
    Encoding,
    FeatureColumns,
    FormatOption,
    Json,
    LabelColumn,
    NumberColumns,
    Quiet,
    Separator,
    SkipBadRows,
    TextColumns,
    Verbose,
    ZeroBased,
    check_columns,
    choice,
    option,
)
from .output import check_output, errors_named, is_standard_output, model_output
from .rows import label_lists, training_rows
from .source import Source
from .terminal import show, show_facts

_MAX_SHOWN = 10  # trials


def tune(
    files: Annotated[list[Path], typer.Argument(metavar="TRAIN...", help=DATA_FILES)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    seconds: Annotated[float, typer.Option(min=1, help="Time budget in seconds.")] = 60.0,
    text: TextColumns = None,
    number: NumberColumns = None,
    category: CategoryColumns = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    separator: Separator = None,
    file_format: FormatOption = None,
    encoding: Encoding = None,
    zero_based: ZeroBased = None,
    skip_bad_rows: SkipBadRows = False,
    random_state: Annotated[
        int | None, option("none", "Random seed.", min=0, max=2**32 - 1)
    ] = None,
    dtype: Annotated[str | None, choice(DTYPES, "int8", "Type of the stored weights.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Search for good hyperparameters in limited time.

    Saves the best model. Trials are compared on held-out rows; the result is never worse than the
    defaults there. The data are as for ltls train; texts become features once, with the default
    n-grams.
    """
    set_verbosity(verbose, quiet)
    check_columns(text=text, number=number, category=category)
    text_column, mixed = split_columns(text, number or (), category or ())
    source = Source(
        paths=files,
        format_name=file_format,
        encoding=encoding,
        text=text_column,
        mixed=mixed,
        label=label,
        features=features,
        separator=separator,
        zero_based=zero_based,
        skip_bad_rows=skip_bad_rows,
    )
    output = model_output(output)
    piped = is_standard_output(output)
    check_output(output, *source.paths, special=True)
    data = training_rows(source, stream=False, n_jobs=None)
    table = None
    if mixed is not None:
        table = TableClassifier(mixed.text, mixed.number, mixed.category)
    estimator, trials = search(
        data.X,
        label_lists(data.y),
        seconds,
        estimator=table,
        random_state=random_state,
        verbose=int(not quiet),
    )
    data.record_in(estimator)
    with errors_named(output):
        estimator.save(output, dtype)
    best = sorted(trials, key=lambda each: -each["score"] if each["score"] == each["score"] else 1)
    if piped:
        return
    if as_json:
        print(json.dumps({"model": str(output), "tried": [_without_nan(each) for each in trials]}))
    elif not quiet:
        rows = [
            [f"{each['score']:.4f}", str(each["rows"]), _changes(each, trials[0])] for each in best
        ]
        show(rows[:_MAX_SHOWN], "score", "rows", "hyperparameters")
        show_facts({"tried": len(trials), "model": output})


def _without_nan(trial: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in trial.items()}


def _changes(trial: dict[str, Any], defaults: dict[str, Any]) -> str:
    """Return the hyperparameters that differ from the defaults, which are tried first."""
    facts = ("rows", "score", "seconds", "note")
    changes = [
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in trial.items()
        if name not in facts and value != defaults[name]
    ]
    return ", ".join(changes) or "defaults"
