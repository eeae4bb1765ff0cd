"""The tables of the deep head: every function takes a stored result, as those of `tables` do."""

from __future__ import annotations

from benchmarks.machine import table
from benchmarks.tables import Result, captioned, power

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
    "AdaptiveTrellisSoftmax, defaults": "`AdaptiveTrellisSoftmax`, defaults",
    "AdaptiveTrellisSoftmax, width 32": "`AdaptiveTrellisSoftmax`, width 32",
    "AdaptiveTrellisSoftmax, width 32, graphed callable": "`AdaptiveTrellisSoftmax`, graphed",
    "AdaptiveTrellisSoftmax, width 32, CUDA graph": "`AdaptiveTrellisSoftmax`, CUDA graph",
    "nn.Linear of the size of a trellis": "`nn.Linear` as large as a trellis of width 8",
    "AdaptiveLogSoftmaxWithLoss": "`AdaptiveLogSoftmaxWithLoss`",
    "cut-cross-entropy, bf16": "cut-cross-entropy, bf16",
    "Liger, bf16": "Liger, bf16",
    "QuACK, bf16": "QuACK, bf16",
    "nn.Linear + cross_entropy, bf16": "`nn.Linear`, bf16",
    "nn.Linear + cross_entropy": "`nn.Linear`",
}


def by_classes(result: Result, figure: str, scale: float = 1.0) -> list[str]:
    """Return a figure of every head against the number of classes, for 512 inputs."""
    rows = {(r["head"], r["C"]): r for r in result["rows"] if r["in_features"] == 512}
    classes = sorted({n for _, n in rows})

    def cell(row: Result) -> str:
        value = row.get(figure)
        if isinstance(value, float | int):
            return f"{value * scale:,.2f}" if value * scale < 100 else f"{value * scale:,.0f}"
        failed = "does not fit" in (row.get("error", ""), value)
        late = row.get("error", "").startswith(("not run", "stopped"))
        return "out of memory" if failed else "failed" if "error" in row and not late else "–"

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


def language_model_python(result: Result) -> list[str]:
    """Return what a transformer reaches with each head."""
    rows = [
        [row["head"], f"{row['parameters']:,}", *scores(row)[:-1], f"{row['rate']:g}"]
        for row in result["rows"]
        if "error" not in row
    ]
    heads = ["head", "parameters", "P@1", "recall@5", "NLL", "learning rate"]
    return captioned(table(heads, rows), result)


language_model_english = language_model_python


def restricted(result: Result) -> list[str]:
    """Return the time of an answer under every restriction."""
    rows = [[row["restriction"], f"{row['us per row']:,.0f}"] for row in result["rows"]]
    return captioned(table(["the ten best of", "µs per row"], rows), result)


def recommend_amazon(result: Result) -> list[str]:
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


recommend_debian = recommend_amazon


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


def encoder(result: Result) -> list[str]:
    """Return P@1 / P@5 of heads, of classifiers on vectors and texts, and of hybrids."""

    def both(row: Result, of: str = "") -> str:
        pair = [row.get(f"{of}P@1"), row.get(f"{of}P@5")]
        return "–" if None in pair else "{:.4f} / {:.4f}".format(*pair)

    rows = []
    if (sparse := result.get("sparse")) is not None:
        alone = both(sparse)
        seconds = f"{sparse['train s']:.0f}"
        rows.append(["sparse model alone", "", "–", "–", alone, alone, seconds])
    for row in result["rows"]:
        if "error" not in row:
            seconds = f"{row['train s']:.0f}" if "train s" in row else "–"
            found = [both(row, of) for of in ("", "vectors ", "text ", "hybrid ")]
            rows.append([row["head"], f"{row['parameters']:,}", *found, seconds])
    heads = ["model", "head parameters", "head", "vectors", "text", "hybrid", "training [s]"]
    return captioned(table(heads, rows), result)


def probe(result: Result) -> list[str]:
    rows = [
        [
            row["head"],
            f"{row['P@1']:.4f}",
            f"{row['train s']:.0f}",
            f"{row['gpu memory'] / 1e9:.1f}" if "gpu memory" in row else "–",
        ]
        for row in result["rows"]
        if "error" not in row
    ]
    return captioned(table(["model", "P@1", "training [s]", "GPU memory [GB]"], rows), result)


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
