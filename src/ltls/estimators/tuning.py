"""Hyperparameter search within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterSampler, train_test_split
from sklearn.utils import check_random_state

from ..features.rows import check_sparse
from ..linear.weights import padded
from ..model.examples import Examples
from ..model.labels import Labels, as_targets
from ..structure.losses import resolve_loss
from ..structure.trellis import Trellis
from ..training.auto import DatasetSize, Plan, plan_for
from ..training.config import TrainConfig
from ..training.interrupt import TimeLimitExceededError, time_limit
from .classifier import LTLSClassifier
from .text import TEXT_PARAMETERS, TextClassifier

SEARCH_SPACE: dict[str, list[Any]] = {
    "width": [2, 4, 8, 16, 32],
    "n_trellises": [1, 2, 3, 5, 8],
    "label_weights": [True, False],
    "embedding_dim": [0, 64, 128],
    "learning_rate": [0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0],
    "epochs": [2, 3, 5, 10, 20],
    "loss": ["softmax", "logistic"],
    "assignment": ["random", "similarity", "frequency", "learned"],
}
"""Candidate values, in the format of scikit-learn's searches; see docs/tuning.md."""

_REDUCTION = 3  # a third of the candidates continues with three times the rows
_MIN_ROWS = 1000
_MAX_HELD_OUT = 20_000  # rows: enough to detect a difference of half a point
_MAX_DRAWS = 100  # until a candidate is new and small enough


def precision_at_1(estimator: Any, X: Any, y: Any) -> float:
    """Return P@1 of an estimator, or of a pipeline that ends in one.

    For one or several labels per row; pass it as ``scoring`` to `tune` and scikit-learn's searches.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import GridSearchCV
    >>> from ltls import LTLSClassifier
    >>> from ltls.tuning import precision_at_1
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LTLSClassifier(n_trellises=1, epochs=2, random_state=0)
    >>> search = GridSearchCV(model, {"width": [2, 4]}, scoring=precision_at_1)
    >>> search.fit(X / 16, y).best_params_
    {'width': 4}
    """
    if hasattr(estimator, "steps"):
        X, estimator = estimator[:-1].transform(X), estimator[-1]
    targets = as_targets(y)
    X, model = estimator._checked(X)
    best = model.topk(X, 1, estimator.n_jobs)[0]
    ids = model.labels.ids(targets)
    truth = Examples(None, targets.indptr, ids, None, targets.multilabel)
    return float(truth.contains(np.arange(targets.n_rows), best).mean())


