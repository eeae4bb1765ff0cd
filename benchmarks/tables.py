"""The tables of what is stored in benchmarks/results, but for the comparison of accuracy.

Every function takes a stored result and returns lines of Markdown; the last is the caption.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.cost_model import GBITS, Measured
from benchmarks.machine import source, table
from benchmarks.reliability import PARTS

Result = dict[str, Any]
WIDTH2 = "`LTLSClassifier(width=2, n_trellises=1, embedding_dim=0)`"
TOOLS = {
    "default": "`LTLSClassifier()`",
    "width2": "ltls, one trellis of width 2",
    "omikuji": "omikuji",
    "napkinxc": "napkinXC",
    "pecos": "PECOS",
}


def captioned(lines: list[str], result: Result) -> list[str]:
    return [*lines, "", source(result["about"])]


def power(n: int) -> str:
    """Write a power of ten as one."""
    exponent = round(math.log10(n))
    return "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(exponent))


# Speed and scale


def speed_rows(result: Result, cells: Callable[[Result], list[str]]) -> list[list[str]]:
    return [
        [name, title, *cells(of[tool])]
        for name, of in result["sets"].items()
        for tool, title in TOOLS.items()
        if tool in of and "not_run" not in of[tool]
    ]


def prediction(result: Result) -> list[str]:
    def cells(r: Result) -> list[str]:
        batches = [r[f"{cores}_seconds"] / r["test_rows"] for cores in ("one_core", "two_cores")]
        return [f"{1e6 * x:,.1f}" for x in (*batches, r["p50_seconds"], r["p99_seconds"])]

    heads = ["data set", "tool", "batch, 1 core", "batch, 2 cores", "one row, median", "99 %"]
    return captioned(table(heads, speed_rows(result, cells), 2), result)


def training(result: Result) -> list[str]:
    def cells(r: Result) -> list[str]:
        return [
            f"{r['train_rows'] / r['train_seconds']:,.0f}",
            f"{r['peak_bytes'] / 1e6:,.0f}",
            f"{r['model_bytes'] / 1e6:,.1f}",
            f"{1e3 * r['load_seconds']:,.1f}",
        ]

    heads = ["data set", "tool", "rows/s", "peak memory [MB]", "file [MB]", "load and predict [ms]"]
    return captioned(table(heads, speed_rows(result, cells), 2), result)


def speed(result: Result) -> list[str]:
    return [*prediction(result), "", *training(result)]


def programs(result: Result) -> list[str]:
    names = {"viterbi": "best path", "topk 5": "best 5", "log_partition": "log-partition"}
    names["marginals"] = "marginals"
    rows = [
        [
            str(row["width"]),
            power(row["C"]),
            f"{row['edges']:,}",
            *(f"{row[p]:,.0f}" for p in names),
        ]
        for row in result["growth"]
        if row["C"] in (10**3, 10**6, 10**9, 10**12)
    ]
    return captioned(table(["width", "classes", "edges", *names.values()], rows, 0), result)


def torch_struct(result: Result) -> list[str]:
    peer, rows = result["torch_struct"], []
    for name in ("viterbi", "log-partition and marginals"):
        ours, theirs = peer[f"{name}, ltls"], peer[f"{name}, torch-struct"]
        rows.append([name, f"{ours:,.0f}", f"{theirs:,.0f}", f"{theirs / ours:.0f}"])
    heads = ["", "ltls [ns/row]", "torch-struct [ns/row]", "times as fast"]
    return captioned(table(heads, rows), result)


def growth(result: Result) -> list[str]:
    series = ["training step", *(f"prediction, k = {k}" for k in (1, 5, 50))]
    rows = [
        [
            power(row["C"]),
            str(row["edges"]),
            *(f"{row[name]:.2f}" for name in series),
            f"{row['model bytes'] / 1e6:.1f}",
        ]
        for row in result["series"]["C"]
    ]
    return captioned(table(["classes", "edges", *series, "model [MB]"], rows, 0), result)


def rows(result: Result) -> list[str]:
    cells = [
        [f"{fit['rows']:,}", f"{fit['seconds']:.1f}", f"{fit['rows'] / fit['seconds']:,.0f}"]
        for fit in result["fits"]
    ]
    return captioned(table(["rows", "processor time [s]", "rows/s"], cells, 0), result)


SCALE_TOOLS = {"default": "`LTLSClassifier()`", "omikuji": "omikuji", "pecos": "PECOS"}
SCALE_COSTS = {
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
            tool = of["tools"].get(name, {"not_run": "not measured"})
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
    rows = [
        [
            f"{of['rows']:,}",
            f"{of['cpu_seconds']:,.1f}",
            f"{of['rows'] / of['cpu_seconds']:,.0f}",
            f"{of['seconds']:,.0f}",
            f"{of['peak_bytes'] / 1e6:,.0f}",
        ]
        for of in result["fits"].values()
    ]
    heads = ["rows", "processor time [s]", "rows/s of it", "wall time [s]", "peak memory [MB]"]
    return captioned(table(heads, rows, 0), result)


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


def threads(result: Result) -> list[str]:
    """Return the seconds of every part of training with one and two threads."""
    rows = []
    for name, found in result["sets"].items():
        limit = found["ceilings"]["computing"]
        for part, seconds in found["parts"].items():
            one, two = seconds["1"], seconds["2"]
            rows.append(
                [name, part, f"{one:.2f}", f"{two:.2f}", f"{one / two:.2f}", f"{limit:.2f}"]
            )
    heads = ["data set", "part", "1 thread [s]", "2 threads [s]", "times as fast", "ceiling"]
    return captioned(table(heads, rows, 2), result)


def threads_predicting(result: Result) -> list[str]:
    """Return the speed-up of two threads that call one predictor."""
    found = {
        name: each["predictor"] for name, each in result["sets"].items() if "predictor" in each
    }
    ways = list(next(iter(found.values()), {}))
    rows = [[name, *(f"{each[way]:.2f}" for way in ways)] for name, each in found.items()]
    return captioned(table(["data set", *ways], rows), result)


# The server


SERVERS = {
    "no-op": "an endpoint that does nothing",
    "ltls serve": "`ltls serve`",
    "ltls serve, rows": "`ltls serve`, rows of features",
    "plain": "the same model behind a plain function",
    "fastText": "fastText behind a plain function",
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
        times = [f"{cases[n]['p50_ms']:.2f}, {cases[n]['p99_ms']:.2f}" for n in ("1", "8", "64")]
        half = f"{cases['half']['p50_ms']:.2f}, {cases['half']['p99_ms']:.2f}"
        shares = f"{cases['8']['client_share']:.0%}, {cases['8']['server_share']:.0%}"
        rows.append([SERVERS[name], *times, half, shares])
    heads = ["p50, p99 [ms]", "1 connection", "8", "64", "half load", "cores: client, server"]
    return captioned(table(heads, rows), result)


def serving_soak(result: Result) -> list[str]:
    """Return what happened in minutes of requests."""
    cells = [
        f"{result['seconds'] / 60:.0f}",
        f"{result['requests']:,}",
        str(result["reloads"]),
        *(f"{result[key]:.1f}" for key in ("first_mb", "middle_mb", "last_mb")),
    ]
    heads = ["minutes", "requests", "reloads", "memory, first [MB]", "after half", "at the end"]
    return captioned(table(heads, [cells], 0), result)


# Clusters


def cluster_training(result: Result) -> list[str]:
    rows = []
    for name, found in result["sets"].items():
        one = found["runs"][0]
        for run in found["runs"]:
            workers = run["workers"]
            by_clock, by_path = (
                f"{one[key] / (workers * run[key]):.2f}" for key in ("seconds", "whole_s")
            )
            rows.append(
                [
                    f"{name}, {found['rows']:,} rows, {found['labels']:,} labels",
                    f"{workers} ({run['groups']} × {run['shards']})",
                    f"{run['p1']:.4f}",
                    f"{run['seconds']:.1f}",
                    by_clock if workers == run["cpus"] else "–",
                    f"{run['whole_s']:.1f}",
                    by_path,
                ]
            )
    heads = [
        "data set",
        "workers",
        "P@1",
        "time [s]",
        "efficiency",
        "critical path [s]",
        "efficiency, by it",
    ]
    return captioned(table(heads, rows, 2), result)


def cluster_messages(result: Result) -> list[str]:
    rows = []
    for name, found in result["sets"].items():
        measured = found["measured"]
        largest = measured["features"] * measured["trellises"] * measured["stride"] * 8
        rows += [
            [
                name,
                f"{run['workers']} ({run['groups']} × {run['shards']})",
                f"{run['rounds'] / run['epochs']:.0f}",
                f"{run['message_bytes'] / 1e6:.1f}",
                f"{largest / run['groups'] / 1e6:.1f}",
            ]
            for run in found["runs"]
            if run["shards"] > 1
        ]
    heads = ["data set", "workers", "averages per epoch", "message [MB]", "at most [MB]"]
    return captioned(table(heads, rows, 2), result)


def cluster_check(result: Result) -> list[str]:
    rows = []
    for name, found in result["sets"].items():
        costs = Measured(**found["measured"])
        for run in found["runs"][1:]:
            split = run["groups"], run["shards"]
            cells = []
            for predicted, measured in (
                (costs.processor_seconds(*split), run["processor_s"]),
                (costs.critical_seconds(*split), run["whole_s"]),
            ):
                cells += [f"{predicted:.1f}, {measured:.1f}", f"{predicted / measured:.2f}"]
            rows.append([name, f"{run['workers']} ({split[0]} × {split[1]})", *cells])
    heads = ["data set", "workers", "training tasks [s]", "ratio", "critical path [s]", "ratio"]
    return captioned(table(heads, rows, 2), result)


def cluster_plan(result: Result) -> list[str]:
    rows = []
    for name, found in result["sets"].items():
        plan = {(step["workers"], step["gbit"]): step for step in found["plan"]}
        for n_workers in sorted({workers for workers, _ in plan}):
            cells = [
                f"{plan[n_workers, gbit]['seconds']:.1f} s, {plan[n_workers, gbit]['bottleneck']}"
                for gbit in GBITS
            ]
            rows.append([name, str(n_workers), *cells])
    heads = ["data set", "workers", *(f"{gbit} Gbit/s" for gbit in GBITS)]
    return captioned(table(heads, rows, 2), result)


def cluster_hour(result: Result) -> list[str]:
    rows = []
    for name, found in result["sets"].items():
        costs = Measured(**found["measured"])
        seconds = sum(costs.seconds(1, GBITS[-1]).values())
        cells = [f"{found['rows']:,}", f"{costs.epochs}", f"{seconds:.1f}"]
        rows.append([name, *cells, f"{found['rows'] * 3600 / seconds / 1e6:,.0f}"])
    heads = ["data set", "rows", "epochs", "seconds of one core", "million rows in an hour"]
    return captioned(table(heads, rows), result)


def cluster_scoring(result: Result) -> list[str]:
    jobs = result["jobs"]
    rows, seconds = (sum(job[name] for job in jobs) for name in ("rows", "seconds"))
    counts = [sum(job[name] for job in jobs) for name in ("killed", "lost", "twice", "wrong")]
    cells = [f"{rows:,}", str(len(jobs)), *map(str, counts), f"{rows / seconds:,.0f}"]
    heads = [
        "rows",
        "jobs",
        "workers killed",
        "rows lost",
        "scored twice",
        "other labels",
        "rows/s",
    ]
    return captioned(table(heads, [cells], 0), result)


def cluster_faults(result: Result) -> list[str]:
    runs = result["runs"]
    worst = max(abs(run["p1"] - result["p1"]) for run in runs)
    cells = [
        f"{result['set']}, {result['rows']:,} rows",
        str(len(runs)),
        str(sum(run["killed"] for run in runs)),
        str(sum(run["same"] for run in runs)),
        f"{100 * worst:.2f}",
    ]
    heads = ["data set", "trainings", "workers killed", "same weights", "largest change of P@1"]
    return captioned(table(heads, [cells]), result)


# Accuracy


def rounding(result: Result) -> list[str]:
    dtypes, rows = ("float32", "float16", "int8"), []
    for name, models in result["sets"].items():
        for model, found in models.items():
            cells = [f"{found[d]['p1']:.4f}, {found[d]['bytes'] / 1e6:.1f} MB" for d in dtypes]
            rows.append([name, model, *cells])
    return captioned(table(["data set", "model", *dtypes], rows, 2), result)


def density(result: Result) -> list[str]:
    heads = ["data set", "all weights", "0.3", "0.1", "0.03", "auto"]
    rows = [
        [
            name,
            *(f"{f['p1']:.4f}, {f['p5']:.4f}, {f['bytes'] / 1e6:.1f} MB" for f in found.values()),
        ]
        for name, found in result["sets"].items()
    ]
    return captioned(table(heads, rows), result)


def codebooks(result: Result) -> list[str]:
    policies = ("random", "similarity", "learned")
    found = {
        (r["set"], r["width"], r["n_trellises"], r["codebook"]): statistics.mean(r["precisions"])
        for r in result["results"]
    }
    shapes = dict.fromkeys(key[:3] for key in found)
    rows = [
        [name, f"{width} × {n}", *(f"{found[name, width, n, policy]:.4f}" for policy in policies)]
        for name, width, n in shapes
    ]
    return captioned(table(["data set", "width × trellises", *policies], rows, 2), result)


def tuning(result: Result) -> list[str]:
    rows = [
        [name, f"{of['default']:.4f}", f"{of['tuned']:.4f}", str(of["fits"])]
        for name, of in result["results"].items()
    ]
    return captioned(table(["data set", "defaults", "tuned", "fits in a minute"], rows), result)


def text(result: Result) -> list[str]:
    own, peer = result["TextClassifier"], result["LinearSVC"]
    p = own["precision"]
    spread = f"{statistics.mean(p):.4f} ({min(p):.4f}–{max(p):.4f})"
    rows = [
        ["`TextClassifier()`, 5 seeds", spread, f"{statistics.median(own['train_s']):.1f}"],
        [
            "`LinearSVC()` on the same features",
            f"{peer['precision']:.4f}",
            f"{peer['train_s']:.1f}",
        ],
    ]
    rows[0] += [f"{own['int8_bytes'] / 1e6:.0f}"]
    rows[1] += ["–"]
    heads = ["model", "P@1", "training [s]", "file, int8 [MB]"]
    return captioned(table(heads, rows), result)


def demo(result: Result) -> list[str]:
    models = {f"ltls, width {row['width']}": row
              for row in sorted(result["models"], key=lambda row: row["width"])}  # fmt: skip
    if "pecos" in result:
        models["PECOS"] = result["pecos"]
    rows = [
        [
            title,
            f"{row['precision']:.3f}",
            f"{row['recall']:.3f}",
            f"{row['train_s']:.1f}",
            f"{row['predict_us']:.1f}",
            f"{row['bytes'] / 1e6:.1f}",
        ]
        for title, row in models.items()
    ]
    for name, title in (("majority", "most frequent token"), ("bigrams", "table of bigrams")):
        rows.append([title, *(f"{score:.3f}" for score in result[name]), "–", "–", "–"])
    heads = ["model", "P@1", "recall@5", "training [s]", "best 5 [µs/row]", "file, int8 [MB]"]
    return captioned(table(heads, rows), result)


# The paper

PAPER_SETS = {
    "bibtex": "bibtex, Mulan's split",
    "bibtex5991": "bibtex, cut at 5,991 rows",
    "sectorpart": "sector, a tenth of its training rows",
}
OF_PAPER = {"bibtex": "bibtex", "bibtex5991": "bibtex", "sectorpart": "sector"}


def paper(result: Result) -> list[str]:
    """Put our figures below the paper's, for the sets that we have."""
    theirs = {row[0]: row[2] for row in result["paper"]["tables_1_2"]}
    rows = []
    for paper_set in dict.fromkeys(OF_PAPER.values()):
        for model, figures in theirs[paper_set].items():
            rows.append([f"{paper_set}, the paper", model, *figures])
        for name, title in PAPER_SETS.items():
            if OF_PAPER[name] != paper_set or name not in result["ours"]:
                continue
            of = result["ours"][name]
            spread = f"{min(of['precisions']):.4f}–{max(of['precisions']):.4f}"
            cells = [f"{of['precision']:.4f} ({spread})", f"{of['predict_seconds']:.4f}"]
            rows.append([title, "**ours**", *cells, f"{of['model_bytes'] / 2**20:.2f}"])
    heads = ["data set", "model", "precision@1", "prediction [s]", "model [MiB]"]
    return captioned(table(heads, rows, 2), result)


