"""What "auto" means: model size and training time from the size of the data.

| parameter | rows, labels and features | value |
|---|---|---|
| `width` | up to 10,000 labels / more | 8 / 16 |
| `epochs` | up to 100,000 rows / more | 5 / 3 |
| `n_trellises` | as many as train in 2.5 · 10⁹ multiplications | 3 to 12; with width 16, 2 to 12 |
| `embedding_dim` | 1,000 to 500,000 rows, 64 labels or more, label vectors ≤ W | 128, else 0 |
| `density` | 1,000 rows and 2²⁰ weights or more | chosen on held-out rows; else 1 |
| `validation_fraction` | at least 50,000 rows | 2 %, at most 5,000 rows; else 0 |

With `size_budget`: the largest model whose weights fit as int8, from one trellis of width 2 to
eight of width 32; see `LADDER`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..linear.weights import MAX_PRUNED_STRIDE, padded
from ..structure.losses import LOSSES
from ..structure.trellis import Trellis
from .config import TrainConfig

_WIDTH = 8
_EMBEDDING_DIM = 128
_MULTIPLICATIONS = 2.5e9
_MIN_TRELLISES, _MAX_TRELLISES = 3, 12
_MANY_LABELS, _WIDE = 10_000, 16  # two wide trellises train as fast as three and learn more
_MIN_ROWS = 1000  # for what is chosen on held-out rows
_MIN_PRUNED = 1 << 20  # weights of a model that is worth pruning
_MAX_CALIBRATION_ROWS = 1000  # for choosing the weight of an embedding, and the density
# Width and number of trellises from small to large. Several narrow ones come before few wide ones.
LADDER = (
    *((2, n) for n in (1, 2, 3)),
    *((width, 3) for width in (3, 4, 6, 8)),
    *((8, n) for n in range(4, 9)),
    *((width, 8) for width in (12, 16, 24, 32)),
)
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}  # fmt: skip


@dataclass(frozen=True)
class DatasetSize:
    """The size of a data set: rows, features, non-zeros and labels."""

    n_rows: int
    n_features: int
    nnz: int
    n_labels: int

    @classmethod
    def of(cls, X: Any, n_labels: int) -> DatasetSize:
        """Return the size of a feature matrix with `n_labels` labels."""
        nnz = X.nnz if hasattr(X, "indptr") else X.size
        return cls(X.shape[0], X.shape[1], int(nnz), n_labels)

    @property
    def epochs(self) -> int:
        """Passes over the rows."""
        return 5 if self.n_rows <= 100_000 else 3

    @property
    def width(self) -> int:
        """States per slice."""
        return _WIDTH if self.n_labels <= _MANY_LABELS else _WIDE

    def n_trellises(self, width: int, epochs: int) -> int:
        """Return how many trellises of a width train within the limit."""
        n_edges = Trellis(self.n_labels, width).n_edges
        each = epochs * (self.nnz + self.n_rows) * max(n_edges, 1)
        fewest = _MIN_TRELLISES if width < _WIDE else _MIN_TRELLISES - 1
        return int(min(max(_MULTIPLICATIONS // max(each, 1), fewest), _MAX_TRELLISES))

    def embedding_dim(self, width: int, n_trellises: int) -> int:
        """Return the dimension of the embedding reranker, 0 for none."""
        n_edges = Trellis(self.n_labels, width).n_edges
        smaller = self.n_labels * _EMBEDDING_DIM <= self.n_features * n_edges * n_trellises
        worth_it = _MIN_ROWS <= self.n_rows <= 500_000 and self.n_labels >= 64
        return _EMBEDDING_DIM if smaller and worth_it else 0

    def is_worth_pruning(self, width: int, n_trellises: int) -> bool:
        """Return whether a model is so large that weights should be dropped."""
        stride = n_trellises * padded(Trellis(self.n_labels, width).n_edges)
        n_weights = self.n_features * stride
        return self.n_rows >= _MIN_ROWS and n_weights >= _MIN_PRUNED and stride <= MAX_PRUNED_STRIDE

    @property
    def n_validation(self) -> int:
        """Rows held out for early stopping."""
        return min(self.n_rows // 50, 5000) if self.n_rows >= 50_000 else 0

    def largest(self, budget: int) -> tuple[int, int]:
        """Return width and number of trellises of the largest model within a budget in bytes."""
        sizes = [(self.int8_bytes(*rung), rung) for rung in LADDER]
        fitting = [rung for size, rung in sizes if size <= budget]
        if not fitting:
            raise ValueError(
                f"size_budget of {budget:,} bytes is too small: the smallest model of "
                f"{self.n_features} features and {self.n_labels} labels takes {sizes[0][0]:,}; "
                "use a larger budget or fewer features"
            )
        return fitting[-1]

    def int8_bytes(self, width: int, n_trellises: int) -> int:
        """Return the size of the weights as int8, with one scale per feature."""
        block = padded(Trellis(self.n_labels, width).n_edges)
        return (self.n_features + 1) * (n_trellises * block + 4)


@dataclass(frozen=True)
class Plan:
    """What will be trained: every "auto" as a number.

    `n_held_out` rows are held out: for early stopping if `early_stopping` is set, otherwise only
    to choose the weight of the embedding and the density. A density of None is to be chosen.
    """

    width: int
    n_trellises: int
    epochs: int = 1
    embedding_dim: int = 0
    density: float | None = 1.0
    n_held_out: int = 0
    early_stopping: bool = False


def plan_for(config: TrainConfig, size: DatasetSize, in_memory: bool = True) -> Plan:
    """Resolve every "auto" for data of a given size."""
    epochs = _or(config.epochs, size.epochs)
    if config.size_budget is not None:
        if (config.width, config.n_trellises) != ("auto", "auto"):
            raise ValueError(
                "size_budget chooses width and n_trellises: give either the budget or these"
            )
        width, n_trellises = size.largest(parse_bytes(config.size_budget))
    else:
        width = _or(config.width, size.width)
        n_trellises = _n_trellises(config, lambda: size.n_trellises(width, epochs))
    ranks_by_proba = config.loss == "auto" or LOSSES[config.loss].probabilistic
    automatic = config.size_budget is None and ranks_by_proba
    dim = _or(config.embedding_dim, size.embedding_dim(width, n_trellises) if automatic else 0)
    if not in_memory:
        if dim and config.embedding_dim != "auto":
            raise ValueError(
                f"embedding_dim={dim} needs all rows in memory and cannot be trained in batches"
            )
        dim = 0
    if isinstance(config.validation_fraction, str):
        n_held_out = size.n_validation
    else:
        n_held_out = math.ceil(config.validation_fraction * size.n_rows)
    early_stopping = n_held_out > 0
    density = None if isinstance(config.density, str) else float(config.density)
    if density is None and not (
        automatic
        and size.is_worth_pruning(width, n_trellises)
        and (in_memory or early_stopping)  # a stream has no other rows to choose on
    ):
        density = 1.0
    if (dim or density is None) and not early_stopping:
        n_held_out = min(max(size.n_rows // 10, 1), _MAX_CALIBRATION_ROWS)
    if n_held_out >= size.n_rows:
        raise ValueError(
            f"validation_fraction={config.validation_fraction} leaves none of the "
            f"{size.n_rows} rows to train on"
        )
    return Plan(width, n_trellises, epochs, dim, density, n_held_out, early_stopping)


def plan_for_first_batch(config: TrainConfig) -> Plan:
    """Resolve every "auto" for `partial_fit`, where the size of the data is unknown."""
    if config.size_budget is not None:
        raise ValueError("size_budget needs all rows at once; partial_fit takes width")
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
