"""Which output layer predicts the next token best: full softmax, adaptive softmax, TrellisSoftmax.

The corpus is Python's standard library, whole files held out (`stdlib_tokens.py`). The network
before the layer is the same for all: embeddings of the previous 8 tokens, two layers of 512 ReLU
units. Each head's learning rate is the best of a grid in short runs, by the likelihood of
validation files; a grid whose best is at its end goes on. The network's own rate is fixed. Then it
is trained, and tested on the test files.

*frequency + similarity* gives frequent tokens short paths; among the tokens of one exit, those that
come after the same tokens share edges. *learned* codebooks are re-assigned once, after a quarter of
the training: tokens whose mean hidden vectors are similar then share edges, and the edges are
fitted to what the tokens weighed before.

Writes next_token.{json,md} after every head, in under eight minutes on an H200; torch, triton and
numpy are all it needs. Some Pythons come without the library's own tests; a corpus can be brought
along:

    python benchmarks/stdlib_tokens.py tokens.npz
    PYTHONPATH=src python benchmarks/next_token.py --corpus tokens.npz --output docs/benchmarks

A small version, minutes on a CPU:

    OMP_NUM_THREADS=1 python benchmarks/next_token.py --small --output /tmp/somewhere
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import machine
import stdlib_tokens
import torch
from heads import TOP, Adaptive, Full, Head, Trellis, figures
from label_paths import Centroids, cooccurrence, frequency_and_similarity
from stdlib_tokens import CONTEXT, Corpus
from torch import Tensor, nn

BODY_RATE = 1e-3
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
FIRST_RATES = RATES[1:4]  # the others where the best is at an end
SMALL_HEAD = 300_000  # parameters
SHORT, LEAST_STEPS = 1 / 8, 150  # of the steps, to choose a learning rate
REASSIGN_AFTER = 1 / 4  # of the steps


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    embedding: int = 128
    hidden: int = 512
    batch: int = 4096
    epochs: float = 2
    rank: int = 96
    files: int | None = None


SMALL = Sizes(embedding=32, hidden=128, batch=512, epochs=1, rank=48, files=120)


class Windows:
    """Tokens of one part on the device, and the places of all targets in it."""

    def __init__(self, ids: Any, start: int, device: str) -> None:
        self.ids = torch.from_numpy(ids).to(device, torch.int64)
        self.places = torch.nonzero(self.ids != start)[:, 0]
        self.before = torch.arange(CONTEXT, 0, -1, device=device)

    def __len__(self) -> int:
        return len(self.places)

    def at(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens before some places, and those there."""
        return self.ids[places[:, None] - self.before], self.ids[places]

    def batches(self, size: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield as many batches as asked for, every epoch in a new order."""
        per_epoch = max(1, len(self) // size)
        for step in range(steps):
            if step % per_epoch == 0:
                order = torch.randperm(len(self), device=self.places.device)
            first = step % per_epoch * size
            yield self.at(self.places[order[first : first + size]])


class Body(nn.Module):
    """Tokens in, a hidden vector out."""

    def __init__(self, n_classes: int, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(n_classes, sizes.embedding)
        self.layers = nn.Sequential(
            nn.Linear(CONTEXT * sizes.embedding, sizes.hidden),
            nn.ReLU(),
            nn.Linear(sizes.hidden, sizes.hidden),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the hidden vectors, one for every row."""
        return self.layers(self.tokens(x).flatten(1))


class Experiment:
    """The data, and what every head goes through."""

    def __init__(self, corpus: Corpus, sizes: Sizes, device: str) -> None:
        self.sizes, self.device, self.n_classes = sizes, device, corpus.n_classes
        parts = {name: getattr(corpus, name) for name in stdlib_tokens.PARTS}
        windows = {name: Windows(ids, corpus.start, device) for name, ids in parts.items()}
        self.train, self.validation, self.test = windows.values()
        targets = self.train.ids[self.train.places]
        self.counts = torch.bincount(targets, minlength=self.n_classes)
        previous = self.train.at(self.train.places)[0][:, -2:]
        self.similar = cooccurrence(previous, targets, self.n_classes)
        self.steps = max(1, int(sizes.epochs * (len(self.train) // sizes.batch)))

    def learn(
        self, make: Callable[[], Head], rate: float, steps: int, learned: Callable[..., Any] | None
    ) -> tuple[Body, Head, float]:
        """Train a network with a new head; return both and the seconds it took."""
        torch.manual_seed(0)
        body = Body(self.n_classes, self.sizes).to(self.device)
        head = make().to(self.device)
        optimizer = self.optimizer(body, head, rate)
        self.wait()
        start = time.perf_counter()
        for step, (x, y) in enumerate(self.train.batches(self.sizes.batch, steps)):
            if learned and step == int(REASSIGN_AFTER * steps):
                head.reassign(learned(self.centroids(body, head)), self.counts)
                moments = {p: s for p, s in optimizer.state.items() if p in set(body.parameters())}
                optimizer = self.optimizer(body, head, rate)
                optimizer.state.update(moments)
            scale = min(1, (step + 1) / (0.05 * steps)) * (1 + math.cos(math.pi * step / steps)) / 2
            for group in optimizer.param_groups:
                group["lr"] = scale * group["full rate"]
            optimizer.zero_grad()
            head.loss(body(x), y).backward()
            optimizer.step()
        self.wait()
        return body, head, time.perf_counter() - start

    def optimizer(self, body: Body, head: Head, rate: float) -> torch.optim.Optimizer:
        """Return Adam with a learning rate for each."""
        groups = [
            {"params": list(part.parameters()), "full rate": of_part}
            for part, of_part in ((body, BODY_RATE), (head, rate))
        ]
        return torch.optim.Adam(groups, fused=self.device != "cpu")

    def wait(self) -> None:
        """Wait until the GPU has done what it was given."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    @torch.no_grad()
    def centroids(self, body: Body, head: Trellis) -> Tensor:
        """Return the labels' mean vectors as the trellis sees them, over a million targets."""
        found = Centroids(self.n_classes, head.softmax.in_features, self.device)
        some = torch.randperm(len(self.train), device=self.device)[: 1 << 20]
        for part in self.train.places[some].split(1 << 14):
            x, y = self.train.at(part)
            found.add(head.narrow(body(x)), y)
        return found.mean()

    @torch.no_grad()
    def score(self, body: Body, head: Head, windows: Windows, most: int) -> dict[str, float]:
        """Return P@1, recall@5 and the mean negative log-likelihood."""
        nll = torch.zeros((), dtype=torch.float64, device=self.device)
        right = torch.zeros(TOP, device=self.device)
        places = windows.places[:most]
        for part in places.split(4096):
            x, y = windows.at(part)
            hidden = body(x)
            nll += head.loss(hidden, y) * len(y)
            right += (head.top(hidden) == y[:, None]).sum(0)
        found = (right.cumsum(0) / len(places)).tolist()
        return {"P@1": found[0], "R@5": found[-1], "NLL": nll.item() / len(places)}

    def tune(self, make: Callable[[], Head]) -> dict[float, float]:
        """Return the validation likelihoods of learning rates after short runs."""
        steps = max(int(SHORT * self.steps), min(self.steps, LEAST_STEPS))

        def after(rate: float) -> float:
            body, head, _ = self.learn(make, rate, steps, None)
            score = self.score(body, head, self.validation, 50_000)["NLL"]
            return score if math.isfinite(score) else math.inf

        found = {rate: after(rate) for rate in FIRST_RATES}
        for onwards in (RATES[::-1], RATES):
            for rate, following in pairwise(onwards):
                if following not in found and best_rate(found) == rate:
                    found[following] = after(following)
        return found

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        """Tune, train and test one head."""
        tried = self.tune(case["make"])
        rate = best_rate(tried)
        learned = case.get("learned")
        body, head, seconds = self.learn(case["make"], rate, self.steps, learned)
        return {
            "parameters": head.size,
            "rate": rate,
            "tried": tried,
            "seconds": seconds,
            **self.score(body, head, self.test, len(self.test)),
        }


def best_rate(tried: dict[float, float]) -> float:
    return min(tried, key=lambda rate: tried[rate])


def cases(of: Experiment) -> Iterator[dict[str, Any]]:
    """Name the heads, those first without which the comparison says nothing."""
    n, d, counts, similar = of.n_classes, of.sizes.hidden, of.counts, of.similar

    def trellis(width: int, **options: Any) -> Callable[[], Trellis]:
        return lambda: Trellis(d, n, width, counts=counts, **options)

    def mixed(width: int, by: int = 0) -> Callable[[Tensor], Tensor]:
        return lambda features: frequency_and_similarity(n, width, counts, features, by)

    yield {"head": "full softmax", "make": lambda: Full(d, n)}
    cutoffs = [cutoff for cutoff in (2_000, 10_000) if cutoff < n]
    yield {"head": f"adaptive softmax, cutoffs {cutoffs}", "make": lambda: Adaptive(d, n, cutoffs)}
    shapes = [
        ("width 8", 8, {}),
        ("width 32", 32, {}),
        (f"width 32 after {of.sizes.rank} linear units", 32, {"rank": of.sizes.rank}),
        ("width 13", 13, {}),
    ]
    for name, width, options in shapes:
        paths = mixed(width)
        found = paths(similar)
        yield {"head": f"{name}, frequency", "make": trellis(width, **options)}
        yield {
            "head": f"{name}, frequency + similarity",
            "make": trellis(width, assignment=found, **options),
        }
        yield {
            "head": f"{name}, frequency + similarity, then learned",
            "make": trellis(width, assignment=found, **options),
            "learned": paths,
        }
    for name, n_trellises in (("two", 2), ("three", 3)):
        yield {
            "head": f"width 32, {name} trellises, frequency",
            "make": trellis(32, n_trellises=n_trellises),
        }
    half = of.sizes.rank // 2
    yield {
        "head": f"width 32 after {half} linear units, two trellises, frequency",
        "make": trellis(32, n_trellises=2, rank=half),
    }
    yield {
        "head": f"width 64 after {half} linear units, frequency",
        "make": trellis(64, rank=half),
    }
    several = {"assignment": "similarity", "label_features": similar}
    yield {
        "head": "two trellises of width 7, frequency + similarity",
        "make": trellis(7, n_trellises=2, **several),
    }
    yield {
        "head": "three trellises of width 5, frequency + similarity",
        "make": trellis(5, n_trellises=3, **several),
    }
    yield {"head": "two trellises of width 7, frequency", "make": trellis(7, n_trellises=2)}
    yield {
        "head": "width 8, frequency, then learned",
        "make": trellis(8),
        "learned": mixed(8),
    }
    yield {
        "head": "width 8, frequency + similarity, a slice more by frequency",
        "make": trellis(8, assignment=mixed(8, 1)(similar)),
    }
    yield {"head": "width 8, similarity with counts", "make": trellis(8, **several)}


def goals(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """Say what is asked for, of which head, and what was found: differences to another head."""
    done = {row["head"]: row for row in rows if "error" not in row}
    found: list[list[Any]] = []

    def compare(peer: str, ours: list[dict[str, Any]], points: float) -> None:
        """Compare the best of ours: one that reaches both, if there is one, then by P@1."""
        other = next((row for name, row in done.items() if name.startswith(peer)), None)
        if other is None or not ours:
            return

        def differences(row: dict[str, Any]) -> tuple[float, float]:
            return 100 * (row["P@1"] - other["P@1"]), row["NLL"] - other["NLL"]

        def order(row: dict[str, Any]) -> tuple[bool, float]:
            more, nll = differences(row)
            return more >= points and nll <= 0, more

        best = max(ours, key=order)
        more, nll = differences(best)
        found.append([best["head"], f"P@1 less that of {peer}, points", points, more])
        found.append([best["head"], f"NLL less that of {peer} (at most)", 0.0, nll])

    trellises = [row for name, row in done.items() if "softmax" not in name]
    small = [row for row in trellises if row["parameters"] <= SMALL_HEAD]
    compare("full softmax", small, -0.3)
    compare("adaptive softmax", [r for r in trellises if r["head"].startswith("width 32,")], 0.0)
    return found


def report(result: dict[str, Any]) -> str:
    about = result["about"]
    lines = ["# The next token of Python's standard library", ""]
    lines += [
        "The same network before every head: embeddings of the previous "
        f"{CONTEXT} tokens and two layers of ReLU units. Head parameters, seconds of training "
        "(network and head), and figures on files that were held out. Each head's learning rate "
        "is the best of a grid on validation files.",
        "",
        "*width 8* and so on are trellis heads. *frequency*: frequent tokens have short paths. "
        "*frequency + similarity*: so they have, and among the tokens of one exit those that come "
        "after the same tokens share edges. *then learned*: after a quarter of the training tokens "
        "are re-assigned once, those whose mean hidden vectors are similar now share edges, and "
        "training goes on.",
        "",
    ]
    lines += [f"- {key}: {value}" for key, value in about.items()]
    lines += ["", "| head | parameters | P@1 | R@5 | NLL | rate | seconds |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    lines += [table_row(row) for row in result["rows"]]
    found = goals(result["rows"])
    if found:
        lines += [
            "",
            f"## Wanted and found, with at most {SMALL_HEAD:,} parameters, and at width 32",
        ]
        lines += ["", "| head | | wanted | found |", "|---|---|---:|---:|"]
        lines += [f"| {head} | {what} | {want:g} | {got:+.3f} |" for head, what, want, got in found]
    return "\n".join(lines) + "\n"


def table_row(row: dict[str, Any]) -> str:
    return f"| {row['head']} | {figures(row)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--corpus", type=Path, help="what stdlib_tokens.py wrote")
    parser.add_argument("--small", action="store_true", help="few files, a small network")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--files", type=int, help="of the library, with --small")
    parser.add_argument("--only", nargs="+", help="heads whose names have one of these words")
    parser.add_argument("--seconds", type=float, default=440, help="after which nothing is begun")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    start = time.perf_counter()
    sizes = SMALL if options.small else Sizes()
    given = {"epochs": options.epochs, "files": options.files}
    sizes = Sizes(**{**vars(sizes), **{k: v for k, v in given.items() if v is not None}})
    corpus = (
        stdlib_tokens.load(options.corpus) if options.corpus else stdlib_tokens.read(sizes.files)
    )
    of = Experiment(corpus, sizes, options.device)
    about = machine.description("torch", "numpy")
    if options.device != "cpu":
        about["gpu"] = torch.cuda.get_device_name()
    about["targets"] = f"{len(of.train):,} to learn from, {len(of.test):,} to test"
    about["classes"] = f"{of.n_classes:,}"
    about["training"] = f"{of.steps:,} steps of {sizes.batch:,}, Adam, TF32 products"
    result: dict[str, Any] = {"about": about, "rows": []}
    print(about, flush=True)
    longest = 0.0
    for case in cases(of):
        if options.only and not any(word in case["head"] for word in options.only):
            continue
        row, begun = {"head": case["head"]}, time.perf_counter()
        if begun - start + 1.2 * longest > options.seconds:
            row["error"] = "not run: the time was over"
        else:
            try:
                row |= of.run(case)
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            if result["rows"]:  # the first is the full softmax, slower than all others
                longest = max(longest, time.perf_counter() - begun)
        result["rows"].append(row)
        print(table_row(row), row.get("tried", ""), flush=True)
        about["took"] = f"{time.perf_counter() - start:.0f} s"
        machine.write(options.output, "next_token", result, report(result))
    print(report(result))


if __name__ == "__main__":
    main()
