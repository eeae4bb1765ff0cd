"""``ltls evaluate``: how good a model is, on frequent labels and on rare ones."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.streams import called
from .terminal import bar, counting, listen, show, show_facts
from .data import Source, batches, of_tables
from .options import (
    DataFile,
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
    ZeroBased,
    option,
    plain,
)
from .predict import probabilities
from .writing import check_output, naming

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier
    from ..evaluation.evaluation import Evaluation


def evaluate(
    model: ModelFile,
    file: DataFile,
    k: Annotated[str, typer.Option("-k", metavar="K,K,...", help="Answers to count.")] = "1,3,5",
    report: Annotated[
        Path | None, option("none", "Write a report with plots: a .html or .pdf file.")
    ] = None,
    text: TextOption = None,
    label: LabelOption = None,
    features: FeatureColumns = None,
    separator: Separator = None,
    file_format: FormatOption = None,
    zero_based: ZeroBased = None,
    skip_bad_rows: SkipBadRows = False,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: NoProgress = False,
) -> None:
    """Measure precision, recall, nDCG and propensity-scored precision of a model's k best answers.

    The bars show how many of the true labels are found, for frequent and for rare labels: head,
    middle and tail each have a third of the labels' occurrences in training. Labels that the
    model never saw count as missed.
    """
    from .. import load

    listen(verbose, quiet)
    cutoffs = _cutoffs(k)
    if report is not None and report.suffix not in (".html", ".pdf"):
        raise ValueError(f"--report must be a .html or .pdf file, got {report}")
    check_output(report, model, file)
    if report is not None:
        from ..evaluation.report import write_report  # says so now if there is no matplotlib
    classifier = load(model)
    source = Source(file, plain(file_format), text, label, features, separator, zero_based,
                    skip_bad_rows, of_tables(classifier))  # fmt: skip
    evaluation, seconds = _answer(classifier, source, cutoffs[-1], proba=report is not None)
    facts = {
        "rows": evaluation.n_rows,
        "labels": len(set(evaluation.truth.indices.tolist())),
        "unknown_labels": len(evaluation.labels) - evaluation.n_known,
        **({"bad_rows": source.bad_rows} if source.bad_rows else {}),
        "microseconds_per_row": round(1e6 * seconds / evaluation.n_rows, 3),
    }
    measured = [{"k": k, **evaluation.at(k)} for k in cutoffs]
    groups = evaluation.by_frequency(sorted({cutoffs[0], cutoffs[-1]}))
    if report is not None:
        with naming(report):
            write_report(report, evaluation, facts, measured, groups, str(model), called(file))
    if as_json:
        print(json.dumps({**facts, "metrics": measured, "by_frequency": groups}))
        return
    _show({**facts, **({"report": report} if report else {})}, measured, groups)


def _answer(
    classifier: LTLSClassifier, source: Source, k: int, proba: bool
) -> tuple[Evaluation, float]:
    from ..evaluation.evaluation import Evaluation

    true_labels: list[list[Any]] = []
    answers: list[list[Any]] = []
    seconds = 0.0
    proba &= hasattr(classifier, "predict_proba")
    confidence: list[float] | None = [] if proba else None
    with counting("answering") as count:
        for rows, labels in batches(source, classifier, labelled=True):
            start = time.perf_counter()
            best, _ = classifier.predict_topk(rows, k)
            seconds += time.perf_counter() - start
            if confidence is not None:
                confidence += probabilities(classifier, rows, best[:, :1])[:, 0].tolist()
            answers += best.tolist()
            true_labels += labels
            count(len(labels))
    if not answers:
        raise ValueError(f"{called(source.path)}: the file has no rows")
    return Evaluation.of(classifier._learned, true_labels, answers, confidence), seconds


def _show(
    facts: dict[str, Any], measured: list[dict[str, Any]], groups: list[dict[str, Any]]
) -> None:
    names = ("precision", "recall", "ndcg", "psp")
    rows = [(row["k"], *(_share(row[name]) for name in names)) for row in measured]
    show(rows, "k", "P@k", "R@k", "nDCG@k", "PSP@k")
    lines = []
    for group in groups:
        span = f"{group['least_frequency']:,}–{group['most_frequency']:,}"
        for number, (k, share) in enumerate(group["found"].items()):
            first = (group["group"], group["labels"], span, group["occurrences"])
            start = first if number == 0 else ("", "", "", "")
            lines.append((*start, f"R@{k}", _share(share), bar(share or 0, 24)))
    show(lines, "labels", "count", "trained on", "here", "", "found", "")
    show_facts(facts)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _cutoffs(text: str) -> list[int]:
    if not re.fullmatch(r"[1-9]\d{0,3}(,[1-9]\d{0,3})*", text):
        raise ValueError(f"-k must be numbers from 1 to 9999 with commas between, got {text!r}")
    return sorted({int(k) for k in text.split(",")})
