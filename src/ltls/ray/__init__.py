"""Training and scoring on a Ray cluster (``pip install 'ltls[ray]'``).

`BatchPredictor` scores a Ray dataset with `Dataset.map_batches`, and `fit` trains an estimator on
one. Ray schedules, moves and retries; nothing here is needed to use the fitted model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import ClusterError, connect
    from .fitting import fit
    from .scoring import BatchPredictor, score_parquet

__all__ = ["BatchPredictor", "ClusterError", "connect", "fit", "score_parquet"]

# Imported when first used: `BatchPredictor` alone needs pyarrow, but not Ray.
_HOME = {
    "BatchPredictor": "scoring",
    "ClusterError": "cluster",
    "connect": "cluster",
    "fit": "fitting",
    "score_parquet": "scoring",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
