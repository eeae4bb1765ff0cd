"""Replace the softmax layer of a trained network, and fine-tune.

`TrellisSoftmax.from_linear` builds the codebook from the layer's rows, so that tokens with similar
rows share edges, and initializes the edge weights with a least-squares fit of the rows.

    python examples/replace_softmax.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from transformer_head import corpus

from ltls.torch import TrellisSoftmax

CONTEXT = 4


def rows(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the context of every token, and the token."""
    return ids.unfold(0, CONTEXT, 1)[:-1], ids[CONTEXT:]


def train(
    loss: Callable[[Tensor, Tensor], Tensor],
    parameters: list[nn.Parameter],
    data: tuple[Tensor, Tensor],
    steps: int,
    lr: float,
) -> None:
    optimizer = torch.optim.Adam(parameters, lr=lr)
    for _ in range(steps):
        batch = torch.randint(len(data[0]), (256,))
        optimizer.zero_grad()
        loss(data[0][batch], data[1][batch]).backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--files", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    train_ids, test_ids, n_tokens = corpus(options.files)
    train_rows, test_rows = rows(train_ids), rows(test_ids)
    counts = torch.bincount(train_ids, minlength=n_tokens)

    body = nn.Sequential(
        nn.Embedding(n_tokens, 32), nn.Flatten(), nn.Linear(CONTEXT * 32, 128), nn.ReLU()
    )
    linear = nn.Linear(128, n_tokens)

    def full_loss(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(linear(body(x)), y)

    train(full_loss, [*body.parameters(), *linear.parameters()], train_rows, options.steps, 2e-3)

    head = TrellisSoftmax.from_linear(linear, width=8, counts=counts)

    def trellis_loss(x: Tensor, y: Tensor) -> Tensor:
        return head(body(x), y).loss

    def report(name: str, layer: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        size = sum(parameter.numel() for parameter in layer.parameters())
        with torch.no_grad():
            print(f"{name:<24} {size:>9,} parameters  held-out loss {loss(*test_rows):.3f}")

    report("nn.Linear", linear, full_loss)
    report("TrellisSoftmax, fitted", head, trellis_loss)
    # Fine-tuning takes a smaller learning rate and fewer steps.
    train(
        trellis_loss, [*body.parameters(), *head.parameters()], train_rows, options.steps // 2, 5e-4
    )
    report("TrellisSoftmax, trained", head, trellis_loss)


if __name__ == "__main__":
    main()
