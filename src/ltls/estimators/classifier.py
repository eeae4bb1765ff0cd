"""LTLSClassifier: extreme classification as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Floats, check_unmasked
from ..core.settings import ParameterError, n_bytes, settings
from ..core.streams import prefetch
from ..features.blocks import Blocks
from ..features.front_ends import FrontEnd, FrontEndSettings
from ..features.numbers import NumberInputs
from ..features.rows import check_features
from ..io.readers import Dataset
from ..model.examples import check_sample_weight
from ..model.labels import Targets, as_targets
from ..model.model import Fitted
from ..storage.budget import within_budget
from ..storage.model_file import save_model
from .explain import ExplainMixin
from .parameters import Parameters
from .predict import PredictMixin

if TYPE_CHECKING:  # methods that train import the rest of `training`: prediction does not need it
    from ..training.checkpoint import Checkpoint
    from ..training.trainer import TrainOptions

Self = TypeVar("Self", bound="LTLSClassifier")


class EstimatorParameterError(ParameterError, InvalidParameterError):  # type: ignore[misc]
    """A parameter of an estimator has an invalid value; scikit-learn's error, too."""


@settings
class LTLSClassifier(PredictMixin, ExplainMixin, ClassifierMixin, Parameters, BaseEstimator):  # type: ignore[misc]
    """Classifier among very many classes.

    A model combines several parts. Trellises, in which every class is a path, find labels or
    clusters of labels in logarithmic time. Label weights, which are sparse linear classifiers,
    distinguish the labels of a cluster. For dense rows, a label matrix scores all labels.
    Prototypes and neighbours find labels with few rows. The size of the data and accuracy on
    held-out rows decide which parts a model has; `plan_` explains the choice.

    To configure a part, pass an object from `ltls.settings`; True includes the part with default
    settings, False leaves it out. ``set_params(trellises__width=16)`` changes a single setting.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The labels: sorted after `fit` (in order of appearance if they cannot be compared), in
        order of appearance after `partial_fit`. For an indicator matrix, its column indices.
    model_ : Model
        The fitted model.
    plan_ : str
        Which parts were trained, which of them were left out, and why.
    trellis_ : Trellis
        The graph of edges and paths, which is the same for all trellises.
    codebooks_ : list of TableCodebook, RandomCodebook or BucketCodebook
        The path of every label in each trellis; label i is classes_[i]. In a model with views, the
        labels of a cluster share a path.
    coef_ : array of shape (n_trellises · n_edges, n_features)
        The weights of the trellises, with 0 for small weights that were dropped. A sparse array if
        few of the features occur in the training data.
    intercept_ : array of shape (n_trellises · n_edges,)
        The intercept of every edge.
    n_features_in_ : int
        Number of features of the training rows.
    feature_names_in_ : array of str
        Names of the features, if the training rows were a data frame with column names.
    n_iter_ : int
        Number of epochs run.
    loss_curve_ : list of float
        The mean loss of every epoch.
    held_out_precision_ : float or None
        P@1, the fraction of rows whose best label is correct, on the rows that `fit` held out to
        choose the weights of the parts; None if none were held out. Because of that choice, it is
        not a test score.
    multilabel_ : bool
        Whether rows may have several labels.
    threshold_ : float
        Multi-label only: the lowest score at which `predict` returns a label. Chosen to maximize
        micro-averaged F1 on held-out rows; can be set.

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

    __repr__ = BaseEstimator.__repr__

    def check(self, owner: str | None = None) -> None:
        """Raise an error for the first parameter with an invalid value."""
        try:
            super().check(owner)
        except ParameterError as error:
            raise EstimatorParameterError(*error.args) from None

    def front_end_settings(self) -> FrontEndSettings:
        """Return the settings of the front end; its default settings if "auto"."""
        given = self.features
        return self.default_features() if isinstance(given, str) else given

    # Training

    def _train_options(self) -> TrainOptions:
        from ..training.trainer import TrainOptions

        self.check()
        given = Parameters(**{each.name: getattr(self, each.name) for each in fields(Parameters)})
        # Meta-estimators fit clones. Ctrl-C must end a whole search, not one of its fits.
        keep = "_is_clone" not in self.__dict__
        return TrainOptions(
            given,
            self.n_jobs,
            int(self.verbose),
            self.class_weight,
            keep,
            size_budget=self._budget,
        )

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
            For a `TextClassifier`, a list, array or Series of strings; for a `TableClassifier`, a
            data frame or a list of dicts. To combine sparse and dense features, such as words and
            embeddings, pass a list of blocks: sparse matrices and arrays with the same rows.
        y : array-like or sparse matrix
            One hashable label per row. For several labels per row, a list of lists, sets or arrays
            of labels, or an indicator matrix of shape (n_rows, n_labels), sparse or dense. Lists of
            only 0 and 1, all of the same length above 1, are an indicator matrix. A tuple is a
            single label.
        sample_weight : array of shape (n_rows,), optional
            Weights of the rows, at least 0. By default, all are 1.
        checkpoint : path-like or Checkpoint, optional
            File to which the training state is saved after every epoch. Pass a `Checkpoint` to
            resume training.

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C during the epochs ends training with a `TrainingInterruptedWarning`: the estimator is
        fitted, with the weights trained so far. A second Ctrl-C, or one after the epochs, raises
        `KeyboardInterrupt` and leaves the estimator unchanged. In clones, such as those that
        `GridSearchCV` fits, Ctrl-C always raises `KeyboardInterrupt`.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).set_params(trellises__epochs=20)
        >>> model.fit(X, ["ant", "bee", "cat", "dog"]).predict(X)
        array(['ant', 'bee', 'cat', 'dog'], dtype='<U3')
        >>> model.fit(X, [["ant"], ["bee", "ant"], ["cat"], []]).classes_  # multi-label
        array(['ant', 'bee', 'cat'], dtype='<U3')
        """
        from ..training.fit import fit

        with self._restored_on_error():
            options, saved = self._train_options(), self._checkpoint(checkpoint)
            previous: Fitted | None = getattr(self, "fitted_", None) if self.warm_start else None
            front_end, X, targets, weights = self._inputs(X, y, sample_weight, previous)
            if weights is not None and not weights.any():
                raise ValueError("Sample weights must contain at least one non-zero number.")
            rng = check_random_state(self.random_state)
            self.fitted_ = fit(
                options, X, targets, weights, front_end, rng, checkpoint=saved, previous=previous
            )
        return self

    def partial_fit(
        self: Self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on one batch, which may contain new labels.

        A new label joins one cluster of every view or, in a model without views, takes a free path.
        If no path is free, the trellis grows, which does not change the scores of other labels.
        Prototypes and neighbours find a label from its first row on. The model stores training rows
        and replays them with later batches, so that it does not forget old labels; see `memory`.

        The first call trains only trellises, unless the batch is dense and has enough labels for a
        label matrix; then it trains like `fit`.

        Other threads may predict or save during the call; they use the old model until it returns.
        If the call fails or is interrupted, the estimator is unchanged. Since the old model is kept
        during the call, the call needs memory for two copies of the weights.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : array or list, optional
            Labels to add, even if they do not occur in y.

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
        from ..training.fit import fit_first_batch
        from ..training.further import partial_fit

        with self._restored_on_error():
            options = self._train_options()
            if self.class_weight == "balanced":
                raise ValueError(
                    "class_weight must be a dict or None in partial_fit, got 'balanced', which "
                    "needs all rows at once"
                )
            before: Fitted | None = getattr(self, "fitted_", None)
            if before is None and self.size_budget is not None:
                raise ValueError(
                    "size_budget needs all rows at once; call fit first, or limit the size by "
                    "trellises__width"
                )
            front_end, X, targets, weights = self._inputs(X, y, sample_weight, before)
            rng, batch = (
                check_random_state(self.random_state),
                (X, targets, _known_classes(classes)),
            )
            found = None
            if before is None:
                found = fit_first_batch(options, *batch, weights, front_end, rng)
            self.fitted_ = found or partial_fit(options, before, *batch, weights, front_end, rng)
        return self

    def fit_stream(
        self: Self, batches: Any, checkpoint: str | os.PathLike[str] | Checkpoint | None = None
    ) -> Self:
        """Fit the model on batches of data that need not fit into memory.

        The first pass over the batches counts labels and rows; for texts and tables, another pass
        before it learns the features. Then follow the epochs of the trellises and a few passes for
        the other parts. Rows are shuffled only within their batch: if the data is sorted by label,
        shuffle it beforehand.

        Parameters
        ----------
        batches : iterable of (X, y), `ltls.readers.Stream` or `ltls.readers.TableStream`
            Iterated once per pass, so it cannot be a generator. X and y are as in `fit`.
        checkpoint : path-like or Checkpoint, optional
            As in `fit`.

        Returns
        -------
        self

        Notes
        -----
        The model differs from that of `fit` on all rows: rows are trained on in another order;
        label weights are trained block by block, and not on held-out rows; clusters and similarity
        codebooks are computed from the first 32 rows per label.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> batches = [(np.eye(4)[:2], ["a", "b"]), (np.eye(4)[2:], ["c", "a"])]
        >>> model = LTLSClassifier(random_state=0).set_params(trellises__epochs=20)
        >>> model.fit_stream(batches).predict(np.eye(4))
        array(['a', 'b', 'c', 'a'], dtype='<U1')
        """
        from ..training.fit import fit_stream

        with self._restored_on_error():
            options = self._train_options()
            if isinstance(batches, Iterator):
                raise TypeError(
                    "batches must be iterable more than once, like a list or a Stream, "
                    f"got a {type(batches).__name__}"
                )
            saved = self._checkpoint(checkpoint)
            inputs = (_pair(batch)[0] for batch in batches)
            with self._phase("features"):
                front_end = self.front_end_settings().fit_batches(inputs, self.n_jobs)
            rng = check_random_state(self.random_state)
            rows = partial(self._stream_rows, batches, front_end)
            self.fitted_ = fit_stream(options, rows, front_end, rng, saved)
        return self

    def _stream_rows(
        self, batches: Iterable[Any], front_end: FrontEnd, first: bool
    ) -> Iterator[tuple[Any, Targets]]:
        """Yield the validated features and targets of all batches; `first` marks the first pass."""
        pairs = map(_pair, batches)
        rows: Iterator[tuple[Any, Any]] = ((front_end.matrix(X), y) for X, y in pairs)
        if not front_end.settings.takes_matrix:
            rows = prefetch(rows)  # prepare the next features while training on these
        for X, y in rows:
            if first and isinstance(front_end, NumberInputs):
                front_end.learn_names(X)
            yield self._checked_pair(X, y, reset=first)
            first = False

    def _inputs(
        self, X: Any, y: Any, sample_weight: Any, before: Fitted | None
    ) -> tuple[FrontEnd, Any, Targets, Floats | None]:
        """Return front end, features, targets and weights, validated.

        If training continues from the model `before`, its front end is used.
        """
        given = self.front_end_settings()
        front_end: FrontEnd
        if before is None:
            with self._phase("features"):
                front_end, matrix = given.fit(X, self.n_jobs)
        else:
            from ..training.further import check_same_features

            check_same_features(before.model, given)
            front_end = before.model.front_end
            matrix = front_end.matrix(X, self.n_jobs)
        matrix, targets = self._checked_pair(matrix, y, reset=before is None)
        if not len(targets.labels):
            raise ValueError("y must hold at least one label, got none")
        weights = None
        if sample_weight is not None:
            weights = check_sample_weight(sample_weight, matrix.shape[0])
        return front_end, matrix, targets, weights

    def _phase(self, name: str) -> AbstractContextManager[None]:
        from ..training.progress import phase

        return phase(bool(self.verbose), name)

    def _checked_pair(self, X: Any, y: Any, reset: bool) -> tuple[Any, Targets]:
        targets = as_targets(y)
        X = check_features(self, X, reset)
        targets.check_rows(X.shape[0])
        n_dense = getattr(self.front_end_settings(), "n_dense", 0)
        if not n_dense or isinstance(X, Blocks):
            return X, targets
        if n_dense >= X.shape[1]:
            raise ValueError(
                f"features.n_dense must be less than the {X.shape[1]} features of X, got {n_dense}"
            )
        return Blocks.split(X, n_dense), targets

    def _checkpoint(self, given: str | os.PathLike[str] | Checkpoint | None) -> Checkpoint | None:
        if given is None:
            return None
        from ..training.checkpoint import Checkpoint

        checkpoint = given if isinstance(given, Checkpoint) else Checkpoint(given)
        checkpoint.begin(self.get_params(deep=True))
        return checkpoint

    @contextmanager
    def _restored_on_error(self) -> Iterator[None]:
        """Restore the estimator if the block fails."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before  # in one step, since another interrupt may come
            raise

    # Files

    def save(self, path: str | os.PathLike[str], resumable: bool = False) -> None:
        """Save the fitted model; `ltls.load` restores it with identical predictions.

        Parameters
        ----------
        path : path-like
            The file to write. An existing file is replaced atomically.
        resumable : bool, default=False
            Also store the whole memory, all weights in full precision and the optimizer state, so
            that `partial_fit` after `load` is bit-identical to `partial_fit` without saving if
            `random_state` is an integer. The file is several times as large. If False, the file has
            the weights for prediction and, in little space, an approximate optimizer state and some
            rows of the memory: `partial_fit` works, but is not bit-identical.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from ltls import LTLSClassifier, load
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).set_params(trellises__epochs=20)
        >>> model = model.fit(X, ["ant", "bee", "cat", "dog"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "model.ltls")
        ...     model.save(path)
        ...     load(path, mmap=False).predict(X)
        array(['ant', 'bee', 'cat', 'dog'], dtype='<U3')
        """
        check_is_fitted(self)
        self.check_own()
        fitted, budget, parameters = self.fitted_, self._budget, self.get_params(deep=False)
        if budget is not None:
            if resumable:
                raise ValueError("resumable must be False with a size_budget, got True")
            model = within_budget(self._kept(fitted), parameters, budget)
            fitted = self.fitted_ = replace(fitted, model=model)
        save_model(self._kept(fitted), parameters, path, resumable=resumable, budget=budget)

    @property
    def _budget(self) -> int | None:
        """The size budget in bytes."""
        given = self.size_budget
        return n_bytes(given) if isinstance(given, str) else given

    def _kept(self, fitted: Fitted) -> Fitted:
        """Return the model, without training rows if ``memory=False``."""
        return fitted if self.memory is not False else fitted.without_rows()

    def record_source(self, **facts: Any) -> None:
        """Record the `columns` of the training file, or whether its indices are `zero_based`."""
        self._model()
        provenance = replace(self.fitted_.provenance, **facts)
        self.fitted_ = replace(self.fitted_, provenance=provenance)

    # scikit-learn

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {**state, "fitted_": self._kept(self.fitted_)} if "fitted_" in state else state

    def __sklearn_clone__(self: Self) -> Self:
        parameters = self.get_params(deep=False)
        copied = {name: clone(value, safe=False) for name, value in parameters.items()}
        new = type(self)(**copied)
        new._is_clone = True
        return new

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        takes_matrix = self.front_end_settings().takes_matrix
        tags.input_tags.sparse = tags.input_tags.two_d_array = takes_matrix
        tags.input_tags.string = not takes_matrix
        return tags


def _pair(batch: Any) -> tuple[Any, Any]:
    return (batch.X, batch.targets) if isinstance(batch, Dataset) else batch


def _known_classes(classes: Any) -> list[Any]:
    """Return the distinct labels of the `classes` argument of `partial_fit`."""
    if classes is None:
        return []
    check_unmasked("classes", classes)
    listed = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
    return list(dict.fromkeys(listed))
