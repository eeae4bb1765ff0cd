"""Replace the softmax of a network that is trained already, and train a little more.

`TrellisSoftmax.from_linear` makes the codebook from the layer's rows, so that tokens with similar
rows share edges, and fits the edges to those rows.

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
    """Return the tokens before every token, and the token."""
    return ids.unfold(0, CONTEXT, 1)[:-1], ids[CONTEXT:]


def train(
    loss: Callable[[Tensor, Tensor], Tensor],
    weights: list[nn.Parameter],
    data: tuple[Tensor, Tensor],
    steps: int,
    rate: float,
) -> None:
    optimizer = torch.optim.Adam(weights, lr=rate)
    for _ in range(steps):
        some = torch.randint(len(data[0]), (256,))
        optimizer.zero_grad()
        loss(data[0][some], data[1][some]).backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--files", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    train_ids, test_ids, n_tokens = corpus(options.files)
    known, held_out = rows(train_ids), rows(test_ids)
    counts = torch.bincount(train_ids, minlength=n_tokens)

    body = nn.Sequential(
        nn.Embedding(n_tokens, 32), nn.Flatten(), nn.Linear(CONTEXT * 32, 128), nn.ReLU()
    )
    linear = nn.Linear(128, n_tokens)

    def full(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(linear(body(x)), y)

    train(full, [*body.parameters(), *linear.parameters()], known, options.steps, 2e-3)

    head = TrellisSoftmax.from_linear(linear, width=8, counts=counts)

    def trellis(x: Tensor, y: Tensor) -> Tensor:
        return head(body(x), y).loss

    def say(name: str, layer: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        size = sum(parameter.numel() for parameter in layer.parameters())
        with torch.no_grad():
            print(f"{name:<24} {size:>9,} parameters  held-out loss {loss(*held_out):.3f}")

    say("nn.Linear", linear, full)
    say("TrellisSoftmax, fitted", head, trellis)
    # A trained network needs small steps, and fewer of them.
    train(trellis, [*body.parameters(), *head.parameters()], known, options.steps // 2, 5e-4)
    say("TrellisSoftmax, trained", head, trellis)


if __name__ == "__main__":
    main()
