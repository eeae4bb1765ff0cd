"""Training tasks of the engine: validation, lifetime of their arrays, chunks."""

import gc

import numpy as np
import pytest

from ltls import RandomCodebook, TableCodebook, Trellis
from ltls.core import _engine
from ltls.features.rows import Rows

N_ROWS, N_FEATURES, TRELLIS = 6, 4, Trellis(10)
OPTIONS = {
    "step": 1, "learning_rate": 0.3, "threshold": 0.0, "count_hits": True, "batch_size": 1,
    "n_jobs": 1,
}  # fmt: skip


def task(**changes):
    labels = np.arange(N_ROWS)
    parts = {
        "trellis": TRELLIS.engine,
        "features": Rows(np.ones((N_ROWS, N_FEATURES)), False, False).engine,
        "label_ptr": np.arange(N_ROWS + 1),
        "labels": labels,
        "paths": RandomCodebook(10).path_of(labels)[None],
        "example_weights": None,
        "codebooks": [],
        "loss": "softmax",
        "multilabel": False,
        "ranking_multiplier": 1,
    }
    return _engine.TrainTask(**parts | changes)


def weights():
    return np.zeros((N_FEATURES, TRELLIS.n_edges), np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "hinge"}, "loss must be one of 'separation', 'softmax', 'logistic', got 'hinge'"),
        ({"label_ptr": np.arange(N_ROWS)}, "label_ptr must have 7 entries, got 6"),
        ({"label_ptr": np.full(N_ROWS + 1, 7)}, "label_ptr must be that of a CSR matrix"),
        ({"label_ptr": np.arange(N_ROWS + 1)[::-1].copy()}, "label_ptr must be that of a CSR"),
        ({"paths": np.full((1, N_ROWS), 10)}, "paths must be between 0 and 9, got 10"),
        ({"paths": np.full((1, N_ROWS), -1)}, "paths must be between 0 and 9, got -1"),
        ({"paths": np.zeros((1, 3), np.int64)}, "a row of paths must have 6 entries, got 3"),
        ({"paths": np.zeros((0, N_ROWS), np.int64)}, "must be at least 1, got 0"),
        ({"example_weights": np.ones(3, np.float32)}, "example_weights must have 6 entries"),
        ({"ranking_multiplier": 0}, "ranking_multiplier must be at least 1, got 0"),
        ({"codebooks": [TableCodebook(9).engine]}, "codebooks must have a path per class"),
        ({"codebooks": [TableCodebook(10).engine] * 2}, "codebooks must be empty or one per"),
        (
            {"codebooks": [TableCodebook(10).engine], "labels": np.full(N_ROWS, -1)},
            "labels must be between 0 and",
        ),
    ],
)
def test_examples_are_validated_when_the_task_is_made(changes, message):
    with pytest.raises(ValueError, match=message):
        task(**changes)


def test_a_codebook_must_be_a_table():
    with pytest.raises(TypeError):
        task(codebooks=[RandomCodebook(10).engine])


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"order": np.array([0, N_ROWS])}, {}, "order must be between 0 and 5, got 6"),
        ({"order": np.array([-1])}, {}, "order must be between 0 and 5, got -1"),
        ({"weights": np.zeros((4, 3), np.float32)}, {}, "weights must have 4 rows of at least"),
        ({"squares": np.zeros((1, 1), np.float32)}, {}, "squares must have"),
        ({"sums": np.zeros((1, 1))}, {}, "sums must have"),
        ({}, {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({}, {"n_jobs": 0}, "n_jobs must not be 0"),
    ],
)
def test_a_run_checks_its_chunk_and_the_shapes(arrays, options, message):
    parts = {"weights": weights(), "squares": None, "sums": None, "order": np.arange(3)} | arrays
    with pytest.raises(ValueError, match=message):
        task().run(*parts.values(), **OPTIONS | options)


def test_a_codebook_that_grew_after_the_task_was_made_is_rejected():
    book = TableCodebook(10).engine
    made = task(codebooks=[book], paths=np.full((1, N_ROWS), -1))
    book.grow(20)
    with pytest.raises(ValueError, match="codebooks must have a path per class"):
        made.run(weights(), None, None, np.arange(3), **OPTIONS)


def test_a_task_keeps_its_arrays_alive():
    made = task(codebooks=[TableCodebook(10).engine], paths=np.full((1, N_ROWS), -1))
    gc.collect()
    noise = [np.full(50, 10**9) for _ in range(1000)]  # takes the place of what was freed
    loss, _, examples = made.run(weights(), None, None, np.arange(N_ROWS), **OPTIONS)
    assert np.isfinite(loss)
    assert examples == N_ROWS
    del noise


def test_chunks_give_the_weights_of_one_run():
    whole, parts, made = weights(), weights(), task()
    made.run(whole, None, None, np.arange(N_ROWS), **OPTIONS)
    for first in range(0, N_ROWS, 2):
        made.run(parts, None, None, np.arange(first, first + 2), **OPTIONS)
    np.testing.assert_array_equal(parts, whole)
