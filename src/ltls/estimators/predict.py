"""Learned attributes and predictions of the estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from ..core.arrays import AnyArray, Floats, Ints, as_integer, pointers
from ..features.rows import Rows, check_features
from ..model.among import allowed_labels
from ..model.examples import subset_accuracy
from ..model.labels import as_targets
from ..model.model import Fitted, Model
from ..model.predictor import Predictor
from ..structure.codebook import Codebook
from ..structure.losses import LOSSES
from ..structure.trellis import Trellis

_MAX_CELLS = 1 << 28  # of a dense result


def _has_proba(estimator: Predictions) -> bool:
    if "fitted_" in estimator.__dict__:
        found = estimator.fitted_.model.probabilistic
    else:
        trellises = getattr(estimator, "trellises", None)
        loss = LOSSES.get(getattr(trellises, "loss", "auto"))
        found = loss is None or loss.probabilistic
    if not found:
        raise AttributeError("loss='separation' has no probabilities; use trellises__loss='auto'")
    return True


class Predictions:
    """Labels and predictions of an estimator with a fitted model."""

    fitted_: Fitted
    n_jobs: int | None

    def __sklearn_is_fitted__(self) -> bool:
        return "fitted_" in self.__dict__

    def _model(self) -> Model:
        """Return the model. Call it once per prediction: another thread may replace the model."""
        fitted = self.__dict__.get("fitted_")
        if fitted is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        model: Model = fitted.model
        return model

    @property
    def classes_(self) -> AnyArray:
        """The labels, in the order of their ids."""
        return self._model().classes

    @property
    def multilabel_(self) -> bool:
        """Whether rows may have several labels."""
        return self._model().multilabel

    @property
    def threshold_(self) -> float:
        """The lowest score at which a multi-label `predict` returns a label; can be set."""
        threshold = self._model().calibration.threshold
        if threshold is None:
            raise AttributeError("only multi-label models have a threshold")
        return threshold

    @threshold_.setter
    def threshold_(self, threshold: float) -> None:
        if not self.multilabel_:
            raise AttributeError("only multi-label models have a threshold")
        model = self._model().with_threshold(float(threshold))
        self.fitted_ = replace(self.fitted_, model=model)

    # Prediction

    def _rows(self, X: Any) -> tuple[Any, Model]:
        """Return rows in the form that the model takes, and the model."""
        raise NotImplementedError

    def predict_topk(
        self, X: Any, k: int = 5, proba: bool = False, *, among: Any = None
    ) -> tuple[AnyArray, Floats]:
        """Return the k best labels of every row and their scores, best first.

        The score of a label is the weighted sum of its scores in the parts of the model, which
        `explain` shows. Every trellis contributes the log-probability of the label's path
        (loss="softmax"), the sum of log σ over the edges of the path ("logistic"), or the sum of
        their scores ("separation").

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
            Or texts, or rows of a table; see `fit`.
        k : int, default=5
            Number of labels per row.
        proba : bool, default=False
            Return probabilities instead of scores, and sort the k best labels by them.
        among : optional
            Allow only these labels: a list or array of labels, or one such list per row. A boolean
            array of shape (n_classes,) or (n_rows, n_classes), or a sparse matrix of that shape,
            is a mask over `classes_`. The result is the exact top k of `decision_function` over the
            allowed labels, at a cost proportional to their number. For one label per row,
            probabilities are divided by their sum over the allowed labels.

        Returns
        -------
        labels, scores : arrays of shape (n_rows, k)
            k is at most the number of classes, or of allowed labels. Rows with fewer than k allowed
            labels are padded with None, and with score −inf or probability 0.

        Notes
        -----
        With up to 2,048 labels, all labels are scored. With more, some parts propose 50 candidates
        each, and all parts score all candidates. All other labels rank below the candidates. A
        model of trellises alone always finds the k best of all labels.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> labels, scores = model.predict_topk(X, k=2)
        >>> labels[:, 0]
        array(['ant', 'bee', 'cat', 'dog'], dtype='<U3')
        >>> bool((scores[:, 0] > scores[:, 1]).all())
        True
        >>> labels, scores = model.predict_topk(X[:1], k=1, among=["bee", "dog"])
        >>> labels[0, 0] in ("bee", "dog")
        True
        """
        rows, model = self._rows(X)
        k = as_integer("k", k, at_least=1)
        allowed = None if among is None else allowed_labels(among, model.labels, len(rows))
        ids, scores = model.topk_among(rows, k, allowed, self.n_jobs)
        if proba:
            _has_proba(self)
            scores = model.proba_among(rows, ids, allowed, self.n_jobs)
            order = np.argsort(-scores, axis=1, kind="stable")
            ids = np.take_along_axis(ids, order, axis=1)
            scores = np.take_along_axis(scores, order, axis=1)
        labels = model.classes[ids]
        if allowed is not None and (ids < 0).any():
            labels = labels.astype(object)
            labels[ids < 0] = None
        return labels, scores

    def predict(self, X: Any, output: str = "auto") -> Any:
        """Return the best label of every row; for a multi-label model, an indicator matrix.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
            Or texts, or rows of a table; see `fit`.
        output : {"auto", "lists"}, default="auto"
            "lists" returns a list of labels per row, best first, which is a valid y of `fit`.

        Returns
        -------
        array of shape (n_rows,), matrix of shape (n_rows, n_classes), or list of lists
            The indicator matrix of a multi-label model is 1 where the score of a label reaches
            `threshold_`. It is a dense array if the y of `fit` was one, and a CSR array otherwise;
            the labels of row i are then ``classes_[result[[i]].indices]``.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.predict(X[:2])
        array(['ant', 'bee'], dtype='<U3')
        >>> tagger = LTLSClassifier(random_state=0).set_params(trellises__epochs=20)
        >>> tagger = tagger.fit(X, np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]]))
        >>> tagger.predict(X[:2])
        array([[1, 0, 0],
               [1, 1, 0]])
        >>> tagger.predict(X[:1], output="lists")
        [[0]]
        """
        if output not in ("auto", "lists"):
            raise ValueError(f"output must be 'auto' or 'lists', got {output!r}")
        rows, model = self._rows(X)
        if not model.multilabel:
            best = model.topk(rows, 1, self.n_jobs)[0][:, 0]
            if output == "lists":
                return [[model.labels.values[each]] for each in best.tolist()]
            return model.classes[best]
        matrix, lists = self._predict_matrix(rows, model)
        if output == "lists":
            return [[model.labels.values[each] for each in row.tolist()] for row in lists]
        return matrix.toarray() if model.target_format == "dense" else matrix

    def _predict_matrix(self, rows: Rows, model: Model) -> tuple[Any, list[Ints]]:
        """Return the predictions of a multi-label model: an indicator matrix, and lists of ids."""
        counts, ids = model.above(rows, self.threshold_, self.n_jobs)
        indptr = pointers(counts)
        shape = (len(rows), model.n_labels)
        matrix = csr_array((np.ones(len(ids), np.int64), ids, indptr), shape=shape)
        lists = np.split(ids, indptr[1:-1])
        matrix = matrix.copy()
        matrix.sort_indices()
        return matrix, lists

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`; for several labels per row, the subset accuracy.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
            Or texts, or rows of a table; see `fit`.
        y : array-like or sparse matrix
            The true labels, as for `fit`. They may include labels that were not in training.
        sample_weight : array of shape (n_rows,), optional
            Weights of the rows.

        Returns
        -------
        float
            The fraction of rows that are predicted correctly: for several labels per row, those
            whose predicted labels are exactly the true ones.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.score(X, ["ant", "bee", "cat", "cow"])
        0.75
        """
        rows, model = self._rows(X)
        targets = as_targets(y)
        targets.check_rows(len(rows))
        targets.check_kind(model.multilabel)
        if targets.multilabel:
            lists = self._predict_matrix(rows, model)[1]
            found = np.full((len(rows), max(map(len, lists), default=0)), -1, np.int64)
            for row, own in zip(found, lists, strict=True):
                row[: len(own)] = own
        else:
            found = model.topk(rows, 1, self.n_jobs)[0]
        return subset_accuracy(model.labels, targets, found, sample_weight)

    def decision_function(self, X: Any) -> Floats:
        """Return the scores of all labels; see `predict_topk`.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
            Or texts, or rows of a table; see `fit`.

        Returns
        -------
        float32 array of shape (n_rows, n_classes)
            For two classes and one label per row: the score of the second class minus that of the
            first, shape (n_rows,).

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.decision_function(X).argmax(axis=1)
        array([0, 1, 2, 3])
        """
        rows, model = self._rows(X)
        _check_dense_result(rows, model, "decision_function")
        scores = model.all_scores(rows, self.n_jobs)
        if not model.multilabel and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    @available_if(_has_proba)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of all labels.

        They are calibrated on held-out rows; see `calibration`. For one label per row, they sum to
        1 over `classes_`, and the most probable label is the one that `predict` returns, unless the
        model has a `propensity`. For several labels per row, every label has its own probability.
        With more than 2,048 labels, the labels that are not candidates (see `predict_topk`) share
        the probability that a true label is not a candidate, which is estimated on held-out rows.
        Without calibration, probabilities are the softmax of the scores; for several labels per row
        and loss="logistic", they are exp(score), at most 1. A model of trellises alone uses the
        mean score over its trellises.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
            Or texts, or rows of a table; see `fit`.

        Returns
        -------
        float32 array of shape (n_rows, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.predict_proba(X).sum(axis=1).round(3)
        array([1., 1., 1., 1.], dtype=float32)
        """
        rows, model = self._rows(X)
        _check_dense_result(rows, model, "predict_proba")
        return model.proba(rows, self.n_jobs)

    @available_if(_has_proba)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of `predict_proba`, which takes the same X.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> bool(np.allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X)))
        True
        """
        with np.errstate(divide="ignore"):
            logarithms: Floats = np.log(self.predict_proba(X))
        return logarithms

    @available_if(_has_proba)  # type: ignore[untyped-decorator]
    def log_proba(self, X: Any, y: Any) -> Floats:
        """Return the log-probability of one given label per row, as in `predict_proba`.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
            Or texts, or rows of a table; see `fit`.
        y : array-like of shape (n_rows,)
            One label per row. Labels that were not seen in training raise an error.

        Returns
        -------
        float32 array of shape (n_rows,)

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> bool((np.exp(model.log_proba(X, ["ant", "bee", "cat", "dog"])) > 0.3).all())
        True
        """
        rows, model = self._rows(X)
        ids = _one_label_per_row(model, y, len(rows))
        with np.errstate(divide="ignore"):
            return np.log(model.proba_of(rows, ids[:, None], self.n_jobs)[:, 0])


class PredictMixin(Predictions):
    """Learned attributes and predictions of `LTLSClassifier`."""

    @property
    def model_(self) -> Model:
        """The fitted model."""
        return self._model()

    @property
    def plan_(self) -> str:
        """Which parts were trained, which of them were left out, and why."""
        self._model()
        return self.fitted_.provenance.recipe

    @property
    def trellis_(self) -> Trellis:
        """The graph, which is the same for all trellises."""
        return self._model().trellises()[0].trellis

    @property
    def codebooks_(self) -> list[Codebook]:
        """The codebooks of all trellises, view by view."""
        return [book for part in self._model().trellises() for book in part.codebooks]

    @property
    def coef_(self) -> Any:
        """The weights of the trellises, shape (n_trellises · n_edges, n_features).

        A sparse array if few of the features occur in the training data.
        """
        model = self._model()
        dense = [part.weights.dense()[: part.weights.n_features].T for part in model.trellises()]
        return model.columns.of_all_features(np.concatenate(dense))

    @property
    def intercept_(self) -> Floats:
        """The intercept of every edge."""
        model, found = self._model(), []
        for part in model.trellises():
            rows = part.weights.dense()
            own = rows[-1] if part.weights.intercept else 0 * rows[0]
            found.append(model.columns.folded_intercept(rows[: part.weights.n_features].T, own))
        return np.concatenate(found)

    @property
    def loss_curve_(self) -> list[float]:
        """The mean loss of every epoch."""
        self._model()
        return self.fitted_.provenance.loss_curve

    @property
    def held_out_precision_(self) -> float | None:
        """P@1 on the rows that the weights of the parts were chosen on; None if none were held out.

        Afterwards, `fit` also trains on these rows. A test score is usually lower, since test rows
        may have labels without training rows.
        """
        self._model()
        return self.fitted_.provenance.held_out_precision

    @property
    def n_iter_(self) -> int:
        """The number of epochs run."""
        self._model()
        return self.fitted_.provenance.n_epochs

    # Prediction

    def _rows(self, X: Any) -> tuple[Rows, Model]:
        """Return rows in the form that the model takes, and the model."""
        model = self._model()
        features = check_features(self, model.front_end.matrix(X, self.n_jobs), reset=False)
        return model.columns.rows(features), model

    def edge_scores(self, X: Any) -> Floats:
        """Return the scores of all edges of all trellises, shape (n_rows, n_trellises · n_edges).

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> scores = model.edge_scores(X)
        >>> scores.shape == (4, len(model.codebooks_) * model.trellis_.n_edges)
        True
        """
        rows, model = self._rows(X)
        parts = model.trellises()
        found = [p.weights.without_padding(p.edge_scores(rows, self.n_jobs)) for p in parts]
        return np.concatenate(found, axis=1)

    def predictor(self, k: int = 5) -> Predictor:
        """Return a callable that predicts the k best labels of one row, from any thread.

        It is a snapshot: later training does not change it.

        Parameters
        ----------
        k : int, default=5
            Number of labels per row.

        Returns
        -------
        predictor : Predictor
            Call it with one row (a text, a table row or, for numeric features, the indices and the
            values of the non-zero features) or with several, as for `predict`.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> predictor = model.predictor(k=2)
        >>> labels, scores = predictor(np.array([2], np.int32), np.array([1], np.float32))
        >>> labels.tolist()[0]
        'cat'
        """
        self._model()
        return Predictor(self, as_integer("k", k, at_least=1))

    def path_log_proba(self, X: Any, y: Any) -> Floats:
        """Return the log-probability of the path of one given label per row, in O(log C).

        The probability is the mean over the trellises, each normalized over all its paths. That
        includes free paths, which have no label: their probability, 1 − Σ exp(path_log_proba) over
        all labels, is that of a label not seen yet. Other parts are ignored, since normalizing them
        would not be O(log C). Requires ``views=False``, so that every label has a path, and
        ``trellises__loss="softmax"``.

        Parameters
        ----------
        X, y
            As in `log_proba`.

        Returns
        -------
        array of shape (n_rows,)

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).partial_fit(X, ["ant", "bee", "cat", "dog"])
        >>> known = [model.path_log_proba(X[:1], [label]) for label in model.classes_]
        >>> bool(0 < 1 - np.exp(known).sum() < 1)  # four of eight paths are free
        True
        """
        rows, model = self._rows(X)
        part = model.part("trellises")
        if part is None or not part.loss.normalized:
            raise AttributeError(
                "path_log_proba needs a path for every label and loss='softmax': fit with "
                "views=False and trellises__loss='softmax'"
            )
        ids = _one_label_per_row(model, y, len(rows))
        return part.path_log_proba(rows, ids[:, None], self.n_jobs)[:, 0]  # type: ignore[no-any-return]


def _one_label_per_row(model: Model, y: Any, n_rows: int) -> Ints:
    targets = as_targets(y)
    if targets.multilabel or targets.n_rows != n_rows:
        given = "several labels per row" if targets.multilabel else f"{targets.n_rows} labels"
        raise ValueError(f"y must have one label for each of the {n_rows} rows of X, got {given}")
    ids = model.labels.ids(targets)
    if (ids < 0).any():
        unknown = model.labels.first_unknown(targets)
        raise ValueError(f"y must contain only labels in classes_, got {unknown!r}")
    return ids


def _check_dense_result(rows: Rows, model: Model, name: str) -> None:
    n_labels = model.n_labels
    if len(rows) * n_labels > _MAX_CELLS:
        raise ValueError(
            f"{name} would return a dense matrix of {len(rows)} rows × {n_labels} classes; "
            "use predict_topk, or fewer rows"
        )
