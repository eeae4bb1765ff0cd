"""The benchmarks of the output layer run without a GPU, in small, and write what they found."""

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
    run(name, "--output", folder, *options)
    result = json.loads((folder / f"deep_head_{stored or name}.json").read_text())
    assert result["about"]["command"].startswith(f"python -m benchmarks.deep_head.{name} ")
    rows = result["rows"]
    assert not [row["error"] for row in rows if "error" in row]
    return {row["head"]: row for row in rows}


def test_a_step_of_every_head_is_measured(tmp_path):
    rows = rows_of("step", tmp_path, "--quick", "--device", "cpu")
    full, ours = rows["nn.Linear + cross_entropy"], rows["TrellisSoftmax, width 8"]
    assert ours["parameters"] < full["parameters"] / 10
    assert ours["step ms"] > 0
    assert rows["AdaptiveTrellisSoftmax, width 32"]["step ms"] > 0


def test_a_process_that_dies_is_a_row_that_says_so(monkeypatch):
    from benchmarks.deep_head import step

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "ended with status 1" in step.attempt_apart("Liger, bf16", 16, 1000, 60)["error"]
    assert "stopped after" in step.attempt_apart("Liger, bf16", 16, 1000, 0.01)["error"]


def test_a_check_fails_where_a_head_is_too_slow(capsys):
    from benchmarks.deep_head import step

    ours, full = "TrellisSoftmax, width 8", "nn.Linear + cross_entropy"
    rows = [{"head": ours, "step ms": 0.5}, {"head": full, "step ms": 25.0}]
    rows = [{"C": 10**6, "in_features": 512, **row} for row in rows]
    assert step.check(rows) == 0
    assert step.check([rows[0], {**rows[1], "step ms": 24.0}]) == 1
    assert step.check([{**rows[0], "step ms": 0.51}, {**rows[1], "step ms": 50.0}]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_heads_learn_the_next_token(tmp_path):
    options = (
        "--small",
        "--device",
        "cpu",
        "--files",
        "30",
        "--only",
        "width 8, frequency, then learned",
    )
    rows = rows_of("next_token", tmp_path, *options)
    assert len(rows) == 1
    for row in rows.values():
        assert 0.1 < row["P@1"] < row["R@5"] < 1  # the most frequent token alone has about 0.1
        tried = {float(rate): nll for rate, nll in row["tried"].items()}
        # The best of the grid has neighbours on both sides, but for rates that are never tried.
        assert min(tried) < row["rate"] < max(tried) or row["rate"] in (0.0003, 0.03)
        assert tried[row["rate"]] == min(tried.values())


def corpus_file(folder):
    """Write a corpus in which every token says what comes next."""
    n, start = 60, 60
    ids = np.concatenate([[start] * 8, np.arange(6_000) * 7 % n]).astype(np.int32)
    parts = {"train": ids, "validation": ids[:900], "test": ids[:900]}
    path = folder / "toy.npz"
    np.savez(path, **parts, n_classes=n + 1, start=start)
    return path


def test_a_transformer_learns_with_every_head(tmp_path):
    path = corpus_file(tmp_path)
    command = [sys.executable, "-m", "benchmarks.deep_head.language_model", path, "--small"]
    done = subprocess.run(
        [*command, "--device", "cpu", "--output", tmp_path],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "deep_head_language_model_toy.json").read_text())
    rows = {row["head"]: row for row in stored["rows"]}
    assert len(rows) == 5
    for row in rows.values():
        assert len(row["tried"]) == 3
        assert row["NLL"] < 0.9 * np.log(61)
        assert row["P@1"] <= row["R@5"]
        assert row["rate"] == float(min(row["tried"], key=row["tried"].get))


def test_a_language_model_is_checked_against_its_peers(capsys):
    from benchmarks.deep_head import language_model

    full = {"head": "full softmax", "parameters": 1000, "P@1": 0.3, "R@5": 0.5, "NLL": 4.2}
    adaptive = {**full, "head": "adaptive softmax", "parameters": 100, "NLL": 4.17}
    ours = {**full, "head": "adaptive trellis, width 32", "parameters": 60, "NLL": 4.18}
    assert language_model.check([full, adaptive, ours]) == 0
    assert language_model.check([full, adaptive, {**ours, "NLL": 4.19}]) == 1
    assert language_model.check([full, adaptive, {**ours, "P@1": 0.29}]) == 1
    assert language_model.check([full, adaptive, {**ours, "parameters": 70}]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_prose_is_told_from_tables_and_markup():
    from benchmarks.deep_head import english

    sentence = "It is the purpose of a test to show that the text of a page is found."
    page = f"<html><pre>int a = 1;</pre><p>{sentence}</p>\n\n<td>1</td><td>2</td></html>"
    assert list(english.paragraphs(page)) == [sentence.lower()]
    manual = f".TH LS 1\n.SH NAME\n{sentence}\n\n-a -b -c -d -e -f -g -h -i -j -k -l -m -n"
    assert list(english.paragraphs(manual)) == [sentence.lower()]
    words = english.WORD.findall("don't stop, at 42.")
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
    command = [sys.executable, "-m", "benchmarks.deep_head.restricted", "--output", tmp_path]
    subprocess.run([*command, "--classes", "100000"], cwd=ROOT, check=True, capture_output=True)
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
    options = ("--data", tmp_path, "--device", "cpu", "--only", "linear")
    rows = rows_of("omniglot", tmp_path, *options)
    assert rows["full softmax"]["P@1"] > 0.9
    assert rows["trellis, width 32, learned"]["P@1"] > 0.5


def test_labels_of_an_exit_that_are_alike_share_edges():
    import torch

    from benchmarks.deep_head.heads import frequency_and_similarity
    from ltls.torch import make_layout

    n, width = 5 + 2 * 8 + 3 * 64, 8
    counts = torch.arange(n).flip(0)
    features = torch.zeros(n, 2)
    features[:, 0] = torch.arange(n) % 2
    paths = frequency_and_similarity(n, width, counts, features)
    assert sorted(paths.tolist()) == list(range(n))
    assert paths[:5].tolist() == [0, 1, 2, 3, 4]
    layout = make_layout(n, width)
    edges = layout.path_edges(paths[-192:])
    even, odd = (set(edges[start::2, 0].tolist()) for start in (0, 1))
    assert even.isdisjoint(odd)


def test_reassigned_labels_keep_their_scores_where_the_new_paths_can_say_them():
    import torch

    from benchmarks.deep_head.heads import Trellis

    torch.manual_seed(0)
    head = Trellis(6, 30, 4)
    x = torch.randn(50, 6)
    before = head.softmax.log_prob(x)
    head.reassign(torch.arange(30), torch.ones(30))
    torch.testing.assert_close(head.softmax.log_prob(x), before, rtol=1e-3, atol=1e-3)
    head.reassign(torch.randperm(30), torch.ones(30))
    assert not torch.allclose(head.softmax.log_prob(x), before, atol=1e-2)
