"""What the demo shows: tables, plots and completions of code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..estimators.classifier import LTLSClassifier
from ..plot.curves import plot_prediction
from .demo_model import EPOCHS, TrainedModel, bigrams, completions, majority, train_and_measure
from .demo_tokens import Examples, features_before, tokens_of
from .printable import printable

WIDTHS = (2, 4)  # of further models, for comparison
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


def report(console: Console, first: TrainedModel, train: Examples, test: Examples) -> None:
    """Print the size, the speed and the accuracy of a model."""
    model = first.model
    table = Table(title="The model", show_header=False)
    facts = {
        "classes (distinct tokens)": f"{len(model.classes_):,}",
        "edges": f"{model.trellis_.n_edges:,}",
        "parameters": f"{first.n_parameters:,}",
        "model file, int8": f"{first.n_bytes / 1e6:.1f} MB",
        "training": f"{first.train_s:.1f} s, {EPOCHS * len(train) / first.train_s:,.0f} examples/s",
        "prediction of the top 5": f"{first.predict_us:.1f} µs, one thread",
    }
    for row in facts.items():
        table.add_row(*row)
    console.print(table)
    table = Table("on held-out files", "P@1", "recall@5", title="Accuracy")
    rows = {"majority class": majority(train, test), "bigram table": bigrams(train, test)}
    for name, scores in rows.items():
        table.add_row(name, f"{scores.precision:.3f}", f"{scores.recall:.3f}")
    own = first.scores
    table.add_row("ltls", f"{own.precision:.3f}", f"{own.recall:.3f}", style="bold green")
    console.print(table)


def show_completions(
    console: Console, model: LTLSClassifier, prefixes: Sequence[str] = PREFIXES
) -> None:
    """Print beginnings of code with their five most probable next tokens."""
    table = Table(title="What comes next?")
    table.add_column("code", no_wrap=True, style="bold")
    table.add_column("next tokens and their probabilities")
    for code in prefixes:
        predicted = Text()
        for token, probability in completions(model, code):
            predicted.append(_short(token), "green").append(
                f"\N{NO-BREAK SPACE}{probability:.2f}  "
            )
        table.add_row(Text(code), predicted)
    console.print(table)


def plot_results(
    console: Console, folder: Path, first: TrainedModel, train: Examples, test: Examples
) -> None:
    """Plot the path of a prediction, and accuracy against size for several widths."""
    try:
        import matplotlib
    except ImportError:
        console.print("Plots need matplotlib: pip install 'ltls[plot]'")
        return
    matplotlib.use("Agg")
    code = PREFIXES[0]
    ax = plot_prediction(
        first.model, features_before(tokens_of(code)), title=f"{code}  →  {{label}}"
    )
    _save(ax, folder / "path.png")
    models = [first]
    for width in WIDTHS:
        console.print(f"Width {width}, for comparison")
        models.append(
            train_and_measure(width, train, test, folder / f"width{width}.ltls", verbose=1)
        )
    _save(plot_sizes(models), folder / "accuracy.png")
    console.print(f"Plots: {folder / 'path.png'}, {folder / 'accuracy.png'}")


def plot_sizes(models: Sequence[TrainedModel]) -> Any:
    """Plot accuracy against the size of the model files."""
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
    """Complete the code that the user types, until an empty line."""
    console.print("Type the beginning of some Python code; an empty line quits.")
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


def _short(token: str, limit: int = 12) -> str:
    token = printable(token)
    return token if len(token) <= limit else token[: limit - 1] + "…"


def _save(ax: Any, file: Path) -> None:
    import matplotlib.pyplot as plt

    figure = ax.get_figure(root=True)
    figure.savefig(file, dpi=150)
    plt.close(figure)
