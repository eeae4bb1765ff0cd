"""``ltls`` at the terminal: train, predict, evaluate and info.

What takes long to import is imported inside the commands, so that ``ltls --help`` answers at once.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from . import __version__
from .terminal import console, run, show, show_facts

if TYPE_CHECKING:
    from .classifier import LTLSClassifier
    from .readers import Dataset, Stream

_ROWS_AT_A_TIME = 1 << 14
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})

Format = Enum("Format", {"svmlight": "svmlight", "xmc": "xmc"})
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
    },
)
Optimizer = Enum("Optimizer", {"adagrad": "adagrad", "sgd": "sgd"})
Dtype = Enum("Dtype", {"float32": "float32", "float16": "float16", "int8": "int8"})


def _option(default: str, help: str, *names: str, **limits: Any) -> Any:  # noqa: A002
    """Return an option whose None means `default`, which the help shows."""
    return typer.Option(*names, help=help, show_default=default, **limits)


def _switch(name: str, default: bool, help: str) -> Any:  # noqa: A002
    return _option(name if default else f"no-{name}", help, f"--{name}/--no-{name}")


ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, written by ltls train.")
]
_ROWS = "Rows with labels, in svmlight or xmc format; plain, .gz, .xz, .bz2 or .zst; - is stdin."
DataFile = Annotated[Path, typer.Argument(metavar="FILE", help=_ROWS)]
FormatOption = Annotated[
    Format | None,
    _option("by content", "Of the data file; xmc begins with three counts.", "--format"),
]
_BASES = "--zero-based/--one-based"
ZeroBased = Annotated[
    bool | None,
    _option(
        "as in training, or 1 unless a 0 occurs", "Where svmlight features count from.", _BASES
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")]

app = typer.Typer(
    help="Classification among very many classes in logarithmic time and space.",
    epilog="Example: ltls train train.txt -o model.ltls && ltls evaluate model.ltls test.txt",
    rich_markup_mode=None,  # panels cut the names of options short
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"ltls {__version__}")
        raise typer.Exit


@app.callback()
def _app(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: ltls train train.txt.gz -o model.ltls --width 8 --epochs 10")
def train(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="TRAIN", help=_ROWS)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")],
    file_format: FormatOption = None,
    zero_based: ZeroBased = None,
    preset: Annotated[Preset | None, _option("none", "Start from a paper's settings.")] = None,
    width: Annotated[int | None, _option("2", "States per slice of a trellis.", min=2)] = None,
    n_trellises: Annotated[
        int | None, _option("1", "Trellises whose scores are added.", min=1)
    ] = None,
    loss: Annotated[
        Loss | None, _option("auto", "What to minimise; auto is softmax or, multi-label, logistic.")
    ] = None,
    assignment: Annotated[Assignment | None, _option("random", "How labels get paths.")] = None,
    epochs: Annotated[int | None, _option("5", "Passes over the rows.", min=1)] = None,
    learning_rate: Annotated[float | None, _option("0.3", "Step size, above 0.", min=0)] = None,
    optimizer: Annotated[Optimizer | None, _option("adagrad", "How steps are taken.")] = None,
    average: Annotated[bool | None, _switch("average", False, "Average the weights.")] = None,
    shuffle: Annotated[bool | None, _switch("shuffle", True, "Mix the rows each epoch.")] = None,
    fit_intercept: Annotated[
        bool | None, _switch("fit-intercept", True, "Add a feature that is always 1.")
    ] = None,
    l1: Annotated[float | None, _option("0.0", "Soft threshold of the weights.", min=0)] = None,
    ranking_multiplier: Annotated[
        int | None, _option("1", "With --assignment ranking: how far to look.", min=1, max=9999)
    ] = None,
    validation_fraction: Annotated[
        float | None, _option("0.0", "Rows held out to stop early, below 1.", min=0, max=1)
    ] = None,
    n_jobs: Annotated[
        int | None,
        _option("1", "Threads; -1 is all cores. Learning uses one per trellis.", min=-1, max=9999),
    ] = None,
    random_state: Annotated[
        int | None, _option("none", "Seed, for the same result again.", min=0, max=2**32 - 1)
    ] = None,
    dtype: Annotated[Dtype | None, _option("float32", "Of the weights in the model file.")] = None,
    stream: Annotated[
        bool | None,
        _option(
            "where the rows take over half of the memory",
            "Read the file a part at a time, anew in every epoch; rows mix within a part.",
            "--stream/--no-stream",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Learn a model from a file of rows with labels.

    One label in every row makes a model that gives one label; any other file makes a multi-label
    model. Options that are not given keep the default shown, or the preset's. Ctrl-C ends the
    training early and saves what was learned.
    """
    from . import memory, presets
    from .classifier import LTLSClassifier
    from .readers import Stream, read

    if n_jobs == 0:
        raise ValueError("--n-jobs must not be 0; 1 is one thread, -1 all cores")
    names = LTLSClassifier().get_params()
    given = {name: context.params[name] for name in names if context.params.get(name) is not None}
    make = getattr(presets, preset.value) if preset else LTLSClassifier
    classifier = make(**{name: _plain(value) for name, value in given.items()})
    classifier.verbose = int(not quiet)
    classifier._validate_params()  # before reading takes its time
    _check_output(output, file)
    source = Stream if (not memory.fits(file) if stream is None else stream) else read
    base: Any = "auto" if zero_based is None else zero_based
    with console().status("reading"):
        data = source(file, _plain(file_format), zero_based=base, n_jobs=n_jobs)
    start = time.perf_counter()
    _fit(classifier, data, file)
    seconds = time.perf_counter() - start
    classifier._learned.zero_based = data.zero_based
    with _naming(output):
        classifier.save(output, _plain(dtype) or "float32")
    if not quiet:
        show_facts(_summary(classifier, data, seconds, output))


