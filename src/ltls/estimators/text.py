"""TextClassifier: an LTLSClassifier for texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..core.prefetch import prefetch
from ..features.vectorizer import Vectorizer, VectorizerSettings
from ..model.fitted import FittedModel
from ..model.labels import Targets
from ..storage.model_file import SavedModel
from .classifier import LTLSClassifier

TEXT_PARAMETERS = tuple(VectorizerSettings.__dataclass_fields__)

_SHORT_TEXT = 200  # characters: character n-grams of longer ones cost much and add nothing


class TextClassifier(LTLSClassifier):
    """Text classifier among very many classes: n-grams, TF-IDF, then an `LTLSClassifier`.

    Parameters
    ----------
    ngram_range : (int, int) or None, default=(1, 2)
        Smallest and largest number of words in an n-gram; None for no word n-grams.
    char_ngram_range : (int, int), None or "auto", default="auto"
        Smallest and largest number of characters in an n-gram within words; None for none. They
        are robust to inflection and misspelling, and many: "auto" is (2, 4) for texts of up to 200
        characters on average, and None for longer ones, which have enough words.
    min_df : int, default=1
        Ignore n-grams that occur in fewer texts.
    max_features : int or None, default=262144
        Keep this many of the most frequent word n-grams, and as many character n-grams.
    n_features : int or None, default=None
        None learns a vocabulary. A number hashes n-grams into this many features, for words and
        for characters each: the model stores no words, and `partial_fit` accepts new ones.
    sublinear_tf : bool, default=True
        Replace a term frequency tf by 1 + log(tf).
    lowercase : bool, default=True
        Convert texts to lower case.
    **classifier
        Parameters of `LTLSClassifier`.

    Attributes
    ----------
    vectorizer_ : Vectorizer
        Turns texts into features.
    classes_, trellis_, codebooks_, n_iter_, ...
        As in `LTLSClassifier`.

    Notes
    -----
    `fit`, `partial_fit`, `predict`, `predict_topk`, `predict_proba`, `score` and the others take
    a list, array or Series of strings where `LTLSClassifier` takes a matrix. `save` stores the
    vocabulary in the model file, and `ltls.load` returns a `TextClassifier`.
    `partial_fit` learns vocabulary and TF-IDF weights from the first batch. `fit_stream` makes a
    pass over all batches for them, before its other passes.

    Examples
    --------
    >>> from ltls import TextClassifier
    >>> texts = ["the card is lost", "lost my card", "what is the fee", "a fee was charged"]
    >>> model = TextClassifier(random_state=0).fit(texts, ["card", "card", "fee", "fee"])
    >>> model.predict(["cards get lost", "why these fees?"]).tolist()
    ['card', 'fee']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LTLSClassifier._parameter_constraints,
        "ngram_range": [tuple, list, None],
        "char_ngram_range": [tuple, list, StrOptions({"auto"}), None],
        "min_df": [Interval(Integral, 1, None, closed="left")],
        "max_features": [Interval(Integral, 1, None, closed="left"), None],
        "n_features": [Interval(Integral, 1, 2**30, closed="both"), None],
        "sublinear_tf": ["boolean"],
        "lowercase": ["boolean"],
    }

    def __init__(
        self,
        ngram_range: tuple[int, int] | None = (1, 2),
        char_ngram_range: tuple[int, int] | str | None = "auto",
        min_df: int = 1,
        max_features: int | None = 1 << 18,
        n_features: int | None = None,
        sublinear_tf: bool = True,
        lowercase: bool = True,
        **classifier: Any,
    ) -> None:
        super().__init__(**classifier)
        self.ngram_range = ngram_range
        self.char_ngram_range = char_ngram_range
        self.min_df = min_df
        self.max_features = max_features
        self.n_features = n_features
        self.sublinear_tf = sublinear_tf
        self.lowercase = lowercase

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted([*LTLSClassifier._get_param_names(), *TEXT_PARAMETERS])

    def _pair(self, X: Any, y: Any, reset: bool) -> tuple[Any, Targets]:
        texts = as_texts(X)
        rows = self._learn_features(texts) if reset else self.vectorizer_.transform(texts)
        return super()._pair(rows, y, reset)

    def _learn_features(self, texts: Sequence[str]) -> Any:
        vectorizer = Vectorizer(self._settings(texts))
        rows = vectorizer.fit_transform(texts)
        self.vectorizer_ = vectorizer
        return rows

    def to_features(self, texts: Any) -> tuple[Any, LTLSClassifier]:
        """Return the features of texts, and a classifier of features with the same parameters.

        See `with_classifier`.
        """
        rows = self._learn_features(as_texts(texts))
        names = LTLSClassifier._get_param_names()
        return rows, LTLSClassifier(**{name: getattr(self, name) for name in names})

    def with_classifier(self, classifier: LTLSClassifier) -> TextClassifier:
        """Return a text classifier from a classifier that was fitted on the features of texts."""
        parameters = {**self.get_params(deep=False), **classifier.get_params(deep=False)}
        estimator = type(self).from_model(classifier.model_, **parameters)
        estimator.vectorizer_ = self.vectorizer_
        return estimator

    def _begin_stream(self, batches: Iterable[Any]) -> None:
        first, _ = next(iter(batches), (None, None))
        if first is not None:
            vectorizer = Vectorizer(self._settings(as_texts(first)))
            vectorizer.fit(as_texts(texts) for texts, _ in batches)
            self.vectorizer_ = vectorizer

    def _stream_rows(self, batches: Iterable[Any], first: bool) -> Iterator[tuple[Any, Targets]]:
        rows = ((self.vectorizer_.transform(as_texts(texts)), y) for texts, y in batches)
        pair = super()._pair
        # Texts become features while the rows before are trained on.
        for number, (X, y) in enumerate(prefetch(rows)):
            yield pair(X, y, first and not number)

    def _checked(self, X: Any) -> tuple[Any, FittedModel]:
        self._fitted()
        return super()._checked(self.vectorizer_.transform(as_texts(X)))

    def _saved_model(self) -> SavedModel:
        saved = super()._saved_model()
        saved.text = self.vectorizer_.state()
        return saved

    def _settings(self, texts: Sequence[str]) -> VectorizerSettings:
        """Return the settings of the vectorizer, "auto" resolved for texts like these."""
        given = {name: getattr(self, name) for name in TEXT_PARAMETERS}
        if given["char_ngram_range"] == "auto":
            short = sum(map(len, texts)) <= _SHORT_TEXT * len(texts)
            given["char_ngram_range"] = (2, 4) if short or self.ngram_range is None else None
        for name in ("ngram_range", "char_ngram_range"):
            given[name] = _checked_range(name, given[name])
        if given["ngram_range"] is None and given["char_ngram_range"] is None:
            raise ValueError("ngram_range and char_ngram_range must not both be None")
        return VectorizerSettings(**given)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = tags.input_tags.sparse = False
        return tags


def as_texts(X: Any) -> Sequence[str]:
    """Return texts as a list of strings, or raise an error."""
    if isinstance(X, str) or not (hasattr(X, "__iter__") or hasattr(X, "__array__")):
        raise ValueError(f"texts must be a list of strings, got {type(X).__name__}: use [text]")
    if hasattr(X, "tocsr") or np.ndim(X) != 1:
        raise ValueError(
            f"texts must be a list of strings, one per row, got {type(X).__name__} of more "
            "dimensions; LTLSClassifier takes features"
        )
    texts = list(X)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts must be strings, row {number} is {text!r}")
    if not texts:
        raise ValueError("texts must have at least one row, got none")
    return texts


def _checked_range(name: str, given: Any) -> tuple[int, int] | None:
    if given is None:
        return None
    if len(given) != 2 or not all(isinstance(n, Integral) for n in given):
        raise ValueError(f"{name} must be two integers or None, got {given!r}")
    low, high = map(int, given)
    if not 1 <= low <= high:
        raise ValueError(f"{name} must be (min, max) with 1 ≤ min ≤ max, got {given!r}")
    return low, high
