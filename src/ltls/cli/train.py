"""``ltls train``: from a file of labelled rows to a model file."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from ..estimators import presets
from ..estimators.classifier import LTLSClassifier
from ..estimators.table_classifier import TableClassifier
from ..estimators.text import TextClassifier
from ..io.table_stream import split_columns
from ..structure.losses import LOSSES
from ..structure.policies import POLICIES
from ..training.checkpoint import Checkpoint
from ..training.interrupt import TrainingInterruptedWarning
from .cluster import check_for_cluster, fit_on_cluster
from .messages import note, noticed, set_verbosity, warn
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
    RayAddress,
    Separator,
    SkipBadRows,
    TextColumns,
    Verbose,
    ZeroBased,
    check_columns,
    choice,
    option,
    switch,
)
from .output import check_output, errors_named, is_standard_output, model_output
from .rows import cluster_rows, training_rows
from .running import INTERRUPTED, Terminated
from .source import Source, row_errors_explained
from .terminal import show_facts

PRESETS = {"paper": presets.paper}
OPTIMIZERS = ("adagrad", "sgd")

_CHECKPOINT_SECONDS = 60.0  # between checkpoints, if --checkpoint is not given
_TEXT_RANGES = ("ngram_range", "char_ngram_range")


def train(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="TRAIN...", help=DATA_FILES)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
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
    preset: Annotated[
        str | None, choice(PRESETS, "none", "Start from the hyperparameters of a paper.")
    ] = None,
    width: Annotated[int | None, option("auto", "States per slice of a trellis.", min=2)] = None,
    n_trellises: Annotated[int | None, option("auto", "Number of trellises.", min=1)] = None,
    bucket_size: Annotated[
        int | None, option("auto", "Number of labels that share a path.", min=1)
    ] = None,
    label_weights: Annotated[
        bool | None,
        option("auto", "Rerank with sparse label weights.", "--label-weights/--no-label-weights"),
    ] = None,
    embedding_dim: Annotated[
        int | None, option("0", "Dimension of the embedding reranker; 0 for none.", min=0)
    ] = None,
    propensity: Annotated[
        str | None,
        option("0.0", "Strength of preferring rare labels, or auto.", metavar="FLOAT|auto"),
    ] = None,
    density: Annotated[
        float | None, option("auto", "Fraction of the weights to keep.", min=0, max=1)
    ] = None,
    size_budget: Annotated[
        str | None, option("none", "Maximum file size, as 5MB: the smallest weights are dropped.")
    ] = None,
    loss: Annotated[
        str | None,
        choice(
            {"auto": None, **LOSSES},
            "auto",
            "Loss function; auto is softmax, or logistic for multi-label data.",
        ),
    ] = None,
    assignment: Annotated[
        str | None, choice(POLICIES, "random", "Policy that assigns labels to paths.")
    ] = None,
    epochs: Annotated[int | None, option("auto", "Number of epochs.", min=1)] = None,
    learning_rate: Annotated[float | None, option("0.7", "Learning rate, above 0.", min=0)] = None,
    optimizer: Annotated[str | None, choice(OPTIMIZERS, "adagrad", "Optimizer.")] = None,
    average: Annotated[
        bool | None, switch("average", False, "Average the weights over all updates.")
    ] = None,
    shuffle: Annotated[
        bool | None, switch("shuffle", True, "Shuffle the rows in every epoch.")
    ] = None,
    normalize: Annotated[
        bool | None,
        option("if they are sparse", "Scale rows to unit length.", "--normalize/--no-normalize"),
    ] = None,
    fit_intercept: Annotated[bool | None, switch("fit-intercept", True, "Fit intercepts.")] = None,
    l1: Annotated[float | None, option("0.0", "L1 regularization strength.", min=0)] = None,
    ranking_multiplier: Annotated[
        int | None,
        option("1", "With --assignment ranking: how many paths to rank.", min=1, max=9999),
    ] = None,
    validation_fraction: Annotated[
        float | None,
        option("auto", "Fraction of rows held out for early stopping.", min=0, max=1),
    ] = None,
    replay_size: Annotated[
        int | None,
        option("10000", "Training rows to keep for partial_fit, at most; 0 for none.", min=0),
    ] = None,
    ngram_range: Annotated[
        str | None, option("1,2", "Texts: word n-grams, or none.", metavar="N,M")
    ] = None,
    char_ngram_range: Annotated[
        str | None,
        option(
            "auto", "Texts: character n-grams, none, or auto: 2,4 for short texts.", metavar="N,M"
        ),
    ] = None,
    min_df: Annotated[
        int | None, option("1", "Texts: ignore n-grams in fewer texts.", min=1)
    ] = None,
    n_features: Annotated[
        int | None, option("no hashing", "Texts: hash n-grams to this many features.", min=1)
    ] = None,
    n_jobs: Annotated[
        int | None,
        option("1", "Number of threads; -1 is all cores.", min=-1, max=9999),
    ] = None,
    random_state: Annotated[
        int | None, option("none", "Random seed.", min=0, max=2**32 - 1)
    ] = None,
    dtype: Annotated[str | None, choice(DTYPES, "int8", "Type of the stored weights.")] = None,
    resumable: Annotated[
        bool,
        typer.Option("--resumable", help="Store all that partial_fit continues from exactly."),
    ] = False,
    stream: Annotated[
        bool | None,
        option(
            "if the rows take more than the free memory",
            "Read the files in chunks in every epoch; rows are shuffled within a chunk.",
            "--stream/--no-stream",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        option("OUTPUT.checkpoint, every minute", "Write a checkpoint here after every epoch."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint.")] = False,
    ray: RayAddress = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="With --ray: tasks that train together.")
    ] = 2,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on files of labelled rows.

    The data are sparse features (svmlight, xmc), tables (csv, tsv, jsonl, parquet) whose columns
    are given by --label and --text or --features, or fastText's __label__ lines. --text, --number
    and --category go together: numbers are scaled, every category is a feature, and missing values
    are filled in. If every row has exactly one label the model is multi-class, else multi-label.
    Several files, and a quoted pattern such as 'part*.csv', are one data set.

    Options that are not given have the default shown, or that of the preset; auto depends on the
    size of the data. Ctrl-C stops the training, saves the weights learned so far, and exits with
    code 130. Resuming is bit-identical to a training that was never interrupted. SIGTERM ends the
    training at once; what --checkpoint has written after the last epoch stays.

    With --ray, the files are Parquet files with rows in random order that every node of the cluster
    can read. The checkpoint is for the case that this command dies; workers may die at any time.
    """
    set_verbosity(verbose, quiet)
    if n_jobs == 0:
        raise ValueError("--n-jobs must not be 0; 1 is one thread, -1 all cores")
    check_columns(text=text, number=number, category=category)
    text_column, mixed = split_columns(text, number or (), category or ())
    output = model_output(output)
    piped = is_standard_output(output)
    place = checkpoint or (None if piped else output.with_name(f"{output.name}.checkpoint"))
    if place == output:
        raise ValueError("--checkpoint and --output must be different files")
    if place is None and resume:
        raise ValueError("--resume needs --checkpoint if the output is no regular file")
    check_output(output, *files, special=True)
    state = None
    if place is not None:
        check_output(place, *files)
        state = Checkpoint(place, resume, 0.0 if checkpoint else _CHECKPOINT_SECONDS)
        state.check()
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
    kind: type[LTLSClassifier] = LTLSClassifier
    if mixed is not None:
        kind = TableClassifier
    elif text_column or source.format.kind == "text":
        kind = TextClassifier
    estimator = _estimator(context.params, preset, kind)
    estimator.check_parameters()  # before the file is read
    if ray is not None:
        check_for_cluster(source, stream)
    data = training_rows(source, stream, n_jobs) if ray is None else cluster_rows(source)
    note(f"{'all' if data.n_rows is None else f'{data.n_rows:,}'} rows; {estimator}")
    estimator.verbose = int(not quiet)
    start = time.perf_counter()
    try:
        with noticed(TrainingInterruptedWarning) as interruptions, row_errors_explained():
            if ray is not None:
                fit_on_cluster(estimator, source, ray, workers, state)
            elif data.y is None:
                estimator.fit_stream(data.X, checkpoint=state)
            else:
                estimator.fit(data.X, data.y, checkpoint=state)
    except Terminated:
        if place is not None and place.exists():
            warn(f"training was terminated; --resume continues from {place}")
        raise
    seconds = time.perf_counter() - start
    if data.y is None:
        source.report_bad_rows()  # of a stream, read only now
    data.record_in(estimator)
    with errors_named(output):
        estimator.save(output, dtype, resumable)
    interrupted = bool(interruptions)
    if interrupted:
        saved = place is not None and place.exists()
        hint = "; --resume continues from the checkpoint" if saved else ""
        warn(f"training was interrupted; {output} has the weights learned so far{hint}")
    elif place is not None:
        place.unlink(missing_ok=True)
    if not piped:
        _report(_summary(estimator, seconds, output, source.n_bad_rows), as_json, quiet)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _report(facts: dict[str, Any], as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json.dumps(facts))
    elif not quiet:
        size = decimal(facts.pop("bytes"))
        show_facts({**facts, "model": f"{facts['model']} ({size})"})


