"""Score Parquet files on Ray: on this machine, or with --address on a cluster.

    pip install 'ltls[ray]'
    python examples/ray_score.py
    python examples/ray_score.py --address head:6379 --rows 100000000

It trains a small model, writes rows to Parquet, scores them, and counts that every row came back
once. On a cluster, --folder must be one that all nodes share.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits

import ltls
import ltls.ray

ROWS_PER_FILE = 1_000_000


def write_rows(folder: Path, X: np.ndarray, n_rows: int) -> None:
    """Write rows with an id, drawn from the digits, as lists of indices and values."""
    rng = np.random.default_rng(0)
    for first in range(0, n_rows, ROWS_PER_FILE):
        n = min(ROWS_PER_FILE, n_rows - first)
        rows = X[rng.integers(len(X), size=n)]
        present = rows > 0
        counts = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
        offsets = pa.array(counts, pa.int32())
        table = pa.table(
            {
                "id": np.arange(first, first + n),
                "indices": pa.ListArray.from_arrays(offsets, np.nonzero(present)[1].astype("i4")),
                "values": pa.ListArray.from_arrays(offsets, rows[present].astype("f4")),
            }
        )
        pq.write_table(table, folder / f"{first:012}.parquet", row_group_size=50_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="local", help="of a cluster, as head:6379")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    X, y = load_digits(return_X_y=True)
    X /= 16
    model = ltls.LTLSClassifier(random_state=0).fit(X, y)
    model.save(folder / "digits.ltls")
    (folder / "in").mkdir()
    write_rows(folder / "in", X, options.rows)
    with ltls.ray.connect(options.address):
        n_rows = ltls.ray.score_parquet(
            folder / "digits.ltls",
            folder / "in",
            folder / "out",
            features=["indices", "values"],
            k=1,
            concurrency=options.workers,
        )
    ids = pq.read_table(folder / "out", columns=["id"])["id"].to_numpy()
    print(f"{n_rows} rows scored, {len(np.unique(ids))} of them different: {folder / 'out'}")


if __name__ == "__main__":
    main()
