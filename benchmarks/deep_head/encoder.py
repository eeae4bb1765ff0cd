"""Titles to subjects: a transformer from scratch, its output layers, and the hybrid with n-grams.

yso_en: 200,000 titles of library records, each with several of 24,000 subjects. A small transformer
is trained once with every head: trellises, adaptive softmax layers that end in one (their numbers
are the cutoffs), a full sigmoid layer and a full softmax over the positives. The sparse model is a
`TextClassifier`. The hybrid adds up their log-probabilities, with weights that 3,000 held-out
training rows choose. The rows "EncoderClassifier" are the estimator itself, with all three stages;
they need the compiled engine.

The texts (yso_en_text_train.tsv.xz, yso_en_text_test.tsv.xz) are looked for in the folder that
--data or the environment variable LTLS_DATA names. The sparse model needs the compiled engine and
no GPU; where the two are not on one machine, make its candidates first and take them along:

    python -m benchmarks.deep_head.encoder --make-sparse sparse.npz --data FOLDER
    PYTHONPATH=src python -m benchmarks.deep_head.encoder --sparse sparse.npz --data FOLDER

The second command needs torch, triton, numpy and scipy alone and takes under ten minutes on an
H200. It writes deep_head_encoder.json after every row. A small version, for a CPU:

    OMP_NUM_THREADS=1 python -m benchmarks.deep_head.encoder --small --output FOLDER
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks import machine
from benchmarks.deep_head.heads import arguments, compare, description, schedule
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax, functional
from ltls.torch.stage_weights import best_weights

NAME = "deep_head_encoder"
SEED, HELD_OUT, CANDIDATES = 0, 3000, 50
LENGTH, GRAMS, BUCKETS = 32, 12, 1 << 17  # words of a text, features of a word, hash buckets
D, LAYERS, ATTENTION_HEADS = 384, 4, 6
BATCH, EPOCHS, RATE = 512, 15, 1e-3
ADAPTIVE: dict[str, tuple[list[int], float]] = {  # cutoffs and div_value
    "adaptive trellis, 2,000 and 8,000": ([2_000, 8_000], 4.0),
    "adaptive trellis, 4,000 and 12,000": ([4_000, 12_000], 2.0),
}
BY_FREQUENCY: dict[str, Any] = {"cutoffs": [4_000, 12_000], "div_value": 2.0}
NEAREST = {"neighbours": True, "prototypes": True}
ESTIMATORS: dict[str, dict[str, Any]] = {  # parameters of the head, and of the vectors' classifier
    "EncoderClassifier, trellis head": {},
    "EncoderClassifier, adaptive head": {"head": BY_FREQUENCY},
    "EncoderClassifier, adaptive head, neighbours": {"head": BY_FREQUENCY, "vectors": NEAREST},
}
FLOOR = np.float32(np.log(1e-9))


# Data


class Titles:
    """Texts and their labels in CSR layout: rows to train on, held-out rows, and test rows."""

    def __init__(self, folder: Path, small: bool) -> None:
        train, test = (
            self._read(folder / f"yso_en_text_{part}.tsv.xz") for part in ("train", "test")
        )
        if small:
            train, test = train[:3000], test[:500]
        names = sorted({label for _, own in train for label in own})
        ids = {name: i for i, name in enumerate(names)}
        self.texts = [text for text, _ in train + test]
        lists = [[ids[label] for label in own if label in ids] for _, own in train + test]
        self.ptr = np.concatenate([[0], np.cumsum([len(own) for own in lists])])
        self.labels = np.array([label for own in lists for label in own], np.int64)
        self.n_labels, self.n_train = len(names), len(train)
        order = np.random.default_rng(SEED).permutation(len(train))
        n = min(HELD_OUT, len(train) // 10)
        self.held_out, self.train = np.sort(order[:n]), np.sort(order[n:])
        self.test = np.arange(len(train), len(train) + len(test))
        self.test = self.test[np.diff(self.ptr)[self.test] > 0]
        self.evaluated = np.concatenate([self.held_out, self.test])

    @staticmethod
    def _read(path: Path) -> list[tuple[str, list[str]]]:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            pairs = (line.rstrip("\n").split("\t") for line in file)
            return [(text, labels.split()) for text, labels in pairs]

    def of(self, rows: np.ndarray) -> list[list[int]]:
        return [self.labels[self.ptr[i] : self.ptr[i + 1]].tolist() for i in rows]

    def contains(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        row_of = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        pairs = row_of * self.n_labels + self.labels
        return np.isin(rows[:, None] * self.n_labels + ids, pairs) & (ids >= 0)

    def precision(self, rows: np.ndarray, ids: np.ndarray) -> dict[str, float]:
        hits = self.contains(rows, ids[:, :5])
        return {"P@1": float(hits[:, 0].mean()), "P@5": float(hits.sum(1).mean() / 5)}


class Words:
    """A tokenizer: the words of texts, up to LENGTH, as ids above 0, which is padding.

    A word has itself and its n-grams of 3 to 5 characters as `features`, hashed.
    """

    def __init__(self, texts: list[str]) -> None:
        split = Counter(word for text in texts for word in self._split(text))
        self._known = {word: i + 1 for i, word in enumerate(split)}
        self.features = np.zeros((len(self._known) + 1, GRAMS), np.int64)
        for word, i in self._known.items():
            marked = f"<{word}>"
            grams = [marked[j : j + n] for n in (5, 4, 3) for j in range(len(marked) - n + 1)]
            hashed = [1 + zlib.crc32(each.encode()) % (BUCKETS - 1) for each in [word, *grams]]
            self.features[i, : min(len(hashed), GRAMS)] = hashed[:GRAMS]

    @staticmethod
    def _split(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())[:LENGTH]

    def ids(self, texts: list[str]) -> np.ndarray:
        """Return words, shape (texts, LENGTH)."""
        tokens = np.zeros((len(texts), LENGTH), np.int64)
        for row, text in zip(tokens, texts, strict=True):
            own = self._split(text)
            row[: len(own)] = [self._known[word] for word in own]
        return tokens

    def __call__(self, texts: list[str], **_: Any) -> dict[str, Tensor]:
        """Return the words of texts as tokenizers of transformers do."""
        return {"input_ids": torch.from_numpy(self.ids(texts))}


# Networks


class Transformer(nn.Module):
    """Words as sums of their features' vectors, a few layers of attention, and the mean."""

    def __init__(self, features: Tensor, layers: int, d: int, heads: int) -> None:
        super().__init__()
        self.register_buffer("features", features)
        self.table = nn.EmbeddingBag(BUCKETS, d, mode="mean", padding_idx=0)
        nn.init.normal_(self.table.weight, std=0.5)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, d))
        layer = nn.TransformerEncoderLayer(
            d, heads, 4 * d, 0.1, F.gelu, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(d), False)
        self.out = nn.Dropout(0.2)

    def forward(self, input_ids: Tensor) -> Tensor:
        vectors = self.table(self.features[input_ids.flatten()])
        x = vectors.unflatten(0, input_ids.shape) + self.positions
        empty = input_ids == 0
        x = self.layers(x, src_key_padding_mask=empty & (input_ids.any(1, keepdim=True)))
        kept = (~empty)[..., None].to(x.dtype)
        return self.out((x * kept).sum(1) / kept.sum(1).clamp(min=1))


