"""Files of the field in, sparse matrices out: svmlight and the Extreme Classification Repository.

`read` holds a whole file, `Stream` a part of it at a time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..core import _engine
from ..core.arrays import as_integer, threads
from ..core.atomic import replacing
from ..core.prefetch import prefetch
from ..core.compression import opened, opened_to_write, packed
from ..model.labels import Targets
from ..evaluation.metrics import label_matrix
from .row_text import Base, Format, RowText

_BLOCK = 1 << 24  # bytes of text that are parsed at a time where all of them are wanted


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of features with their labels, as a file held them.

    Parameters
    ----------
    X : scipy.sparse.csr_matrix of float32, shape (n_rows, n_features)
        The features.
    Y : scipy.sparse.csr_matrix of float32, shape (n_rows, n_labels)
        1 where a row has a label.
    classes : ndarray of int64, shape (n_labels,), or None
        The label of each column of `Y`; None where column j is simply label j, as in xmc files.
    zero_based : bool
        Whether the file counted its features from 0.

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
    classes: NDArray[np.int64] | None
    zero_based: bool

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.X.shape[0])

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return int(self.Y.shape[1])

    @property
    def labels_per_row(self) -> NDArray[np.int64]:
        """How many labels each row has."""
        counts: NDArray[np.int64] = np.diff(self.Y.indptr).astype(np.int64)
        return counts

    @property
    def single_label(self) -> bool:
        """Whether every row has exactly one label."""
        return bool((self.labels_per_row == 1).all())

    @property
    def y(self) -> NDArray[np.int64]:
        """The one label of each row; a ValueError where a row has none or several."""
        if not self.single_label:
            row = int(np.argmax(self.labels_per_row != 1))
            count = self.labels_per_row[row]
            raise ValueError(f"y needs one label in every row, row {row} has {count}; use Y")
        return self._labels

    @property
    def targets(self) -> Targets:
        """The labels of all rows in the form that `LTLSClassifier.fit` reads fastest."""
        one = self.single_label
        form = "single" if one else "lists"
        return Targets(self.Y.indptr.astype(np.int64), self._labels, not one, form)

    def labels(self) -> list[NDArray[np.int64]]:
        """Give the labels of every row, as the file names them."""
        return np.split(self._labels, self.Y.indptr[1:-1])

    @property
    def _labels(self) -> NDArray[np.int64]:
        columns: NDArray[np.int64] = self.Y.indices.astype(np.int64)
        return columns if self.classes is None else self.classes[columns]


def read(
    path: str | os.PathLike[str],
    format: Format | None = None,  # noqa: A002
    n_features: int | None = None,
    zero_based: Base = "auto",
    n_jobs: int | None = None,
) -> Dataset:
    r"""Read a file of sparse rows with labels, plain or compressed with gzip, xz, bzip2 or zstd.

    Parameters
    ----------
    path : str or path-like
        The file; ``-`` is standard input. Compression is told by the first bytes, not by the name.
    format : {"svmlight", "xmc"}, optional
        ``svmlight`` lines are ``label,label,... index:value ...`` with integer labels and comments
        after ``#``; ``xmc`` has a first line ``rows features labels`` and counts from 0. By
        default a file that starts with three counts is xmc. Rows may lack labels in both.
    n_features : int, optional
        The width of `X`; by default what the indices need, or what the xmc header says.
    zero_based : bool or "auto", default="auto"
        Whether features count from 0 in an svmlight file; ``"auto"`` means from 1 unless index 0
        occurs. Pass the training set's ``zero_based`` when reading its test set.
    n_jobs : int or None, default=None
        Threads that parse: None is one, −1 all cores.

    Returns
    -------
    Dataset
        Indices of a row are sorted, a label named twice in a row counts once.

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
    _check(format, n_features, zero_based)
    name = os.fspath(path)
    with opened(name) as stream:
        text = RowText(name, stream, format, n_features, zero_based, threads(n_jobs))
        parts = list(text.parse(_BLOCK))
    text.finish()
    return _dataset(parts, text)


