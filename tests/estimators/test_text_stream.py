"""Text classifiers that learn out of core: the same models, within limited memory."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ltls import Checkpoint, LTLSClassifier, TextClassifier
from ltls.parts import label_weights
from ltls.readers import TableStream
from ltls.settings import Text, Trellises

PROGRAM = Path(__file__).parents[1] / "support" / "memory_limit.py"


def lines_of(n_rows, n_labels=20, seed=0):
    rng = np.random.default_rng(seed)
    for label in rng.integers(n_labels, size=n_rows).tolist():
        others = " ".join(f"w{i}" for i in rng.integers(3000, size=18))
        yield f"w{label} w{label + n_labels} {others},{label}\n"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    path.write_text("text,label\n" + "".join(lines_of(300)))
    return path


def texts_of(path):
    rows = [line.rsplit(",", 1) for line in path.read_text().splitlines()[1:]]
    return [text for text, _ in rows], [label for _, label in rows]


@pytest.mark.parametrize("n_features", [None, 512], ids=["vocabulary", "hashed"])
def test_a_streamed_table_gives_the_model_of_its_texts(table, n_features):
    given = {
        "features": Text(n_features=n_features),
        "trellises": Trellises(n_trellises=1, epochs=2, shuffle=False),
        "random_state": 0,
    }
    texts, labels = texts_of(table)
    whole = TextClassifier(**given).fit(texts, labels)
    rows = TableStream(table, "text", "label", chunk_size=5000)
    streamed = TextClassifier(**given).fit_stream(rows)
    assert streamed.n_features_in_ == whole.n_features_in_
    ours, theirs = (model.model_.front_end.settings for model in (streamed, whole))
    assert ours.get_params() == theirs.get_params()
    found, expected = (model.predict_topk(texts[:50], 3) for model in (streamed, whole))
    assert found[0].tolist() == expected[0].tolist()
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-3, atol=1e-3)


def test_a_stopped_stream_of_texts_is_resumed_to_the_same_model(table, tmp_path):
    rows = TableStream(table, "text", "label", chunk_size=5000)

    def classifier(epochs):
        given = Trellises(width=4, n_trellises=1, n_iter_no_change=9, epochs=epochs)
        words = Text(char_ngram_range=None)
        return TextClassifier(
            features=words, trellises=given, validation_fraction=0.1, random_state=0
        )

    whole = classifier(4).fit_stream(rows)
    classifier(2).fit_stream(rows, checkpoint=tmp_path / "state")
    resumed = classifier(4)
    resumed.fit_stream(rows, checkpoint=Checkpoint(tmp_path / "state", resume=True))
    assert np.array_equal(resumed.coef_, whole.coef_)
    assert resumed.loss_curve_ == whole.loss_curve_


def test_a_stream_without_batches_is_an_error():
    with pytest.raises(ValueError, match="at least one batch of texts"):
        TextClassifier().fit_stream([])


@pytest.mark.parametrize("views", [False, True])
def test_label_weights_learn_from_all_blocks(monkeypatch, views):
    """Every label has more rows than one block; a sample of the first ones would not do."""
    rng = np.random.default_rng(0)
    n_labels, n_rows = 70, 2100
    y = np.tile(np.arange(n_labels), n_rows // n_labels)
    late = np.arange(n_rows) >= n_rows // 2
    own = np.where(late, y + n_labels, y)  # features change in the middle
    X = np.zeros((n_rows, 2 * n_labels), np.float32)
    X[np.arange(n_rows), own] = 1
    X += 0.05 * rng.random(X.shape, dtype=np.float32)
    batches = [(X[first : first + 100], y[first : first + 100]) for first in range(0, n_rows, 100)]
    given = {"label_weights": True, "views": views, "prototypes": False, "random_state": 0}
    monkeypatch.setattr(label_weights, "_BLOCK_VALUES", 1)
    in_blocks = LTLSClassifier(**given).fit_stream(batches)
    part = in_blocks.model_.part("label_weights")
    part = in_blocks.model_.part("views").views[0].label_weights if part is None else part
    coef, labels = part.vectors.matrix().toarray(), np.arange(n_labels)
    assert (coef[labels, labels] > 0.1).mean() > 0.95
    assert (coef[labels, labels + n_labels] > 0.1).mean() > 0.95
    whole = LTLSClassifier(**given).fit(X, y)
    assert in_blocks.score(X, y) >= whole.score(X, y) - 0.01


def test_batches_that_add_no_row_to_the_sample_of_labels():
    y = np.tile(np.arange(64), 40)
    X = np.eye(64, dtype=np.float32)[y]
    batches = [(X[first : first + 64], y[first : first + 64]) for first in range(0, len(y), 64)]
    assert LTLSClassifier(views=True, random_state=0).fit_stream(batches).score(X, y) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and RLIMIT_AS")
def test_a_table_twenty_times_larger_than_the_buffer_is_learned_within_a_memory_limit(tmp_path):
    """What `fit` cannot do within the limit: its rows alone take more."""
    chunk_size = 1 << 17
    for name, n_rows in (("small.csv", 1500), ("big.csv", 64_000)):
        with (tmp_path / name).open("w") as file:
            file.write("text,label\n")
            file.writelines(lines_of(n_rows, 100))
    assert (tmp_path / "big.csv").stat().st_size > 20 * chunk_size
    found = {}
    for way in ("stream", "read"):
        done = subprocess.run(
            [sys.executable, PROGRAM, "big.csv", "small.csv", way, str(chunk_size), str(ROOM)],
            cwd=tmp_path,
            env={**os.environ, "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        found[way] = done.stdout.split()
    assert found["read"] == ["MemoryError"]
    grown, n_rows, has_label_weights = found["stream"]
    assert int(grown) < ROOM
    assert (n_rows, has_label_weights) == ("64000", "True")


ROOM = 40_000_000  # bytes on top of what imports and a first small fit take
