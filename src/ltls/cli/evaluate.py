"""``ltls evaluate``: how good a model is, on frequent labels and on rare ones."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.streams import display_name
from ..io.errors import EmptyFileError
from ..io.files import check_model_file
from . import options
from .labels import WrittenLabels
from .output import bar, check_output, errors_named, progress, set_verbosity, show, warn
from .source import Source, check_columns

if TYPE_CHECKING:
    from ..evaluation.evaluation import Evaluation

_MAX_TEXT = 300  # characters of a row in a report


def evaluate(
    context: typer.Context,
    model: options.ModelFile,
    file: options.DataFile,
    k: Annotated[
        str, typer.Option("-k", metavar="K,K,...", help="Cutoffs of the metrics.")
    ] = "1,3,5",
    report: Annotated[
        Path | None, options.option("none", "Write a report with plots, as .html or .pdf.")
    ] = None,
    text: options.TextOption = None,
    label: options.LabelOption = None,
    labels: options.LabelFile = None,
    features: options.FeatureOption = None,
    separator: options.SeparatorOption = None,
    file_format: options.FileFormat = None,
    encoding: options.Encoding = None,
    zero_based: options.ZeroBased = None,
    skip_bad_rows: options.SkipBadRows = False,
    as_json: options.Json = False,
    verify: options.Verify = True,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Evaluate a model on labelled rows.

    Prints precision, recall, nDCG, propensity-scored precision, macro-F1 and coverage at k. The
    bars show recall by label frequency: head, middle and tail labels each have a third of the label
    occurrences of the training set. Labels that the model has never seen count as missed.
    """
    check_model_file(model)
    if not re.fullmatch(r"[1-9]\d{0,3}(,[1-9]\d{0,3})*", k):
        raise ValueError(f"-k must be comma-separated numbers from 1 to 9999, got {k!r}")
    check_columns(context.params, file)
    set_verbosity(verbose, quiet)
    from ..estimators.load import load  # slow; not needed to reject wrong options
    from ..evaluation.evaluation import tables
    from ..evaluation.report import check_matplotlib, write_report

    cutoffs = sorted({int(each) for each in k.split(",")})
    if report is not None:
        if report.suffix not in (".html", ".pdf"):
            raise ValueError(f"--report must be a .html or .pdf file, got {report}")
        check_matplotlib()
        check_output(report, model, file)
    source = Source.of(context.params, [file], model=load(model, verify=verify))
    evaluation, seconds = _evaluation(source, cutoffs[-1], for_report=report is not None)
    source.report_bad_rows()
    facts = {
        "rows": evaluation.n_rows,
        "labels": len(set(evaluation.truth.indices.tolist())),
        "unknown_labels": len(evaluation.labels) - evaluation.n_known,
        **({"bad_rows": source.n_bad_rows} if source.n_bad_rows else {}),
        "microseconds_per_row": round(1e6 * seconds / evaluation.n_rows, 3),
    }
    measured = [{"k": k, **evaluation.at(k)} for k in cutoffs]
    groups = evaluation.by_frequency(sorted({cutoffs[0], cutoffs[-1]}))
    of_metrics, of_groups, of_facts = tables(measured, groups, facts)
    if report is not None:
        title = f"{model} on {display_name(file)}"
        with errors_named(report):
            write_report(report, title, evaluation, [of_metrics, of_groups, of_facts])
    if as_json:
        print(json.dumps({**facts, "metrics": measured, "by_frequency": groups}))
        return
    show(of_metrics[1:], *of_metrics[0])
    bars = [bar(list(group["found"].values())[-1] or 0) for group in groups]
    show([[*row, each] for row, each in zip(of_groups[1:], bars, strict=True)], *of_groups[0], "")
    show([*of_facts, *([["report", report]] if report else [])])


def _evaluation(source: Source, k: int, for_report: bool) -> tuple[Evaluation, float]:
    """Predict all rows; return the evaluation and the prediction time in seconds.

    A report also shows probabilities, and the texts of rows.
    """
    from ..evaluation.evaluation import Evaluation

    estimator = source.model
    assert estimator is not None
    true_labels: list[list[Any]] = []
    predicted: list[list[Any]] = []
    seconds = 0.0
    known = WrittenLabels(estimator.model_.labels)
    confidence: list[float] | None = [] if for_report and estimator.model_.probabilistic else None
    texts: list[str] | None = [] if for_report and not (source.sparse or source.dense) else None
    for rows, labels in progress("predicting", source.batches(labelled=True)):
        start = time.perf_counter()
        best, _ = estimator.predict_topk(rows, k)
        seconds += time.perf_counter() - start
        if confidence is not None:
            # Labels are ranked by score; another of the k may be more probable.
            others, proba = estimator.predict_topk(rows, k, proba=True)
            first = (others == best[:, :1]).argmax(axis=1)
            confidence += proba[range(len(first)), first].tolist()
        if texts is not None:
            texts += [_shown(row) for row in rows]
        predicted += best.tolist()
        true_labels += [[known.find(label, label) for label in row] for row in labels]
    if not predicted:
        raise EmptyFileError(path=source.path)
    if not any(label in estimator.model_.labels for row in true_labels for label in row):
        warn(f"the model knows none of the labels of {source.name}")
    trained_on = estimator.fitted_.provenance
    found = Evaluation.of(estimator.model_, trained_on, true_labels, predicted, confidence)
    return replace(found, texts=texts), seconds


def _shown(row: Any) -> str:
    """Return a row as a report shows it: its text, or the cells of a table."""
    if isinstance(row, dict):
        row = "; ".join(f"{name}: {cell}" for name, cell in row.items())
    text = str(row)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
