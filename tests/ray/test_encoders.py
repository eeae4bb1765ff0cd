"""EncoderClassifier in the workers of Ray Train."""

import json

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs ray: run make test-all")
torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
pytest.importorskip("accelerate", reason="needs accelerate: run make test-all")

from ray.train import RunConfig, ScalingConfig  # noqa: E402
from ray.train.torch import TorchTrainer  # noqa: E402


def problem():
    X = np.random.default_rng(0).normal(size=(240, 6)).astype(np.float32)
    return X, [f"label {i}" for i in X.argmax(axis=1)]


def train(config):
    """Fit in one of several workers; write the weights, and let the first one save the model."""
    from pathlib import Path

    import ray.train
    import torch

    from ltls.torch import EncoderClassifier

    folder, rank = Path(config["folder"]), ray.train.get_context().get_world_rank()
    torch.set_num_threads(1)
    torch.manual_seed(rank)  # the weights of the first worker are those that count
    options = {"epochs": 4, "batch_size": 8, "learning_rate": 0.02, "head_learning_rate": 0.05}
    encoder = torch.nn.Linear(6, 16)
    model = EncoderClassifier(encoder, text=False, random_state=0, **options)
    model.fit(*config["data"], checkpoint=folder / "run")
    torch.save([model.encoder_.model.weight, model.head_.edges.weight], folder / f"{rank}.pt")
    if rank == 0:
        model.save(folder / "model")


def test_workers_of_ray_train_fit_one_model(cluster, tmp_path):
    from ltls.torch import EncoderClassifier

    TorchTrainer(
        train,
        train_loop_config={"folder": str(tmp_path), "data": problem()},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "ray")),
    ).fit()
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert json.loads((tmp_path / "run" / "state.json").read_text())["epoch"] == 4
    model = EncoderClassifier.load(tmp_path / "model", torch.nn.Linear(6, 16), device="cpu")
    assert model.score(*problem()) > 0.7
