"""Recipes: from the size of the data to a plan of what is trained.

A recipe depends only on the data. A setting given by the user replaces a field of the plan, and
never switches the recipe. The first row of this table that applies is the recipe:

| recipe | data | parts |
|---|---|---|
| one-vs-all | dense rows, one label per row, up to 128 labels [1] | a wide trellis |
| label matrix | other dense rows, at least 64 labels | a trellis of width 2, a vector per label |
| trellises | fewer than 1,000 rows, or fewer than 64 labels | several trellises |
| classifiers | several labels per row, up to 2,048 labels | trellises and label weights |
| views | other sparse rows | views: trellises of clusters, and label weights |

[1] At least 100 rows, or at least 10 labels.

If rows × labels exceed 2²⁵, data with several labels per row has views, too.

The recipes "classifiers" and "views" also try prototypes and neighbours, and "label matrix" tries
neighbours; parts that improve the ranking on held-out rows are kept. Neighbours are tried for up to
400,000 rows; with a label matrix, only for at least 2,000 rows that are in memory and have at most
2²⁵ values. For sparse rows with dense features beside them, a model has the parts for sparse rows,
and a label matrix for the dense features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..core.settings import AUTO, Settings
from ..parts.base import PARTS
from ..parts.calibration import Calibration
from ..parts.edge_weights import MAX_PRUNED_STRIDE, padded
from ..parts.label_matrix import MOST_FEATURES, LabelMatrix
from ..parts.label_weights import LabelWeights
from ..parts.memory import Memory
from ..parts.trellises import Trellises
from ..parts.views import MOST_CLUSTERS, Views
from ..structure.losses import LOSSES
from ..structure.trellis import Trellis

_MIN_ROWS, _MIN_LABELS = 1000, 64  # for label weights; as many rows for calibration
_FEW_LABELS, _FEW_PAIRS = 2048, 1 << 25  # of rows and labels
SEVERAL = 1.1  # labels per row, on average
_MAX_DENSE_LABELS, _FEW_DENSE_ROWS = 128, 2000
_MIN_DENSE_ROWS, _MIN_DENSE_LABELS = 100, 10  # at least one of them, for one-vs-all
_CLUSTER_SIZE, _VIEWS = 100, 2
_FEW_ROWS = 20  # of a label, on average
_MULTIPLICATIONS = 2.5e9  # of training trellises alone
_MIN_TRELLISES, _MAX_TRELLISES = 3, 12
_MANY_PATHS, _WIDTH, _WIDE = 10_000, 8, 16
_FEW_CLUSTERS, _WIDEST = 256, 32
# Classifiers of clusters: rows × clusters at most, and rows of a label on average. Trellises find
# clusters less well if rows have several labels (True): their edges are independent then.
_MAX_CLUSTER_ROWS = {False: 1 << 23, True: 1 << 25}
_MIN_CLUSTER_ROWS = {False: 10, True: 4}
_LEARNING_RATE, _DENSE_LEARNING_RATE = 0.7, 0.07
_MIN_PRUNED = 1 << 18  # weights of trellises from which on pruning is worthwhile
_MANY_WEIGHTS = 1 << 22  # of trellises
_DENSITY = {False: 0.1, True: 0.05}  # True if other parts share the work of many weights
_MAX_HELD_OUT = 3000
_MAX_NEIGHBOURS = 400_000  # rows: more would take too much time and space
_MAX_COMPARED = 1 << 25  # values of dense rows, which are all compared
_MIN_COMPARED = 2000  # dense rows: on 200 held-out ones, P@1 has a standard error of 3 points
REPLAYED = 10_000  # rows to keep, if no part needs more
_REQUIRED = ("trellises", "label_weights", "label_matrix")  # where labels are not in clusters
# The part that a recipe is named after.
_MAIN = {"label matrix": "label_matrix", "classifiers": "label_weights", "views": "views"}


@dataclass(frozen=True)
class DatasetSize:
    """The size of a data set."""

    n_rows: int
    n_columns: int
    n_values: int
    n_labels: int
    n_pairs: int  # of rows and labels
    sparse: bool
    multilabel: bool
    mapped: bool = False  # rows are on disk
    n_beside: int = 0  # dense features beside sparse ones
    intercept: bool = False  # whether one of the columns is always 1

    @property
    def several(self) -> bool:
        """Whether rows have several labels on average."""
        return self.n_pairs > SEVERAL * self.n_rows

    @property
    def n_vector_features(self) -> int:
        """The number of dense features."""
        return self.n_beside or (0 if self.sparse else self.n_columns - self.intercept)

    @property
    def few_vector_features(self) -> bool:
        """Whether a label matrix can be trained on the dense features."""
        return self.n_vector_features <= MOST_FEATURES


@dataclass
class Plan:
    """What will be trained, with every "auto" resolved.

    Parameters
    ----------
    recipe : str
    reason : str
        Why this recipe.
    trellises : Trellises
    views : Views or None
        None if trellises are over labels.
    label_weights : LabelWeights or None
    label_matrix : LabelMatrix or None
    memory : Memory or None
    parts : dict of str to Settings
        Parts that are tried on held-out rows, by name.
    n_held_out : int
    early_stopping : bool
        Whether the held-out rows are for early stopping, and never trained on.
    calibrate : bool
    one_vs_all : bool
        Whether every label has its own edge, step sizes are relative to the row length, and weights
        are averaged.
    ends_average : bool
        Whether further training starts from the average, and does not average.
    beside : bool
        Whether the label matrix is for dense features beside sparse ones.
    few_rows : bool
        Whether labels have few rows, so that prototypes are expected to help.
    left_out : str
        The main part of the recipe, if the user's settings leave it out.
    asked_for : set of str
        Parts that the user asked for: held-out rows only choose their weights, and a size budget
        only prunes them.
    """

    recipe: str
    reason: str
    trellises: Trellises
    views: Views | None = None
    label_weights: LabelWeights | None = None
    label_matrix: LabelMatrix | None = None
    memory: Memory | None = None
    parts: dict[str, Settings] = field(default_factory=dict)
    n_held_out: int = 0
    early_stopping: bool = False
    calibrate: bool = False
    one_vs_all: bool = False
    ends_average: bool = False
    beside: bool = False
    few_rows: bool = False
    left_out: str = ""
    asked_for: set[str] = field(default_factory=set)

    @property
    def reranks(self) -> bool:
        """Whether another part scores the labels that trellises find."""
        return self.label_weights is not None or self.label_matrix is not None

    @property
    def of_vectors(self) -> bool:
        """Whether trellises are trained on the rows of the label matrix."""
        return self.label_matrix is not None and not self.beside

    @property
    def trained(self) -> dict[str, Settings]:
        """The parts to train, in order, by name; views train label weights themselves."""
        names = ("views", "label_matrix") if self.views is not None else _REQUIRED
        required: dict[str, Settings | None] = {name: getattr(self, name) for name in names}
        return {name: each for name, each in required.items() if each is not None} | self.parts

    def weights_to_try(self, part: Any) -> tuple[float, ...]:
        """Return the weights to try for a part, the default first; 0 leaves it out."""
        if hasattr(part, "weights_to_try"):
            return part.weights_to_try(self)  # type: ignore[no-any-return]
        grid, asked = tuple(getattr(part, "grid", ())), part.name in self.asked_for
        if not grid:
            return (1.0,)
        tried = grid if asked else (0.0, *grid)
        if asked or (self.few_rows and getattr(part, "helps_rare_labels", False)):
            return tuple(sorted(tried, key=lambda weight: weight != 1))  # it is expected to help
        return tried

    def __str__(self) -> str:
        """Return what was chosen and why, in one line."""
        shown = {"trellises": self.trellises, **self.trained}
        if self.label_weights is not None:
            shown["label_weights"] = self.label_weights
        listed = ", ".join(" ".join(str(each).split()) for each in shown.values())
        return "; ".join(filter(None, (f"{self.recipe}: {self.reason}", self.left_out, listed)))


def _recipe(size: DatasetSize) -> tuple[str, str]:
    if not size.sparse:
        few = _MIN_LABELS - 1 if size.multilabel else _MAX_DENSE_LABELS
        if size.n_labels > few:
            return "label matrix", f"dense rows, and more than {few} labels"
        if not size.multilabel and (
            size.n_rows >= _MIN_DENSE_ROWS or size.n_labels >= _MIN_DENSE_LABELS
        ):
            return "one-vs-all", f"dense rows, and at most {few} labels"
    if size.n_rows < _MIN_ROWS or size.n_labels < _MIN_LABELS:
        return "trellises", f"fewer than {_MIN_ROWS:,} rows or {_MIN_LABELS} labels"
    few = size.n_labels <= _FEW_LABELS and size.n_rows * size.n_labels <= _FEW_PAIRS
    if size.several and few:
        return "classifiers", f"several labels per row, and at most {_FEW_LABELS:,} labels"
    return "views", f"at least {_MIN_ROWS:,} rows and {_MIN_LABELS} labels"


def plan_for(given: Any, size: DatasetSize) -> Plan:
    """Return the plan for data of a given size; `given` are the parameters of an estimator."""
    recipe, reason = _recipe(size)
    trellises = _settings(given.trellises, Trellises)
    probabilistic = trellises.loss == AUTO or LOSSES[trellises.loss].probabilistic
    own_codebooks = trellises.assignment != "random"
    with_weights = (recipe in ("classifiers", "views") and probabilistic) or _asked(given.views)
    label_weights = _wanted(given.label_weights, LabelWeights, with_weights)
    views = None
    if label_weights is not None:
        views = _wanted(given.views, Views, recipe == "views" and not own_codebooks)
    plan = Plan(recipe, reason, trellises, views, label_weights)
    if label_weights is None and not size.n_beside:
        with_matrix = recipe == "label matrix" and probabilistic and size.few_vector_features
        plan.label_matrix = _wanted(given.label_matrix, LabelMatrix, with_matrix)
    plan.few_rows = size.n_pairs < _FEW_ROWS * size.n_labels
    _size_trellises(plan, size, own_codebooks)
    if size.n_beside:
        with_matrix = probabilistic and size.few_vector_features
        plan.label_matrix = _wanted(given.label_matrix, LabelMatrix, with_matrix)
        plan.beside = plan.label_matrix is not None
        plan.reason += f", and {size.n_beside} dense features beside them"
    tries = label_weights is not None and size.sparse
    plan.memory = _wanted(given.memory, Memory, True)
    affordable = plan.memory is not None and size.n_rows <= _MAX_NEIGHBOURS
    if plan.of_vectors:
        affordable &= size.n_rows * size.n_columns <= _MAX_COMPARED and not size.mapped
        affordable &= size.n_rows >= _MIN_COMPARED
    near = tries or plan.of_vectors
    automatic = {"prototypes": tries, "neighbours": near and affordable}
    for name, value in vars(given).items():
        if name in PARTS and name not in ("views", *_REQUIRED):
            wanted = _wanted(value, PARTS[name].settings, automatic.get(name, False))
            plan.parts |= {} if wanted is None else {name: wanted}
            plan.asked_for |= {name} if _asked(value) else set()
    if isinstance(given.views, Views) and given.views.n_views != AUTO:
        plan.asked_for.add("views")
    plan.parts |= given.parts or {}
    _check_trained(plan, given, size, probabilistic, own_codebooks)
    _hold_out(plan, given, size, probabilistic)
    return plan


def _check_trained(
    plan: Plan, given: Any, size: DatasetSize, probabilistic: bool, own_codebooks: bool
) -> None:
    """Raise an error if a requested part cannot be trained; record what is left out."""
    if _asked(given.views) and plan.views is None:
        raise ValueError(
            "views need label_weights, which distinguish the labels of a cluster: use "
            "label_weights='auto' or views=False"
        )
    if _asked(given.views) and own_codebooks:
        raise ValueError("views assign clusters at random: use assignment='random' or views=False")
    if _asked(given.label_matrix) and size.sparse and not size.n_beside:
        raise ValueError(
            "label_matrix needs dense rows or a dense block, got a sparse matrix; use views or "
            "label_weights"
        )
    if _asked(given.label_matrix) and not size.few_vector_features:
        raise ValueError(
            f"label_matrix takes at most {MOST_FEATURES:,} dense features, got "
            f"{size.n_vector_features:,}: reduce them, or pass them as a sparse matrix"
        )
    if _asked(given.label_matrix) and plan.label_matrix is None:
        raise ValueError(
            "label_matrix cannot be combined with label_weights or views: leave these out"
        )
    if _asked(given.calibration) and not probabilistic:
        raise ValueError(
            f"calibration needs probabilities, got loss={plan.trellises.loss!r}; use loss='auto' "
            "or calibration=False"
        )
    for name in plan.parts:
        if plan.memory is None and getattr(PARTS[name], "needs_memory", False):
            raise ValueError(f"{name} need rows in memory: use memory=True")
    main = _MAIN.get(plan.recipe)
    if main is not None and main not in plan.trained:
        values = {name: getattr(given, name) for name in ("views", *_REQUIRED[1:])}
        causes = [name for name, value in values.items() if value != AUTO]
        causes += [] if probabilistic else ["loss"]
        causes += ["assignment"] if own_codebooks else []
        causes += [] if size.few_vector_features else [f"{size.n_vector_features:,} dense features"]
        plan.left_out = f"without {main}, because of the given {' and '.join(causes)}"
    if plan.recipe == "one-vs-all" and (own_codebooks or plan.views is not None):
        cause = "assignment" if own_codebooks else "views"
        plan.left_out = f"labels share edges, because of the given {cause}"


def _size_trellises(plan: Plan, size: DatasetSize, own_codebooks: bool) -> None:
    """Choose sizes and epochs, and prune what is large."""
    given, n_paths = plan.trellises, size.n_labels
    epochs = 5 if size.n_rows <= 100_000 else 3
    if plan.views is not None:
        plan.views, n_paths = _sized_views(plan.views, size)
        width, n_trellises = _WIDEST if n_paths <= _FEW_CLUSTERS else _WIDE, 1
    else:
        width = _WIDTH if n_paths <= _MANY_PATHS else _WIDE
        n_trellises = _MIN_TRELLISES
    if plan.label_matrix is not None:  # which scores all labels: trellises hardly count
        width, n_trellises, epochs = 2, 1, 1
    n_weights = n_trellises * size.n_columns * padded(Trellis(n_paths, width).n_edges)
    shared = plan.label_weights is not None and n_weights >= _MANY_WEIGHTS
    shared |= plan.views is not None
    epochs = min(epochs, 3) if shared else epochs
    plan.one_vs_all = plan.recipe == "one-vs-all" and plan.views is None and not own_codebooks
    if plan.one_vs_all:
        width, n_trellises = max(size.n_labels, 2), 1
        epochs = 20 if size.n_rows < _FEW_DENSE_ROWS else epochs
    given = given.filled(
        width=width, epochs=epochs, learning_rate=usual_learning_rate(plan.label_matrix is not None)
    )
    if plan.views is None and not plan.one_vs_all and not plan.reranks:
        n_trellises = _affordable(size, int(given.width), int(given.epochs))
    if isinstance(given.assignment, list):
        n_trellises = len(given.assignment)
    elif not isinstance(given.assignment, str):
        n_trellises = 1
    given = given.filled(n_trellises=n_trellises, average=plan.one_vs_all)
    plan.one_vs_all &= given.average is True
    plan.ends_average = plan.one_vs_all and plan.trellises.average == AUTO
    stride = int(given.n_trellises) * padded(Trellis(n_paths, int(given.width)).n_edges)
    large = size.n_columns * stride >= _MIN_PRUNED and stride <= MAX_PRUNED_STRIDE
    prunes = large and size.n_rows >= _MIN_ROWS and size.sparse
    plan.trellises = given.filled(density=_DENSITY[shared] if prunes else 1.0)


def _sized_views(views: Views, size: DatasetSize) -> tuple[Views, int]:
    """Return views without "auto" values, and the number of clusters of each."""
    largest = max(size.n_labels // 2, 2)
    views = views.filled(n_views=_VIEWS, cluster_size=min(_CLUSTER_SIZE, largest))
    n_clusters = max(-(-size.n_labels // int(views.cluster_size)), 1)
    worth = size.n_rows * n_clusters <= _MAX_CLUSTER_ROWS[size.several]
    worth &= size.n_pairs >= _MIN_CLUSTER_ROWS[size.several] * size.n_labels
    views = views.filled(cluster_weights=worth)
    if views.cluster_weights and n_clusters > MOST_CLUSTERS:
        raise ValueError(
            f"cluster_weights needs at most {MOST_CLUSTERS:,} clusters, got {n_clusters:,}; use a "
            "larger cluster_size"
        )
    return views, n_clusters


def usual_learning_rate(with_matrix: bool) -> float:
    """Return the step size of trellises, without or with a label matrix."""
    return _DENSE_LEARNING_RATE if with_matrix else _LEARNING_RATE


def _affordable(size: DatasetSize, width: int, epochs: int) -> int:
    """Return how many trellises of a width can be trained within the limit of time."""
    n_edges = Trellis(size.n_labels, width).n_edges
    each = epochs * (size.n_values + size.n_rows) * max(n_edges, 1)
    fewest = _MIN_TRELLISES if width < _WIDE else _MIN_TRELLISES - 1
    return int(min(max(_MULTIPLICATIONS // max(each, 1), fewest), _MAX_TRELLISES))


def _hold_out(plan: Plan, given: Any, size: DatasetSize, probabilistic: bool) -> None:
    """Decide which rows are held out, and what for."""
    fraction = given.validation_fraction
    plan.early_stopping = not isinstance(fraction, str) and fraction > 0
    usually = probabilistic and size.n_rows >= _MIN_ROWS
    plan.calibrate = _wanted(given.calibration, Calibration, usually) is not None
    chooses = plan.calibrate or plan.reranks or bool(plan.parts)
    if plan.early_stopping:
        plan.n_held_out = math.ceil(float(fraction) * size.n_rows)
    elif chooses:
        plan.n_held_out = min(max(size.n_rows // 10, 1), size.n_rows - 1, _MAX_HELD_OUT)
    if plan.n_held_out >= size.n_rows:
        raise ValueError(
            f"validation_fraction={fraction} leaves none of the {size.n_rows} rows to train on; "
            "use a smaller one"
        )


def plan_for_first_batch(given: Any) -> Plan:
    """Return the plan of `partial_fit`, where the size of the data is unknown."""
    for name, value in {**vars(given), **(given.parts or {})}.items():
        if name in PARTS and name != "trellises" and _asked(value):
            raise ValueError(f"{name}={value!r} needs all rows at once: call fit first")
    trellises = _settings(given.trellises, Trellises).filled(
        width=_WIDTH,
        n_trellises=_MIN_TRELLISES,
        epochs=1,
        learning_rate=usual_learning_rate(False),
        average=False,
        density=1.0,
    )
    if isinstance(trellises.assignment, list):
        trellises.n_trellises = len(trellises.assignment)
    plan = Plan("trellises", "the size of the data is not known", trellises)
    plan.memory = _wanted(given.memory, Memory, True)
    return plan


def _settings(value: Any, kind: Any) -> Any:
    return kind() if isinstance(value, str) else value


def _asked(value: Any) -> bool:
    """Return whether the user asked for a part: it is neither "auto" nor left out."""
    return value is True or isinstance(value, Settings)


def _wanted(value: Any, kind: Any, automatic: bool) -> Any:
    """Return the settings of an optional part; None if it is left out."""
    if value is False or value is None or (isinstance(value, str) and not automatic):
        return None
    return kind() if value is True or isinstance(value, str) else value
