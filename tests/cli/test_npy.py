"""Vectors in npy files, with labels in a file of lines."""

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
    np.save(folder / "flat.npy", X[0])
    np.save(folder / "none.npy", X[:0])
    np.save(folder / "wide.npy", X[:, :5])
    np.save(folder / "nan.npy", np.where(X > 3, np.nan, X))
    np.save(folder / "objects.npy", np.array([[{}]], object), allow_pickle=True)
    (folder / "cut.npy").write_bytes((folder / "v.npy").read_bytes()[:300])
    (folder / "labels.txt").write_text("".join(f"kind {label}\n" for label in y))
    (folder / "several.txt").write_text("".join(f"kind {label};all\n" for label in y[:-1]) + "\n")
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train v.npy -o x", "has no labels: give a file"),
        ("train v.npy --labels short.txt -o x", "a line for each of the 300 rows, got 2"),
        ("train v.npy --labels blank.txt -o x", "blank.txt, line 300: its label is empty"),
        ("train v.npy --labels v.npy -o x", "not UTF-8"),
        ("train flat.npy --labels short.txt -o x", "float32 of shape (6,)"),
        ("train none.npy --labels short.txt -o x", "npy: "),
        ("train objects.npy --labels short.txt -o x", "cannot be memory-mapped"),
        ("train cut.npy --labels labels.txt -o x", "cannot be memory-mapped"),
        ("train nan.npy --labels labels.txt -o x", "NaN"),
        ("train v.npy half.npy --labels labels.txt -o x", "one npy file"),
        ("train v.npy --label kind -o x", "npy files have none"),
        ("train labels.txt --labels labels.txt --format text -o x", "--labels is for npy files"),
        ("evaluate m v.npy", "has no labels: give a file"),
        ("predict m wide.npy", "X has 5 features"),
        ("convert v.npy x.csv", "cannot become csv"),
    ],
)
def test_mistakes_are_explained(data, command, words, message):
    assert command("train", "v.npy", "--labels", "labels.txt", "-q", "-o", "m").code == 0
    result = command(*words.split())
    assert result.code == 2
    assert message in result.err
