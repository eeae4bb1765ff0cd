"""What a run of the comparison found, and the files that keep it: one for a set and a method.

Differences in P@1 are paired, test row by test row. Which rows a method has right is kept in the
build folder only; what the repository keeps is the interval of the difference from the best peer,
in against_best.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks import datasets, machine
from benchmarks.accuracy.methods import METHODS, PEERS
from ltls.metrics import (
    coverage_at_k,
    macro_f1_at_k,
    ndcg_at_k,
    precision_at_k,
    propensities,
    psp_at_k,
    recall_at_k,
)

RESULTS = machine.RESULTS / "accuracy"
HITS = machine.BUILD / "accuracy" / "hits"
SETS = (*datasets.MULTI_LABEL, *datasets.SINGLE_LABEL)
RESAMPLES = 10_000

# {"runs": {seed: {figure: value}}} of a method that has run, {"not_run": why} of one that has not.
Result = dict[str, Any]
Known = Mapping[str, Mapping[str, Result]]  # of every set, of every method


def figures(Y: sp.csr_matrix, Y_test: sp.csr_matrix, top: NDArray[np.int32]) -> dict[str, Any]:
    """Score the best labels of the test rows; a tool that names one label per row has no P@3."""
    propensity = propensities(Y, n_labels=Y.shape[1])
    first = {"p1": precision_at_k(Y_test, top, 1), "psp1": psp_at_k(Y_test, top, propensity, 1)}
    several: dict[str, float | None] = {
        "p3": precision_at_k(Y_test, top, 3),
        "p5": precision_at_k(Y_test, top),
        "recall5": recall_at_k(Y_test, top),
        "ndcg5": ndcg_at_k(Y_test, top),
        "psp5": psp_at_k(Y_test, top, propensity),
        "macro_f1_5": macro_f1_at_k(Y_test, top),
        "coverage5": coverage_at_k(Y_test, top),
    }
    if not (top[:, 1:] >= 0).any():
        several = dict.fromkeys(several)
    return {**first, **several, "test_rows": len(top)}


def at5(name: str) -> str:
    """Return which figure at 5 a set is judged by: of one label per row, recall@5."""
    return "recall5" if name in datasets.ONE_LABEL else "p5"


def hits(Y_test: sp.csr_matrix, top: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return for every test row whether its best label is right."""
    first = top[:, 0]
    right = np.asarray(Y_test[np.arange(len(top)), np.maximum(first, 0)]).ravel() > 0
    return right & (first >= 0)


def read(name: str, method: str) -> Result:
    """Return what is known of a method on a set; nothing is an empty dict."""
    return machine.read(method, RESULTS / name)


def write(name: str, method: str, result: Result) -> None:
    machine.write(method, result, RESULTS / name)


def read_all(names: Iterable[str] = SETS) -> Known:
    """Return every method's result on every set of which something is known."""
    found = {name: {method: read(name, method) for method in METHODS} for name in names}
    return {name: of for name, of in found.items() if any(of.values())}


def summary(result: Result, figure: str = "p1") -> float | None:
    """Return the mean of a figure over the runs, of a time the shortest; None where there is none.

    The shortest time is the one that other work on the machine has disturbed least.
    """
    values = [run.get(figure) for run in result.get("runs", {}).values()]
    if not values or None in values:
        return None
    return float(min(values) if figure.endswith("_seconds") else np.mean(values))


def best_peer(of: Mapping[str, Result]) -> str | None:
    """Return the peer with the highest P@1 on a set."""
    scores = {peer.name: summary(of.get(peer.name, {})) for peer in PEERS}
    ran = {name: score for name, score in scores.items() if score is not None}
    return max(ran, key=lambda name: ran[name]) if ran else None


def lead(of: Mapping[str, Result], method: str = "default") -> float | None:
    """Return how far a method's P@1 is above the best peer's."""
    best, ours = best_peer(of), summary(of.get(method, {}))
    theirs = summary(of[best]) if best else None
    return None if ours is None or theirs is None else ours - theirs


# Paired differences


def interval(difference: NDArray[np.float64], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean of paired differences.

    They take few values, and how often each is drawn is multinomial: no row needs to be drawn.
    """
    values, counts = np.unique(difference, return_counts=True)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(difference.size, counts / difference.size, RESAMPLES)
    low, high = np.quantile(draws @ values / difference.size, (0.025, 0.975))
    return float(low), float(high)


def keep_hits(name: str, method: str, seed: int, right: NDArray[np.bool_]) -> None:
    folder = HITS / name / method
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{seed}.npy", right)


def share_of_hits(name: str, method: str, result: Result) -> NDArray[np.float64] | None:
    """Return for every test row the share of the runs that had it right, where that is known."""
    files = [HITS / name / method / f"{seed}.npy" for seed in result.get("runs", {})]
    if not files or not all(file.exists() for file in files):
        return None
    share: NDArray[np.float64] = np.mean([np.load(file) for file in files], axis=0)
    return share


def intervals(name: str, of: Mapping[str, Result], fresh: Iterable[str] = ()) -> dict[str, Any]:
    """Return the intervals of all differences from the best peer, and store them.

    Those of methods that did not run now, `fresh`, stay as they are stored, as long as the best
    peer is the same and did not run either.
    """
    best = best_peer(of)
    stored = read(name, "against_best")
    if best is None:
        return stored
    fresh = set(fresh)
    keep = stored.get("peer") == best and best not in fresh
    kept = {m: v for m, v in stored.get("intervals", {}).items() if keep and m not in fresh}
    theirs = share_of_hits(name, best, of[best])
    for method, result in of.items():
        ours = share_of_hits(name, method, result)
        if method not in kept and method != best and ours is not None and theirs is not None:
            kept[method] = [round(bound, 6) for bound in interval(ours - theirs)]
    found = {"peer": best, "intervals": dict(sorted(kept.items()))}
    write(name, "against_best", found)
    return found