def tune(
    X: Any,
    y: Any,
    seconds: float = 60.0,
    *,
    estimator: LTLSClassifier | None = None,
    space: Mapping[str, Any] | None = None,
    scoring: Any = precision_at_1,
    validation_fraction: float = 0.2,
    max_bytes: int = 1 << 30,
    random_state: Any = None,
    verbose: int = 1,
) -> tuple[LTLSClassifier, list[dict[str, Any]]]:
    """Search for the best hyperparameters within a time limit, and refit them on all rows.

    Successive halving on a held-out validation set. Half of the candidates are drawn from the whole
    space, the other half are the best so far with one or two values changed. They are fitted on a
    few rows; the best third of them on three times as many, and so on. The estimator's own
    hyperparameters are evaluated first, on most rows; others replace them only if they are better
    on the validation set by more than a standard error.

    scikit-learn's `HalvingRandomSearchCV` accepts `SEARCH_SPACE` as well. It fixes the numbers of
    candidates and rows before the first fit and lets each fit finish, so it cannot keep to a time
    limit; here a fit is stopped when it is too slow to be run on most rows in the remaining time.

    Parameters
    ----------
    X, y
        As in `LTLSClassifier.fit`, or texts as in `TextClassifier.fit`. Texts become features once,
        before the search.
    seconds : float, default=60.0
        Time limit, including the final refit. The refit is never cut short, so a data set on which
        a single fit takes longer takes longer.
    estimator : LTLSClassifier or TextClassifier, optional
        The starting point, with the hyperparameters that are not in `space`.
    space : dict of lists or distributions, optional
        Hyperparameters and their values; `SEARCH_SPACE` by default.
    scoring : callable or str, default=precision_at_1
        As in scikit-learn; higher is better.
    validation_fraction : float, default=0.2
        Fraction of rows to hold out, at most 20,000 rows.
    max_bytes : int, default=2**30
        Skip candidates whose weights and optimizer state take more memory.
    random_state : int, RandomState or None, default=None
        Seed of the validation set and the candidates, and of the estimator if it has none. The
        number of candidates still depends on the speed of the machine.
    verbose : int, default=1
        Above 0, show a progress bar.

    Returns
    -------
    estimator : LTLSClassifier
        The best hyperparameters, refitted on all rows. Ctrl-C ends the search early, not the refit.
    results : list of dict
        One entry per fit, in order: the values of `space`, the number of rows, the score on the
        validation set (NaN if the fit did not finish), the time in seconds, and a note. The first
        has the estimator's own hyperparameters. ``pandas.DataFrame(results)`` makes a table of it.

    Notes
    -----
    The best score is the maximum of many on the same validation set, and so slightly optimistic:
    evaluate the result on other rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ltls.tuning import tune
    >>> X, y = load_digits(return_X_y=True)
    >>> model, results = tune(X / 16, y, seconds=2, random_state=0, verbose=0)
    >>> scores = [each["score"] for each in results]
    >>> results[0]["note"], max(scores) >= scores[0]
    ('defaults', True)
    """
    for name, value in (("seconds", seconds), ("max_bytes", max_bytes)):
        if not isinstance(value, Real) or not value > 0:
            raise ValueError(f"{name} must be a number above 0, got {value!r}")
    if not isinstance(validation_fraction, Real) or not 0 < float(validation_fraction) < 1:
        raise ValueError(
            f"validation_fraction must be between 0 and 1, got {validation_fraction!r}"
        )
    deadline = time.perf_counter() + seconds
    rng = check_random_state(random_state)
    if estimator is None:
        estimator = TextClassifier() if _are_texts(X) else LTLSClassifier()
    if not isinstance(estimator, LTLSClassifier):
        kind = type(estimator).__name__
        raise TypeError(f"estimator must be an LTLSClassifier, got {kind}")
    estimator = clone(estimator)
    if estimator.random_state is None:
        estimator.set_params(random_state=int(rng.randint(2**31)))
    space = SEARCH_SPACE if space is None else space
    if unknown := set(space) - set(estimator.get_params()):
        raise ValueError(f"space must name parameters of the estimator, got {sorted(unknown)}")
    text = estimator if isinstance(estimator, TextClassifier) else None
    if text is not None:
        if own := set(space) & set(TEXT_PARAMETERS):
            raise ValueError(
                f"space must not have parameters of the texts' features, got {sorted(own)}: texts "
                "become features once"
            )
        X, estimator = text.to_features(X)
    X = X if hasattr(X, "shape") else np.asarray(X)
    if hasattr(X, "tocsr"):
        check_sparse(X, "X")
    targets = as_targets(y)
    if targets.n_rows < 2:
        raise ValueError(f"y must have at least 2 rows, one to hold out, got {targets.n_rows}")
    held_out = min(int(np.ceil(validation_fraction * targets.n_rows)), _MAX_HELD_OUT)
    parts = train_test_split(X, y, test_size=held_out, random_state=rng)
    search = _Search(
        estimator,
        space,
        check_scoring(estimator, scoring),
        *parts,
        n_labels=len(Labels.sorted(targets)),
        loss=resolve_loss("auto", targets.multilabel).name,
        max_bytes=int(max_bytes),
        deadline=deadline,
        rng=rng,
    )
    with _progress(seconds, verbose) as search.show:
        search.run()
    best = type(estimator)(**{**estimator.get_params(deep=False), **search.best})
    best.fit(X, y)
    return best if text is None else text.with_classifier(best), search.results


