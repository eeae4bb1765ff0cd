"""A vocabulary learned from batches is that of all texts at once."""

import numpy as np
import pytest

from ltls.features import counting
from ltls.features.text import Text, Vectorizer

RNG = np.random.default_rng(0)
TEXTS = [" ".join(f"w{i}" for i in RNG.zipf(1.3, 12) % 400) for _ in range(150)]


def settings(**given):
    usual = {"char_ngram_range": (2, 3), "max_features": None}
    return Text(**{**usual, **given})


def in_batches(size):
    return (TEXTS[first : first + size] for first in range(0, len(TEXTS), size))


@pytest.mark.parametrize("size", [1, 37])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"min_df": 3},
        {"max_features": 50},
        {"max_features": 50, "min_df": 2, "char_ngram_range": None},
        {"n_features": 256},
        {"ngram_range": None},
    ],
    ids=str,
)
def test_batches_give_the_vectorizer_of_all_texts(size, given):
    whole, streamed = Vectorizer(settings(**given)), Vectorizer(settings(**given))
    expected = whole.fit_transform(TEXTS)
    streamed.fit(in_batches(size))
    found = streamed.transform(TEXTS)
    assert found.shape == expected.shape
    assert abs(found - expected).max() < 1e-6
    described, tensors = whole.state()
    described_too, tensors_too = streamed.state()
    assert described == described_too
    for name, tensor in tensors.items():
        np.testing.assert_allclose(tensors_too[name], tensor, rtol=1e-6)


def test_rare_ngrams_are_forgotten_while_frequent_ones_are_counted(monkeypatch):
    monkeypatch.setattr(counting, "_MIN_COUNTED", 1)
    given = {"max_features": 20, "char_ngram_range": None, "ngram_range": (1, 1)}
    whole, streamed = Vectorizer(settings(**given)), Vectorizer(settings(**given))
    whole.fit_transform(TEXTS)
    streamed.fit(in_batches(10))
    frequent, found = (
        set(vectorizer.state()[1]["words"].tobytes().decode().split('"')[1::2])
        for vectorizer in (whole, streamed)
    )
    assert len(found) == 20
    assert len(found & frequent) >= 18


def test_texts_without_words_are_an_error_that_names_the_column():
    with pytest.raises(ValueError, match="no words are left of the 3 texts"):
        Vectorizer(settings(char_ngram_range=None)).fit([["", " "], ["."]])
