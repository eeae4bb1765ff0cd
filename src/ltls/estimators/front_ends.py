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
    """Classifier of texts among very many classes, by TF-IDF weighted n-grams.

    It is an `LTLSClassifier` whose `features` are `ltls.settings.Text`. Where `LTLSClassifier`
    takes a matrix, it takes a list, array or Series of strings, or an array or DataFrame with
    several texts per row, which are joined by line breaks. `save` stores the vocabulary in the
    model file. `partial_fit` learns the vocabulary and TF-IDF weights from the first batch,
    `fit_stream` in a pass over all batches.

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
        """Return the names of the features.

        Parameters
        ----------
        input_features : ignored
            For compatibility with scikit-learn.

        Returns
        -------
        array of str of shape (n_features,)
            The n-grams; n-grams of characters have the prefix "chars:". For tables also the number
            columns, ``column=value`` for categories, and ``column[0]`` etc. for vectors.
        """
        names = self._model().front_end.feature_names()
        return np.array([name for name, _ in names.values()], object)


class TableClassifier(TextClassifier):
    """Classifier of table rows (texts, numbers, categories, vectors) among very many classes.

    It is an `LTLSClassifier` whose `features` are `ltls.settings.Table`, which name the columns.
    Where `LTLSClassifier` takes a matrix, it takes a data frame or a list of dicts. Missing values
    are None, NaN or empty. For other transformers, use a scikit-learn `Pipeline` of a
    `ColumnTransformer` and an `LTLSClassifier`.

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
