"""Tables of the comparison of accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.accuracy import results
from benchmarks.accuracy.methods import METHODS, Method
from benchmarks.accuracy.results import Known, Result, best_peer, summary
from benchmarks.machine import table

# Methods of the overview, which is over the sets that all of them ran on. LinearSVC is too slow for
# the large ones.
SHOWN = ("default", "omikuji", "napkinxc", "pecos")
SCORED = (*SHOWN, "linearsvc")


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def significant(value: float | None, scale: float = 1.0) -> str:
    """Write a time or size with three digits."""
    if value is None:
        return "–"
    value *= scale
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def costs(result: Result) -> dict[str, float | None]:
    """Return processor seconds of training, processor µs per row of prediction, and bytes."""
    rows, spent = summary(result, "test_rows"), summary(result, "predict_cpu_seconds")
    return {
        "train": summary(result, "train_cpu_seconds"),
        "memory": summary(result, "train_peak_bytes"),
        "predict": None if rows is None or spent is None else spent / rows * 1e6,
        "bytes": summary(result, "model_bytes"),
    }


def shared(known: Known) -> list[str]:
    """Return the sets that all methods of the overview ran on."""
    return [
        name
        for name, of in known.items()
        if all(summary(of.get(method, {})) is not None for method in SHOWN)
    ]


def averages(known: Known) -> dict[str, dict[str, float]]:
    """Return the mean P@1 and the geometric mean costs of the overview's methods."""
    names = shared(known)
    found: dict[str, dict[str, float]] = {}
    for method in SHOWN if names else ():
        each = [costs(known[name][method]) for name in names]
        found[method] = {
            key: float(np.exp(np.mean(np.log([cost[key] for cost in each]))))
            for key in ("train", "predict", "bytes")
        }
        found[method]["p1"] = float(np.mean([summary(known[name][method]) for name in names]))
    return found


def tools_table(known: Known) -> list[str]:
    """Mean P@1, size and time of every tool: the table of a reader who is choosing one."""
    rows = [
        [
            METHODS[method].short,
            f"{of['p1']:.3f}",
            significant(of["bytes"], 1e-6),
            significant(of["predict"]),
            significant(of["train"]),
        ]
        for method, of in averages(known).items()
    ]
    heads = ["tool", "P@1", "file [MB]", "prediction [µs/row]", "training [s]"]
    return [*table(heads, rows), "", f"Means over {', '.join(shared(known)) or 'no set yet'}."]


def score_table(known: Known, figure: Callable[[str], str]) -> list[str]:
    """One figure of every tool on every set, the highest in bold."""
    rows = []
    for name, of in known.items():
        n_labels = results.read(name, "set")["labels"]
        scores = [summary(of.get(method, {}), figure(name)) for method in SCORED]
        best = max((score for score in scores if score is not None), default=None)
        cells = [number(score) for score in scores]
        cells = [f"**{cell}**" if cell == number(best) != "–" else cell for cell in cells]
        rows.append([f"{name} ({n_labels:,})", *cells])
    return table(["data set (labels)", *(METHODS[method].short for method in SCORED)], rows)


def p1_table(known: Known) -> list[str]:
    return score_table(known, lambda name: "p1")


def at5_table(known: Known) -> list[str]:
    return score_table(known, results.at5)


def psp5_table(known: Known) -> list[str]:
    return score_table(known, lambda name: "psp5")


def difference(of: Mapping[str, Result], method: str) -> str:
    """Return the difference in P@1 from the best peer, in points."""
    best, ours = best_peer(of), summary(of.get(method, {}))
    if method == best:
        return "best peer"
    theirs = summary(of[best]) if best else None
    if ours is None or theirs is None:
        return "–"
    return f"{100 * (ours - theirs):+.2f}".replace("-", "−")


def title(method: Method) -> str:
    return method.title if method.is_peer else f"**{method.title}**"


def set_table(of: Mapping[str, Result]) -> list[str]:
    """Accuracy of every method on a set."""
    heads = ["method", "P@1", "from the best peer [points]", "P@3", "P@5", "recall@5", "PSP@5"]
    rows = []
    for method in METHODS.values():
        result = of.get(method.name, {})
        if "not_run" in result:
            rows.append([title(method), "not run", *["–"] * 5])
        elif result:
            cells = [number(summary(result)), difference(of, method.name)]
            figures = ("p3", "p5", "recall5", "psp5")
            cells += [number(summary(result, figure)) for figure in figures]
            rows.append([title(method), *cells])
    return table(heads, rows)


def cost_table(of: Mapping[str, Result]) -> list[str]:
    """Time and memory of every method that ran on a set."""
    heads = ["method", "training [s]", "training memory [MB]", "prediction [µs/row]", "file [MB]"]
    rows = []
    for method in METHODS.values():
        if "runs" in (result := of.get(method.name, {})):
            spent = costs(result)
            cells = [significant(spent["train"]), significant(spent["memory"], 1e-6)]
            cells += [significant(spent["predict"]), significant(spent["bytes"], 1e-6)]
            rows.append([title(method), *cells])
    return table(heads, rows)


def set_sections(known: Known) -> list[str]:
    """One section for every set: how large it is, and what every method does on it."""
    lines = []
    for name, of in known.items():
        size, best = results.read(name, "set"), best_peer(of)
        rare = size["labels_with_one_row"]
        words = [
            f"{size['rows']:,} training and {size['test_rows']:,} test rows, "
            f"{size['features']:,} features, {size['labels']:,} labels, "
            f"{size['labels_per_row']:.1f} labels per row; {rare:,} "
            f"{'label has' if rare == 1 else 'labels have'} a single training row."
        ]
        if best is not None:
            p1 = summary(of[best]) or 0.0
            error = 100 * (p1 * (1 - p1) / size["test_rows"]) ** 0.5
            words.append(f"The standard error of a P@1 is {error:.2f} points.")
        text = " ".join(words)
        lines += [f"### {name}", "", text, "", *set_table(of), "", *cost_table(of), ""]
    return lines[:-1]


def source(known: Known) -> list[str]:
    """Return the caption of all tables here."""
    abouts = [r["about"] for of in known.values() for r in of.values() if "runs" in r]
    machines = "; ".join(sorted({about["machine"] for about in abouts}))
    dates = sorted({about["date"] for about in abouts})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return [f"*{machines}; {span}; `python -m benchmarks.accuracy`.*"]
