"""Counts of n-grams: scikit-learn's `CountVectorizer`, multithreaded and out of core."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

from ..core import _engine
from ..core.arrays import Floats, Ints, threads
from .ngrams import WORD

_IN_WORD, _SPACE = 1, 2  # kinds of characters, as in the engine
_N_ASCII, _N_CHARACTERS = 128, 0x110000
_ROOM = 4  # n-grams counted at the same time, as a multiple of max_features
_MIN_COUNTED = 1 << 18


class NgramVectorizer(CountVectorizer):  # type: ignore[misc]
    """A `CountVectorizer` with methods that compute the same counts in the engine.

    Custom tokenizers, and texts with surrogates, which have no UTF-8 form, are left to
    scikit-learn.
    """

    def learn_and_count(self, texts: Sequence[str], n_jobs: int | None = None) -> csr_matrix:
        """Like `fit_transform`, but multithreaded."""
        self.__dict__.pop("_known", None)
        analyzer = self._engine_analyzer(all(map(str.isascii, texts)))
        if analyzer is None:
            return self.fit_transform(texts)
        self.build_analyzer()  # for scikit-learn's warnings
        try:
            counts = analyzer.count(self._prepared(texts), threads(n_jobs))
        except UnicodeEncodeError:
            return self.fit_transform(texts)
        if not counts.n_distinct:
            raise ValueError("empty vocabulary; perhaps the documents only contain stop words")
        kept = self._selected(*counts.frequencies())
        if not len(kept):
            raise ValueError("After pruning, no terms remain. Try a lower min_df.")
        arrays, ngrams = counts.select(kept)
        # N-grams have no line breaks.
        self.vocabulary_ = {ngram: at for at, ngram in enumerate(ngrams.decode().split("\n"))}
        self.fixed_vocabulary_ = False
        return _matrix(arrays, len(kept))

    def count(self, texts: Sequence[str], n_jobs: int | None = None) -> csr_matrix | None:
        """Like `transform`, but multithreaded; None if the engine cannot do it."""
        analyzer = self._engine_analyzer(all(map(str.isascii, texts)))
        if analyzer is None:
            return None
        try:
            known = self._engine_vocabulary()
            arrays = known.count(analyzer, self._prepared(texts), threads(n_jobs))
        except UnicodeEncodeError:
            return None
        return _matrix(arrays, len(self.vocabulary_))

    def engine_parts(self) -> tuple[_engine.NgramAnalyzer, _engine.Vocabulary] | None:
        """Return the engine's analyzer of any text and its vocabulary; None if unsupported."""
        analyzer = self._engine_analyzer(ascii_only=False)
        try:
            return None if analyzer is None else (analyzer, self._engine_vocabulary())
        except UnicodeEncodeError:
            return None

    def _engine_vocabulary(self) -> _engine.Vocabulary:
        if not hasattr(self, "vocabulary_"):
            self._validate_vocabulary()
        if "_known" not in self.__dict__:
            ngrams = sorted(self.vocabulary_, key=self.vocabulary_.__getitem__)
            self._known = _engine.Vocabulary(ngrams)
        return self._known

    def _engine_analyzer(self, ascii_only: bool) -> _engine.NgramAnalyzer | None:
        """Return the engine's analyzer of texts, or of ASCII texts; None if unsupported."""
        characters = self.analyzer == "char_wb"
        if not characters and (self.tokenizer is not None or self.token_pattern != WORD):
            return None
        low, high = self.ngram_range
        stop_words = None if characters else self.get_stop_words()
        kinds = _kinds_of_characters(ascii_only)
        try:
            return _engine.NgramAnalyzer(
                characters=characters,
                low=low,
                high=high,
                kinds=kinds,
                stop_words=sorted(stop_words or ()),
            )
        except UnicodeEncodeError:
            return None

    def _prepared(self, texts: Sequence[str]) -> list[str]:
        return [text.lower() for text in texts] if self.lowercase else list(texts)

    def _selected(self, n_texts: Ints, times: Floats) -> Ints:
        """Select the same n-grams as `CountVectorizer`, ties included."""
        kept = np.flatnonzero(n_texts >= self.min_df)
        if self.max_features is not None and len(kept) > self.max_features:
            kept = np.sort(kept[(-times[kept]).argsort()[: self.max_features]])
        return kept

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_known"}