class TrellisHead(nn.Module):
    """`TrellisSoftmax`, by the logistic loss on edges or softmax over the positives."""

    rate_factor = 3.0  # of the learning rate: see docs/deep_head.md

    def __init__(self, d: int, n: int, width: int, loss: str, vectors: np.ndarray) -> None:
        super().__init__()
        self.softmax = TrellisSoftmax(
            d, n, width, assignment="similarity", label_features=vectors, loss=loss
        )

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.softmax(x, y).loss

    def top(self, x: Tensor) -> Tensor:
        return self.softmax.topk(x, CANDIDATES)[0]

    def log_proba(self, x: Tensor, ids: Tensor) -> Tensor:
        if self.softmax.loss_name == "softmax":
            return self.softmax.log_prob(x, ids)
        g = functional.logistic_scores(self.softmax.edge_scores(x)[:, 0], self.softmax.layout)
        return functional.path_scores(
            g, self.softmax.codebooks[0].path_of(ids), self.softmax.layout
        )


class AdaptiveTrellisHead(nn.Module):
    """`AdaptiveTrellisSoftmax` over the positives: frequent labels have vectors of their own."""

    rate_factor = 3.0

    def __init__(
        self, d: int, cutoffs: list[int], counts: np.ndarray, vectors: np.ndarray, **options: Any
    ) -> None:
        super().__init__()
        order = np.argsort(-counts, kind="stable")  # the label of every class
        rare = order[cutoffs[-1] :]
        similar = {"counts": counts[rare], "label_features": vectors[rare]}
        self.softmax = AdaptiveTrellisSoftmax(
            d, len(order), cutoffs, width=64, assignment="similarity", **similar, **options
        )
        self.register_buffer("label_of", torch.from_numpy(order.copy()))
        self.register_buffer("class_of", torch.from_numpy(np.argsort(order)))

    def classes(self, labels: Tensor) -> Tensor:
        return torch.where(labels < 0, labels, self.class_of[labels.clamp(min=0)])

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.softmax(x, self.classes(y)).loss

    def top(self, x: Tensor) -> Tensor:
        return self.label_of[self.softmax.topk(x, CANDIDATES)[0]]

    def log_proba(self, x: Tensor, ids: Tensor) -> Tensor:
        return self.softmax.log_prob(x, self.classes(ids))