def paper_baselines(result: Result) -> list[str]:
    rows = []
    for name, title in PAPER_SETS.items():
        if name not in result["ours"]:
            continue
        of = result["ours"][name]
        _, oracle, lr, ltls = result["paper"]["table_3"][OF_PAPER[name]].split()
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


# The deep head


# What no exact dense layer can go below: three products of batch, inputs and classes at the 989
# TFLOP/s of an H200's data sheet.
BF16_PEAK = 989e12
HEADS = {
    "TrellisSoftmax, width 8": "`TrellisSoftmax`, width 8",
    "TrellisSoftmax, width 8, two threads": "`TrellisSoftmax`, width 8, default threads",
    "TrellisSoftmax, width 8, graphed callable": "`TrellisSoftmax`, width 8, graphed",
    "TrellisSoftmax, width 8, CUDA graph": "`TrellisSoftmax`, width 8, CUDA graph",
    "TrellisSoftmax, width 8, not fused": "`TrellisSoftmax`, width 8, not fused",
    "TrellisSoftmax, width 32": "`TrellisSoftmax`, width 32",
    "AdaptiveTrellisSoftmax, width 32": "`AdaptiveTrellisSoftmax`, width 32",
    "AdaptiveTrellisSoftmax, width 32, graphed callable": "`AdaptiveTrellisSoftmax`, graphed",
    "AdaptiveTrellisSoftmax, width 32, CUDA graph": "`AdaptiveTrellisSoftmax`, CUDA graph",
    "nn.Linear of the size of a trellis": "`nn.Linear` as large as a trellis of width 8",
    "AdaptiveLogSoftmaxWithLoss": "`AdaptiveLogSoftmaxWithLoss`",
    "cut-cross-entropy, bf16": "cut-cross-entropy, bf16",
    "Liger, bf16": "Liger, bf16",
    "QuACK, bf16": "QuACK, bf16",
    "linear_cross_entropy, bf16": "`linear_cross_entropy`, bf16",
    "nn.Linear + cross_entropy, bf16": "`nn.Linear`, bf16",
    "nn.Linear + cross_entropy": "`nn.Linear`",
}


