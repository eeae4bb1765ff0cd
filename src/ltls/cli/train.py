"""``ltls train``: from a file of labelled rows to a model file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..features.columns import split_columns
from . import options, settings
from .app import code_of_signal
from .cluster import check_for_cluster, fit_on_cluster
from .output import (
    check_output,
    errors_named,
    is_standard_output,
    note,
    set_verbosity,
    show_facts,
    warn,
)
from .source import Source

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier
    from ..features.front_ends import FrontEndSettings
    from ..training.checkpoint import Checkpoint

PRESETS = ("paper",)  # functions of `ltls.presets`
# Options for common settings; --set takes all of them.
SHORT = {
    "width": "trellises.width",
    "epochs": "trellises.epochs",
    "loss": "trellises.loss",
    "views": "views",
    "size_budget": "size_budget",
    "n_jobs": "n_jobs",
    "random_state": "random_state",
}
_CHECKPOINT_SECONDS = 60.0  # between checkpoints, if --checkpoint is not given


def _setting(default: str, help: str) -> Any:  # noqa: A002
    """Return an option for a setting of `SHORT`; its class, slow to import, checks the value."""
    return options.option(default, help, metavar="VALUE")


def _columns(kind: str) -> Any:
    return options.option(
        "none",
        f"{kind.capitalize()} column; cells may be empty; may be repeated.",
        f"--{kind}",
        metavar="COLUMN",
    )


def train(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="TRAIN...", help=options.DATA_FILES)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    text: Annotated[list[str] | None, _columns("text")] = None,
    number: Annotated[list[str] | None, _columns("number")] = None,
    category: Annotated[list[str] | None, _columns("category")] = None,
    label: options.LabelColumn = None,
    labels: options.LabelFile = None,
    features: options.FeatureColumns = None,
    separator: options.Separator = None,
    file_format: options.FileFormat = None,
    encoding: options.Encoding = None,
    zero_based: options.ZeroBased = None,
    skip_bad_rows: options.SkipBadRows = False,
    preset: Annotated[
        str | None,
        options.option("none", f"Start from the settings of a preset: {', '.join(PRESETS)}."),
    ] = None,
    width: Annotated[
        str | None, _setting("auto", "States per slice; wider is larger and more accurate.")
    ] = None,
    epochs: Annotated[
        str | None, _setting("auto", "Number of passes over the training data.")
    ] = None,
    loss: Annotated[
        str | None, _setting("auto", "Training loss: softmax, separation or logistic.")
    ] = None,
    views: Annotated[
        str | None,
        _setting("auto", "Whether labels are clustered; with false, each has its own path."),
    ] = None,
    size_budget: Annotated[
        str | None,
        _setting(
            "none",
            "Maximum size of the model file, such as 5MB; whatever costs the least accuracy is "
            "left out until it fits.",
        ),
    ] = None,
    n_jobs: Annotated[
        str | None,
        _setting("1", "Number of threads; -1 means all cores. Results do not depend on it."),
    ] = None,
    random_state: Annotated[
        str | None, _setting("none", "Seed; with it, the same rows give the same model.")
    ] = None,
    chosen: Annotated[
        list[str] | None,
        options.option(
            "none",
            "Any setting, such as trellises.l1=0.5; may be repeated. ltls settings lists them.",
            "--set",
            metavar="NAME=VALUE",
        ),
    ] = None,
    resumable: Annotated[
        bool,
        options.flag(
            "Store the full training state, so that partial_fit continues exactly.", "--resumable"
        ),
    ] = False,
    stream: Annotated[
        bool | None,
        options.option(
            "if the rows take more than the free memory",
            "Read the files in chunks in every epoch; rows are shuffled within a chunk.",
            "--stream/--no-stream",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        options.option(
            "OUTPUT.checkpoint, every minute", "Write a checkpoint here after every epoch."
        ),
    ] = None,
    resume: Annotated[bool, options.flag("Resume from the checkpoint.", "--resume")] = False,
    ray: options.RayAddress = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="With --ray: number of parallel tasks.")
    ] = 2,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a model on files of labelled rows.

    Data files hold sparse features (svmlight, xmc), vectors (npy) with a file of --labels, tables
    (csv, tsv, jsonl, parquet) with columns named by --label and --text or --features, or fastText's
    __label__ lines. --text, --number, --category and --vectors can be combined: numbers are scaled,
    every category is a feature, and missing values are filled in. If every row has exactly one
    label, the model is multi-class, otherwise multi-label. Several files, or a quoted pattern such
    as 'part*.csv', form one data set.

    Settings that are not given have their default, or that of the preset; auto depends on the size
    of the data. Once the epochs have begun, Ctrl-C and SIGTERM write a checkpoint and stop;
    resuming from it gives the same model, bit for bit, as an uninterrupted run. To keep the weights
    trained so far instead, give --resume and --epochs with the number of epochs done.

    With --ray, the files are Parquet files that every node of the cluster can read, with rows in
    random order. Workers may die at any time; the checkpoint is needed only if this command dies.
    """
    set_verbosity(verbose, quiet)
    if preset and preset not in PRESETS:
        raise ValueError(f"--preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    given = _given_settings(context.params, chosen)
    output = Path("/dev/stdout") if str(output) == "-" else output
    check_output(output, *files, special=True)
    for kind, columns in {"text": text, "number": number, "category": category}.items():
        if "" in (columns or ()):
            raise ValueError(f"--{kind} needs the name of the {kind} column")
    # With other columns, vectors are a column of the table; alone, they are the features.
    beside = tuple(filter(None, (features or "").split(","))) if text or number or category else ()
    text_column, table = split_columns(text, number or (), category or (), beside)
    piped = is_standard_output(output)
    place = checkpoint or (None if piped else output.with_name(f"{output.name}.checkpoint"))
    others = {"features": None} if beside else {}
    with _told_if_interrupted(place):  # a pipe may have no row yet
        source = Source.of(context.params, files, text=text_column, table=table, **others)
    source.check_training()
    values = settings.parse(given)
    # Slow; not needed to reject wrong options.
    from ..features.front_ends import Table, Text
    from ..training.progress import phase
    from .rows import recorded_columns, training_rows

    state = _checkpoint(place, output, files, resume, every_epoch=checkpoint is not None)
    front_end: FrontEndSettings | str = "auto"
    if table is not None:
        front_end = Table(**asdict(table))
    elif text_column or source.format.kind == "text":
        front_end = Text()
    estimator = _estimator(preset, front_end, values)
    if ray is not None:
        check_for_cluster(source, stream)
        X, y, facts = None, None, {"columns": recorded_columns(source)}
    else:
        with _told_if_interrupted(place), phase(not quiet, "reading"):
            X, y, facts = training_rows(source, stream, estimator.n_jobs)
        source.report_bad_rows()
    note(str(estimator))
    estimator.verbose = int(not quiet)
    start = time.perf_counter()
    with _told_if_interrupted(place):
        if ray is not None:
            fit_on_cluster(estimator, source, ray, workers, state)
        elif y is None:
            estimator.fit_stream(X, checkpoint=state)
        else:
            estimator.fit(X, y, checkpoint=state)
    seconds = time.perf_counter() - start
    if y is None:
        source.report_bad_rows()  # streamed rows were read only now
    estimator.verbose = 0  # for the estimator when it is loaded
    estimator.record_source(**facts)
    with errors_named(output), phase(not quiet, "saving"):
        estimator.save(output, resumable)
    if place is not None:
        place.unlink(missing_ok=True)
    if not piped:
        _report(_summary(estimator, seconds, output, source.n_bad_rows), as_json, quiet)


@contextmanager
def _told_if_interrupted(place: Path | None) -> Iterator[None]:
    """Say how training continues if the block is interrupted."""
    try:
        yield
    except BaseException as error:
        if code_of_signal(error):
            there = place is not None and place.exists()
            how = (
                f"; --resume continues from {place}" if there else " before there was a checkpoint"
            )
            warn(f"training was interrupted{how}")
        raise


def _given_settings(words: dict[str, Any], chosen: list[str] | None) -> list[tuple[str, str, str]]:
    """Return the settings that were given: options as named in messages, names and values."""
    given = [
        (f"--{option.replace('_', '-')}", name, words[option])
        for option, name in SHORT.items()
        if words[option] is not None
    ]
    for word in chosen or ():
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, such as trellises.width=16, got {word!r}")
        given.append((f"--set {name}", name, value))
    return given


def _checkpoint(
    place: Path | None, output: Path, files: list[Path], resume: bool, every_epoch: bool
) -> Checkpoint | None:
    if place is None:
        if resume:
            raise ValueError("--resume needs --checkpoint if the output is not a regular file")
        return None
    from ..training.checkpoint import Checkpoint

    if place == output:
        raise ValueError("--checkpoint and --output must be different files")
    check_output(place, *files)
    state = Checkpoint(place, resume, 0.0 if every_epoch else _CHECKPOINT_SECONDS)
    state.check()
    return state


def _estimator(
    preset: str | None, front_end: FrontEndSettings | str, values: dict[str, Any]
) -> LTLSClassifier:
    """Return the estimator that the options describe."""
    if preset and front_end != "auto":
        raise ValueError("--preset is for features, not for texts or tables: leave out --preset")
    from sklearn.base import clone

    from .. import presets
    from ..estimators.classifier import LTLSClassifier

    estimator = getattr(presets, preset)() if preset else LTLSClassifier(features=front_end)
    settings.apply(estimator, values)
    estimator.check()
    trained: LTLSClassifier = clone(estimator)  # in a clone, Ctrl-C raises KeyboardInterrupt
    return trained


def _summary(
    estimator: LTLSClassifier, seconds: float, output: Path, n_bad_rows: int
) -> dict[str, Any]:
    precision = estimator.held_out_precision_
    return {
        "rows": estimator.fitted_.provenance.n_rows,
        **({"bad_rows": n_bad_rows} if n_bad_rows else {}),
        "features": estimator.n_features_in_,
        "labels": len(estimator.classes_),
        "multilabel": estimator.multilabel_,
        "plan": estimator.plan_,
        "parts": ", ".join(part.name for part in estimator.model_.parts),
        "epochs": estimator.n_iter_,
        **({} if precision is None else {"held_out_precision": round(precision, 4)}),
        "seconds": round(seconds, 2),
        "model": str(output),
        "bytes": output.stat().st_size,
    }


def _report(facts: dict[str, Any], as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json.dumps(facts))
    elif not quiet:
        from rich.filesize import decimal

        size = decimal(facts.pop("bytes"))
        show_facts({**facts, "model": f"{facts['model']} ({size})"})
