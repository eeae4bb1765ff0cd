"""``ltls train``: from a file of rows with labels to a model file."""

from __future__ import annotations

import json
import re
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal import listen, note, show_facts, warn
from .data import Source, TrainingSet, training_set
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
    TextColumn,
    Verbose,
    ZeroBased,
    option,
    plain,
    switch,
)
from .writing import check_output, naming

if TYPE_CHECKING:
    from ..training.checkpoint import Checkpoint
    from ..estimators.classifier import LTLSClassifier

Preset = Enum("Preset", {"paper": "paper"})  # a function of ltls.presets
Loss = Enum(
    "Loss",
    {
        "auto": "auto",
        "softmax": "softmax",
        "separation": "separation",
        "logistic": "logistic",
    },
)
Assignment = Enum(
    "Assignment",
    {
        "random": "random",
        "ranking": "ranking",
        "similarity": "similarity",
        "frequency": "frequency",
        "learned": "learned",
    },
)
Optimizer = Enum("Optimizer", {"adagrad": "adagrad", "sgd": "sgd"})

_CHECKPOINT_SECONDS = 60.0  # between checkpoints that nobody asked for


def train(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="TRAIN", help=ROWS)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")],
    text: TextColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    separator: Separator = None,
    file_format: FormatOption = None,
    zero_based: ZeroBased = None,
    skip_bad_rows: SkipBadRows = False,
    preset: Annotated[Preset | None, option("none", "Start from a paper's settings.")] = None,
    width: Annotated[int | None, option("auto", "States per slice of a trellis.", min=2)] = None,
    n_trellises: Annotated[
        int | None, option("auto", "Trellises whose scores are added.", min=1)
    ] = None,
    rescore: Annotated[
        int | None, option("auto", "Rank of an embedding that rescores; 0 for none.", min=0)
    ] = None,
    size_budget: Annotated[
        str | None, option("none", "The largest model that fits, instead of a width: 5MB.")
    ] = None,
    loss: Annotated[
        Loss | None, option("auto", "What to minimise; auto is softmax or, multi-label, logistic.")
    ] = None,
    assignment: Annotated[Assignment | None, option("random", "How labels get paths.")] = None,
    epochs: Annotated[int | None, option("auto", "Passes over the rows.", min=1)] = None,
    learning_rate: Annotated[float | None, option("0.7", "Step size, above 0.", min=0)] = None,
    optimizer: Annotated[Optimizer | None, option("adagrad", "How steps are taken.")] = None,
    average: Annotated[bool | None, switch("average", False, "Average the weights.")] = None,
    shuffle: Annotated[bool | None, switch("shuffle", True, "Mix the rows each epoch.")] = None,
    normalize: Annotated[
        bool | None,
        option("where they are sparse", "Scale rows to length 1.", "--normalize/--no-normalize"),
    ] = None,
    fit_intercept: Annotated[
        bool | None, switch("fit-intercept", True, "Add a feature that is always 1.")
    ] = None,
    l1: Annotated[float | None, option("0.0", "Soft threshold of the weights.", min=0)] = None,
    ranking_multiplier: Annotated[
        int | None, option("1", "With --assignment ranking: how far to look.", min=1, max=9999)
    ] = None,
    validation_fraction: Annotated[
        float | None, option("auto", "Rows held out to stop early, below 1.", min=0, max=1)
    ] = None,
    ngram_range: Annotated[
        str | None, option("1,2", "Of texts: words in a feature; none for no words.", metavar="N,M")
    ] = None,
    char_ngram_range: Annotated[
        str | None, option("2,4", "Of texts: characters in a feature, or none.", metavar="N,M")
    ] = None,
    min_df: Annotated[
        int | None, option("1", "Of texts: leave out what fewer of them have.", min=1)
    ] = None,
    n_features: Annotated[
        int | None, option("no hashing", "Of texts: hash n-grams into so many features.", min=1)
    ] = None,
    n_jobs: Annotated[
        int | None,
        option("1", "Threads; -1 is all cores. Learning uses one per trellis.", min=-1, max=9999),
    ] = None,
    random_state: Annotated[
        int | None, option("none", "Seed, for the same result again.", min=0, max=2**32 - 1)
    ] = None,
    dtype: Annotated[
        Dtype | None, option("float32; int8 under a size budget", "Of the weights in the file.")
    ] = None,
    stream: Annotated[
        bool | None,
        option(
            "where the rows take over half of the memory",
            "Read features a part at a time, anew in every epoch; rows mix within a part.",
            "--stream/--no-stream",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        option("OUTPUT.checkpoint, once a minute", "Keep the state here after every epoch."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint of a stopped training.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Learn a model from a file of rows with labels.

    Rows are sparse features (svmlight, xmc), or those of a table (csv, tsv, jsonl, parquet) whose
    columns --text or --features and --label name, or fastText's __label__ lines. One label in
    every row makes a model that gives one label; any other file makes a multi-label model.

    Options that are not given keep the default shown, or the preset's; what auto is depends on the
    size of the data. Ctrl-C ends the training early and saves
    what was learned; --resume goes on, with the result of a training that was never stopped.
    """
    from rich.filesize import decimal

    from ..training.checkpoint import Checkpoint

    listen(verbose, quiet)
    if n_jobs == 0:
        raise ValueError("--n-jobs must not be 0; 1 is one thread, -1 all cores")
    if text == "":
        raise ValueError("--text must name the column of texts")
    check_output(output, file)
    place = checkpoint or output.with_name(f"{output.name}.checkpoint")
    if place == output:
        raise ValueError("--checkpoint must be another file than --output")
    check_output(place, file)
    state = Checkpoint(place, resume, 0.0 if checkpoint else _CHECKPOINT_SECONDS)
    state.check()
    source = Source(file, plain(file_format), text, label, features, separator, zero_based,
                    skip_bad_rows)  # fmt: skip
    classifier = _classifier(context.params, preset, bool(text) or source.format == "fasttext")
    classifier._validate_params()  # before reading takes its time
    data = training_set(source, stream, n_jobs)
    note(f"{'all' if data.n_rows is None else f'{data.n_rows:,}'} rows; {classifier}")
    classifier.verbose = int(not quiet)
    start = time.perf_counter()
    ended = _fit(classifier, data, state)
    seconds = time.perf_counter() - start
    with naming(output):
        classifier.save(output, plain(dtype))
    if ended:
        place.unlink(missing_ok=True)
    elif place.exists():
        warn(f"the same command with --resume goes on from {place}")
    facts = _summary(classifier, seconds, output, source.bad_rows)
    if as_json:
        print(json.dumps(facts))
    elif not quiet:
        size = decimal(facts.pop("bytes"))
        show_facts({**facts, "model": f"{output} ({size})"})


def _classifier(given: dict[str, Any], preset: Any, texts: bool) -> LTLSClassifier:
    """Return the estimator that the options ask for."""
    from ..estimators import presets
    from ..estimators.classifier import LTLSClassifier
    from ..estimators.text import TextClassifier

    if preset and texts:
        raise ValueError("--preset is for features; leave it out for texts")
    make: Any = TextClassifier if texts else LTLSClassifier
    names = make().get_params()
    for name in ("ngram_range", "char_ngram_range", "min_df", "n_features"):
        if given.get(name) is not None and name not in names:
            raise ValueError(
                f"--{name.replace('_', '-')} is for texts; name their column by --text"
            )
    settings = {name: plain(given[name]) for name in names if given.get(name) is not None}
    for name in ("ngram_range", "char_ngram_range"):
        if name in settings:
            settings[name] = _range(name, settings[name])
    return (getattr(presets, preset.value) if preset else make)(**settings)  # type: ignore[no-any-return]


def _range(name: str, given: str) -> tuple[int, int] | None:
    if given.lower() == "none":
        return None
    found = re.fullmatch(r"(\d{1,2}),(\d{1,2})", given)
    if not found:
        option = name.replace("_", "-")
        raise ValueError(f"--{option} must be two numbers as 1,2 or none, got {given!r}")
    return int(found[1]), int(found[2])


def _fit(classifier: LTLSClassifier, data: TrainingSet, checkpoint: Checkpoint) -> bool:
    """Learn, and tell whether that was not interrupted."""
    if data.y is None:
        classifier.fit_stream(data.X, checkpoint=checkpoint)
    else:
        classifier.fit(data.X, data.y, checkpoint=checkpoint)
    data.note_in(classifier)
    return checkpoint.ended


def _summary(
    classifier: LTLSClassifier, seconds: float, output: Path, bad_rows: int
) -> dict[str, Any]:
    return {
        "rows": classifier._learned.n_rows,
        **({"bad_rows": bad_rows} if bad_rows else {}),
        "features": classifier.n_features_in_,
        "labels": len(classifier.classes_),
        "multilabel": classifier.multilabel_,
        "width": classifier.trellis_.width,
        "trellises": len(classifier._learned.codebooks),
        "edges": classifier.trellis_.n_edges,
        "epochs": classifier.n_iter_,
        "seconds": round(seconds, 2),
        "model": str(output),
        "bytes": output.stat().st_size,
    }