def by_classes(
    result: Result, figure: str, scale: float = 1.0, missing: str = "out of memory"
) -> list[str]:
    """Return a figure of every head against the number of classes, for 512 inputs."""
    rows = {(r["head"], r["C"]): r for r in result["rows"] if r["in_features"] == 512}
    classes = sorted({n for _, n in rows})

    def cell(row: Result) -> str:
        value = row.get(figure)
        if isinstance(value, float | int):
            return f"{value * scale:,.2f}" if value * scale < 100 else f"{value * scale:,.0f}"
        failed = "does not fit" in (row.get("error", ""), value)
        late = row.get("error", "").startswith(("not run", "stopped"))
        return missing if failed else "failed" if "error" in row and not late else "–"

    lines = [
        [title, *(cell(rows.get((head, n), {})) for n in classes)]
        for head, title in HEADS.items()
        if any(figure in rows.get((head, n), {}) for n in classes)
        and not (head.endswith("two threads") and figure == "top-5 ms")
    ]
    if figure == "step ms":
        limits = [6e3 * result["batch"] * 512 * n / BF16_PEAK for n in classes]
        lines.append(["limit of a dense layer, bf16", *(f"{limit:,.2f}" for limit in limits)])
    return captioned(table(["head", *(f"{power(n)} classes" for n in classes)], lines), result)


