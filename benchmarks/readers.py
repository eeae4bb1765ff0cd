"""Reading svmlight and XMC text beside scikit-learn's parser.

Writes docs/benchmarks/readers.{json,md}. Data sets come from LTLS_DATA, if it is set.
"""

from __future__ import annotations

import lzma
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import machine
import numpy as np
from sklearn.datasets import load_svmlight_file

from ltls.readers import Dataset, read

DATA_SETS = ["debtags", "debfiles"]
REPEATS = 3


def generate(path: Path) -> None:
    """Write 100,000 rows of 30 features with four digits each, two labels a row."""
    rng = np.random.default_rng(0)
    n_rows, n_features, n_labels = 100_000, 100_000, 10_000
    with open(path, "w") as file:
        file.write(f"{n_rows} {n_features} {n_labels}\n")
        for _ in range(n_rows):
            features = np.unique((n_features * rng.random(30) ** 2).astype(int))
            values = rng.random(len(features))
            pairs = " ".join(f"{j}:{x:.4g}" for j, x in zip(features, values, strict=True))
            file.write("{},{} {}\n".format(*rng.integers(0, n_labels, 2), pairs))


def scikit_learn(path: Path) -> object:
    with open(path, "rb") as file:
        file.readline()  # it does not know the header
        return load_svmlight_file(file, dtype=np.float32, multilabel=True, zero_based=True)


WAYS: dict[str, Callable[[Path], object]] = {
    "scikit-learn": scikit_learn,
    "ltls, 1 thread": lambda path: read(path, n_jobs=1),
    "ltls, 2 threads": lambda path: read(path, n_jobs=2),
}


def check(path: Path) -> Dataset:
    """See that both read the same: scikit-learn rounds twice, so the last bit may differ."""
    ours, (X, labels) = read(path), scikit_learn(path)
    assert np.array_equal(ours.X.indptr, X.indptr)
    assert np.array_equal(ours.X.indices, X.indices)
    np.testing.assert_allclose(ours.X.data, X.data, rtol=1.2e-7)
    assert all(set(row) == set(own) for row, own in zip(ours.labels(), labels, strict=True))
    return ours


def measure(name: str, path: Path) -> dict[str, object]:
    """Take the ways in turn, so that what else the machine does meets them all."""
    data = check(path)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(REPEATS):
        for way, work in WAYS.items():
            start = time.perf_counter()
            work(path)
            times[way].append(time.perf_counter() - start)
    size = path.stat().st_size
    row: dict[str, object] = {"data": name, "rows": data.n_rows, "values": data.X.nnz, "size": size}
    row["seconds"] = {way: statistics.median(each) for way, each in times.items()}
    print(row, flush=True)
    return row


def report(result: dict[str, object]) -> str:
    lines = ["# Reading text files", ""]
    lines += [f"Plain files of the XMC format into CSR matrices; medians of {REPEATS} runs."]
    lines += ["MB are 10⁶ bytes of text; *times* is scikit-learn's time over ours.", ""]
    lines += [f"- {key}: {value}" for key, value in result["about"].items()]
    lines += ["", "| data | rows | values | MB | " + " | ".join(f"{way}, s" for way in WAYS)]
    lines[-1] += " | ltls MB/s, 1 and 2 threads | times, 1 and 2 threads |"
    lines += ["|---" + "|---:" * (len(WAYS) + 5) + "|"]
    for row in result["files"]:
        peer, one, two = row["seconds"].values()
        megabytes = row["size"] / 1e6
        cells = [row["data"], f"{row['rows']:,}", f"{row['values']:,}", f"{megabytes:,.0f}"]
        cells += [f"{seconds:.3g}" for seconds in (peer, one, two)]
        cells += [f"{megabytes / one:,.0f} and {megabytes / two:,.0f}"]
        cells += [f"{peer / one:.1f} and {peer / two:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.txt")
        generate(path)
        rows.append(measure("generated", path))
        for name in DATA_SETS if "LTLS_DATA" in os.environ else ():
            packed = Path(os.environ["LTLS_DATA"], f"{name}_train.txt.xz")
            with lzma.open(packed) as source, open(path, "wb") as file:
                shutil.copyfileobj(source, file)
            rows.append(measure(name, path))
    result = {"about": machine.description("numpy", "scikit-learn"), "files": rows}
    text = report(result)
    machine.write(machine.RESULTS, "readers", result, text)
    print(text)


if __name__ == "__main__":
    main()
