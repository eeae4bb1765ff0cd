"""LTLSClassifier: classification among very many classes as a scikit-learn estimator."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from .arrays import as_integer
from .assignment import POLICIES, Codebook, assign
from .codebook import RandomCodebook, TableCodebook
from .decoding import Decoder, best_threshold
from .labels import Labels, Targets, as_targets
from .linear import Learner, LinearModel, engine_features
from .training import Examples, Training
from .trellis import Trellis

_ROWS_AT_A_TIME = 4096
_THRESHOLD_ROWS = 10_000
_MOST_CELLS = 1 << 28  # of a dense result


def _loss_is(*losses: str) -> Any:
    def check(estimator: LTLSClassifier) -> bool:
        if estimator.loss not in losses:
            raise AttributeError(
                f"only models with loss={' or '.join(map(repr, losses))} have probabilities, "
                f"loss is {estimator.loss!r}"
            )
        return True

    return available_if(check)


def _weights(sample_weight: Any, n_rows: int) -> npt.NDArray[np.float32]:
    weights: npt.NDArray[np.float32] = check_array(
        np.asarray(sample_weight), ensure_2d=False, dtype=np.float32, input_name="sample_weight"
    )
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected ({n_rows},): one weight a row"
        )
    if (weights < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`")
    return weights


class LTLSClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear classifier that learns and predicts in time logarithmic in the number of classes.

    Every class is a path through a trellis, and a linear model scores its O(log C) edges.

    Parameters
    ----------
    width : int, default=2
        States per slice of the trellis, at least 2. Wider is larger, slower and more accurate.
    loss : {"softmax", "separation", "logistic"}, default="softmax"
        "softmax" normalises over all classes and has probabilities; best for one label per row.
        "separation" is the paper's ranking loss. "logistic" learns every edge by itself; best for
        several labels per row.
    assignment : {"random", "ranking", "similarity", "frequency"} or a codebook, default="random"
        Which path each label gets. "ranking" is the paper's: the best free path when the label is
        first seen. "random" needs no memory. "similarity" lets labels with similar examples share
        edges. "frequency" gives frequent labels short paths. A `TableCodebook` or `RandomCodebook`
        is used for the labels in the order of `classes_`.
    epochs : int, default=5
        Passes over the rows.
    learning_rate : float, default=0.3
        The step size.
    optimizer : {"adagrad", "sgd"}, default="adagrad"
        Plain SGD with a constant step is the paper's.
    average : bool, default=False
        Predict with the average of the weights over all steps.
    shuffle : bool, default=True
        Take the rows in a new random order in every epoch.
    fit_intercept : bool, default=True
        Add a feature that is always 1.
    l1 : float, default=0.0
        Soft threshold of the weights when they score, the paper's λ.
    ranking_multiplier : int, default=1
        With assignment="ranking", a new label looks for a free path among the best
        ranking_multiplier · ⌈log₂ C⌉.
    class_weight : dict, "balanced" or None, default=None
        Weights of labels. A row of several labels has the mean of theirs.
    validation_fraction : float, default=0.0
        Rows held out to stop early: when their P@1 has not risen for `n_iter_no_change` epochs, the
        weights of the best epoch are kept. 0 runs all epochs.
    n_iter_no_change : int, default=3
        See `validation_fraction`.
    n_jobs : int or None, default=None
        Threads when predicting: None is one, −1 all cores.
    random_state : int, RandomState or None, default=None
        For the order of rows, random codebooks and held-out rows.
    verbose : int, default=0
        Above 0, show progress with loss, P@1 and time left.
    warm_start : bool, default=False
        Go on from the weights of the last `fit`, which must have had the same classes.

    Attributes
    ----------
    classes_ : array
        The labels: sorted after `fit`, in order of arrival after `partial_fit`. For an indicator
        matrix, its columns.
    trellis_ : Trellis
    codebook_ : TableCodebook or RandomCodebook
        The path of every label; label i is classes_[i].
    coef_ : array of shape (n_edges, n_features)
        The weights that score.
    intercept_ : array of shape (n_edges,)
    n_features_in_ : int
    n_iter_ : int
        Epochs run.
    loss_curve_ : list of float
        The mean loss of every epoch.
    multilabel_ : bool
    threshold_ : float
        Multi-label only: the score from which `predict` gives a label, chosen for the best
        micro-averaged F1 on the training rows (the held-out rows if there are any).

    References
    ----------
    Jasinska and Karampatziakis, Log-time and Log-space Extreme Classification, 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ltls import LTLSClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = LTLSClassifier(width=4, random_state=0).fit(X[:1500], y[:1500])
    >>> bool(classifier.score(X[1500:], y[1500:]) > 0.8)
    True
    >>> labels, log_probabilities = classifier.predict_topk(X[1500:], k=3)
    >>> labels.shape
    (297, 3)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "width": [Interval(Integral, 2, None, closed="left")],
        "loss": [StrOptions({"separation", "softmax", "logistic"})],
        "assignment": [StrOptions(set(POLICIES)), TableCodebook, RandomCodebook],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [StrOptions({"adagrad", "sgd"})],
        "average": ["boolean"],
        "shuffle": ["boolean"],
        "fit_intercept": ["boolean"],
        "l1": [Interval(Real, 0, None, closed="left")],
        "ranking_multiplier": [Interval(Integral, 1, None, closed="left")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
    }

    def __init__(
        self,
        width: int = 2,
        loss: str = "softmax",
        assignment: str | Codebook = "random",
        epochs: int = 5,
        learning_rate: float = 0.3,
        optimizer: str = "adagrad",
        average: bool = False,
        shuffle: bool = True,
        fit_intercept: bool = True,
        l1: float = 0.0,
        ranking_multiplier: int = 1,
        class_weight: dict[Any, float] | str | None = None,
        validation_fraction: float = 0.0,
        n_iter_no_change: int = 3,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        self.width = width
        self.loss = loss
        self.assignment = assignment
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.average = average
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.l1 = l1
        self.ranking_multiplier = ranking_multiplier
        self.class_weight = class_weight
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    # Learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LTLSClassifier:
        """Learn from rows and their labels.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features), float32 or float64
        y : labels
            One hashable label a row; or an indicator matrix, sparse or dense; or a list of label
            lists. A list of lists, sets or arrays is multi-label, a tuple is a single label.
        sample_weight : array of shape (n_rows,), optional

        Returns
        -------
        self
        """
        with self._unchanged_if_it_fails():
            self._validate_params()
            X, targets, weights = self._validated(X, y, sample_weight, reset=True)
            if weights is not None and not weights.any():
                raise ValueError("Sample weights must contain at least one non-zero number.")
            rng = check_random_state(self.random_state)
            if self.warm_start and hasattr(self, "trellis_"):
                self._check_same_problem(X, targets)
                self._resume()
            else:
                self._start(X, targets, rng)
            examples = self._examples(X, targets, weights)
            self._learn(examples, rng)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> LTLSClassifier:
        """Learn from one more batch, which may bring new labels.

        A new label takes a free path; where none is left the trellis grows, and the scores of all
        other labels stay as they are.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`; one pass is made over the rows.
        classes : array, optional
            Labels to know from the start. Not needed.

        Returns
        -------
        self
        """
        with self._unchanged_if_it_fails():
            self._validate_params()
            first = not hasattr(self, "trellis_")
            X, targets, weights = self._validated(X, y, sample_weight, reset=first)
            rng = check_random_state(self.random_state)
            if first:
                self._start(X, targets, rng, classes)
            else:
                self._resume()
                self._take_in(targets)
            examples = self._examples(X, targets, weights)
            self._one_pass(examples, rng)
        return self

    def _validated(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Any, Targets, npt.NDArray[np.float32] | None]:
        targets = as_targets(y)
        X = self._features(X, reset)
        if targets.n_rows != X.shape[0]:
            raise ValueError(
                f"y must have one entry per row of X: X has {X.shape[0]} rows, y {targets.n_rows}"
            )
        if not len(targets.labels):
            raise ValueError("y must hold at least one label, got none")
        if sample_weight is not None:
            sample_weight = _weights(sample_weight, X.shape[0])
        return X, targets, sample_weight

    def _features(self, X: Any, reset: bool) -> Any:
        return validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            reset=reset,
        )

    def _start(self, X: Any, targets: Targets, rng: Any, classes: Any = ...) -> None:
        """Begin anew: labels, trellis, codebook and weights of 0."""
        streaming = classes is not ...
        if streaming:
            labels = Labels([] if classes is None else as_targets(classes).labels)
            labels.add(targets)
        else:
            labels = Labels.sorted(targets)
            if len(labels) < 2:
                raise ValueError(
                    f"y must hold at least 2 classes, got 1 class: {labels.values[0]!r}; "
                    "partial_fit can begin with one"
                )
        # A trellis that will grow needs as many paths as its width, to keep that width.
        n_paths = max(len(labels), int(self.width)) if streaming else len(labels)
        codebook = self.assignment
        if not isinstance(codebook, str):
            if codebook.n_paths < len(labels):
                raise ValueError(
                    f"assignment has {codebook.n_paths} paths, y has {len(labels)} labels"
                )
            n_paths = codebook.n_paths
            codebook = copy.deepcopy(codebook)
        trellis = Trellis(n_paths, self.width)
        if isinstance(codebook, str):
            codebook = assign(
                codebook, trellis, X, targets.indptr, labels.ids(targets), len(labels), rng
            )
        self._labels = labels
        self.trellis_, self.codebook_ = trellis, codebook
        self._learner = self._new_learner(X.shape[1])
        self.multilabel_ = targets.multilabel
        self._form = targets.form
        self._loss = self.loss
        self.n_iter_ = 0
        self.loss_curve_: list[float] = []
        self._most_labels = 1
        self.__dict__.pop("threshold_", None)

    def _check_same_problem(self, X: Any, targets: Targets) -> None:
        labels = Labels.sorted(targets)
        if set(labels.values) != set(self._labels.values) or targets.multilabel != self.multilabel_:
            raise ValueError(
                "warm_start goes on with the classes of the last fit, and y has others; "
                "use partial_fit for new labels, or warm_start=False"
            )
        if X.shape[1] != self._model.n_features:
            raise ValueError("warm_start needs X with the features of the last fit")

    def _resume(self) -> None:
        """Let a model that came from a file learn on from its weights."""
        if not hasattr(self, "_learner"):
            self._learner = self._new_learner(self._model.n_features)
            self._learner.weights[:, : self._model.n_edges] = self._model.dense()
            self._learner.epochs = self.n_iter_

    def _new_learner(self, n_features: int) -> Learner:
        return Learner(
            self.trellis_,
            n_features,
            intercept=self.fit_intercept,
            adagrad=self.optimizer == "adagrad",
            average=self.average,
        )

    def _take_in(self, targets: Targets) -> None:
        """Make room for labels that are new, growing the trellis as often as it takes."""
        if targets.multilabel != self.multilabel_:
            kinds = ("one label a row", "several labels a row")
            raise ValueError(
                f"y must have {kinds[self.multilabel_]}, as in the first batch, "
                f"got {kinds[targets.multilabel]}"
            )
        self._labels.add(targets)
        while self.trellis_.n_classes < len(self._labels):
            self.trellis_, edge_map = self.trellis_.grow()
            self.codebook_ = self.codebook_.grow(self.trellis_.n_classes)
            self._learner.grow(self.trellis_, edge_map)

    def _examples(
        self, X: Any, targets: Targets, weights: npt.NDArray[np.float32] | None
    ) -> Examples:
        ids = self._labels.ids(targets)
        if targets.multilabel:  # in every row by id, as from an indicator matrix
            rows = np.repeat(np.arange(targets.n_rows), np.diff(targets.indptr))
            ids = ids[np.lexsort((ids, rows))]
        if self.class_weight is not None:
            of_rows = self._class_weights(ids, targets.indptr)
            weights = of_rows if weights is None else weights * of_rows
        self._most_labels = max(self._most_labels, int(np.diff(targets.indptr).max()))
        return Examples(X, targets.indptr, ids, weights, targets.multilabel)

    def _class_weights(
        self, ids: npt.NDArray[np.int64], indptr: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float32]:
        n_rows, n_labels = len(indptr) - 1, len(self._labels)
        if isinstance(self.class_weight, dict):
            of_labels = np.ones(n_labels)
            for label, weight in self.class_weight.items():
                if label in self._labels:
                    of_labels[self._labels.id(label)] = weight
        else:
            of_labels = n_rows / (n_labels * np.maximum(np.bincount(ids, minlength=n_labels), 1))
        counts = np.diff(indptr)
        sums = np.bincount(np.repeat(np.arange(n_rows), counts), of_labels[ids], n_rows)
        means: npt.NDArray[np.float32] = np.where(
            counts > 0, sums / np.maximum(counts, 1), 1
        ).astype(np.float32)
        return means

    def _training(self) -> Training:
        return Training(
            self.trellis_,
            self.codebook_,
            self._learner,
            len(self._labels),
            self._loss,
            self.learning_rate,
            self.l1,
            self.ranking_multiplier,
            bool(self.verbose),
        )

    def _learn(self, examples: Examples, rng: Any) -> None:
        """Run all epochs, holding some rows out if asked to, and learn the threshold."""
        n_held_out = int(np.ceil(self.validation_fraction * len(examples)))
        if n_held_out >= len(examples):
            raise ValueError(
                f"validation_fraction={self.validation_fraction} leaves none of the "
                f"{len(examples)} rows to learn from"
            )
        mixed = rng.permutation(len(examples)) if n_held_out else np.arange(len(examples))
        held_out, rows = np.sort(mixed[:n_held_out]), np.sort(mixed[n_held_out:])
        training = self._training()
        self._scoring = training.run(
            examples,
            rows,
            epochs=self.epochs,
            rng=rng,
            shuffle=self.shuffle,
            patience=self.n_iter_no_change if n_held_out else None,
            precision=lambda model: self._precision(model, examples, held_out),
        )
        self.loss_curve_ = training.losses
        self.n_iter_ = len(training.losses)
        if self.multilabel_:
            watched = (held_out if n_held_out else rows)[:_THRESHOLD_ROWS]
            self.threshold_ = self._best_threshold(examples, watched)

    def _one_pass(self, examples: Examples, rng: Any) -> None:
        """Pass once over a batch; the threshold is the mean of the batches' best ones."""
        training = self._training()
        self._scoring = None
        training.run(
            examples,
            np.arange(len(examples)),
            epochs=1,
            rng=rng,
            shuffle=self.shuffle,
            patience=None,
            precision=lambda _: 0.0,
        )
        self.loss_curve_ += training.losses
        self.n_iter_ += 1
        if self.multilabel_:
            best = self._best_threshold(examples, np.arange(min(len(examples), _THRESHOLD_ROWS)))
            self.threshold_ = (
                getattr(self, "threshold_", best) * (self.n_iter_ - 1) + best
            ) / self.n_iter_

    def _precision(
        self, model: LinearModel, examples: Examples, rows: npt.NDArray[np.int64]
    ) -> float:
        """Return how often the best label of a row is one of its own."""
        ids, _ = self._topk(examples.X[rows], 1, model)
        return float(examples.contains(rows, ids).any(axis=1).mean())

    def _best_threshold(self, examples: Examples, rows: npt.NDArray[np.int64]) -> float:
        ids, scores = self._topk(examples.X[rows], self._n_candidates)
        n_true = int(np.diff(examples.indptr)[rows].sum())
        return best_threshold(scores, examples.contains(rows, ids), n_true)

    def save(self, path: str | os.PathLike[str], dtype: str = "float32") -> None:
        """Write the fitted model to a file that `ltls.load` reads.

        Parameters
        ----------
        path : path
            Written under another name first, and renamed when complete.
        dtype : {"float32", "float16", "int8"}, default="float32"
            How weights are stored; int8 has one scale per feature.
        """
        from .model_file import save

        check_is_fitted(self, "trellis_")
        save(self, path, dtype)

    @contextmanager
    def _unchanged_if_it_fails(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    # Predicting

    @property
    def _model(self) -> LinearModel:
        return self._learner.model(self.l1) if self._scoring is None else self._scoring

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels, in the order of their ids."""
        return self._fitted("_labels").array  # type: ignore[no-any-return]

    @property
    def coef_(self) -> npt.NDArray[np.float32]:
        """The weights that score, shape (n_edges, n_features)."""
        self._fitted("trellis_")
        return self._model.dense()[: self._model.n_features].T

    @property
    def intercept_(self) -> npt.NDArray[np.float32]:
        """The intercept of every edge."""
        self._fitted("trellis_")
        model = self._model
        if not model.intercept:
            return np.zeros(model.n_edges, np.float32)
        intercept: npt.NDArray[np.float32] = model.dense()[-1]
        return intercept

    def _fitted(self, name: str) -> Any:
        if name not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no such attribute before it is fitted")
        return self.__dict__[name]

    @property
    def _n_candidates(self) -> int:
        """How many labels a row may be expected to have: twice as many as any row had."""
        return min(len(self._labels), 2 * self._most_labels + 1)

    @property
    def _decoder(self) -> Decoder:
        return Decoder(self.trellis_, self.codebook_, len(self._labels), self._loss, self.n_jobs)

    def _edge_scores(
        self, X: Any, model: LinearModel | None = None
    ) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        """Yield edge scores of the rows of a checked X, some rows at a time."""
        model = self._model if model is None else model
        features = engine_features(X, model.intercept)
        for first in range(0, X.shape[0], _ROWS_AT_A_TIME):
            rows = slice(first, min(first + _ROWS_AT_A_TIME, X.shape[0]))
            yield rows, model.edge_scores(features, first, rows.stop - first, self.n_jobs)

    def _topk(
        self, X: Any, k: int, model: LinearModel | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the ids and scores of the k best labels of a checked X."""
        decoder = self._decoder
        k = min(k, decoder.n_labels)
        ids = np.empty((X.shape[0], k), np.int64)
        scores = np.empty((X.shape[0], k), np.float32)
        for rows, h in self._edge_scores(X, model):
            ids[rows], scores[rows] = decoder.topk(h, k)
        return ids, scores

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self, "trellis_")
        return self._features(X, reset=False)

    def edge_scores(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the scores of all edges, shape (n_rows, n_edges)."""
        X = self._checked(X)
        h = np.empty((X.shape[0], self.trellis_.n_edges), np.float32)
        for rows, part in self._edge_scores(X):
            h[rows] = part
        return h

    def predict_topk(self, X: Any, k: int = 5) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return the k best labels of every row and their scores, best first.

        Scores are log-probabilities for loss="softmax", sums of log σ over the edges of the path
        for "logistic", and sums of edge scores for "separation".

        Returns
        -------
        labels, scores : arrays of shape (n_rows, k)
            k is at most the number of classes.
        """
        X = self._checked(X)
        ids, scores = self._topk(X, as_integer("k", k, at_least=1))
        return self.classes_[ids], scores

    def predict(self, X: Any) -> Any:
        """Return the best label of every row; for a multi-label model, an indicator matrix.

        The matrix is dense if y was, else CSR; a label is given where its score reaches
        `threshold_`.
        """
        X = self._checked(X)
        if not self.multilabel_:
            return self.classes_[self._topk(X, 1)[0][:, 0]]
        parts = [
            self._decoder.above(h, self.threshold_, self._n_candidates)
            for _, h in self._edge_scores(X)
        ]
        counts, ids = (np.concatenate(each) for each in zip(*parts, strict=True))
        shape = (X.shape[0], len(self._labels))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        matrix = csr_array((np.ones(len(ids), np.int64), ids, indptr), shape=shape)
        matrix.sort_indices()
        return matrix.toarray() if self._form == "dense" else matrix

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows that `predict` gets right; with several labels, all of them."""
        X = self._checked(X)
        targets = as_targets(y)
        if targets.n_rows != X.shape[0]:
            raise ValueError(f"y must have one entry for each of the {X.shape[0]} rows of X")
        if targets.multilabel:
            truth = Examples(X, targets.indptr, self._labels.ids(targets), None, True)
            predicted = csr_array(self.predict(X))
            rows = np.repeat(np.arange(X.shape[0]), np.diff(predicted.indptr))
            hits = truth.contains(rows, predicted.indices[:, None].astype(np.int64))[:, 0]
            found = np.bincount(rows, hits, X.shape[0])
            counts = np.diff(predicted.indptr), np.diff(targets.indptr)
            right = (found == counts[0]) & (found == counts[1])
        else:
            right = self._topk(X, 1)[0][:, 0] == self._labels.ids(targets)
        weights = None if sample_weight is None else _weights(sample_weight, X.shape[0])
        return float(np.average(right, weights=weights))

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the scores of all labels, shape (n_rows, n_classes); see `predict_topk`.

        For two classes and one label a row: how far the second scores above the first, shape
        (n_rows,).
        """
        scores = self._all_scores(self._checked(X), "decision_function")
        if not self.multilabel_ and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    @_loss_is("softmax", "logistic")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the probabilities of all labels, shape (n_rows, n_classes).

        For one label a row they are normalised over `classes_`. For several, "logistic" gives each
        label the product of its edges' probabilities.
        """
        scores = self._all_scores(self._checked(X), "predict_proba")
        if self._loss == "logistic" and self.multilabel_:
            return np.exp(np.minimum(scores, 0))
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: npt.NDArray[np.float32] = scores / scores.sum(axis=1, keepdims=True)
        return probabilities

    @_loss_is("softmax")  # type: ignore[untyped-decorator]
    def log_proba(self, X: Any, y: Any) -> npt.NDArray[np.float32]:
        """Return the log-probability of one label per row, in O(log C) each.

        It is normalised over all paths, those without a label included: what they hold is the
        probability of a label not seen yet.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
        y : one label a row
            A label that was never seen is an error.
        """
        X = self._checked(X)
        targets = as_targets(y)
        if targets.multilabel or targets.n_rows != X.shape[0]:
            raise ValueError(f"y must hold one label for each of the {X.shape[0]} rows of X")
        ids = self._labels.ids(targets)
        if (ids < 0).any():
            unknown = np.asarray(targets.labels, object)[int(np.argmax(ids < 0))]
            raise ValueError(f"y must hold labels of classes_, {unknown!r} was never seen")
        paths = self.codebook_.path_of(ids)
        result = np.empty(X.shape[0], np.float32)
        for rows, h in self._edge_scores(X):
            scores = self.trellis_.score(h, paths[rows], self.n_jobs)
            result[rows] = scores - self.trellis_.log_partition(h, self.n_jobs)
        return result

    def _all_scores(self, X: Any, name: str) -> npt.NDArray[np.float32]:
        decoder = self._decoder
        if X.shape[0] * decoder.n_labels > _MOST_CELLS:
            raise ValueError(
                f"{name} would make a dense matrix of {X.shape[0]} rows × {decoder.n_labels} "
                "classes; use predict_topk, or fewer rows"
            )
        scores = np.empty((X.shape[0], decoder.n_labels), np.float32)
        for rows, h in self._edge_scores(X):
            scores[rows] = decoder.all_scores(h)
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags
