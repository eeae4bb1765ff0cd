"""``ltls predict``: the best labels of every row."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.streams import is_pipe
from .terminal import counting, listen
from .data import ROWS_AT_A_TIME, Source, batches, of_tables
from .options import (
    DataFile,
    FeatureColumns,
    FormatOption,
    ModelFile,
    NoProgress,
    SkipBadRows,
    TextOption,
    Verbose,
    ZeroBased,
    option,
    plain,
)
from .writing import check_output, escaped, lines_to

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier

_ROWS_OF_PIPE = 256  # that wait for each other to be answered together
_MANY_LABELS = 10_000  # from here on, only the labels of the answer are looked at
_MOST_CELLS = 1 << 22  # rows × labels whose probabilities are worked out at a time


def predict(
    model: ModelFile,
    file: DataFile,
    output: Annotated[
        Path | None, option("standard output", "Where to write.", "--output", "-o")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many labels a row gets.")] = 5,
    proba: Annotated[
        bool, typer.Option("--proba", help="Write probabilities instead of scores.")
    ] = False,
    threshold: Annotated[
        bool, typer.Option("--threshold", help="Only labels that a multi-label model would give.")
    ] = False,
    text: TextOption = None,
    features: FeatureColumns = None,
    file_format: FormatOption = None,
    zero_based: ZeroBased = None,
    skip_bad_rows: SkipBadRows = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write a JSON object a row, not label:score.")
    ] = False,
    verbose: Verbose = False,
    quiet: NoProgress = False,
) -> None:
    """Write the k best labels of every row, one line a row, best first.

    A line is label:score label:score ... with a tab between; with --json it is
    {"labels": [...], "scores": [...]}. Scores of softmax models are log-probabilities, added up
    where there are several trellises. Rows are read and answered as they come.
    """
    from .. import load

    listen(verbose, quiet)
    check_output(output, model, file)
    classifier = load(model)
    if proba and not hasattr(classifier, "predict_proba"):
        raise ValueError(f"{model}: models with loss={classifier._learned.loss} have no --proba")
    if threshold and not classifier.multilabel_:
        raise ValueError(f"{model}: --threshold is for multi-label models; use -k 1")
    source = Source(file, plain(file_format), text, None, features, None, zero_based,
                    skip_bad_rows, of_tables(classifier))  # fmt: skip
    waits = str(file) == "-" and sys.stdin.isatty()  # who types wants an answer to every line
    size = 1 if waits else _ROWS_OF_PIPE if is_pipe(file) else ROWS_AT_A_TIME
    # On a terminal the lines themselves are the progress.
    shown = output is not None or not sys.stdout.isatty()
    with lines_to(output) as stream, counting("answering", shown) as count:
        for rows, _ in batches(source, classifier, labelled=False, size=size):
            labels, scores = answers(classifier, rows, k, proba, threshold)
            for line in map(_json_line if as_json else _line, labels, scores):
                stream.write(f"{line}\n")
            if is_pipe(file):
                stream.flush()
            count(len(labels))


def answers(
    classifier: LTLSClassifier, rows: Any, k: int, proba: bool = False, threshold: bool = False
) -> tuple[list[list[Any]], list[list[float]]]:
    """Return the best labels of every row, and their scores or probabilities."""
    import numpy as np

    labels, scores = classifier.predict_topk(rows, k)
    given = scores >= classifier.threshold_ if threshold else None
    if proba:
        scores = probabilities(classifier, rows, labels)
        # Sums of log-probabilities chose the labels; the mean of probabilities may rank them anew.
        order = np.argsort(-scores, axis=1, kind="stable")
        labels, scores = (np.take_along_axis(each, order, axis=1) for each in (labels, scores))
        given = None if given is None else np.take_along_axis(given, order, axis=1)
    if given is None:
        return labels.tolist(), scores.tolist()
    pairs = list(zip(labels, scores, given, strict=True))
    return [row[keep].tolist() for row, _, keep in pairs], [
        s[keep].tolist() for _, s, keep in pairs
    ]


def probabilities(classifier: LTLSClassifier, rows: Any, labels: Any) -> Any:
    """Return the probabilities of the labels of every row, an array like `labels`."""
    import numpy as np

    model = classifier._learned
    ids = np.vectorize(model.labels.id, otypes=[np.int64])(labels)
    alone = model.embedding is None
    if alone and model.loss == "softmax" and len(model.labels) > _MANY_LABELS:
        decoder, found = model.decoder(classifier.n_jobs), np.empty(ids.shape, np.float32)
        for part, h in model.edge_scores(classifier._checked(rows), classifier.n_jobs):
            for column in range(ids.shape[1]):
                found[part, column] = np.exp(decoder.log_proba(h, ids[part, column]))
        return found
    step = max(1, _MOST_CELLS // len(model.labels))
    parts = [
        np.take_along_axis(
            classifier.predict_proba(rows[first : first + step]), ids[first : first + step], axis=1
        )
        for first in range(0, len(ids), step)
    ]
    return np.concatenate(parts)


def _line(labels: list[Any], scores: list[float]) -> str:
    pairs = zip(labels, scores, strict=True)
    return "\t".join(f"{escaped(label)}:{score:.6g}" for label, score in pairs)


def _json_line(labels: list[Any], scores: list[float]) -> str:
    plain_labels = [
        label if isinstance(label, (str, int, float)) else str(label) for label in labels
    ]
    rounded = [float(f"{score:.6g}") for score in scores]
    return json.dumps({"labels": plain_labels, "scores": rounded}, ensure_ascii=False)
