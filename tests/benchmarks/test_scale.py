"""Sets of many labels from an index of files, and the growth of costs with the labels."""

import sys

import numpy as np
import pytest

from benchmarks import datasets, debian_contents, scale, tables
from benchmarks.accuracy import environments
from ltls import readers

PATHS = [
    (f"usr/share/{folder}/{name}.txt".encode(), f"package-{folder}".encode())
    for name in range(12)
    for folder in range(name)
]
ABOUT = {"machine": "a machine", "date": "2026-01-01", "command": "a command"}


@pytest.fixture
def index(monkeypatch):
    """An index in which name i has i files, all of them listed twice."""
    monkeypatch.setattr(debian_contents, "entries", lambda files: iter(PATHS * 2))


def chosen(n_labels):
    return debian_contents.chosen_rows(*debian_contents.hashes([]), n_labels)


def test_labels_are_names_of_at_least_three_files_with_at_most_four_of_them(index):
    kept, places = chosen(9)
    words, names = debian_contents.texts([], kept, places, 9)
    assert sorted(names) == sorted(f"{name}.txt" for name in range(3, 12))
    for label, name in enumerate(names):
        rows = list(filter(None, words[4 * label : 4 * label + 4]))
        n_files = int(name.removesuffix(".txt"))
        assert len(rows) == len(set(rows)) == min(n_files, 4)
        assert set(rows) <= {f"usr/share/{i} package-{i}" for i in range(n_files)}


def test_too_few_names_are_an_error(index):
    with pytest.raises(SystemExit, match="have 9 names of 3 files or more"):
        chosen(10)


def test_smaller_sets_have_some_of_the_labels_and_rows_of_larger_ones(index):
    small, large = (dict(zip(*map(np.ndarray.tolist, chosen(n)), strict=True)) for n in (4, 9))
    assert small.items() <= large.items()
    assert {place // 4 for place in small.values()} == set(range(4))


def test_a_set_is_written_as_benchmarks_read_it(index, tmp_path):
    words, names = debian_contents.texts([], *chosen(9), 9)
    debian_contents.write(tmp_path, "tiny", words, names)
    train_file, test_file = datasets.find(tmp_path, "tiny")
    train, test = readers.read(train_file), readers.read(test_file)
    assert test.y.tolist() == list(range(9))  # one row of every label
    assert np.bincount(train.y).tolist() == [min(int(name[:-4]), 4) - 1 for name in names]
    assert (tmp_path / "tiny.labels").read_text().split() == names


def test_a_contender_that_takes_too_much_memory_fails(tmp_path):
    words = [sys.executable, "-c", "bytearray(1 << 30)"]
    with pytest.raises(environments.RunError, match="MemoryError"):
        environments.compete(words, {}, tmp_path / "out", 60, memory=1 << 29)


def test_the_exponents_of_power_laws():
    def of(n_labels):
        measures = {
            "p1": 0.5,
            "p5": 0.1,
            "train_cpu_seconds": n_labels**1.5,
            "predict_cpu_seconds": n_labels**0.25,
            "train_peak_bytes": 3 * n_labels,
            "model_bytes": 7,
        }
        tools = {"default": measures, "pecos": {"not_run": "took longer than 3600 s"}}
        return {"set": {"labels": n_labels, "test_rows": 10}, "tools": tools}

    sets = {str(n): of(n) for n in (10**4, 10**5, 10**6)}
    found = tables.exponents({"sets": sets})
    assert list(found) == ["default"]
    assert list(found["default"].values()) == pytest.approx([1.5, 0.25, 1, 0])
    lines = tables.scale_labels({"sets": sets, "about": ABOUT})
    assert "| 10⁶ | PECOS | took longer than 3600 s | – | – | – | – |" in lines


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_vectors_are_learned_from_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "NOISE", 0.2)
    path = tmp_path / "vectors.npy"
    known = scale.write_vectors(path, 600, 20, "float16")
    stored = np.load(path)
    assert (stored.shape, stored.dtype) == ((600, scale.DIMENSIONS), np.float16)
    assert np.linalg.norm(stored.astype(float), axis=1) == pytest.approx(1, abs=1e-2)
    assert np.bincount(known[0]).tolist() == [30] * 20
    found = scale.fit_vectors(path, *known)
    assert found["p1"] > 0.9
    assert (found["rows"], found["labels"], found["dtype"]) == (600, 20, "float16")
    (line,) = tables.scale_vectors({"about": ABOUT, "fits": {"x": found}})[2:3]
    assert line.startswith("| 600, 0 MB (float16) | 20 |")
