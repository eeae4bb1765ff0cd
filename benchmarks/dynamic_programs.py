"""Time per row of the dynamic programs as the number of classes grows, and beside torch-struct.

Writes docs/benchmarks/dynamic_programs.{json,md,svg}.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import machine
import matplotlib.pyplot as plt
import numpy as np

from ltls import Trellis

CLASSES = [10**exponent for exponent in range(3, 13)]
WIDTHS = [2, 8, 32]
ROWS = 1024
PROGRAMS = ["viterbi", "topk 5", "log_partition", "marginals"]


def run(trellis: Trellis, program: str, h: np.ndarray) -> object:
    name, *k = program.split()
    return getattr(trellis, name)(h, *map(int, k))


def growth() -> list[dict[str, object]]:
    rows = []
    for width in WIDTHS:
        for n_classes in CLASSES:
            trellis = Trellis(n_classes, width)
            h = np.random.default_rng(0).normal(size=(ROWS, trellis.n_edges)).astype(np.float32)
            row: dict[str, object] = {"width": width, "C": n_classes, "edges": trellis.n_edges}
            for program in PROGRAMS:
                time = machine.seconds(lambda t=trellis, p=program, h=h: run(t, p, h), 3)
                row[program] = time / ROWS * 1e9
            rows.append(row)
            print("  ".join(f"{key} {value:,.0f}" for key, value in row.items()), flush=True)
    return rows


def fits(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Fit time = a + b·log10 C for every width and program."""
    result = []
    for width in WIDTHS:
        chosen = [row for row in rows if row["width"] == width]
        x = np.log10([row["C"] for row in chosen])
        for program in PROGRAMS:
            y = np.array([row[program] for row in chosen])
            slope, start = np.polyfit(x, y, 1)
            explained = 1 - np.var(y - start - slope * x) / np.var(y)
            result.append(
                {
                    "width": width,
                    "program": program,
                    "start": start,
                    "slope": slope,
                    "r2": explained,
                }
            )
    return result


def against_torch_struct() -> dict[str, float]:
    """Time both, one thread each, at C = 2**20, width 2, 4,096 rows: nanoseconds per row."""
    import torch
    import torch_struct

    torch.set_num_threads(1)
    rows, slices = 4096, 20
    trellis = Trellis(2**slices, 2)
    h = np.random.default_rng(0).normal(size=(rows, trellis.n_edges)).astype(np.float32)
    # torch-struct's chain of 20 states has 19 transitions; source and auxiliary edges join them.
    b = trellis.width
    transitions = h[:, b : b + (slices - 1) * b * b].reshape(rows, slices - 1, b, b).copy()
    transitions[:, 0] += h[:, :b, None]
    transitions[:, -1] += h[:, None, -b - 1 : -1] + h[:, -1, None, None]
    potentials = torch.from_numpy(np.ascontiguousarray(transitions.swapaxes(2, 3)))

    def chain() -> torch_struct.LinearChainCRF:
        return torch_struct.LinearChainCRF(potentials)

    def both() -> tuple[object, object]:
        distribution = chain()
        return distribution.partition, distribution.marginals

    score = (chain().argmax * potentials).sum((1, 2, 3)).detach()
    np.testing.assert_allclose(trellis.viterbi(h)[1], score, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(trellis.log_partition(h), chain().partition.detach(), rtol=1e-4)

    def per_row(work: object) -> float:
        return machine.seconds(work, 5) / rows * 1e9  # type: ignore[arg-type]

    return {
        "viterbi, ltls": per_row(lambda: trellis.viterbi(h)),
        "viterbi, torch-struct": per_row(lambda: chain().argmax),
        "log-partition and marginals, ltls": per_row(
            lambda: (trellis.log_partition(h), trellis.marginals(h))
        ),
        "log-partition and marginals, torch-struct": per_row(both),
    }


def plot(rows: list[dict[str, object]], path: Path) -> None:
    figure, axes = plt.subplots(1, len(PROGRAMS), figsize=(14, 3.2), layout="constrained")
    for ax, program in zip(axes, PROGRAMS, strict=True):
        for width in WIDTHS:
            chosen = [row for row in rows if row["width"] == width]
            times = [row[program] / 1000 for row in chosen]
            ax.plot([row["C"] for row in chosen], times, "o-", label=f"width {width}")
        ax.set(xscale="log", ylim=(0, None), title=program, xlabel="classes", ylabel="µs per row")
    axes[0].legend()
    figure.savefig(path)


def report(result: dict[str, object]) -> str:
    lines = [
        "# Dynamic programs",
        "",
        "Time per row in a batch of 1,024 rows, one thread, float32.",
    ]
    lines += ["", "![time per row against classes](dynamic_programs.svg)", ""]
    lines += [f"- {key}: {value}" for key, value in result["about"].items()]
    lines += ["", "| width | classes | edges | " + " | ".join(f"{p}, ns" for p in PROGRAMS) + " |"]
    lines += ["|---:" * (3 + len(PROGRAMS)) + "|"]
    for row in result["growth"]:
        exponent = round(np.log10(row["C"]))
        times = " | ".join(f"{row[p]:,.0f}" for p in PROGRAMS)
        lines.append(f"| {row['width']} | 10^{exponent} | {row['edges']:,} | {times} |")
    lines += ["", "Time grows with log C: nanoseconds = start + slope · log10 C.", ""]
    lines += ["| width | program | start | slope | R² |", "|---:|---|---:|---:|---:|"]
    for fit in result["fits"]:
        lines.append(
            f"| {fit['width']} | {fit['program']} | {fit['start']:,.0f} | {fit['slope']:,.0f} "
            f"| {fit['r2']:.3f} |"
        )
    lines += ["", "## Beside torch-struct", ""]
    lines += ["C = 2^20, width 2, 4,096 rows, one thread each, the same scores.", ""]
    lines += ["| | ltls, ns per row | torch-struct, ns per row | ratio |", "|---|---:|---:|---:|"]
    peer = result["torch_struct"]
    for name in ("viterbi", "log-partition and marginals"):
        ours, theirs = peer[f"{name}, ltls"], peer[f"{name}, torch-struct"]
        lines.append(f"| {name} | {ours:,.0f} | {theirs:,.0f} | {theirs / ours:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    # torch-struct 0.5 predates a check of torch.distributions
    warnings.filterwarnings("ignore", message=".*arg_constraints.*")
    peer, rows = against_torch_struct(), growth()
    result: dict[str, object] = {
        "about": machine.description("numpy", "torch", "torch-struct"),
        "growth": rows,
        "fits": fits(rows),
        "torch_struct": peer,
    }
    text = report(result)
    machine.write(machine.RESULTS, "dynamic_programs", result, text)
    plot(rows, machine.RESULTS / "dynamic_programs.svg")
    print(text)


if __name__ == "__main__":
    main()
