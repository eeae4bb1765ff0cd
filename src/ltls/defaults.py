"""What "auto" means: how large a model to learn, and for how long, from the size of the data.

| parameter | rows, labels and features | value |
|---|---|---|
| `width` | any | 8 |
| `epochs` | up to 100,000 rows / 500,000 / more | 5 / 3 / 2 |
| `n_trellises` | as many as learn in 2.5 · 10⁹ multiplications | 3 to 8 |
| `rescore` | 1,000 to 500,000 rows, 64 labels or more, and no more numbers than W has | 128, else 0 |
| `validation_fraction` | 50,000 rows or more | 2 %, at most 5,000 rows; else 0 |

With `size_budget` the largest model of this list whose weights fit, as int8:
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .linear import padded
from .trellis import Trellis

_WIDTH = 8
_RANK = 128
_MULTIPLICATIONS = 2.5e9
_FEWEST, _MOST = 3, 8  # trellises
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

    @property
    def width(self) -> int:
        """The width of a trellis."""
        return _WIDTH

    @property
    def epochs(self) -> int:
        """The passes over the rows."""
        return 5 if self.n_rows <= 100_000 else 3 if self.n_rows <= 500_000 else 2

    def n_trellises(self, width: int, epochs: int) -> int:
        """Return as many trellises as learn in time."""
        n_edges = Trellis(self.n_labels, width).n_edges
        each = epochs * (self.n_values + self.n_rows) * max(n_edges, 1)
        return int(min(max(_MULTIPLICATIONS // max(each, 1), _FEWEST), _MOST))

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
