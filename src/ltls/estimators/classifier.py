"""LTLSClassifier: classification among very many classes as a scikit-learn estimator."""

from __future__ import annotations

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

from ..structure.policies import POLICIES, Codebook
from ..training.start import let_learn, new_model, taken_up_again
from ..training.checkpoint import Checkpoint, as_checkpoint
from ..structure.codebook import RandomCodebook, TableCodebook
from ..training.auto import Size, plan_for, streaming_plan
from .validation import check_class_weight, checked_features, known_classes, row_weights
from ..model.labels import Labels, Targets, as_targets
from ..training.fit import examples_of, learn, learn_batch
from .predict import Answers
from ..training.stream import fit_in_batches


class LTLSClassifier(Answers, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear classifier that learns and predicts in time logarithmic in the number of classes.

    Every class is a path through a trellis, and a linear model scores its O(log C) edges.

    Parameters
    ----------
    width : int or "auto", default="auto"
        States per slice of a trellis; 2 is the paper's. Wider is larger, slower and more accurate.
        What "auto" is, here and below, depends on the size of the data: see `ltls.training.auto`.
    n_trellises : int or "auto", default="auto"
        Trellises over the same features, each with its own codebook; their scores are added.
        Several narrow ones are more accurate than a wide one of the same size.
    embedding_dim : int or "auto", default="auto"
        The rank of an embedding that ranks the best candidates anew: a vector of so many numbers
        for every feature and label. 0 is the pure log-space model. What the embedding counts is
        learned from rows held out for it, which are learned last. `partial_fit` goes on without
        it, and `fit_stream` makes none.
    size_budget : str, int or None, default=None
        Such as "5MB", instead of `width` and `n_trellises`: the largest model whose weights fit
        when stored as int8, which is then what `save` does.
    loss : {"auto", "softmax", "separation", "logistic"}, default="auto"
        "softmax" normalises over all classes and has probabilities; best for one label per row.
        "separation" is the paper's ranking loss. "logistic" learns every edge by itself; best for
        several labels per row. "auto" is softmax for one label a row and logistic for several.
    assignment : {"random", "ranking", "similarity", "frequency", "learned"} or a codebook, \
default="random"
        Which path each label gets. "ranking" is the paper's: the best free path when the label is
        first seen. "random" needs no memory. "similarity" lets labels with similar examples share
        edges. "frequency" gives frequent labels short paths. "learned" begins as "similarity", and
        between the epochs of `fit` labels move to paths that the model itself scores higher for
        their examples; it helps narrow trellises. A `TableCodebook` or `RandomCodebook`
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
    batch_size : int, default=1
        Rows that find their steps from the same weights. Above 1, threads can share the work of
        a single trellis; up to about 64, accuracy stays the same.
    n_jobs : int or None, default=None
        Threads: None is one, −1 all cores. Predicting shares out the rows; learning the trellises,
        or the rows of a batch where there are fewer trellises than threads. The result is the same
        for any number.
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
        "embedding_dim": [Interval(Integral, 0, 2**16, closed="both"), StrOptions({"auto"})],
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
        "batch_size": [Interval(Integral, 1, None, closed="left")],
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
        embedding_dim: int | str = "auto",
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
        batch_size: int = 1,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        self.width = width
        self.n_trellises = n_trellises
        self.embedding_dim = embedding_dim
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
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    # Learning

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    ) -> LTLSClassifier:
        """Learn from rows and their labels.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features), float32 or float64
        y : labels
            One hashable label a row; or an indicator matrix, sparse or dense; or a list of label
            lists. A list of lists, sets or arrays is multi-label, a tuple is a single label.
        sample_weight : array of shape (n_rows,), optional
        checkpoint : path or Checkpoint, optional
            Where to keep the state of the training after every epoch. A `Checkpoint` can also go
            on from there.

        Returns
        -------
        self
            Ctrl-C ends the learning with a warning, and the estimator keeps what it has learned.

        Notes
        -----
        Features should be of similar size: `sklearn.preprocessing.StandardScaler` for dense ones.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0)
        >>> model.fit(X, ["ant", "bee", "cat", "dog"]).predict(X)
        array(['ant', 'bee', 'cat', 'dog'], dtype='<U3')
        >>> model.fit(X, [["ant"], ["bee", "ant"], ["cat"], []]).classes_  # several, or none
        array(['ant', 'bee', 'cat'], dtype='<U3')
        """
        with self._unchanged_if_it_fails():
            self._validate_params()
            X, targets, weights = self._validated(X, y, sample_weight, reset=True)
            if weights is not None and not weights.any():
                raise ValueError("Sample weights must contain at least one non-zero number.")
            rng = check_random_state(self.random_state)
            labels = Labels.sorted(targets)
            plan = plan_for(self, Size.of(X, len(labels)))
            if self.warm_start and hasattr(self, "_learned"):
                self._learned = taken_up_again(self, X, targets)
            else:
                if len(labels) < 2:
                    raise ValueError(
                        f"y must hold at least 2 classes, got 1 class: {labels.values[0]!r}; "
                        "partial_fit can begin with one"
                    )
                self._learned = new_model(self, X, targets, labels, plan, rng)
            examples = examples_of(self, X, targets, weights)
            learn(self, examples, plan, rng, as_checkpoint(checkpoint))
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> LTLSClassifier:
        """Learn from one more batch, which may bring new labels.

        A new label takes a free path; where none is left the trellis grows, and the scores of all
        other labels stay as they are. Growing keeps the width, which is smaller than asked for if
        `fit` began with fewer classes than that.

        An embedding that `fit` has learned (see `embedding_dim`) is dropped, since it has no vectors for
        new labels: from then on the trellises rank alone, by a point or two less well. Models that
        will go on learning are better fitted with ``embedding_dim=0``.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`; one pass is made over the rows.
        classes : array, optional
            Labels to know from the start. Not needed.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0)
        >>> for _ in range(20):
        ...     model = model.partial_fit(X[:2], ["ant", "bee"])
        >>> for _ in range(20):
        ...     model = model.partial_fit(X, ["ant", "bee", "cat", "dog"])  # two that are new
        >>> model.predict(X)
        array(['ant', 'bee', 'cat', 'dog'], dtype='<U3')
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
                # To grow and keep its width, a trellis needs as many paths as that.
                plan = streaming_plan(self)
                self._learned = new_model(self, X, targets, labels, plan, rng, room=plan.width)
            else:
                self._check_same_kind(targets)
                let_learn(self, self._learned)
                self._learned.labels.extend(known_classes(classes))
                self._learned.labels.add(targets)
                self._learned.make_room()
            learn_batch(self, examples_of(self, X, targets, weights), rng)
        return self

    def fit_stream(
        self, batches: Any, checkpoint: str | os.PathLike[str] | Checkpoint | None = None
    ) -> LTLSClassifier:
        """Learn from rows that do not fit into memory, in batches that come again in every epoch.

        One look at all batches counts labels and rows; then `epochs` passes are made. Rows are
        mixed within their batch only, so a file that is sorted by label should be mixed before.

        Parameters
        ----------
        batches : iterable of (X, y), or `ltls.readers.Stream`
            The same batches whenever it is iterated over, which a generator cannot give. X and y
            are as for `fit`.
        checkpoint : path or Checkpoint, optional
            As for `fit`.

        Returns
        -------
        self
            As after `fit` on all rows at once, but for their order, and for the codebooks of
            assignment="similarity", which are made from the first rows of every label. At most
            50,000 rows are held out by `validation_fraction`.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> batches = [(np.eye(4)[:2], ["a", "b"]), (np.eye(4)[2:], ["c", "a"])]
        >>> LTLSClassifier(epochs=20, random_state=0).fit_stream(batches).predict(np.eye(4))
        array(['a', 'b', 'c', 'a'], dtype='<U1')
        """
        with self._unchanged_if_it_fails():
            self._validate_params()
            fit_in_batches(self, batches, as_checkpoint(checkpoint))
        return self

    def _pair(self, X: Any, y: Any, reset: bool) -> tuple[Any, Targets]:
        check_class_weight(self.class_weight)
        targets = as_targets(y)
        X = checked_features(self, X, reset)
        if targets.n_rows != X.shape[0]:
            raise ValueError(
                f"y must have one entry per row of X: X has {X.shape[0]} rows, y {targets.n_rows}"
            )
        return X, targets

    def _validated(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Any, Targets, npt.NDArray[np.float32] | None]:
        X, targets = self._pair(X, y, reset)
        if not len(targets.labels):
            raise ValueError("y must hold at least one label, got none")
        if sample_weight is not None:
            sample_weight = row_weights(sample_weight, X.shape[0])
        return X, targets, sample_weight

    @contextmanager
    def _unchanged_if_it_fails(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def save(self, path: str | os.PathLike[str], dtype: str | None = None) -> None:
        """Write the fitted model to a file that `ltls.load` reads.

        Parameters
        ----------
        path : path
            Written under another name first, and renamed when complete.
        dtype : {"float32", "float16", "int8"}, optional
            How weights are stored; int8 has one scale per feature. The default is float32, or int8
            under a `size_budget`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> from ltls import load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "model.ltls")
        ...     model.save(path, dtype="int8")
        ...     load(path, mmap=False).predict(X)
        array(['ant', 'bee', 'cat', 'dog'], dtype='<U3')
        """
        from ..storage.model_file import save

        check_is_fitted(self)
        save(self, path, dtype or ("float32" if self.size_budget is None else "int8"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags


from . import _shim  # noqa: E402, F401