@app.command(epilog="Example: ltls predict model.ltls test.txt -k 3 -o answers.tsv")
def predict(
    model: ModelFile,
    file: DataFile,
    output: Annotated[
        Path | None, _option("standard output", "Where to write.", "--output", "-o")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many labels a row gets.")] = 5,
    file_format: FormatOption = None,
    zero_based: ZeroBased = None,
) -> None:
    """Write the k best labels of every row, one line a row, best first.

    A line is label:score label:score ... with a tab between. Scores of softmax models are
    log-probabilities, added up where there are several trellises.
    """
    from . import load

    if output:
        _check_output(output, model, file)
    classifier = load(model)
    if zero_based is None:
        zero_based = classifier._learned.zero_based
    data = _read(file, file_format, zero_based, classifier.n_features_in_)
    with _lines_to(output) as stream:
        # On a terminal the lines themselves are the progress.
        for rows in _batches(data, bar=not stream.isatty()):
            labels, scores = classifier.predict_topk(rows, k)
            for pairs in map(zip, labels.tolist(), scores.tolist()):
                answers = (
                    f"{str(label).translate(_ESCAPES)}:{score:.6g}" for label, score in pairs
                )
                stream.write("\t".join(answers) + "\n")


@app.command(epilog="Example: ltls evaluate model.ltls test.txt -k 1,5,10")
def evaluate(
    model: ModelFile,
    file: DataFile,
    k: Annotated[str, typer.Option("-k", metavar="K,K,...", help="Answers to count.")] = "1,3,5",
    file_format: FormatOption = None,
    zero_based: ZeroBased = None,
    as_json: Json = False,
) -> None:
    """Measure precision, recall and nDCG of a model's k best answers.

    Labels that the model never saw count as missed.
    """
    from . import load

    cutoffs = _cutoffs(k)
    classifier = load(model)
    if zero_based is None:
        zero_based = classifier._learned.zero_based
    data = _read(file, file_format, zero_based, classifier.n_features_in_)
    report = _report(classifier, data, cutoffs)
    if as_json:
        print(json.dumps(report))
        return
    names = ("precision", "recall", "ndcg")
    rows = [(row["k"], *(f"{row[name]:.4f}" for name in names)) for row in report.pop("metrics")]
    show(rows, "k", "P@k", "R@k", "nDCG@k")
    show_facts(report)


@app.command(epilog="Example: ltls info model.ltls")
def info(
    model: ModelFile,
    as_json: Json = False,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check all weights for damage.")
    ] = True,
) -> None:
    """Say what a model file holds, and whether it is whole."""
    from .model_file import describe

    facts = describe(model, verify=verify)
    # As text where JSON has no such kind: class weights of labels that are tuples or bytes.
    parameters = {name: _plain(value) for name, value in facts["parameters"].items()}
    if as_json:
        print(json.dumps({**facts, "parameters": parameters}))
    else:
        settings = ", ".join(f"{name}={value}" for name, value in parameters.items())
        show_facts({**facts, "parameters": settings})


# Reading, learning and answering


