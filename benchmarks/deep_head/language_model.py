"""Which output layer suits a language model: a transformer and the next token, on two corpora.

The network is the same for all heads: a causal transformer of 4 layers and 384 units, trained for
1,400 steps of 8,192 tokens in bf16; on a GPU its layers are captured in CUDA graphs. Its own
learning rate is fixed. That of the head is the best of three by the likelihood of validation files,
after a whole training: shorter runs choose other rates. The third of them is above or below the
others, on the side of the better one. With --seeds, the rates are those of the first seed, and
figures are means over all of them.

Writes deep_head_language_model_NAME.json after every head, in under ten minutes on an H200 that
nothing else uses; torch, triton and numpy are all it needs. The corpora are made before:

    python -m benchmarks.deep_head.corpus python.npz
    python -m benchmarks.deep_head.corpus english.npz --english
    PYTHONPATH=src python -m benchmarks.deep_head.language_model python.npz
    PYTHONPATH=src python -m benchmarks.deep_head.language_model english.npz --seeds 0 1 2
"""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.deep_head import tables
from benchmarks.deep_head.corpus import PARTS, Corpus
from benchmarks.deep_head.heads import (
    Adaptive,
    AdaptiveTrellis,
    Full,
    Head,
    Trellis,
    arguments,
    compare,
    description,
    schedule,
    scores_of,
)

NAME = "deep_head_language_model"
BODY_RATE = 1e-3
RATES = (2e-3, 3e-3, 5e-3, 1e-2)  # 1e-3 was the best of no head
CUTOFFS = (2_000, 10_000)
MORE_CUTOFFS = (*CUTOFFS, 20_000)
NEIGHBOURS = (2, 1, -1, -2)  # of a word, which say what it is similar to


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    units: int = 384
    layers: int = 4
    heads: int = 6
    length: int = 128  # tokens of a sequence
    batch: int = 64  # sequences
    steps: int = 1_400
    test: int = 500_000  # tokens


SMALL = Sizes(units=32, layers=1, heads=2, length=16, batch=8, steps=40, test=2_000)


