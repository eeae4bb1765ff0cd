"""Which output layer predicts the next token best: full softmax, adaptive softmax, TrellisSoftmax.

The corpus is Python's standard library, whole files held out. The network
before the layer is the same for all: embeddings of the previous 8 tokens, two layers of 512 ReLU
units. Each head's learning rate is the best of a grid in short runs, by the likelihood of
validation files; a grid whose best is at its end is extended. The network's own rate is fixed.
Then it is trained, and tested on the test files.

*frequency + similarity* gives frequent tokens short paths; among the tokens of one exit, those that
come after the same tokens share edges. *learned* codebooks are re-assigned once, after a quarter of
the training: tokens whose mean hidden vectors are similar then share edges, and the edges are
fitted to what the tokens weighed before.

Writes deep_head_next_token.json after every head, in under eight minutes on an H200; torch, triton
and numpy are all it needs. Some Pythons come without the library's own tests, which are most of it;
a corpus can be brought along:

    python -m benchmarks.deep_head.next_token --write-corpus tokens.npz
    PYTHONPATH=src python -m benchmarks.deep_head.next_token --corpus tokens.npz

A small version, minutes on a CPU:

    OMP_NUM_THREADS=1 python -m benchmarks.deep_head.next_token --small --output FOLDER

`--check` trains nothing: it compares what is stored with what we want, and fails below that.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import sysconfig
import time
import tokenize
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import machine, tables
from benchmarks.deep_head.heads import (
    Adaptive,
    Centroids,
    Full,
    Head,
    Trellis,
    cooccurrence,
    frequency_and_similarity,
    schedule,
    scores_of,
)

NAME = "deep_head_next_token"
CONTEXT = 8  # tokens that a model sees
LEAST = 2  # how often the files to learn from must have a token
NAMES = {
    tokenize.NEWLINE: "<newline>",
    tokenize.INDENT: "<indent>",
    tokenize.DEDENT: "<dedent>",
    tokenize.ENDMARKER: "<end>",
}
PARTS = {"train": range(17), "validation": range(17, 18), "test": range(18, 20)}


@dataclass(frozen=True)
class Corpus:
    """Token ids of the three parts, the most frequent token having id 0.

    Every file begins with CONTEXT tokens of <start>, so that windows that end in its first token
    exist, and is followed by the next file.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    n_classes: int
    start: int