def step_time(result: Result) -> list[str]:
    return by_classes(result, "step ms")


def step_memory(result: Result) -> list[str]:
    return by_classes(result, "memory", 1e-6)


def step_top5(result: Result) -> list[str]:
    return by_classes(result, "top-5 ms")


def next_token(result: Result) -> list[str]:
    """Every head but those whose codebooks did not help."""
    rows = [
        [row["head"].replace(", frequency", ""), f"{row['parameters']:,}", *scores(row)]
        for row in result["rows"]
        if "error" not in row and "similarity" not in row["head"] and "learned" not in row["head"]
    ]
    heads = ["head", "parameters", "P@1", "recall@5", "NLL", "training [s]"]
    return captioned(table(heads, rows), result)


def language_model(result: Result) -> list[str]:
    """Return what a transformer reaches with each head."""
    rows = [
        [row["head"], f"{row['parameters']:,}", *scores(row)[:-1], f"{row['rate']:g}"]
        for row in result["rows"]
        if "error" not in row
    ]
    heads = ["head", "parameters", "P@1", "recall@5", "NLL", "learning rate"]
    return captioned(table(heads, rows), result)


language_model_python = language_model_english = language_model


def restricted(result: Result) -> list[str]:
    """Return the time of an answer under every restriction."""
    rows = [[row["restriction"], f"{row['us per row']:,.0f}"] for row in result["rows"]]
    return captioned(table(["the ten best of", "µs per row"], rows), result)


