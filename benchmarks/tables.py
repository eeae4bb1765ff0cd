"""The tables of what is stored in benchmarks/results, but for accuracy and the deep head.

Every function takes a stored result and returns lines of Markdown; the last is the caption.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.machine import source, table
from benchmarks.reliability import PARTS

Result = dict[str, Any]
Cell = Callable[[Result], str]


def captioned(lines: list[str], result: Result) -> list[str]:
    return [*lines, "", source(result["about"])]


def listing(
    result: Result, rows: Iterable[Result], columns: dict[str, str | Cell], n_words: int = 0
) -> list[str]:
    """Return a table with a line for every row; a column is a format or a function of the row."""
    cells = [
        [cell.format(**row) if isinstance(cell, str) else cell(row) for cell in columns.values()]
        for row in rows
    ]
    return captioned(table(list(columns), cells, n_words), result)


def power(n: int) -> str:
    """Write a power of ten as one."""
    exponent = round(math.log10(n))
    return "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(exponent))


# Speed and scale

TOOLS = {
    "default": "`LTLSClassifier()`",
    "width2": "ltls, one trellis of width 2",
    "omikuji": "omikuji",
    "napkinxc": "napkinXC",
    "pecos": "PECOS",
}


def speed(result: Result) -> list[str]:
    """Return the time of single rows, and of loading a model."""
    rows = []
    for name, of in result["sets"].items():
        for tool, title in TOOLS.items():
            if (found := of.get(tool)) is None:
                continue
            cells = [f"{1e6 * found[key]:,.0f}" for key in ("p50_seconds", "p99_seconds")]
            rows.append([name, title, *cells, f"{1e3 * found['load_seconds']:,.0f}"])
    heads = ["data set", "tool", "one row, median [µs]", "99 % [µs]", "load and predict [ms]"]
    return captioned(table(heads, rows, 2), result)


def programs(result: Result) -> list[str]:
    rows = (row for row in result["growth"] if row["C"] in (10**3, 10**6, 10**9, 10**12))
    columns: dict[str, str | Cell] = {
        "width": "{width}",
        "classes": lambda row: power(row["C"]),
        "edges": "{edges:,}",
        "best path": "{viterbi:,.0f}",
        "best 5": "{topk 5:,.0f}",
        "log-partition": "{log_partition:,.0f}",
        "marginals": "{marginals:,.0f}",
    }
    return listing(result, rows, columns)


def torch_struct(result: Result) -> list[str]:
    peer, rows = result["torch_struct"], []
    for name in ("viterbi", "log-partition and marginals"):
        ours, theirs = peer[f"{name}, ltls"], peer[f"{name}, torch-struct"]
        rows.append([name, f"{ours:,.0f}", f"{theirs:,.0f}", f"{theirs / ours:.0f}"])
    heads = ["", "ltls [ns/row]", "torch-struct [ns/row]", "times as fast"]
    return captioned(table(heads, rows), result)


def growth(result: Result) -> list[str]:
    series = ["training step", *(f"prediction, k = {k}" for k in (1, 5, 50))]
    columns: dict[str, str | Cell] = {
        "classes": lambda row: power(row["C"]),
        "edges": "{edges}",
        **{name: "{" + name + ":.2f}" for name in series},
        "model [MB]": lambda row: f"{row['model bytes'] / 1e6:.1f}",
    }
    return listing(result, result["series"]["C"], columns)


SCALE_TOOLS = {tool: TOOLS[tool] for tool in ("default", "omikuji", "pecos")}
SCALE_COSTS: dict[str, Callable[[Result, Result], float]] = {
    "training": lambda tool, of: tool["train_cpu_seconds"],
    "prediction": lambda tool, of: 1e6 * tool["predict_cpu_seconds"] / of["set"]["test_rows"],
    "peak memory": lambda tool, of: tool["train_peak_bytes"] / 1e6,
    "file": lambda tool, of: tool["model_bytes"] / 1e6,
}  # [s], [µs], [MB], [MB]


def scale_labels(result: Result) -> list[str]:
    """Return scores and costs on sets of more and more labels."""
    rows = []
    for of in result["sets"].values():
        for name, title in SCALE_TOOLS.items():
            if name not in of["tools"]:
                continue
            tool = of["tools"][name]
            start = [power(of["set"]["labels"]), title]
            if "not_run" in tool:
                rows.append([*start, tool["not_run"], *["–"] * len(SCALE_COSTS)])
                continue
            costs = [cost(tool, of) for cost in SCALE_COSTS.values()]
            scores = f"{tool['p1']:.3f} / {tool['p5']:.3f}"
            rows.append(
                [*start, scores, *(f"{cost:,.{1 if cost < 100 else 0}f}" for cost in costs)]
            )
    heads = ["labels", "tool", "P@1 / P@5", "training [s]", "prediction [µs]", "peak memory [MB]"]
    return captioned(table([*heads, "file [MB]"], rows, 2), result)


def sets_of(name: str, result: Result) -> list[Result]:
    """Return the sets that a tool was measured on."""
    return [of for of in result["sets"].values() if "p1" in of["tools"].get(name, {})]


def exponents(result: Result) -> dict[str, dict[str, float]]:
    """Return by tool and cost the exponent of its growth in the number of labels."""
    found: dict[str, dict[str, float]] = {}
    for name in SCALE_TOOLS:
        sets = sets_of(name, result)
        x = [math.log(of["set"]["labels"]) for of in sets]
        if len(x) > 1:
            found[name] = {
                title: statistics.linear_regression(
                    x, [math.log(cost(of["tools"][name], of)) for of in sets]
                ).slope
                for title, cost in SCALE_COSTS.items()
            }
    return found


def scale_exponents(result: Result) -> list[str]:
    """Return how the costs grow: the slopes of lines through the logarithms."""
    rows = []
    for name, of in exponents(result).items():
        sizes = [each["set"]["labels"] for each in sets_of(name, result)]
        labels = f"{power(min(sizes))} to {power(max(sizes))}"
        rows.append([SCALE_TOOLS[name], labels, *(f"{slope:.2f}" for slope in of.values())])
    return captioned(table(["tool", "labels", *SCALE_COSTS], rows, 2), result)


def scale_rows(result: Result) -> list[str]:
    """Return the rate and the memory of training on more and more streamed rows."""
    columns: dict[str, str | Cell] = {
        "rows": "{rows:,}",
        "processor time [s]": "{cpu_seconds:,.1f}",
        "rows/s of it": lambda of: f"{of['rows'] / of['cpu_seconds']:,.0f}",
        "peak memory [MB]": lambda of: f"{of['peak_bytes'] / 1e6:,.0f}",
    }
    return listing(result, result["fits"].values(), columns)


def scale_vectors(result: Result) -> list[str]:
    """Return what training on vectors in a memory-mapped file takes."""
    columns: dict[str, str | Cell] = {
        "vectors": lambda of: f"{of['rows']:,}, {of['file_bytes'] / 1e6:,.0f} MB ({of['dtype']})",
        "labels": "{labels:,}",
        "peak memory beyond them [MB]": lambda of: f"{of['peak_bytes'] / 1e6:,.0f}",
        "processor time [s]": "{cpu_seconds:,.1f}",
        "P@1": "{p1:.4f}",
        "µs/row": "{predict_us:,.0f}",
        "model [MB]": lambda of: f"{of['model_bytes'] / 1e6:,.1f}",
    }
    return listing(result, result["fits"].values(), columns)


def readers(result: Result) -> list[str]:
    rows = []
    for row in result["files"]:
        peer, one, two = row["seconds"].values()
        megabytes = row["size"] / 1e6
        cells = [f"{seconds:.2f}" for seconds in (peer, one, two)]
        name = f"{row['data']} ({megabytes:,.0f} MB)"
        rows.append([name, f"{row['values']:,}", *cells, f"{peer / one:.0f} and {peer / two:.0f}"])
    heads = ["file", "values", "scikit-learn [s]", "ltls, 1 thread [s]", "2 threads [s]"]
    return captioned(table([*heads, "times as fast"], rows), result)


# The server


SERVERS = {
    "no-op": "an endpoint that does nothing",
    "ltls serve": "`ltls serve`",
    "ltls serve, rows": "`ltls serve`, rows of features",
    "plain": "the same model behind a plain function",
}


def serving(result: Result) -> list[str]:
    """Return requests per second, beside an endpoint that does nothing."""
    nothing, rows = result["servers"]["no-op"], []
    for name, cases in result["servers"].items():
        shares = [cases[n]["per_second"] / nothing[n]["per_second"] for n in ("1", "8", "64")]
        cells = [f"{cases['8']['per_second']:,.0f}", *(f"{share:.0%}" for share in shares)]
        rows.append([SERVERS[name], *cells, f"{cases['8']['server_us']:,.0f}"])
    heads = ["server", "requests/s", "of no-op, 1 connection", "8", "64", "server [µs/request]"]
    return captioned(table(heads, rows), result)


def serving_latency(result: Result) -> list[str]:
    """Return latencies under full and half load, and who used the processor."""
    rows = []
    for name, cases in result["servers"].items():
        times = [
            f"{cases[n]['p50_ms']:.2f}, {cases[n]['p99_ms']:.2f}" for n in ("1", "8", "64", "half")
        ]
        shares = f"{cases['8']['client_share']:.0%}, {cases['8']['server_share']:.0%}"
        rows.append([SERVERS[name], *times, shares])
    heads = ["p50, p99 [ms]", "1 connection", "8", "64", "half load", "cores: client, server"]
    return captioned(table(heads, rows), result)


# Accuracy


def views(result: Result) -> list[str]:
    """Return P@1 and file size of models with one setting changed."""
    rows = [
        [
            row["set"],
            row["model"],
            *(f"{of['p1']:.4f}, {of['bytes'] / 1e6:.1f} MB" for of in row["cells"].values()),
        ]
        for row in result["rows"]
    ]
    return captioned(table(["data set", "model", *result["rows"][0]["cells"]], rows, 2), result)


codebooks = rounding = views


def embeddings(result: Result) -> list[str]:
    rows = []
    for name, found in result["sets"].items():
        words = f"{name}, {found['rows']:,} rows, {found['labels']:,} labels"
        for method, of in found["methods"].items():
            if "not_run" in of:
                rows.append([words, method, "not run", *["–"] * 4])
                continue
            cells = [f"{of['p1']:.4f}", f"{of['recall5']:.4f}", f"{of['train_cpu_seconds']:,.1f}"]
            cells += [f"{of['predict_us']:,.0f}", f"{of['bytes'] / 1e6:.1f}"]
            rows.append([words, method, *cells])
    heads = ["data set", "method", "P@1", "recall@5", "training [s]", "µs/row", "model [MB]"]
    return captioned(table(heads, rows, 2), result)


def blocks(result: Result) -> list[str]:
    rows = []
    for name, found in result["sets"].items():
        words = f"{name}, {found['rows']:,} rows, {found['labels']:,} labels"
        for method, of in found["methods"].items():
            cells = [f"{of[key]:.4f}" for key in ("p1", "recall5", "p5")]
            cells += [f"{of['train_cpu_seconds']:,.1f}", f"{of['bytes'] / 1e6:.1f}"]
            rows.append([words, method, *cells])
    heads = ["data set", "features", "P@1", "recall@5", "P@5", "training [s]", "model [MB]"]
    return captioned(table(heads, rows, 2), result)


def text(result: Result) -> list[str]:
    own, peer = result["TextClassifier"], result["LinearSVC"]
    p = own["precision"]
    spread = f"{statistics.mean(p):.4f} ({min(p):.4f}–{max(p):.4f})"
    train, size = f"{statistics.median(own['train_s']):.1f}", f"{own['bytes'] / 1e6:.1f}"
    rows = [
        [f"`TextClassifier()`, {len(p)} seeds", spread, train, size],
        [
            "`LinearSVC()` on the same features",
            f"{peer['precision']:.4f}",
            f"{peer['train_s']:.1f}",
            "–",
        ],
    ]
    return captioned(table(["model", "P@1", "training [s]", "file [MB]"], rows), result)


def demo(result: Result) -> list[str]:
    rows = [
        [
            name,
            f"{of['precision']:.3f}",
            f"{of['recall']:.3f}",
            *(
                f"{of[key] * scale:.1f}" if key in of else "–"
                for key, scale in (("train_s", 1), ("predict_us", 1), ("bytes", 1e-6))
            ),
        ]
        for name, of in result["models"].items()
    ]
    heads = ["model", "P@1", "recall@5", "training [s]", "best 5 [µs/row]", "file [MB]"]
    return captioned(table(heads, rows), result)


def calibration(result: Result) -> list[str]:
    heads = ["set", "ECE", "ECE of all pairs", "NLL", "F1 at 0.5", "best F1", "F1 of `predict`"]
    names = ("ece", "ece_all_pairs", "nll", "f1_at_half", "f1_best", "f1_predict")
    rows = [
        [name, *(f"{found[each]:.3f}" if each in found else "" for each in names)]
        for name, found in result["sets"].items()
    ]
    return captioned(table(heads, rows), result)


def small_dense(result: Result) -> list[str]:
    columns: dict[str, str | Cell] = {
        "set": "{name}",
        "rows": "{rows:,}",
        "logistic regression": "{logistic regression[accuracy]:.3f}",
        "ltls": "{ltls[accuracy]:.3f}",
        "logistic regression [s]": "{logistic regression[seconds]:.3f}",
        "ltls [s]": "{ltls[seconds]:.3f}",
    }
    return listing(
        result, ({"name": name, **of} for name, of in result["sets"].items()), columns, 1
    )


# The paper

# Precision@1, prediction time [s] and model size [M] of the paper's tables 1 and 2.
PAPER = {
    "bibtex": {
        "LTLS": "0.2719 0.07 264.0",
        "LEML": "0.6401 0.22 8.6",
        "FastXML": "0.6414 0.09 27.0",
    },
    "sector": {
        "LTLS": "0.8845 0.14 5.91",
        "LOMtree": "0.8210 0.16 17.00",
        "FastXML": "0.8490 0.25 7.00",
    },
}
# Precision@1 of the oracle, of LR and of LTLS in its table 3.
PAPER_3 = {"bibtex": "0.7126 0.2220 0.2719", "sector": "0.2362 0.2248 0.8945"}
PAPER_SETS = {
    "bibtex": ("bibtex", "bibtex, Mulan's split"),
    "bibtex5991": ("bibtex", "bibtex, cut at 5,991 rows"),
    "sectorpart": ("sector", "sector, a tenth of its training rows"),
}


def paper(result: Result) -> list[str]:
    """Put our figures below the paper's, for the sets that we have."""
    rows = []
    for paper_set, models in PAPER.items():
        for model, figures in models.items():
            rows.append([f"{paper_set}, the paper", model, *figures.split()])
        for name, (of_paper, title) in PAPER_SETS.items():
            if of_paper != paper_set or name not in result["ours"]:
                continue
            of = result["ours"][name]
            spread = f"{min(of['precisions']):.4f}–{max(of['precisions']):.4f}"
            cells = [f"{of['precision']:.4f} ({spread})", f"{of['predict_seconds']:.4f}"]
            rows.append([title, "**ours**", *cells, f"{of['model_bytes'] / 2**20:.2f}"])
    heads = ["data set", "model", "precision@1", "prediction [s]", "model [MiB]"]
    return captioned(table(heads, rows, 2), result)


