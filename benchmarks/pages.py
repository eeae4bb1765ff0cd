"""Put what is stored in benchmarks/results into README and docs, and draw their figures.

    python -m benchmarks.pages

People write the pages; a table goes between two comments that name it, as in

    <!-- table: growth -->
    <!-- end -->

and is redrawn by this script. It measures nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine, tables
from benchmarks.accuracy import report, results
from benchmarks.cost_model import WORKERS

DOCS = machine.ROOT / "docs"
PAGES = [
    machine.ROOT / "README.md",
    DOCS / "results.md",
    DOCS / "reliability.md",
    DOCS / "continual.md",
    *sorted((DOCS / "results").glob("*.md")),
]
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# The file that a table is drawn from, where it is not the table's own name.
STORED = {
    "prediction": "speed",
    "training": "speed",
    "torch_struct": "programs",
    "threads_predicting": "threads",
    "serving_latency": "serving",
    "paper_baselines": "paper",
    "paper_orders": "paper",
    "step_time": "deep_head_step",
    "step_memory": "deep_head_step",
    "step_top5": "deep_head_step",
    "next_token": "deep_head_next_token",
    "language_model_python": "deep_head_language_model_python",
    "language_model_english": "deep_head_language_model_english",
    "recommend_amazon": "deep_head_recommend_amazon",
    "recommend_debian": "deep_head_recommend_debian",
    "restricted": "deep_head_restricted",
    "omniglot": "deep_head_omniglot",
    "cluster_check": "cluster_training",
    "cluster_hour": "cluster_training",
    "cluster_messages": "cluster_training",
    "cluster_plan": "cluster_training",
    "scale_exponents": "scale_labels",
    "continual_turns": "continual",
    "continual_files": "continual",
}
OF_ACCURACY: dict[str, Callable[[results.Known], list[str]]] = {
    "tools": report.tools_table,
    "p1": report.p1_table,
    "at5": report.at5_table,
    "psp5": report.psp5_table,
    "size": report.size_table,
    "sets": report.set_sections,
}


def drawn(name: str) -> list[str]:
    """Return the lines of a table, its caption last."""
    if name in OF_ACCURACY:
        known = results.read_all()
        return [*OF_ACCURACY[name](known), "", *report.source(known)]
    lines: list[str] = getattr(tables, name)(machine.read(STORED.get(name, name)))
    return lines


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
OURS = ("size_of_napkinxc", "size_of_omikuji", "default")  # from small to large
PEER_MARKS = {
    "omikuji": (ORANGE, "s"),
    "napkinxc": (GREEN, "^"),
    "pecos": (RED, "D"),
    "linearsvc": (PURPLE, "v"),
}
# Where a label stands beside its mark: points to the right, points up, alignment.
ABOVE, LEFT, RIGHT = (0, 10, "center"), (-10, -4, "right"), (10, -4, "left")
LABELS = {
    "bytes": {
        "default": ABOVE,
        "size_of_omikuji": (8, -14, "left"),
        "size_of_napkinxc": RIGHT,
        "omikuji": ABOVE,
        "napkinxc": LEFT,
        "pecos": ABOVE,
        "linearsvc": LEFT,
    },
    "predict": {
        "default": ABOVE,
        "size_of_omikuji": (10, -9, "left"),
        "size_of_napkinxc": (10, -9, "left"),
        "omikuji": ABOVE,
        "napkinxc": RIGHT,
        "pecos": RIGHT,
        "linearsvc": RIGHT,
    },
}


def overview_figure(plt: Any) -> Any:
    """Mean P@1 of every tool against the size of its file and the time of prediction."""
    found = report.averages(results.read_all())
    names = {**report.NAMES, "default": "ltls, defaults"}
    for method in ("size_of_omikuji", "size_of_napkinxc"):
        names[method] = f"ltls, {found[method]['bytes'] / 1e6:.1f} MB"
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
    panels = [
        ("bytes", 1e-6, "model file [MB]", (1, 2, 5, 10, 20, 50)),
        ("predict", 1.0, "prediction [µs of processor time per row]", (10, 20, 50, 100, 200)),
    ]
    for ax, (cost, scale, words, ticks) in zip(axes, panels, strict=True):
        ours = [found[method] for method in OURS]
        x, y = [of[cost] * scale for of in ours], [of["p1"] for of in ours]
        ax.plot(x, y, "o-", color=BLUE, markersize=9, linewidth=1.6)
        for method, (colour, mark) in PEER_MARKS.items():
            of = found[method]
            ax.plot(of[cost] * scale, of["p1"], mark, color=colour, markersize=10)
        for method, (right, up, align) in LABELS[cost].items():
            place = (found[method][cost] * scale, found[method]["p1"])
            weight = "bold" if method in OURS else "normal"
            where = {"textcoords": "offset points", "ha": align}
            ax.annotate(names[method], place, (right, up), weight=weight, **where)
        ax.set(xscale="log", xlabel=f"{words}; left is better")
        ax.set_xticks(ticks, [f"{tick}" for tick in ticks])
        ax.minorticks_off()
        ax.margins(x=0.2, y=0.15)
    axes[0].set_ylabel("mean P@1; up is better")
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
    left.set(xscale="log", ylim=(0, None), xlabel="classes", ylabel="µs per row")
    left.set_title("Decoding one row of edge scores", loc="left")
    left.legend(fontsize=9)
    series = {
        "training step": (BLUE, "o"),
        "prediction, k = 1": (ORANGE, "s"),
        "prediction, k = 5": (GREEN, "^"),
    }
    for name, (colour, mark) in series.items():
        x, y = [row["C"] for row in growth], [row[name] for row in growth]
        right.plot(x, y, "-", marker=mark, color=colour, markersize=5, label=name)
    right.set(xscale="log", ylim=(0, None), xlabel="classes", ylabel="µs per row")
    right.set_title("A model of width 2, rows of 50 non-zeros", loc="left")
    right.legend(fontsize=9)
    for ax in (left, right):
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


def demo_figure(plt: Any) -> Any:
    """Accuracy of the demo's models and of a peer against file size and training time."""
    found = machine.read("demo")
    models = {f"width {row['width']}": row for row in found["models"]}
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
    panels = [
        ("bytes", 1e-6, "model file [MB]"),
        ("train_s", 1.0, "training [s of processor time]"),
    ]
    for ax, (cost, scale, words) in zip(axes, panels, strict=True):
        for measure, title in (("recall", "recall@5"), ("precision", "P@1")):
            fill = {"mfc": "none"} if measure == "recall" else {}
            x, y = ([of[key] for of in models.values()] for key in (cost, measure))
            peer = found["pecos"][cost] * scale, found["pecos"][measure]
            ax.plot(
                [scale * each for each in x], y, "o", color=BLUE, label=f"ltls, {title}", **fill
            )
            ax.plot(*peer, "s", color=ORANGE, label=f"PECOS, {title}", **fill)
        for name, row in models.items():
            place = (row[cost] * scale, row["precision"])
            ax.annotate(name, place, (-9, -4), textcoords="offset points", ha="right", fontsize=9)
        ticks = (5, 10, 20, 50) if cost == "bytes" else (5, 10, 20, 50, 100, 200, 500)
        ax.set(xscale="log", xlabel=f"{words}; left is better", ylim=(0.4, 0.75))
        ax.set(xlim=(ticks[0], ticks[-1]))
        ax.set_xticks(ticks, [f"{tick}" for tick in ticks])
        ax.minorticks_off()
    axes[0].legend(fontsize=9)
    return figure