def recommend(result: Result) -> list[str]:
    """Return recall and nDCG of every model, and the recall of items without training rows."""
    rows = [
        [
            row["head"],
            f"{row['parameters']:,}",
            f"{row['input parameters']:,}",
            *(f"{row[key]:.4f}" for key in ("recall", "nDCG", "cold", "cold among cold")),
        ]
        for row in result["rows"]
    ]
    sizes = ["output parameters", "input parameters"]
    heads = ["model", *sizes, "recall@10", "nDCG@10", "cold", "cold among cold"]
    return captioned(table(heads, rows), result)


recommend_amazon = recommend_debian = recommend


def omniglot(result: Result) -> list[str]:
    rows = [
        [
            row["network"],
            row["head"].replace(", learned", ""),
            f"{row['parameters']:,}",
            *scores(row),
        ]
        for row in result["rows"]
        if "error" not in row and "random" not in row["head"]
    ]
    heads = ["network", "head", "head parameters", "P@1", "recall@5", "NLL", "training [s]"]
    return captioned(table(heads, rows, 2), result)


def scores(row: Result) -> list[str]:
    figures = [f"{row['P@1']:.4f}", f"{row['R@5']:.4f}", f"{row['NLL']:.3f}"]
    return [*figures, f"{row['seconds']:.1f}"]


