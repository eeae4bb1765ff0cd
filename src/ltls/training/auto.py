"""What "auto" means: how large a model to learn, and for how long, from the size of the data.

| parameter | rows, labels and features | value |
|---|---|---|
| `width` | up to 10,000 labels / more | 8 / 16 |
| `epochs` | up to 100,000 rows / more | 5 / 3 |
| `n_trellises` | as many as learn in 2.5 · 10⁹ multiplications | 3 to 12; of width 16, 2 to 12 |
| `embedding_dim` | 1,000 to 500,000 rows, 64 labels or more, smaller than W | 128, else 0 |
| `validation_fraction` | 50,000 rows or more | 2 %, at most 5,000 rows; else 0 |

With `size_budget`: the largest model whose weights fit as int8, from one trellis of width 2 to
eight of width 32; see `LADDER`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..linear.weights import padded
from ..structure.trellis import Trellis

_WIDTH = 8
_RANK = 128
_MULTIPLICATIONS = 2.5e9
_FEWEST, _MOST = 3, 12  # trellises
_MANY_LABELS, _WIDE = 10_000, 16  # two wide trellises learn as fast as three, and more
_WEIGHING_ROWS = 1000  # at most, to weigh an embedding
# From small to large: width and trellises. Several narrow ones come before few wide ones.
LADDER = (
    *((2, n) for n in (1, 2, 3)),
    *((width, 3) for width in (3, 4, 6, 8)),
    *((8, n) for n in range(4, 9)),
    *((width, 8) for width in (12, 16, 24, 32)),
)
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """The size of the data: rows, features, values that are not 0, and labels."""

    n_rows: int
    n_features: int
    n_values: int
    n_labels: int

    @classmethod
    def of(cls, X: Any, n_labels: int) -> Size:
        """Return the size of a feature matrix and its labels."""
        n_values = X.nnz if hasattr(X, "indptr") else X.size
        return cls(X.shape[0], X.shape[1], int(n_values), n_labels)

    @property
    def epochs(self) -> int:
        """The passes over the rows."""
        return 5 if self.n_rows <= 100_000 else 3

    @property
    def width(self) -> int:
        """The states per slice."""
        return _WIDTH if self.n_labels <= _MANY_LABELS else _WIDE

    def n_trellises(self, width: int, epochs: int) -> int:
        """Return as many trellises as learn in time."""
        n_edges = Trellis(self.n_labels, width).n_edges
        each = epochs * (self.n_values + self.n_rows) * max(n_edges, 1)
        fewest = _FEWEST if width < _WIDE else _FEWEST - 1
        return int(min(max(_MULTIPLICATIONS // max(each, 1), fewest), _MOST))

    def rank(self, width: int, n_trellises: int) -> int:
        """Return the rank of the embedding that rescores, 0 for none."""
        n_edges = Trellis(self.n_labels, width).n_edges
        smaller = self.n_labels * _RANK <= self.n_features * n_edges * n_trellises
        worth_it = 1000 <= self.n_rows <= 500_000 and self.n_labels >= 64
        return _RANK if smaller and worth_it else 0

    @property
    def n_held_out(self) -> int:
        """The rows that tell when to stop."""
        return min(self.n_rows // 50, 5000) if self.n_rows >= 50_000 else 0

    def largest(self, budget: int) -> tuple[int, int]:
        """Return the width and the number of trellises of the largest model that fits."""
        sizes = [(self.bytes_of(*rung), rung) for rung in LADDER]
        fitting = [rung for size, rung in sizes if size <= budget]
        if not fitting:
            raise ValueError(
                f"size_budget of {budget:,} bytes is too small: the smallest model of "
                f"{self.n_features} features and {self.n_labels} labels takes {sizes[0][0]:,}; "
                "use a larger budget or fewer features"
            )
        return fitting[-1]

    def bytes_of(self, width: int, n_trellises: int) -> int:
        """Return how many bytes the weights take as int8, a scale per feature included."""
        block = padded(Trellis(self.n_labels, width).n_edges)
        return (self.n_features + 1) * (n_trellises * block + 4)


@dataclass(frozen=True)
class Plan:
    """What will be learned: every "auto" as a number."""

    width: int
    n_trellises: int
    epochs: int = 1
    rank: int = 0  # of the embedding that rescores
    n_held_out: int = 0
    stops_early: bool = False  # by the rows held out; else they only weigh the embedding


def plan_for(estimator: Any, size: Size, rescores: bool = True) -> Plan:
    """Return what the estimator will do with data of some size."""
    epochs = _or(estimator.epochs, size.epochs)
    if estimator.size_budget is not None:
        if (estimator.width, estimator.n_trellises) != ("auto", "auto"):
            raise ValueError(
                "size_budget stands for width and n_trellises: give it or them, not both"
            )
        width, n_trellises = size.largest(parsed_bytes(estimator.size_budget))
    else:
        width = _or(estimator.width, size.width)
        n_trellises = _n_trellises(estimator, lambda: size.n_trellises(width, epochs))
    automatic = estimator.size_budget is None and estimator.loss != "separation"
    rank = _or(estimator.embedding_dim, size.rank(width, n_trellises) if automatic else 0)
    if not rescores:
        if rank and estimator.embedding_dim != "auto":
            raise ValueError(f"embedding_dim={rank} needs all rows at once, and cannot learn in batches")
        rank = 0
    if estimator.validation_fraction == "auto":
        n_held_out = size.n_held_out
    else:
        n_held_out = math.ceil(estimator.validation_fraction * size.n_rows)
    stops_early = n_held_out > 0
    if rank and not stops_early:
        n_held_out = min(max(size.n_rows // 10, 1), _WEIGHING_ROWS)
    if n_held_out >= size.n_rows:
        raise ValueError(
            f"validation_fraction={estimator.validation_fraction} leaves none of the "
            f"{size.n_rows} rows to learn from"
        )
    return Plan(width, n_trellises, epochs, rank, n_held_out, stops_early)


def streaming_plan(estimator: Any) -> Plan:
    """Return what the estimator will do with data of which one batch is known."""
    if estimator.size_budget is not None:
        raise ValueError("size_budget needs all rows at once; partial_fit takes width")
    return Plan(_or(estimator.width, _WIDTH), _n_trellises(estimator, lambda: _FEWEST))


def _n_trellises(estimator: Any, chosen: Callable[[], int]) -> int:
    if estimator.n_trellises != "auto":
        return int(estimator.n_trellises)
    if isinstance(estimator.assignment, str):
        return chosen()
    return len(estimator.assignment) if isinstance(estimator.assignment, list) else 1


def _or(given: Any, automatic: int) -> int:
    return automatic if isinstance(given, str) else int(given)


def parsed_bytes(size_budget: str | int) -> int:
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