class FullHead(nn.Module):
    """`nn.Linear` with a sigmoid for every label, or softmax over the positives."""

    rate_factor = 1.0

    def __init__(self, d: int, n: int, sigmoid: bool) -> None:
        super().__init__()
        self.linear, self.sigmoid = nn.Linear(d, n), sigmoid
        if sigmoid:  # as few labels as there are
            nn.init.constant_(self.linear.bias, -8)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        logits, is_label = self.linear(x), y >= 0
        target = torch.zeros_like(logits).scatter_(1, y.clamp(min=0), is_label.to(logits.dtype))
        if self.sigmoid:
            return (
                F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1).mean()
            )
        share = target / target.sum(1, keepdim=True).clamp(min=1)
        return F.cross_entropy(logits, share)

    def top(self, x: Tensor) -> Tensor:
        return self.linear(x).topk(CANDIDATES).indices

    def log_proba(self, x: Tensor, ids: Tensor) -> Tensor:
        logits = self.linear(x).float()
        found = F.logsigmoid(logits) if self.sigmoid else logits.log_softmax(1)
        return found.gather(1, ids)


def label_vectors(data: Titles, tokens: np.ndarray, n_words: int, device: str) -> np.ndarray:
    """Return a vector for every label: the words of its rows, by a truncated SVD."""
    rows = data.train
    lists = data.of(rows)
    row_of = np.repeat(np.arange(len(rows)), [len(own) for own in lists])
    labels = np.array([label for own in lists for label in own], np.int64)
    own = tokens[rows][row_of]  # (pairs, LENGTH)
    indices = np.stack([np.repeat(labels, LENGTH), own.ravel()])[:, own.ravel() > 0]
    matrix = torch.sparse_coo_tensor(
        torch.from_numpy(indices),
        torch.ones(indices.shape[1]),
        (data.n_labels, n_words),
        check_invariants=False,
    ).coalesce()
    weights = matrix.values().log1p()
    n_with = torch.bincount(matrix.indices()[1], minlength=n_words)
    weights = weights * (data.n_labels / n_with.clamp(min=1)).log()[matrix.indices()[1]]
    matrix = torch.sparse_coo_tensor(
        matrix.indices(), weights, matrix.shape, check_invariants=False
    ).to(device)
    torch.manual_seed(SEED)
    u, s, _ = torch.svd_lowrank(matrix, q=64)
    return F.normalize(u * s, dim=1).cpu().numpy()


# Runs


