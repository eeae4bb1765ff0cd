"""What a fitted estimator says: its learned attributes and its answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import as_integer
from ..structure.policies import Codebook
from .validation import checked_features, row_weights
from ..model.labels import Targets, as_targets
from ..model.fitted import Model
from ..model.predictor import Predictor
from ..model.examples import Examples
from ..structure.trellis import Trellis

_MOST_CELLS = 1 << 28  # of a dense result


def _loss_is(*losses: str) -> Any:
    def check(estimator: Answers) -> bool:
        fitted = hasattr(estimator, "_learned")
        loss = estimator._learned.loss if fitted else estimator.loss
        if loss not in (*losses, "auto"):
            raise AttributeError(
                f"only models with loss={' or '.join(map(repr, losses))} have probabilities, "
                f"loss is {loss!r}"
            )
        return True

    return available_if(check)


class Answers:
    """The half of `LTLSClassifier` that needs nothing but what was learned."""

    _learned: Model
    n_jobs: int | None
    loss: str

    # What was learned

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learned")

    def _fitted(self) -> Model:
        if "_learned" not in self.__dict__:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return self._learned

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels, in the order of their ids."""
        return self._fitted().labels.array

    @property
    def trellis_(self) -> Trellis:
        """The graph that every trellis of the model has."""
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
    def coef_(self) -> npt.NDArray[np.float32]:
        """The weights that score, shape (n_trellises · n_edges, n_features)."""
        linear = self._fitted().linear
        return linear.dense()[: linear.n_features].T

    @property
    def intercept_(self) -> npt.NDArray[np.float32]:
        """The intercept of every edge."""
        linear = self._fitted().linear
        weights = linear.dense()
        last: npt.NDArray[np.float32] = weights[-1] if linear.intercept else 0 * weights[0]
        return last

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
        return self._fitted().n_passes

    @property
    def threshold_(self) -> float:
        """The score from which a multi-label `predict` gives a label; it may be set."""
        threshold = self._fitted().threshold
        if threshold is None:
            raise AttributeError("only multi-label models have a threshold")
        return threshold

    @threshold_.setter
    def threshold_(self, threshold: float) -> None:
        if not self.multilabel_:
            raise AttributeError("only multi-label models have a threshold")
        self._learned.threshold = float(threshold)

    # Predicting

    def _check_same_kind(self, targets: Targets) -> None:
        if targets.multilabel != self.multilabel_:
            kinds = ("one label a row", "several labels a row")
            raise ValueError(
                f"y must have {kinds[self.multilabel_]}, as before, got {kinds[targets.multilabel]}"
            )

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return checked_features(self, X, reset=False)

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
        X, linear = self._checked(X), self._learned.linear
        parts = [linear.without_padding(h) for _, h in self._learned.edge_scores(X, self.n_jobs)]
        return np.concatenate(parts)

    def predict_topk(self, X: Any, k: int = 5) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return the k best labels of every row and their scores, best first.

        A score is a sum over the trellises: for loss="softmax" of the log-probability of the
        label's path, for "logistic" of log σ over its edges, for "separation" of its edge scores.
        Where candidates are rescored, the embedding's score is added to it.

        Returns
        -------
        labels, scores : arrays of shape (n_rows, k)
            k is at most the number of classes.

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
        """
        X = self._checked(X)
        ids, scores = self._learned.topk(X, as_integer("k", k, at_least=1), self.n_jobs)
        return self.classes_[ids], scores

    def predictor(self, k: int = 5) -> Predictor:
        """Return a thread-safe callable for services: the k best labels of a row, in microseconds.

        It takes ``(indices, values)`` of one row, ``(indptr, indices, values)`` of several, or a
        CSR matrix, and answers as the model is now, whatever is learned later. For a model that
        was just trained that takes a copy of its weights; one from a file shares them.

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
        return self._learned.predictor(as_integer("k", k, at_least=1))

    def predict(self, X: Any) -> Any:
        """Return the best label of every row; for a multi-label model, an indicator matrix.

        The matrix is dense if y was, else CSR, and has a column for each of `classes_`; a label is
        given where its score reaches `threshold_`. The labels of row i of a CSR result are
        ``classes_[result[[i]].indices]``.

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
        """
        X = self._checked(X)
        if not self.multilabel_:
            return self.classes_[self._learned.topk(X, 1, self.n_jobs)[0][:, 0]]
        matrix = self._predict_rows(X)
        return matrix.toarray() if self._learned.form == "dense" else matrix

    def _predict_rows(self, X: Any) -> Any:
        """Return the labels of a multi-label model as a CSR indicator."""
        model = self._learned
        counts, ids = model.above(X, self.threshold_, model.n_candidates, self.n_jobs)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        shape = (X.shape[0], len(model.labels))
        matrix = csr_array((np.ones(len(ids), np.int64), ids, indptr), shape=shape)
        matrix.sort_indices()
        return matrix

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows that `predict` gets right; with several labels, all of them.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.score(X, ["ant", "bee", "cat", "cow"])
        0.75
        """
        X = self._checked(X)
        targets = as_targets(y)
        if targets.n_rows != X.shape[0]:
            raise ValueError(f"y must have one entry for each of the {X.shape[0]} rows of X")
        self._check_same_kind(targets)
        ids = self._learned.labels.ids(targets)
        if targets.n_columns == len(self._learned.labels):  # the columns of `predict`
            ids = targets.labels
        if targets.multilabel:
            predicted = self._predict_rows(X)
            n_given, n_true = np.diff(predicted.indptr), np.diff(targets.indptr)
            truth = Examples(X, targets.indptr, ids, None, True)
            rows = np.repeat(np.arange(X.shape[0]), n_given)
            hits = truth.contains(rows, predicted.indices[:, None].astype(np.int64))[:, 0]
            found = np.bincount(rows, hits, X.shape[0])
            right = (found == n_given) & (found == n_true)
        else:
            right = self._learned.topk(X, 1, self.n_jobs)[0][:, 0] == ids
        weights = None if sample_weight is None else row_weights(sample_weight, X.shape[0])
        return float(np.average(right, weights=weights))

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the scores of all labels, shape (n_rows, n_classes); see `predict_topk`.

        For two classes and one label a row: how far the second scores above the first, shape
        (n_rows,).

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.decision_function(X).argmax(axis=1)
        array([0, 1, 2, 3])
        """
        scores = self._all_scores(self._checked(X), "decision_function")
        if not self.multilabel_ and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    @_loss_is("softmax", "logistic")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the probabilities of all labels, shape (n_rows, n_classes).

        With "softmax" and for one label a row they are normalised over `classes_`; several
        trellises give the mean of theirs. With "logistic" and several labels a row, each label has
        the product of its edges' probabilities, the geometric mean over the trellises. Where
        candidates are rescored, one label a row has the geometric mean over trellises and
        embedding; several labels have the trellises' alone.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.predict_proba(X).sum(axis=1).round(3)
        array([1., 1., 1., 1.], dtype=float32)
        """
        X = self._checked(X)
        model = self._learned
        n_trellises = len(model.codebooks)
        if model.loss == "logistic" and self.multilabel_:
            scores = self._all_scores(X, "predict_proba", rescored=False)
            return np.exp(np.minimum(scores / n_trellises, 0))
        if model.embedding is None:
            scores = self._all_scores(X, "predict_proba", mean=model.loss == "softmax")
        else:  # all of them are logarithms of probabilities, up to a constant
            scores = self._all_scores(X, "predict_proba")
            scores /= n_trellises + model.embedding.weight
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: npt.NDArray[np.float32] = scores / scores.sum(axis=1, keepdims=True)
        return probabilities

    @_loss_is("softmax", "logistic")  # type: ignore[untyped-decorator]
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

    @_loss_is("softmax")  # type: ignore[untyped-decorator]
    def log_proba(self, X: Any, y: Any) -> npt.NDArray[np.float32]:
        """Return the log-probability of one label per row, in O(log C) each.

        It is the mean of the trellises' probabilities, each normalised over all its paths. Those
        without a label are among them: what they hold is the probability of a label not seen yet.
        Rescoring is left out: its sum over all labels would not be O(log C).

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
        y : one label a row
            A label that was never seen is an error.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> bool((np.exp(model.log_proba(X, ["ant", "bee", "cat", "dog"])) > 0.5).all())
        True
        """
        X = self._checked(X)
        model, targets = self._learned, as_targets(y)
        if targets.multilabel or targets.n_rows != X.shape[0]:
            raise ValueError(f"y must hold one label for each of the {X.shape[0]} rows of X")
        ids = model.labels.ids(targets)
        if (ids < 0).any():
            unknown = np.asarray(targets.labels, object)[int(np.argmax(ids < 0))]
            raise ValueError(f"y must hold labels of classes_, {unknown!r} was never seen")
        decoder = model.decoder(self.n_jobs)
        parts = [decoder.log_proba(h, ids[rows]) for rows, h in model.edge_scores(X, self.n_jobs)]
        return np.concatenate(parts)

    def _all_scores(
        self, X: Any, name: str, mean: bool = False, rescored: bool = True
    ) -> npt.NDArray[np.float32]:
        decoder = self._learned.decoder(self.n_jobs)
        embedding = self._learned.embedding if rescored else None
        if X.shape[0] * decoder.n_labels > _MOST_CELLS:
            raise ValueError(
                f"{name} would make a dense matrix of {X.shape[0]} rows × {decoder.n_labels} "
                "classes; use predict_topk, or fewer rows"
            )
        scores = np.empty((X.shape[0], decoder.n_labels), np.float32)
        for rows, h in self._learned.edge_scores(X, self.n_jobs):
            scores[rows] = decoder.all_log_proba(h) if mean else decoder.all_scores(h)
            if embedding is not None:
                features = embedding.engine_features(X)
                vectors = embedding.row_vectors(features, rows.start, len(h), self.n_jobs)
                scores[rows] += embedding.all_scores(vectors)
        return scores
