"""What the demo promises: honest splits, sensible tokens, and a report of what was measured."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ltls
from examples import demo

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("code", ["", "x = (", 'open("no end', '"""no end', "if x:\n    ", "\\"])
def test_code_may_be_cut_off_anywhere(code):
    assert demo.rows_of([[*demo.before_the_end(code), "?"]])[-1:].nnz == 7


@pytest.mark.parametrize("code", demo.PREFIXES)
def test_what_is_typed_ends_with_its_last_token(code):
    assert code.replace(" ", "").endswith(demo.before_the_end(code)[-1])


def test_features_are_those_of_the_four_tokens_before():
    def before(code):
        return demo.rows_of([[*code.split(), "?"]])[-1:].indices

    np.testing.assert_array_equal(before("a b c d g = h ("), before("g = h ("))
    for changed in ("f = h (", "g + h (", "g = i (", "g = h ["):
        assert 0 < (before(changed) == before("g = h (")).sum() < 7


def test_no_file_sees_the_one_before():
    tokens = demo.tokens_of("for i in range(3):\n    print(i)\n")
    X = demo.rows_of([tokens, tokens])
    assert X.shape[0] == 2 * len(tokens)
    assert (X[: len(tokens)] != X[len(tokens) :]).nnz == 0


def test_held_out_files_are_whole_and_apart():
    files = iter([["a"] * 5, ["b"] * 5, ["c"] * 5])
    assert demo.take(files, 7) == [["a"] * 5, ["b"] * 2]
    assert demo.take(files, 7) == [["c"] * 5]


def test_baselines_by_hand():
    found = demo.baselines([["a", "b", "a", "b", "a", "c"]], [["a", "b", "c"]])
    y = np.array(["a", "b", "c"])
    assert demo.scores_of(found["most frequent tokens"], y) == (1 / 3, 1)
    # A file begins with a, then b follows a more often than c; nothing but a followed b.
    assert demo.scores_of(found["table of bigrams"], y) == (2 / 3, 2 / 3)


def test_the_demo_learns_reports_and_completes(tmp_path):
    pytest.importorskip("matplotlib")
    command = [sys.executable, ROOT / "examples" / "demo.py", "--folder", tmp_path]
    options = {"capture_output": True, "encoding": "utf-8", "timeout": 600, "check": True}
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    out = subprocess.run([*command, "--quick"], env=environment, **options).stdout
    scores = {
        name: [float(number) for number in re.search(rf"{name} +(0\.\d+) +(0\.\d+)", out).groups()]
        for name in ("most frequent tokens", "table of bigrams", "ltls, defaults", "one trellis")
    }
    for ours in ("ltls, defaults", "one trellis"):
        assert scores[ours][0] > scores["table of bigrams"][0] > scores["most frequent tokens"][0]
        assert scores[ours][1] > scores["most frequent tokens"][1]
    assert all(prefix in out for prefix in demo.PREFIXES)
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in ("path", "accuracy"))
    model = ltls.load(tmp_path / demo.MODEL)
    best, probability = demo.completions(model, "if __name__ ==")[0]
    assert best.strip("\"'") == "__main__"
    assert probability > 0.2
    typed = subprocess.run(
        [*command, "--interactive"], env=environment, input="for i in\n\n", **options
    ).stdout
    assert re.search(r"% +█+ +range\n", typed)
    assert "tokens of Python" not in typed  # it takes the model of the run before
