"""A report of an evaluation: recall by label frequency, calibration, confused labels.

A report is one self-contained HTML or PDF file. HTML also has a table of labels and one of wrong
predictions. The plots need matplotlib.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.atomic import replacing
from ..core.version import __version__
from .evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY = "#2a6f97", "#e07a5f", "#9aa5b1"
_MAX_PAIRS = 20  # pairs of labels
_MAX_MATRIX_LABELS = 16  # of the confusion matrix
_MAX_NAME = 28
_MAX_LABELS, _MAX_MISTAKES = 5000, 100  # rows of tables
_METRICS = (
    "P@k, precision: the fraction of the first k predictions that are right. R@k, recall: the "
    "fraction of the true labels that are among them. nDCG@k: like precision, but earlier ranks "
    "count more. PSP@k, propensity-scored precision: like precision, but rare labels count "
    "more, since they are often missing from the data. Macro-F1: the F1 score of every label, "
    "averaged over labels, so that rare labels count as much as frequent ones. Coverage: the "
    "fraction of the occurring labels that are predicted correctly at least once. Head, middle and "
    "tail: the most frequent labels, those between, and the rarest, each with a third of the label "
    "occurrences in training. 'In training': training rows per label. 'In file': occurrences of "
    "all labels of the group in this file."
)
# Clicking a column header sorts the table, numbers numerically.
_SORT = """
for (const head of document.querySelectorAll("table.sorted th")) head.onclick = () => {
  const body = head.closest("table").tBodies[0], at = head.cellIndex;
  const of = row => row.cells[at].textContent;
  const down = head.dataset.down = head.dataset.down ? "" : 1;
  const compare = (a, b) => of(a).localeCompare(of(b), undefined, { numeric: true });
  body.append(...[...body.rows].sort((a, b) => down ? compare(b, a) : compare(a, b)));
};
"""
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1f2933; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .25rem .9rem; text-align: right; border-bottom: 1px solid #d9e2ec; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; } p { color: #52606d; }
.sorted th { cursor: pointer; } .sorted th::after { content: " ↕"; color: #9aa5b1; }
.scroll { max-height: 30rem; overflow: auto; } .texts td { text-align: left; vertical-align: top; }
"""


def check_matplotlib() -> None:
    """Raise an error if matplotlib, which draws the plots, is not installed."""
    try:
        import matplotlib as matplotlib
    except ImportError:
        raise ValueError("reports need matplotlib: pip install 'ltls[plot]'") from None


def write_report(
    path: Path, title: str, evaluation: Evaluation, tables: list[list[list[str]]]
) -> None:
    """Write a report, PDF or HTML depending on the suffix; the file is replaced atomically.

    Parameters
    ----------
    path : Path
        The file to write.
    title : str
    evaluation : Evaluation
        The evaluation to plot.
    tables : list of tables
        Rows of texts; see `ltls.evaluation.evaluation.tables`.
    """
    check_matplotlib()
    import matplotlib

    with matplotlib.rc_context({"font.size": 9, "svg.hashsalt": "ltls", "svg.fonttype": "none"}):
        parts = _figures(evaluation)
        with replacing(path) as temporary:
            if path.suffix == ".pdf":
                _write_pdf(temporary, title, tables, parts)
            else:
                page = _html(title, tables, parts, _label_table(evaluation) + _mistakes(evaluation))
                temporary.write_text(page, encoding="utf-8")