def tokens_of(path: Path) -> list[str]:
    """Return the tokens of a file without its comments, none if Python cannot read it."""
    try:
        with tokenize.open(path) as stream:
            text = stream.read()
        return [
            NAMES.get(token.type, token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in (tokenize.COMMENT, tokenize.NL)
        ]
    except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
        return []  # the library's tests hold files that are wrong on purpose


def read_corpus(n_files: int | None = None) -> Corpus:
    """Tokenize the library; n_files keeps the first so many, in a fixed mixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [
        path
        for path in root.rglob("*.py")
        if not {"site-packages", "dist-packages", "__pycache__"} & set(path.parts)
    ]
    # A checksum of its name says where a file belongs: the same in every run, on every machine.
    sums = {path: zlib.crc32(str(path.relative_to(root)).encode()) for path in files}
    files = sorted(files, key=lambda path: (sums[path], str(path)))[:n_files]
    parts: dict[str, list[list[str]]] = {name: [] for name in PARTS}
    for path in files:
        name = next(name for name, numbers in PARTS.items() if sums[path] % 20 in numbers)
        if found := tokens_of(path):
            parts[name].append(found)
    if not all(parts.values()):
        empty = [name for name, texts in parts.items() if not texts]
        raise ValueError(f"n_files must be larger: {n_files} leave nothing for {empty}")
    counts = Counter(token for text in parts["train"] for token in text)
    counts["<rare>"] = sum(n for n in counts.values() if n < LEAST)
    known = [token for token, n in counts.most_common() if n >= LEAST or token == "<rare>"]
    ids = {token: number for number, token in enumerate([*known, "<start>"])}
    rare, start = ids["<rare>"], ids["<start>"]

    def numbers(texts: list[list[str]]) -> np.ndarray:
        flat = [
            number
            for text in texts
            for number in [*[start] * CONTEXT, *(ids.get(token, rare) for token in text)]
        ]
        return np.array(flat, np.int32)

    arrays = {name: numbers(texts) for name, texts in parts.items()}
    return Corpus(**arrays, n_classes=len(ids), start=start)


def load_corpus(path: Path) -> Corpus:
    with np.load(path) as file:
        parts = {name: file[name] for name in PARTS}
        return Corpus(**parts, n_classes=int(file["n_classes"]), start=int(file["start"]))


def save_corpus(corpus: Corpus, path: Path) -> None:
    np.savez_compressed(path, **vars(corpus))


# The network

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
        """Yield the given number of batches, every epoch in a new order."""
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
        parts = {name: getattr(corpus, name) for name in PARTS}
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
            for group in optimizer.param_groups:
                group["lr"] = schedule(step, steps) * group["full rate"]
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
        parts = (windows.at(part) for part in windows.places[:most].split(4096))
        return scores_of(head, ((body(x), y) for x, y in parts))

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


def check(rows: list[dict[str, Any]]) -> int:
    """Print what we want and what was found; return 1 where a target is missed.

    A small trellis should be close to the full softmax in P@1, a wide one to the adaptive softmax,
    and neither below them in likelihood.
    """
    done = {row["head"]: row for row in rows if "error" not in row}
    ours = [row for name, row in done.items() if "softmax" not in name]
    small = [row for row in ours if row["parameters"] <= SMALL_HEAD]
    wide = [row for row in ours if row["head"].startswith("width 32,")]
    failed = False
    for peer, group, points in (("full softmax", small, -0.3), ("adaptive softmax", wide, 0.0)):
        other = next((row for name, row in done.items() if name.startswith(peer)), None)
        if other is None or not group:
            continue
        best = max(group, key=lambda row: row["P@1"])
        more, nll = 100 * (best["P@1"] - other["P@1"]), best["NLL"] - other["NLL"]
        good = more >= points and nll <= 0
        failed |= not good
        words = f"{best['head']} less {peer}: P@1 {more:+.2f} points, NLL {nll:+.3f}"
        print(f"{'ok' if good else 'MISSED':7} {words}; target at least {points:+} and at most 0")
    return int(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--corpus", type=Path, help="what --write-corpus wrote")
    parser.add_argument(
        "--write-corpus", type=Path, help="write the corpus of this Python, no more"
    )
    parser.add_argument("--check", action="store_true", help="only check what is stored")
    parser.add_argument("--small", action="store_true", help="few files, a small network")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--files", type=int, help="of the library, with --small")
    parser.add_argument("--only", nargs="+", help="heads whose names have one of these words")
    parser.add_argument("--seconds", type=float, default=440, help="after which nothing is begun")
    options = parser.parse_args()
    if options.check:
        sys.exit(check(machine.read(NAME, options.output)["rows"]))
    torch.backends.cuda.matmul.allow_tf32 = True
    start = time.perf_counter()
    sizes = SMALL if options.small else Sizes()
    given = {"epochs": options.epochs, "files": options.files}
    sizes = Sizes(**{**vars(sizes), **{k: v for k, v in given.items() if v is not None}})
    corpus = load_corpus(options.corpus) if options.corpus else read_corpus(sizes.files)
    if options.write_corpus:
        save_corpus(corpus, options.write_corpus)
        return
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
        print(row, flush=True)
        about["took"] = f"{time.perf_counter() - start:.0f} s"
        machine.write(NAME, result, options.output)
    print("\n".join(tables.heads_table(result)))


if __name__ == "__main__":
    main()
