"""TF-IDF of word and character n-grams, as scikit-learn computes it, stored without pickle.

Word and character n-grams are weighted separately, each with rows of unit length; concatenated, the
rows are scaled to unit length again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.preprocessing import normalize

from ..core import _engine
from .counting import NgramVectorizer
from .ngram_counts import HashedCounts, NgramCounts
from .ngrams import WORD, ngram_places

_MAX_IDF = 100  # 1 + log n is far below, whatever the number of texts
_PREFIXES = {"words": "", "characters": "chars:"}  # of the names of features


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
    stop_words: tuple[str, ...] | None = None
    tokenizer: str | Callable[[str], list[str]] | None = None

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
        words = self.stop_words
        if words is not None and not (
            isinstance(words, tuple) and all(isinstance(word, str) for word in words)
        ):
            raise ValueError("stop_words must be texts")
        if isinstance(self.tokenizer, str):
            check_pattern(self.tokenizer)
        elif self.tokenizer is not None and not callable(self.tokenizer):
            raise ValueError("tokenizer must be a regular expression")
        if not self.kinds:
            raise ValueError("there are neither words nor characters")

    @property
    def kinds(self) -> dict[str, tuple[int, int]]:
        """The n-gram ranges of words and characters, where they are used."""
        both = {"words": self.ngram_range, "characters": self.char_ngram_range}
        return {kind: each for kind, each in both.items() if each is not None}


def check_pattern(tokenizer: str) -> None:
    """Raise an error unless a tokenizer is a regular expression that matches a word."""
    try:
        n_groups, reason = re.compile(tokenizer).groups, ""
    except (re.error, OverflowError, RecursionError) as error:
        n_groups, reason = 0, str(error)
    if n_groups > 1:
        reason = f"it has {n_groups} groups, and one at most can be the word"
    if reason:
        raise ValueError(
            "tokenizer must be a regular expression that matches a word, got "
            f"{tokenizer!r}: {reason}"
        )


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

    def fit_transform(self, texts: Sequence[str], n_jobs: int | None = None) -> csr_matrix:
        """Learn vocabulary and document frequencies; return the rows of the texts."""
        self._parts, rows = [], []
        self.__dict__.pop("_rows", None)
        for kind in self.settings.kinds:
            counter, weights = self._counter(kind), self._weights()
            try:
                counts = self._counted(counter, texts, n_jobs, learn=True)
            except ValueError as error:  # "empty vocabulary" says nothing to users
                raise ValueError(_nothing_left(kind, len(texts), error)) from None
            rows.append(weights.fit_transform(counts))
            self._parts.append((counter, weights))
        return self._joined(rows)

    @staticmethod
    def _counted(counter: Any, texts: Sequence[str], n_jobs: int | None, learn: bool) -> Any:
        if not isinstance(counter, NgramVectorizer):  # hashed
            return counter.transform(texts)
        return counter.learn_and_count(texts, n_jobs) if learn else counter.count(texts, n_jobs)

    def fit(self, batches: Iterable[Sequence[str]], n_jobs: int | None = None) -> None:
        """Learn vocabulary and document frequencies from texts that do not fit into memory.

        The result is that of `fit_transform` on all texts, unless there are several times more
        n-grams than `max_features`: then rare ones are forgotten while they are counted.
        """
        counts = {kind: self._counts(kind) for kind in self.settings.kinds}
        n_texts = 0
        for texts in batches:
            n_texts += len(texts)
            for each in counts.values():
                each.add(texts, n_jobs)
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

    def transform(self, texts: Sequence[str], n_jobs: int | None = None) -> csr_matrix:
        """Return the rows of texts; unknown n-grams are ignored."""
        parts = self._parts
        return self._joined(
            [
                weights.transform(self._counted(counter, texts, n_jobs, learn=False))
                for counter, weights in parts
            ]
        )

    def row(self, text: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Return the features of one text and their values, as `transform` does, but faster.

        scikit-learn's vectorizers take more time for their checks than for a short text.
        """
        if self._rows is not None:
            try:
                return self._rows.row(text.lower() if self.settings.lowercase else text)
            except UnicodeEncodeError:  # surrogates
                pass
        X = self.transform([text])
        X.sort_indices()
        return X.indices, X.data

    @cached_property
    def _rows(self) -> _engine.TfidfRows | None:
        """The engine's rows of single texts; None for features and tokenizers that it cannot."""
        parts = []
        for counter, weights in self._parts:
            own = None if self.settings.n_features is not None else counter.engine_parts()
            if own is None:
                return None
            parts.append((*own, np.asarray(weights.idf_, np.float32)))
        return _engine.TfidfRows(tuple(parts), self.settings.sublinear_tf)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_rows"}

    @property
    def n_features(self) -> int:
        """The number of features."""
        return sum(len(weights.idf_) for _, weights in self._parts)

    def feature_names(self) -> list[str]:
        """Return the n-grams, or the numbers of hashed ones; those of characters have a prefix."""
        names: list[str] = []
        for kind, (counter, weights) in zip(self.settings.kinds, self._parts, strict=True):
            prefix = _PREFIXES[kind]
            if self.settings.n_features is None:
                names += [prefix + ngram for ngram in counter.get_feature_names_out()]
            else:
                names += [f"{prefix}hash {number}" for number in range(len(weights.idf_))]
        return names

    def found_in(self, text: str) -> dict[int, tuple[str, list[tuple[int, int]]]]:
        """Return the features of a text: their n-grams, and where these are in the text.

        Several n-grams may share a hashed feature.
        """
        found: dict[int, tuple[str, list[tuple[int, int]]]] = {}
        first = 0
        for kind, (counter, weights) in zip(self.settings.kinds, self._parts, strict=True):
            places = ngram_places(text, kind, self.settings)
            for ngram, spans in places.items():
                at = self._place_of(counter, ngram)
                if at is None:
                    continue
                name, known = found.get(first + at, ("", []))
                name = f"{name} / {ngram}" if name else _PREFIXES[kind] + ngram
                found[first + at] = (name, known + spans)
            first += len(weights.idf_)
        return found

    def _place_of(self, counter: Any, ngram: str) -> int | None:
        """Return the column of an n-gram, None if it is not known."""
        if self.settings.n_features is None:
            place: int | None = counter.vocabulary_.get(ngram)
            return place
        hasher = FeatureHasher(self.settings.n_features, input_type="string", alternate_sign=False)
        return int(hasher.transform([[ngram]]).indices[0])

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
        names = VectorizerSettings.__dataclass_fields__
        # Older files lack the latest settings.
        known = {name: description[name] for name in names if name in description}
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
            if len(idf) and not 0 <= idf.min() <= idf.max() <= _MAX_IDF:
                raise ValueError(f"the IDF weights of {kind} must be from 0 to {_MAX_IDF}")
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
            words, tokenizer = self.settings.stop_words, self.settings.tokenizer
            common["stop_words"] = None if words is None else list(words)
            common["tokenizer"] = tokenizer if callable(tokenizer) else None
            common["token_pattern"] = None if callable(tokenizer) else tokenizer or WORD
        if self.settings.n_features is not None:
            size = self.settings.n_features
            return HashingVectorizer(n_features=size, norm=None, alternate_sign=False, **common)
        if ngrams is not None:
            return NgramVectorizer(vocabulary=ngrams, **common)
        if not limited:
            return NgramVectorizer(**common)
        limits = {"min_df": self.settings.min_df, "max_features": self.settings.max_features}
        return NgramVectorizer(**limits, **common)

    def _weights(self) -> TfidfTransformer:
        return TfidfTransformer(sublinear_tf=self.settings.sublinear_tf)

    @staticmethod
    def _joined(rows: list[Any]) -> csr_matrix:
        return normalize(csr_matrix(hstack(rows)), copy=False)