def _matrix(arrays: tuple[Any, Any, Any], n_columns: int) -> csr_matrix:
    indptr, indices, values = arrays
    if indptr[-1] < 2**31:
        indptr = indptr.astype(np.int32)
    return csr_matrix((values, indices, indptr), shape=(len(indptr) - 1, n_columns))


@lru_cache(2)
def _kinds_of_characters(ascii_only: bool) -> npt.NDArray[np.uint8]:
    """Return for every character whether it occurs in words, and whether it is white space."""
    n = _N_ASCII if ascii_only else _N_CHARACTERS
    every = np.arange(n, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    kinds = np.zeros(n, np.uint8)
    for pattern, kind in ((r"\w+", _IN_WORD), (r"\s+", _SPACE)):
        for match in re.finditer(pattern, every):
            kinds[match.start() : match.end()] |= kind
    return kinds


# Over batches of texts


class NgramCounts:
    """Counts of n-grams; if there are very many, only of those that are frequent so far.

    Parameters
    ----------
    counter : NgramVectorizer
        Finds the n-grams of texts; it must not limit their number.
    min_df : int
        Minimum number of texts with an n-gram.
    max_features : int or None
        Number of n-grams to keep. Above four times as many, and above 2**18, the less frequent half
        is forgotten. None counts all.
    """

    def __init__(self, counter: NgramVectorizer, min_df: int, max_features: int | None) -> None:
        self._counter, self._min_df, self._max_features = counter, min_df, max_features
        self._limit = None if max_features is None else max(_ROOM * max_features, _MIN_COUNTED)
        self._ids: dict[str, int] = {}
        self._texts: Ints = np.zeros(0, np.int64)  # texts with each n-gram
        self._times: Ints = np.zeros(0, np.int64)  # occurrences of each n-gram

    def add(self, texts: Sequence[str], n_jobs: int | None = None) -> None:
        """Count the n-grams of texts."""
        try:
            found = self._counter.learn_and_count(texts, n_jobs)
        except ValueError:  # texts without any n-gram
            return
        ngrams = self._counter.get_feature_names_out().tolist()
        ids = np.fromiter(
            (self._ids.setdefault(ngram, len(self._ids)) for ngram in ngrams), np.int64, len(ngrams)
        )
        more = len(self._ids) - len(self._texts)
        self._texts = np.pad(self._texts, (0, more))
        self._times = np.pad(self._times, (0, more))
        self._texts[ids] += np.bincount(found.indices, minlength=len(ids))
        self._times[ids] += np.bincount(found.indices, found.data, len(ids)).astype(np.int64)
        if self._limit is not None and len(self._ids) > self._limit:
            self._forget(self._limit // 2)

    def _forget(self, n_kept: int) -> None:
        """Keep the most frequent n-grams."""
        kept = np.sort(np.argsort(-self._times, kind="stable")[:n_kept])
        ngrams = list(self._ids)
        self._ids = {ngrams[old]: new for new, old in enumerate(kept.tolist())}
        self._texts, self._times = self._texts[kept], self._times[kept]

    def selected(self) -> tuple[list[str], Ints]:
        """Return a vocabulary, sorted, and how many texts have each of its n-grams.

        It has the most frequent n-grams, as scikit-learn selects them, ties included.
        """
        kept = (ngram for ngram, n in self._ids.items() if self._texts[n] >= self._min_df)
        order = sorted(kept)
        ids = np.fromiter((self._ids[ngram] for ngram in order), np.int64, len(order))
        if self._max_features is not None and len(order) > self._max_features:
            most = (-self._times[ids].astype(np.float32)).argsort()[: self._max_features]
            most.sort()
            order, ids = [order[place] for place in most.tolist()], ids[most]
        return order, self._texts[ids]


class HashedCounts:
    """How many texts have each hashed n-gram."""

    def __init__(self, hasher: HashingVectorizer, n_features: int) -> None:
        self._hasher = hasher
        self._texts = np.zeros(n_features, np.int64)

    def add(self, texts: Sequence[str], n_jobs: int | None = None) -> None:
        """Count the n-grams of texts, in one thread."""
        columns = self._hasher.transform(texts).indices
        self._texts += np.bincount(columns, minlength=len(self._texts))

    def selected(self) -> tuple[None, Ints]:
        """Return no vocabulary, and how many texts have each feature."""
        return None, self._texts