def heads_table(result: Result) -> list[str]:
    """Whatever a network was trained with, or why it was not: what a run prints."""
    rows = []
    for row in result["rows"]:
        name = ", ".join(filter(None, (row.get("network"), row["head"])))
        found = (
            [row["error"], *[""] * 4] if "error" in row else [str(row["parameters"]), *scores(row)]
        )
        rows.append([name, *found])
    return table(["head", "parameters", "P@1", "recall@5", "NLL", "training [s]"], rows)


def calibration(result: Result) -> list[str]:
    def cell(found: dict[str, float], name: str) -> str:
        return f"{found[name]:.3f}" if name in found else ""

    heads = ["set", "ECE", "ECE of all pairs", "NLL", "F1 at 0.5", "best F1", "F1 of `predict`"]
    names = ("ece", "ece_all_pairs", "nll", "f1_at_half", "f1_best", "f1_predict")
    rows = [
        [name, *(cell(found, each) for each in names)] for name, found in result["sets"].items()
    ]
    return captioned(table(heads, rows), result)


def small_dense(result: Result) -> list[str]:
    models = ("logistic regression", "ltls")
    heads = ["set", "rows", *models, *(f"{name} [s]" for name in models)]
    rows = [
        [
            name,
            f"{found['rows']:,}",
            *(f"{found[each]['accuracy']:.3f}" for each in models),
            *(f"{found[each]['seconds']:.3f}" for each in models),
        ]
        for name, found in result["sets"].items()
    ]
    return captioned(table(heads, rows), result)


