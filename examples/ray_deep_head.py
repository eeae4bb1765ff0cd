"""Train a network with a TrellisSoftmax under Ray Train: data parallel, gloo on CPUs.

    pip install 'ltls[ray,torch]' 'ray[train]'
    python examples/ray_deep_head.py
    python examples/ray_deep_head.py --address head:6379 --workers 8

Every worker has a copy of network and head, DistributedDataParallel averages their gradients, and
the head's are those of O(log C) edges per row instead of C classes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from sklearn.datasets import load_digits
from torch import Tensor, nn

import ltls.ray
from ltls.torch import TrellisSoftmax


class Network(nn.Module):
    """A hidden layer, and the head."""

    def __init__(self, n_features: int = 64, n_hidden: int = 64, n_classes: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_features, n_hidden), nn.ReLU())
        self.head = TrellisSoftmax(n_hidden, n_classes, width=4)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return self.head(self.body(x), target).loss


def train(config: dict[str, Any]) -> None:
    """Train on the shard of one worker."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = prepare_model(Network())
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    shard = ray.train.get_dataset_shard("train")
    for _ in range(config["epochs"]):
        total, n = 0.0, 0
        for batch in shard.iter_torch_batches(batch_size=16, dtypes=config["dtypes"]):
            optimizer.zero_grad()
            loss = network(batch["x"], batch["y"])
            loss.backward()
            optimizer.step()
            total, n = total + loss.item(), n + 1
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                state = getattr(network, "module", network).state_dict()
                torch.save(state, Path(folder, "network.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": total / n}, checkpoint=checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="local", help="of a cluster, as head:6379")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--folder", default=None, help="that all nodes share, for checkpoints")
    options = parser.parse_args()
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype("float32")
    rows = [{"x": row, "y": int(label)} for row, label in zip(X[:1500], y[:1500], strict=True)]
    with ltls.ray.connect(options.address):
        trainer = TorchTrainer(
            train,
            train_loop_config={
                "epochs": options.epochs,
                "dtypes": {"x": torch.float32, "y": torch.int64},
            },
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ray.train.ScalingConfig(
                num_workers=options.workers, resources_per_worker={"CPU": 0.5}
            ),
            run_config=ray.train.RunConfig(
                storage_path=options.folder or tempfile.mkdtemp(),
                failure_config=ray.train.FailureConfig(max_failures=2),
            ),
            datasets={"train": ray.data.from_items(rows)},
        )
        result = trainer.fit()
        with result.checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "network.pt"))
    network = Network()
    network.load_state_dict(state)
    found = network.head.predict(network.body(torch.from_numpy(X[1500:])))
    accuracy = (found.numpy() == y[1500:]).mean()
    print(f"held-out accuracy: {accuracy:.3f}")


if __name__ == "__main__":
    main()
