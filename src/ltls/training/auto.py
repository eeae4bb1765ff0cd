"""What "auto" means: model size and training time from the size of the data.

| parameter | rows, labels and features | value |
|---|---|---|
| `label_weights` | 1,000 rows and 64 labels or more | True; else False |
| `bucket_size` | with label weights, 1,000 labels or more | 16; else 1 |
| `width` | up to 10,000 paths / more | 8 / 16 |
| `epochs` | up to 100,000 rows / more | 5 / 3 |
| `n_trellises` | as many as train in 2.5 · 10⁹ multiplications | 3 to 12; with width 16, 2 to 12 |
| | with label weights: in 1.5 · 10⁹ multiplications and 2²³ weights | 3 to 6 |
| `density` | 1,000 rows and 2¹⁸ weights or more | chosen on held-out rows; else 1 |
| `calibrate` | 1,000 rows or more | on up to 1,000 held-out rows; else not |
| `validation_fraction` | at least 50,000 rows | 2 %, at most 5,000 rows; else 0 |

Dense rows of one label each, at least 100 of them, and at most 128 labels: one trellis as wide as
there are labels (one-vs-all), and 20 epochs if rows are fewer than 2,000. The steps are those
of rows of unit length, and `fit` ends with the average of the weights over all of them: every row
changes all weights, which would not settle otherwise.

With `size_budget`, the largest weights of the model are kept, as many as fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..linear.weights import MAX_PRUNED_STRIDE, padded
from ..structure.losses import LOSSES
from ..structure.trellis import Trellis
from .config import TrainConfig

_WIDTH = 8
# Multiplications of training and the most trellises; True with label weights.
_MULTIPLICATIONS = {False: 2.5e9, True: 1.5e9}
_MIN_TRELLISES, _MAX_TRELLISES = 3, {False: 12, True: 6}
# Where features are many, label weights tell labels apart without more trellises, which take space.
_MAX_WEIGHTS = 1 << 23
_MANY_PATHS, _WIDE = 10_000, 16  # two wide trellises train as fast as three and learn more
_MIN_ROWS, _MIN_LABELS = 1000, 64  # for label weights, and for what is chosen on held-out rows
_MIN_BUCKETED, _BUCKET_SIZE = 1000, 16
_MIN_PRUNED = 1 << 18  # weights of a model that is worth pruning
_MIN_DENSE_ROWS, _MAX_DENSE_LABELS = 100, 128  # for one-vs-all: beyond, three trellises are quicker
_FEW_ROWS = 2000  # of dense features, whose average needs more steps
_MAX_CALIBRATION_ROWS = 1000  # for choosing the density, and weights of rerankers
_OF_TRELLISES = ("width", "n_trellises", "bucket_size", "label_weights", "embedding_dim",
                 "propensity", "size_budget", "assignment", "learning_rate", "optimizer",
                 "average", "l1", "batch_size", "normalize")  # fmt: skip
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}  # fmt: skip


@dataclass(frozen=True)
class DatasetSize:
    """The size of a data set: rows, features, non-zeros and labels.

    `dense` is set for dense rows of one label each.
    """

    n_rows: int
    n_features: int
    nnz: int
    n_labels: int
    dense: bool = False

    @classmethod
    def of(cls, X: Any, n_labels: int, multilabel: bool = False) -> DatasetSize:
        """Return the size of a feature matrix with `n_labels` labels."""
        sparse = hasattr(X, "indptr")
        nnz = X.nnz if sparse else X.size
        return cls(X.shape[0], X.shape[1], int(nnz), n_labels, not (sparse or multilabel))

    @property
    def epochs(self) -> int:
        """Passes over the rows."""
        if self.is_small_and_dense and self.n_rows < _FEW_ROWS:
            return 20
        return 5 if self.n_rows <= 100_000 else 3

    @property
    def wants_label_weights(self) -> bool:
        """Whether there are enough rows to train label weights, and enough labels to rerank."""
        return self.n_rows >= _MIN_ROWS and self.n_labels >= _MIN_LABELS

    @property
    def is_small_and_dense(self) -> bool:
        """Whether one-vs-all is quick, and there are rows enough to know their scale."""
        few = self.n_labels <= _MAX_DENSE_LABELS
        return self.dense and few and self.n_rows >= _MIN_DENSE_ROWS

    @property
    def bucket_size(self) -> int:
        """Labels that share a path, if they have weights of their own."""
        return _BUCKET_SIZE if self.n_labels >= _MIN_BUCKETED else 1

    def in_buckets(self, bucket_size: int) -> DatasetSize:
        """Return the size of the problem that the trellises solve: a label per path."""
        return replace(self, n_labels=-(-self.n_labels // bucket_size))

    @property
    def width(self) -> int:
        """States per slice."""
        return _WIDTH if self.n_labels <= _MANY_PATHS else _WIDE

    def n_trellises(self, width: int, epochs: int, label_weights: bool) -> int:
        """Return how many trellises of a width train within the limit."""
        n_edges = Trellis(self.n_labels, width).n_edges
        each = epochs * (self.nnz + self.n_rows) * max(n_edges, 1)
        fewest = _MIN_TRELLISES if width < _WIDE else _MIN_TRELLISES - 1
        most = _MULTIPLICATIONS[label_weights] // max(each, 1)
        if label_weights:
            most = min(most, _MAX_WEIGHTS // max(self.n_features * padded(n_edges), 1))
        return int(min(max(most, fewest), _MAX_TRELLISES[label_weights]))

    def is_worth_pruning(self, width: int, n_trellises: int) -> bool:
        """Return whether a model is so large that weights should be dropped."""
        stride = n_trellises * padded(Trellis(self.n_labels, width).n_edges)
        n_weights = self.n_features * stride
        return self.n_rows >= _MIN_ROWS and n_weights >= _MIN_PRUNED and stride <= MAX_PRUNED_STRIDE

    @property
    def n_validation(self) -> int:
        """Rows held out for early stopping."""
        return min(self.n_rows // 50, 5000) if self.n_rows >= 50_000 else 0


@dataclass(frozen=True)
class Plan:
    """What will be trained: every "auto" as a number.

    `n_held_out` rows are held out: for early stopping if `early_stopping` is set, otherwise only
    to choose the density and the weights of rerankers, and for the calibration. A density of None
    is to be chosen. `small_dense` takes steps as for rows of unit length, and averages the weights.
    """

    width: int
    n_trellises: int
    epochs: int = 1
    bucket_size: int = 1
    label_weights: bool = False
    embedding_dim: int = 0
    density: float | None = 1.0
    n_held_out: int = 0
    early_stopping: bool = False
    calibrate: bool = False
    small_dense: bool = False


def plan_for(config: TrainConfig, size: DatasetSize, in_memory: bool = True) -> Plan:
    """Resolve every "auto" for data of a given size."""
    small_dense = size.is_small_and_dense and _leaves_all_to_us(config)
    size = replace(size, dense=small_dense)
    epochs = _or(config.epochs, size.epochs)
    dim = config.embedding_dim
    if dim and not in_memory:
        raise ValueError(
            f"embedding_dim={dim} needs all rows in memory and cannot be trained in batches"
        )
    automatic = config.loss == "auto" or LOSSES[config.loss].probabilistic
    label_weights = config.label_weights
    if isinstance(label_weights, str):
        label_weights = automatic and size.wants_label_weights and not small_dense
    bucket_size = _bucket_size(config, size, label_weights)
    in_trellis = size.in_buckets(bucket_size)
    width = max(size.n_labels, 2) if small_dense else _or(config.width, in_trellis.width)
    n_trellises = _n_trellises(
        config,
        lambda: 1 if small_dense else in_trellis.n_trellises(width, epochs, label_weights),
    )
    if isinstance(config.validation_fraction, str):
        n_held_out = size.n_validation
    else:
        n_held_out = math.ceil(config.validation_fraction * size.n_rows)
    early_stopping = n_held_out > 0
    density = None if isinstance(config.density, str) else float(config.density)
    if density is None and not (
        automatic
        and in_trellis.is_worth_pruning(width, n_trellises)
        and (in_memory or early_stopping)  # a stream has no other rows to choose on
    ):
        density = 1.0
    calibrates = config.calibrate and automatic and size.n_rows >= _MIN_ROWS
    calibrates = calibrates and (in_memory or early_stopping)
    chooses = dim or label_weights or density is None or config.propensity == "auto" or calibrates
    if chooses and not early_stopping:
        n_held_out = min(max(size.n_rows // 10, 1), _MAX_CALIBRATION_ROWS)
    if n_held_out >= size.n_rows:
        raise ValueError(
            f"validation_fraction={config.validation_fraction} leaves none of the "
            f"{size.n_rows} rows to train on"
        )
    return Plan(
        width,
        n_trellises,
        epochs,
        bucket_size,
        label_weights,
        dim,
        density,
        n_held_out,
        early_stopping,
        calibrates,
        small_dense,
    )


def _leaves_all_to_us(config: TrainConfig) -> bool:
    """Return whether nothing is given that says what the trellises and their steps are like."""
    usual = TrainConfig()
    given = {name for name in _OF_TRELLISES if getattr(config, name) != getattr(usual, name)}
    return not given and config.loss in ("auto", "softmax")


def _bucket_size(config: TrainConfig, size: DatasetSize, label_weights: bool) -> int:
    """Return how many labels share a path."""
    if config.bucket_size == "auto":
        free = label_weights and not config.embedding_dim and config.assignment == "random"
        return size.bucket_size if free else 1
    bucket_size = int(config.bucket_size)
    if bucket_size == 1:
        return 1
    if config.assignment != "random":
        raise ValueError(
            f"bucket_size={bucket_size} puts similar labels on the same path and takes no "
            f"assignment, got {config.assignment!r}; use bucket_size=1 with it"
        )
    if not label_weights:
        raise ValueError(
            f"bucket_size={bucket_size} needs label_weights=True, which tell the labels of a "
            "path apart"
        )
    if config.embedding_dim:
        raise ValueError(
            f"embedding_dim={config.embedding_dim} needs a path for every label: use bucket_size=1"
        )
    return bucket_size


def plan_for_first_batch(config: TrainConfig) -> Plan:
    """Resolve every "auto" for `partial_fit`, where the size of the data is unknown."""
    if config.size_budget is not None:
        raise ValueError("size_budget needs all rows at once; partial_fit takes width")
    for name, possible in (("bucket_size", 1), ("label_weights", False)):
        given = getattr(config, name)
        if given not in ("auto", possible):
            raise ValueError(f"{name}={given!r} needs all rows at once: call fit first")
    return Plan(_or(config.width, _WIDTH), _n_trellises(config, lambda: _MIN_TRELLISES))


def _n_trellises(config: TrainConfig, automatic: Callable[[], int]) -> int:
    if config.n_trellises != "auto":
        return int(config.n_trellises)
    if isinstance(config.assignment, str):
        return automatic()
    return len(config.assignment) if isinstance(config.assignment, list) else 1


def _or(given: int | str, automatic: int) -> int:
    return automatic if isinstance(given, str) else int(given)


def parse_bytes(size_budget: str | int) -> int:
    """Return a size such as "5MB" in bytes."""
    if isinstance(size_budget, int) and not isinstance(size_budget, bool) and size_budget > 0:
        return size_budget
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?B)\s*", str(size_budget).upper())
    if not match or match[2] not in _UNITS or float(match[1]) == 0:
        raise ValueError(
            f'size_budget must be a number of bytes or a size such as "5MB" or "300KB", '
            f"got {size_budget!r}"
        )
    return int(float(match[1]) * _UNITS[match[2]])
