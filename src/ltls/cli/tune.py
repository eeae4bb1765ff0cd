"""``ltls tune``: better settings within a time limit, on held-out rows."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from .terminal import listen, show, show_facts
from .data import Source, training_set
from .options import (
    ROWS,
    Dtype,
    FeatureColumns,
    FormatOption,
    Json,
    LabelColumn,
    Quiet,
    Separator,
    SkipBadRows,
    Verbose,
    ZeroBased,
    option,
    plain,
)
from .writing import check_output, naming

_MOST_SHOWN = 10  # settings that were tried


def tune(
    file: Annotated[Path, typer.Argument(metavar="TRAIN", help=ROWS)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")],
    seconds: Annotated[float, typer.Option(min=1, help="How long it may take.")] = 60.0,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    separator: Separator = None,
    file_format: FormatOption = None,
    zero_based: ZeroBased = None,
    skip_bad_rows: SkipBadRows = False,
    random_state: Annotated[
        int | None, option("none", "Seed of the search and the model.", min=0, max=2**32 - 1)
    ] = None,
    dtype: Annotated[Dtype | None, option("float32", "Of the weights in the model file.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Look for good settings until the time is up, and save a model that has the best of them.

    Some rows are held out to compare by. The result is never worse than the defaults on these. It
    takes sparse features or a table of numbers; texts are trained by ltls train.
    """
    from ..estimators.tuning import tune as search

    listen(verbose, quiet)
    check_output(output, file)
    source = Source(file, plain(file_format), None, label, features, separator, zero_based,
                    skip_bad_rows)  # fmt: skip
    if source.format == "fasttext":
        raise ValueError("ltls tune takes features; train texts with ltls train")
    data = training_set(source, stream=False, n_jobs=None)
    model, tried = search(
        data.X, _labels(data.y), seconds, random_state=random_state, verbose=int(not quiet)
    )
    data.note_in(model)
    with naming(output):
        model.save(output, plain(dtype))
    best = sorted(tried, key=lambda each: -each["score"] if each["score"] == each["score"] else 1)
    if as_json:
        print(json.dumps({"model": str(output), "tried": [_plain(each) for each in tried]}))
    elif not quiet:
        rows = [
            [f"{each['score']:.4f}", str(each["rows"]), _changes(each, tried[0])] for each in best
        ]
        show(rows[:_MOST_SHOWN], "score", "rows", "settings")
        show_facts({"tried": len(tried), "model": output})


def _labels(y: Any) -> list[Any]:
    """Return the labels of rows as a list that can be split."""
    from ..model.labels import as_targets

    targets = as_targets(y)
    labels = list(targets.labels)
    if not targets.multilabel:
        return labels
    return [labels[first:last] for first, last in pairwise(targets.indptr.tolist())]


def _plain(each: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in each.items()}


def _changes(each: dict[str, Any], defaults: dict[str, Any]) -> str:
    """Return the settings that are others than the defaults, which are tried first."""
    facts = ("rows", "score", "seconds", "note")
    changes = [
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in each.items()
        if name not in facts and value != defaults[name]
    ]
    return ", ".join(changes) or "defaults"
