"""``ltls predict``: the best labels of every row."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.streams import is_pipe
from ..estimators.classifier import LTLSClassifier
from ..estimators.load import load
from .messages import set_verbosity
from .options import (
    DataFile,
    FeatureColumns,
    FormatOption,
    ModelFile,
    NoProgress,
    SkipBadRows,
    TextOption,
    Verbose,
    Verify,
    ZeroBased,
    option,
)
from .output import check_output, escaped, text_output
from .rows import BATCH_SIZE, batches, takes_table
from .source import Source
from .terminal import progress

_PIPE_BATCH_SIZE = 256  # rows that wait for each other


def predict(
    model: ModelFile,
    file: DataFile,
    output: Annotated[
        Path | None, option("standard output", "Output file.", "--output", "-o")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of labels per row.")] = 5,
    proba: Annotated[
        bool, typer.Option("--proba", help="Print probabilities instead of scores.")
    ] = False,
    threshold: Annotated[
        bool,
        typer.Option("--threshold", help="Multi-label: only labels above the model's threshold."),
    ] = False,
    text: TextOption = None,
    features: FeatureColumns = None,
    file_format: FormatOption = None,
    zero_based: ZeroBased = None,
    skip_bad_rows: SkipBadRows = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    verify: Verify = True,
    verbose: Verbose = False,
    quiet: NoProgress = False,
) -> None:
    """Predict the k best labels of every row.

    Prints one line per row, best label first: label:score pairs separated by tabs, or with --json
    {"labels": [...], "scores": [...]}. Scores of softmax models are log-probabilities, summed over
    the trellises. Rows are read and predicted in batches; input from a terminal line by line.
    """
    set_verbosity(verbose, quiet)
    check_output(output, model, file, special=True)
    estimator = load(model, verify=verify)
    if proba and not hasattr(estimator, "predict_proba"):
        loss = estimator.model_.loss.name
        raise ValueError(f"{model}: models with loss={loss} have no probabilities (--proba)")
    if threshold and not estimator.multilabel_:
        raise ValueError(f"{model}: --threshold is for multi-label models; use -k 1")
    source = Source(
        paths=[file],
        format_name=file_format,
        text=text,
        features=features,
        zero_based=zero_based,
        skip_bad_rows=skip_bad_rows,
        expects_table=takes_table(estimator),
    )
    typed = str(file) == "-" and sys.stdin.isatty()  # answer every line at once
    size = 1 if typed else _PIPE_BATCH_SIZE if is_pipe(file) else BATCH_SIZE
    # On a terminal the lines themselves show the progress.
    shown = output is not None or not sys.stdout.isatty()
    with text_output(output) as stream, progress("predicting", shown) as advance:
        for rows, _ in batches(source, estimator, labelled=False, size=size):
            labels, scores = _best(estimator, rows, k, proba, threshold)
            for line in map(_json_line if as_json else _line, labels, scores):
                stream.write(f"{line}\n")
            if is_pipe(file):
                stream.flush()
            advance(len(labels))


def _best(
    estimator: LTLSClassifier, rows: Any, k: int, proba: bool, threshold: bool
) -> tuple[list[list[Any]], list[list[float]]]:
    """Return the best labels of every row, and their scores or probabilities."""
    labels, scores = estimator.predict_topk(rows, k)
    kept = [
        set(row[above].tolist())
        for row, above in zip(labels, scores >= estimator.threshold_, strict=True)
    ] if threshold else None  # fmt: skip
    if proba:
        labels, scores = estimator.predict_topk(rows, k, proba=True)
    label_rows, score_rows = labels.tolist(), scores.tolist()
    if kept is None:
        return label_rows, score_rows
    pairs = [
        [(label, score) for label, score in zip(*row, strict=True) if label in keep]
        for *row, keep in zip(label_rows, score_rows, kept, strict=True)
    ]
    return [[label for label, _ in row] for row in pairs], [[s for _, s in row] for row in pairs]


def _line(labels: list[Any], scores: list[float]) -> str:
    pairs = zip(labels, scores, strict=True)
    return "\t".join(f"{escaped(label)}:{score:.6g}" for label, score in pairs)


def _json_line(labels: list[Any], scores: list[float]) -> str:
    plain_labels = [
        label if isinstance(label, (str, int, float)) else str(label) for label in labels
    ]
    rounded = [float(f"{score:.6g}") for score in scores]
    return json.dumps({"labels": plain_labels, "scores": rounded}, ensure_ascii=False)
