"""Regular expressions of words: none may take a time that grows faster than texts do."""

import re

import numpy as np
import pytest

import ltls
from ltls import ModelFileError, TextClassifier
from ltls.features.patterns import check_pattern, found_places, found_words
from ltls.settings import Text
from ltls.storage.model_file import MODEL
from ltls.storage.tensor_file import TensorFile, encode

QUICK = [
    r"\w+", r"\S+", r"(?u)\b\w\w+\b", r"\w+(?:-\w+)*", r"\w+(?:['’]\w+)?", r"\w{3}", ".", "a?", "",
    r"\d+(?:[.,]\d+)*%?|\w+|\S", r"[\w.+-]+@[\w.-]+\.\w+|\w+", r"(?i)[a-zäöü]{2,30}", r"[a-z]+ing",
    r"[^\W\d_]+|\d+|[^\w\s]", r"(?<!\w)#?\w+", r"(\w+)(?=\s|$)", r"(?:[A-Z]\.)+|\w+", r"\w*",
    r"(?:ab|cd)+", r"x{2,7}(?:ab){3,5}", r"[A-Z]?[a-z]+|[A-Z]+(?=[A-Z]|$)|\d+", "a{0}",
    r"(?:\w|-)+", r"\b[^\W_]+(?:[-'][^\W_]+)*\b", r"(?:foo|bar)?x", r"(?s:.)",
]  # fmt: skip
SLOW = {
    "two loops": r"(?:a+)+$",
    "a part that may be left out": r"(?:\w+\.?)+@|\w+",
    "the same twice": r"(?:aa|aa)+b",
    "other lengths": r"(?:a|ab|ba|bb)*c",
    "loops in a row": r"\w+\w+",
    "many optional parts": "a?" * 30 + "a" * 30,
    "repeated optional parts": "(?:a?){30}a{30}",
    "loops of nothing": "(?:(?:a?)*)*",
    "counted loops": "(?:.{0,99}){9}x",
    "counted nothing": "(?:(?:(?:(?:){99}){99}){99}){99}",
    "other sets": r"(?:\d5|[\u0600-\u06ff]5)+x",
    "a wide set": r"(?s)(?:.x|\nx)+y",
    "letters of two cases": "(?i)(?:ab|AB)+c",
    "a lookahead": r"(?:\w(?=.*x))+",
    "lookaheads in each other": "(?=a(?=b))a",
    "a reference": r"(a)\1",
    "size": "ab" * 300,
    "length": "a|" * 10_000,
}


@pytest.mark.parametrize("pattern", QUICK)
def test_ordinary_expressions_find_what_python_finds(pattern):
    check_pattern(pattern)
    rng = np.random.default_rng(0)
    group = min(re.compile(pattern).groups, 1)
    for length in (0, 1, 100, 1024, 1025, 3000):
        text = "".join(rng.choice(list("ab c-.'A1@x ing\nß"), length))
        places = [(match[group], *match.span(group)) for match in re.finditer(pattern, text)]
        assert list(found_places(pattern, text)) == places
        assert found_words(pattern, text) == re.findall(pattern, text)


@pytest.mark.parametrize("pattern", SLOW.values(), ids=SLOW)
def test_expressions_that_could_take_long_are_errors(pattern):
    with pytest.raises(ValueError, match="tokenizer must be a regular expression") as raised:
        Text(tokenizer=pattern).check()
    assert repr(pattern) in str(raised.value)


def test_words_of_long_texts_are_found_wherever_they_are():
    words = ["a" * n for n in (500, 1, 512, 3, 511)] * 5
    assert found_words(r"\w+", " ".join(words)) == words
    assert "".join(found_words(r"\w+", "b" * 10_000)) == "b" * 10_000


def test_no_expression_sees_more_than_a_piece_of_a_text(monkeypatch):
    pieces, suffix = [], re.compile("[a-z]+ing")

    class Recorded:
        groups = 0

        def finditer(self, text, first, end):
            pieces.append(end - first)
            return suffix.finditer(text, first, end)

    monkeypatch.setattr("ltls.features.patterns.re.compile", lambda pattern: Recorded())
    assert list(found_places("", "a" * 100_000)) == []
    assert max(pieces) <= 1024
    assert len(pieces) < 200


def test_a_file_cannot_bring_an_expression_that_takes_long(tmp_path):
    path = tmp_path / "model.ltls"
    model = TextClassifier(features=Text(tokenizer=r"\w+"), random_state=0)
    model.fit(["my card", "a fee"] * 9, ["card", "fee"] * 9).save(path)
    file = TensorFile(path, MODEL, mmap=False)
    changed = [0]

    def change(value):
        if isinstance(value, dict):
            if "tokenizer" in value:
                value["tokenizer"] = "(?:a+)+$"
                changed[0] += 1
            for each in value.values():
                change(each)

    change(file.description)
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    path.write_bytes(bytes(encode(MODEL, file.description, tensors)))
    assert changed[0]
    with pytest.raises(ModelFileError, match="tokenizer must be a regular expression"):
        ltls.load(path)