# What a benchmark prints when it has run, by the name of its file.
TABLES: dict[str, Callable[[Result], list[str]]] = {
    drawn.__name__: drawn
    for drawn in (
        readers,
        programs,
        growth,
        rows,
        codebooks,
        rounding,
        density,
        threads,
        tuning,
        text,
        demo,
        speed,
        calibration,
        small_dense,
    )
}


# Reliability


def reliability(result: Result) -> list[str]:
    counts, rows = result["counts"], []
    for name, part in PARTS.items():
        sanitized = counts.get(f"{name}+sanitizers", 0)
        tried = [f"{counts.get(name, 0):,}", f"{sanitized:,}" if part.with_sanitizers else ""]
        target = f"{part.target:,}" if part.target > 1 else "every one"
        rows.append([part.what, part.how, target, *tried])
    heads = ["what", "how", "target", "tried", "with sanitizers"]
    return captioned(table(heads, rows, 2), result)


# Continual learning


def continual(result: Result) -> list[str]:
    """Return the change of P@1 of the old labels, and how often the new one is found."""
    sizes = ("1", "10", "100", "1000")
    rows = []
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


def continual_turns(result: Result) -> list[str]:
    """Return the same after many labels in turn, beside training from scratch."""
    rows = []
    for name, of in result["sets"].items():
        turns = of["in_turn"]
        cells = [
            f"{100 * (turns[method]['old'] - turns['before']):+.1f} / "
            f"{100 * turns[method]['found']:.0f} %"
            for method in ("ltls in memory", "ltls from the file", "from scratch")
        ]
        rows.append([name, str(turns["labels"]), *cells])
    heads = ["data set", "new labels", "ltls in memory", "saved and loaded each time"]
    return captioned(table([*heads, "from scratch"], rows), result)


def continual_files(result: Result) -> list[str]:
    """Return what the rows to replay add to the default file."""
    rows = [
        [
            name,
            f"{of['facts']['bytes_without'] / 1e6:.2f}",
            f"{of['facts']['bytes'] / 1e6:.2f}",
            f"{100 * (of['facts']['bytes'] / of['facts']['bytes_without'] - 1):.0f} %",
            f"{of['facts']['rows']:,.0f} of {of['rows']:,}",
        ]
        for name, of in result["sets"].items()
    ]
    heads = ["data set", "`replay_size=0` [MB]", "default [MB]", "more", "rows in the file"]
    return captioned(table(heads, rows), result)