def _are_texts(X: Any) -> bool:
    return not hasattr(X, "tocsr") and np.ndim(X) == 1 and isinstance(next(iter(X), None), str)


@dataclass
class _Search:
    """Successive halving over rows, repeated until the time is up."""

    estimator: LTLSClassifier
    space: Mapping[str, Any]
    scorer: Callable[[Any, Any, Any], float]
    X: Any
    X_held_out: Any
    y: Any
    y_held_out: Any
    n_labels: int
    loss: str  # what "auto" resolves to
    max_bytes: int
    deadline: float
    rng: Any
    show: Callable[[str], None] = lambda _text: None
    best: dict[str, Any] = field(default_factory=dict)  # values that differ from the estimator's
    best_score: float = -np.inf
    own_score: float = -np.inf  # of the estimator's own hyperparameters
    refit_seconds: float = 0.0  # estimate for the best hyperparameters on all rows
    results: list[dict[str, Any]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Search until the time is up, all candidates are tried, or Ctrl-C."""
        try:
            sizes = self._sizes()
            while self.left > 0 and self._halve(sizes):
                pass
        except KeyboardInterrupt:
            pass

    @property
    def left(self) -> float:
        """Seconds until the refit has to start."""
        return self.deadline - self.refit_seconds - time.perf_counter()

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_all(self) -> int:
        return self.n_rows + int(self.X_held_out.shape[0])

    def _sizes(self) -> list[int]:
        """Fit the estimator's own hyperparameters; return the numbers of rows to fit on."""
        sizes = [self.n_rows]
        while sizes[0] // _REDUCTION >= max(_MIN_ROWS, 2 * self.n_labels):
            sizes.insert(0, sizes[0] // _REDUCTION)
        self._is_new({})
        self._try({}, sizes[0], np.inf, "defaults")
        per_row = self.results[0]["seconds"] / sizes[0]
        # Half of the time is for the candidates.
        limit = self.left / 2 - per_row * self.n_all
        sizes = [size for size in sizes if size == sizes[0] or size * per_row < limit]
        if len(sizes) > 1:
            self._try({}, sizes[-1], np.inf, "defaults")
        self._keep_if_best(self.results[-1], {})
        self.own_score = self.best_score
        return sizes

    def _halve(self, sizes: list[int]) -> bool:
        """Draw candidates and fit fewer and fewer of them on more and more rows.

        Returns whether there were any.
        """

        def limit(size: int) -> float:
            """Return the time limit of a fit on `size` rows."""
            return self.left * size / (sizes[-1] + self.n_all)

        candidates = list(self._draw(_REDUCTION ** (len(sizes) - 1), limit(sizes[0])))
        results: list[dict[str, Any]] = []
        for size in sizes:
            results = []
            for candidate in candidates:
                if self.left <= 0:
                    return False
                results.append(self._try(candidate, size, limit(size)))
                if size == sizes[-1]:
                    self._keep_if_best(results[-1], candidate)
            order = np.argsort([-result["score"] for result in results], kind="stable")
            promising = [i for i in order if not np.isnan(results[i]["score"])]
            n_kept = max(1, len(candidates) // _REDUCTION)
            candidates = [candidates[i] for i in promising[:n_kept]]
        return bool(results)

    def _draw(self, n: int, limit: float) -> Iterator[dict[str, Any]]:
        """Draw up to n new candidates, alternately near the best one and from the whole space.

        Candidates that need too much memory, or surely more time than `limit`, are skipped.
        """
        for number in range(n):
            for _ in range(_MAX_DRAWS):
                (drawn,) = ParameterSampler(self.space, 1, random_state=self.rng)
                if number % 2 == 0:
                    names = self.rng.permutation(sorted(drawn))[: self.rng.randint(1, 3)]
                    drawn = {**self.best, **{name: drawn[name] for name in names}}
                small = self._n_bytes(drawn) <= self.max_bytes
                if small and self._seconds(drawn) <= limit and self._is_new(drawn):
                    yield drawn
                    break

    def _is_new(self, candidate: dict[str, Any]) -> bool:
        settings = self._settings(candidate)
        if settings.get("loss") == "auto":  # the same as one of the others
            settings["loss"] = self.loss
        key = repr(sorted(settings.items()))
        new = key not in self.seen
        self.seen.add(key)
        return new

    def _settings(self, candidate: dict[str, Any]) -> dict[str, Any]:
        own = self.estimator.get_params()
        return {name: candidate.get(name, own[name]) for name in self.space}

    def _plan(self, candidate: dict[str, Any], n_rows: int) -> Plan:
        """Return the plan of a candidate on `n_rows` rows, every "auto" resolved."""
        n_values = self.X.nnz if hasattr(self.X, "nnz") else self.X.size
        share = n_rows / self.n_rows
        size = DatasetSize(n_rows, self.X.shape[1], int(n_values * share), self.n_labels)
        parameters = {**self.estimator.get_params(), **candidate}
        return plan_for(TrainConfig.from_parameters(parameters, False), size)

    def _n_bytes(self, candidate: dict[str, Any]) -> int:
        """Return the memory for weights, embedding and optimizer state."""
        settings = {**self.estimator.get_params(), **candidate}
        plan = self._plan(candidate, self.n_rows)
        per_weight = 4 + 4 * (settings["optimizer"] == "adagrad") + 8 * settings["average"]
        n_paths = -(-self.n_labels // plan.bucket_size)
        edges = padded(Trellis(n_paths, plan.width).n_edges) * plan.n_trellises
        n_features = self.X.shape[1]
        vectors = (
            8 * padded(plan.embedding_dim + 1) * (n_features + self.n_labels)
            if plan.embedding_dim
            else 0
        )
        return int(per_weight * edges * n_features + vectors)

    def _seconds(self, candidate: dict[str, Any]) -> float:
        """Estimate the time on the fewest rows from that of the estimator's own values."""
        first = self.results[0]
        own, plan = self._plan({}, first["rows"]), self._plan(candidate, first["rows"])
        ratio = plan.epochs * plan.n_trellises / (own.epochs * own.n_trellises)
        return float(first["seconds"]) / 2 * ratio

    def _try(
        self, candidate: dict[str, Any], size: int, limit: float, note: str = ""
    ) -> dict[str, Any]:
        """Fit a candidate on the first rows and score it on the validation set."""
        model = clone(self.estimator).set_params(**candidate)
        score, start = np.nan, time.perf_counter()
        try:
            with time_limit(limit):
                model.fit(self.X[:size], self.y[:size])
            score = self.scorer(model, self.X_held_out, self.y_held_out)
        except TimeLimitExceededError:
            note = f"stopped after {limit:.1f} s"
        except (ValueError, MemoryError) as error:
            if not candidate:
                raise
            note = str(error)
        result = {
            **self._settings(candidate),
            "rows": size,
            "score": score,
            "seconds": time.perf_counter() - start,
            "note": note,
        }
        self.results.append(result)
        self.show(f"{len(self.results)} fits, last on {size:,} rows, best {self.best_score:.4f}")
        return result

    def _keep_if_best(self, result: dict[str, Any], candidate: dict[str, Any]) -> None:
        # An improvement within the standard error does not replace the estimator's own values.
        score = result["score"]
        chance = np.sqrt(score * (1 - score) / self.X_held_out.shape[0]) if 0 < score < 1 else 0.0
        if score > max(self.best_score, self.own_score + chance):
            self.best, self.best_score = candidate, score
            self.refit_seconds = result["seconds"] * self.n_all / result["rows"]


@contextmanager
def _progress(seconds: float, verbose: int) -> Iterator[Callable[[str], None]]:
    """Show a bar over the time limit; yield its update function."""
    if not verbose:
        yield lambda _text: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    start = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("tuning", total=seconds)

        def show(text: str) -> None:
            progress.update(task, completed=time.perf_counter() - start, description=text)

        yield show
