"""The front end of texts: TF-IDF of word and character n-grams, stored without pickle.

Word and character n-grams are weighted separately, as in scikit-learn, each with rows of unit
length; the concatenated rows are scaled to unit length again.

scikit-learn takes a second to import: only the functions that need it import it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix, hstack, vstack

from ..core import _engine
from ..core.arrays import AnyArray, Floats, Tensors, check_unmasked, unframed
from ..core.caching import cached_property
from ..core.declarations import Array, Described
from ..core.settings import AUTO, FLAG, NOTHING, TEXT, Allowed, Integer, setting, settings
from .ngrams import WORD, each_ngram, ngram_places
from .numbers import FeatureSettings
from .patterns import check_pattern, found_words

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfTransformer

    from .counting import HashedCounts, NgramCounts

_MAX_IDF = 100  # 1 + log n is far below, whatever the number of texts
_MAX_NGRAM = 100  # words or characters
_SHORT_TEXT = 200  # characters; for longer texts, character n-grams cost much and add nothing
_LONG_TEXT = 1 << 16  # characters of a text whose n-grams are counted in pieces, in Python
_PIECE = 1 << 17  # n-grams
_PREFIXES = {"words": "", "characters": "chars:"}  # of the names of features

RANGE = Allowed(
    f"a pair (min, max) with 1 ≤ min ≤ max ≤ {_MAX_NGRAM}",
    lambda value: (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and all(isinstance(n, Integral) and not isinstance(n, bool) for n in value)
        and 1 <= value[0] <= value[1] <= _MAX_NGRAM
    ),
)
_WORDS = Allowed(
    "a list of strings",
    lambda value: isinstance(value, (list, tuple)) and all(isinstance(w, str) for w in value),
)
_FUNCTION = Allowed("a function from a text to its words", callable)


@settings
class Text(FeatureSettings):
    """Texts become TF-IDF weighted n-grams.

    Examples
    --------
    >>> from ltls import TextClassifier
    >>> from ltls.settings import Text
    >>> texts = ["the card is lost", "lost my card", "what is the fee", "a fee was charged"]
    >>> model = TextClassifier(features=Text(char_ngram_range=None), random_state=0)
    >>> model.fit(texts, ["card", "card", "fee", "fee"]).predict(["which fee?"]).tolist()
    ['fee']
    """

    fewer: ClassVar[str] = (
        "fewer n-grams: features.min_df=2 or more, a smaller features.max_features, or "
        "features.n_features=16384, which stores none (ltls train --set features.min_df=2)"
    )

    ngram_range: tuple[int, int] | None = setting(
        RANGE,
        NOTHING,
        default=(1, 2),
        help="Smallest and largest number of words in an n-gram; None for no word n-grams.",
    )
    char_ngram_range: tuple[int, int] | str | None = setting(
        RANGE,
        NOTHING,
        AUTO,
        default=AUTO,
        help="Smallest and largest number of characters in an n-gram within words; None for no "
        "character n-grams. They are robust to inflection and misspelling, but numerous: "
        '"auto" is (2, 4) for texts of up to 200 characters on average, and None for longer '
        "texts, which have enough words.",
    )
    min_df: int = setting(
        Integer(1), default=1, help="Ignore n-grams that occur in fewer texts than this."
    )
    max_features: int | None = setting(
        Integer(1, 2**30),
        NOTHING,
        default=1 << 18,
        help="Maximum number of word n-grams, and of character n-grams; the most frequent are "
        "kept.",
    )
    n_features: int | None = setting(
        Integer(1, 2**30),
        NOTHING,
        default=None,
        help="None learns a vocabulary. A number hashes n-grams into this many features each "
        "for words and for characters: the model stores no words, and `partial_fit` accepts "
        "new ones.",
    )
    sublinear_tf: bool = setting(
        FLAG, default=True, help="Replace a term frequency tf by 1 + log(tf)."
    )
    lowercase: bool = setting(FLAG, default=True, help="Convert texts to lower case.")
    stop_words: str | Sequence[str] | None = setting(
        "english",
        _WORDS,
        NOTHING,
        default=None,
        help='Words to ignore; "english" is scikit-learn\'s list.',
    )
    tokenizer: str | Callable[[str], list[str]] | None = setting(
        TEXT,
        _FUNCTION,
        NOTHING,
        default=None,
        help="How texts are split into words: a regular expression that matches a word, or a "
        "function from a text to a list of words. None matches letters and digits. A model "
        "with a function cannot be saved.",
    )

    def check(self, owner: str | None = None) -> None:
        """Raise an error if a setting is invalid."""
        super().check(owner)
        if isinstance(self.tokenizer, str):
            check_pattern(self.tokenizer)
        if self.ngram_range is None and self.char_ngram_range is None:
            raise ValueError("ngram_range and char_ngram_range must not both be None")

    def named_columns(
        self, features: str | Sequence[str] | None, text: str | None
    ) -> dict[str, Any]:
        """Return the columns of a table to read: the text column, which must be named."""
        if features or not text:
            raise ValueError("the model takes texts: name their column with text=")
        return {"text": text}

    def columns_among(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the columns of a table to read by default: the only one."""
        if len(names) != 1:
            raise ValueError(
                "the model takes texts: pass one column, or save the model with text=, got "
                f"{list(names)}"
            )
        return {"text": names[0]}

    @property
    def kinds(self) -> dict[str, tuple[int, int]]:
        """The n-gram ranges of words and characters, where they are used."""
        both: dict[str, Any] = {"words": self.ngram_range, "characters": self.char_ngram_range}
        return {kind: (int(each[0]), int(each[1])) for kind, each in both.items() if each}

    def resolved(self, texts: Sequence[str]) -> Text:
        """Return the settings with "auto" resolved for texts like these."""
        short = sum(map(len, texts)) <= _SHORT_TEXT * len(texts)
        given = self.filled(char_ngram_range=(2, 4) if short or self.ngram_range is None else None)
        if given.stop_words is not None:
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            words = ENGLISH_STOP_WORDS if isinstance(given.stop_words, str) else given.stop_words
            found = {word.lower() if self.lowercase else word for word in words}
            given.stop_words = tuple(sorted(found))
        return given

    def fit(self, X: Any, n_jobs: int | None = None) -> tuple[Any, csr_matrix]:
        """Return the fitted front end, and the features of the inputs."""
        inputs = self._inputs(X)
        vectorizer = self._vectorizer(inputs)
        return vectorizer, vectorizer.fit_transform(inputs, n_jobs)

    def fit_batches(self, batches: Iterable[Any], n_jobs: int | None = None) -> Any:
        """Return the front end fitted on batches of inputs, in one pass."""
        inputs = map(self._inputs, batches)
        first = next(inputs, None)
        if first is None:
            raise ValueError("batches must hold at least one batch of texts or rows, got none")
        vectorizer = self._vectorizer(first)
        vectorizer.fit(chain([first], inputs), n_jobs)
        return vectorizer

    def _inputs(self, X: Any) -> Sequence[Any]:
        """Return inputs, checked."""
        return as_texts(X)

    def _vectorizer(self, inputs: Sequence[Any]) -> Any:
        """Return the unfitted vectorizer for inputs like these."""
        return Vectorizer(self.resolved(inputs))


