"""Loading estimators from model files."""

from __future__ import annotations

import os

import numpy as np

from ..storage.model_file import load_model
from ..storage.tensor_file import damage_reported
from .classifier import LTLSClassifier
from .front_ends import ESTIMATORS


def load(path: str | os.PathLike[str], mmap: bool = True, verify: bool = False) -> LTLSClassifier:
    """Load an estimator saved by `LTLSClassifier.save`.

    Parameters
    ----------
    path : path-like
        A file written by `LTLSClassifier.save`, ``ltls train`` or ``ltls convert``.
    mmap : bool, default=True
        Memory-map the weights, so that processes share them. Do not modify a mapped file in place:
        predictions would change, and if the file becomes shorter, the process is killed (SIGBUS).
        Instead, rename another file to its name, as `save` does. If False, read the weights into
        memory.
    verify : bool, default=False
        Verify the checksums of all tensors, and that no weight is NaN. This reads the whole file,
        in about one second per gigabyte. The commands ``ltls predict``, ``evaluate``, ``info`` and
        ``serve`` verify by default.

    Returns
    -------
    LTLSClassifier
        Ready to predict; `partial_fit` continues from its weights. It takes the same inputs as the
        saved estimator: numbers, texts or rows of a table.

    Raises
    ------
    ModelFileError
        If the file is not a model, is damaged, or comes from a newer version. A file that the
        operating system cannot read raises an `OSError` instead.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from ltls import LTLSClassifier, load
    >>> X = np.eye(4, dtype=np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.ltls")
    ...     model = LTLSClassifier(random_state=0).set_params(trellises__epochs=20)
    ...     model.fit(X, list("abcd")).save(path)
    ...     load(path, mmap=False).predict(X)
    array(['a', 'b', 'c', 'd'], dtype='<U1')
    """
    fitted, parameters = load_model(path, mmap, verify)
    with damage_reported(path):
        front_end = fitted.model.front_end
        estimator = ESTIMATORS[front_end.name](**parameters)
        estimator.check_own()  # settings of groups were checked on reading
        estimator.fitted_ = fitted
        estimator.n_features_in_ = fitted.model.columns.n_features
        if names := front_end.describe().get("feature_names"):
            estimator.feature_names_in_ = np.array(names, object)
    return estimator
