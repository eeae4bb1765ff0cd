"""Tables of the comparison of accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.accuracy import results
from benchmarks.accuracy.methods import METHODS, OURS, PEERS, Method
from benchmarks.accuracy.results import Known, Result, best_peer, lead, summary
from benchmarks.machine import table

# Methods of the overview. They all ran on the sets of SHARED.
SHOWN = ("default", "size_of_omikuji", "size_of_napkinxc", "paper",
         "omikuji", "napkinxc", "pecos", "linearsvc")  # fmt: skip
NAMES = {
    "default": "ltls",
    "size_of_omikuji": "ltls, size of omikuji",
    "size_of_napkinxc": "ltls, size of napkinXC",
    "paper": "ltls, paper's settings",
    "omikuji": "omikuji",
    "napkinxc": "napkinXC",
    "pecos": "PECOS",
    "linearsvc": "LinearSVC",
}
AT5 = {"p5": "P@5", "recall5": "recall@5"}


# Tables


def number(value: float | None, form: str = ".4f") -> str:
    return "–" if value is None else format(value, form)


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
    for method in SHOWN:
        each = [costs(known[name][method]) for name in names]
        means = {
            key: float(np.exp(np.mean(np.log([cost[key] for cost in each])))) for key in each[0]
        }
        p1 = float(np.mean([summary(known[name][method]) for name in names]))
        found[method] = {"p1": p1, **means}
    return found


def tools_table(known: Known) -> list[str]:
    """Mean P@1, size and time of every tool: the table of a reader who is choosing one."""
    rows = [
        [
            NAMES[method],
            f"{of['p1']:.3f}",
            significant(of["bytes"], 1e-6),
            significant(of["predict"]),
            significant(of["train"]),
        ]
        for method, of in averages(known).items()
    ]
    heads = ["tool", "P@1", "file [MB]", "prediction [µs/row]", "training [s]"]
    return table(heads, rows)


def score_table(known: Known, figure: Callable[[str], str]) -> list[str]:
    """One figure of every tool on every set, the highest in bold."""
    shown = ("default", "omikuji", "napkinxc", "pecos", "linearsvc")
    rows = []
    for name, of in known.items():
        n_labels = results.read(name, "set")["labels"]
        scores = [summary(of.get(method, {}), figure(name)) for method in shown]
        best = max((score for score in scores if score is not None), default=None)
        cells = [number(score) for score in scores]
        cells = [f"**{cell}**" if cell == number(best) != "–" else cell for cell in cells]
        rows.append([f"{name} ({n_labels:,})", *cells])
    return table(["data set (labels)", *(NAMES[method] for method in shown)], rows)


def p1_table(known: Known) -> list[str]:
    return score_table(known, lambda name: "p1")


def at5_table(known: Known) -> list[str]:
    return score_table(known, results.at5)


def psp5_table(known: Known) -> list[str]:
    return score_table(known, lambda name: "psp5")


def size_table(known: Known) -> list[str]:
    """P@1 of models that had to be as small as a peer's."""
    rows = []
    for method in (METHODS[f"size_of_{peer}"] for peer in ("omikuji", "napkinxc", "pecos")):
        for name, of in known.items():
            ours, theirs = of.get(method.name, {}), of.get(method.as_small_as, {})
            if "runs" not in theirs or not ours:
                continue
            cells = [number(summary(ours)), significant(summary(ours, "model_bytes"), 1e-6)]
            if "runs" not in ours:
                cells = ["no model this small", "–"]
            cells += [number(summary(theirs)), significant(summary(theirs, "model_bytes"), 1e-6)]
            rows.append([NAMES[method.as_small_as], name, *cells])
    heads = ["as small as", "data set", "ltls P@1", "ltls [MB]", "peer P@1", "peer [MB]"]
    return table(heads, rows, 2)