def _estimator(
    given: dict[str, Any], preset: str | None, make: type[LTLSClassifier]
) -> LTLSClassifier:
    """Return the estimator that the options describe."""
    if preset and make is not LTLSClassifier:
        raise ValueError("--preset is for features, not for texts")
    names = make().get_params()
    for name in (*_TEXT_RANGES, "min_df", "n_features"):
        if given.get(name) is not None and name not in names:
            raise ValueError(
                f"--{name.replace('_', '-')} is for texts; name the text column with --text"
            )
    parameters = {name: given[name] for name in names if given.get(name) is not None}
    for name in _TEXT_RANGES:
        if name in parameters:
            parameters[name] = _range(name, parameters[name])
    if "propensity" in parameters:
        parameters["propensity"] = _strength(parameters["propensity"])
    return PRESETS[preset](**parameters) if preset else make(**parameters)


def _strength(given: str) -> float | str:
    if given.lower() == "auto":
        return "auto"
    try:
        return float(given)
    except ValueError:
        raise ValueError(f"--propensity must be a number or auto, got {given!r}") from None


def _range(name: str, given: str) -> tuple[int, int] | str | None:
    if given.lower() == "none":
        return None
    if given.lower() == "auto" and name == "char_ngram_range":
        return "auto"
    found = re.fullmatch(r"(\d{1,2}),(\d{1,2})", given)
    if not found:
        name = name.replace("_", "-")
        raise ValueError(f"--{name} must be two numbers, as 1,2, or none, got {given!r}")
    return int(found[1]), int(found[2])


def _summary(
    estimator: LTLSClassifier, seconds: float, output: Path, n_bad_rows: int
) -> dict[str, Any]:
    model = estimator.model_
    return {
        "rows": model.n_rows,
        **({"bad_rows": n_bad_rows} if n_bad_rows else {}),
        "features": estimator.n_features_in_,
        "labels": len(estimator.classes_),
        "multilabel": estimator.multilabel_,
        "width": estimator.trellis_.width,
        "trellises": len(model.codebooks),
        "edges": estimator.trellis_.n_edges,
        "epochs": estimator.n_iter_,
        "seconds": round(seconds, 2),
        "model": str(output),
        "bytes": output.stat().st_size,
    }
