"""The front end of texts."""

import pickle
import tracemalloc

import numpy as np
import pytest
from gil import releases_the_gil
from small_parts import section_of

from ltls.core import _engine
from ltls.features import text
from ltls.features.text import Text, Vectorizer

TEXTS = [
    "the card is lost, the card!",
    "What FEE\tis that",
    "été à la plage",
    "İstanbul ǅ",
    "a b a b a",
    "x" * 80,
]
SETTINGS = {"char_ngram_range": (2, 4), "max_features": None}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"ngram_range": None},
        {"char_ngram_range": None},
        {"sublinear_tf": False},
        {"lowercase": False},
        {"max_features": 9},
        {"n_features": 64},
    ],
    ids=str,
)
def test_one_text_gives_the_same_row(changed):
    vectorizer = Vectorizer(Text(**{**SETTINGS, **changed}))
    vectorizer.fit_transform(TEXTS)
    restored = Vectorizer.from_state(section_of(*vectorizer.state()))
    for given in [*TEXTS, "", " \n", "unknown", "lost lost\u2028card", "card " * 30]:
        expected = vectorizer.transform([given])
        expected.sort_indices()
        for each in (vectorizer, restored):
            for _ in range(2):  # words are remembered
                indices, values = each.row(given)
                np.testing.assert_array_equal(indices, expected.indices)
                np.testing.assert_allclose(values, expected.data, rtol=1e-5)


@pytest.mark.parametrize(
    ("changed", "given"),
    [
        ({"tokenizer": r"[a-z]+"}, "lost my card 77"),
        ({"stop_words": ("my",)}, "lost my card"),
        ({}, "lost \ud800card"),  # a surrogate has no UTF-8
        ({}, "Größe ÉTÉ ẞ ﬀ ſ İ 卡 lost"),
    ],
    ids=["tokenizer", "stop words", "surrogate", "Unicode"],
)
def test_one_text_of_any_kind_gives_the_same_row(changed, given):
    vectorizer = Vectorizer(Text(**{**SETTINGS, **changed}))
    vectorizer.fit_transform([*TEXTS, "Größe ÉTÉ ẞ ﬀ ſ İ 卡"])
    expected = vectorizer.transform([given])
    expected.sort_indices()
    for each in (vectorizer, pickle.loads(pickle.dumps(vectorizer))):
        indices, values = each.row(given)
        assert len(indices)
        np.testing.assert_array_equal(indices, expected.indices)
        np.testing.assert_allclose(values, expected.data, rtol=1e-5)


def long_texts():
    """Return texts of many words, and of a long one, for which there is more than one piece."""
    rng = np.random.default_rng(0)
    words = [*(f"w{n}" for n in range(300)), "été", "東京", "😀", "the", "x" * 5000]
    many = " ".join(rng.choice(words, 13_000))
    return [many, "卡" * 70_000, "the " * 20_000, "", "lost card", "w1 w2 " * 2048 + "w3"]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"ngram_range": (2, 5), "char_ngram_range": (3, 6)},
        {"stop_words": ("the", "w3")},
        {"tokenizer": r"\S+", "ngram_range": (1, 3)},
        {"tokenizer": r"\S+", "stop_words": ("the",), "char_ngram_range": None},
        {"n_features": 1 << 12},
        {"surrogate": True},
    ],
    ids=str,
)
def test_the_ngrams_of_long_texts_are_counted_in_pieces(changed, monkeypatch):
    monkeypatch.setattr(text, "_PIECE", 10_000)
    changed = dict(changed)
    tail = " \ud800" if changed.pop("surrogate", False) else ""
    texts = [each + tail for each in long_texts()]
    vectorizer = Vectorizer(Text(**{**SETTINGS, **changed}))
    expected = vectorizer.fit_transform(texts)  # counts whole texts
    expected.sort_indices()
    found = vectorizer.transform(texts)
    assert abs(found - expected).max() < 1e-6
    for number, each in enumerate(texts):
        indices, values = vectorizer.row(each)
        np.testing.assert_array_equal(indices, expected[number].indices)
        np.testing.assert_allclose(values, expected[number].data, rtol=1e-5)


def test_a_long_text_beside_short_ones_takes_its_own_memory():
    vectorizer = Vectorizer(Text(**SETTINGS))
    vectorizer.fit_transform(TEXTS)
    texts = ["a" * 1_000_000, *["b"] * 1000]
    tracemalloc.start()
    try:
        vectorizer.matrix(texts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_the_engine_checks_the_weights_of_its_rows():
    analyzer = _engine.NgramAnalyzer(
        characters=False, low=1, high=1, kinds=np.ones(128, np.uint8), stop_words=[]
    )
    vocabulary = _engine.Vocabulary(["a", "b"])
    with pytest.raises(ValueError, match="idf must have 2 entries, got 3"):
        _engine.TfidfRows(((analyzer, vocabulary, np.ones(3, np.float32)),), True)


def test_a_row_follows_the_vocabulary():
    vectorizer = Vectorizer(Text(**SETTINGS))
    vectorizer.fit_transform(["first text"])
    before = len(vectorizer.row("second one")[0])
    vectorizer.fit_transform(["second one"])
    assert len(vectorizer.row("second one")[0]) > before


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [
        ("[", "unterminated character set"),
        ("a{99999999999}", "too large"),
        ("(a)(b)", "it has 2 groups"),
        ("*", "nothing to repeat"),
    ],
)
def test_a_tokenizer_is_a_regular_expression_of_a_word(tokenizer, reason):
    settings = Text(**SETTINGS, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="tokenizer must be a regular expression") as raised:
        settings.check()
    assert repr(tokenizer) in str(raised.value)
    assert reason in str(raised.value)


@pytest.mark.parametrize("tokenizer", [r"\w+", "([a-z])x", "(?:a)(?:b)"])
def test_a_tokenizer_may_have_one_group(tokenizer):
    Text(**SETTINGS, tokenizer=tokenizer).check()


def test_characters_are_counted_in_short_texts():
    short, long = ["a" * 200, "b"], ["a" * 300, "b " * 100]
    assert Text().resolved(short).char_ngram_range == (2, 4)
    assert Text().resolved(long).char_ngram_range is None
    assert Text(ngram_range=None).resolved(long).char_ngram_range == (2, 4)
    assert Text(char_ngram_range=(3, 3)).resolved(long).char_ngram_range == (3, 3)
    assert "the" in Text(stop_words="english").resolved(short).stop_words
    assert Text(stop_words=["The"]).resolved(short).stop_words == ("the",)


def test_a_long_text_does_not_stop_other_threads():
    front_end, _ = Text().fit(["the card is lost", "a fee was charged"])
    text = "the card was charged " * 2000
    assert releases_the_gil(lambda: front_end.row(text))
