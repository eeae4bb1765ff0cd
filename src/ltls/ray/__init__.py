"""Training and scoring on a Ray cluster (``pip install 'ltls[ray]'``).

`BatchPredictor` scores a Ray dataset with `Dataset.map_batches`, and `fit` trains an estimator on
one. Ray schedules, moves and retries the work; the fitted model does not need it. Ray is imported
on first use: `BatchPredictor` alone needs pyarrow, but not Ray.
"""

from .cluster import ClusterError, connect
from .fitting import fit
from .scoring import BatchPredictor, score_parquet

__all__ = ["BatchPredictor", "ClusterError", "connect", "fit", "score_parquet"]
