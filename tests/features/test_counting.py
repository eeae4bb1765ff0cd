"""Counts of n-grams by the engine, against those of scikit-learn."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from ltls.features import counting
from ltls.features.counting import NgramVectorizer
from ltls.features.ngrams import WORD

# Letters, digits and spaces of one to four bytes, some of which change their length in lower case.
CHARACTERS = "abAB1_ .,-\n\t\x1c\u00a0\u2003éÉßİǅ\u0301\u4eac東𝒜😀\0"
TEXTS = st.lists(st.text(CHARACTERS, max_size=25), min_size=1, max_size=12)
RANGES = st.sampled_from([(1, 1), (1, 2), (2, 3), (1, 4), (3, 3), (2, 6)])


def same(one, other):
    assert one.shape == other.shape
    for name in ("data", "indices", "indptr"):
        expected = getattr(other, name)
        np.testing.assert_array_equal(getattr(one, name), expected)
        assert getattr(one, name).dtype == expected.dtype


@settings(max_examples=80)
@given(
    texts=TEXTS,
    others=TEXTS,
    analyzer=st.sampled_from(["word", "char_wb"]),
    ngram_range=RANGES,
    lowercase=st.booleans(),
    stop_words=st.sampled_from([None, ["a", "é", "ab"]]),
    min_df=st.integers(1, 2),
    max_features=st.sampled_from([None, 1, 5, 1000]),
    n_jobs=st.integers(1, 3),
)
def test_counts_are_those_of_scikit_learn(
    texts, others, analyzer, ngram_range, lowercase, stop_words, min_df, max_features, n_jobs
):
    given_settings = {
        "analyzer": analyzer,
        "ngram_range": ngram_range,
        "lowercase": lowercase,
        "stop_words": stop_words if analyzer == "word" else None,
        "token_pattern": WORD if analyzer == "word" else None,
        "min_df": min_df,
        "max_features": max_features,
        "dtype": np.float32,
    }
    ours, theirs = NgramVectorizer(**given_settings), CountVectorizer(**given_settings)
    try:
        expected = theirs.fit_transform(texts)
    except ValueError:  # no n-gram is left
        with pytest.raises(ValueError, match=r"vocabulary|terms"):
            ours.learn_and_count(texts, n_jobs)
        return
    same(ours.learn_and_count(texts, n_jobs), expected)
    assert ours.vocabulary_ == theirs.vocabulary_
    same(ours.count(others, n_jobs), theirs.transform(others))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_the_engine_cannot_split_is_left_to_scikit_learn(n_jobs):
    texts = ["one \ud800 two", "two"]
    common = {"token_pattern": WORD, "dtype": np.float32}
    for settings_ in ({}, {"tokenizer": str.split, "token_pattern": None}):
        ours = NgramVectorizer(**(common | settings_))
        theirs = CountVectorizer(**(common | settings_))
        same(ours.learn_and_count(texts, n_jobs), theirs.fit_transform(texts))
        assert ours.count(texts, n_jobs) is None


def test_a_pickle_counts_the_same():
    ours = NgramVectorizer(token_pattern=WORD, dtype=np.float32)
    texts = ["b a", "c a a"]
    expected = ours.learn_and_count(texts)
    ours.count(texts)
    copy = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(copy.count(texts).toarray(), expected.toarray())
    ours.learn_and_count(["d"])
    assert ours.count(["d a"]).toarray().tolist() == [[1]]


def test_the_first_text_that_is_not_ascii_takes_little_memory():
    vectorizer = NgramVectorizer(token_pattern=WORD, dtype=np.float32)
    vectorizer.learn_and_count(["a"])
    counting._kinds_of_characters.cache_clear()
    tracemalloc.start()
    try:
        vectorizer.count(["é"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