class Layer(nn.Module):
    """One layer of a transformer, normalized first."""

    def __init__(self, units: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(units), nn.LayerNorm(units)
        self.queries = nn.Linear(units, 3 * units)
        self.out = nn.Linear(units, units)
        self.hidden = nn.Sequential(
            nn.Linear(units, 4 * units), nn.GELU(), nn.Linear(4 * units, units)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return what follows from the tokens so far."""
        parts = self.queries(self.first(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.hidden(self.second(x))


class Body(nn.Module):
    """Tokens in, a hidden vector for each out."""

    def __init__(self, n_classes: int, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(n_classes, sizes.units)
        self.places = nn.Parameter(torch.randn(sizes.length, sizes.units) * 0.02)
        self.layers = nn.Sequential(
            *(Layer(sizes.units, sizes.heads) for _ in range(sizes.layers)),
            nn.LayerNorm(sizes.units),
        )
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return hidden vectors, shape (tokens, units)."""
        return self.layers(self.tokens(x) + self.places).flatten(0, 1)


class Experiment:
    """The data, and what every head goes through."""

    def __init__(
        self, corpus: Corpus, sizes: Sizes, device: str, seeds: Sequence[int] = (0,)
    ) -> None:
        self.sizes, self.device, self.n_classes = sizes, device, corpus.n_classes
        self.seeds = seeds
        self.train, self.validation, self.test = (
            torch.from_numpy(getattr(corpus, name)).to(device, torch.int64) for name in PARTS
        )
        self.offsets = torch.arange(sizes.length + 1, device=device)

    def cast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context of mixed precision."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda")

    def at(self, tokens: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sequences that begin at some places, and the tokens that follow each token."""
        both = tokens[places[:, None] + self.offsets]
        return both[:, :-1], both[:, 1:].flatten()

    def learn(self, make: Callable[[], Head], rate: float, seed: int) -> tuple[Body, Head, float]:
        """Train a network with a new head; return both and the seconds it took."""
        steps = self.sizes.steps
        torch.manual_seed(seed)
        body = Body(self.n_classes, self.sizes).to(self.device)
        head = make().to(self.device)
        self.capture(body)
        groups = [
            {"params": list(part.parameters()), "full rate": of_part}
            for part, of_part in ((body, BODY_RATE), (head, rate))
        ]
        optimizer = torch.optim.Adam(groups, fused=self.device == "cuda", betas=(0.9, 0.98))
        generator = torch.Generator(self.device).manual_seed(seed + 1)
        last = len(self.train) - self.sizes.length - 1
        self.wait()
        start = time.perf_counter()
        for step in range(steps):
            places = torch.randint(
                last, (self.sizes.batch,), generator=generator, device=self.device
            )
            x, y = self.at(self.train, places)
            for group in optimizer.param_groups:
                group["lr"] = schedule(step, steps) * group["full rate"]
            optimizer.zero_grad()
            with self.cast():
                loss = head.loss(body(x), y)
            with torch.autograd.set_multithreading_enabled(False):  # less to do for the host
                loss.backward()
            optimizer.step()
        self.wait()
        return body, head, time.perf_counter() - start

    def capture(self, body: Body) -> None:
        """Launch a GPU's transformer layers as CUDA graphs in training: most heads are faster."""
        if self.device == "cuda":
            shape = self.sizes.batch, self.sizes.length, self.sizes.units
            x = torch.randn(shape, device=self.device, requires_grad=True)
            with torch.autocast(self.device, torch.bfloat16, cache_enabled=False):
                body.layers = torch.cuda.make_graphed_callables(body.layers, (x,))

    def wait(self) -> None:
        """Wait until the GPU has done what it was given."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    @torch.no_grad()
    def score(self, body: Body, head: Head, tokens: Tensor, most: int) -> dict[str, float]:
        """Return P@1, recall@5 and the mean negative log-likelihood; the head in float32."""
        body.eval()
        n = min(most, len(tokens) - 1) // self.sizes.length
        starts = torch.arange(n, device=self.device) * self.sizes.length

        def hidden() -> Iterator[tuple[Tensor, Tensor]]:
            for places in starts.split(32):
                x, y = self.at(tokens, places)
                with self.cast():
                    vectors = body(x)
                yield vectors.float(), y

        return scores_of(head, hidden())

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        """Tune, train and test one head."""
        make, (first, *others) = case["make"], self.seeds
        tried: dict[float, float] = {}
        best: dict[str, Any] = {}
        fastest = math.inf  # the first run compiles kernels, too
        for rate in rates(tried):
            body, head, seconds = self.learn(make, rate, first)
            fastest = min(fastest, seconds)
            nll = self.score(body, head, self.validation, self.sizes.test // 2)["NLL"]
            nll = nll if math.isfinite(nll) else math.inf
            if nll < min(tried.values(), default=math.inf):
                best = self.score(body, head, self.test, self.sizes.test)
                row = {"parameters": head.size, "rate": rate}
            tried[rate] = nll
        if not best:
            return {"error": "diverged at every learning rate", "tried": tried}
        found = [best]
        for seed in others:
            body, head, _ = self.learn(make, row["rate"], seed)
            found.append(self.score(body, head, self.test, self.sizes.test))
        row |= {name: statistics.fmean(each[name] for each in found) for name in best}
        row |= {"by seed": found} if others else {}
        return {**row, "seconds": fastest, "tried": tried}


def rates(tried: dict[float, float]) -> Iterator[float]:
    """Yield the two middle learning rates, and the one beyond the better of them.

    The caller adds what it found to `tried` before it asks for the next.
    """
    lowest, low, high, highest = RATES
    yield low
    yield high
    yield lowest if tried[low] <= tried[high] else highest


def word_vectors(of: Experiment, rank: int = 32, n_contexts: int = 512) -> Tensor:
    """Return principal components of how often frequent words are next to each word."""
    torch.manual_seed(0)
    parts = []
    for offset in NEIGHBOURS:
        beside = of.train.roll(offset)
        known = beside < n_contexts
        cells = of.train[known] * n_contexts + beside[known]
        counts = torch.bincount(cells, minlength=of.n_classes * n_contexts)
        parts.append(counts.view(of.n_classes, n_contexts).float())
    table = torch.cat(parts, 1)
    # One more occurrence of the average word: rare words shrink to the mean.
    n = len(NEIGHBOURS)
    table = (table + n * table.sum(0) / table.sum()) / (table.sum(1, keepdim=True) + n)
    table = table.sqrt()
    u, s, _ = torch.svd_lowrank(table - table.mean(0), min(rank, *table.shape))
    return u * s


def cases(of: Experiment) -> Iterator[dict[str, Any]]:
    """Name the heads."""
    n, d = of.n_classes, of.sizes.units
    counts = torch.bincount(of.train, minlength=n)
    vectors = functools.cache(lambda: word_vectors(of))

    def feasible(cutoffs: Sequence[int]) -> list[int]:
        part = n // (len(cutoffs) + 1)
        return [min(cutoff, (i + 1) * part) for i, cutoff in enumerate(cutoffs)]

    def similar(cutoffs: Sequence[int]) -> dict[str, Any]:
        """Return what lets rare words share edges that occur next to the same words."""
        rare = slice(feasible(cutoffs)[-1], None)
        options = {"counts": counts[rare], "label_features": vectors()[rare]}
        return {"assignment": "similarity", **options}

    def ours(cutoffs: Sequence[int], width: int, **options: Any) -> Head:
        return AdaptiveTrellis(d, n, feasible(cutoffs), width=width, **options)

    yield {"head": "full softmax", "make": lambda: Full(d, n)}
    yield {"head": "adaptive softmax", "make": lambda: Adaptive(d, n, feasible(CUTOFFS))}
    yield {"head": "trellis, width 32", "make": lambda: Trellis(d, n, 32)}
    yield {
        "head": "adaptive trellis, width 32",
        "make": lambda: ours(CUTOFFS, 32, trellis_features=d // 16),
    }
    yield {
        "head": "adaptive trellis, width 64, three clusters",
        "make": lambda: ours(MORE_CUTOFFS, 64, trellis_features=d // 8),
    }
    yield {
        "head": "adaptive trellis, width 64, three clusters, similarity",
        "make": lambda: ours(MORE_CUTOFFS, 64, trellis_features=d // 8, **similar(MORE_CUTOFFS)),
    }


def main() -> None:
    parser = arguments(__doc__, seconds=500)
    parser.add_argument("corpus", type=Path, help="the file of a corpus, whose stem is its name")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    name = f"{NAME}_{options.corpus.stem}"
    torch.backends.cuda.matmul.allow_tf32 = True
    sizes = SMALL if options.small else Sizes()
    of = Experiment(Corpus.load(options.corpus), sizes, options.device, options.seeds)
    about = description(options.device)
    about["tokens"] = f"{len(of.train):,} to learn from, {len(of.test):,} to test"
    about["classes"] = f"{of.n_classes:,}"
    about["training"] = f"{sizes.steps:,} steps of {sizes.batch * sizes.length:,} tokens"
    result = compare(name, {"about": about}, cases(of), of.run, options)
    print("\n".join(tables.heads_table(result)))


if __name__ == "__main__":
    main()