def paper_baselines(result: Result) -> list[str]:
    rows = []
    for name, (of_paper, title) in PAPER_SETS.items():
        if name not in result["ours"]:
            continue
        of = result["ours"][name]
        oracle, lr, ltls = PAPER_3[of_paper].split()
        pairs = [(oracle, of["oracle"]), (lr, of["lr"]), (ltls, of["precision"])]
        rows.append([title, str(of["edges"]), *(f"{a} / {b:.4f}" for a, b in pairs)])
    heads = ["data set", "edges", "oracle, paper / ours", "LR, paper / ours", "LTLS, paper / ours"]
    return captioned(table(heads, rows), result)


def paper_orders(result: Result) -> list[str]:
    """How much the order of the training rows matters, in a sentence."""
    of = result["ours"]["bibtex"]
    every = of["precisions"] + of["precisions_of_more_orders"]
    error = statistics.stdev(every) / len(every) ** 0.5
    return [
        f"Over {len(every)} random orders of bibtex's training rows, precision@1 ranges from "
        f"{min(every):.4f} to {max(every):.4f}. Its mean is {statistics.mean(every):.4f}, with a "
        f"standard error of {error:.4f}. The paper reports 0.2719 for a single order."
    ]


# Reliability


def reliability(result: Result) -> list[str]:
    counts, rows = result["counts"], []
    for name, part in PARTS.items():
        target = f"{part.target:,}" if part.target > 1 else "every one"
        rows.append([part.what, part.how, target, *_tried(counts.get(name))])
        if part.with_sanitizers:
            sanitized = _tried(counts.get(f"{name}+sanitizers"))
            rows.append(["… with sanitizers", part.how, target, *sanitized])
    lines = table(["what", "how", "target", "tried", "last run"], rows, 2)
    if server := counts.get("server"):
        lines += [
            "",
            f"In {server['seconds'] / 60:.0f} minutes beside hostile clients, the slowest of "
            f"{server['health_checks']:,} health checks took "
            f"{server['slowest_health_check_s']:.2f} s.",
        ]
    return captioned(lines, result)


