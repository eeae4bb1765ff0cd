"""A Ray dataset as chunks: training rows in the object store, which Ray spills to disk.

The rows of the dataset, in their order, are cut into chunks of equal size. They do not depend on
the blocks of the dataset, which depend on the cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..estimators.classifier import LTLSClassifier
from ..features.mapping import FeatureMap
from ..io.arrow import (
    InputColumns,
    as_table,
    canonical,
    canonical_columns,
    read_targets,
)
from ..model.examples import Batch, Examples
from ..model.labels import Labels, Targets
from ..model.reservoir import Reservoir
from ..training.batches import THRESHOLD_ROWS
from ..training.examples import make_examples
from ..training.stats import DatasetStats
from .cluster import causes_raised, check_version, set_options
from .tasks import Tasks

Ints: TypeAlias = npt.NDArray[np.int64]

_BATCH_ROWS = 4096
_MAX_CHUNK, _MIN_CHUNKS = 1 << 16, 16  # rows, and chunks of a data set or of a shard of it
_MERGED = 16  # samples of chunks that a task merges
_LABEL = "label"


@dataclass(frozen=True)
class Piece:
    """Some rows of a block."""

    block: Any
    first: int
    last: int


class ToRows:
    """Turns batches of any columns into batches of features and labels, for `map_batches`."""

    def __init__(self, columns: InputColumns, label: str, vectorizer: Any) -> None:
        self._columns, self._label, self._vectorizer = columns, label, vectorizer

    def __call__(self, batch: Any) -> Any:
        """Return a table with the columns of `canonical`, and the labels."""
        table = as_table(batch)
        rows = self._columns.read(table)
        if self._vectorizer is not None:
            rows = self._vectorizer.transform(rows)
        read_targets(table, self._label)  # raises an error for nulls
        return pa.table({**canonical(rows), _LABEL: table.column(self._label)})


@dataclass
class Blocks:
    """The rows of a dataset as Arrow tables in the object store.

    Parameters
    ----------
    tables : list of references
    sizes : array
        Rows of every table.
    n_features : int
    """

    tables: list[Any]
    sizes: Ints
    n_features: int

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.sizes.sum())

    @classmethod
    def of(
        cls,
        dataset: Any,
        columns: InputColumns,
        label: str,
        vectorizer: Any,
        n_features: int | None,
        tasks: Tasks,
    ) -> Blocks:
        """Read a dataset."""
        with causes_raised():
            set_options(dataset, preserve_order=True)
            rows = dataset.select_columns([*columns.names, label]).map_batches(
                ToRows(columns, label, vectorizer), batch_size=_BATCH_ROWS, batch_format="pyarrow"
            )
            set_options(rows, preserve_order=True)
            tables = rows.materialize().to_arrow_refs()
        found = tasks.get([tasks.run(_measure, table) for table in tables])
        sizes = np.array([n_rows for n_rows, _ in found], np.int64)
        widest = max((width for _, width in found), default=0)
        if n_features is not None and widest > n_features:
            raise ValueError(f"n_features must be at least {widest}, got {n_features}")
        return cls(tables, sizes, n_features or widest)

    def cut(self, n_shards: int) -> list[list[Piece]]:
        """Return chunks of equal size, enough for some shards."""
        n_rows = self.n_rows
        n_chunks = max(_MIN_CHUNKS, 4 * n_shards, -(-n_rows // _MAX_CHUNK))
        size = max(-(-n_rows // n_chunks), 1)
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        chunks = []
        for first in range(0, n_rows, size):
            last = min(first + size, n_rows)
            begin = int(np.searchsorted(starts, first, side="right")) - 1
            end = int(np.searchsorted(starts, last, side="left"))
            chunks.append(
                [
                    Piece(
                        self.tables[block],
                        max(first - int(starts[block]), 0),
                        min(last, int(starts[block + 1])) - int(starts[block]),
                    )
                    for block in range(begin, end)
                ]
            )
        return chunks


def _measure(table: Any) -> tuple[int, int]:
    """Return the number of rows and features of a block."""
    return len(table), _features(table, None).shape[1] if len(table) else 0


def _features(table: Any, n_features: int | None) -> Any:
    return canonical_columns(table.column_names).read(table, n_features)


@dataclass(frozen=True)
class Reader:
    """Reads chunks in tasks, and validates them as the estimator does."""

    estimator: LTLSClassifier
    n_features: int
    version: str

    def read(
        self,
        tables: Sequence[Any],
        bounds: Sequence[tuple[int, int]],
        rows: Ints | None = None,
    ) -> tuple[Any, Targets]:
        """Return features and labels of a chunk, or of some of its rows."""
        check_version(self.version)
        parts = [table.slice(a, b - a) for table, (a, b) in zip(tables, bounds, strict=True)]
        table = pa.concat_tables(parts)
        if rows is not None:
            table = table.take(pa.array(rows))
        X = _features(table, self.n_features)
        return LTLSClassifier._pair(self.estimator, X, read_targets(table, _LABEL), reset=True)


def _statistics(
    reader: Reader, per_label: int, bounds: list[tuple[int, int]], *tables: Any
) -> tuple[DatasetStats, bytes]:
    """Return the statistics of a chunk, and a digest of its rows."""
    X, targets = reader.read(tables, bounds)
    stats = DatasetStats(per_label)
    stats.add(X, targets)
    digest = hashlib.blake2b(digest_size=16)
    arrays = [X.data, X.indices, X.indptr] if hasattr(X, "indptr") else [X]
    for array in [*arrays, targets.indptr]:
        digest.update(np.ascontiguousarray(array).data)
    return stats, digest.digest()


@dataclass(frozen=True)
class Encoder:
    """Turns labels into ids and keeps the features that occur."""

    labels: Labels
    feature_map: FeatureMap | None
    multilabel: bool
    target_format: str
    class_weight: dict[Any, float] | None

    def examples(self, X: Any, targets: Targets) -> Examples:
        """Return rows to train on."""
        same = Targets(
            targets.indptr, targets.labels, self.multilabel, self.target_format, targets.n_columns
        )
        compact = X if self.feature_map is None else self.feature_map.compact(X)
        return make_examples(self.labels, compact, same, None, self.class_weight)


def _some_examples(
    reader: Reader, encoder: Encoder, rows: Ints, bounds: list[tuple[int, int]], *tables: Any
) -> Examples:
    """Return some rows of a chunk."""
    return encoder.examples(*reader.read(tables, bounds, rows))


@dataclass(frozen=True)
class Keeper:
    """Samples the rows that a model keeps, as `ltls.training.replay.keep_rows` does."""

    capacity: int
    counts: Ints

    def sample(self, examples: Examples, first_row: int) -> Reservoir:
        """Return a sample of a chunk, whose rows are numbered from `first_row` on."""
        return Reservoir.of(examples, self.capacity, self.counts, len(self.counts), first_row)


def _other_examples(
    reader: Reader,
    encoder: Encoder,
    keeper: Keeper,
    first_row: int,
    held_out: Ints,
    bounds: list[tuple[int, int]],
    *tables: Any,
) -> tuple[int, Examples, Reservoir]:
    """Return how many rows of a chunk are to be trained on, these, and a sample of all."""
    examples = encoder.examples(*reader.read(tables, bounds))
    reservoir = keeper.sample(examples, first_row)
    if len(held_out):
        examples = examples.take(np.delete(np.arange(len(examples)), held_out))
    return len(examples), examples, reservoir


def _merged(capacity: int, *parts: Reservoir) -> Reservoir:
    """Return a sample of the rows of some samples."""
    return reduce(lambda one, other: one.merge(other, capacity), parts)


@dataclass
class Chunks:
    """The chunks of a dataset, before its labels are known."""

    pieces: list[list[Piece]]
    reader: Any
    tasks: Tasks
    starts: Ints = field(init=False)  # of the chunks, in rows

    def __post_init__(self) -> None:
        sizes = [sum(piece.last - piece.first for piece in chunk) for chunk in self.pieces]
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def _run(self, function: Any, chunk: int, *args: Any, n_returns: int = 1) -> Any:
        pieces = self.pieces[chunk]
        bounds = [(piece.first, piece.last) for piece in pieces]
        tables = [piece.block for piece in pieces]
        return self.tasks.run(function, self.reader, *args, bounds, *tables, n_returns=n_returns)

    def statistics(self, per_label: int) -> tuple[DatasetStats, bytes]:
        """Return the statistics of all rows, and a digest of them."""
        stats, digest = DatasetStats(per_label), hashlib.blake2b(digest_size=16)
        found = [self._run(_statistics, chunk, per_label) for chunk in range(len(self.pieces))]
        for part, its_digest in self.tasks.in_order(found):
            stats.merge(part)
            digest.update(its_digest)
        return stats, digest.digest()

    def rows(self, encoder: Any, numbers: Ints) -> Examples | None:
        """Return some rows, given their increasing numbers; None if there are none."""
        found = [
            self._run(_some_examples, chunk, encoder, own)
            for chunk, own in enumerate(self._by_chunk(numbers))
            if len(own)
        ]
        return Examples.concatenate(list(self.tasks.in_order(found))) if found else None

    def without(
        self, encoder: Any, held_out: Ints, capacity: int, counts: Ints
    ) -> tuple[Ints, list[Any], Reservoir]:
        """Return sizes of and references to all chunks, without the rows that are held out.

        Returns a sample of all rows, too, of at most `capacity` rows.
        """
        keeper = self.tasks.put(Keeper(capacity, counts))
        found = [
            self._run(
                _other_examples, chunk, encoder, keeper, int(self.starts[chunk]), own, n_returns=3
            )
            for chunk, own in enumerate(self._by_chunk(held_out))
        ]
        sizes = self.tasks.get([size for size, _, _ in found])
        samples = [each for _, _, each in found]
        while len(samples) > 1:
            samples = [
                self.tasks.run(_merged, capacity, *samples[first : first + _MERGED])
                for first in range(0, len(samples), _MERGED)
            ]
        examples = [each for _, each, _ in found]
        return np.array(sizes, np.int64), examples, self.tasks.get(samples[0])

    def _by_chunk(self, numbers: Ints) -> list[Ints]:
        """Split increasing row numbers by chunks, counted from the first row of each."""
        ends = np.searchsorted(numbers, self.starts)
        return [numbers[ends[i] : ends[i + 1]] - self.starts[i] for i in range(len(self.pieces))]


class ChunkSource:
    """Training rows in chunks, and those held out; a `BatchSource`.

    Parameters
    ----------
    sizes : array
        Training rows of every chunk.
    chunks : list of references
        Their `Examples`.
    evaluation : Examples or None
        Rows to evaluate on.
    held_out : array of int
        The numbers of the rows that are held out.
    rng : RandomState
    tasks : Tasks
    """

    def __init__(
        self,
        sizes: Ints,
        chunks: list[Any],
        evaluation: Examples | None,
        held_out: Ints,
        rng: Any,
        tasks: Tasks,
    ) -> None:
        self.sizes, self.chunks, self.held_out, self.rng = sizes, chunks, held_out, rng
        self._evaluation, self._tasks = evaluation, tasks

    @property
    def n_rows(self) -> int:
        """The number of rows to train on."""
        return int(self.sizes.sum())

    def add(self, examples: Examples) -> None:
        """Add rows to train on, as another chunk."""
        self.sizes = np.append(self.sizes, len(examples))
        self.chunks = [*self.chunks, self._tasks.put(examples)]

    def epoch(self) -> Iterator[Batch]:
        """Yield nothing: the tasks of an epoch fetch their chunks themselves."""
        return iter(())

    def in_order(self) -> Iterator[Batch]:
        """Yield all training rows, for policies that look at them between epochs."""
        for examples in self._tasks.in_order(self.chunks):
            yield examples, np.arange(len(examples))

    def validation_rows(self) -> Batch | None:
        """Return the rows that are held out."""
        return self.evaluation_rows() if len(self.held_out) else None

    def evaluation_rows(self) -> Batch | None:
        """Return the rows that are held out, or else some training rows."""
        if self._evaluation is None:
            return None
        return self._evaluation, np.arange(len(self._evaluation))


def sample(chunks: Chunks, encoder: Any, n_rows: int) -> Examples:
    """Return rows that are spread evenly over all chunks."""
    step = -(-n_rows // THRESHOLD_ROWS)
    rows = chunks.rows(encoder, np.arange(0, n_rows, step))
    assert rows is not None
    return rows
