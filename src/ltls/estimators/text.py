"""TextClassifier: an LTLSClassifier that takes strings."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from .classifier import LTLSClassifier
from ..model.labels import Targets
from ..features.vectorizer import Settings, Vectoriser

_TEXT_PARAMETERS = tuple(Settings.__dataclass_fields__)


class TextClassifier(LTLSClassifier):
    """Classifier of texts among very many classes: n-grams, TF-IDF, then an `LTLSClassifier`.

    Parameters
    ----------
    ngram_range : (int, int) or None, default=(1, 2)
        Runs of words that are features, from so many words to so many; None for no words.
    char_ngram_range : (int, int) or None, default=(2, 4)
        Runs of characters within words that are features; None for none. They see through
        inflections and misspellings.
    min_df : int, default=1
        Leave out n-grams that fewer texts have.
    max_features : int or None, default=262144
        Keep so many of the most frequent n-grams of words, and as many of characters.
    n_features : int or None, default=None
        None learns which n-grams there are. A number hashes them into so many features for words
        and for characters each: the model holds no words, and `partial_fit` takes in new ones.
    sublinear_tf : bool, default=True
        Count an n-gram that a text has n times 1 + log n times.
    lowercase : bool, default=True
        Take upper-case letters for lower-case ones.
    **classifier
        Parameters of `LTLSClassifier`.

    Attributes
    ----------
    vectoriser_ : Vectoriser
        What turns texts into features.
    classes_, trellis_, codebooks_, n_iter_, ...
        As of `LTLSClassifier`.

    Notes
    -----
    `fit`, `partial_fit`, `predict`, `predict_topk`, `predict_proba`, `score` and the others take
    a list, array or Series of strings where `LTLSClassifier` takes a matrix. `save` stores the
    n-grams in the model file, and `ltls.load` gives back a `TextClassifier`.
    `partial_fit` and `fit_stream` learn n-grams and their weights from the first batch.

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
        "char_ngram_range": [tuple, list, None],
        "min_df": [Interval(Integral, 1, None, closed="left")],
        "max_features": [Interval(Integral, 1, None, closed="left"), None],
        "n_features": [Interval(Integral, 1, 2**30, closed="both"), None],
        "sublinear_tf": ["boolean"],
        "lowercase": ["boolean"],
    }

    def __init__(
        self,
        ngram_range: tuple[int, int] | None = (1, 2),
        char_ngram_range: tuple[int, int] | None = (2, 4),
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
        return sorted([*LTLSClassifier._get_param_names(), *_TEXT_PARAMETERS])

    def _pair(self, X: Any, y: Any, reset: bool) -> tuple[Any, Targets]:
        texts = as_texts(X)
        if reset:
            vectoriser = Vectoriser(self._settings())
            rows = vectoriser.fit_transform(texts)
            self.vectoriser_ = vectoriser
        else:
            rows = self.vectoriser_.transform(texts)
        return super()._pair(rows, y, reset)

    def _checked(self, X: Any) -> Any:
        self._fitted()
        return super()._checked(self.vectoriser_.transform(as_texts(X)))

    def _settings(self) -> Settings:
        given = {name: getattr(self, name) for name in _TEXT_PARAMETERS}
        for name in ("ngram_range", "char_ngram_range"):
            given[name] = _checked_range(name, given[name])
        if given["ngram_range"] is None and given["char_ngram_range"] is None:
            raise ValueError("ngram_range and char_ngram_range must not both be None")
        return Settings(**given)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = tags.input_tags.sparse = False
        return tags


def as_texts(X: Any) -> Sequence[str]:
    """Return texts as a list of strings, and say so where they are none."""
    if isinstance(X, str) or not (hasattr(X, "__iter__") or hasattr(X, "__array__")):
        raise ValueError(f"texts must be a list of strings, got {type(X).__name__}: use [text]")
    if hasattr(X, "tocsr") or np.ndim(X) != 1:
        raise ValueError(
            f"texts must be a list of strings, one a row, got {type(X).__name__} of more "
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
    least, most = map(int, given)
    if not 1 <= least <= most:
        raise ValueError(f"{name} must be (least, most) with 1 ≤ least ≤ most, got {given!r}")
    return least, most
