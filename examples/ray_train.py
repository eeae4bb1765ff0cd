"""Train on Ray: on this machine, or with --address on a cluster.

    pip install 'ltls[ray]'
    python examples/ray_train.py
    python examples/ray_train.py --address head:6379 --workers 16 --rows 50000000

After every epoch the state is saved to --checkpoint. If this process dies, the same command with
--resume goes on from there; a worker that dies is replaced without it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import ray

import ltls
import ltls.ray

N_LABELS, N_FEATURES, N_WORDS = 2000, 20_000, 8


def make_rows(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return rows for some ids: the words of a random label, and as many of noise."""
    rng = np.random.default_rng(batch["id"])
    labels = rng.integers(N_LABELS, size=len(batch["id"]))
    words = np.random.default_rng(0).integers(N_FEATURES, size=(N_LABELS, N_WORDS))
    noise = rng.integers(N_FEATURES, size=(len(labels), N_WORDS))
    indices = np.concatenate([words[labels], noise], axis=1)
    return {"indices": indices, "values": np.ones(indices.shape, np.float32), "label": labels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="local", help="of a cluster, as head:6379")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--checkpoint", type=Path, default=Path("ray_train.checkpoint"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("ray_train.ltls"))
    options = parser.parse_args()
    with ltls.ray.connect(options.address):
        rows = ray.data.range(options.rows).map_batches(make_rows, batch_size=1000)
        model = ltls.LTLSClassifier(random_state=0)
        ltls.ray.fit(
            model,
            rows,
            label="label",
            features=["indices", "values"],
            n_features=N_FEATURES,
            n_workers=options.workers,
            checkpoint=ltls.Checkpoint(options.checkpoint, resume=options.resume),
        )
    model.save(options.output)
    options.checkpoint.unlink(missing_ok=True)
    test = make_rows({"id": np.arange(options.rows, options.rows + 1000)})
    X = np.zeros((1000, N_FEATURES), np.float32)
    np.put_along_axis(X, test["indices"], test["values"], axis=1)
    accuracy = ltls.load(options.output).score(X, test["label"])
    print(f"accuracy on 1000 other rows: {accuracy:.3f}")


if __name__ == "__main__":
    main()
