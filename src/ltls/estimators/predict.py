"""The predicting half of the estimators: learned attributes and predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import as_integer
from ..features.mapping import FeatureMap
from ..model.examples import Examples
from ..model.fitted import FittedModel
from ..model.labels import as_targets
from ..model.predictor import Predictor
from ..structure.codebook import Codebook
from ..structure.losses import LOSSES, Loss
from ..structure.trellis import Trellis
from ..training.build import check_same_kind
from .among import allowed_labels
from .validation import check_features, check_sample_weight

_MAX_CELLS = 1 << 28  # of a dense result


def _loss_of(estimator: PredictMixin) -> Loss | None:
    """Return the loss of an estimator, fitted or not; None if it depends on the data."""
    if hasattr(estimator, "model_"):
        return estimator.model_.loss
    return LOSSES.get(estimator.loss)


def _has_proba(estimator: PredictMixin) -> bool:
    loss = _loss_of(estimator)
    if loss is not None and not loss.probabilistic:
        raise AttributeError(f"models with loss={loss.name!r} have no probabilities")
    return True


def _has_log_proba(estimator: PredictMixin) -> bool:
    loss = _loss_of(estimator)
    if loss is not None and not loss.normalized:
        raise AttributeError(
            f"only models with loss='softmax' are normalized over all paths, loss is {loss.name!r}"
        )
    return True


class PredictMixin:
    """Learned attributes and predictions of `LTLSClassifier`."""

    model_: FittedModel
    n_jobs: int | None
    loss: str

    # Learned attributes

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__

    def _fitted(self) -> FittedModel:
        if "model_" not in self.__dict__:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self.model_

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels, in the order of their ids."""
        return self._fitted().labels.array

    @property
    def trellis_(self) -> Trellis:
        """The graph of all trellises."""
        return self._fitted().trellis

    @property
    def codebooks_(self) -> list[Codebook]:
        """The codebook of every trellis."""
        return self._fitted().codebooks

    @property
    def codebook_(self) -> Codebook:
        """The codebook of the first trellis."""
        return self._fitted().codebooks[0]

    @property
    def coef_(self) -> Any:
        """The weights, shape (n_trellises · n_edges, n_features).

        A sparse array if few of the features occur in training.
        """
        model = self._fitted()
        coef = model.weights.dense()[: model.weights.n_features].T
        if model.standardizer is not None:
            return model.standardizer.fold(coef, 0)[0].astype(np.float32)
        if model.feature_map is None:
            return coef
        return self._of_all_features(model.feature_map, coef)

    @property
    def intercept_(self) -> npt.NDArray[np.float32]:
        """The intercept of every edge."""
        model = self._fitted()
        rows = model.weights.dense()
        intercept: npt.NDArray[np.float32] = rows[-1] if model.weights.intercept else 0 * rows[0]
        if model.standardizer is not None:
            coef = rows[: model.weights.n_features].T
            intercept = model.standardizer.fold(coef, intercept)[1].astype(np.float32)
        return intercept

    @property
    def label_coef_(self) -> csr_array | None:
        """The label weights, shape (n_classes, n_features); None if there are none."""
        model = self._fitted()
        if model.label_weights is None:
            return None
        W = model.label_weights.matrix()[:, :-1]
        if model.standardizer is not None:
            return csr_array(model.standardizer.fold(W.toarray(), 0)[0].astype(np.float32))
        return W if model.feature_map is None else self._of_all_features(model.feature_map, W)

    @property
    def label_intercept_(self) -> npt.NDArray[np.float32] | None:
        """The intercepts of the label weights, shape (n_classes,); None if there are none."""
        model = self._fitted()
        if model.label_weights is None:
            return None
        W = model.label_weights.matrix()
        intercept: npt.NDArray[np.float32] = W[:, [-1]].toarray()[:, 0]
        if model.standardizer is not None:
            coef = W[:, :-1].toarray()
            intercept = model.standardizer.fold(coef, intercept)[1].astype(np.float32)
        return intercept

    @staticmethod
    def _of_all_features(feature_map: FeatureMap, coef: Any) -> csr_array:
        """Return weights of the features that occur as a sparse array of all features."""
        found = coo_array(coef[:, :-1])
        shape = (coef.shape[0], feature_map.n_features)
        return csr_array((found.data, (found.row, feature_map.used[found.col])), shape=shape)

    @property
    def multilabel_(self) -> bool:
        """Whether rows may have several labels."""
        return self._fitted().multilabel

    @property
    def loss_curve_(self) -> list[float]:
        """The mean loss of every epoch."""
        return self._fitted().loss_curve

    @property
    def n_iter_(self) -> int:
        """The number of epochs run."""
        return self._fitted().n_epochs

    @property
    def threshold_(self) -> float:
        """The score from which a multi-label `predict` returns a label; may be set."""
        threshold = self._fitted().threshold
        if threshold is None:
            raise AttributeError("only multi-label models have a threshold")
        return threshold

    @threshold_.setter
    def threshold_(self, threshold: float) -> None:
        if not self.multilabel_:
            raise AttributeError("only multi-label models have a threshold")
        self.model_.threshold = float(threshold)

    # Prediction

    def _checked(self, X: Any) -> tuple[Any, FittedModel]:
        """Return rows as the model takes them, and the model.

        A prediction uses this model throughout, while another thread may replace it.
        """
        check_is_fitted(self)
        model = self.model_
        return model.compact(check_features(self, X, reset=False)), model

    def edge_scores(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the scores of all edges, shape (n_rows, n_trellises · n_edges).

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> scores = model.edge_scores(X)
        >>> scores.shape == (4, len(model.codebooks_) * model.trellis_.n_edges)
        True
        """
        X, model = self._checked(X)
        parts = [model.weights.without_padding(h) for _, h in model.edge_scores(X, self.n_jobs)]
        return np.concatenate(parts)

    def predict_topk(
        self, X: Any, k: int = 5, proba: bool = False, *, among: Any = None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return the k best labels of every row and their scores, best first.

        A score is a sum over the trellises: for loss="softmax" of the log-probability of the
        label's path, for "logistic" of log σ over its edges, for "separation" of its edge scores.
        The embedding, if there is one, adds its own score. With label weights, the score is
        −max(0, 1 − s)³ + weight · sum, where s is the output of the label's classifier.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
        k : int, default=5
        proba : bool, default=False
            Return the probabilities of the k best labels, sorted by them, instead of scores.
        among : optional
            Allow only these labels: a list or array of labels, or one such list per row. A boolean
            array of shape (n_classes,), or (n_rows, n_classes), or a sparse matrix of that shape,
            is a mask over `classes_`. The result is the exact top k of `decision_function` among
            them, at a cost proportional to their number. Probabilities are those given that the
            label is one of them: for one label per row, they sum to 1 over the allowed labels. A
            calibrated model with buckets computes them from the allowed labels alone, so that they
            can differ from those of `predict_proba` scaled to sum to 1.

        Notes
        -----
        With label weights or an embedding, only the trellises' best candidates are reranked. Their
        scores are exact, but a label that is not among the candidates can be missing, above all
        where k is large. ``among=model.classes_`` scores all labels. With more than 10,000 labels,
        calibrated probabilities are normalized over the candidates.

        Returns
        -------
        labels, scores : arrays of shape (n_rows, k)
            k is at most the number of classes, or of allowed labels. Where a row has fewer than k
            allowed labels, the rest is None with score −inf, or probability 0.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> labels, scores = model.predict_topk(X, k=2)
        >>> labels[:, 0]
        array(['ant', 'bee', 'cat', 'dog'], dtype='<U3')
        >>> bool((scores[:, 0] > scores[:, 1]).all())
        True
        >>> labels, scores = model.predict_topk(X[:1], k=1, among=["bee", "dog"])
        >>> labels[0, 0] in ("bee", "dog")
        True
        """
        X, model = self._checked(X)
        k = as_integer("k", k, at_least=1)
        allowed = None if among is None else allowed_labels(among, model.labels, X.shape[0])
        ids, scores = model.topk_among(X, k, allowed, self.n_jobs)
        if proba:
            _has_proba(self)
            scores = model.proba_among(X, ids, allowed, self.n_jobs)
            order = np.argsort(-scores, axis=1, kind="stable")
            ids = np.take_along_axis(ids, order, axis=1)
            scores = np.take_along_axis(scores, order, axis=1)
        labels = model.labels.array[ids]
        if allowed is not None and (ids < 0).any():
            labels = labels.astype(object)
            labels[ids < 0] = None
        return labels, scores

    def predictor(self, k: int = 5) -> Predictor:
        """Return a thread-safe callable with low latency: the k best labels of a row.

        It takes ``(indices, values)`` of one row, ``(indptr, indices, values)`` of several, or a
        CSR matrix. It is a snapshot: later training does not change it.

        Returns
        -------
        predictor : Predictor

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> predictor = model.predictor(k=2)
        >>> labels, scores = predictor(np.array([2], np.int32), np.array([1], np.float32))
        >>> labels.tolist()[0]
        'cat'
        """
        check_is_fitted(self)
        return self.model_.predictor(as_integer("k", k, at_least=1))

    def predict(self, X: Any, output: str = "auto") -> Any:
        """Return the best label of every row; for a multi-label model, an indicator matrix.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
        output : {"auto", "lists"}, default="auto"
            "lists" returns a list of the labels of every row, the best first, as `fit` takes them.

        Returns
        -------
        array, matrix or list of lists
            The matrix is dense if y was, else CSR, and has a column for each of `classes_`; it is 1
            where the score of a label reaches `threshold_`. The labels of row i of a CSR result
            are ``classes_[result[[i]].indices]``.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.predict(X[:2])
        array(['ant', 'bee'], dtype='<U3')
        >>> tagger = LTLSClassifier(epochs=20, random_state=0)
        >>> tagger = tagger.fit(X, np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]]))
        >>> tagger.predict(X[:2])
        array([[1, 0, 0],
               [1, 1, 0]])
        >>> tagger.predict(X[:1], output="lists")
        [[0]]
        """
        if output not in ("auto", "lists"):
            raise ValueError(f"output must be 'auto' or 'lists', got {output!r}")
        X, model = self._checked(X)
        if output == "lists":
            return self._predict_lists(X, model)
        if not model.multilabel:
            return model.labels.array[model.topk(X, 1, self.n_jobs)[0][:, 0]]
        matrix = self._predict_rows(X, model)
        return matrix.toarray() if model.target_format == "dense" else matrix

    def _predict_lists(self, X: Any, model: FittedModel) -> list[list[Any]]:
        """Return the labels of every row, best first."""
        labels = model.labels.values
        if not model.multilabel:
            return [[labels[best]] for best in model.topk(X, 1, self.n_jobs)[0][:, 0].tolist()]
        assert model.threshold is not None
        counts, ids = model.above(X, model.threshold, self.n_jobs)
        rows = np.split(ids, np.cumsum(counts)[:-1])
        return [[labels[each] for each in row.tolist()] for row in rows]

    def _predict_rows(self, X: Any, model: FittedModel) -> Any:
        """Return the predictions of a multi-label model as a CSR indicator matrix."""
        assert model.threshold is not None
        counts, ids = model.above(X, model.threshold, self.n_jobs)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        shape = (X.shape[0], len(model.labels))
        matrix = csr_array((np.ones(len(ids), np.int64), ids, indptr), shape=shape)
        matrix.sort_indices()
        return matrix

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`; for several labels per row, the subset accuracy.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.score(X, ["ant", "bee", "cat", "cow"])
        0.75
        """
        X, model = self._checked(X)
        targets = as_targets(y)
        if targets.n_rows != X.shape[0]:
            raise ValueError(
                f"y must have one entry for each of the {X.shape[0]} rows of X, got "
                f"{targets.n_rows}"
            )
        check_same_kind(model, targets)
        ids = model.labels.ids(targets)
        if targets.n_columns == len(model.labels):  # the columns of `predict`
            ids = targets.labels
        if targets.multilabel:
            predicted = self._predict_rows(X, model)
            n_given, n_true = np.diff(predicted.indptr), np.diff(targets.indptr)
            truth = Examples(X, targets.indptr, ids, None, True)
            rows = np.repeat(np.arange(X.shape[0]), n_given)
            hits = truth.contains(rows, predicted.indices[:, None].astype(np.int64))[:, 0]
            found = np.bincount(rows, hits, X.shape[0])
            right = (found == n_given) & (found == n_true)
        else:
            right = model.topk(X, 1, self.n_jobs)[0][:, 0] == ids
        weights = None if sample_weight is None else check_sample_weight(sample_weight, X.shape[0])
        return float(np.average(right, weights=weights))

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the scores of all labels, shape (n_rows, n_classes); see `predict_topk`.

        For two classes and one label per row: the score of the second minus that of the first,
        shape (n_rows,).

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.decision_function(X).argmax(axis=1)
        array([0, 1, 2, 3])
        """
        X, model = self._checked(X)
        _check_dense_result(X, model, "decision_function")
        scores = model.all_scores(X, self.n_jobs)
        if not model.multilabel and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    @available_if(_has_proba)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the probabilities of all labels, shape (n_rows, n_classes).

        They are calibrated on held-out rows, see `calibrate`. Those of one label per row sum to 1
        over `classes_`, and the most probable label is the one that `predict` returns (if
        propensity=0). Those of several labels per row are independent of each other.

        Without a calibration, those of a model with loss="softmax" and nothing but trellises are
        the mean of the trellises' probabilities; `predict` ranks by the sum of their logarithms, so
        that it may return another label than the most probable one. All others are the exponentials
        of `decision_function`, where there are no label weights of its mean over trellises and
        embedding; for one label per row normalized to sum to 1.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.predict_proba(X).sum(axis=1).round(3)
        array([1., 1., 1., 1.], dtype=float32)
        """
        X, model = self._checked(X)
        _check_dense_result(X, model, "predict_proba")
        return model.proba(X, self.n_jobs)

    @available_if(_has_proba)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the logarithm of `predict_proba`.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> bool(np.allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X)))
        True
        """
        with np.errstate(divide="ignore"):
            logarithms: npt.NDArray[np.float32] = np.log(self.predict_proba(X))
        return logarithms

    @available_if(_has_log_proba)  # type: ignore[untyped-decorator]
    def log_proba(self, X: Any, y: Any) -> npt.NDArray[np.float32]:
        """Return the log-probability of one label per row, in O(log C) each.

        It is the mean of the trellises' probabilities, each normalized over all its paths. Free
        paths are included: their mass is the probability of a label not seen yet. Embedding and
        label weights are not, since their normalization would not be O(log C); but if labels share
        paths, it is the logarithm of `predict_proba`.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
        y : one label per row
            Labels that were not seen in training raise an error.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> bool((np.exp(model.log_proba(X, ["ant", "bee", "cat", "dog"])) > 0.5).all())
        True
        """
        X, model = self._checked(X)
        targets = as_targets(y)
        if targets.multilabel or targets.n_rows != X.shape[0]:
            given = "several labels per row" if targets.multilabel else f"{targets.n_rows} labels"
            raise ValueError(
                f"y must have one label for each of the {X.shape[0]} rows of X, got {given}"
            )
        ids = model.labels.ids(targets)
        if (ids < 0).any():
            unknown = model.labels.first_unknown(targets)
            raise ValueError(f"y must have labels of classes_, got {unknown!r}")
        return model.log_proba(X, ids, self.n_jobs)


def _check_dense_result(X: Any, model: FittedModel, name: str) -> None:
    n_labels = len(model.labels)
    if X.shape[0] * n_labels > _MAX_CELLS:
        raise ValueError(
            f"{name} would return a dense matrix of {X.shape[0]} rows × {n_labels} classes; "
            "use predict_topk, or fewer rows"
        )
