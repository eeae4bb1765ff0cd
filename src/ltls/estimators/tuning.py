"""Better settings within a time limit, on held-out rows: a search space, a scorer and a search."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterSampler, train_test_split
from sklearn.utils import check_random_state

from .classifier import LTLSClassifier
from ..training.auto import Plan, Size, plan_for
from ..model.labels import Labels, as_targets
from ..linear.weights import padded
from ..training.trainer import OutOfTimeError, time_limit
from ..model.examples import Examples
from ..structure.trellis import Trellis

SEARCH_SPACE: dict[str, list[Any]] = {
    "width": [2, 4, 8, 16, 32],
    "n_trellises": [1, 2, 3, 5, 8],
    "embedding_dim": [0, 32, 64, 128],
    "learning_rate": [0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0],
    "epochs": [2, 3, 5, 10, 20],
    "loss": ["softmax", "logistic"],
    "assignment": ["random", "similarity", "frequency", "learned"],
}
"""Values worth trying, as scikit-learn's searches take them; see docs/tuning.md."""

_REDUCTION = 3  # a third of the candidates goes on to three times the rows
_FEWEST_ROWS = 1000
_MOST_HELD_OUT = 20_000  # rows: enough to tell half a point
_TRIES = 100  # to draw a candidate that is new and small enough