def _figures(evaluation: Evaluation) -> list[tuple[str, str, Figure]]:
    """Return the plots with their titles and captions."""
    pairs = evaluation.confusions(10 * _MAX_MATRIX_LABELS)
    names = list(dict.fromkeys(label for true, said, _ in pairs for label in (true, said)))
    size = 3.5 + 0.25 * min(len(names), _MAX_MATRIX_LABELS)
    plots: list[tuple[str, str, tuple[float, float], Callable[[Figure, Evaluation], None]]] = [
        (
            "Recall by label frequency",
            "Recall of the true labels, by their frequency in the training set.",
            (7, 3.2),
            _by_frequency,
        )
    ]
    if evaluation.confidence is not None:
        caption = (
            "Accuracy of the first prediction, by its predicted probability; a perfectly "
            "calibrated model is on the diagonal. Expected calibration error: "
            f"{evaluation.calibration_error():.3f}."
        )
        plots.append(("Calibration", caption, (7, 3.6), _calibration))
    if pairs:
        caption = "Wrong first predictions: the true label → the predicted label."
        height = 1.2 + 0.26 * min(len(pairs), _MAX_PAIRS)
        plots.append(("Most frequent confusions", caption, (7, height), _confused_pairs))
        title = "Confusion matrix of the most confused labels"
        caption = "Rows are true labels, columns first predictions; correct ones are omitted."
        plots.append((title, caption, (size + 0.6, size), _heat_map))
    return [
        (title, caption, _drawn(draw, size, evaluation)) for title, caption, size, draw in plots
    ]


def _drawn(draw: Any, size: tuple[float, float], evaluation: Evaluation) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    draw(figure, evaluation)
    return figure


def _by_frequency(figure: Figure, evaluation: Evaluation) -> None:
    axes = figure.add_subplot()
    widest = int(evaluation.topk.shape[1])
    for k, colour in {1: _BLUE, widest: _ORANGE}.items():
        labels, found = evaluation.found(k)
        octave = np.log2(np.maximum(evaluation.frequency[labels], 0.5)).astype(int)
        steps = np.unique(octave)
        shares = [found[octave == step].mean() for step in steps]
        axes.plot(2.0**steps, shares, "o-", color=colour, label=f"recall@{k}")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="label frequency", ylabel="recall", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend()


def _calibration(figure: Figure, evaluation: Evaluation) -> None:
    left, right = figure.subplots(1, 2)
    said, share, rows = (list(each) for each in zip(*evaluation.calibration(), strict=True))
    left.plot([0, 1], [0, 1], "--", color=_GREY)
    left.plot(said, share, "o-", color=_BLUE)
    left.set(xlabel="predicted probability", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    left.grid(alpha=0.3)
    right.bar(said, rows, width=0.08, color=_BLUE)
    right.set(xlabel="predicted probability", ylabel="rows", xlim=(0, 1))


def _confused_pairs(figure: Figure, evaluation: Evaluation) -> None:
    pairs = evaluation.confusions(_MAX_PAIRS)[::-1]
    axes = figure.add_subplot()
    names = [f"{_short(true)} → {_short(said)}" for true, said, _ in pairs]
    bars = axes.barh(range(len(pairs)), [count for *_, count in pairs], color=_ORANGE)
    axes.bar_label(bars, padding=2)
    axes.set_yticks(range(len(pairs)), names)
    axes.set(xlabel="rows")
    axes.locator_params("x", integer=True)
    axes.spines[["top", "right"]].set_visible(False)


def _heat_map(figure: Figure, evaluation: Evaluation) -> None:
    pairs = evaluation.confusions(10 * _MAX_MATRIX_LABELS)
    labels = list(dict.fromkeys(label for true, said, _ in pairs for label in (true, said)))
    labels = labels[:_MAX_MATRIX_LABELS]
    place = {label: number for number, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)))
    for true, said, count in pairs:
        if true in place and said in place:
            counts[place[true], place[said]] += count
    axes = figure.add_subplot()
    image = axes.imshow(counts, cmap="Oranges")
    names = [_short(label) for label in labels]
    axes.set_xticks(range(len(labels)), names, rotation=90)
    axes.set_yticks(range(len(labels)), names)
    axes.set(xlabel="predicted label", ylabel="true label")
    figure.colorbar(image, label="rows", shrink=0.7)


def _short(label: Any) -> str:
    # A dollar sign would begin a formula.
    text = " ".join(str(label).split()).replace("$", r"\$")
    return text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1]}…"


