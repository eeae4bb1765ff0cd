"""TableClassifier: an LTLSClassifier for tables with texts, numbers and categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..features.table import KINDS, Record, TableColumns, TableVectorizer
from ..features.vectorizer import Vectorizer
from ..model.predictor import Predictor
from ..storage.model_file import SavedModel
from ..training.config import TrainConfig
from .classifier import LTLSClassifier
from .text import TextClassifier, full_signature


class RowPredictor:
    """The k best labels of rows of a table; see `TableClassifier.predictor`.

    Call it with a row, which is a dict, or with a list of rows. Any number of threads may call it.

    Returns
    -------
    labels, scores : arrays of shape (k,), or (n_rows, k) for a list
        The best labels and their scores, best first.
    """

    def __init__(self, vectorizer: TableVectorizer, predictor: Predictor) -> None:
        self.k = predictor.k
        self._vectorizer, self._predictor = vectorizer, predictor

    def __repr__(self) -> str:
        return f"<RowPredictor of the {self.k} best labels>"

    def __call__(self, rows: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return the best labels and their scores."""
        one_row = isinstance(rows, Mapping)
        records = as_records([rows] if one_row else rows, self._vectorizer.columns)
        labels, scores = self._predictor(self._vectorizer.transform(records))
        return (labels[0], scores[0]) if one_row else (labels, scores)


class TableClassifier(TextClassifier):
    """Classifier of table rows with texts, numbers and categories, among very many classes.

    Texts become TF-IDF weighted n-grams as in `TextClassifier`; numbers are scaled to mean 0 and
    standard deviation 1; every value of a category is a feature of its own. Missing numbers are
    replaced by the mean, and a missing category is a value like others. Texts, numbers and
    categories have equal weight, however many columns of each there are.

    Parameters
    ----------
    text : str or sequence of str, default=()
        The text columns. The texts of a row are joined by line breaks.
    number : str or sequence of str, default=()
        The number columns.
    category : str or sequence of str, default=()
        The category columns.
    **parameters
        Parameters of `TextClassifier`, for the texts, and of `LTLSClassifier`.

    Attributes
    ----------
    vectorizer_ : TableVectorizer
        Turns rows into features.
    classes_, trellis_, codebooks_, n_iter_, ...
        As in `LTLSClassifier`.

    Notes
    -----
    `fit`, `predict` and the others take a pandas DataFrame, or a list of dicts, where
    `LTLSClassifier` takes a matrix. Missing values are None, NaN or empty. `save` stores all of it
    in the model file, without pickle. `partial_fit` learns the features from the first batch;
    `fit_stream` makes a pass over all batches for them. With ``normalize="auto"`` rows keep their
    length.

    For other transformers, use a scikit-learn `Pipeline` of a `ColumnTransformer` and an
    `LTLSClassifier`.

    Examples
    --------
    >>> from ltls import TableClassifier
    >>> rows = [
    ...     {"subject": "card lost", "amount": 0, "country": "CH"},
    ...     {"subject": "which fee", "amount": 25.5, "country": None},
    ...     {"subject": "lost my card", "amount": None, "country": "AT"},
    ...     {"subject": "a fee", "amount": 12, "country": "CH"},
    ... ]
    >>> model = TableClassifier(text="subject", number="amount", category="country", random_state=0)
    >>> model = model.fit(rows, ["card", "fee", "card", "fee"])
    >>> model.predict([{"subject": "fees", "amount": 20, "country": "DE"}]).tolist()
    ['fee']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TextClassifier._parameter_constraints,
        **{kind: [str, list, tuple] for kind in KINDS},
    }

    def __init__(
        self,
        text: str | Sequence[str] = (),
        number: str | Sequence[str] = (),
        category: str | Sequence[str] = (),
        **parameters: Any,
    ) -> None:
        for name in parameters:
            if name not in TextClassifier._get_param_names():
                raise TypeError(f"TableClassifier has no parameter {name!r}")
        super().__init__(**parameters)
        self.text = text
        self.number = number
        self.category = category

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted([*TextClassifier._get_param_names(), *KINDS])

    def check_parameters(self) -> None:
        """Raise an error if a parameter is invalid, before any data is read."""
        super().check_parameters()
        self._columns()

    def _columns(self) -> TableColumns:
        given = (getattr(self, kind) for kind in KINDS)
        return TableColumns(*((each,) if isinstance(each, str) else tuple(each) for each in given))

    def _config(self) -> TrainConfig:
        config = super()._config()
        # A length of 1 would make numbers relative to each other.
        return replace(config, normalize=False) if config.normalize == "auto" else config

    def _inputs(self, X: Any) -> Sequence[Record]:
        return as_records(X, self._columns())

    def _new_vectorizer(self, rows: Sequence[Record]) -> TableVectorizer:
        columns, settings = self._columns(), None
        if columns.text:
            settings = self._settings([columns.joined_text(row) for row in rows])
        return TableVectorizer(columns, settings)

    def to_features(self, texts: Any) -> tuple[Any, LTLSClassifier]:
        """Return the features of rows, and a classifier of features with the same parameters."""
        rows, classifier = super().to_features(texts)
        return rows, classifier.set_params(normalize=self._config().normalize)

    def predictor(self, k: int = 5) -> RowPredictor:  # type: ignore[override]
        """Return a thread-safe callable: the k best labels of a row, or of a list of rows.

        It is a snapshot: later training does not change it.

        Returns
        -------
        predictor : RowPredictor
        """
        return RowPredictor(self.vectorizer_, LTLSClassifier.predictor(self, k))

    def _text_vectorizer(self) -> Vectorizer | None:
        texts: Vectorizer | None = self.vectorizer_.texts
        return texts

    def _saved_model(self) -> SavedModel:
        saved = super()._saved_model()
        saved.table = self.vectorizer_.state()
        for kind in KINDS:  # which `table` has
            del saved.parameters[kind]
        return saved


def as_records(X: Any, columns: TableColumns) -> list[Record]:
    """Return the cells of a data frame or of a list of dicts as the vectorizer takes them."""
    if hasattr(X, "columns") and hasattr(X, "iloc"):  # a data frame
        for name in columns.names:
            if name not in X.columns:
                listed = ", ".join(map(repr, map(str, X.columns)))
                raise ValueError(f"X must have a column {name!r}, it has {listed}")
        cells = (X[name].tolist() for name in columns.names)
        rows: list[Any] = [
            dict(zip(columns.names, row, strict=True)) for row in zip(*cells, strict=True)
        ]
    elif isinstance(X, (list, tuple)):
        rows = list(X)
    else:
        raise ValueError(
            f"X must be a data frame or a list of dicts, one per row, got {type(X).__name__}"
        )
    if not rows:
        raise ValueError("X must have at least one row, got none")
    records = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(f"rows must be dicts, row {number} is {repr(row)[:40]}")
        try:
            records.append(columns.read(row))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from None
    return records


TableClassifier.__init__.__signature__ = full_signature(  # type: ignore[attr-defined]
    TableClassifier, TextClassifier
)
