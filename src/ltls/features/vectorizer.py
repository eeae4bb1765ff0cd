"""TF-IDF of word and character n-grams, by scikit-learn's vectorizers, stored without pickle.

Word and character n-grams are weighted separately, each with rows of unit length; concatenated, the
rows are scaled to unit length again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer
from sklearn.preprocessing import normalize

from .ngram_counts import HashedCounts, NgramCounts

_WORD = r"(?u)\b\w+\b"  # scikit-learn's default ignores words of one letter: "I", "5", "c"


@dataclass(frozen=True)
class VectorizerSettings:
    """Hyperparameters of a `Vectorizer`; see `TextClassifier`."""

    ngram_range: tuple[int, int] | None
    char_ngram_range: tuple[int, int] | None
    min_df: int
    max_features: int | None
    n_features: int | None
    sublinear_tf: bool
    lowercase: bool

    def check(self) -> None:
        """Raise an error for settings of wrong types, as a damaged file may have them."""
        for name, given in (
            ("ngram_range", self.ngram_range),
            ("char_ngram_range", self.char_ngram_range),
        ):
            if given is not None and not (
                isinstance(given, tuple)
                and len(given) == 2
                and all(map(_is_count, given))
                and given[0] <= given[1]
            ):
                raise ValueError(f"{name} must be two integers, got {given!r}")
        for name, n in (("n_features", self.n_features), ("max_features", self.max_features)):
            if n is not None and not (_is_count(n) and n <= 2**30):
                raise ValueError(f"{name} must be an integer from 1 to 2**30, got {n!r}")
        if not self.kinds:
            raise ValueError("there are neither words nor characters")

    @property
    def kinds(self) -> dict[str, tuple[int, int]]:
        """The n-gram ranges of words and characters, where they are used."""
        both = {"words": self.ngram_range, "characters": self.char_ngram_range}
        return {kind: each for kind, each in both.items() if each is not None}


def _nothing_left(kind: str, n_texts: int, reason: object) -> str:
    return (
        f"no {kind} are left of the {n_texts} texts: {reason}; is this the column of text, or "
        "min_df too high?"
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class Vectorizer:
    """Converts texts to TF-IDF weighted n-grams."""

    def __init__(self, settings: VectorizerSettings) -> None:
        self.settings = settings
        self._parts: list[tuple[Any, TfidfTransformer]] = []

    def fit_transform(self, texts: Sequence[str]) -> csr_matrix:
        """Learn vocabulary and document frequencies; return the rows of the texts."""
        self._parts, rows = [], []
        for kind in self.settings.kinds:
            counter, weights = self._counter(kind), self._weights()
            try:
                counts = counter.fit_transform(texts)
            except ValueError as error:  # "empty vocabulary" says nothing to users
                raise ValueError(_nothing_left(kind, len(texts), error)) from None
            rows.append(weights.fit_transform(counts))
            self._parts.append((counter, weights))
        return self._joined(rows)

    def fit(self, batches: Iterable[Sequence[str]]) -> None:
        """Learn vocabulary and document frequencies from texts that do not fit into memory.

        The result is that of `fit_transform` on all texts, unless there are several times more
        n-grams than `max_features`: then rare ones are forgotten while they are counted.
        """
        counts = {kind: self._counts(kind) for kind in self.settings.kinds}
        n_texts = 0
        for texts in batches:
            n_texts += len(texts)
            for each in counts.values():
                each.add(texts)
        self._parts = []
        for kind, each in counts.items():
            ngrams, n_with = each.selected()
            if not len(n_with):
                raise ValueError(_nothing_left(kind, n_texts, "empty vocabulary"))
            weights = self._weights()
            # As `TfidfTransformer.fit` computes it.
            weights.idf_ = np.log(np.float32(n_texts + 1) / (n_with.astype(np.float32) + 1)) + 1
            self._parts.append((self._counter(kind, ngrams), weights))

    def _counts(self, kind: str) -> NgramCounts | HashedCounts:
        if self.settings.n_features is not None:
            return HashedCounts(self._counter(kind), self.settings.n_features)
        counter = self._counter(kind, limited=False)
        return NgramCounts(counter, self.settings.min_df, self.settings.max_features)

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        """Return the rows of texts; unknown n-grams are ignored."""
        parts = self._parts
        return self._joined(
            [weights.transform(counter.transform(texts)) for counter, weights in parts]
        )

    @property
    def n_features(self) -> int:
        """The number of features."""
        return sum(len(weights.idf_) for _, weights in self._parts)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return a JSON description and tensors, for `from_state`."""
        tensors: dict[str, npt.NDArray[Any]] = {}
        for kind, (counter, weights) in zip(self.settings.kinds, self._parts, strict=True):
            tensors[f"{kind}.idf"] = np.asarray(weights.idf_, np.float64)
            if self.settings.n_features is None:
                ngrams = json.dumps(counter.get_feature_names_out().tolist(), ensure_ascii=False)
                encoded = ngrams.encode("utf-8", "surrogatepass")
                tensors[kind] = np.frombuffer(encoded, np.uint8)
        sizes = {kind: len(tensors[f"{kind}.idf"]) for kind in self.settings.kinds}
        return {**asdict(self.settings), **sizes}, tensors

    @classmethod
    def from_state(
        cls, description: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]
    ) -> Vectorizer:
        """Restore a vectorizer from its `state`."""
        known = {name: description[name] for name in VectorizerSettings.__dataclass_fields__}
        known = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
        self = cls(VectorizerSettings(**known))
        self.settings.check()
        for kind in self.settings.kinds:
            idf, ngrams = tensors[f"{kind}.idf"], None
            size = self.settings.n_features
            if size is None:
                ngrams = json.loads(tensors[kind].tobytes().decode("utf-8", "surrogatepass"))
                if not isinstance(ngrams, list) or not all(isinstance(n, str) for n in ngrams):
                    raise ValueError(f"the {kind} must be a list of texts")
                size = len(set(ngrams))
            if idf.shape != (size,):
                raise ValueError(f"{size} {kind} have {len(idf)} weights")
            weights = self._weights()
            weights.idf_ = np.array(idf)
            self._parts.append((self._counter(kind, ngrams), weights))
        return self

    def _counter(self, kind: str, ngrams: list[str] | None = None, limited: bool = True) -> Any:
        common: dict[str, Any] = {
            "analyzer": "word" if kind == "words" else "char_wb",
            "ngram_range": self.settings.kinds[kind],
            "lowercase": self.settings.lowercase,
            "dtype": np.float32,
        }
        if kind == "words":
            common["token_pattern"] = _WORD
        if self.settings.n_features is not None:
            size = self.settings.n_features
            return HashingVectorizer(n_features=size, norm=None, alternate_sign=False, **common)
        if ngrams is not None:
            return CountVectorizer(vocabulary=ngrams, **common)
        if not limited:
            return CountVectorizer(**common)
        limits = {"min_df": self.settings.min_df, "max_features": self.settings.max_features}
        return CountVectorizer(**limits, **common)

    def _weights(self) -> TfidfTransformer:
        return TfidfTransformer(sublinear_tf=self.settings.sublinear_tf)

    @staticmethod
    def _joined(rows: list[Any]) -> csr_matrix:
        return normalize(csr_matrix(hstack(rows)), copy=False)