def _tried(counted: dict[str, Any] | None) -> list[str]:
    """Return a number, and the date and commit of the last run."""
    if counted is None:
        return ["0", ""]
    return [f"{counted['tried']:,}", f"{counted['date']}, {counted['commit']}"]


# Continual learning


def continual(result: Result) -> list[str]:
    """Return the change of P@1 of the old labels, and how often the new one is found."""
    measured = {n for of in result["sets"].values() for each in of["curves"].values() for n in each}
    sizes, rows = sorted(measured, key=int), []
    for name, of in result["sets"].items():
        for method, curve in of["curves"].items():
            cells = [
                f"{100 * curve[n]['old']:+.1f} / {100 * curve[n]['found']:.0f} %"
                if n in curve
                else "–"
                for n in sizes
            ]
            rows.append([name, method, *cells])
    heads = ["data set", "method", *(f"{int(n):,} row{'s' * (n != '1')}" for n in sizes)]
    return captioned(table(heads, rows, 2), result)


def continual_rows(result: Result) -> list[str]:
    """Return the same after a thousand single rows of old and new labels, beside retraining."""
    rows = []
    for name, of in result["sets"].items():
        if (single := of.get("single_rows")) is None:
            continue
        methods = [
            single[name] for name in ("ltls in memory", "ltls from the file", "from scratch")
        ]
        cells = [f"{100 * each['old']:+.1f} / {100 * each['found']:.0f} %" for each in methods]
        shares = ", ".join(f"{100 * each['of_retrained']:.0f} %" for each in methods[:2])
        rows.append([name, *cells, shares])
    heads = ["data set", "in memory", "saved and loaded", "retrained", "of what retraining finds"]
    return captioned(table(heads, rows), result)


def continual_files(result: Result) -> list[str]:
    """Return what the rows in memory add to the default file."""
    columns: dict[str, str | Cell] = {
        "data set": "{name}",
        "`memory=False` [MB]": lambda of: f"{of['facts']['bytes_without'] / 1e6:.2f}",
        "default [MB]": lambda of: f"{of['facts']['bytes'] / 1e6:.2f}",
        "rows in the file": "{facts[rows]:,} of {rows:,}",
    }
    return listing(
        result, ({"name": name, **of} for name, of in result["sets"].items()), columns, 1
    )