def _nothing_left(kind: str, n_texts: int, reason: object) -> str:
    return (
        f"no {kind} are left of the {n_texts} texts: {str(reason).rstrip('.')}; is this the text "
        "column, or is min_df too high?"
    )


class Vectorizer:
    """The front end of texts, fitted: converts them to TF-IDF weighted n-grams."""

    name: ClassVar[str] = "text"
    sparse: ClassVar[bool] = True
    columns: ClassVar[None] = None
    arrays: ClassVar[dict[str, str]] = {"text": "str"}

    def __init__(self, settings: Text) -> None:
        self.settings = settings
        self._parts: list[tuple[Any, TfidfTransformer]] = []

    def fit_transform(self, texts: Sequence[str], n_jobs: int | None = None) -> csr_matrix:
        """Learn vocabulary and document frequencies; return the rows of the texts."""
        self._parts, rows = [], []
        self.__dict__.pop("_rows", None)
        for kind in self.settings.kinds:
            counter, weights = self._counter(kind), self._weights()
            try:
                counts = self._learned(counter, texts, n_jobs)
            except ValueError as error:  # "empty vocabulary" alone does not help users
                raise ValueError(_nothing_left(kind, len(texts), error)) from None
            rows.append(weights.fit_transform(counts))
            self._parts.append((counter, weights))
        return self._joined(rows)

    @staticmethod
    def _learned(counter: Any, texts: Sequence[str], n_jobs: int | None) -> Any:
        from .counting import NgramVectorizer

        if isinstance(counter, NgramVectorizer):
            return counter.learn_and_count(texts, n_jobs)
        return counter.transform(texts)  # hashed

    def fit(self, batches: Iterable[Sequence[str]], n_jobs: int | None = None) -> None:
        """Learn vocabulary and document frequencies from texts that need not fit into memory.

        The result is that of `fit_transform` on all texts, unless there are several times more
        n-grams than `max_features`: then rare ones are dropped during counting.
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
        from .counting import HashedCounts, NgramCounts

        if self.settings.n_features is not None:
            return HashedCounts(self._counter(kind), self.settings.n_features)
        counter = self._counter(kind, limited=False)
        return NgramCounts(counter, self.settings.min_df, self.settings.max_features)

    def matrix(self, X: Any, n_jobs: int | None = None) -> csr_matrix:
        """Return the features of texts; unknown n-grams are ignored."""
        texts = as_texts(X)
        if len(texts) == 1:
            indices, values = self.row(texts[0])
            return csr_matrix((values, indices, [0, len(indices)]), shape=(1, self.n_features))
        return self.transform(texts, n_jobs)

    def transform(self, texts: Sequence[str], n_jobs: int | None = None) -> csr_matrix:
        """Return the features of a list of texts."""
        rows = []
        for kind, (counter, weights) in zip(self.settings.kinds, self._parts, strict=True):
            counts = counter.count(texts, n_jobs) if self.settings.n_features is None else None
            if counts is None:
                counts = self._counted_in_python(kind, counter, texts)
            rows.append(weights.transform(counts))
        return self._joined(rows)

    def _counted_in_python(self, kind: str, counter: Any, texts: Sequence[str]) -> csr_matrix:
        """Return counts of n-grams that the engine cannot count: those of a long text in pieces.

        scikit-learn would keep every n-gram of a text as an object.
        """
        if max(map(len, texts)) <= _LONG_TEXT:
            return counter.transform(texts)
        rows = []
        for text in texts:
            row = self._columns_of(counter, ())
            ngrams = each_ngram(text, kind, self.settings)
            while piece := tuple(islice(ngrams, _PIECE)):
                row = row + self._columns_of(counter, piece)
            rows.append(row)
        return csr_matrix(vstack(rows))

    def row(self, text: str) -> tuple[AnyArray, Floats]:
        """Return the features of one text and their values, as `transform` does, but faster.

        scikit-learn's vectorizers spend more time on checks than on a short text.
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
        """The engine's vectorizer of single texts; None if it does not support the settings."""
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

    def feature_names(self) -> Mapping[int, tuple[str, Any]]:
        """Return the name of every feature: the n-gram, or the number of a hashed one."""
        return {number: (name, ()) for number, name in enumerate(self.names())}

    def names(self) -> list[str]:
        """Return the n-grams, or the numbers of hashed ones; those of characters have a prefix."""
        names: list[str] = []
        for kind, (counter, weights) in zip(self.settings.kinds, self._parts, strict=True):
            prefix = _PREFIXES[kind]
            if self.settings.n_features is None:
                names += [prefix + ngram for ngram in counter.get_feature_names_out()]
            else:
                names += [f"{prefix}hash {number}" for number in range(len(weights.idf_))]
        return names

    def places(self, X: Any) -> Iterable[Mapping[int, tuple[str, Any]]]:
        """Yield the names of the features of every text, with their positions."""
        return map(self.found_in, as_texts(X))

    def read(self, items: Sequence[Any], n_features: int) -> Sequence[str]:
        """Return texts from JSON."""
        return as_texts(items)

    def empty(self) -> Any:
        """Return a text without features, in the form that `read` takes."""
        return ""

    def describe(self) -> dict[str, Any]:
        """Describe the input for callers."""
        return {"input": self.name}

    def found_in(self, text: str) -> dict[int, tuple[str, list[tuple[int, int]]]]:
        """Return the features of a text: their n-grams, and their positions in the text.

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
        return int(self._columns_of(counter, (ngram,)).indices[0])

    def _columns_of(self, counter: Any, ngrams: Sequence[str]) -> csr_matrix:
        """Return the row of n-grams: how many each column has, of those that are known."""
        size = self.settings.n_features
        if size is not None:
            from sklearn.feature_extraction import FeatureHasher

            hasher = FeatureHasher(
                size, input_type="string", alternate_sign=False, dtype=np.float32
            )
            return hasher.transform([ngrams])
        known = counter.vocabulary_
        places = [known[ngram] for ngram in ngrams if ngram in known]
        ones = np.ones(len(places), np.float32)
        return csr_matrix((ones, places, [0, len(places)]), shape=(1, len(known)))

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        if callable(self.settings.tokenizer):
            raise ValueError(
                "a model whose tokenizer is a function cannot be saved, since a file holds no "
                "code; use a regular expression, or split texts into words beforehand"
            )
        tensors: Tensors = {}
        for kind, (counter, weights) in zip(self.settings.kinds, self._parts, strict=True):
            tensors[f"{kind}.idf"] = np.asarray(weights.idf_, np.float32)
            if self.settings.n_features is None:
                ngrams = json.dumps(counter.get_feature_names_out().tolist(), ensure_ascii=False)
                encoded = ngrams.encode("utf-8", "surrogatepass")
                tensors[kind] = np.frombuffer(encoded, np.uint8)
        return {"settings": self.settings.get_params()}, tensors

    @classmethod
    def from_state(cls, section: Described) -> Vectorizer:
        """Restore a vectorizer from its `state`."""
        given = section.get("settings", "settings", lambda v: isinstance(v, dict))
        self = cls(Text.from_dict(given))
        if self.settings.char_ngram_range == AUTO or self.settings.stop_words == "english":
            raise ValueError("settings must not be 'auto'")
        hashed = self.settings.n_features
        declared = {}
        for kind in self.settings.kinds:
            declared[f"{kind}.idf"] = Array("f4|f8", (f"n_{kind}",), low=0, high=_MAX_IDF)
            if hashed is None:
                declared[kind] = Array("u1", (f"{kind}_bytes",))
        sizes = {} if hashed is None else {f"n_{kind}": hashed for kind in self.settings.kinds}
        tensors = section.tensors(declared, sizes)
        for kind in self.settings.kinds:
            ngrams = None
            if hashed is None:
                ngrams = json.loads(tensors[kind].tobytes().decode("utf-8", "surrogatepass"))
                if not isinstance(ngrams, list) or not all(isinstance(n, str) for n in ngrams):
                    raise ValueError(f"the {kind} must be a list of texts")
                if len(set(ngrams)) != sizes[f"n_{kind}"]:
                    raise ValueError(f"{len(ngrams)} {kind} have {sizes[f'n_{kind}']} weights")
            weights = self._weights()
            weights.idf_ = np.array(tensors[f"{kind}.idf"], np.float32)
            self._parts.append((self._counter(kind, ngrams), weights))
        return self

    def _counter(self, kind: str, ngrams: list[str] | None = None, limited: bool = True) -> Any:
        from sklearn.feature_extraction.text import HashingVectorizer

        from .counting import NgramVectorizer

        common: dict[str, Any] = {
            "analyzer": "word" if kind == "words" else "char_wb",
            "ngram_range": self.settings.kinds[kind],
            "lowercase": self.settings.lowercase,
            "dtype": np.float32,
        }
        if kind == "words":
            words, tokenizer = self.settings.stop_words, self.settings.tokenizer
            common["stop_words"] = None if words is None else list(words)
            if isinstance(tokenizer, str):
                tokenizer = partial(found_words, tokenizer)
            common["tokenizer"] = tokenizer
            common["token_pattern"] = WORD if tokenizer is None else None
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
        from sklearn.feature_extraction.text import TfidfTransformer

        return TfidfTransformer(sublinear_tf=self.settings.sublinear_tf)

    @staticmethod
    def _joined(rows: list[Any]) -> csr_matrix:
        from sklearn.preprocessing import normalize

        return normalize(csr_matrix(hstack(rows)), copy=False)


def as_texts(X: Any) -> Sequence[str]:
    """Return texts as a list of strings, or raise an error; several columns are joined."""
    X = unframed("texts", X)
    if isinstance(X, str) or not (hasattr(X, "__iter__") or hasattr(X, "__array__")):
        raise ValueError(f"texts must be a list of strings, got {type(X).__name__}: use [text]")
    check_unmasked("texts", X)
    # As objects: in an array of strings, each would take the memory of the longest.
    cells = np.empty(()) if hasattr(X, "tocsr") else np.asarray(X, object)
    if cells.ndim == 2:  # several columns of text
        X = ["\n".join(_check_strings(row, number)) for number, row in enumerate(cells)]
    elif cells.ndim != 1:
        raise ValueError(
            "texts must be a list of strings, one per row, or have several columns of strings, "
            f"got {type(X).__name__}; use LTLSClassifier for numeric features"
        )
    texts = list(X)
    _check_strings(texts)
    if not texts:
        raise ValueError("texts must have at least one row, got none")
    return texts


def _check_strings(texts: Sequence[Any], row: int | None = None) -> Sequence[str]:
    """Return texts, one per row or those of one row, or raise an error if one is no string."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            if isinstance(text, bytes):
                fix = "decode it, for example with text.decode()"
            elif isinstance(text, Real) and text == text:  # NaN is missing
                fix = "use LTLSClassifier for numeric features, or make it a string with str()"
            else:
                fix = (
                    "drop such rows, or replace missing texts by empty ones, for example with "
                    "fillna('')"
                )
            where = f"row {number} is" if row is None else f"row {row} has"
            raise ValueError(f"texts must be strings, but {where} {text!r}; {fix}")
    return texts
