"""What a run of the comparison found, and the files that keep it: one for a set and a method."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ltls.atomic import replacing
from ltls.metrics import precision_at_k, propensities, psp_at_k

# {"runs": {seed: {figure: value}}} of a method that has run, {"not_run": why} of one that has not.
Result = dict[str, Any]


def figures(Y: sp.csr_matrix, Y_test: sp.csr_matrix, top: NDArray[np.int32]) -> dict[str, Any]:
    """Judge the best labels of the test rows; a tool that names one label a row has no P@3."""
    several = bool((top[:, 1:] >= 0).any())
    first = top[:, :1]
    hits = np.asarray(Y_test[np.arange(len(top)), np.maximum(first[:, 0], 0)]).ravel() > 0
    return {
        "p1": precision_at_k(Y_test, first),
        "p3": precision_at_k(Y_test, top, 3) if several else None,
        "p5": precision_at_k(Y_test, top, 5) if several else None,
        "psp1": psp_at_k(Y_test, first, propensities(Y, n_labels=Y.shape[1])),
        "test_rows": len(top),
        "hits": packed(hits & (first[:, 0] >= 0)),
    }


def packed(hits: NDArray[np.bool_]) -> str:
    """Write which rows were answered right as text, a bit a row or less."""
    return base64.b64encode(zlib.compress(np.packbits(hits).tobytes(), 9)).decode()


def unpacked(text: str, n_rows: int) -> NDArray[np.bool_]:
    """Read what `packed` wrote."""
    bits = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return np.unpackbits(bits, count=n_rows).astype(bool)


def path(folder: Path, name: str, method: str) -> Path:
    return folder / name / f"{method}.json"


def read(folder: Path, name: str, method: str) -> Result:
    """Read what is known of a method on a set; nothing is an empty dict."""
    file = path(folder, name, method)
    found: Result = json.loads(file.read_text()) if file.exists() else {}
    return found


def write(folder: Path, name: str, method: str, result: Result) -> None:
    file = path(folder, name, method)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary:
        temporary.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def summary(result: Result, figure: str) -> float | None:
    """Return the mean of a figure over the runs, of a time the shortest; None where there is none.

    The shortest time is the one that other work on the machine has disturbed least.
    """
    values = [run[figure] for run in result.get("runs", {}).values()]
    if not values or None in values:
        return None
    return float(min(values) if figure.endswith("_seconds") else np.mean(values))


def hits(result: Result) -> NDArray[np.float64]:
    """Return for every test row in which share of the runs its best label was right."""
    runs = [unpacked(run["hits"], run["test_rows"]) for run in result["runs"].values()]
    share: NDArray[np.float64] = np.mean(runs, axis=0, dtype=np.float64)
    return share
