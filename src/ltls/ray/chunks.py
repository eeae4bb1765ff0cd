"""A Ray dataset as chunks of training rows in the object store, which Ray spills to disk.

The rows of the dataset are cut, in order, into chunks of equal size. Chunks depend neither on the
blocks of the dataset, which depend on the cluster, nor on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from ..core.arrays import Ints
from ..features.front_ends import FrontEnd, FrontEndSettings
from ..io.arrow import read_inputs, read_targets
from ..io.tables import Columns
from ..training.fit import Encoder
from .cluster import Tasks, causes_raised, import_ray, set_options, values_of

CHUNK_ROWS = 1 << 16  # at most
_CHUNK_BYTES = 1 << 27  # approximate size of the columns that are read
_FIRST_ROWS = 1000  # rows from which the size of a row is estimated
_FITTED_CHUNKS = 16  # from which vocabularies, means and categories are learned


def tables_of(dataset: Any, names: Sequence[str]) -> list[Any]:
    """Return references to Arrow tables of equal size with some columns of a dataset."""
    with causes_raised():
        set_options(dataset, preserve_order=True)
        rows = dataset.select_columns(list(names))
        set_options(rows, preserve_order=True)
        rows = rows.materialize()
        n_rows = rows.count()
        if not n_rows:
            raise ValueError("dataset must have at least one row, got none")
        size = min(CHUNK_ROWS, max(_CHUNK_BYTES // _bytes_per_row(rows.to_arrow_refs()), 1))
        return list(rows.repartition(-(-n_rows // size)).to_arrow_refs())


def _bytes_per_row(blocks: list[Any]) -> int:
    """Return the mean size of the first rows, however they are cut into blocks."""
    parts: list[Any] = []
    for block in values_of(blocks):
        parts.append(block.slice(0, _FIRST_ROWS - sum(map(len, parts))))
        if sum(map(len, parts)) == _FIRST_ROWS:
            break
    first = pa.concat_tables(parts).combine_chunks()
    return int(first.nbytes // len(first)) + 1


def fit_front_end(
    given: FrontEndSettings, tables: list[Any], columns: Columns, n_jobs: int | None
) -> FrontEnd:
    """Return a front end that has learned from the first chunks."""
    first = islice(tables, _FITTED_CHUNKS)
    inputs = (read_inputs(columns, each) for each in values_of(list(first)))
    return given.fit_batches(inputs, n_jobs)


@dataclass
class Chunks:
    """The features and targets of all chunks, before the learning problem is known.

    Parameters
    ----------
    pairs : list of references
    sizes : array
        Rows of every chunk.
    n_features : int
    """

    pairs: list[Any]
    sizes: Ints
    n_features: int

    @classmethod
    def of(
        cls,
        tables: list[Any],
        columns: Columns,
        front_end: FrontEnd,
        n_features: int | None,
        tasks: Tasks,
    ) -> Chunks:
        """Read tables."""
        shared = import_ray().put(front_end)
        others = columns, shared, n_features, tasks.n_cpus
        found = tasks.map(read, ((table, *others) for table in tables))
        shapes = np.array([shape for shape, _ in found], np.int64)
        return cls([pair for _, pair in found], shapes[:, 0], int(shapes[:, 1].max()))

    def batches(self) -> Iterator[Any]:
        """Yield the features and targets of all chunks."""
        for X, targets in values_of(self.pairs):
            yield _widened(X, self.n_features), targets

    def encoded(self, encoder: Encoder, tasks: Tasks) -> list[Any]:
        """Return references to rows to train on, which replace these."""
        shared = import_ray().put(encoder)
        found = tasks.map(encode, ((pair, shared, self.n_features) for pair in self.pairs))
        self.pairs = []
        return [examples for _, examples in found]


def read(
    table: Any,
    columns: Columns,
    front_end: FrontEnd,
    n_features: int | None,
    n_jobs: int,
) -> tuple[Any, Any]:
    """Return the shape of a table's features, and features and targets."""
    X = front_end.matrix(read_inputs(columns, table, n_features), n_jobs)
    if hasattr(X, "indptr") and not X.has_canonical_format:
        X = X.copy()  # Arrow's memory is read-only
        X.sum_duplicates()
    return X.shape, (X, read_targets(table, str(columns.label)))


def encode(pair: Any, encoder: Encoder, n_features: int) -> tuple[Any, Any]:
    """Return features and targets of a chunk as rows to train on."""
    X, targets = pair
    return None, encoder(_widened(X, n_features), targets)


def _widened(X: Any, n_features: int) -> Any:
    """Return sparse rows with columns for all features."""
    if X.shape[1] == n_features or not hasattr(X, "indptr"):
        return X
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features))