def difference(name: str, of: Mapping[str, Result], method: str) -> str:
    """Return the difference in P@1 from the best peer, in points, with its interval."""
    best, value = best_peer(of), lead(of, method)
    if method == best:
        return "best peer"
    if value is None:
        return "–"
    stored = results.read(name, "against_best")
    bounds = stored.get("intervals", {}).get(method) if stored.get("peer") == best else None
    words = f"{100 * value:+.2f}"
    if bounds:
        words += " ({:+.2f} to {:+.2f})".format(*(100 * bound for bound in bounds))
    return words.replace("-", "−")


def listed(of: Mapping[str, Result]) -> list[Method]:
    """Return the methods that are known, but for those of a peer's size."""
    return [m for m in (*OURS, *PEERS) if of.get(m.name) and not m.as_small_as]


def title(method: Method) -> str:
    return method.title if method.is_peer else f"**{method.title}**"


def set_table(name: str, of: Mapping[str, Result]) -> list[str]:
    """Accuracy of every method on a set."""
    at5 = results.at5(name)
    heads = ["method", "P@1", "from the best peer [points]", AT5[at5]]
    heads += ["PSP@5", "macro-F1@5", "coverage@5"]
    figures = (at5, "psp5", "macro_f1_5", "coverage5")
    rows = []
    for method in listed(of):
        result = of[method.name]
        cells = [number(summary(result)), difference(name, of, method.name)]
        cells += [number(summary(result, figure)) for figure in figures]
        rows.append([title(method), *(cells if "runs" in result else ["not run", *["–"] * 5])])
    return table(heads, rows)


def cost_table(of: Mapping[str, Result]) -> list[str]:
    """Time and memory of every method that ran on a set."""
    heads = ["method", "training [s]", "training memory [MB]", "prediction [µs/row]", "file [MB]"]
    rows = []
    for method in listed(of):
        result = of[method.name]
        if "runs" in result:
            spent, memory = costs(result), summary(result, "train_peak_bytes")
            cells = [significant(spent["train"]), significant(memory, 1e-6)]
            cells += [significant(spent["predict"]), significant(spent["bytes"], 1e-6)]
            rows.append([title(method), *cells])
    return table(heads, rows)


def set_sections(known: Known) -> list[str]:
    """One section for every set: how large it is, and what every method does on it."""
    lines = []
    for name, of in known.items():
        size = results.read(name, "set")
        rare = size["labels_with_one_row"]
        lines += [
            f"### {name}",
            "",
            f"{size['rows']:,} training and {size['test_rows']:,} test rows, "
            f"{size['features']:,} features, {size['labels']:,} labels, "
            f"{size['labels_per_row']:.1f} labels per row; {rare:,} "
            f"{'label has' if rare == 1 else 'labels have'} a single training row.",
            "",
            *set_table(name, of),
            "",
            *cost_table(of),
            "",
        ]
    return lines[:-1]


def source(known: Known) -> list[str]:
    """Return the caption of all tables here."""
    abouts = [r["about"] for of in known.values() for r in of.values() if "runs" in r]
    machines = "; ".join(sorted({about["machine"] for about in abouts}))
    dates = sorted({about["date"] for about in abouts})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return [f"*{machines}; {span}; `python -m benchmarks.accuracy`.*"]


# What prose says of `LTLSClassifier()` with its defaults

CLOSE = 0.005  # of P@1


def compared(known: Known) -> Known:
    """Return the sets that the defaults and a peer ran on."""
    return {name: of for name, of in known.items() if lead(of) is not None}


def close_to_best(known: Known) -> list[str]:
    """Return the sets where our P@1 is within half a point of the best peer's."""
    leads = {name: lead(of) for name, of in known.items()}
    return [name for name, value in leads.items() if value is not None and value >= -CLOSE]


def above_best(known: Known) -> list[str]:
    """Return the sets where our P@1 is above the best peer's."""
    return [name for name, of in known.items() if (lead(of) or 0) > 0]
