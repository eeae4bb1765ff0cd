"""Predict the next token of Python code, among tens of thousands.

The data is on every machine that runs Python: its standard library. A row has the four tokens
before a token, and hashes of the last two, three and four of them; its label is the token itself.
Whole files are held out to test.

    python examples/demo.py                  about a minute on two cores
    python examples/demo.py --interactive    complete what you type, with the model of that run
"""

from __future__ import annotations

import argparse
import io
import sysconfig
import time
import tokenize
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import ltls
from ltls.settings import Trellises

MODEL = "python_tokens.ltls"
CONTEXT, BITS = 4, 16  # tokens before a token; each kind of feature has 2**16 columns
SHOWN = {tokenize.NEWLINE: "⏎", tokenize.INDENT: "⇥", tokenize.DEDENT: "⇤"}
IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER}
PREFIXES = (
    "if __name__ ==",
    "for i in",
    "def __init__(self",
    "except KeyError",
    "raise ValueError",
)


def tokens_of(code: str) -> list[str]:
    """Return the tokens of Python code, those before a syntax error if it has one."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type not in IGNORED:
                text = SHOWN.get(token.type, token.string)
                found.append(text if len(text) <= 40 else '"…"')  # long strings are all alike
    except (SyntaxError, tokenize.TokenError):
        pass
    return found


def before_the_end(code: str) -> list[str]:
    """Return the tokens of code that goes on; the tokenizer ends it with a new line."""
    tokens = tokens_of(code)
    while tokens and tokens[-1] in SHOWN.values():
        tokens.pop()
    return tokens


def library() -> Iterator[list[str]]:
    """Yield the tokens of every file of the standard library, in a fixed random order."""
    root = Path(sysconfig.get_path("stdlib"))
    installed = {"site-packages", "dist-packages"}
    files = sorted(path for path in root.rglob("*.py") if not installed & set(path.parts))
    np.random.default_rng(0).shuffle(files)
    for file in files:
        yield tokens_of(file.read_text("utf-8", "replace"))


def take(files: Iterator[list[str]], n_tokens: int) -> list[list[str]]:
    """Return as many files as have `n_tokens` together; the last one is cut."""
    taken: list[list[str]] = []
    for tokens in files:
        taken.append(tokens[:n_tokens])
        n_tokens -= len(taken[-1])
        if not n_tokens:
            break
    return taken


def rows_of(files: Iterable[list[str]]) -> csr_array:
    """Return a row for every token: hashes of the tokens before it."""
    stream: list[str] = []
    for tokens in files:
        stream += [*[""] * CONTEXT, *tokens]  # no file sees the one before
    places = np.array([place for place, token in enumerate(stream) if token])
    number = {token: zlib.crc32(token.encode("utf-8", "surrogatepass")) for token in set(stream)}
    numbers = np.array([number[token] for token in stream], np.uint64)
    keys = [numbers[places - back] for back in range(1, CONTEXT + 1)]
    gram = keys[0]
    for token in keys[1:]:
        gram = mixed(gram + token)
        keys.append(gram)
    hashes = [mixed(key) >> np.uint64(64 - BITS) for key in keys]
    columns = np.stack(hashes, axis=1).astype(np.int64) + (np.arange(len(keys)) << BITS)
    ptr = np.arange(len(places) + 1) * len(keys)
    ones = np.ones(columns.size, np.float32)
    return csr_array((ones, columns.ravel(), ptr), shape=(len(places), len(keys) << BITS))


def mixed(keys: Any) -> Any:
    """Mix the bits of 64-bit numbers: Fibonacci hashing."""
    return (keys ^ (keys >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)


def baselines(train: list[list[str]], test: list[list[str]]) -> dict[str, Any]:
    """Return five guesses per test token: frequent tokens, and those that follow the last one."""
    counts: Counter[str] = Counter()
    following: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for tokens in train:
        counts.update(tokens)
        for previous, token in zip(["", *tokens], tokens, strict=False):
            following[previous][token] += 1

    def five(counter: Counter[str]) -> list[str]:
        return [*(token for token, _ in counter.most_common(5)), *[""] * 5][:5]

    best = {token: five(counter) for token, counter in following.items()}
    last = [previous for tokens in test for previous in ["", *tokens[:-1]]]
    return {
        "most frequent tokens": np.array([five(counts)] * len(last)),
        "table of bigrams": np.array([best.get(token, [""] * 5) for token in last]),
    }


def models(verbose: int = 1) -> dict[str, ltls.LTLSClassifier]:
    """Return the defaults, and the paper's idea alone: one trellis, a path for every token."""
    how = {"n_jobs": -1, "random_state": 0, "verbose": verbose}
    one = Trellises(
        width=16, n_trellises=1, epochs=2, learning_rate=0.4, assignment="frequency", density=0.01
    )
    return {
        "ltls, defaults": ltls.LTLSClassifier(**how),
        "ltls, one trellis": ltls.LTLSClassifier(trellises=one, label_weights=False, **how),
    }


