"""``ltls predict``: the best labels of every row."""

from __future__ import annotations

import json
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from ..core.streams import is_pipe
from ..io.errors import RowError
from ..io.files import check_model_file, expand
from . import options
from .cluster import check_not_given, score_on_cluster
from .labels import labels_in
from .output import check_output, escaped, progress, set_verbosity, text_output
from .source import BATCH_SIZE, Source, check_columns

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier

_PIPE_BATCH_SIZE = 256  # rows from a pipe that are predicted together, at most


def predict(
    context: typer.Context,
    model: options.ModelFile,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=options.DATA)],
    output: Annotated[
        Path | None,
        options.option("standard output", "Output file; with --ray, a folder.", "--output", "-o"),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of labels per row.")] = 5,
    proba: Annotated[
        bool, options.flag("Print probabilities instead of scores.", "--proba")
    ] = False,
    threshold: Annotated[
        bool,
        options.flag(
            "Multi-label: print only labels that reach the model's threshold.", "--threshold"
        ),
    ] = False,
    among: Annotated[
        Path | None,
        options.option("all labels", "Allow only the labels in this file, one per line."),
    ] = None,
    text: options.TextOption = None,
    features: options.FeatureOption = None,
    file_format: options.FileFormat = None,
    encoding: options.Encoding = None,
    zero_based: options.ZeroBased = None,
    skip_bad_rows: options.SkipBadRows = False,
    row_numbers: Annotated[
        bool, options.flag("Print the number of every row, from 1.", "--row-numbers")
    ] = False,
    as_json: Annotated[bool, options.flag("Print one JSON object per row.", "--json")] = False,
    ray: options.RayAddress = None,
    verify: options.Verify = True,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict the k best labels of every row.

    Prints one line per row, best label first: label:score pairs separated by tabs, or with --json
    {"labels": [...], "scores": [...]}. Scores rank the labels of a row; --proba prints
    probabilities instead. Rows are predicted in batches, or as they arrive from a pipe or a
    terminal. With --skip-bad-rows, a row that cannot be read yields an empty line, or {"error":
    ...} with --json.

    With --ray, several Parquet files can be given. In the Parquet files written to the folder
    OUTPUT, the columns labels and scores (with --proba also probabilities) replace the features.
    """
    check_model_file(model)
    if ray is not None:
        check_not_given(
            {
                "--format": file_format not in (None, "parquet"),
                "--encoding": encoding,
                "--zero-based": zero_based is not None,
                "--skip-bad-rows": skip_bad_rows,
                "--row-numbers": row_numbers,
                "--json": as_json,
                "--no-verify": not verify,
            }
        )
        wanted = {"k": k, "proba": proba, "threshold": threshold, "text": text}
        score_on_cluster(ray, model, files, output, features, among, wanted)
        return
    file, *others = map(Path, expand(files))
    if others:
        n_files = 1 + len(others)
        raise ValueError(f"one file can be predicted at a time without --ray, got {n_files}")
    if among is not None and str(among) == str(file) == "-":
        raise ValueError("--among and the data cannot both be read from standard input")
    check_output(output, model, file, among, special=True)
    check_columns(context.params, file)
    set_verbosity(verbose, quiet)
    from ..estimators.load import load  # slow; not needed to reject wrong options

    estimator = load(model, verify=verify)
    if proba and not estimator.model_.probabilistic:
        raise ValueError(f"{model}: its loss has no probabilities; leave out --proba")
    if threshold and not estimator.multilabel_:
        raise ValueError(f"{model}: --threshold is for multi-label models; use -k 1")
    allowed = None if among is None else labels_in(among, estimator.model_.labels)
    bad_rows: deque[RowError] = deque()
    source = Source.of(context.params, [file], model=estimator, bad_rows=bad_rows)
    size = _PIPE_BATCH_SIZE if is_pipe(file) else BATCH_SIZE
    # On a terminal, the printed lines show the progress.
    shown = output is not None or not sys.stdout.isatty()
    with text_output(output) as stream:
        lines = _Lines(stream, bad_rows, as_json, row_numbers)
        found = source.batches(labelled=False, size=size)
        for rows, _ in progress("predicting", found, shown):
            if len(rows) if isinstance(rows, list) else rows.shape[0]:
                lines.write(*_best(estimator, rows, k, proba, threshold, allowed))
            lines.write_bad()
            if is_pipe(file):
                stream.flush()
        lines.write_bad()
    source.report_bad_rows()


@dataclass
class _Lines:
    """Writes a line per row, good or bad, in the order of the file."""

    stream: IO[str]
    bad_rows: deque[RowError]  # not written yet
    as_json: bool
    row_numbers: bool
    n_written: int = 0

    def write(self, labels: list[list[Any]], scores: list[list[float]]) -> None:
        """Write the predictions of some rows, and the bad rows before them."""
        for answer in zip(labels, scores, strict=True):
            self.write_bad()
            self._write(_json_facts(*answer) if self.as_json else _line(*answer))

    def write_bad(self) -> None:
        """Write the bad rows that are next."""
        while self.bad_rows and self.bad_rows[0].n_before == self.n_written:
            error = self.bad_rows.popleft()
            self._write({"error": str(error)} if self.as_json else "")

    def _write(self, answer: dict[str, Any] | str) -> None:
        self.n_written += 1
        if isinstance(answer, dict):
            numbered = {"row": self.n_written, **answer} if self.row_numbers else answer
            line = json.dumps(numbered, ensure_ascii=False)
        else:
            line = f"{self.n_written}\t{answer}" if self.row_numbers else answer
        self.stream.write(f"{line}\n")


def _best(
    estimator: LTLSClassifier, rows: Any, k: int, proba: bool, threshold: bool, among: Any
) -> tuple[list[list[Any]], list[list[float]]]:
    """Return the best labels of every row, and their scores or probabilities."""
    labels, scores = estimator.predict_topk(rows, k, proba, among=among)
    if not threshold:
        return labels.tolist(), scores.tolist()
    ranked, given = estimator.predict_topk(rows, k, among=among)
    reached = zip(ranked, given >= estimator.threshold_, strict=True)
    kept = [set(row[above].tolist()) for row, above in reached]
    pairs = [
        [pair for pair in zip(*row, strict=True) if pair[0] in keep]
        for *row, keep in zip(labels.tolist(), scores.tolist(), kept, strict=True)
    ]
    return [[label for label, _ in row] for row in pairs], [[s for _, s in row] for row in pairs]


def _line(labels: list[Any], scores: list[float]) -> str:
    pairs = zip(labels, scores, strict=True)
    return "\t".join(f"{escaped(label)}:{score:.6g}" for label, score in pairs)


def _json_facts(labels: list[Any], scores: list[float]) -> dict[str, Any]:
    plain_labels = [
        label if isinstance(label, (str, int, float)) else str(label) for label in labels
    ]
    return {"labels": plain_labels, "scores": [float(f"{score:.6g}") for score in scores]}
