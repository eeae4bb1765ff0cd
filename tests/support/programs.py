"""The dynamic programs under one signature, for properties that all of them have."""

import numpy as np

PROGRAMS = {
    "score": lambda trellis, h, **jobs: trellis.score(h, np.zeros(np.shape(h)[:-1], int), **jobs),
    "viterbi": lambda trellis, h, **jobs: trellis.viterbi(h, **jobs),
    "topk": lambda trellis, h, **jobs: trellis.topk(h, 5, **jobs),
    "log_partition": lambda trellis, h, **jobs: trellis.log_partition(h, **jobs),
    "marginals": lambda trellis, h, **jobs: trellis.marginals(h, **jobs),
}


def edge_scores(trellis, *batch, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(*batch, trellis.n_edges)).astype(dtype)


def all_results(trellis, h, **jobs):
    """The results of all programs on h, as a flat list of arrays."""
    results = []
    for program in PROGRAMS.values():
        result = program(trellis, h, **jobs)
        results += result if isinstance(result, tuple) else [result]
    return [np.asarray(result) for result in results]


def assert_all_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_all_close(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
