"""Put what is stored in benchmarks/results into README and docs, and draw their figures.

    python -m benchmarks.pages

People write the pages; a table goes between two comments that name it, as in

    <!-- table: growth -->
    <!-- end -->

and is redrawn by this script, on any page. It measures nothing.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine, tables
from benchmarks.accuracy import report, results
from benchmarks.accuracy.methods import METHODS
from benchmarks.deep_head import tables as deep

DOCS = machine.ROOT / "docs"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Draw = Callable[[Any], list[str]]

# The data sets and tools of the README's table: tasks that need no explanation.
OF_README = {
    "wordnet_hyper": "broader term of a noun, from its definition (WordNet; {:,})",
    "debsrc": "Debian source package, from a description ({:,})",
    "icd10cm": "ICD-10 category, from a diagnosis ({:,})",
}
TOOLS_OF_README = ("default", "omikuji", "pecos")


def readme_table(known: results.Known) -> list[str]:
    """Accuracy of a few tools on a few data sets."""
    rows = []
    for name, task in OF_README.items():
        scores = [results.summary(known[name][method]) for method in TOOLS_OF_README]
        title = task.format(results.read(name, "set")["labels"])
        rows.append([title, *("–" if score is None else f"{score:.3f}" for score in scores)])
    heads = ["task (labels)", *(METHODS[method].short for method in TOOLS_OF_README)]
    return machine.table(heads, rows)


def readme_costs(known: results.Known) -> list[str]:
    """Return a sentence about the size and speed of the defaults."""
    name = "wordnet_hyper"
    size, spent = results.read(name, "set"), report.costs(known[name]["default"])
    return [
        f"On {size['rows']:,} WordNet definitions with {size['labels']:,} labels, training takes "
        f"{spent['train']:.1f} s of processor time, a prediction {spent['predict']:.0f} µs, and "
        f"the model file has {spent['bytes'] / 1e6:.1f} MB."
    ]


OF_ACCURACY: dict[str, Draw] = {
    "readme": readme_table,
    "readme_costs": readme_costs,
    "tools": report.tools_table,
    "p1": report.p1_table,
    "at5": report.at5_table,
    "psp5": report.psp5_table,
    "sets": report.set_sections,
}
# The results that tables are drawn from, where they do not have the name of the table.
STORED = {
    "torch_struct": "programs",
    "scale_exponents": "scale_labels",
    "serving_latency": "serving",
    "paper_baselines": "paper",
    "paper_orders": "paper",
    "continual_rows": "continual",
    "continual_files": "continual",
    "step_time": "deep_head_step",
    "step_memory": "deep_head_step",
    "step_top5": "deep_head_step",
}


def pages() -> list[Path]:
    """Return the pages that have a table."""
    files = [machine.ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("*/*.md"))]
    return [file for file in files if BLOCK.search(file.read_text("utf-8"))]


def stored(name: str) -> str:
    """Return the name of the result that a table is drawn from."""
    return STORED.get(name) or (f"deep_head_{name}" if hasattr(deep, name) else name)


def drawn(name: str) -> list[str]:
    """Return the lines of a table, its caption last."""
    if name in OF_ACCURACY:
        known = results.read_all()
        lines = OF_ACCURACY[name](known)
        return lines if name == "readme_costs" else [*lines, "", *report.source(known)]
    draw: Draw | None = getattr(deep, name, None) or getattr(tables, name, None)
    if draw is None:
        raise ValueError(f"no table is called {name!r}")
    return draw(machine.read(stored(name)))


def filled(page: str) -> str:
    """Return a page with all its tables redrawn."""

    def block(match: re.Match[str]) -> str:
        return "\n".join([match[1], *drawn(match[2]), "", match[3]])

    return BLOCK.sub(block, page)


# Figures. The colours are Okabe and Ito's, which colour-blind readers can tell apart; shapes and
# labels say the same.

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
PURPLE, SKY = "#CC79A7", "#56B4E9"
STYLE = {
    "svg.hashsalt": "ltls",  # the same file for the same figures
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "axes.axisbelow": True,
    "savefig.facecolor": "white",
}
MARKS = {
    "default": (BLUE, "o"),
    "omikuji": (ORANGE, "s"),
    "napkinxc": (GREEN, "^"),
    "pecos": (RED, "D"),
}


def overview_figure(plt: Any) -> Any:
    """Mean P@1 of every tool against the size of its file and the time of prediction."""
    found = report.averages(results.read_all())
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
    panels = [
        ("bytes", 1e-6, "model file [MB]", (1, 2, 5, 10, 20)),
        ("predict", 1.0, "prediction [µs of processor time per row]", (10, 20, 50, 100, 200)),
    ]
    for ax, (cost, scale, words, ticks) in zip(axes, panels, strict=True):
        for method, (colour, mark) in MARKS.items():
            place = found[method][cost] * scale, found[method]["p1"]
            ours = not METHODS[method].is_peer
            ax.plot(*place, mark, color=colour, markersize=10)
            where = {"textcoords": "offset points", "ha": "center"}
            weight = "bold" if ours else "normal"
            ax.annotate(METHODS[method].short, place, (0, 10), weight=weight, **where)
        ax.set(xscale="log", xlabel=f"{words}; left is better")
        ax.set_xticks(ticks, [f"{tick}" for tick in ticks])
        ax.minorticks_off()
        ax.margins(x=0.2, y=0.15)
    axes[0].set_ylabel("mean P@1; up is better")
    return figure


def accuracy_figure(plt: Any) -> Any:
    """P@1 of the peers on every set, in points above or below ours."""
    known = {name: of for name, of in results.read_all().items() if "runs" in of["default"]}
    figure, ax = plt.subplots(figsize=(10, 5), layout="constrained")
    ax.axvline(0, color=BLUE, linewidth=2, label=METHODS["default"].short)
    for method, (colour, mark) in MARKS.items():
        if not METHODS[method].is_peer:
            continue
        x = [
            100 * (results.summary(of[method]) - results.summary(of["default"]))
            if "runs" in of[method]
            else math.nan
            for of in known.values()
        ]
        ax.plot(x, range(len(x)), mark, color=colour, markersize=7, label=METHODS[method].short)
    ticks = (-20, -10, -5, -2, -1, 0, 1)
    ax.set(xscale="symlog", xlabel="points of P@1 above or below ltls")
    ax.set_xticks(ticks, [f"{tick}".replace("-", "−") for tick in ticks])
    ax.minorticks_off()
    ax.set_yticks(range(len(known)), known)
    ax.invert_yaxis()  # the first set on top
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


def scale_figure(plt: Any) -> Any:
    """Time against the number of classes: dynamic programs, then training and prediction."""
    programs, growth = machine.read("programs"), machine.read("growth")["series"]["C"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colours = {2: (BLUE, "o"), 8: (ORANGE, "s"), 32: (GREEN, "^")}
    for width, (colour, mark) in colours.items():
        rows = [row for row in programs["growth"] if row["width"] == width]
        for program, line, title in (("viterbi", "-", "best path"), ("topk 5", "--", "best 5")):
            times = [row[program] / 1000 for row in rows]
            label = f"width {width}, {title}"
            x = [row["C"] for row in rows]
            left.plot(x, times, line, marker=mark, color=colour, markersize=5, label=label)
    left.set_title("Decoding one row of edge scores", loc="left")
    series = {
        "training step": (BLUE, "o"),
        "prediction, k = 1": (ORANGE, "s"),
        "prediction, k = 5": (GREEN, "^"),
    }
    for name, (colour, mark) in series.items():
        x, y = [row["C"] for row in growth], [row[name] for row in growth]
        right.plot(x, y, "-", marker=mark, color=colour, markersize=5, label=name)
    right.set_title("A model of width 2, rows of 50 non-zeros", loc="left")
    for ax in (left, right):
        ax.set(xscale="log", ylim=(0, None), xlabel="classes", ylabel="µs per row")
        ax.legend(fontsize=9)
        ax.minorticks_off()
    return figure


def deep_head_figure(plt: Any) -> Any:
    """Time and memory of a training step of an output layer against the number of classes."""
    rows = [row for row in machine.read("deep_head_step")["rows"] if row["in_features"] == 512]
    heads = {
        "nn.Linear + cross_entropy": ("nn.Linear", GREY, "v"),
        "cut-cross-entropy, bf16": ("cut-cross-entropy, bf16", PURPLE, "D"),
        "AdaptiveLogSoftmaxWithLoss": ("AdaptiveLogSoftmaxWithLoss", ORANGE, "s"),
        "TrellisSoftmax, width 32": ("TrellisSoftmax, width 32", SKY, "o"),
        "TrellisSoftmax, width 8": ("TrellisSoftmax, width 8", BLUE, "o"),
    }
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    panels = [("step ms", 1.0, "training step [ms]"), ("memory", 1e-6, "peak memory [MB]")]
    for ax, (key, scale, words) in zip(axes, panels, strict=True):
        for head, (title, colour, mark) in heads.items():
            points = sorted(
                (r["C"], r[key] * scale) for r in rows if r["head"] == head and key in r
            )
            x, y = zip(*points, strict=True)
            ax.plot(x, y, "-", marker=mark, color=colour, markersize=6, label=title)
        ax.set(xscale="log", yscale="log", xlabel="classes", ylabel=words)
        ax.minorticks_off()
        ax.yaxis.set_major_formatter("{x:,g}")
    handles, titles = axes[0].get_legend_handles_labels()
    figure.legend(handles, titles, loc="outside lower center", ncols=3, frameon=False)
    return figure


VECTOR_MARKS = {
    "ltls": (BLUE, "o"),
    "linear softmax": (GREY, "v"),
    "nearest centroid": (ORANGE, "s"),
    "20 nearest neighbours": (GREEN, "^"),
    "hnswlib": (RED, "D"),
    "usearch": (PURPLE, "P"),
    "faiss": (SKY, "X"),
}


def embeddings_figure(plt: Any) -> Any:
    """Mean P@1 on dense rows against training time, prediction time and the size of the model."""
    stored = [of["methods"] for of in machine.read("embeddings")["sets"].values()]
    sets = [of for of in stored if all("p1" in of.get(name, {}) for name in VECTOR_MARKS)]
    figure, axes = plt.subplots(1, 3, figsize=(11, 4.2), sharey=True, layout="constrained")
    panels = [
        ("train_cpu_seconds", 1.0, "training [s of processor time]"),
        ("predict_us", 1.0, "prediction [µs/row]"),
        ("bytes", 1e-6, "model [MB]"),
    ]
    for ax, (cost, scale, words) in zip(axes, panels, strict=True):
        for name, (colour, mark) in VECTOR_MARKS.items():
            costs = [of[name][cost] * scale for of in sets]
            p1 = statistics.mean(of[name]["p1"] for of in sets)
            place = statistics.geometric_mean(costs), p1
            ax.plot(*place, mark, color=colour, markersize=10, label=name)
        ax.set(xscale="log", xlabel=f"{words}; left is better")
        ax.xaxis.set_major_formatter("{x:,g}")
        ax.minorticks_off()
        ax.margins(x=0.15, y=0.15)
    axes[0].set_ylabel("mean P@1; up is better")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


FIGURES = {
    "overview": overview_figure,
    "accuracy": accuracy_figure,
    "scale": scale_figure,
    "deep_head": deep_head_figure,
    "embeddings": embeddings_figure,
}


def draw(folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        for name, make in FIGURES.items():
            figure = make(plt)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, dpi=110)
            plt.close(figure)


def main() -> None:
    for page in pages():
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
    draw(DOCS / "results")


if __name__ == "__main__":
    main()
