"""How time and memory grow with the classes, the rows and the non-zeros of a row.

    python benchmarks/scaling.py [--quick]

Synthetic labels under a random codebook, which needs no memory of its own, and rows whose features
follow a power law as those of text do. Writes docs/benchmarks/scaling.{json,md,svg}.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from ltls import RandomCodebook, Trellis
from ltls.decoding import Decoder
from ltls.linear import Learner, engine_features

N_FEATURES, NON_ZEROS, ROWS = 50_000, 50, 20_000
N_CLASSES, WIDTH = 100_000, 2
KS = (1, 5, 50)
SERIES = ["training step", *(f"prediction, k = {k}" for k in KS)]


def rows(n_rows: int, non_zeros: int) -> sp.csr_matrix:
    rng = np.random.default_rng(0)
    indices = np.minimum(N_FEATURES * rng.random((n_rows, non_zeros)) ** 3, N_FEATURES - 1)
    values = rng.random(indices.size, np.float32)
    indptr = np.arange(0, indices.size + 1, non_zeros, dtype=np.int64)
    X = sp.csr_matrix((values, indices.astype(np.int64).ravel(), indptr), (n_rows, N_FEATURES))
    X.sum_duplicates()
    return X


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def shortest(work: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of a call: other work on the machine disturbs it little."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


def measure(n_classes: int, n_rows: int, non_zeros: int, repeats: int) -> dict[str, Any]:
    """Return microseconds a row of learning and predicting, and bytes."""
    X = rows(n_rows, non_zeros)
    before = resident()
    trellis, book = Trellis(n_classes, WIDTH), RandomCodebook(n_classes)
    how: dict[str, Any] = {"adagrad": True, "average": False, "settings": {}}
    learner = Learner(trellis, 1, N_FEATURES, intercept=True, unit_length=False, **how)
    labels = np.random.default_rng(1).integers(n_classes, size=n_rows)
    paths = book.path_of(labels)[None]
    features = engine_features(X, True, False)
    order, ptr = np.arange(n_rows), np.arange(n_rows + 1)

    def learn() -> None:
        learner.learn(
            trellis, features, order, ptr, labels, paths, example_weights=None, codebooks=[],
            loss="softmax", multilabel=False, rate=0.3, threshold=0.0, count_hits=False,
            ranking_multiplier=1, batch=1, n_jobs=1,
        )  # fmt: skip

    found: dict[str, Any] = {
        "C": n_classes,
        "N": n_rows,
        "nnz": non_zeros,
        "edges": trellis.n_edges,
        "training step": shortest(learn, repeats) / n_rows * 1e6,
        "model bytes": learner.weights.nbytes,
    }
    decoder = Decoder(trellis, [book], n_classes, "softmax")
    linear = learner.model(0)
    some = min(n_rows, 5000)
    for k in KS:
        predictor = decoder.predictor(linear, min(k, n_classes))
        ids = np.empty((some, min(k, n_classes)), np.int64)
        scores = np.empty(ids.shape, np.float32)

        def predict(predictor=predictor, ids=ids, scores=scores) -> None:  # type: ignore[no-untyped-def]
            predictor.predict(features, 0, ids, scores, 1)

        found[f"prediction, k = {k}"] = shortest(predict, repeats) / some * 1e6
    found["resident bytes"] = resident() - before
    return found


def measure_all(points: list[tuple[int, int, int]], repeats: int) -> list[dict[str, Any]]:
    """Measure each in a process of its own, whose memory begins anew."""
    found = []
    for point in points:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(measure, (*point, repeats)))
        print(found[-1], flush=True)
    return found


def exponent(found: list[dict[str, Any]], axis: str, name: str) -> float:
    """Return p of the best fit time = c · axisᵖ."""
    x, y = (np.log([row[key] for row in found]) for key in (axis, name))
    return float(np.polyfit(x, y, 1)[0])


def plot(series: dict[str, list[dict[str, Any]]], path: Path) -> None:
    figure, axes = plt.subplots(1, 4, figsize=(16, 3.4), layout="constrained")
    for ax, (axis, found) in zip(axes, series.items(), strict=False):
        for name in SERIES:
            ax.plot([row[axis] for row in found], [row[name] for row in found], "o-", label=name)
        ax.set(xscale="log", yscale="log", xlabel=axis, ylabel="µs per row")
    axes[0].legend()
    for name in ("model bytes", "resident bytes"):
        found = series["C"]
        axes[3].plot([row["C"] for row in found], [row[name] / 1e6 for row in found], "o-",
                     label=name.replace("bytes", "MB"))  # fmt: skip
    axes[3].set(xscale="log", yscale="log", xlabel="C", ylabel="MB")
    axes[3].legend()
    figure.savefig(path)


def report(result: dict[str, Any]) -> str:
    lines = [
        "# Scaling",
        "",
        "Microseconds of processor time per row, one thread, one trellis of width 2, softmax,",
    ]
    lines += [
        f"AdaGrad, {N_FEATURES:,} features. Resident memory is what learning and predicting add;"
    ]
    lines += ["AdaGrad's memory is as large as the model.", ""]
    lines += ["![time and memory against classes, rows and non-zeros](scaling.svg)", ""]
    lines += [f"- {key}: {value}" for key, value in result["about"].items()]
    for axis, found in result["series"].items():
        head = [axis, "edges", *SERIES, "model MB", "resident MB"]
        lines += ["", f"## {axis} grows", "", "| " + " | ".join(head) + " |"]
        lines += ["|" + "---:|" * len(head)]
        for row in found:
            cells = [f"{row[axis]:,}", str(row["edges"]), *(f"{row[name]:.2f}" for name in SERIES)]
            cells += [f"{row[name] / 1e6:.1f}" for name in ("model bytes", "resident bytes")]
            lines.append("| " + " | ".join(cells) + " |")
        fits = ", ".join(f"{name} {exponent(found, axis, name):.3f}" for name in SERIES)
        lines += ["", f"Exponents p of time ~ {axis}ᵖ: {fits}."]
    times = result["series"]["C"]
    worst = max(times[-1][name] / times[0][name] for name in SERIES[1:])
    lines += ["", f"Prediction at C = {times[-1]['C']:,} takes at most {worst:.2f} times that at "]
    lines[-1] += f"C = {times[0]['C']:,}."
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer points, nothing written")
    args = parser.parse_args()
    step, repeats = (3, 3) if args.quick else (1, 7)
    classes = [10**e for e in range(3, 10, step)]
    counts = [1_000, 10_000] if args.quick else [1_000, 3_000, 10_000, 30_000, 100_000]
    non_zeros = [10, 100] if args.quick else [10, 30, 100, 300, 1000]
    series = {
        "C": measure_all([(c, ROWS, NON_ZEROS) for c in classes], repeats),
        "N": measure_all([(N_CLASSES, n, NON_ZEROS) for n in counts], repeats),
        "nnz": measure_all([(N_CLASSES, ROWS // 4, n) for n in non_zeros], repeats),
    }
    result = {"about": machine.description("numpy", "scipy"), "series": series}
    print(report(result))
    if args.quick:
        return
    machine.write(machine.RESULTS, "scaling", result, report(result))
    plot(series, machine.RESULTS / "scaling.svg")


if __name__ == "__main__":
    main()
