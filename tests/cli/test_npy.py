"""Vectors in npy files, with labels in a file of lines."""

import gzip
import json

import numpy as np
import pytest

import ltls

FORMS = {}  # of `folder`: there are no texts


@pytest.fixture
def data(folder):
    """Vectors of four labels, and files that are not quite such."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=300)
    X = (3 * np.eye(4, 6)[y] + rng.normal(0, 0.3, (300, 6))).astype(np.float32)
    np.save(folder / "v.npy", X)
    np.save(folder / "half.npy", X.astype(np.float16))
    np.savez(folder / "z.npz", X)
    np.save(folder / "flat.npy", X[0])
    np.save(folder / "none.npy", X[:0])
    np.save(folder / "wide.npy", X[:, :5])
    np.save(folder / "nan.npy", np.where((X > 2) & (np.arange(300) == 1)[:, None], np.nan, X))
    np.save(folder / "all_nan.npy", np.full_like(X, np.nan))
    np.save(folder / "objects.npy", np.array([[{}]], object), allow_pickle=True)
    (folder / "v.npy.gz").write_bytes(gzip.compress((folder / "v.npy").read_bytes()))
    (folder / "cut.npy").write_bytes((folder / "v.npy").read_bytes()[:300])
    (folder / "labels.txt").write_text("".join(f"kind {label}\n" for label in y))
    (folder / "several.txt").write_text("".join(f"kind {label};all\n" for label in y[:-1]) + "\n")
    (folder / "rows.csv").write_text("a,b\n1,2\n")
    (folder / "short.txt").write_text("a\nb\n")
    (folder / "blank.txt").write_text("a\n" * 299 + "\n")
    return X, [f"kind {label}" for label in y]


@pytest.mark.parametrize("name", ["v.npy", "half.npy"])
def test_train_predict_and_evaluate(data, command, name):
    X, y = data
    result = command("train", name, "--labels", "labels.txt", "-q", "-o", "m", "--random-state", 0)
    assert (result.code, result.err) == (0, "")
    model = ltls.load("m")
    assert model.score(X, y) > 0.95
    lines = command("predict", "m", name, "-k", 1).out.splitlines()
    assert [line.rpartition(":")[0] for line in lines] == model.predict(np.load(name)).tolist()
    report = json.loads(command("evaluate", "m", name, "--labels", "labels.txt", "--json").out)
    assert report["metrics"][0]["precision"] > 0.95


def test_a_separator_splits_labels(data, command):
    given = ("--labels", "several.txt", "--separator", ";", "-q", "-o", "m")
    assert command("train", "v.npy", *given).code == 0
    assert ltls.load("m").multilabel_


def test_bad_rows_are_skipped(data, command):
    given = ("--labels", "labels.txt", "--skip-bad-rows")
    result = command("train", "nan.npy", *given, "-o", "m")
    assert (result.code, "1 bad row" in result.err) == (0, True)
    assert ltls.load("m").fitted_.provenance.n_rows == 299
    lines = command("predict", "m", "nan.npy", "--skip-bad-rows").out.splitlines()
    assert [bool(line) for line in lines[:3]] == [True, False, True]
    assert len(lines) == 300
    assert command("evaluate", "m", "nan.npy", *given).code == 0


def test_mistakes_are_explained(data, command, assert_mistakes):
    assert command("train", "v.npy", "--labels", "labels.txt", "-q", "-o", "m").code == 0
    assert_mistakes("npy.txt")
