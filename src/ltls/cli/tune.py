"""``ltls tune``: a search for good hyperparameters, evaluated on held-out rows."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from ..estimators.tuning import tune as search
from ..model.labels import as_targets
from .messages import set_verbosity
from .options import (
    DATA,
    DTYPES,
    FeatureColumns,
    FormatOption,
    Json,
    LabelColumn,
    Quiet,
    Separator,
    SkipBadRows,
    Verbose,
    ZeroBased,
    choice,
    option,
)
from .output import check_output, errors_named
from .rows import training_rows
from .source import Source
from .terminal import show, show_facts

_MAX_SHOWN = 10  # trials


def tune(
    file: Annotated[Path, typer.Argument(metavar="TRAIN", help=DATA)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    seconds: Annotated[float, typer.Option(min=1, help="Time budget in seconds.")] = 60.0,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    separator: Separator = None,
    file_format: FormatOption = None,
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
    defaults there. The data are sparse features or numeric columns of a table, not texts.
    """
    set_verbosity(verbose, quiet)
    check_output(output, file)
    source = Source(
        path=file,
        format_name=file_format,
        label=label,
        features=features,
        separator=separator,
        zero_based=zero_based,
        skip_bad_rows=skip_bad_rows,
    )
    if source.format.kind == "text":
        raise ValueError("ltls tune takes features; train on texts with ltls train")
    data = training_rows(source, stream=False, n_jobs=None)
    estimator, trials = search(
        data.X, _labels(data.y), seconds, random_state=random_state, verbose=int(not quiet)
    )
    data.record_in(estimator)
    with errors_named(output):
        estimator.save(output, dtype)
    best = sorted(trials, key=lambda each: -each["score"] if each["score"] == each["score"] else 1)
    if as_json:
        print(json.dumps({"model": str(output), "tried": [_without_nan(each) for each in trials]}))
    elif not quiet:
        rows = [
            [f"{each['score']:.4f}", str(each["rows"]), _changes(each, trials[0])] for each in best
        ]
        show(rows[:_MAX_SHOWN], "score", "rows", "hyperparameters")
        show_facts({"tried": len(trials), "model": output})


def _labels(y: Any) -> list[Any]:
    """Return the labels of rows as a list, which can be split."""
    targets = as_targets(y)
    labels = list(targets.labels)
    if not targets.multilabel:
        return labels
    return [labels[first:last] for first, last in pairwise(targets.indptr.tolist())]


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