def _label_table(evaluation: Evaluation) -> str:
    """Return the metrics of every label as HTML."""
    found = evaluation.by_label()
    caption = "Based on first predictions. Click a column header to sort."
    if len(found) > _MAX_LABELS:
        caption += f" The {_MAX_LABELS:,} most frequent of {len(found):,} labels."
    rows = [
        [
            str(row["label"]),
            *("–" if row[name] is None else f"{row[name]:.3f}" for name in ("precision", "recall")),
            f"{row['f1']:.3f}",
            *(str(row[name]) for name in ("rows", "predicted")),
        ]
        for row in found[:_MAX_LABELS]
    ]
    heads = ["label", "precision", "recall", "F1", "rows", "predicted"]
    return _section("Labels", caption, heads, rows, "sorted")


def _mistakes(evaluation: Evaluation) -> str:
    """Return rows whose first prediction is wrong as HTML."""
    found = evaluation.mistakes(_MAX_MISTAKES)
    if not found:
        return ""
    caption = f"At most {_MAX_MISTAKES} rows."
    if evaluation.confidence is not None:
        caption += (
            " The most confident predictions come first: look here for wrong labels in the data."
        )
    rows = [
        [
            str(row["row"]),
            "–" if row["probability"] is None else f"{row['probability']:.3f}",
            str(row["predicted"]),
            ", ".join(map(str, row["labels"])),
            row["text"],
        ]
        for row in found
    ]
    heads = ["row", "probability", "predicted", "true", "text"]
    return _section("Wrong predictions", caption, heads, rows, "sorted texts")


def _rows(rows: list[list[str]], tag: str = "td") -> str:
    lines = ("".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) for row in rows)
    return "".join(f"<tr>{line}</tr>" for line in lines)


def _section(heading: str, caption: str, heads: list[str], rows: list[list[str]], kind: str) -> str:
    head, body = _rows([heads], "th"), _rows(rows)
    table = f"<table class='{kind}'><thead>{head}</thead><tbody>{body}</tbody></table>"
    return f"<h2>{heading}</h2><p>{html.escape(caption)}</p><div class='scroll'>{table}</div>"


def _html(
    title: str, tables: list[list[list[str]]], parts: list[tuple[str, str, Figure]], more: str
) -> str:
    body = [f"<h1>{html.escape(title)}</h1>", f"<p>ltls {__version__}</p>"]
    for table in tables:
        body.append(f"<table>{_rows(table)}</table>")
        if table is tables[0]:
            body.append(f"<p>{html.escape(_METRICS)}</p>")
    for heading, caption, figure in parts:
        picture = io.StringIO()
        figure.savefig(picture, format="svg", metadata=_NO_METADATA)
        svg = picture.getvalue()
        body += [f"<h2>{html.escape(heading)}</h2>", f"<p>{html.escape(caption)}</p>"]
        body.append(svg[svg.index("<svg") :])
    body.append(f"{more}<script>{_SORT}</script>")
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'
    )


def _write_pdf(
    path: Path, title: str, tables: list[list[list[str]]], parts: list[tuple[str, str, Figure]]
) -> None:
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

    with PdfPages(path, metadata={"Title": title, "CreationDate": None}) as pages:
        page = Figure(figsize=(8.27, 6))
        page.suptitle(title)
        top = 0.88
        for table in tables:
            columns = max(map(len, table))
            height = 0.045 * len(table)
            axes = page.add_axes((0.08, top - height, 0.12 * columns, height))
            axes.axis("off")
            drawn = axes.table(table, bbox=Bbox.unit(), edges="horizontal")
            drawn.auto_set_font_size(False)
            drawn.set_fontsize(9)
            top -= height + 0.06
        pages.savefig(page)
        for heading, caption, figure in parts:
            figure.suptitle(heading)
            figure.supxlabel(caption, fontsize=7, color="#52606d")
            pages.savefig(figure)