def cluster_figure(plt: Any) -> Any:
    """Predicted training time and efficiency against the number of workers, by network."""
    sets = machine.read("cluster_training")["sets"]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    colours = {10: ORANGE, 25: GREEN, 100: BLUE}
    marks = dict(zip(sets, "os^D", strict=False))
    for name, found in sets.items():
        for gbit, colour in colours.items():
            steps = [step for step in found["plan"] if step["gbit"] == gbit]
            x = [step["workers"] for step in steps]
            for ax, key in zip(axes, ("seconds", "efficiency"), strict=True):
                label = f"{name}, {gbit} Gbit/s"
                y = [step[key] for step in steps]
                ax.plot(x, y, "-", marker=marks[name], color=colour, markersize=5, label=label)
    axes[0].set(xscale="log", yscale="log", xlabel="workers", ylabel="training [s]")
    axes[1].set(xscale="log", ylim=(0, 1.05), xlabel="workers", ylabel="efficiency")
    for ax in axes:
        ax.set_xticks(WORKERS, [str(n) for n in WORKERS])
        ax.minorticks_off()
    axes[0].legend(fontsize=9)
    return figure


def continual_figure(plt: Any) -> Any:
    """Old labels and a new one against the number of its rows, for every data set."""
    sets = machine.read("continual")["sets"]
    styles = {
        "ltls in memory": (BLUE, "o", "-"),
        "ltls from the file": (SKY, "o", "-"),
        "from scratch": (GREY, "v", ":"),
        "SGDClassifier": (ORANGE, "s", "--"),
        "river": (GREEN, "^", "--"),
    }
    size = (2.6 * len(sets), 5)
    shape = {"squeeze": False, "sharex": True, "layout": "constrained"}
    figure, axes = plt.subplots(2, len(sets), figsize=size, **shape)
    for column, (name, of) in enumerate(sets.items()):
        for row, (measure, scale) in enumerate((("old", 100), ("found", 100))):
            ax = axes[row][column]
            for method, (colour, mark, line) in styles.items():
                curve = of["curves"].get(method, {})
                x, y = [int(n) for n in curve], [scale * at[measure] for at in curve.values()]
                ax.plot(x, y, line, marker=mark, color=colour, markersize=5, label=method)
            ax.set(xscale="log")
            ax.minorticks_off()
        axes[0][column].set_title(name, loc="left")
        axes[1][column].set(ylim=(-5, 105), xlabel="rows of the new label")
        axes[0][column].set(ylim=(-10, 3))
    axes[0][0].set_ylabel("old labels: change of P@1 [points]")
    axes[1][0].set_ylabel("new label: found [%]")
    handles, titles = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, titles, loc="outside lower center", ncols=5, frameon=False)
    return figure


FIGURES = {
    "cluster": cluster_figure,
    "overview": overview_figure,
    "scale": scale_figure,
    "deep_head": deep_head_figure,
    "demo": demo_figure,
    "continual": continual_figure,
}


def draw(folder: Path, form: str = "svg") -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        for name, make in FIGURES.items():
            figure = make(plt)
            metadata = {"Date": None} if form == "svg" else {}
            figure.savefig(folder / f"{name}.{form}", metadata=metadata, dpi=110)
            plt.close(figure)


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
    draw(DOCS / "results")


if __name__ == "__main__":
    main()
