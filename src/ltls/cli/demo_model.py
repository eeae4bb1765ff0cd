"""The models of the demo: predict the next token of Python code, against simple baselines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..estimators.classifier import LTLSClassifier
from .demo_tokens import Examples, examples_of, features_before, files_below, tokens_of

EPOCHS = 2
SIZE_BUDGET = "10MB"


@dataclass(frozen=True)
class Scores:
    """Precision at 1 and recall at 5 on held-out tokens."""

    precision: float
    recall: float

    @classmethod
    def of(cls, predicted: npt.NDArray[Any], truth: npt.NDArray[Any]) -> Scores:
        """Return the scores of the five best labels of every row."""
        right = predicted == truth[:, None]
        return cls(float(right[:, 0].mean()), float(right[:, :5].any(axis=1).mean()))


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with its size, speed and accuracy."""

    model: LTLSClassifier
    train_s: float
    predict_us: float
    n_bytes: int  # of its file
    scores: Scores

    @property
    def n_parameters(self) -> int:
        """The number of weights, with the intercepts."""
        return int(self.model.trellis_.n_edges * (self.model.n_features_in_ + 1))


def corpus(
    source: Path | None, n_examples: int, n_held_out: int, seed: int = 0
) -> tuple[Examples, Examples]:
    """Return training examples, and test examples from other files."""
    files = files_below(source)
    np.random.default_rng(seed).shuffle(files)
    parts: tuple[list[list[str]], list[list[str]]] = [], []
    wanted = [n_held_out, n_examples]
    for file in files:
        # First the held-out files, then those of the training set.
        part = 0 if wanted[0] > 0 else 1
        if wanted[part] <= 0:
            break
        tokens = tokens_of(file.read_text("utf-8", "replace"))[: wanted[part]]
        parts[part].append(tokens)
        wanted[part] -= len(tokens)
    if not parts[1]:
        raise ValueError(
            f"source must have more than {n_held_out:,} tokens of code, {source} has fewer"
        )
    return examples_of(parts[1]), examples_of(parts[0])


def train_and_measure(
    width: int, train: Examples, test: Examples, file: Path, *, verbose: int = 0
) -> TrainedModel:
    """Train a model, write its file, and measure it on the test examples."""
    model = LTLSClassifier(
        width=width,
        n_trellises=1,
        label_weights=False,
        size_budget=SIZE_BUDGET,
        loss="softmax",
        assignment="frequency",
        epochs=EPOCHS,
        learning_rate=0.4,
        validation_fraction=0,
        random_state=0,
        verbose=verbose,
    )
    start = time.perf_counter()
    model.fit(train.X, train.y)
    train_s = time.perf_counter() - start
    model.save(file)
    times = []
    for _ in range(3):  # the minimum: other processes may share the machine
        start = time.perf_counter()
        predicted = model.predict_topk(test.X, 5)[0]
        times.append(time.perf_counter() - start)
    predict_us = 1e6 * min(times) / len(test)
    n_bytes = file.stat().st_size
    return TrainedModel(model, train_s, predict_us, n_bytes, Scores.of(predicted, test.y))


def majority(train: Examples, test: Examples) -> Scores:
    """Return the scores of always predicting the most frequent tokens."""
    tokens, counts = np.unique(train.y, return_counts=True)
    best = tokens[np.argsort(-counts, kind="stable")[:5]]
    return Scores.of(np.broadcast_to(best, (len(test), len(best))), test.y)


def bigrams(train: Examples, test: Examples) -> Scores:
    """Return the scores of predicting the tokens that most often follow the previous one."""
    tokens, ids = np.unique(np.concatenate([train.before, train.y]), return_inverse=True)
    pairs, counts = np.unique(
        ids[: len(train)] * len(tokens) + ids[len(train) :], return_counts=True
    )
    pairs = pairs[np.lexsort((-counts, pairs // len(tokens)))]
    firsts, starts = np.unique(pairs // len(tokens), return_index=True)
    ends = np.append(starts[1:], len(pairs))
    table = {
        tokens[first]: tokens[pairs[start : min(end, start + 5)] % len(tokens)]
        for first, start, end in zip(firsts, starts, ends, strict=True)
    }
    predicted = np.full((len(test), 5), None, object)
    for row, token in enumerate(test.before):
        follow = table.get(token, ())
        predicted[row, : len(follow)] = follow
    return Scores.of(predicted, test.y)


def completions(model: LTLSClassifier, code: str) -> list[tuple[str, float]]:
    """Return the five most probable next tokens of some code, with their probabilities."""
    tokens, probabilities = model.predict_topk(features_before(tokens_of(code)), 5, proba=True)
    return list(zip(tokens[0].tolist(), probabilities[0].tolist(), strict=True))
