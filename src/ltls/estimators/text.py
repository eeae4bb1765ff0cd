"""TextClassifier: an LTLSClassifier for texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import Parameter, Signature, signature
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.utils._param_validation import Interval, StrOptions

from ..core.prefetch import prefetch
from ..features.vectorizer import Vectorizer, VectorizerSettings, check_pattern
from ..model.fitted import FittedModel
from ..model.labels import Targets
from ..model.predictor import Predictor
from ..storage.model_file import SavedModel
from .classifier import LTLSClassifier

TEXT_PARAMETERS = tuple(VectorizerSettings.__dataclass_fields__)

_SHORT_TEXT = 200  # characters: character n-grams of longer ones cost much and add nothing


class TextPredictor:
    """The k best labels of single texts, with little overhead; see `TextClassifier.predictor`.

    Call it with a text, or with a list of texts. Any number of threads may call it.

    Returns
    -------
    labels, scores : arrays of shape (k,), or (n_texts, k) for a list
        The best labels and their scores, best first.
    """

    def __init__(self, vectorizer: Vectorizer, predictor: Predictor) -> None:
        self.k = predictor.k
        self._vectorizer, self._predictor = vectorizer, predictor

    def __repr__(self) -> str:
        return f"<TextPredictor of the {self.k} best labels>"

    def __call__(self, text: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return the best labels and their scores."""
        if isinstance(text, str):
            return self._predictor(*self._vectorizer.row(text))
        return self._predictor(self._vectorizer.transform(as_texts(text)))


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
    stop_words : "english", list of str or None, default=None
        Words to ignore; "english" is scikit-learn's list.
    tokenizer : str, callable or None, default=None
        How texts are split into words: a regular expression that matches a word, or a function
        from a text to a list of words. None matches letters and digits. A function is not part of
        a model file: such a model cannot be saved.
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
    a list, array or Series of strings (or an array or DataFrame with several texts per row, which
    are joined by line breaks) where `LTLSClassifier` takes a matrix. `save` stores the
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
        "stop_words": [StrOptions({"english"}), list, tuple, None],
        "tokenizer": [str, callable, None],
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
        stop_words: str | Sequence[str] | None = None,
        tokenizer: str | Callable[[str], list[str]] | None = None,
        **classifier: Any,
    ) -> None:
        for name in classifier:
            if name not in LTLSClassifier._get_param_names():
                raise TypeError(f"TextClassifier has no parameter {name!r}")
        super().__init__(**classifier)
        self.ngram_range = ngram_range
        self.char_ngram_range = char_ngram_range
        self.min_df = min_df
        self.max_features = max_features
        self.n_features = n_features
        self.sublinear_tf = sublinear_tf
        self.lowercase = lowercase
        self.stop_words = stop_words
        self.tokenizer = tokenizer

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted([*LTLSClassifier._get_param_names(), *TEXT_PARAMETERS])

    def _pair(self, X: Any, y: Any, reset: bool) -> tuple[Any, Targets]:
        texts = self._inputs(X)
        rows = (
            self._learn_features(texts) if reset else self.vectorizer_.transform(texts, self.n_jobs)
        )
        return super()._pair(rows, y, reset)

    def _inputs(self, X: Any) -> Sequence[Any]:
        """Return the rows that the vectorizer takes, validated."""
        return as_texts(X)

    def _new_vectorizer(self, texts: Sequence[Any]) -> Any:
        """Return a vectorizer for rows like these."""
        return Vectorizer(self._settings(texts))

    def _learn_features(self, texts: Sequence[Any]) -> Any:
        vectorizer = self._new_vectorizer(texts)
        rows = vectorizer.fit_transform(texts, self.n_jobs)
        self.vectorizer_ = vectorizer
        return rows

    def to_features(self, texts: Any) -> tuple[Any, LTLSClassifier]:
        """Return the features of texts, and a classifier of features with the same parameters.

        See `with_classifier`.
        """
        rows = self._learn_features(self._inputs(texts))
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
            vectorizer = self._new_vectorizer(self._inputs(first))
            vectorizer.fit((self._inputs(texts) for texts, _ in batches), self.n_jobs)
            self.vectorizer_ = vectorizer

    def _stream_rows(self, batches: Iterable[Any], first: bool) -> Iterator[tuple[Any, Targets]]:
        rows = ((self.vectorizer_.transform(self._inputs(texts)), y) for texts, y in batches)
        pair = super()._pair
        # Texts become features while the rows before are trained on.
        for number, (X, y) in enumerate(prefetch(rows)):
            yield pair(X, y, first and not number)

    def _checked(self, X: Any) -> tuple[Any, FittedModel]:
        self._fitted()
        return super()._checked(self.vectorizer_.transform(self._inputs(X), self.n_jobs))

    def predictor(self, k: int = 5) -> TextPredictor:  # type: ignore[override]
        """Return a thread-safe callable with low latency: the k best labels of a text.

        It takes a text, or a list of texts. It is a snapshot: later training does not change it.

        Returns
        -------
        predictor : TextPredictor

        Examples
        --------
        >>> from ltls import TextClassifier
        >>> texts = ["the card is lost", "lost my card", "what is the fee", "a fee was charged"]
        >>> model = TextClassifier(random_state=0).fit(texts, ["card", "card", "fee", "fee"])
        >>> labels, scores = model.predictor(k=1)("where is my card")
        >>> labels.tolist()
        ['card']
        """
        return TextPredictor(self.vectorizer_, super().predictor(k))

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Return the names of the features: n-grams, those of characters with the prefix "chars:".

        Parameters
        ----------
        input_features : ignored
            For compatibility with scikit-learn.
        """
        self._fitted()
        return np.array(self.vectorizer_.feature_names(), object)

    def _rows_to_explain(self, X: Any) -> Iterable[tuple[Any, Any]]:
        for text in self._inputs(X):
            yield self._checked([text])[0], self.vectorizer_.found_in(text)

    def _feature_names(self) -> Any:
        return {at: (name, ()) for at, name in enumerate(self.vectorizer_.feature_names())}

    def _saved_model(self) -> SavedModel:
        saved = super()._saved_model()
        vectorizer = self._text_vectorizer()
        if vectorizer is None:
            return saved
        if callable(vectorizer.settings.tokenizer):
            raise ValueError(
                "a model whose tokenizer is a function cannot be saved: a file holds no code; "
                "use a regular expression, or split texts into words beforehand"
            )
        saved.text = vectorizer.state()
        if isinstance(self.stop_words, list):
            saved.parameters["stop_words"] = tuple(self.stop_words)
        return saved

    def _text_vectorizer(self) -> Vectorizer | None:
        """Return the vectorizer of the texts."""
        found: Vectorizer = self.vectorizer_
        return found

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
        if given["stop_words"] is not None:
            given["stop_words"] = _checked_stop_words(given["stop_words"], self.lowercase)
        if isinstance(given["tokenizer"], str):
            check_pattern(given["tokenizer"])
        return VectorizerSettings(**given)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = tags.input_tags.sparse = False
        return tags


def full_signature(estimator: type, base: type) -> Signature:
    """Return the parameters of an estimator with those of its base by name."""
    own = signature(estimator.__init__)  # type: ignore[misc]
    others = list(signature(base).parameters.values())
    parameters = [each for each in own.parameters.values() if each.kind != each.VAR_KEYWORD]
    parameters += [each.replace(kind=Parameter.KEYWORD_ONLY) for each in others]
    return own.replace(parameters=parameters)


# scikit-learn prints the parameters that differ from their defaults.
TextClassifier.__init__.__signature__ = full_signature(  # type: ignore[attr-defined]
    TextClassifier, LTLSClassifier
)


def as_texts(X: Any) -> Sequence[str]:
    """Return texts as a list of strings, or raise an error; several columns are joined."""
    if isinstance(X, str) or not (hasattr(X, "__iter__") or hasattr(X, "__array__")):
        raise ValueError(f"texts must be a list of strings, got {type(X).__name__}: use [text]")
    if not hasattr(X, "tocsr") and np.ndim(X) == 2:  # several columns of text
        X = ["\n".join(_strings(row, number)) for number, row in enumerate(np.asarray(X, object))]
    if hasattr(X, "tocsr") or np.ndim(X) != 1:
        raise ValueError(
            f"texts must be a list of strings, one per row, or have a column for each of several "
            f"texts of a row, got {type(X).__name__}; LTLSClassifier takes features"
        )
    texts = list(X)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts must be strings, row {number} is {text!r}")
    if not texts:
        raise ValueError("texts must have at least one row, got none")
    return texts


def _strings(row: Any, number: int) -> list[str]:
    """Return the texts of a row with several."""
    for text in row:
        if not isinstance(text, str):
            raise ValueError(
                f"texts must be strings, row {number} has {text!r}; LTLSClassifier takes features"
            )
    return list(row)


def _checked_stop_words(given: str | Sequence[str], lowercase: bool) -> tuple[str, ...]:
    """Return stop words sorted, as texts have them."""
    words = ENGLISH_STOP_WORDS if isinstance(given, str) else given
    if not all(isinstance(word, str) for word in words):
        raise ValueError(f"stop_words must be 'english' or a list of strings, got {given!r}")
    return tuple(sorted({word.lower() if lowercase else word for word in words}))


def _checked_range(name: str, given: Any) -> tuple[int, int] | None:
    if given is None:
        return None
    if len(given) != 2 or not all(isinstance(n, Integral) for n in given):
        raise ValueError(f"{name} must be two integers or None, got {given!r}")
    low, high = map(int, given)
    if not 1 <= low <= high:
        raise ValueError(f"{name} must be (min, max) with 1 ≤ min ≤ max, got {given!r}")
    return low, high