class Stream:
    r"""A file of rows larger than memory, a part of it at a time, as often as it is wanted.

    Iterating gives the file's rows in their order, as one `Dataset` after another. While one is
    worked on, the next is parsed in the background, and no others are held.

    Parameters
    ----------
    path, format, n_features, zero_based, n_jobs
        As for `read`. What can be read only once, as standard input, is copied to a temporary file.
        An svmlight file is read once in advance unless `n_features` and `zero_based` are given.
    chunk_size : int, default=2**25
        Bytes of (unpacked) text that a part has, about.

    Attributes
    ----------
    n_features : int
    zero_based : bool
        As of `Dataset`, for all parts.
    n_rows : int or None
        How many rows there are, when all were read once.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ltls import LTLSClassifier
    >>> from ltls.readers import Stream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.txt")
    ...     _ = path.write_text("7 1:0.5 3:2\n-1 2:1\n" * 1000)
    ...     rows = Stream(path, chunk_size=1 << 12)
    ...     sizes = [part.X.shape for part in rows]
    ...     classifier = LTLSClassifier(random_state=0).fit_stream(rows)
    >>> sizes
    [(432, 3), (431, 3), (431, 3), (431, 3), (275, 3)]
    >>> classifier.predict([[0, 1, 0]])
    array([-1])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: Format | None = None,  # noqa: A002
        n_features: int | None = None,
        zero_based: Base = "auto",
        chunk_size: int = 1 << 25,
        n_jobs: int | None = None,
    ) -> None:
        _check(format, n_features, zero_based)
        self.chunk_size = as_integer("chunk_size", chunk_size, at_least=1)
        self.n_rows: int | None = None
        self._name, self._format, self._n_jobs = os.fspath(path), format, threads(n_jobs)
        self._file = self._name
        if self._name == "-" or not os.path.isfile(self._name):
            self._copy = _copied(self._name)
            self._file = self._copy.name
        with opened(self._file) as stream:
            text = RowText(self._name, stream, format, n_features, zero_based, self._n_jobs)
            if text.n_features is None or text.zero_based == "auto":
                for _ in text.parse(self.chunk_size):
                    pass
                text.finish()
                self.n_rows = text.n_rows
        assert text.n_features is not None
        self.n_features, self.zero_based = text.n_features, bool(text.zero_based)

    def __iter__(self) -> Iterator[Dataset]:
        # OpenMP's limits are those of the thread that asks, not of the one that will parse.
        return prefetch(self._parts(_engine.threads_for(self._n_jobs)))

    def _parts(self, n_jobs: int) -> Iterator[Dataset]:
        with opened(self._file) as stream:
            text = RowText(
                self._name, stream, self._format, self.n_features, self.zero_based, n_jobs
            )
            for rows in text.parse(self.chunk_size):
                if len(rows.feature_ends):
                    yield _dataset([rows], text)
        text.finish()
        self.n_rows = text.n_rows


def write(path: str | os.PathLike[str], X: Any, Y: Any, format: Format) -> None:  # noqa: A002
    """Write rows to a file that :func:`read` reads back; it appears whole or not at all.

    Parameters
    ----------
    path : str or path-like
        Where to; compressed where the name ends in .gz, .xz, .bz2 or .zst.
    X : array-like or sparse matrix of shape (n_rows, n_features)
        The features; written with the precision of float32.
    Y : array-like of int of shape (n_rows,), or indicator matrix of shape (n_rows, n_labels)
        The labels: one a row, or the columns that are not 0.
    format : {"svmlight", "xmc"}
        svmlight features are counted from 1, xmc features from 0.

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
    from sklearn.datasets import dump_svmlight_file  # a slow import

    if format not in ("svmlight", "xmc"):
        raise ValueError(f"format must be 'svmlight' or 'xmc', got {format!r}")
    with np.errstate(over="ignore"):  # what is too large is refused below
        X, Y = sp.csr_matrix(X, dtype=np.float32, copy=True), label_matrix(Y, "Y")
    X.sum_duplicates()
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"Y must have the {X.shape[0]} rows of X, got {Y.shape[0]}")
    if not np.isfinite(X.data).all():
        raise ValueError("X must hold finite numbers of float32's range, got NaN or infinity")
    X.data = X.data.astype(str).astype(np.float64)  # 0.1 and not 0.1000000014901161
    zero_based = format == "xmc"
    if not zero_based and ((np.diff(X.indptr) == 0) & (np.diff(Y.indptr) == 0)).any():
        raise ValueError("X and Y have a row with no features and no labels; use format='xmc'")
    name = os.fspath(path)
    with replacing(name) as temporary, opened_to_write(temporary, name) as stream:
        if zero_based:
            stream.write(b"%d %d %d\n" % (*X.shape, Y.shape[1]))
        dump_svmlight_file(X, Y, stream, zero_based=zero_based, multilabel=True)


def _check(kind: Format | None, n_features: int | None, zero_based: Base) -> None:
    if kind not in (None, "svmlight", "xmc"):
        raise ValueError(f"format must be 'svmlight', 'xmc' or None, got {kind!r}")
    if n_features is not None and n_features < 1:
        raise ValueError(f"n_features must be at least 1, got {n_features}")
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}")


def _dataset(parts: Sequence[_engine.TextRows], text: RowText) -> Dataset:
    """Join parsed rows; `text` knows what its features and labels are counted from."""
    indices = _joined([part.features for part in parts])
    indices -= text.first
    indptr = _row_bounds([part.feature_ends for part in parts])
    shape = (len(indptr) - 1, text.n_features)
    X = sp.csr_matrix((_joined([part.values for part in parts]), indices, indptr), shape=shape)
    # Viewed as what NumPy calls int64: the engine's may be its twin of another name.
    columns, classes = _joined([part.labels for part in parts]).view(np.int64), None
    n_labels = text.n_labels
    if n_labels is None:
        classes, columns = np.unique(columns, return_inverse=True)
        n_labels = classes.size
    indptr = _row_bounds([part.label_ends for part in parts])
    # float32 and not a smaller type: products of indicators are sums, and must not wrap around.
    ones = np.ones(columns.size, dtype=np.float32)
    Y = sp.csr_matrix((ones, columns, indptr), shape=(shape[0], n_labels))
    X.has_canonical_format = Y.has_canonical_format = True  # the parser sorts
    return Dataset(X, Y, classes, text.first == 0)


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _row_bounds(ends: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return a matrix' indptr from where the rows of its parts end."""
    totals = np.cumsum([0, *(part[-1] if len(part) else 0 for part in ends)])
    return np.concatenate([[0], *(part + total for part, total in zip(ends, totals, strict=False))])


def _copied(name: str) -> Any:
    """Return a temporary file with the bytes of what can be read only once."""
    copy = tempfile.NamedTemporaryFile(prefix="ltls-")  # noqa: SIM115
    with packed(name) as source:
        shutil.copyfileobj(source, copy)
    copy.flush()
    return copy