class Experiment:
    """The data on a device, and what every head goes through."""

    def __init__(self, data: Titles, options: argparse.Namespace) -> None:
        self.data, self.options, self.device = data, options, options.device
        self.words = Words(data.texts)
        tokens = self.words.ids(data.texts)
        self.tokens = torch.from_numpy(tokens).to(self.device)
        self.features = torch.from_numpy(self.words.features).to(self.device)
        start = time.perf_counter()
        self.vectors = label_vectors(data, tokens, len(self.features), self.device)
        machine.say(f"vectors of {data.n_labels:,} labels in {time.perf_counter() - start:.0f} s")
        longest = int(np.diff(data.ptr).max())
        padded = np.full((len(data.texts), longest), -100, np.int64)
        padded[np.arange(longest) < np.diff(data.ptr)[:, None]] = data.labels
        self.targets = torch.from_numpy(padded).to(self.device)
        sparse = options.sparse
        self.sparse = None if sparse is None else dict(np.load(sparse))

    def head(self, name: str) -> nn.Module:
        d, n = self.size[1], self.data.n_labels
        if name.startswith("trellis"):
            _, loss, width = name.split(", ")
            return TrellisHead(d, n, int(width.split()[1]), loss, self.vectors)
        if name.startswith("adaptive"):
            cutoffs, div_value = ADAPTIVE[name]
            counts = np.bincount(self.data.labels[: self.data.ptr[self.data.n_train]], minlength=n)
            options = {"div_value": div_value, "trellis_features": d // 4}
            return AdaptiveTrellisHead(d, self.feasible(cutoffs), counts, self.vectors, **options)
        return FullHead(d, n, "sigmoid" in name)

    def feasible(self, cutoffs: list[int]) -> list[int]:
        """Return cutoffs for as few labels as a small version has."""
        return [min(cutoff, (i + 1) * self.data.n_labels // 4) for i, cutoff in enumerate(cutoffs)]

    @property
    def size(self) -> tuple[int, int, int]:
        return (1, 32, 2) if self.options.small else (LAYERS, D, ATTENTION_HEADS)

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        torch.manual_seed(SEED)
        network = Transformer(self.features, *self.size).to(self.device)
        if case["head"] in ESTIMATORS:
            return self.with_estimator(network, **ESTIMATORS[case["head"]])
        head = self.head(case["head"]).to(self.device)
        start = time.perf_counter()
        self.train(network, head)
        seconds = time.perf_counter() - start
        data, rows = self.data, self.data.evaluated
        x = self.encode(network, rows)
        ids = self.each(head.top, x)
        n = len(data.held_out)
        found = {
            "parameters": sum(p.numel() for p in head.parameters()),
            "train s": round(seconds, 1),
            **data.precision(data.test, ids[n:]),
        }
        return found if self.sparse is None else found | self.hybrid(head, x, ids, self.sparse)

    def with_estimator(
        self,
        network: nn.Module,
        head: dict[str, Any] | None = None,
        vectors: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return P@1 and P@5 of `EncoderClassifier` and of its stages."""
        from ltls import LTLSClassifier
        from ltls.torch import EncoderClassifier
        from ltls.torch.hybrid import HeadStage

        data, small = self.data, self.options.small
        model = EncoderClassifier(
            network,
            tokenizer=self.words,
            head=head and {**head, "cutoffs": self.feasible(head["cutoffs"])},
            vectors=True if vectors is None else LTLSClassifier(**vectors, random_state=SEED),
            epochs=2 if small else self.options.epochs,
            n_iter_no_change=self.options.epochs,
            batch_size=BATCH,
            learning_rate=self.options.rate,
            head_learning_rate=3 * self.options.rate,
            warmup=0.05,
            mixed_precision="bf16" if str(self.device).startswith("cuda") else "no",
            device=self.device,
            n_jobs=-1,
            random_state=SEED,
            verbose=1,
        )
        rows = np.arange(data.n_train)
        rows = rows[np.diff(data.ptr)[rows] > 0]
        start = time.perf_counter()
        model.fit([data.texts[i] for i in rows], data.of(rows))
        seconds = time.perf_counter() - start
        texts = [data.texts[i] for i in data.test]
        encoded = model.encode(texts)
        found = {
            "hybrid": model.predict_topk(texts, k=5)[0],
            "text": model.classes_[model.text_.predict_topk(texts, k=5)[0]],
            "vectors": model.classes_[model.vectors_.predict_topk(encoded, k=5)[0]],
            "head": model.classes_[HeadStage(model.head_, True).best(encoded, 5)],
        }
        figures = {
            f"{stage} {name}": value
            for stage, ids in found.items()
            for name, value in data.precision(data.test, ids.astype(np.int64)).items()
        }
        head_alone = {name: figures.pop(f"head {name}") for name in ("P@1", "P@5")}
        return {
            "parameters": sum(p.numel() for p in model.head_.parameters()),
            "train s": round(seconds, 1),
            "weights": model.weights_,
            **head_alone,
            **figures,
        }

    def train(self, network: nn.Module, head: nn.Module) -> None:
        rows = torch.from_numpy(self.data.train).to(self.device)
        rows = rows[(self.targets[rows] >= 0).any(1)]
        epochs = 2 if self.options.small else self.options.epochs
        steps = epochs * -(-len(rows) // BATCH)
        parameters = [*network.parameters(), *head.parameters()]
        fused = str(self.device).startswith("cuda")
        rate = self.options.rate
        groups = [
            {"params": network.parameters()},
            {"params": head.parameters(), "lr": head.rate_factor * rate},
        ]
        optimizer = torch.optim.AdamW(groups, rate, weight_decay=0.01, fused=fused)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: schedule(s, steps))
        network.train(), head.train()
        for _ in range(epochs):
            for some in rows[torch.randperm(len(rows), device=self.device)].split(BATCH):
                with torch.autocast(str(self.device).split(":")[0], torch.bfloat16, enabled=fused):
                    x = network(self.tokens[some])
                    loss = head.loss(x, self.targets[some])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                scheduler.step()

    @torch.no_grad()
    def encode(self, network: nn.Module, rows: np.ndarray) -> Tensor:
        network.eval()
        every = torch.from_numpy(rows).to(self.device)
        return torch.cat([network(self.tokens[some]).float() for some in every.split(2048)])

    @torch.no_grad()
    def each(self, call: Any, *tensors: Tensor) -> np.ndarray:
        parts = zip(*(tensor.split(2048) for tensor in tensors), strict=True)
        return torch.cat([call(*some) for some in parts]).cpu().numpy()

    def hybrid(
        self, head: nn.Module, x: Tensor, own: np.ndarray, sparse: dict[str, Any]
    ) -> dict[str, Any]:
        """Return P@1 and P@5 of the sum with the sparse model; weights by held-out rows."""
        data, n = self.data, len(self.data.held_out)
        theirs = sparse["ids"].astype(np.int64)
        ids = np.sort(np.concatenate([own, theirs], 1), axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
        encoded = self.each(head.log_proba, x, torch.from_numpy(np.maximum(ids, 0)).to(self.device))
        scores = {
            "encoder": np.maximum(encoded.astype(np.float32), FLOOR),
            "sparse": looked_up(ids, theirs, sparse["log_probs"].astype(np.float32)),
        }
        hits = data.contains(data.evaluated, ids)
        n_true = np.diff(data.ptr)[data.evaluated]
        weights = best_weights({k: v[:n] for k, v in scores.items()}, hits[:n], n_true[:n])
        total = sum(weights[name] * each for name, each in scores.items())
        order = np.argsort(np.where(ids >= 0, -total, np.inf), axis=1, kind="stable")
        found = data.precision(data.test, np.take_along_axis(ids, order, 1)[n:])
        return {"weights": weights} | {f"hybrid {k}": v for k, v in found.items()}


def looked_up(ids: np.ndarray, known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the values of ids among known ones, row by row; others have the row's lowest."""
    order = np.argsort(known, axis=1)
    known, values = np.take_along_axis(known, order, 1), np.take_along_axis(values, order, 1)
    found = np.empty(ids.shape, np.float32)
    for row in range(len(ids)):
        at = np.minimum(np.searchsorted(known[row], ids[row]), known.shape[1] - 1)
        found[row] = np.where(known[row, at] == ids[row], values[row, at], values[row].min())
    return found


def make_sparse(data: Titles, path: Path) -> None:
    """Train a `TextClassifier` and store its candidates for held-out and test rows."""
    from ltls import TextClassifier

    start = time.perf_counter()
    rows = data.train[np.diff(data.ptr)[data.train] > 0]
    texts = [data.texts[i] for i in rows]
    model = TextClassifier(random_state=SEED, verbose=0).fit(texts, data.of(rows))
    seconds = time.perf_counter() - start
    labels, proba = model.predict_topk(
        [data.texts[i] for i in data.evaluated], k=min(CANDIDATES, data.n_labels), proba=True
    )
    ids = labels.astype(np.int32)
    log_probs = np.log(np.maximum(proba, 1e-9)).astype(np.float32)
    np.savez_compressed(path, ids=ids, log_probs=log_probs, seconds=seconds)
    n = len(data.held_out)
    machine.say(f"sparse model: {seconds:.0f} s, {data.precision(data.test, ids[n:])}")


def main() -> None:
    parser = arguments(__doc__, seconds=480)
    parser.add_argument("--data", type=Path, default=os.environ.get("LTLS_DATA"))
    parser.add_argument("--make-sparse", type=Path, help="only train the sparse model, store it")
    parser.add_argument("--sparse", type=Path, help="what --make-sparse has stored")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--rate", type=float, default=RATE)
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data or LTLS_DATA must name the folder with the texts")
    data = Titles(Path(options.data), options.small)
    machine.say(f"{len(data.train):,} rows, {data.n_labels:,} labels")
    if options.make_sparse:
        make_sparse(data, options.make_sparse)
        return
    result = {"about": description(options.device), "n_labels": data.n_labels}
    result |= {"epochs": options.epochs, "rows": []}
    if options.sparse:
        sparse = np.load(options.sparse)
        found = data.precision(data.test, sparse["ids"][len(data.held_out) :].astype(np.int64))
        result["sparse"] = {"train s": float(sparse["seconds"]), **found}
        machine.say(f"sparse model: {result['sparse']}")
    experiment = Experiment(data, options)
    names = [
        "full sigmoid",
        "trellis, logistic, width 64",
        "trellis, softmax, width 64",
        "full softmax",
        "trellis, logistic, width 32",
        *ADAPTIVE,
        *ESTIMATORS,
    ]
    compare(NAME, result, [{"head": name} for name in names], experiment.run, options)


if __name__ == "__main__":
    main()