def precision_at_1(estimator: Any, X: Any, y: Any) -> float:
    """Score an estimator, or a pipeline that ends in one: how often the best label is a true one.

    For one or several labels a row, as ``scoring`` of `tune` and of scikit-learn's searches.

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
    labels: Labels = estimator._learned.labels
    best = estimator._learned.topk(estimator._checked(X), 1, estimator.n_jobs)[0]
    truth = Examples(None, targets.indptr, labels.ids(targets), None, targets.multilabel)
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
    most_bytes: int = 1 << 30,
    random_state: Any = None,
    verbose: int = 1,
) -> tuple[LTLSClassifier, list[dict[str, Any]]]:
    """Look for the best settings until the time is up, and fit them on all rows.

    Some rows are held out to compare by. Candidates, half of them drawn from the whole space and
    half of them the best so far with one or two settings changed, learn from a few rows; the best
    third of them learns from three times as many, and so on (successive halving). The estimator's
    own settings are tried first and on most rows, and what is returned are these, or others that
    are better on the held-out rows by more than a standard error.

    Scikit-learn's `HalvingRandomSearchCV` takes `SEARCH_SPACE` as well. It fixes the number of
    candidates and rows before the first fit and lets each fit run to its end, so it cannot keep to
    a time; here a fit is ended when it is too slow ever to be run on most rows in the time left.

    Parameters
    ----------
    X, y
        As for `LTLSClassifier.fit`.
    seconds : float, default=60.0
        For everything, the last fit included. That is never cut short, so a set on which a single
        fit takes longer takes longer.
    estimator : LTLSClassifier, optional
        Where to begin, and what the settings outside of `space` are.
    space : dict of lists or distributions, optional
        Values of parameters to draw from; `SEARCH_SPACE` by default.
    scoring : callable or str, default=precision_at_1
        As scikit-learn has it; more is better.
    validation_fraction : float, default=0.2
        Rows to hold out, at most 20,000 of them.
    most_bytes : int, default=2**30
        No candidate is tried whose weights and optimizer take more memory than that.
    random_state : int, RandomState or None, default=None
        For the rows held out, the candidates, and the estimator if it has none. How many
        candidates there are depends on the clock all the same.
    verbose : int, default=1
        Above 0, show progress.

    Returns
    -------
    estimator : LTLSClassifier
        With the best settings, fitted on all rows. Ctrl-C ends the search early, not this last fit.
    tried : list of dict
        What was tried, in order: the settings of `space`, the number of rows learned from, the
        score on the held-out rows (NaN if it did not come to that), the seconds that it took, and a
        note. The first are the estimator's own settings. ``pandas.DataFrame(tried)`` is a table.

    Notes
    -----
    The best score is the best of many on the same rows, and so too good by a little: judge the
    result on other rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ltls.tuning import tune
    >>> X, y = load_digits(return_X_y=True)
    >>> model, tried = tune(X / 16, y, seconds=2, random_state=0, verbose=0)
    >>> scores = [each["score"] for each in tried]
    >>> tried[0]["note"], max(scores) >= scores[0]
    ('defaults', True)
    """
    for name, value in (("seconds", seconds), ("most_bytes", most_bytes)):
        if not isinstance(value, Real) or not value > 0:
            raise ValueError(f"{name} must be a number above 0, got {value!r}")
    if not isinstance(validation_fraction, Real) or not 0 < float(validation_fraction) < 1:
        raise ValueError(
            f"validation_fraction must be between 0 and 1, got {validation_fraction!r}"
        )
    deadline = time.perf_counter() + seconds
    rng = check_random_state(random_state)
    estimator = LTLSClassifier() if estimator is None else estimator
    if not isinstance(estimator, LTLSClassifier):
        kind = type(estimator).__name__
        raise TypeError(f"estimator must be an LTLSClassifier, got {kind}")
    estimator = clone(estimator)
    if estimator.random_state is None:
        estimator.set_params(random_state=int(rng.randint(2**31)))
    if space is None:  # a size budget chooses the size itself
        fixed = () if estimator.size_budget is None else ("width", "n_trellises", "embedding_dim")
        space = {name: SEARCH_SPACE[name] for name in SEARCH_SPACE if name not in fixed}
    if unknown := set(space) - set(estimator.get_params()):
        raise ValueError(f"space must name parameters of the estimator, got {sorted(unknown)}")
    X = X if hasattr(X, "shape") else np.asarray(X)
    targets = as_targets(y)
    if targets.n_rows < 2:
        raise ValueError(f"y must have at least 2 rows, one to hold out, got {targets.n_rows}")
    held_out = min(int(np.ceil(validation_fraction * targets.n_rows)), _MOST_HELD_OUT)
    parts = train_test_split(X, y, test_size=held_out, random_state=rng)
    search = _Search(
        estimator,
        space,
        check_scoring(estimator, scoring),
        *parts,
        n_labels=len(Labels.sorted(targets)),
        loss="logistic" if targets.multilabel else "softmax",
        most_bytes=int(most_bytes),
        deadline=deadline,
        rng=rng,
    )
    with _progress(seconds, verbose) as search.show:
        search.run()
    best = clone(estimator).set_params(**search.best)
    return best.fit(X, y), search.tried


@dataclass
class _Search:
    """Successive halving over rows, again and again until there is no time left."""

    estimator: LTLSClassifier
    space: Mapping[str, Any]
    scorer: Callable[[Any, Any, Any], float]
    X: Any
    X_held_out: Any
    y: Any
    y_held_out: Any
    n_labels: int
    loss: str  # what "auto" means here
    most_bytes: int
    deadline: float
    rng: Any
    show: Callable[[str], None] = lambda _text: None
    best: dict[str, Any] = field(default_factory=dict)  # settings that differ from the estimator's
    best_score: float = -np.inf
    own_score: float = -np.inf  # of the estimator's own settings
    last_fit: float = 0.0  # seconds that the best settings will take on all rows
    tried: list[dict[str, Any]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Search until the time is up, all candidates are tried, or Ctrl-C."""
        try:
            with warnings.catch_warnings():
                # An interrupted fit only warns; here it means that the search is to end.
                warnings.filterwarnings("error", "training was interrupted", RuntimeWarning)
                sizes = self._sizes()
                while self.left > 0 and self._halve(sizes):
                    pass
        except (KeyboardInterrupt, RuntimeWarning):
            pass

    @property
    def left(self) -> float:
        """Seconds until the last fit has to begin."""
        return self.deadline - self.last_fit - time.perf_counter()

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_all(self) -> int:
        return self.n_rows + int(self.X_held_out.shape[0])

    def _sizes(self) -> list[int]:
        """Try the estimator's own settings; return the numbers of rows to learn from."""
        sizes = [self.n_rows]
        while sizes[0] // _REDUCTION >= max(_FEWEST_ROWS, 2 * self.n_labels):
            sizes.insert(0, sizes[0] // _REDUCTION)
        self._is_new({})
        self._try({}, sizes[0], np.inf, "defaults")
        per_row = self.tried[0]["seconds"] / sizes[0]
        # Half of the time is for the candidates.
        limit = self.left / 2 - per_row * self.n_all
        sizes = [size for size in sizes if size == sizes[0] or size * per_row < limit]
        if len(sizes) > 1:
            self._try({}, sizes[-1], np.inf, "defaults")
        self._keep_if_best(self.tried[-1], {})
        self.own_score = self.best_score
        return sizes

    def _halve(self, sizes: list[int]) -> bool:
        """Draw candidates and let fewer and fewer learn from more and more rows.

        Returns whether there were any.
        """

        def limit(size: int) -> float:
            """Return the time for so many rows that leaves as much a row for those to come."""
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
        """Draw up to n new candidates: from the space, and close to the best in turn.

        They take neither too much memory nor, on the fewest rows, surely more time than `limit`.
        """
        for number in range(n):
            for _ in range(_TRIES):
                (drawn,) = ParameterSampler(self.space, 1, random_state=self.rng)
                if number % 2 == 0:
                    names = self.rng.permutation(sorted(drawn))[: self.rng.randint(1, 3)]
                    drawn = {**self.best, **{name: drawn[name] for name in names}}
                small = self._n_bytes(drawn) <= self.most_bytes
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
        """Return what a candidate would learn from so many rows, every "auto" as a number."""
        n_values = self.X.nnz if hasattr(self.X, "nnz") else self.X.size
        share = n_rows / self.n_rows
        size = Size(n_rows, self.X.shape[1], int(n_values * share), self.n_labels)
        return plan_for(clone(self.estimator).set_params(**candidate), size)

    def _n_bytes(self, candidate: dict[str, Any]) -> int:
        """Return the memory that weights and vectors, AdaGrad and averaging take."""
        settings = {**self.estimator.get_params(), **candidate}
        plan = self._plan(candidate, self.n_rows)
        per_weight = 4 + 4 * (settings["optimizer"] == "adagrad") + 8 * settings["average"]
        edges = padded(Trellis(self.n_labels, plan.width).n_edges) * plan.n_trellises
        n_features = self.X.shape[1]
        vectors = 8 * padded(plan.rank + 1) * (n_features + self.n_labels) if plan.rank else 0
        return int(per_weight * edges * n_features + vectors)

    def _seconds(self, candidate: dict[str, Any]) -> float:
        """Guess the least time on the fewest rows from that of the estimator's own settings."""
        first = self.tried[0]
        own, plan = self._plan({}, first["rows"]), self._plan(candidate, first["rows"])
        ratio = plan.epochs * plan.n_trellises / (own.epochs * own.n_trellises)
        return float(first["seconds"]) / 2 * ratio

    def _try(
        self, candidate: dict[str, Any], size: int, limit: float, note: str = ""
    ) -> dict[str, Any]:
        """Fit a candidate on the first rows and score it on those held out."""
        model = clone(self.estimator).set_params(**candidate)
        score, start = np.nan, time.perf_counter()
        try:
            with time_limit(limit):
                model.fit(self.X[:size], self.y[:size])
            score = self.scorer(model, self.X_held_out, self.y_held_out)
        except OutOfTimeError:
            note = f"ended after {limit:.1f} s"
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
        self.tried.append(result)
        self.show(f"{len(self.tried)} fits, last on {size:,} rows, best {self.best_score:.4f}")
        return result

    def _keep_if_best(self, result: dict[str, Any], candidate: dict[str, Any]) -> None:
        # A rise that chance alone may give does not make up for settings that were thought out.
        score = result["score"]
        chance = np.sqrt(score * (1 - score) / self.X_held_out.shape[0]) if 0 < score < 1 else 0.0
        if score > max(self.best_score, self.own_score + chance):
            self.best, self.best_score = candidate, score
            self.last_fit = result["seconds"] * self.n_all / result["rows"]


@contextmanager
def _progress(seconds: float, verbose: int) -> Iterator[Callable[[str], None]]:
    """Show a bar over the time that there is; yield what moves it on."""
    if not verbose:
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    start = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("tuning", total=seconds)

        def show(text: str) -> None:
            progress.update(task, completed=time.perf_counter() - start, description=text)

        yield show