def _read(
    path: Path, file_format: Format | None, zero_based: bool | None, n_features: int
) -> Dataset:
    """Read a data file with a model's number of features."""
    from .readers import read

    with console().status("reading"):
        try:
            kind = _plain(file_format)
            return read(path, kind, n_features, "auto" if zero_based is None else zero_based)
        except ValueError as error:
            if not re.search("n_features|feature index", str(error)):
                raise
            raise ValueError(f"the model has {n_features} features; {error}") from None


def _fit(classifier: LTLSClassifier, data: Dataset | Stream, path: Path) -> None:
    import numpy as np

    from .readers import Stream

    if isinstance(data, Stream):
        classifier.fit_stream(data)
    else:
        n_labels = len(np.unique(data.Y.indices))
        if n_labels < 2:
            raise ValueError(f"{path}: training needs at least 2 different labels, got {n_labels}")
        classifier.fit(data.X, data.targets)
    classifier.verbose = 0  # who loads the model may want silence


def _batches(data: Dataset, bar: bool = True) -> Iterator[Any]:
    """Give the features of some rows at a time, with a progress bar."""
    from rich.progress import track

    steps = range(0, data.X.shape[0], _ROWS_AT_A_TIME)
    for first in track(steps, "answering", console=console(), transient=True, disable=not bar):
        yield data.X[first : first + _ROWS_AT_A_TIME]


def _report(classifier: LTLSClassifier, data: Dataset, cutoffs: list[int]) -> dict[str, Any]:
    import numpy as np

    from . import metrics

    # Answers become columns of the file's labels; one that the file lacks is -1, always wrong.
    names = range(data.n_labels) if data.classes is None else data.classes.tolist()
    column = {name: number for number, name in enumerate(names)}
    topk = np.full((data.X.shape[0], cutoffs[-1]), -1)
    answers, seconds = iter(topk), 0.0
    for rows in _batches(data):
        start = time.perf_counter()
        best, _ = classifier.predict_topk(rows, cutoffs[-1])
        seconds += time.perf_counter() - start
        for labels in best.tolist():
            next(answers)[: len(labels)] = [column.get(label, -1) for label in labels]
    occurring = {names[number] for number in np.unique(data.Y.indices).tolist()}
    return {
        "rows": data.X.shape[0],
        "labels": len(occurring),
        "unknown_labels": len(occurring.difference(classifier.classes_.tolist())),
        "microseconds_per_row": round(1e6 * seconds / data.X.shape[0], 3),
        "metrics": [
            {
                "k": k,
                "precision": metrics.precision_at_k(data.Y, topk, k),
                "recall": metrics.recall_at_k(data.Y, topk, k),
                "ndcg": metrics.ndcg_at_k(data.Y, topk, k),
            }
            for k in cutoffs
        ],
    }


def _cutoffs(text: str) -> list[int]:
    if not re.fullmatch(r"[1-9]\d{0,3}(,[1-9]\d{0,3})*", text):
        raise ValueError(f"-k must be numbers from 1 to 9999 with commas between, got {text!r}")
    return sorted({int(k) for k in text.split(",")})


# Writing


def _check_output(path: Path, *inputs: Path) -> None:
    """Refuse what could not be written before the work, not after it."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file that can be replaced")
    if path.exists() and any(other.exists() and path.samefile(other) for other in inputs):
        raise ValueError(f"{path}: cannot be read and replaced at once")
    with _naming(path), tempfile.TemporaryFile(dir=path.parent):
        pass


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let errors of writing name the file; a full disk's does not."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


@contextmanager
def _lines_to(path: Path | None) -> Iterator[TextIO]:
    """Open standard output, or a file that appears whole or not at all."""
    from .atomic import replacing

    if path is None:
        yield sys.stdout
        return
    with _naming(path), replacing(path) as temporary, open(temporary, "w", -1, "utf-8") as stream:
        yield stream


def _summary(
    classifier: LTLSClassifier, data: Dataset | Stream, seconds: float, output: Path
) -> dict[str, Any]:
    from rich.filesize import decimal

    return {
        "rows": data.n_rows,
        "features": classifier.n_features_in_,
        "labels": len(classifier.classes_),
        "multilabel": classifier.multilabel_,
        "edges": classifier.trellis_.n_edges,
        "epochs": classifier.n_iter_,
        "seconds": round(seconds, 2),
        "model": f"{output} ({decimal(output.stat().st_size)})",
    }


def _plain(value: Any) -> Any:
    """Return a choice's own value, and the text of what is no number or text."""
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


# Running


def main() -> None:
    """Run the command line that the process was started with, and end it."""
    # They are None where they were closed, with >&-.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    sys.exit(run(app, sys.argv[1:] or ["--help"]))


if __name__ == "__main__":
    main()
