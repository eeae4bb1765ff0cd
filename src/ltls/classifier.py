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
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .assignment import POLICIES, Codebook, assign
from .codebook import RandomCodebook, TableCodebook
from .decoding import best_threshold
from .defaults import Size, parsed_bytes
from .inputs import check_class_weight, checked_features, class_weights, known_classes, row_weights
from .labels import Labels, Targets, as_targets
from .linear import Learner, LinearModel
from .model import Model
from .predicting import Answers
from .rescoring import CANDIDATES, EmbeddingLearner
from .training import Examples, Training, interruptible
from .trellis import Trellis

_THRESHOLD_ROWS = 10_000
_WEIGHING_ROWS = 1000
_LONGEST_CURVE = 10_000  # passes of partial_fit whose loss is kept
# What shapes a model and its learner, and cannot change while it learns.
_SETTINGS = ("width", "n_trellises", "size_budget", "loss", "optimizer", "average", "normalize",
             "fit_intercept", "l1")  # fmt: skip
_STREAMED = (8, 3)  # width and trellises of "auto" when all the data is not at hand


class LTLSClassifier(Answers, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear classifier that learns and predicts in time logarithmic in the number of classes.

    Every class is a path through a trellis, and a linear model scores its O(log C) edges.

    Parameters
    ----------
    width : int or "auto", default="auto"
        States per slice of a trellis; 2 is the paper's. Wider is larger, slower and more accurate.
        What "auto" is, here and below, depends on the size of the data: see `ltls.defaults`.
    n_trellises : int or "auto", default="auto"
        Trellises over the same features, each with its own codebook; their scores are added.
        Several narrow ones are more accurate than a wide one of the same size.
    rescore : int or "auto", default="auto"
        The rank of an embedding that ranks the best candidates anew: a vector of so many numbers
        for every feature and label. 0 is the pure log-space model. What the embedding counts is
        learned from rows held out for it, which are learned last. `partial_fit` makes none.
    size_budget : str, int or None, default=None
        Such as "5MB", instead of `width` and `n_trellises`: the largest model whose weights fit
        when stored as int8, which is then what `save` does.
    loss : {"auto", "softmax", "separation", "logistic"}, default="auto"
        "softmax" normalises over all classes and has probabilities; best for one label per row.
        "separation" is the paper's ranking loss. "logistic" learns every edge by itself; best for
        several labels per row. "auto" is softmax for one label a row and logistic for several.
    assignment : {"random", "ranking", "similarity", "frequency"} or a codebook, default="random"
        Which path each label gets. "ranking" is the paper's: the best free path when the label is
        first seen. "random" needs no memory. "similarity" lets labels with similar examples share
        edges. "frequency" gives frequent labels short paths. A `TableCodebook` or `RandomCodebook`
        is used for the labels in the order of `classes_`; several trellises take a list of them.
    epochs : int or "auto", default="auto"
        Passes over the rows.
    learning_rate : float, default=0.7
        The step size.
    optimizer : {"adagrad", "sgd"}, default="adagrad"
        Plain SGD with a constant step is the paper's.
    average : bool, default=False
        Predict with the average of the weights over all steps.
    shuffle : bool, default=True
        Take the rows in a new random order in every epoch.
    normalize : bool or "auto", default="auto"
        Scale every row to length 1, in learning and predicting. "auto" does so for sparse rows.
    fit_intercept : bool, default=True
        Add a feature that is always 1.
    l1 : float, default=0.0
        Soft threshold of the weights when they score, the paper's λ.
    ranking_multiplier : int, default=1
        With assignment="ranking", a new label looks for a free path among the best
        ranking_multiplier · ⌈log₂ C⌉.
    class_weight : dict, "balanced" or None, default=None
        Weights of labels. A row of several labels has the mean of theirs.
    validation_fraction : float or "auto", default="auto"
        Rows held out to stop early: when their P@1 has not risen for `n_iter_no_change` epochs, the
        weights of the best epoch are kept. 0 runs all epochs.
    n_iter_no_change : int, default=1
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
        The labels: sorted after `fit` (as they came if they cannot be compared), in order of
        arrival after `partial_fit`. For an indicator matrix, its columns.
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
    >>> classifier = LTLSClassifier(random_state=0)
    >>> classifier = classifier.fit(X[:1500] / 16, y[:1500])
    >>> bool(classifier.score(X[1500:] / 16, y[1500:]) > 0.9)
    True
    >>> labels, scores = classifier.predict_topk(X[1500:] / 16, k=3)
    >>> labels.shape
    (297, 3)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "width": [Interval(Integral, 2, None, closed="left"), StrOptions({"auto"})],
        "n_trellises": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "rescore": [Interval(Integral, 0, 2**16, closed="both"), StrOptions({"auto"})],
        "size_budget": [str, Integral, None],
        "loss": [StrOptions({"auto", "separation", "softmax", "logistic"})],
        "assignment": [StrOptions(set(POLICIES)), TableCodebook, RandomCodebook, list],
        "epochs": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [StrOptions({"adagrad", "sgd"})],
        "average": ["boolean"],
        "shuffle": ["boolean"],
        "normalize": ["boolean", StrOptions({"auto"})],
        "fit_intercept": ["boolean"],
        "l1": [Interval(Real, 0, None, closed="left")],
        "ranking_multiplier": [Interval(Integral, 1, 2**16, closed="both")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "validation_fraction": [Interval(Real, 0, 1, closed="left"), StrOptions({"auto"})],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [
            None,
            Interval(Integral, 1, 2**16, closed="both"),
            Interval(Integral, -(2**16), -1, closed="both"),
        ],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
    }

    def __init__(
        self,
        width: int | str = "auto",
        n_trellises: int | str = "auto",
        rescore: int | str = "auto",
        size_budget: str | int | None = None,
        loss: str = "auto",
        assignment: str | Codebook | list[Codebook] = "random",
        epochs: int | str = "auto",
        learning_rate: float = 0.7,
        optimizer: str = "adagrad",
        average: bool = False,
        shuffle: bool = True,
        normalize: bool | str = "auto",
        fit_intercept: bool = True,
        l1: float = 0.0,
        ranking_multiplier: int = 1,
        class_weight: dict[Any, float] | str | None = None,
        validation_fraction: float | str = "auto",
        n_iter_no_change: int = 1,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        self.width = width
        self.n_trellises = n_trellises
        self.rescore = rescore
        self.size_budget = size_budget
        self.loss = loss
        self.assignment = assignment
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.average = average
        self.shuffle = shuffle
        self.normalize = normalize
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
            Ctrl-C ends the learning with a warning, and the estimator keeps what it has learned.

        Notes
        -----
        Features should be of similar size: `sklearn.preprocessing.StandardScaler` for dense ones.
        """
        with self._unchanged_if_it_fails():
            self._validate_params()
            X, targets, weights = self._validated(X, y, sample_weight, reset=True)
            if weights is not None and not weights.any():
                raise ValueError("Sample weights must contain at least one non-zero number.")
            rng = check_random_state(self.random_state)
            if self.warm_start and hasattr(self, "_learned"):
                self._check_same_problem(X, targets)
                self._learned = copy.deepcopy(self._learned)  # the old one stays if this fails
                self._resume()
            else:
                labels = Labels.sorted(targets)
                if len(labels) < 2:
                    raise ValueError(
                        f"y must hold at least 2 classes, got 1 class: {labels.values[0]!r}; "
                        "partial_fit can begin with one"
                    )
                width, n_trellises = self._dimensions(self._size(X, len(labels)))
                self._learned = self._start(X, targets, labels, width, n_trellises, rng)
            self._learn(self._examples(X, targets, weights), rng)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> LTLSClassifier:
        """Learn from one more batch, which may bring new labels.

        A new label takes a free path; where none is left the trellis grows, and the scores of all
        other labels stay as they are. Growing keeps the width, which is smaller than asked for if
        `fit` began with fewer classes than that.

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
            if self.class_weight == "balanced":
                raise ValueError(
                    "class_weight='balanced' needs all rows at once; partial_fit takes a dict"
                )
            first = not hasattr(self, "_learned")
            X, targets, weights = self._validated(X, y, sample_weight, reset=first)
            rng = check_random_state(self.random_state)
            if first:
                labels = Labels(known_classes(classes))
                labels.add(targets)
                width, n_trellises = self._streamed_dimensions()
                self._learned = self._start(X, targets, labels, width, n_trellises, rng, room=width)
            else:
                self._check_same_kind(targets)
                self._resume()
                self._learned.labels.extend(known_classes(classes))
                self._learned.labels.add(targets)
                self._learned.make_room()
            self._learn_batch(self._examples(X, targets, weights), rng)
        return self

    def _validated(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Any, Targets, npt.NDArray[np.float32] | None]:
        check_class_weight(self.class_weight)
        targets = as_targets(y)
        X = checked_features(self, X, reset)
        if targets.n_rows != X.shape[0]:
            raise ValueError(
                f"y must have one entry per row of X: X has {X.shape[0]} rows, y {targets.n_rows}"
            )
        if not len(targets.labels):
            raise ValueError("y must hold at least one label, got none")
        if sample_weight is not None:
            sample_weight = row_weights(sample_weight, X.shape[0])
        return X, targets, sample_weight

    def _size(self, X: Any, n_labels: int) -> Size:
        n_values = X.nnz if hasattr(X, "indptr") else X.size
        return Size(X.shape[0], X.shape[1], int(n_values), n_labels)

    def _dimensions(self, size: Size) -> tuple[int, int]:
        """Return the width and the number of trellises, chosen from the data where not given."""
        width, n_trellises = self.width, self.n_trellises
        if self.size_budget is not None:
            if (width, n_trellises) != ("auto", "auto"):
                raise ValueError(
                    "size_budget stands for width and n_trellises: give it or them, not both"
                )
            return size.largest(parsed_bytes(self.size_budget))
        width = size.width if isinstance(width, str) else int(width)
        if isinstance(n_trellises, str):
            given = self.assignment
            if isinstance(given, list):
                n_trellises = len(given)
            elif not isinstance(given, str):
                n_trellises = 1
            else:
                n_trellises = size.n_trellises(width, self._epochs(size))
        return width, int(n_trellises)

    def _streamed_dimensions(self) -> tuple[int, int]:
        """Return what `_dimensions` would for data of which only a batch is known."""
        if self.size_budget is not None:
            raise ValueError("size_budget needs all rows at once; partial_fit takes width")
        width, n_trellises = _STREAMED
        if isinstance(self.assignment, list):
            n_trellises = len(self.assignment)
        elif not isinstance(self.assignment, str):
            n_trellises = 1
        return (
            width if isinstance(self.width, str) else int(self.width),
            n_trellises if isinstance(self.n_trellises, str) else int(self.n_trellises),
        )

    def _epochs(self, size: Size) -> int:
        return size.epochs if isinstance(self.epochs, str) else int(self.epochs)

    def _start(
        self,
        X: Any,
        targets: Targets,
        labels: Labels,
        width: int,
        n_trellises: int,
        rng: Any,
        room: int = 0,
    ) -> Model:
        """Begin anew: trellis, codebooks and weights of 0.

        To grow and keep its width, a trellis needs as many paths as that: `room`.
        """
        given = self.assignment
        if isinstance(given, str):
            trellis = Trellis(max(len(labels), room), width)
            ids = labels.ids(targets)
            codebooks = assign(
                given, trellis, n_trellises, X, targets.indptr, ids, len(labels), rng
            )
        else:
            codebooks = [
                copy.deepcopy(book) for book in (given if isinstance(given, list) else [given])
            ]
            kinds = {type(book) for book in codebooks}
            if len(kinds) != 1 or not kinds <= {TableCodebook, RandomCodebook}:
                raise ValueError(
                    f"assignment must be a policy or codebooks of one kind, got {given}"
                )
            sizes = {book.n_paths for book in codebooks}
            if len(codebooks) != n_trellises or len(sizes) != 1:
                raise ValueError(
                    f"assignment must have one codebook for each of {n_trellises} trellises, "
                    f"all of the same size, got {len(codebooks)} with {sorted(sizes)} paths"
                )
            if min(sizes) < len(labels):
                raise ValueError(f"assignment has {min(sizes)} paths, y has {len(labels)} labels")
            trellis = Trellis(min(sizes), width)
        loss = self.loss
        if loss == "auto":
            loss = "logistic" if targets.multilabel else "softmax"
        model = Model(labels, trellis, codebooks, loss, self.l1, targets.multilabel, targets.form)
        unit_length = hasattr(X, "indptr") if self.normalize == "auto" else bool(self.normalize)
        model.learner = self._new_learner(model, X.shape[1], unit_length)
        return model

    def _new_learner(self, model: Model, n_features: int, unit_length: bool) -> Learner:
        return Learner(
            model.trellis,
            len(model.codebooks),
            n_features,
            intercept=self.fit_intercept,
            unit_length=unit_length,
            adagrad=self.optimizer == "adagrad",
            average=self.average,
            settings={name: getattr(self, name) for name in _SETTINGS},
        )

    def _resume(self) -> None:
        """Let a model that came from a file learn on from its weights."""
        model = self._learned
        if model.learner is None:
            linear = model.linear
            learner = self._new_learner(model, linear.n_features, linear.unit_length)
            learner.go_on_from(linear, self.l1)
            learner.epochs = model.n_passes
            model.learner = learner
        for name, value in model.learner.settings.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} must stay {value!r} while a model learns on, got "
                    f"{getattr(self, name)!r}; fit without warm_start begins anew"
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
            of_rows = class_weights(self.class_weight, model.labels, ids, targets.indptr)
            weights = of_rows if weights is None else weights * of_rows
        usual = int(np.quantile(np.diff(targets.indptr), 0.99, method="higher"))
        model.usual_labels = max(model.usual_labels, usual)
        return Examples(X, targets.indptr, ids, weights, targets.multilabel)

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
        """Run all epochs, holding some rows out if asked to; then what rescores; the threshold."""
        model = self._learned
        size = self._size(examples.X, len(model.labels))
        rank = self._rank(size)
        if isinstance(self.validation_fraction, str):
            n_held_out = size.n_held_out
        else:
            n_held_out = int(np.ceil(self.validation_fraction * len(examples)))
        stops_early = n_held_out > 0
        if rank and not stops_early:  # to weigh the embedding
            n_held_out = min(max(len(examples) // 20, 1), _WEIGHING_ROWS)
        if n_held_out >= len(examples):
            raise ValueError(
                f"validation_fraction={self.validation_fraction} leaves none of the "
                f"{len(examples)} rows to learn from"
            )
        mixed = rng.permutation(len(examples)) if n_held_out else np.arange(len(examples))
        held_out, rows = np.sort(mixed[:n_held_out]), np.sort(mixed[n_held_out:])
        training = self._training()
        model.scoring = model.embedding = None

        def precision(linear: LinearModel) -> float:
            return model.precision(examples, held_out, self.n_jobs, linear)

        best = training.run(
            examples,
            rows,
            epochs=self._epochs(size),
            rng=rng,
            shuffle=self.shuffle,
            patience=self.n_iter_no_change,
            precision=precision if stops_early else None,
        )
        if best is not None:
            training.learner.go_on_from(best, self.l1)
        model.loss_curve = training.losses
        model.n_passes = len(training.losses)
        if not np.isfinite(model.linear.weights).all():
            raise ValueError(
                "the weights became infinite: scale the features, or use a smaller learning_rate"
            )
        if rank:
            self._learn_embedding(examples, rows, held_out, rank, not stops_early, rng)
        if model.multilabel:
            model.threshold = self._best_threshold(examples, held_out if stops_early else rows)

    def _rank(self, size: Size) -> int:
        if not isinstance(self.rescore, str):
            return int(self.rescore)
        if self.size_budget is not None or self.loss == "separation":
            return 0
        model = self._learned
        return size.rank(model.trellis.width, len(model.codebooks))

    def _learn_embedding(
        self,
        examples: Examples,
        rows: npt.NDArray[np.int64],
        held_out: npt.NDArray[np.int64],
        rank: int,
        learn_held_out: bool,
        rng: Any,
    ) -> None:
        """Learn what rescores the trellises' candidates, and what it counts beside them."""
        model = self._learned
        with interruptible():
            linear = model.linear
            learner = EmbeddingLearner(
                linear.n_features, len(model.labels), rank, linear.unit_length, rng
            )
            ids, scores = model.candidates(examples.X, CANDIDATES, self.n_jobs)
            learner.run(examples, rows, ids, rng)
            embedding = learner.embedding().weighed(
                examples, held_out, ids[held_out], scores[held_out], len(model.codebooks)
            )
            if learn_held_out:
                self._training().pass_over(examples, held_out)
                learner.learn(examples, held_out, ids, rng)
            if embedding.weight > 0:
                model.embedding = embedding

    def _learn_batch(self, examples: Examples, rng: Any) -> None:
        """Pass once over a batch; the threshold is the mean of the batches' best ones."""
        model, training = self._learned, self._training()
        rows = np.arange(len(examples))
        model.scoring = None
        training.run(examples, rows, epochs=1, rng=rng, shuffle=self.shuffle)
        model.loss_curve = [*model.loss_curve[-_LONGEST_CURVE:], *training.losses]
        model.n_passes += 1
        if model.multilabel:
            best = self._best_threshold(examples, rows)
            before = best if model.threshold is None else model.threshold
            model.threshold = before + (best - before) / model.n_passes

    def _best_threshold(self, examples: Examples, rows: npt.NDArray[np.int64]) -> float:
        rows = rows[:: -(-len(rows) // _THRESHOLD_ROWS)]
        for limit in (len(rows), 100):  # Ctrl-C leaves a threshold of fewer rows
            with interruptible():
                some = rows[:limit]
                k = self._learned.n_candidates
                ids, scores = self._learned.topk(examples.X[some], k, self.n_jobs)
                n_true = int(np.diff(examples.indptr)[some].sum())
                return best_threshold(scores, examples.contains(some, ids), n_true)
        return 0.0

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags
