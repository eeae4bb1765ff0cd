"""A first look: learn from the standard library's code which token comes next, and show it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..estimators.classifier import LTLSClassifier
from ..storage.model_file import load
from .python_tokens import Examples, examples_of, features_before, files_below, tokens_of

if TYPE_CHECKING:
    from rich.console import Console

N_EXAMPLES, N_HELD_OUT = 1_000_000, 50_000
WIDTHS = (2, 4)  # whose models are compared with the first one, of WIDTH
WIDTH, EPOCHS = 8, 2
MODEL = "python_tokens.ltls"
PREFIXES = (
    "if __name__ ==",
    "for i in",
    "def __init__(self",
    "from collections import",
    'with open(path, "rb") as',
    "except KeyError",
    "return isinstance(value,",
    "raise ValueError",
    "while True",
    "self.assertEqual(",
)


@dataclass(frozen=True)
class Scores:
    """How many held-out tokens are right, at the first and within five answers."""

    precision: float
    recall: float

    @classmethod
    def of(cls, answers: npt.NDArray[Any], truth: npt.NDArray[Any]) -> Scores:
        """Score the five best answers of every row."""
        right = answers == truth[:, None]
        return cls(float(right[:, 0].mean()), float(right[:, :5].any(axis=1).mean()))


@dataclass(frozen=True)
class Trained:
    """A model, what it cost and how good it is."""

    model: LTLSClassifier
    train_s: float
    predict_us: float
    n_bytes: int  # of its file
    scores: Scores

    @property
    def n_parameters(self) -> int:
        """The weights of all edges, with the intercepts."""
        return int(self.model.trellis_.n_edges * (self.model.n_features_in_ + 1))


def corpus(
    source: Path | None, n_examples: int, n_held_out: int, seed: int = 0
) -> tuple[Examples, Examples]:
    """Return examples of code to learn from and of whole files held out."""
    files = files_below(source)
    np.random.default_rng(seed).shuffle(files)
    parts: tuple[list[list[str]], list[list[str]]] = [], []
    wanted = [n_held_out, n_examples]
    for file in files:
        # First the files that are held out, then those to learn from.
        part = 0 if wanted[0] > 0 else 1
        if wanted[part] <= 0:
            break
        tokens = tokens_of(file.read_text("utf-8", "replace"))[: wanted[part]]
        parts[part].append(tokens)
        wanted[part] -= len(tokens)
    if not parts[1]:
        raise ValueError(f"source must hold over {n_held_out:,} tokens of code, {source} has fewer")
    return examples_of(parts[1]), examples_of(parts[0])


def trained(
    width: int, train: Examples, test: Examples, file: Path, *, verbose: int = 0
) -> Trained:
    """Learn a model of some width, write its file, and measure it on held-out rows."""
    model = LTLSClassifier(
        width=width,
        n_trellises=1,
        rescore=0,
        loss="softmax",
        assignment="frequency",
        epochs=EPOCHS,
        learning_rate=0.4,
        validation_fraction=0,
        random_state=0,
        verbose=verbose,
    )
    start = time.perf_counter()
    model.fit(train.X, train.y)
    train_s = time.perf_counter() - start
    model.save(file, dtype="int8")
    times = []
    for _ in range(3):  # the shortest, since other work may share the machine
        start = time.perf_counter()
        answers = model.predict_topk(test.X, 5)[0]
        times.append(time.perf_counter() - start)
    predict_us = 1e6 * min(times) / len(test)
    n_bytes = file.stat().st_size
    return Trained(model, train_s, predict_us, n_bytes, Scores.of(answers, test.y))


def majority(train: Examples, test: Examples) -> Scores:
    """Score the most frequent tokens as the answer to everything."""
    tokens, counts = np.unique(train.y, return_counts=True)
    best = tokens[np.argsort(-counts, kind="stable")[:5]]
    return Scores.of(np.broadcast_to(best, (len(test), len(best))), test.y)


def bigrams(train: Examples, test: Examples) -> Scores:
    """Score a table of the five tokens that most often follow the one before."""
    tokens, ids = np.unique(np.concatenate([train.before, train.y]), return_inverse=True)
    pairs, counts = np.unique(
        ids[: len(train)] * len(tokens) + ids[len(train) :], return_counts=True
    )
    pairs = pairs[np.lexsort((-counts, pairs // len(tokens)))]
    firsts, starts = np.unique(pairs // len(tokens), return_index=True)
    ends = np.append(starts[1:], len(pairs))
    table = {
        tokens[first]: tokens[pairs[start : min(end, start + 5)] % len(tokens)]
        for first, start, end in zip(firsts, starts, ends, strict=True)
    }
    answers = np.full((len(test), 5), None, object)
    for row, token in enumerate(test.before):
        follow = table.get(token, ())
        answers[row, : len(follow)] = follow
    return Scores.of(answers, test.y)


def completions(model: LTLSClassifier, code: str) -> list[tuple[str, float]]:
    """Return the five most probable next tokens of some code, with their probabilities."""
    tokens, scores = model.predict_topk(features_before(tokens_of(code)), 5)
    return list(zip(tokens[0].tolist(), np.exp(scores[0]).tolist(), strict=True))


def run(
    folder: Path = Path("demo"),
    source: Path | None = None,
    n_examples: int = N_EXAMPLES,
    interactive: bool = False,
) -> None:
    """Learn, report, draw; or complete what is typed, with the model of an earlier run."""
    from rich.console import Console

    console = Console()
    file = folder / MODEL
    if interactive and source is None and file.exists():
        complete(console, load(file))
        return
    folder.mkdir(parents=True, exist_ok=True)
    what = "the standard library" if source is None else str(source)
    console.print(f"Reading the Python code of [bold]{what}[/] …")
    start = time.perf_counter()
    train, test = corpus(source, n_examples, min(N_HELD_OUT, n_examples // 5))
    console.print(
        f"{len(train):,} tokens to learn from and {len(test):,} of held-out files, "
        f"in {time.perf_counter() - start:.1f} s. Which token comes next?"
    )
    first = trained(WIDTH, train, test, file, verbose=1)
    report(console, first, train, test)
    show_completions(console, first.model)
    if not interactive:
        draw(console, folder, first, train, test)
        console.print("\n[bold]ltls demo --interactive[/] completes what you type.")
    else:
        complete(console, first.model)


def report(console: Console, first: Trained, train: Examples, test: Examples) -> None:
    """Print what was learned and how good it is."""
    from rich.table import Table

    model = first.model
    table = Table(title="The model", show_header=False)
    facts = {
        "classes (different tokens)": f"{len(model.classes_):,}",
        "edges that stand for them": f"{model.trellis_.n_edges:,}",
        "parameters": f"{first.n_parameters:,}",
        "model file, int8": f"{first.n_bytes / 1e6:.1f} MB",
        "training": f"{first.train_s:.1f} s, {EPOCHS * len(train) / first.train_s:,.0f} examples/s",
        "five best tokens": f"{first.predict_us:.1f} µs, one thread",
    }
    for row in facts.items():
        table.add_row(*row)
    console.print(table)
    table = Table("on held-out files", "P@1", "recall@5", title="How often it is right")
    rows = {"majority class": majority(train, test), "bigram table": bigrams(train, test)}
    for name, scores in rows.items():
        table.add_row(name, f"{scores.precision:.3f}", f"{scores.recall:.3f}")
    own = first.scores
    table.add_row("ltls", f"{own.precision:.3f}", f"{own.recall:.3f}", style="bold green")
    console.print(table)


def show_completions(
    console: Console, model: LTLSClassifier, prefixes: Sequence[str] = PREFIXES
) -> None:
    """Print some code and its five most probable next tokens."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="What comes next?")
    table.add_column("code", no_wrap=True, style="bold")
    table.add_column("five next tokens with their probabilities")
    for code in prefixes:
        answers = Text()
        for token, probability in completions(model, code):
            answers.append(_short(token), "green").append(f"\N{NO-BREAK SPACE}{probability:.2f}  ")
        table.add_row(Text(code), answers)
    console.print(table)


def draw(console: Console, folder: Path, first: Trained, train: Examples, test: Examples) -> None:
    """Draw the path of a prediction, and accuracy against size for several widths."""
    try:
        import matplotlib
    except ImportError:
        console.print("Pictures need matplotlib: pip install 'ltls[plot]'")
        return
    matplotlib.use("Agg")
    from ..plot.curves import plot_prediction

    code = PREFIXES[0]
    ax = plot_prediction(
        first.model, features_before(tokens_of(code)), title=f"{code}  →  {{label}}"
    )
    _write(ax, folder / "path.png")
    models = [first]
    for width in WIDTHS:
        console.print(f"Width {width}, for comparison")
        models.append(trained(width, train, test, folder / f"width{width}.ltls", verbose=1))
    _write(draw_sizes(models), folder / "accuracy.png")
    console.print(f"Pictures: {folder / 'path.png'}, {folder / 'accuracy.png'}")


def draw_sizes(models: Sequence[Trained]) -> Any:
    """Draw accuracy against the size of the model files."""
    import matplotlib.pyplot as plt

    ax = plt.figure(figsize=(6, 4), layout="constrained").subplots()
    models = sorted(models, key=lambda m: m.n_bytes)
    sizes = [m.n_bytes / 1e6 for m in models]
    for name, marker in (("recall", "s"), ("precision", "o")):
        values = [getattr(m.scores, name) for m in models]
        ax.plot(
            sizes, values, marker=marker, label={"recall": "recall@5", "precision": "P@1"}[name]
        )
    for m, size in zip(models, sizes, strict=True):
        place = (size, m.scores.precision)
        width = f"width {m.model.trellis_.width}"
        ax.annotate(width, place, (0, 8), textcoords="offset points", ha="center")
    classes = f"{len(models[0].model.classes_):,} classes"
    ax.set(xlabel="model file, MB", title=f"Next token of Python code, {classes}", ylim=(0, 1))
    ax.margins(x=0.12)
    ax.grid(alpha=0.3)
    ax.legend()
    return ax


def complete(console: Console, model: LTLSClassifier) -> None:
    """Complete code that is typed, until an empty line."""
    from rich.text import Text

    console.print("Type the beginning of some Python code; an empty line ends.")
    while True:
        try:
            code = console.input("[bold]>>> [/]")
        except EOFError:
            break
        if not code.strip():
            break
        for token, probability in completions(model, code):
            line = f"{probability:6.1%}  {'█' * round(30 * probability):30}  "
            console.print(Text.assemble((line, "dim"), (_short(token, 40), "green")))


def _short(token: str, longest: int = 12) -> str:
    return token if len(token) <= longest else token[: longest - 1] + "…"


def _write(ax: Any, file: Path) -> None:
    import matplotlib.pyplot as plt

    figure = ax.get_figure(root=True)
    figure.savefig(file, dpi=150)
    plt.close(figure)
