"""Frequencies of n-grams over batches of texts, for vocabularies learned out of core."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from ..core.arrays import Ints
from .counting import NgramVectorizer

_ROOM = 4  # times max_features: n-grams that are counted at the same time
_MIN_COUNTED = 1 << 18


class NgramCounts:
    """Counts of n-grams, of those that are frequent so far if there are very many.

    Parameters
    ----------
    counter : NgramVectorizer
        Finds the n-grams of texts; it must not limit them.
    min_df : int
        How many texts must have an n-gram that is kept.
    max_features : int or None
        How many n-grams will be kept. Above four times as many, and 2**18, the less frequent half
        is forgotten. None counts all.
    """

    def __init__(self, counter: NgramVectorizer, min_df: int, max_features: int | None) -> None:
        self._counter, self._min_df, self._max_features = counter, min_df, max_features
        self._limit = None if max_features is None else max(_ROOM * max_features, _MIN_COUNTED)
        self._ids: dict[str, int] = {}
        self._texts: Ints = np.zeros(0, np.int64)  # that have an n-gram
        self._times: Ints = np.zeros(0, np.int64)  # that it occurs

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

        They are the most frequent ones, as scikit-learn selects them, ties included.
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
