"""``ltls evaluate``: how good a model is, on frequent labels and on rare ones."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.streams import display_name
from ..estimators.classifier import LTLSClassifier
from ..estimators.load import load
from ..evaluation.evaluation import METRIC_NAMES, Evaluation
from ..evaluation.report import check_matplotlib, write_report
from ..io.errors import EmptyFileError
from .labels import WrittenLabels
from .messages import set_verbosity, warn
from .options import (
    DataFile,
    Encoding,
    FeatureColumns,
    FormatOption,
    Json,
    LabelOption,
    ModelFile,
    NoProgress,
    Separator,
    SkipBadRows,
    TextOption,
    Verbose,
    Verify,
    ZeroBased,
    option,
)
from .output import check_output, errors_named
from .rows import batches, takes_lines, takes_table
from .source import Source
from .terminal import bar, progress, show, show_facts


def evaluate(
    model: ModelFile,
    file: DataFile,
    k: Annotated[
        str, typer.Option("-k", metavar="K,K,...", help="Cutoffs of the metrics.")
    ] = "1,3,5",
    report: Annotated[
        Path | None, option("none", "Write a report with plots, as .html or .pdf.")
    ] = None,
    text: TextOption = None,
    label: LabelOption = None,
    features: FeatureColumns = None,
    separator: Separator = None,
    file_format: FormatOption = None,
    encoding: Encoding = None,
    zero_based: ZeroBased = None,
    skip_bad_rows: SkipBadRows = False,
    as_json: Json = False,
    verify: Verify = True,
    verbose: Verbose = False,
    quiet: NoProgress = False,
) -> None:
    """Evaluate a model on labelled rows.

    Prints precision, recall, nDCG, propensity-scored precision, macro-F1 and coverage at k. The
    bars show recall by label frequency: head, middle and tail labels each have a third of the label
    occurrences of the training set. Labels that the model has never seen count as missed.
    """
    set_verbosity(verbose, quiet)
    cutoffs = _cutoffs(k)
    if report is not None:
        if report.suffix not in (".html", ".pdf"):
            raise ValueError(f"--report must be a .html or .pdf file, got {report}")
        check_matplotlib()
    check_output(report, model, file)
    estimator = load(model, verify=verify)
    source = Source(
        paths=[file],
        format_name=file_format,
        encoding=encoding,
        text=text,
        label=label,
        features=features,
        separator=separator,
        zero_based=zero_based,
        skip_bad_rows=skip_bad_rows,
        expects_table=takes_table(estimator),
        expects_lines=takes_lines(estimator),
    )
    evaluation, seconds = _evaluation(estimator, source, cutoffs[-1], proba=report is not None)
    facts = {
        "rows": evaluation.n_rows,
        "labels": len(set(evaluation.truth.indices.tolist())),
        "unknown_labels": len(evaluation.labels) - evaluation.n_known,
        **({"bad_rows": source.n_bad_rows} if source.n_bad_rows else {}),
        "microseconds_per_row": round(1e6 * seconds / evaluation.n_rows, 3),
    }
    metrics = [{"k": k, **evaluation.at(k)} for k in cutoffs]
    groups = evaluation.by_frequency(sorted({cutoffs[0], cutoffs[-1]}))
    if report is not None:
        with errors_named(report):
            write_report(report, evaluation, facts, metrics, groups, str(model), display_name(file))
    if as_json:
        print(json.dumps({**facts, "metrics": metrics, "by_frequency": groups}))
        return
    _show({**facts, **({"report": report} if report else {})}, metrics, groups)


def _evaluation(
    estimator: LTLSClassifier, source: Source, k: int, proba: bool
) -> tuple[Evaluation, float]:
    """Predict all rows; return the evaluation, and the seconds that predicting took."""
    true_labels: list[list[Any]] = []
    predicted: list[list[Any]] = []
    seconds = 0.0
    proba &= hasattr(estimator, "predict_proba")
    known = WrittenLabels(estimator.model_.labels)
    confidence: list[float] | None = [] if proba else None
    with progress("predicting") as advance:
        for rows, labels in batches(source, estimator, labelled=True):
            start = time.perf_counter()
            best, _ = estimator.predict_topk(rows, k)
            seconds += time.perf_counter() - start
            if confidence is not None:
                confidence += _confidence(estimator, rows, best)
            predicted += best.tolist()
            true_labels += [_known(known, row) for row in labels]
            advance(len(labels))
    if not predicted:
        raise EmptyFileError(path=source.path)
    if not any(label in estimator.model_.labels for row in true_labels for label in row):
        warn(f"the model knows none of the labels of {source.name}")
    return Evaluation.of(estimator.model_, true_labels, predicted, confidence), seconds


def _known(labels: WrittenLabels, row: list[Any]) -> list[Any]:
    """Return the labels of a row as the model has them; unknown ones stay as they are."""
    found = [labels.find(label) for label in row]
    return [label if same is None else same for label, same in zip(row, found, strict=True)]


def _confidence(estimator: LTLSClassifier, rows: Any, best: Any) -> list[float]:
    """Return the probability of the first label of every row of `best`."""
    # Scores rank; by probability another of the k may be the first.
    labels, probabilities = estimator.predict_topk(rows, best.shape[1], proba=True)
    first = (labels == best[:, :1]).argmax(axis=1)
    confidence: list[float] = probabilities[range(len(first)), first].tolist()
    return confidence


def _show(
    facts: dict[str, Any], metrics: list[dict[str, Any]], groups: list[dict[str, Any]]
) -> None:
    rows = [(row["k"], *(_number(row[name]) for name in METRIC_NAMES)) for row in metrics]
    show(rows, "k", *METRIC_NAMES.values())
    lines = []
    for group in groups:
        span = f"{group['least_frequency']:,}–{group['most_frequency']:,}"
        for number, (k, recall) in enumerate(group["found"].items()):
            first = (group["group"], group["labels"], span, group["occurrences"])
            start = first if number == 0 else ("", "", "", "")
            lines.append((*start, f"R@{k}", _number(recall), bar(recall or 0, 16)))
    show(lines, "labels", "count", "in training", "in file", "", "recall", "")
    show_facts(facts)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _cutoffs(text: str) -> list[int]:
    if not re.fullmatch(r"[1-9]\d{0,3}(,[1-9]\d{0,3})*", text):
        raise ValueError(f"-k must be comma-separated numbers from 1 to 9999, got {text!r}")
    return sorted({int(k) for k in text.split(",")})
