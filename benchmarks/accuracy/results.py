"""What a run of the comparison found, and the files that keep it: one for a set and a method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks import datasets, machine
from benchmarks.accuracy.methods import METHODS, PEERS
from ltls.metrics import precision_at_k, propensities, psp_at_k, recall_at_k

RESULTS = machine.RESULTS / "accuracy"
SETS = (*datasets.MULTI_LABEL, *datasets.SINGLE_LABEL)

# {"runs": {seed: {figure: value}}} of a method that has run, {"not_run": why} of one that has not.
Result = dict[str, Any]
Known = Mapping[str, Mapping[str, Result]]  # of every set, of every method


def figures(Y: sp.csr_matrix, Y_test: sp.csr_matrix, top: NDArray[np.int32]) -> dict[str, Any]:
    """Score the best labels of the test rows."""
    propensity = propensities(Y, n_labels=Y.shape[1])
    return {
        "p1": precision_at_k(Y_test, top, 1),
        "psp1": psp_at_k(Y_test, top, propensity, 1),
        "p3": precision_at_k(Y_test, top, 3),
        "p5": precision_at_k(Y_test, top),
        "recall5": recall_at_k(Y_test, top),
        "psp5": psp_at_k(Y_test, top, propensity),
        "test_rows": len(top),
    }


def at5(name: str) -> str:
    """Return which figure at 5 a set is judged by: of one label per row, recall@5."""
    return "recall5" if name in datasets.ONE_LABEL else "p5"


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
