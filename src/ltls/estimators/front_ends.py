"""Estimators of texts and of tables: `LTLSClassifier` with another front end."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..core.arrays import AnyArray
from ..features.front_ends import FrontEndSettings
from ..features.table import Table
from ..features.text import Text
from .classifier import LTLSClassifier


class TextClassifier(LTLSClassifier):
    """Text classifier among very many classes: n-grams, TF-IDF, then an `LTLSClassifier`.

    It is an `LTLSClassifier` whose `features` are `ltls.settings.Text`: `fit`, `predict` and the
    others take a list, array or Series of strings (or an array or DataFrame with several texts per
    row, which are joined by line breaks) where `LTLSClassifier` takes a matrix. `save` stores the
    vocabulary in the model file. `partial_fit` learns vocabulary and TF-IDF weights from the first
    batch; `fit_stream` makes a pass over all batches for them.

    Examples
    --------
    >>> from ltls import TextClassifier
    >>> texts = ["the card is lost", "lost my card", "what is the fee", "a fee was charged"]
    >>> model = TextClassifier(random_state=0).fit(texts, ["card", "card", "fee", "fee"])
    >>> model.predict(["cards get lost", "why these fees?"]).tolist()
    ['card', 'fee']
    """

    default_features: ClassVar[type[FrontEndSettings]] = Text

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Return the feature names: n-grams, with the prefix "chars:" for character n-grams.

        Parameters
        ----------
        input_features : ignored
            For compatibility with scikit-learn.
        """
        names = self._model().front_end.feature_names()
        return np.array([name for name, _ in names.values()], object)


class TableClassifier(TextClassifier):
    """Classifier of rows with texts, numbers, categories and vectors, among very many classes.

    It is an `LTLSClassifier` whose `features` are `ltls.settings.Table`, which name the columns:
    `fit`, `predict` and the others take a data frame, or a list of dicts, where
    `LTLSClassifier` takes a matrix. Missing values are None, NaN or empty. For other transformers,
    use a scikit-learn `Pipeline` of a `ColumnTransformer` and an `LTLSClassifier`.

    Examples
    --------
    >>> from ltls import TableClassifier
    >>> from ltls.settings import Table
    >>> rows = [
    ...     {"subject": "card lost", "amount": 0, "country": "CH"},
    ...     {"subject": "which fee", "amount": 25.5, "country": None},
    ...     {"subject": "lost my card", "amount": None, "country": "AT"},
    ...     {"subject": "a fee", "amount": 12, "country": "CH"},
    ... ]
    >>> columns = Table(text="subject", number="amount", category="country")
    >>> model = TableClassifier(features=columns, random_state=0)
    >>> model = model.fit(rows, ["card", "fee", "card", "fee"])
    >>> model.predict([{"subject": "fees", "amount": 20, "country": "DE"}]).tolist()
    ['fee']
    """

    default_features: ClassVar[type[FrontEndSettings]] = Table


ESTIMATORS = {"features": LTLSClassifier, "text": TextClassifier, "table": TableClassifier}
