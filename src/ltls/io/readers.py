"""Reading and writing sparse rows, all at once or a chunk at a time.

`read` returns a whole file, `Stream` iterates over its chunks, `write` writes a file. They support
all registered formats (`ltls.io.formats`) of kind "sparse".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core import _engine
from ..core.arrays import AnyArray, Ints, as_integer, threads
from ..core.streams import DEFAULT_LIMITS, SizeLimits, open_output, prefetch
from ..features.rows import check_sparse
from ..model.indicators import label_matrix
from ..model.labels import Targets
from . import formats
from .errors import OnBadRow, PathLike
from .files import DataFile, OpenFile, Paths, expand
from .formats import SparseFormat, SparseOptions, SparseReader, ZeroBased

__all__ = ["Dataset", "Stream", "read", "write"]

_BLOCK = 1 << 24  # bytes of text that are parsed at a time when the whole file is read


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of sparse features with their labels.

    Parameters
    ----------
    X : scipy.sparse.csr_matrix of float32, shape (n_rows, n_features)
        The features.
    Y : scipy.sparse.csr_matrix of float32, shape (n_rows, n_labels)
        1 where a row has a label.
    classes : ndarray of int64, shape (n_labels,), or None
        The label of each column of `Y`; None if column j is label j, as in xmc files.
    zero_based : bool
        Whether feature indices started at 0 in the file.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from ltls.readers import Dataset
    >>> rows = Dataset(sp.csr_matrix(np.eye(2)), sp.csr_matrix([[0, 1], [1, 1]]), None, True)
    >>> rows.n_labels, rows.labels_per_row, rows.single_label
    (2, array([1, 2]), False)
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    classes: Ints | None
    zero_based: bool

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return int(self.Y.shape[1])

    @property
    def labels_per_row(self) -> Ints:
        """The number of labels in each row."""
        counts: Ints = np.diff(self.Y.indptr).astype(np.int64)
        return counts

    @property
    def single_label(self) -> bool:
        """Whether every row has exactly one label."""
        return bool((self.labels_per_row == 1).all())

    @property
    def y(self) -> Ints:
        """The label of each row; a ValueError if a row has none or several."""
        if not self.single_label:
            row = int(np.argmax(self.labels_per_row != 1))
            count = self.labels_per_row[row]
            raise ValueError(f"y must have one label per row, got {count} in row {row}; use Y")
        return self._flat_labels

    @property
    def targets(self) -> Targets:
        """The labels of all rows, in the form that `LTLSClassifier.fit` converts fastest."""
        single = self.single_label
        form = "single" if single else "lists"
        return Targets(self.Y.indptr.astype(np.int64), self._flat_labels, not single, form)

    def labels(self) -> list[Ints]:
        """Return the labels of every row."""
        return np.split(self._flat_labels, self.Y.indptr[1:-1])

    def indicator(self) -> sp.csr_matrix:
        """Return an indicator matrix whose column j is label j; labels must not be negative.

        It has a column for every integer from 0 to the largest label; `Y` has one per label.
        """
        if self.classes is None:
            return self.Y
        if self.classes.min(initial=0) < 0:
            raise ValueError(
                f"labels must be at least 0 to be columns, got {self.classes.min()}; use Y"
            )
        shape = (self.n_rows, int(self.classes.max(initial=-1)) + 1)
        parts = (np.ones(self.Y.nnz, np.float32), self._flat_labels, self.Y.indptr)
        return sp.csr_matrix(parts, shape=shape)

    @property
    def _flat_labels(self) -> Ints:
        columns: Ints = self.Y.indices.astype(np.int64)
        return columns if self.classes is None else self.classes[columns]


def read(
    path: Paths,
    format: str | None = None,  # noqa: A002
    n_features: int | None = None,
    zero_based: ZeroBased = "auto",
    n_jobs: int | None = None,
    on_bad_row: OnBadRow | None = None,
    limits: SizeLimits = DEFAULT_LIMITS,
) -> Dataset:
    r"""Read files of sparse rows with labels, plain or compressed with gzip, xz, bzip2 or zstd.

    Parameters
    ----------
    path : str or path-like, or a sequence of them
        One or several files; a name with ``*``, ``?`` or ``[`` stands for all matching files, and
        ``-`` for standard input. Compression is detected by the first bytes, not by the name.
    format : {"svmlight", "xmc"} or another registered sparse format, optional
        ``svmlight`` lines are ``label,label,... index:value ...`` with integer labels and comments
        after ``#``. ``xmc`` files have the first line ``rows features labels``, and their indices
        start at 0. In both, rows may have no labels. By default, the format is detected from the
        content.
    n_features : int, optional
        The number of columns of `X`; by default, as in the xmc header or by the largest index.
    zero_based : bool or "auto", default="auto"
        Whether feature indices start at 0 in an svmlight file; ``"auto"`` assumes 1 unless index 0
        occurs. For a test set, pass the ``zero_based`` of the training set.
    n_jobs : int or None, default=None
        Number of parser threads; None means 1, −1 means all cores.
    on_bad_row : callable, optional
        Called with the `RowError` of every row that cannot be read, which is then skipped. By
        default, the error is raised.
    limits : SizeLimits, optional
        How much a compressed file may hold.

    Returns
    -------
    Dataset
        Indices are sorted within a row; duplicate labels of a row count once.

    Raises
    ------
    RowError
        If a row cannot be read and `on_bad_row` is not given.
    FormatError
        If the file as a whole violates the format.
    FileTooLargeError
        If a compressed file exceeds the limits.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ltls.readers import read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "two_rows.txt")
    ...     _ = path.write_text("7 1:0.5 3:2\n-1 2:1 # a comment\n")
    ...     rows = read(path)
    >>> rows.X.toarray()
    array([[0.5, 0. , 2. ],
           [0. , 1. , 0. ]], dtype=float32)
    >>> rows.y, rows.n_labels
    (array([ 7, -1]), 2)
    """
    options = _options(format, n_features, zero_based, n_jobs)
    files = expand(path)
    # Which indices are out of range depends on zero_based: skipping such rows takes two passes.
    skips_wide_rows = on_bad_row is not None and n_features is not None and zero_based == "auto"
    if len(files) > 1 or skips_wide_rows:
        given = (format, n_features, zero_based, _BLOCK, n_jobs, on_bad_row, limits)
        return Stream(files, *given).read()
    return _read([DataFile(files[0], limits, on_bad_row)], options)


class Stream:
    r"""Files that may be larger than memory, read in chunks, any number of times.

    Iterating yields the rows of the files in order, one `Dataset` per chunk. Only the current chunk
    and the next one, parsed in a background thread, are in memory. For tables and texts, use
    `ltls.readers.TableStream`.

    Parameters
    ----------
    path : str or path-like, or a sequence of them
        One or several files; a name with ``*``, ``?`` or ``[`` stands for all matching files. A
        pipe, such as standard input, is first copied to a temporary file.
    format, n_features, zero_based, n_jobs, on_bad_row, limits
        As in `read`. svmlight files are read once in advance unless `n_features` and `zero_based`
        are given. `on_bad_row` is called once per bad row, however often a file is read.
    chunk_size : int, default=2**25
        Approximate number of (decompressed) bytes per chunk.

    Attributes
    ----------
    n_features : int
    zero_based : bool
        As in `Dataset`, for all chunks.
    n_rows : int or None
        The number of rows; None until all have been read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ltls import LTLSClassifier
    >>> from ltls.readers import Stream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.txt")
    ...     _ = path.write_text("7 1:0.5 3:2\n-1 2:1\n" * 1000)
    ...     rows = Stream(path, chunk_size=1 << 12)
    ...     sizes = [chunk.X.shape for chunk in rows]
    ...     classifier = LTLSClassifier(random_state=0).fit_stream(rows)
    >>> sizes
    [(430, 3), (432, 3), (431, 3), (431, 3), (276, 3)]
    >>> classifier.predict([[0, 1, 0]])
    array([-1])
    """

    def __init__(
        self,
        path: Paths,
        format: str | None = None,  # noqa: A002
        n_features: int | None = None,
        zero_based: ZeroBased = "auto",
        chunk_size: int = 1 << 25,
        n_jobs: int | None = None,
        on_bad_row: OnBadRow | None = None,
        limits: SizeLimits = DEFAULT_LIMITS,
    ) -> None:
        self._options = _options(format, n_features, zero_based, n_jobs)
        self.chunk_size = as_integer("chunk_size", chunk_size, at_least=1)
        self.n_rows: int | None = None
        self._files = [DataFile(each, limits, on_bad_row, again=True) for each in expand(path)]
        self.n_features, self.zero_based = self._counted(skips_wide_rows=on_bad_row is not None)
        self._options = replace(
            self._options, n_features=self.n_features, zero_based=self.zero_based
        )

    def _counted(self, skips_wide_rows: bool) -> tuple[int, bool]:
        """Return the number of features and whether they start at 0; read the files if needed."""
        options = replace(self._options, n_features=None) if skips_wide_rows else self._options
        readers = []
        for data in self._files:
            with data.open(quiet=True) as file:
                reader = _reader(file, options)
            if reader.n_features is None or reader.zero_based == "auto":
                reader = [each for each, _ in _blocks([data], options, self.chunk_size, True)][-1]
            readers.append(reader)
        if all(reader.file.n_good for reader in readers):
            self.n_rows = sum(reader.file.n_good for reader in readers)
        n_features, zero_based = _features(readers)
        return self._options.n_features or n_features, zero_based

    def __iter__(self) -> Iterator[Dataset]:
        # OpenMP's limits apply to this thread, not to the background thread.
        return prefetch(self._chunks(_engine.threads_for(self._options.n_jobs)))

    def _chunks(self, n_jobs: int) -> Iterator[Dataset]:
        n_rows = 0
        options = replace(self._options, n_jobs=n_jobs)
        for reader, blocks in _blocks(self._files, options, self.chunk_size):
            chunk = _dataset(blocks, self.n_features, self.zero_based, reader.n_labels)
            n_rows += chunk.n_rows
            if chunk.n_rows:
                yield chunk
        self.n_rows = n_rows

    def read(self) -> Dataset:
        """Return all rows at once."""
        data = _read(self._files, self._options)
        self.n_rows = data.n_rows
        return data


def _blocks(
    files: Sequence[DataFile], options: SparseOptions, size: int, quiet: bool = False
) -> Iterator[tuple[SparseReader, Sequence[Any]]]:
    """Yield the rows of files in blocks, and the reader of their file."""
    for data in files:
        with data.open(quiet) as file:
            reader = _reader(file, options)
            for blocks in reader.blocks(size):
                yield reader, blocks
            reader.finish()


def _read(files: Sequence[DataFile], options: SparseOptions) -> Dataset:
    """Return all rows of files, which are parsed once."""
    found = list(_blocks(files, options, _BLOCK))
    readers = list(dict.fromkeys(reader for reader, _ in found))
    declared = [reader.n_labels for reader in readers if reader.n_labels is not None]
    n_labels = max(declared) if len(declared) == len(readers) else None
    blocks = [block for _, some in found for block in some]
    return _dataset(blocks, *_features(readers), n_labels)


def _features(readers: Sequence[SparseReader]) -> tuple[int, bool]:
    """Return the number of features of several files, and whether they start at 0."""
    zero_based = any(reader.zero_based for reader in readers)
    # If another file has index 0, the last index means one more feature.
    shifts = (zero_based and not reader.zero_based for reader in readers)
    counts = (reader.n_features or 0 for reader in readers)
    return max(map(add, counts, shifts)), zero_based


def _dataset(
    blocks: Sequence[Any], n_features: int, zero_based: bool, n_labels: int | None
) -> Dataset:
    """Join parsed rows; see `SparseReader`."""
    indices = _joined([block.features for block in blocks])
    indices -= 0 if zero_based else 1
    indptr = _row_bounds([block.feature_ends for block in blocks])
    values = _joined([block.values for block in blocks])
    X = sp.csr_matrix((values, indices, indptr), shape=(len(indptr) - 1, n_features))
    # A view of NumPy's own int64: the engine's may be a distinct type of the same size.
    columns = _joined([block.labels for block in blocks]).view(np.int64)
    classes = None
    if n_labels is None:
        classes, columns = np.unique(columns, return_inverse=True)
        n_labels = len(classes)
    indptr = _row_bounds([block.label_ends for block in blocks])
    # float32, not a smaller type: products of indicator matrices are sums and must not overflow.
    ones = np.ones(len(columns), np.float32)
    Y = sp.csr_matrix((ones, columns, indptr), shape=(X.shape[0], n_labels))
    X.has_canonical_format = Y.has_canonical_format = True
    return Dataset(X, Y, classes, zero_based)


def _joined(arrays: list[AnyArray]) -> AnyArray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _row_bounds(ends: list[Ints]) -> Ints:
    """Return the indptr of a matrix, given where the rows of its blocks end."""
    totals = np.cumsum([0, *(block[-1] if len(block) else 0 for block in ends)])
    return np.concatenate([[0], *map(np.add, ends, totals)])


def write(path: PathLike, X: Any, Y: Any, format: str) -> None:  # noqa: A002
    """Write rows to a file that :func:`read` can read; the file is replaced atomically.

    Parameters
    ----------
    path : str or path-like
        The file to write, compressed if its name ends in .gz, .xz, .bz2 or .zst; ``-`` is
        standard output.
    X : array-like or sparse matrix of shape (n_rows, n_features)
        The features, written in float32 precision.
    Y : array-like of int of shape (n_rows,), or indicator matrix of shape (n_rows, n_labels)
        One label per row, or an indicator matrix.
    format : {"svmlight", "xmc"} or another registered sparse format
        svmlight features start at 1, xmc features at 0.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ltls.readers import write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "two_rows.txt")
    ...     write(path, [[0.5, 0, 2], [0, 1, 0]], [[1, 0, 1], [0, 1, 0]], "xmc")
    ...     print(path.read_text(), end="")
    2 3 3
    0,2 0:0.5 2:2
    1 1:1
    """
    file_format = _sparse_format(format)
    if hasattr(X, "tocsr"):
        check_sparse(X, "X")
    with np.errstate(over="ignore"):  # too large numbers raise an error below
        X, Y = sp.csr_matrix(X, dtype=np.float32, copy=True), label_matrix(Y, "Y")
    X.sum_duplicates()
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"Y must have as many rows as X ({X.shape[0]}), got {Y.shape[0]}")
    if not np.isfinite(X.data).all():
        raise ValueError("X must have finite numbers in the range of float32, got NaN or infinity")
    X.data = X.data.astype(str).astype(np.float64)  # 0.1 and not 0.1000000014901161
    with open_output(path) as stream:
        file_format.write(stream, X, Y)


def _options(
    name: str | None, n_features: int | None, zero_based: ZeroBased, n_jobs: int | None
) -> SparseOptions:
    if name is not None:
        _sparse_format(name)
    if n_features is not None and n_features < 1:
        raise ValueError(f"n_features must be at least 1, got {n_features}")
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}")
    return SparseOptions(name, n_features, zero_based, threads(n_jobs))


def _sparse_format(name: str) -> SparseFormat:
    file_format = formats.get(name, "sparse")
    assert isinstance(file_format, SparseFormat)
    return file_format


def _reader(file: OpenFile, options: SparseOptions) -> SparseReader:
    """Begin to read a file; its format is detected if it is not given."""
    name = options.format
    if name is None:
        found = formats.detect(formats.Sample(file.path, file.start))
        # A bad line of an svmlight file may look like a table: the parser says what is wrong.
        name = found.name if found.kind == "sparse" else formats.DEFAULT
    return _sparse_format(name).open(file, options)