def scores_of(best: Any, y: Any) -> tuple[float, float]:
    """Return P@1 and recall@5."""
    right = best == y[:, None]
    return float(right[:, 0].mean()), float(right.any(axis=1).mean())


def completions(model: ltls.LTLSClassifier, code: str) -> list[tuple[str, float]]:
    """Return the five most probable next tokens of some code."""
    row = rows_of([[*before_the_end(code), "?"]])[-1:]
    labels, proba = model.predict_topk(row, 5, proba=True)
    return list(zip(labels[0].tolist(), proba[0].tolist(), strict=True))


def interact(model: ltls.LTLSClassifier) -> None:
    """Complete the code that is typed, until an empty line."""
    print("Type the beginning of some Python code; an empty line quits.")
    while code := input(">>> ").strip():
        for token, probability in completions(model, code):
            print(f"{probability:6.1%}  {'█' * round(30 * probability):30}  {token}")


def draw(folder: Path, scores: dict[str, tuple[float, float]], model: ltls.LTLSClassifier) -> None:
    """Draw accuracies, and the path of a prediction."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
    places = np.arange(len(scores))
    for i, (name, colour) in enumerate((("P@1", "#0072B2"), ("recall@5", "#56B4E9"))):
        ax.barh(
            places + 0.4 * i, [each[i] for each in scores.values()], 0.36, label=name, fc=colour
        )
    ax.set_yticks(places + 0.2, list(scores))
    ax.set(title="Next token of Python code", xlim=(0, 1))
    ax.invert_yaxis()
    ax.legend()
    figure.savefig(folder / "accuracy.png", dpi=150)
    row = rows_of([[*before_the_end(PREFIXES[0]), "?"]])[-1:]
    ax = ltls.plot.plot_prediction(model, row, title=f"{PREFIXES[0]}  →  {{label}}")
    ax.figure.savefig(folder / "path.png", dpi=100)
    plt.close("all")


def run(n_train: int, n_test: int, folder: Path) -> None:
    """Train, test, and show what was found."""
    start, files = time.perf_counter(), library()
    test, train = take(files, n_test), take(files, n_train)
    X, X_test = rows_of(train), rows_of(test)
    y, y_test = (np.array([t for tokens in part for t in tokens], object) for part in (train, test))
    print(
        f"{len(y):,} tokens of Python's standard library to train on, {len(set(y.tolist())):,} of "
        f"them distinct, and {len(y_test):,} of other files to test; "
        f"read in {time.perf_counter() - start:.1f} s. Which token comes next?"
    )
    scores = {name: scores_of(best, y_test) for name, best in baselines(train, test).items()}
    costs = dict.fromkeys(scores, f"{'–':>13}{'–':>10}{'–':>9}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models().items():
        print(f"\n{name}")
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        print(f"plan: {model.plan_}")
        start = time.perf_counter()
        scores[name] = scores_of(model.predict_topk(X_test, 5)[0], y_test)
        microseconds = 1e6 * (time.perf_counter() - start) / len(y_test)
        model.save(folder / MODEL)  # that of the last model stays
        megabytes = (folder / MODEL).stat().st_size / 1e6
        costs[name] = f"{seconds:13.1f}{microseconds:10.1f}{megabytes:9.1f}"
    print(f"\n{'on held-out files':22}{'P@1':>7}{'recall@5':>10}", end="")
    print(f"{'training [s]':>13}{'µs a row':>10}{'file MB':>9}")
    for name, (precision, recall) in scores.items():
        print(f"{name:22}{precision:7.3f}{recall:10.3f}{costs[name]}")
    print()
    for code in PREFIXES:
        found = "  ".join(f"{token} {proba:.2f}" for token, proba in completions(model, code))
        print(f"{code:26}{found}")
    draw(folder, scores, model)
    print(f"\nWritten: {folder / MODEL}, {folder / 'accuracy.png'}, {folder / 'path.png'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the tokens, in seconds")
    parser.add_argument("--interactive", action="store_true", help="complete what you type")
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where files are written")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    if not options.interactive or not (options.folder / MODEL).exists():
        run(500_000 // scale, 50_000 // scale, options.folder)
    if options.interactive:
        interact(ltls.load(options.folder / MODEL))


if __name__ == "__main__":
    main()
