"""How close scoring and predicting come to the fastest that memory allows, on one core and on two.

The roofline is a kernel that reads the rows of W that scoring would read, in the same order and
asked for as early, and computes nothing. W has at least 512 MB, so that no cache holds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from ltls import RandomCodebook, Trellis
from ltls.decoding import Decoder
from ltls.linear import LinearModel, aligned_zeros, engine_features, padded

N_CLASSES = 1_000_000
ROWS, NON_ZEROS = 8192, 50


def model(width: int, megabytes: int) -> tuple[Trellis, LinearModel]:
    """Return random weights of this size for a trellis of a million classes."""
    trellis = Trellis(N_CLASSES, width)
    stride = padded(trellis.n_edges)
    weights = aligned_zeros((megabytes * 2**20 // (4 * stride) + 1, stride), np.float32)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=1 << 20).astype(np.float32)
    flat = weights.reshape(-1)
    for first in range(0, flat.size, noise.size):  # as random as times need it
        part = flat[first : first + noise.size]
        part[:] = noise[: part.size]
    return trellis, LinearModel(weights, None, trellis.n_edges, 1, False, False)


def rows(n_features: int) -> sp.csr_matrix:
    rng = np.random.default_rng(1)
    indices = rng.integers(n_features, size=ROWS * NON_ZEROS).astype(np.int32)
    values = rng.random(indices.size, np.float32)
    indptr = np.arange(0, indices.size + 1, NON_ZEROS, dtype=np.int32)
    return sp.csr_matrix((values, indices, indptr), shape=(ROWS, n_features))


def shortest(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time the calls in turn, so that what else the machine does meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {name: min(each) for name, each in times.items()}


def measure(width: int = 2, megabytes: int = 512, repeats: int = 15) -> dict[str, float]:
    """Return microseconds a row of reading, scoring and predicting, and ratios to reading."""
    trellis, linear = model(width, megabytes)
    X = rows(linear.n_features)
    features = engine_features(X, False, False)
    decoder = Decoder(trellis, [RandomCodebook(N_CLASSES)], N_CLASSES, "separation")
    predictor = decoder.predictor(linear, 1)
    h = np.empty((16, linear.weights.shape[1]), np.float32)
    ids, scores = np.empty((ROWS, 1), np.int64), np.empty((ROWS, 1), np.float32)

    def score(n_jobs: int) -> None:  # into room that stays in the cache, as prediction does
        for first in range(0, ROWS, len(h)):
            features.edge_scores(linear.weights, None, h, first, n_jobs)

    result: dict[str, float] = {
        "megabytes": linear.weights.nbytes / 2**20,
        "width": width,
        "edges": trellis.n_edges,
    }
    for cores in (1, 2):
        works = {
            "read": lambda cores=cores: features.read_rows(linear.weights, cores),
            "predict": lambda cores=cores: predictor.predict(features, 0, ids, scores, cores),
        }
        if cores == 1:
            works["score"] = lambda: score(1)
        for name, time_taken in shortest(works, repeats).items():
            result[f"{name}, {cores} core{'s' * (cores > 1)}"] = time_taken / ROWS * 1e6
    result["score / read"] = result["score, 1 core"] / result["read, 1 core"]
    result["predict / read"] = result["predict, 1 core"] / result["read, 1 core"]
    result["two cores / one"] = result["predict, 1 core"] / result["predict, 2 cores"]
    return result


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:20} {value:10.3f}")
