"""Loading estimators from model files."""

from __future__ import annotations

import os

from ..features.table import KINDS, TableVectorizer
from ..features.vectorizer import Vectorizer
from ..storage.model_file import SavedModel, load_model
from ..storage.tensor_file import damage_reported
from .classifier import LTLSClassifier
from .table_classifier import TableClassifier
from .text import TextClassifier


def load(path: str | os.PathLike[str], mmap: bool = True, verify: bool = False) -> LTLSClassifier:
    """Load an estimator that `LTLSClassifier.save` has written.

    Parameters
    ----------
    path : path-like
    mmap : bool, default=True
        Memory-map the weights: loading takes no longer for a larger model, and processes share
        its memory. A mapped file must not be changed in place: predictions would change with it,
        and a process that reads beyond the end of a truncated file is killed (SIGBUS). Replace it
        by a rename, as `save` does. False reads the weights into memory, once.
    verify : bool, default=False
        Verify the checksums of all tensors, and that no weight is NaN, which reads the whole file:
        about a second per gigabyte. Otherwise that is done for all but the weights. ``ltls
        predict`` and ``ltls evaluate`` verify unless told otherwise.

    Returns
    -------
    LTLSClassifier
        Ready to predict; `partial_fit` continues from its weights. It is a `TextClassifier`, which
        takes strings, or a `TableClassifier`, if that is what was saved.

    Raises
    ------
    ModelFileError
        If the file is not a model, is damaged, or comes from a newer version. It is the only
        error of a bad file; an `OSError` means that it cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from ltls import LTLSClassifier
    >>> X = np.eye(4, dtype=np.float32)
    >>> from ltls import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.ltls")
    ...     LTLSClassifier(epochs=20, random_state=0).fit(X, list("abcd")).save(path)
    ...     load(path, mmap=False).predict(X)
    array(['a', 'b', 'c', 'd'], dtype='<U1')
    """
    saved = load_model(path, mmap, verify)
    with damage_reported(path):
        estimator = _estimator(saved)
        # A codebook policy need not be registered where its model predicts.
        parameters = {**estimator.get_params(deep=False), "assignment": "random"}
        type(estimator)(**parameters).check_parameters()
        if saved.feature_names:
            estimator._set_feature_names(saved.feature_names)
    return estimator


def _estimator(saved: SavedModel) -> LTLSClassifier:
    """Return the estimator of what a file holds: of features, of texts or of tables."""
    texts = None if saved.text is None else Vectorizer.from_state(*saved.text)
    if saved.table is not None:
        columns = {kind: saved.table[0][kind] for kind in KINDS}
        estimator = TableClassifier.from_model(saved.model, **saved.parameters, **columns)
        estimator.vectorizer_ = TableVectorizer.from_state(*saved.table, texts)
    elif texts is not None:
        estimator = TextClassifier.from_model(saved.model, **saved.parameters)
        estimator.vectorizer_ = texts
    else:
        return LTLSClassifier.from_model(saved.model, **saved.parameters)
    if estimator.vectorizer_.n_features != saved.model.n_features:
        raise ValueError("its n-grams and columns are not the features of its weights")
    return estimator
