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
from .decoding import best_threshold
from .labels import Labels, Targets, as_targets
from .linear import Learner
from .model import Model
from .training import Examples, Training, interruptible
from .trellis import Trellis

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
    n_trellises : int, default=1
        Trellises over the same features, each with its own codebook; their scores are added.
        Several narrow ones are more accurate than a wide one of the same size.
    loss : {"softmax", "separation", "logistic"}, default="softmax"
        "softmax" normalises over all classes and has probabilities; best for one label per row.
        "separation" is the paper's ranking loss. "logistic" learns every edge by itself; best for
        several labels per row.
    assignment : {"random", "ranking", "similarity", "frequency"} or a codebook, default="random"
        Which path each label gets. "ranking" is the paper's: the best free path when the label is
        first seen. "random" needs no memory. "similarity" lets labels with similar examples share
        edges. "frequency" gives frequent labels short paths. A `TableCodebook` or `RandomCodebook`
        is used for the labels in the order of `classes_`; several trellises take a list of them.
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
        Threads: None is one, −1 all cores. Predicting shares out the rows, learning the trellises;
        the result is the same for any number.
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
        The graph; all trellises have the same.
    codebooks_ : list of TableCodebook or RandomCodebook
        Each trellis' path of every label; label i is classes_[i].
    codebook_ : TableCodebook or RandomCodebook
        The first of them.
    coef_ : array of shape (n_trellises · n_edges, n_features)
        The weights that score.
    intercept_ : array of shape (n_trellises · n_edges,)
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
        "n_trellises": [Interval(Integral, 1, None, closed="left")],
        "loss": [StrOptions({"separation", "softmax", "logistic"})],
        "assignment": [StrOptions(set(POLICIES)), TableCodebook, RandomCodebook, list],
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
        "n_jobs": [
            None,
            Interval(Integral, 1, None, closed="left"),
            Interval(Integral, None, -1, closed="right"),
        ],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
    }

    def __init__(
        self,
        width: int = 2,
        n_trellises: int = 1,
        loss: str = "softmax",
        assignment: str | Codebook | list[Codebook] = "random",
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
        self.n_trellises = n_trellises
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
            if self.warm_start and hasattr(self, "_learned"):
                self._check_same_problem(X, targets)
                self._resume()
            else:
                labels = Labels.sorted(targets)
                if len(labels) < 2:
                    raise ValueError(
                        f"y must hold at least 2 classes, got 1 class: {labels.values[0]!r}; "
                        "partial_fit can begin with one"
                    )
                self._learned = self._start(X, targets, labels, len(labels), rng)
            self._learn(self._examples(X, targets, weights), rng)
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
            first = not hasattr(self, "_learned")
            X, targets, weights = self._validated(X, y, sample_weight, reset=first)
            rng = check_random_state(self.random_state)
            if first:
                labels = Labels() if classes is None else Labels(as_targets(classes).labels)
                labels.add(targets)
                # To grow and keep its width, a trellis needs as many paths as that.
                room = max(len(labels), int(self.width))
                self._learned = self._start(X, targets, labels, room, rng)
            else:
                self._check_same_kind(targets)
                self._resume()
                self._learned.labels.add(targets)
                self._learned.make_room()
            self._learn_batch(self._examples(X, targets, weights), rng)
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

    def _start(self, X: Any, targets: Targets, labels: Labels, n_paths: int, rng: Any) -> Model:
        """Begin anew: trellis, codebooks and weights of 0."""
        given = self.assignment
        if isinstance(given, str):
            trellis = Trellis(n_paths, self.width)
            ids = labels.ids(targets)
            codebooks = assign(
                given, trellis, self.n_trellises, X, targets.indptr, ids, len(labels), rng
            )
        else:
            codebooks = copy.deepcopy(given if isinstance(given, list) else [given])
            sizes = {book.n_paths for book in codebooks}
            if len(codebooks) != self.n_trellises or len(sizes) != 1:
                raise ValueError(
                    f"assignment must have one codebook for each of {self.n_trellises} trellises, "
                    f"all of the same size, got {len(codebooks)} with {sorted(sizes)} paths"
                )
            if min(sizes) < len(labels):
                raise ValueError(f"assignment has {min(sizes)} paths, y has {len(labels)} labels")
            trellis = Trellis(min(sizes), self.width)
        model = Model(
            labels, trellis, codebooks, self.loss, self.l1, targets.multilabel, targets.form
        )
        model.learner = self._new_learner(model, X.shape[1])
        return model

    def _new_learner(self, model: Model, n_features: int) -> Learner:
        return Learner(
            model.trellis,
            len(model.codebooks),
            n_features,
            intercept=self.fit_intercept,
            adagrad=self.optimizer == "adagrad",
            average=self.average,
        )

    def _resume(self) -> None:
        """Let a model that came from a file learn on from its weights."""
        model = self._learned
        if model.learner is None:
            linear = model.linear.stored_as("float32")
            model.learner = self._new_learner(model, linear.n_features)
            model.learner.weights[:] = linear.weights
            model.learner.epochs = len(model.loss_curve)

    def _check_same_kind(self, targets: Targets) -> None:
        if targets.multilabel != self.multilabel_:
            kinds = ("one label a row", "several labels a row")
            raise ValueError(
                f"y must have {kinds[self.multilabel_]}, as before, got {kinds[targets.multilabel]}"
            )

    def _check_same_problem(self, X: Any, targets: Targets) -> None:
        self._check_same_kind(targets)
        if set(Labels.sorted(targets).values) != set(self._learned.labels.values):
            raise ValueError(
                "warm_start goes on with the classes of the last fit, and y has others; "
                "use partial_fit for new labels, or warm_start=False"
            )
        if X.shape[1] != self._learned.linear.n_features:
            raise ValueError("warm_start needs X with the features of the last fit")

    def _examples(
        self, X: Any, targets: Targets, weights: npt.NDArray[np.float32] | None
    ) -> Examples:
        model = self._learned
        ids = model.labels.ids(targets)
        if targets.multilabel:  # in every row by id, as from an indicator matrix
            rows = np.repeat(np.arange(targets.n_rows), np.diff(targets.indptr))
            ids = ids[np.lexsort((ids, rows))]
        if self.class_weight is not None:
            of_rows = self._class_weights(ids, targets.indptr)
            weights = of_rows if weights is None else weights * of_rows
        model.most_labels = max(model.most_labels, int(np.diff(targets.indptr).max()))
        return Examples(X, targets.indptr, ids, weights, targets.multilabel)

    def _class_weights(
        self, ids: npt.NDArray[np.int64], indptr: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float32]:
        labels, n_rows = self._learned.labels, len(indptr) - 1
        if isinstance(self.class_weight, dict):
            of_labels = np.ones(len(labels))
            for label, weight in self.class_weight.items():
                if label in labels:
                    of_labels[labels.id(label)] = weight
        else:
            counts = np.maximum(np.bincount(ids, minlength=len(labels)), 1)
            of_labels = n_rows / (len(labels) * counts)
        per_row = np.diff(indptr)
        sums = np.bincount(np.repeat(np.arange(n_rows), per_row), of_labels[ids], n_rows)
        means = np.where(per_row > 0, sums / np.maximum(per_row, 1), 1)
        return means.astype(np.float32)

    def _training(self) -> Training:
        model = self._learned
        assert model.learner is not None
        return Training(
            model.trellis,
            model.codebooks,
            model.learner,
            len(model.labels),
            model.loss,
            self.learning_rate,
            self.l1,
            self.ranking_multiplier,
            self.n_jobs,
            bool(self.verbose),
        )

    def _learn(self, examples: Examples, rng: Any) -> None:
        """Run all epochs, holding some rows out if asked to, and learn the threshold."""
        model = self._learned
        n_held_out = int(np.ceil(self.validation_fraction * len(examples)))
        if n_held_out >= len(examples):
            raise ValueError(
                f"validation_fraction={self.validation_fraction} leaves none of the "
                f"{len(examples)} rows to learn from"
            )
        mixed = rng.permutation(len(examples)) if n_held_out else np.arange(len(examples))
        held_out, rows = np.sort(mixed[:n_held_out]), np.sort(mixed[n_held_out:])
        training = self._training()
        model.scoring = None
        model.scoring = training.run(
            examples,
            rows,
            epochs=self.epochs,
            rng=rng,
            shuffle=self.shuffle,
            patience=self.n_iter_no_change if n_held_out else None,
            precision=lambda linear: model.precision(examples, held_out, self.n_jobs, linear),
        )
        model.loss_curve = training.losses
        if model.multilabel:
            model.threshold = self._best_threshold(examples, held_out if n_held_out else rows)

    def _learn_batch(self, examples: Examples, rng: Any) -> None:
        """Pass once over a batch; the threshold is the mean of the batches' best ones."""
        model, training = self._learned, self._training()
        rows = np.arange(len(examples))
        model.scoring = None
        with interruptible():
            training.pass_over(examples, rng.permutation(rows) if self.shuffle else rows)
        model.loss_curve = model.loss_curve + training.losses
        if model.multilabel:
            best, batches = self._best_threshold(examples, rows), len(model.loss_curve)
            before = best if model.threshold is None else model.threshold
            model.threshold = before + (best - before) / batches

    def _best_threshold(self, examples: Examples, rows: npt.NDArray[np.int64]) -> float:
        rows = rows[:_THRESHOLD_ROWS]
        ids, scores = self._learned.topk(examples.X[rows], self._learned.n_candidates, self.n_jobs)
        n_true = int(np.diff(examples.indptr)[rows].sum())
        return best_threshold(scores, examples.contains(rows, ids), n_true)

    @contextmanager
    def _unchanged_if_it_fails(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

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

        check_is_fitted(self)
        save(self, path, dtype)

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
        return len(self.loss_curve_)

    @property
    def threshold_(self) -> float:
        """The score from which a multi-label `predict` gives a label; it may be set."""
        threshold = self._fitted().threshold
        if threshold is None:
            raise AttributeError("only multi-label models have a threshold")
        return threshold

    @threshold_.setter
    def threshold_(self, threshold: float) -> None:
        self._fitted().threshold = float(threshold)

    # Predicting

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._features(X, reset=False)

    def edge_scores(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the scores of all edges, shape (n_rows, n_trellises · n_edges)."""
        X, linear = self._checked(X), self._learned.linear
        parts = [linear.without_padding(h) for _, h in self._learned.edge_scores(X, self.n_jobs)]
        return np.concatenate(parts)

    def predict_topk(self, X: Any, k: int = 5) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return the k best labels of every row and their scores, best first.

        A score is a sum over the trellises: for loss="softmax" of the log-probability of the
        label's path, for "logistic" of log σ over its edges, for "separation" of its edge scores.

        Returns
        -------
        labels, scores : arrays of shape (n_rows, k)
            k is at most the number of classes.
        """
        X = self._checked(X)
        ids, scores = self._learned.topk(X, as_integer("k", k, at_least=1), self.n_jobs)
        return self.classes_[ids], scores

    def predict(self, X: Any) -> Any:
        """Return the best label of every row; for a multi-label model, an indicator matrix.

        The matrix is dense if y was, else CSR; a label is given where its score reaches
        `threshold_`.
        """
        X = self._checked(X)
        if not self.multilabel_:
            return self.classes_[self._learned.topk(X, 1, self.n_jobs)[0][:, 0]]
        matrix = self._predict_rows(X)
        return matrix.toarray() if self._learned.form == "dense" else matrix

    def _predict_rows(self, X: Any) -> Any:
        """Return the labels of a multi-label model as a CSR indicator."""
        model = self._learned
        decoder = model.decoder(self.n_jobs)
        parts = [
            decoder.above(h, self.threshold_, model.n_candidates)
            for _, h in model.edge_scores(X, self.n_jobs)
        ]
        counts, ids = (np.concatenate(each) for each in zip(*parts, strict=True))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        shape = (X.shape[0], len(model.labels))
        matrix = csr_array((np.ones(len(ids), np.int64), ids, indptr), shape=shape)
        matrix.sort_indices()
        return matrix

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows that `predict` gets right; with several labels, all of them."""
        X = self._checked(X)
        targets = as_targets(y)
        if targets.n_rows != X.shape[0]:
            raise ValueError(f"y must have one entry for each of the {X.shape[0]} rows of X")
        ids = self._learned.labels.ids(targets)
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
        label the product of its edges' probabilities, the geometric mean over the trellises.
        """
        scores = self._all_scores(self._checked(X), "predict_proba")
        if self._learned.loss == "logistic" and self.multilabel_:
            return np.exp(np.minimum(scores / len(self.codebooks_), 0))
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: npt.NDArray[np.float32] = scores / scores.sum(axis=1, keepdims=True)
        return probabilities

    @_loss_is("softmax")  # type: ignore[untyped-decorator]
    def log_proba(self, X: Any, y: Any) -> npt.NDArray[np.float32]:
        """Return the log-probability of one label per row, in O(log C) each.

        It is the mean of the trellises' probabilities, each normalised over all its paths. Those
        without a label are among them: what they hold is the probability of a label not seen yet.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
        y : one label a row
            A label that was never seen is an error.
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

    def _all_scores(self, X: Any, name: str) -> npt.NDArray[np.float32]:
        decoder = self._learned.decoder(self.n_jobs)
        if X.shape[0] * decoder.n_labels > _MOST_CELLS:
            raise ValueError(
                f"{name} would make a dense matrix of {X.shape[0]} rows × {decoder.n_labels} "
                "classes; use predict_topk, or fewer rows"
            )
        scores = np.empty((X.shape[0], decoder.n_labels), np.float32)
        for rows, h in self._learned.edge_scores(X, self.n_jobs):
            scores[rows] = decoder.all_scores(h)
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags
