"""Regular expressions of words: those of Python's re, and none stops other threads for long."""

import re
import threading
import time

import numpy as np
import pytest

from ltls import TextClassifier
from ltls.features import patterns
from ltls.features.patterns import check_pattern, found_places, found_words
from ltls.settings import Text

USUAL = [
    r"\w+", r"\S+", r"(?u)\b\w\w+\b", r"\w+(?:-\w+)*", r"\w+(?:['’]\w+)?", r"\w{3}", ".", "a?", "",
    r"\d+(?:[.,]\d+)*%?|\w+|\S", r"[\w.+-]+@[\w.-]+\.\w+|\w+", r"(?i)[a-zäöü]{2,30}", r"[a-z]+ing",
    r"[^\W\d_]+|\d+|[^\w\s]", r"(?<!\w)#?\w+", r"(\w+)(?=\s|$)", r"(?:[A-Z]\.)+|\w+", r"\w*",
    r"(?:\w+-?)+", r"[A-Z]?[a-z]+|[A-Z]+(?=[A-Z]|$)|\d+", r"(\w)\1", "(?:a+)+$", r"(a*)*b",
]  # fmt: skip
SLOW = "(?:aa|aa)+b"  # 2ⁿ ways to match 2n letters


@pytest.mark.parametrize("pattern", USUAL)
def test_words_are_those_that_re_finds(pattern):
    check_pattern(pattern)
    rng = np.random.default_rng(0)
    group = min(re.compile(pattern).groups, 1)
    for length in (0, 1, 100, 1000):
        text = "".join(rng.choice(list("ab c-.'A1@x ing\nß"), length))
        places = [(match[group] or "", *match.span(group)) for match in re.finditer(pattern, text)]
        assert list(found_places(pattern, text)) == places
        assert found_words(pattern, text) == re.findall(pattern, text)


@pytest.mark.parametrize("pattern", ["(", "(a)(b)", "a" * 20_000, "(?R)", "(?:foo){e}(", r"\p{L}"])
def test_other_expressions_are_errors(pattern):
    with pytest.raises(ValueError, match="tokenizer must be a regular expression that matches"):
        Text(tokenizer=pattern).check()


def test_a_search_that_takes_too_long_is_an_error_and_other_threads_run(monkeypatch):
    monkeypatch.setattr(patterns, "_SECONDS", 0.5)
    texts = ["my card", "a fee"] * 9
    model = TextClassifier(features=Text(tokenizer=SLOW + r"|\w+"), random_state=0)
    model.fit(texts, ["card", "fee"] * 9)
    steps, ended = [], threading.Event()

    def other():
        while not ended.wait(0.001):
            steps.append(time.monotonic())

    thread = threading.Thread(target=other)
    thread.start()
    try:
        for call in (model.predict, model.explain):
            n_before = len(steps)
            with pytest.raises(ValueError, match=r"takes too long .* text of 100 char"):
                call(["a" * 100])
            assert len(steps) > n_before + 10
    finally:
        ended.set()
        thread.join()
