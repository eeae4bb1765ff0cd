"""Replace the softmax of a small transformer language model by a TrellisSoftmax.

Trains next-token prediction on files of Python's standard library, with every output layer for the
same number of steps, and compares parameters, time and loss on held-out files.

    python examples/transformer_head.py --steps 300
"""

from __future__ import annotations

import argparse
import sysconfig
import time
import tokenize
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ltls.torch import TrellisSoftmax

LENGTH = 64  # context length in tokens


class Transformer(nn.Module):
    """A causal transformer: token ids to one hidden vector per position."""

    def __init__(self, n_tokens: int, size: int = 96, n_layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(n_tokens, size)
        self.positions = nn.Embedding(LENGTH, size)
        layer = nn.TransformerEncoderLayer(size, 4, 4 * size, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, n_layers)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the hidden vectors, shape (rows, length, size)."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.layers(x, mask, is_causal=True)


class FullSoftmax(nn.Linear):
    """The layer to replace: one row of weights per token."""

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return F.cross_entropy(self(hidden).flatten(0, 1), target.flatten())


class Trellis(TrellisSoftmax):
    """The replacement; like `nn.AdaptiveLogSoftmaxWithLoss`, it is called with the target."""

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return self(hidden, target).loss


def tokens_of(path: Path) -> list[str]:
    with tokenize.open(path) as stream:
        return [token.string for token in tokenize.generate_tokens(stream.readline)]


def corpus(n_files: int) -> tuple[Tensor, Tensor, int]:
    """Return training and held-out token ids, sorted by decreasing frequency, and their number."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:n_files]
    texts = [tokens_of(path) for path in files]
    counts = Counter(token for text in texts for token in text)
    ids = {token: number for number, (token, _) in enumerate(counts.most_common())}
    parts = [
        torch.tensor([ids[token] for text in some for token in text])
        for some in ([text for i, text in enumerate(texts) if i % 10], texts[::10])
    ]
    return parts[0], parts[1], len(ids)


def windows(ids: Tensor, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    first = torch.randint(len(ids) - LENGTH, (rows, 1), generator=generator)
    chosen = ids[first + torch.arange(LENGTH + 1)]
    return chosen[:, :-1], chosen[:, 1:]


def train(head: nn.Module, train_ids: Tensor, test_ids: Tensor, steps: int) -> tuple[float, float]:
    """Train a transformer with this output layer; return seconds and the held-out loss."""
    torch.manual_seed(0)
    n_tokens = int(train_ids.max().item()) + 1
    body = Transformer(max(n_tokens, int(test_ids.max().item()) + 1))
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=2e-3)
    generator = torch.Generator().manual_seed(1)
    start = time.perf_counter()
    for _ in range(steps):
        x, y = windows(train_ids, 16, generator)
        optimizer.zero_grad()
        head.loss(body(x), y).backward()
        optimizer.step()
    seconds = time.perf_counter() - start
    body.eval()
    with torch.no_grad():
        x, y = windows(test_ids, 64, torch.Generator().manual_seed(2))
        return seconds, head.loss(body(x), y).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--files", type=int, default=100)
    options = parser.parse_args()
    train_ids, test_ids, n_tokens = corpus(options.files)
    print(f"{len(train_ids):,} training tokens, a vocabulary of {n_tokens:,}")
    heads = {
        "nn.Linear": lambda: FullSoftmax(96, n_tokens),
        "TrellisSoftmax(width=8)": lambda: Trellis(96, n_tokens, width=8),
        "TrellisSoftmax(width=32)": lambda: Trellis(96, n_tokens, width=32),
    }
    for name, make in heads.items():
        torch.manual_seed(0)
        head = make()
        size = sum(parameter.numel() for parameter in head.parameters())
        seconds, loss = train(head, train_ids, test_ids, options.steps)
        print(f"{name:<26} {size:>9,} parameters  {seconds:6.1f} s  held-out loss {loss:.3f}")


if __name__ == "__main__":
    main()
