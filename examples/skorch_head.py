"""A network with a TrellisSoftmax as a scikit-learn estimator, through skorch.

The layer is skorch's criterion: a loss with parameters, which are trained with the module's.

    pip install skorch && python examples/skorch_head.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from skorch import NeuralNetClassifier
from torch import Tensor, nn

from ltls.torch import TrellisSoftmax


class Body(nn.Module):
    """A hidden layer."""

    def __init__(self, n_features: int, n_hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, n_hidden), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Return the hidden vectors."""
        return self.layers(x)


class Loss(TrellisSoftmax):
    """The layer as a criterion, which returns the loss alone."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Return the loss."""
        return super().forward(input, target).loss


class TrellisClassifier(NeuralNetClassifier):
    """A network that predicts with its criterion."""

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of every row."""
        labels = [self.criterion_.predict(hidden) for hidden in self.forward_iter(X)]
        return torch.cat(labels).cpu().numpy()


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    X_train, X_test, y_train, y_test = train_test_split(X, y.astype(np.int64), random_state=0)
    torch.manual_seed(0)
    network = TrellisClassifier(
        Body,
        module__n_features=X.shape[1],
        criterion=Loss,
        criterion__in_features=64,
        criterion__n_classes=10,
        criterion__width=4,
        optimizer=torch.optim.Adam,
        lr=0.01,
        max_epochs=15,
        train_split=None,
        verbose=0,
    )
    network.fit(X_train, y_train)
    print(f"held-out accuracy: {network.score(X_test, y_test):.3f}")


if __name__ == "__main__":
    main()
