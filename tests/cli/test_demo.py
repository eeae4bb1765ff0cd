"""What the demo promises: honest splits, sensible tokens, and a report of what was measured."""

import ast
import re
import tokenize
from io import StringIO

import numpy as np
import pytest

import ltls
from ltls.cli import demo_model, demo_report
from ltls.cli.demo import MODEL
from ltls.cli.demo_tokens import examples_of, features_before, files_below, tokens_of

CODE = '''
import os

class Thing{n}(Base):
    """Says nothing."""

    def __init__(self, name, value={n}):
        self.name = name
        self.value = value

    def double(self):
        if self.value is None:
            raise ValueError("no value")
        return 2 * self.value
'''


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    for n in range(60):
        (folder / f"module{n}.py").write_text(CODE.replace("{n}", str(n)))
    (folder / "site-packages").mkdir()
    (folder / "site-packages" / "other.py").write_text("not the folder's own")
    return folder


@pytest.mark.parametrize("module", [ast.__file__, re.__file__, tokenize.__file__])
def test_tokens_are_pythons_own(module):
    with tokenize.open(module) as file:
        code = file.read()
    names = {tokenize.NEWLINE: "⏎", tokenize.INDENT: "⇥", tokenize.DEDENT: "⇤"}
    left_out = (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)
    expected = [
        names.get(token.type, token.string)
        for token in tokenize.generate_tokens(StringIO(code).readline)
        if token.type not in left_out
    ]
    if hasattr(tokenize, "FSTRING_START"):
        pytest.skip("since Python 3.12 the parts of f-strings are tokens")
    found = tokens_of(code)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if one == '"""…"""':
            assert other.rstrip().endswith(('"""', "'''"))
        elif one == '"…"':
            assert len(other) > 40
        else:
            assert one == other


@pytest.mark.parametrize(
    "code", ["", "x = (", 'open("no end', '"""no end', "if x:\n    ", "\\", "\0"]
)
def test_code_may_be_cut_off_anywhere(code):
    assert features_before(tokens_of(code)).nnz == 7


def test_features_are_those_of_the_four_tokens_before():
    long, short = tokens_of("a b c d e f g = h ("), tokens_of("g = h (")
    np.testing.assert_array_equal(features_before(long).indices, features_before(short).indices)
    for changed in ("f = h (", "g + h (", "g = i (", "g = h ["):
        same = features_before(tokens_of(changed)).indices == features_before(short).indices
        assert 0 < same.sum() < 7


def test_examples_ask_as_the_demo_does():
    tokens = tokens_of("for i in range(3):\n    print(i)\n")
    examples = examples_of([tokens, tokens])
    assert examples.y.tolist() == tokens * 2
    for place in range(len(tokens)):
        for row in (place, place + len(tokens)):  # no file sees the one before
            found = examples.X[[row]].indices
            np.testing.assert_array_equal(found, features_before(tokens[:place]).indices)


def test_held_out_files_are_whole_and_apart(source):
    train, test = demo_model.corpus(source, 2000, 400)
    assert (len(train), len(test)) == (2000, 400)
    numbers = [{t for t in part.y if t.startswith("Thing")} for part in (train, test)]
    assert numbers[0]
    assert numbers[1]
    assert not numbers[0] & numbers[1]
    assert all("site-packages" not in str(file) for file in files_below(source))


def test_baselines_by_hand():
    train = examples_of([["a", "b", "a", "b", "a", "c"]])
    test = examples_of([["a", "b", "c"]])
    assert demo_model.majority(train, test) == demo_model.Scores(1 / 3, 1)
    # a file begins with a, then b follows a more often than c; nothing but a followed b
    assert demo_model.bigrams(train, test) == demo_model.Scores(2 / 3, 2 / 3)


def test_the_demo_learns_reports_and_completes(source, tmp_path, command, monkeypatch):
    folder = tmp_path / "demo"
    monkeypatch.setenv("COLUMNS", "160")
    words = ["demo", "--source", str(source), "--folder", str(folder), "--examples", "3000"]
    result = command(*words)
    assert result.code == 0, result.err
    precision = {}
    for name in ("majority class", "bigram table", "ltls"):
        precision[name] = float(re.search(rf"{name}\s*│\s*(0\.\d+)", result.out)[1])
    assert precision["ltls"] > 0.85 > precision["bigram table"] > precision["majority class"]
    for prefix in demo_report.PREFIXES:
        assert prefix in result.out
    for picture in ("path.png", "accuracy.png"):
        assert (folder / picture).stat().st_size > 10_000
    model = ltls.load(folder / MODEL)
    best = demo_model.completions(model, "def __init__(self, name, value=3):\n    self.name")
    assert best[0][0] == "="
    assert best[0][1] > 0.5
    assert sum(p for _, p in best) <= 1 + 1e-5


def test_interactive_takes_the_model_of_an_earlier_run(source, tmp_path, monkeypatch, command):
    train, test = demo_model.corpus(source, 2000, 400)
    demo_model.train_and_measure(4, train, test, tmp_path / MODEL)
    lines = iter(["return 2 *", ""])
    monkeypatch.setattr("builtins.input", lambda *_: next(lines))
    out = command("demo", "--folder", tmp_path, "--interactive").out
    assert "self" in out
    assert "%" in out
    assert "Reading" not in out


def test_a_folder_that_is_none(tmp_path, command):
    result = command("demo", "--source", str(tmp_path / "nowhere"))
    assert result.code == 2
    assert "must be a folder of Python files" in result.err
    (tmp_path / "small.py").write_text("x = 1\n")
    result = command("demo", "--source", str(tmp_path), "--examples", "1000")
    assert result.code == 2
    assert "must have more than 200 tokens" in result.err
