"""The benchmarks of the output layer run without a GPU, in small, and write what they found."""

import argparse
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch, which `make test-all` installs")

ROOT = Path(__file__).parent.parent.parent


def run(name, *options):
    """Run a benchmark."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.deep_head.{name}", *options],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def rows_of(name, folder, *options, stored=None):
    """Run a benchmark; return the rows that it stored."""
    run(name, *options, "--device", "cpu", "--output", folder)
    result = json.loads((folder / f"deep_head_{stored or name}.json").read_text())
    assert result["about"]["command"].startswith(f"python -m benchmarks.deep_head.{name} ")
    rows = result["rows"]
    assert not [row["error"] for row in rows if "error" in row]
    return {row["head"]: row for row in rows}


def test_a_step_of_every_head_is_measured(tmp_path):
    rows = rows_of("step", tmp_path, "--small")
    full, ours = rows["nn.Linear + cross_entropy"], rows["TrellisSoftmax, width 8"]
    assert ours["parameters"] < full["parameters"] / 10
    assert ours["step ms"] > 0
    assert rows["AdaptiveTrellisSoftmax, width 32"]["step ms"] > 0


def test_a_process_that_dies_is_a_row_that_says_so(monkeypatch):
    from benchmarks.deep_head import step

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "ended with status 1" in step.measure_apart("Liger, bf16", 1000, 60)["error"]
    assert "stopped after" in step.measure_apart("Liger, bf16", 1000, 0.01)["error"]


def test_other_heads_stay_and_a_failure_is_a_row(tmp_path):
    from benchmarks.deep_head import heads

    def found(only, run):
        options = argparse.Namespace(output=tmp_path, only=only, seconds=60)
        cases = [{"head": "a", "C": 1}, {"head": "b", "C": 1}]
        about = {"date": "2026-01-01", "command": "python -m x"}
        return heads.compare("x", {"about": about}, cases, run, options)["rows"]

    first = found(None, lambda case: {"P@1": 0.5} if case["head"] == "a" else 1 / 0)
    assert first[0] == {"head": "a", "C": 1, "P@1": 0.5}
    assert first[1] == {"head": "b", "C": 1, "error": "ZeroDivisionError: division by zero"}
    assert found(["b"], lambda case: {"P@1": 0.6}) == [first[0], {"head": "b", "C": 1, "P@1": 0.6}]


def test_tokens_are_numbered_by_frequency_and_files_held_out_whole(tmp_path):
    from benchmarks.deep_head.corpus import PARTS, Corpus

    files = [(f"file {n}", ["common", "common", "often", f"once{n}"]) for n in range(200)]
    corpus = Corpus.of(files, 2)
    assert corpus.n_classes == 4  # with <rare> and <start>
    parts = {name: getattr(corpus, name) for name in PARTS}
    assert all(len(part) and len(part) % 5 == 0 for part in parts.values())
    assert sum(map(len, parts.values())) == 5 * 200
    start, rare = corpus.start, 1 + 2 - corpus.train[3]
    assert corpus.train[:5].tolist() == [start, 0, 0, corpus.train[3], rare]
    corpus.save(tmp_path / "c.npz")
    again = Corpus.load(tmp_path / "c.npz")
    assert (again.n_classes, again.start) == (corpus.n_classes, corpus.start)
    np.testing.assert_array_equal(again.test, corpus.test)


def test_a_transformer_learns_with_every_head(tmp_path):
    """Every token of the corpus says what comes next."""
    n, start = 60, 60
    ids = np.concatenate([[start], np.arange(6_000) * 7 % n]).astype(np.int32)
    parts = {"train": ids, "validation": ids[:900], "test": ids[:900]}
    np.savez(tmp_path / "toy.npz", **parts, n_classes=n + 1, start=start)
    options = (tmp_path / "toy.npz", "--small", "--seeds", "0", "1")
    rows = rows_of("language_model", tmp_path, *options, stored="language_model_toy")
    assert len(rows) == 6
    for row in rows.values():
        assert len(row["tried"]) == 3
        assert row["NLL"] == pytest.approx(np.mean([each["NLL"] for each in row["by seed"]]))
        assert row["NLL"] < 0.9 * np.log(61)
        assert row["P@1"] <= row["R@5"]
        assert row["rate"] == float(min(row["tried"], key=row["tried"].get))


def test_prose_is_told_from_tables_and_markup():
    from benchmarks.deep_head import corpus

    sentence = "It is the purpose of a test to show that the text of a page is found."
    page = f"<html><pre>int a = 1;</pre><p>{sentence}</p>\n\n<td>1</td><td>2</td></html>"
    assert list(corpus.paragraphs(page)) == [sentence.lower()]
    manual = f".TH LS 1\n.SH NAME\n{sentence}\n\n-a -b -c -d -e -f -g -h -i -j -k -l -m -n"
    assert list(corpus.paragraphs(manual)) == [sentence.lower()]
    words = corpus.WORD.findall("don't stop, at 42.")
    assert words == ["don't", "stop", ",", "at", "42", "."]


def test_models_recommend_the_next_item(tmp_path, monkeypatch):
    """Users walk through 60 items in circles; the item of a label is the column of its number."""
    for part, n_users in (("train", 120), ("test", 40)):
        lines = []
        for user in range(n_users):
            walk = [(user + 7 * step) % 60 for step in range(12)]
            for place in range(1, 12):
                history = sorted(set(walk[:place][-10:]))
                lines.append(f"{walk[place]} " + " ".join(f"{item}:1" for item in history))
        text = "\n".join([f"{len(lines)} 60 60", *lines]) + "\n"
        (tmp_path / f"amazon_video_next_{part}.txt").write_text(text)
    monkeypatch.setenv("LTLS_DATA", str(tmp_path))
    run("next_items", tmp_path / "amazon.npz")
    options = (tmp_path / "amazon.npz", "--epochs", "40")
    rows = rows_of("recommend", tmp_path, *options, stored="recommend_amazon")
    assert len(rows) == 9
    assert rows["full softmax"]["recall"] > 0.9
    assert rows["trellis, semantic IDs"]["recall"] > 0.5
    assert all(row["nDCG"] <= row["recall"] for row in rows.values())


def test_dependencies_of_packages_are_histories_of_items(tmp_path):
    from benchmarks.deep_head import next_items

    groups = {"sound": ["alsa", "pulse", "jack"], "fonts": ["dejavu", "noto", "hack"]}
    entries = [
        f"Package: {name}\nDescription: {group} library {name}\nSection: {group}\nTag: a,\n b"
        for group, names in groups.items()
        for name in names
    ]
    for number in range(40):
        group = list(groups)[number % 2]
        first, *others = groups[group]
        entries.append(f"Package: app{number}\nDepends: {first} (>= 1) | x, {', '.join(others)}")
    path = tmp_path / "Packages"
    path.write_text("\n\n".join(entries) + "\n")
    assert next(next_items.packages(path))["Tag"] == "a, b"
    problem = next_items.debian(path, size=3)
    assert problem.vectors.shape == (6, 3)
    assert not np.isin(problem.train.y, np.flatnonzero(problem.is_cold)).any()
    n_used = (problem.train.weights > 0).sum(axis=1)
    assert n_used.max() <= 2  # the other two of a group
    names = [name for names in groups.values() for name in names]
    group = np.array([name in groups["sound"] for name in names])
    used = problem.test.weights > 0
    same = group[problem.test.items] == group[problem.test.y][:, None]
    assert same[used].all()


def test_restricted_answers_are_timed(tmp_path):
    run("restricted", "--small", "--device", "cpu", "--output", tmp_path)
    stored = json.loads((tmp_path / "deep_head_restricted.json").read_text())
    assert len(stored["rows"]) == 7
    assert all(row["us per row"] > 0 for row in stored["rows"])


def test_networks_learn_characters(tmp_path):
    generator = np.random.default_rng(0)
    shapes = [generator.choice(35**2, 40, replace=False) for _ in range(40)]
    for part in ("train", "test"):
        lines = ["120 1225 40"]
        for row in range(120):
            cells = sorted(generator.permutation(shapes[row % 40])[:35])
            lines.append(f"{row % 40} " + " ".join(f"{cell}:1" for cell in cells))
        with lzma.open(tmp_path / f"omniglot_{part}.txt.xz", "wt") as file:
            file.write("\n".join(lines) + "\n")
    options = ("--data", tmp_path, "--networks", "linear")
    rows = rows_of("omniglot", tmp_path, *options)
    assert rows["full softmax"]["P@1"] > 0.9
    assert rows["trellis, width 32, learned"]["P@1"] > 0.5


def test_reassigned_classes_that_are_alike_share_edges_and_keep_their_scores():
    import torch

    from benchmarks.deep_head.heads import Trellis

    torch.manual_seed(0)
    head, x = Trellis(6, 32, 4, assignment="random"), torch.randn(50, 6)
    vectors = torch.zeros(32, 2)
    vectors[:, 0] = torch.arange(32) % 2
    before = head.softmax.log_prob(x)
    head.reassign(vectors)
    assert head.softmax.log_prob(x).shape == before.shape
    edges = head.softmax.layout.path_edges(head.softmax.codebooks[0].path_of(torch.arange(32)))
    even, odd = (set(edges[first::2, 0].tolist()) for first in (0, 1))
    assert even.isdisjoint(odd)
    same = Trellis(6, 2, 2, assignment="random")  # whose two classes have no edge in common
    before = same.softmax.log_prob(x)
    same.reassign(torch.eye(2))
    torch.testing.assert_close(same.softmax.log_prob(x), before, rtol=1e-3, atol=1e-3)


def test_a_probe_and_a_full_softmax_learn(tmp_path):
    rows = rows_of("probe", tmp_path, "--small")
    assert rows["ltls.torch.probe"]["P@1"] > 0.9
    assert rows["full softmax, rate 0.01"]["P@1"] > 0.9


def test_an_encoder_learns_with_every_head_and_joins_the_sparse_model(tmp_path):
    rng = np.random.default_rng(0)
    for part, n in (("train", 2000), ("test", 200)):
        labels = rng.integers(0, 100, (n, 2))
        lines = [f"a{i} b{j} {rng.integers(9)}\tp{i} q{j}\n" for i, j in labels]
        with lzma.open(tmp_path / f"yso_en_text_{part}.tsv.xz", "wt") as file:
            file.writelines(lines)
    sparse = tmp_path / "sparse.npz"
    data = ("--data", tmp_path, "--small")
    run("encoder", "--make-sparse", sparse, *data)
    rows = rows_of("encoder", tmp_path, "--sparse", sparse, *data)
    assert len(rows) == 10
    for row in rows.values():
        assert row["hybrid P@1"] > 0.8
    trellis, full = rows["trellis, logistic, width 32"], rows["full sigmoid"]
    assert trellis["parameters"] > 0
    assert full["P@1"] >= 0
