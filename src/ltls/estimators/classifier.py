"""LTLSClassifier: extreme classification as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..io.dataset import Dataset
from ..model.fitted import FittedModel
from ..model.labels import Targets, as_targets
from ..storage.budget import fit_into_budget
from ..storage.model_file import SavedModel, save_model
from ..structure.codebook import Codebook, RandomCodebook, TableCodebook
from ..structure.losses import LOSSES
from ..structure.policies import POLICIES
from ..training.auto import parse_bytes
from ..training.checkpoint import Checkpoint, as_checkpoint
from ..training.config import TrainConfig
from ..training.fit import fit, partial_fit
from ..training.stream import fit_stream
from .explain import ExplainMixin
from .predict import PredictMixin
from .validation import (
    check_class_weight,
    check_features,
    check_parameters,
    check_sample_weight,
    known_classes,
)

Self = TypeVar("Self", bound="LTLSClassifier")


class LTLSClassifier(PredictMixin, ExplainMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear classifier with training and prediction time logarithmic in the number of classes.

    Every class is a path through a trellis, and a linear model scores the O(log C) edges.

    Parameters
    ----------
    width : int or "auto", default="auto"
        States per slice of a trellis; the paper uses 2. Wider is larger, slower and more accurate.
        "auto", here and below, depends on the size of the data: see `ltls.training.auto`.
    n_trellises : int or "auto", default="auto"
        Number of trellises over the same features, each with its own codebook; their scores are
        summed. Several narrow ones are more accurate than a wide one of the same size.
    bucket_size : int or "auto", default="auto"
        Labels that share a path. Similar labels are put into buckets, other ones in each trellis,
        and the trellises classify buckets; label weights tell the labels of a bucket apart. 1 is
        a path for every label, as in the paper.
    label_weights : bool or "auto", default="auto"
        Train a sparse linear classifier for every label, which reranks the trellises' candidates.
        False is the pure log-space model. `partial_fit` and `fit_stream` train them batch by
        batch.
    embedding_dim : int, default=0
        Dimension of an embedding that reranks the best candidates, before label weights do: a
        vector for every feature and every label. It needs a path for every label, and takes
        several times the time and space of label weights. `partial_fit` drops the embedding, and
        `fit_stream` trains none.
    propensity : float or "auto", default=0.0
        Rank labels by score − propensity · log p, where p is how likely the label is to be
        recorded where it is true (Jain et al. 2016): above 0, rare labels rank higher.
        Probabilities stay the same. "auto" chooses it on held-out rows, by propensity-scored
        precision, such that P@1 does not decrease.
    calibrate : bool, default=True
        Calibrate probabilities on held-out rows, from 1,000 rows on. `partial_fit` keeps the
        calibration of `fit`; `fit_stream` calibrates if there are validation rows.
    density : float or "auto", default="auto"
        Fraction of the weights that a fitted model predicts with; smaller ones are dropped, and
        the others are rounded to 8 bits. 1 keeps all weights as they are. "auto" is the smallest
        fraction that is as accurate on held-out rows. `partial_fit` continues with all weights.
    size_budget : str, int or None, default=None
        A file size such as "5MB" that `save` does not exceed: the smallest weights are dropped
        until the file fits. A budget that is larger than the file changes nothing.
    loss : {"auto", "softmax", "separation", "logistic"}, default="auto"
        "softmax" normalizes over all classes and has probabilities; best for one label per row.
        "separation" is the paper's ranking loss. "logistic" is an independent logistic loss per
        edge; best for several labels per row. "auto" is softmax for one label per row and
        logistic for several.
    assignment : {"random", "ranking", "similarity", "frequency", "learned"} or codebook, \
default="random"
        How labels are assigned to paths. "ranking" is the paper's: the best free path when the
        label is first seen. "random" needs no memory. "similarity" lets labels with similar rows
        share edges. "frequency" gives frequent labels short paths. "learned" starts as
        "similarity", and between epochs labels move to paths that the model scores higher for
        their rows; it helps narrow trellises. A `TableCodebook` or `RandomCodebook` is used for
        the labels in the order of `classes_`; several trellises take a list of them.
    epochs : int or "auto", default="auto"
        Number of passes over the training data.
    learning_rate : float, default=0.7
        Step size.
    optimizer : {"adagrad", "sgd"}, default="adagrad"
        The paper uses plain SGD with a constant learning rate.
    average : bool, default=False
        Predict with the average of the weights over all steps. Small dense problems, for which
        `fit` chooses one-vs-all, are averaged in any case: each `fit` over its own steps, and
        `partial_fit` continues from the average without averaging.
    shuffle : bool, default=True
        Shuffle the rows before every epoch.
    normalize : bool or "auto", default="auto"
        Scale every row to unit length, in training and prediction. "auto" does so for sparse rows.
    standardize : bool or "auto", default="auto"
        Scale dense features to mean 0 and standard deviation 1, in training and prediction.
        "auto" does so if they are unscaled: if a mean is beyond 4 standard deviations, or a
        standard deviation beyond 10 times the median of all. Memory-mapped features of `fit` are
        taken as they are then. `fit_stream` has means and deviations of all batches from its first
        pass. `partial_fit` keeps those of the `fit` before; on its own, it takes those of its first
        batch, with "auto" if that has 100 rows or more, and keeps them.
    fit_intercept : bool, default=True
        Add an intercept to every edge.
    l1 : float, default=0.0
        Soft threshold (the paper's λ) applied to the weights when they score, from the second
        epoch on.
    ranking_multiplier : int, default=1
        With assignment="ranking", a new label takes the best free path among the
        ranking_multiplier · ⌈log₂ C⌉ highest-scoring ones.
    class_weight : dict, "balanced" or None, default=None
        Weights of labels. A row with several labels has the mean of their weights.
    validation_fraction : float or "auto", default="auto"
        Fraction of rows held out for early stopping: when P@1 on them has not improved for
        `n_iter_no_change` epochs, the weights of the best epoch are kept. 0 runs all epochs.
    n_iter_no_change : int, default=1
        Epochs without improvement before early stopping.
    batch_size : int, default=1
        Mini-batch size. Above 1, threads can share the work of a single trellis; accuracy stays
        the same up to about 64.
    n_jobs : int or None, default=None
        Number of threads: None is one, −1 all cores. Prediction parallelizes over rows; training
        over trellises, or over the rows of a mini-batch if there are fewer trellises than
        threads, and over labels. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of shuffling, random codebooks and held-out rows.
    verbose : int, default=0
        Above 0, show a progress bar with loss, P@1 and time left.
    warm_start : bool, default=False
        Continue from the weights of the last `fit`, which must have had the same classes.
    replay_size : int, default=10000
        Training rows that the model keeps, at most, spread over the labels. `partial_fit` replays
        some of them with every batch, so that new labels do not displace old ones. A file holds as
        many as fit into a tenth of it, or 96 KiB. The rows are rounded, but otherwise the training
        data: 0 keeps none, in memory and in files.

    Attributes
    ----------
    classes_ : array
        The labels: sorted after `fit` (in order of appearance if they cannot be compared), in
        order of appearance after `partial_fit`. For an indicator matrix, its columns.
    model_ : FittedModel
        The fitted model: labels, codebooks, weights and rerankers.
    trellis_ : Trellis
        The graph; all trellises have the same.
    codebooks_ : list of TableCodebook, RandomCodebook or BucketCodebook
        The path of every label in each trellis; label i is classes_[i].
    codebook_ : TableCodebook, RandomCodebook or BucketCodebook
        The first of them.
    label_coef_ : sparse array of shape (n_classes, n_features), or None
        The label weights.
    label_intercept_ : array of shape (n_classes,), or None
    coef_ : array of shape (n_trellises · n_edges, n_features)
        The weights to predict with, 0 where they were dropped. A sparse array if few of the
        features occur in training.
    intercept_ : array of shape (n_trellises · n_edges,)
    n_features_in_ : int
    n_iter_ : int
        Number of epochs run.
    loss_curve_ : list of float
        The mean loss of every epoch.
    multilabel_ : bool
    threshold_ : float
        Multi-label only: the score from which `predict` returns a label, chosen for the best
        micro-averaged F1 on the training rows (the held-out rows if there are any).

    References
    ----------
    Jasinska and Karampatziakis, Log-time and Log-space Extreme Classification, 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ltls import LTLSClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = LTLSClassifier(random_state=1)
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
        "bucket_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "label_weights": ["boolean", StrOptions({"auto"})],
        "embedding_dim": [Interval(Integral, 0, 2**16, closed="both")],
        "propensity": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "calibrate": ["boolean"],
        "density": [Interval(Real, 0, 1, closed="right"), StrOptions({"auto"})],
        "size_budget": [str, Integral, None],
        "loss": [StrOptions({"auto", *LOSSES})],
        "assignment": [str, TableCodebook, RandomCodebook, list],  # see check_parameters
        "epochs": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [StrOptions({"adagrad", "sgd"})],
        "average": ["boolean"],
        "shuffle": ["boolean"],
        "normalize": ["boolean", StrOptions({"auto"})],
        "standardize": ["boolean", StrOptions({"auto"})],
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
        "replay_size": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        width: int | str = "auto",
        n_trellises: int | str = "auto",
        bucket_size: int | str = "auto",
        label_weights: bool | str = "auto",
        embedding_dim: int = 0,
        propensity: float | str = 0.0,
        calibrate: bool = True,
        density: float | str = "auto",
        size_budget: str | int | None = None,
        loss: str = "auto",
        assignment: str | Codebook | list[Codebook] = "random",
        epochs: int | str = "auto",
        learning_rate: float = 0.7,
        optimizer: str = "adagrad",
        average: bool = False,
        shuffle: bool = True,
        normalize: bool | str = "auto",
        standardize: bool | str = "auto",
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
        replay_size: int = 10_000,
    ) -> None:
        self.width = width
        self.n_trellises = n_trellises
        self.bucket_size = bucket_size
        self.label_weights = label_weights
        self.embedding_dim = embedding_dim
        self.propensity = propensity
        self.calibrate = calibrate
        self.density = density
        self.size_budget = size_budget
        self.loss = loss
        self.assignment = assignment
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.average = average
        self.shuffle = shuffle
        self.normalize = normalize
        self.standardize = standardize
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
        self.replay_size = replay_size

    # Training

    def fit(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features), float32 or float64
        y : labels
            One hashable label per row; or an indicator matrix, sparse or dense; or a list of label
            lists. A list of lists, sets or arrays is multi-label, a tuple is a single label.
        sample_weight : array of shape (n_rows,), optional
        checkpoint : path-like or Checkpoint, optional
            Where to save the state of training after every epoch. A `Checkpoint` can also resume
            from there.

        Returns
        -------
        self
            Ctrl-C ends training with a `TrainingInterruptedWarning`, and the estimator keeps the
            weights so far. In clones, such as those of `GridSearchCV`, it propagates.

        Notes
        -----
        Features should be of similar scale: use `sklearn.preprocessing.StandardScaler` for dense
        ones.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(epochs=20, random_state=0)
        >>> model.fit(X, ["ant", "bee", "cat", "dog"]).predict(X)
        array(['ant', 'bee', 'cat', 'dog'], dtype='<U3')
        >>> model.fit(X, [["ant"], ["bee", "ant"], ["cat"], []]).classes_  # multi-label
        array(['ant', 'bee', 'cat'], dtype='<U3')
        """
        with self._restored_on_error():
            config = self._config()
            saved = self._checkpoint(checkpoint)
            X, targets, weights = self._validated(X, y, sample_weight, reset=True)
            if weights is not None and not weights.any():
                raise ValueError("Sample weights must contain at least one non-zero number.")
            rng = check_random_state(self.random_state)
            previous = getattr(self, "model_", None) if self.warm_start else None
            self.model_ = fit(config, X, targets, weights, rng, checkpoint=saved, previous=previous)
            self._keep_budget()
        return self

    def partial_fit(
        self: Self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Make one pass over a batch, which may have new labels.

        A new label takes a free path; if none is left the trellis grows, and the scores of all
        other labels stay the same. The width stays that of the first trellis, min(width, number
        of classes at that time). If labels share paths (see `bucket_size`), a new label joins the
        bucket that scores highest for its rows.

        Rows of the past are replayed with the batch, so that new labels do not displace old ones:
        see `replay_size`. Label weights of new labels are trained on the rows that are kept; those
        of others stay, unless the batch has many rows of theirs. A model that starts with
        `partial_fit` has none. An embedding (see `embedding_dim`) is dropped, since it has no
        vectors for new labels.

        Other threads may predict or save meanwhile: they see the model of before, and from the end
        of the call on the new one. If the call fails, the estimator is exactly as it was. That
        takes memory for two copies of what is trained, and a copy of the weights of the features
        that occurred in the last call (of all weights in the first call, and while someone still
        has the model of two calls before); if there are new labels, also of codebooks other than
        random ones.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : array, optional
            Labels to know from the start. Not required.

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
        ...     model = model.partial_fit(X, ["ant", "bee", "cat", "dog"])  # two new labels
        >>> model.predict(X)
        array(['ant', 'bee', 'cat', 'dog'], dtype='<U3')
        """
        with self._restored_on_error():
            config = self._config()
            if self.class_weight == "balanced":
                raise ValueError(
                    "class_weight='balanced' needs all rows at once; partial_fit takes a dict"
                )
            model = getattr(self, "model_", None)
            X, targets, weights = self._validated(X, y, sample_weight, reset=model is None)
            rng = check_random_state(self.random_state)
            self.model_ = partial_fit(
                config, model, X, targets, known_classes(classes), weights, rng
            )
        return self

    def fit_stream(
        self: Self, batches: Any, checkpoint: str | os.PathLike[str] | Checkpoint | None = None
    ) -> Self:
        """Fit the model on batches that do not fit into memory together.

        A first pass over all batches counts labels and rows; then `epochs` passes are made, and
        one for label weights. Rows are shuffled within their batch only, so a file that is sorted
        by label should be shuffled beforehand.

        Parameters
        ----------
        batches : iterable of (X, y), `ltls.readers.Stream` or `ltls.readers.TableStream`
            Iterated again in every epoch, which a generator does not support. X and y are as in
            `fit`.
        checkpoint : path-like or Checkpoint, optional
            As in `fit`.

        Returns
        -------
        self
            As after `fit` on all rows at once, except for the order of rows, and for the codebooks
            of assignment="similarity" and "learned" and buckets, which use the first rows of every
            label. Label weights are trained on four batches at a time. At most
            50,000 rows are held out by `validation_fraction`.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> batches = [(np.eye(4)[:2], ["a", "b"]), (np.eye(4)[2:], ["c", "a"])]
        >>> LTLSClassifier(epochs=20, random_state=0).fit_stream(batches).predict(np.eye(4))
        array(['a', 'b', 'c', 'a'], dtype='<U1')
        """
        with self._restored_on_error():
            config = self._config()
            if isinstance(batches, Iterator):
                raise TypeError(
                    "batches must be iterable again for every epoch, as a list or a Stream is, "
                    f"got a {type(batches).__name__}"
                )
            saved = self._checkpoint(checkpoint)
            self._begin_stream(batches)
            rng = check_random_state(self.random_state)
            self.model_ = fit_stream(config, partial(self._stream_rows, batches), rng, saved)
            self._keep_budget()
        return self

    def check_parameters(self) -> None:
        """Raise an error if a parameter is invalid, before any data is read."""
        constraints = {
            **self._parameter_constraints,
            "assignment": [StrOptions(set(POLICIES)), TableCodebook, RandomCodebook, list],
        }
        check_parameters(type(self).__name__, constraints, self.get_params(deep=False))
        check_class_weight(self.class_weight)
        if self.size_budget is not None:
            parse_bytes(self.size_budget)

    @classmethod
    def from_model(cls: type[Self], model: FittedModel, **parameters: Any) -> Self:
        """Return an estimator with a model that was fitted elsewhere."""
        estimator = cls(**parameters)
        estimator.model_ = model
        estimator.n_features_in_ = model.n_features
        return estimator

    def save(
        self, path: str | os.PathLike[str], dtype: str | None = None, resumable: bool = False
    ) -> None:
        """Save the fitted model to a file that `ltls.load` reads.

        Parameters
        ----------
        path : path-like
            Replaced atomically.
        dtype : {"float32", "float16", "int8"}, optional
            How the trellises' weights are stored. The default is int8, with one scale per
            feature: a model that is not pruned predicts the same labels nearly always, with
            scores that differ in the third digit. float32 and float16 store all weights of a
            model that was trained in this process, pruned or not. Label weights are always int8.
        resumable : bool, default=False
            Also store all weights in full precision and the optimizer's state, which makes the file
            several times as large: to continue from it is bit-identical to continuing in memory, if
            `random_state` is a number. Any file can be trained further; see `replay_size`.

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
        check_is_fitted(self)
        dtype, budget = dtype or "int8", None
        if self.size_budget is not None:
            if dtype != "int8":
                raise ValueError(f"dtype must be 'int8' with a size_budget, got {dtype!r}")
            if resumable:
                raise ValueError("resumable must be False with a size_budget, got True")
            self._keep_budget()
            budget = parse_bytes(self.size_budget)
        save_model(self._saved_model(), path, dtype, resumable=resumable, budget=budget)

    def _keep_budget(self) -> None:
        if self.size_budget is not None:
            fit_into_budget(self._saved_model(), parse_bytes(self.size_budget))

    def _saved_model(self) -> SavedModel:
        names: list[str] = list(getattr(self, "feature_names_in_", ()))
        return SavedModel(self.model_, self.get_params(deep=False), names)

    def _set_feature_names(self, names: list[str]) -> None:
        self.feature_names_in_ = np.array(names, object)

    def _config(self) -> TrainConfig:
        self.check_parameters()
        is_clone = "_is_clone" in self.__dict__
        return TrainConfig.from_parameters(self.get_params(deep=False), not is_clone)

    def _checkpoint(self, given: str | os.PathLike[str] | Checkpoint | None) -> Checkpoint | None:
        checkpoint = as_checkpoint(given)
        if checkpoint is not None:
            checkpoint.begin(self.get_params(deep=False))
        return checkpoint

    def _pair(self, X: Any, y: Any, reset: bool) -> tuple[Any, Targets]:
        """Return features and targets, validated."""
        targets = as_targets(y)
        X = check_features(self, X, reset)
        if targets.n_rows != X.shape[0]:
            raise ValueError(
                f"y must have one entry per row of X: X has {X.shape[0]} rows, y {targets.n_rows}"
            )
        return X, targets

    def _begin_stream(self, batches: Iterable[Any]) -> None:
        """Learn what rows are made of, before the first pass of `fit_stream`."""

    def _stream_rows(self, batches: Iterable[Any], first: bool) -> Iterator[tuple[Any, Targets]]:
        """Yield the features and targets of all batches, validated; the first pass is `first`."""
        for batch in batches:
            X, y = (batch.X, batch.targets) if isinstance(batch, Dataset) else batch
            yield self._pair(X, y, reset=first)
            first = False

    def _validated(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Any, Targets, npt.NDArray[np.float32] | None]:
        X, targets = self._pair(X, y, reset)
        if not len(targets.labels):
            raise ValueError("y must hold at least one label, got none")
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X.shape[0])
        return X, targets, sample_weight

    @contextmanager
    def _restored_on_error(self) -> Iterator[None]:
        """Leave the estimator as it was if the block fails."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def __sklearn_clone__(self: Self) -> Self:
        # Meta-estimators fit clones. Ctrl-C must end a whole search, not one of its fits.
        parameters = self.get_params(deep=False)
        copied = {name: clone(value, safe=False) for name, value in parameters.items()}
        new = type(self)(**copied)
        new._is_clone = True
        return new

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags
