"""Files of the field in, sparse matrices out: svmlight and the Extreme Classification Repository.

scikit-learn's parser does the work. It names no line when it fails, so a file that it refuses is
walked through again in Python, line by line, to say which line is wrong and why.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .atomic import replacing
from .metrics import label_matrix

Format = Literal["svmlight", "xmc"]

# By suffix: the first bytes of such a file, and how to open one.
_COMPRESSIONS: dict[str, tuple[bytes, Callable[..., Any]]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".xz": (b"\xfd7zXZ\x00", lzma.open),
    ".bz2": (b"BZh", bz2.open),
}
_LARGEST_INDEX = 2**31 - 2  # of a feature: scikit-learn's parser has 32 bits for it


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
        return np.concatenate(self.labels())

    def labels(self) -> list[NDArray[np.int64]]:
        """Give the labels of every row, as the file names them."""
        columns = self.Y.indices.astype(np.int64)
        values = columns if self.classes is None else self.classes[columns]
        return np.split(values, self.Y.indptr[1:-1])


def read(
    path: str | os.PathLike[str],
    format: Format | None = None,  # noqa: A002
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
) -> Dataset:
    r"""Read a file of sparse rows with labels, plain or compressed with gzip, xz or bzip2.

    Parameters
    ----------
    path : str or path-like
        The file. Compression is told by its first bytes, not by its name.
    format : {"svmlight", "xmc"}, optional
        ``svmlight`` lines are ``label,label,... index:value ...`` with integer labels and comments
        after ``#``; ``xmc`` has a first line ``rows features labels`` and counts from 0. By
        default a file that starts with three counts is xmc. Rows may lack labels in both.
    n_features : int, optional
        The width of `X`; by default what the indices need, or what the xmc header says.
    zero_based : bool or "auto", default="auto"
        Whether features count from 0 in an svmlight file; ``"auto"`` means from 1 unless index 0
        occurs. Pass the training set's ``zero_based`` when reading its test set.

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
    if format not in (None, "svmlight", "xmc"):
        raise ValueError(f"format must be 'svmlight', 'xmc' or None, got {format!r}")
    if n_features is not None and n_features < 1:
        raise ValueError(f"n_features must be at least 1, got {n_features}")
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}")
    name = os.fspath(path)
    try:
        return _read(name, format, n_features, zero_based)
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's own: no such file, no permission
        raise ValueError(f"{name}: the compressed file is cut short or damaged: {error}") from error


def write(path: str | os.PathLike[str], X: Any, Y: Any, format: Format) -> None:  # noqa: A002
    """Write rows to a file that :func:`read` reads back; it appears whole or not at all.

    Parameters
    ----------
    path : str or path-like
        Where to; compressed where the name ends in .gz, .xz or .bz2.
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
    open_as = _COMPRESSIONS.get(os.path.splitext(name)[1], (b"", open))[1]
    with replacing(name) as temporary, open_as(temporary, "wb") as stream:
        if zero_based:
            stream.write(b"%d %d %d\n" % (*X.shape, Y.shape[1]))
        dump_svmlight_file(X, Y, stream, zero_based=zero_based, multilabel=True)


def _read(
    name: str, kind: Format | None, n_features: int | None, zero_based: bool | Literal["auto"]
) -> Dataset:
    header, skip = (None, 0) if kind == "svmlight" else _header(name)
    if kind == "xmc" and header is None:
        raise ValueError(f"{name}: an xmc file starts with three counts, 'rows features labels'")
    lines = _Lines(name, skip, n_rows=header[0] if header else 0)
    try:
        X, labels = _parse(lines)
    except (ValueError, OverflowError):
        _check_lines(lines)  # says what is wrong, unless it is only the order of the features
        X, labels = _parse(_Lines(name, skip, lines.n_rows, sort=True))
    if not labels:
        raise ValueError(f"{name}: the file has no rows")
    if header and header[0] != len(labels):
        raise ValueError(f"{name}: the header says {header[0]} rows, there are {len(labels)}")
    if zero_based == "auto":
        zero_based = bool(X.nnz and X.indices.min() == 0)
    first = 0 if header or zero_based else 1
    limit, n_labels = header[1:] if header else (n_features, None)
    last = _LARGEST_INDEX if limit is None else first + limit - 1
    values = np.fromiter(chain.from_iterable(labels), np.float64)
    outside = X.nnz and (X.indices.min() < first or X.indices.max() > last)
    if outside or not np.isfinite(X.data).all() or not _are_labels(values, n_labels):
        _check_lines(lines, first, last, n_labels)
    width = int(X.indices.max(initial=first)) + 1 - first if limit is None else limit
    if n_features is not None and n_features < width:
        raise ValueError(f"n_features must be at least the {width} of {name}, got {n_features}")
    shape = (len(labels), n_features or width)
    X = sp.csr_matrix((X.data, X.indices - first, X.indptr), shape=shape)
    columns, classes = values.astype(np.int64), None
    if n_labels is None:
        classes, columns = np.unique(columns, return_inverse=True)
        n_labels = classes.size
    indptr = np.cumsum([0, *map(len, labels)])
    # float32 and not a smaller type: products of indicators are sums, and must not wrap around.
    ones = np.ones(columns.size, dtype=np.float32)
    Y = sp.csr_matrix((ones, columns, indptr), shape=(len(labels), n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return Dataset(X, Y, classes, first == 0)


class _Lines:
    """The lines of a file after its header, in the form of a file for scikit-learn's parser.

    It passes over blank lines, but in an xmc file such a line is a row with neither labels nor
    features. A query id alone makes an empty row, so among the first `n_rows` lines it stands in.
    """

    def __init__(self, name: str, skip: int, n_rows: int, sort: bool = False) -> None:
        self.name, self.skip, self.n_rows, self.sort = name, skip, n_rows, sort

    def read(self) -> bytes:  # a file must have it for scikit-learn, which then iterates
        return b"".join(self)

    def __iter__(self) -> Iterator[bytes]:
        with _open(self.name) as stream:
            for number, line in enumerate(islice(stream, self.skip, None)):
                if number < self.n_rows and not line.lstrip():
                    yield b"qid:0"
                else:
                    yield _sorted_line(line) if self.sort else line


def _parse(lines: _Lines) -> tuple[sp.csr_matrix, list[tuple[float, ...]]]:
    from sklearn.datasets import load_svmlight_file  # a slow import

    X, labels = load_svmlight_file(lines, dtype=np.float32, multilabel=True, zero_based=True)
    return X, labels


def _sorted_line(line: bytes) -> bytes:
    words = [word for word in line.partition(b"#")[0].split() if not word.startswith(b"qid:")]
    order = [int(word.partition(b":")[0]) if b":" in word else -1 for word in words]
    return b" ".join(words[at] for at in np.argsort(order))


def _check_lines(
    lines: _Lines, first: int = 0, last: int = _LARGEST_INDEX, n_labels: int | None = None
) -> None:
    for number, line in enumerate(lines, lines.skip + 1):
        words = line.partition(b"#")[0].decode("ascii", "backslashreplace").split()
        fault = _fault(words, first, last, n_labels)
        if fault:
            raise ValueError(f"{lines.name}, line {number}: {fault}")


def _fault(words: list[str], first: int, last: int, n_labels: int | None) -> str:
    """Say what is wrong with a line, or nothing."""
    if words and ":" not in words[0]:
        for label in words.pop(0).split(","):
            if not _are_labels(np.array([_number(label)]), n_labels):
                span = "" if n_labels is None else f" from 0 to {n_labels - 1}"
                return f"label {label!r} is not an integer{span}"
    seen: set[int] = set()
    for word in words[1:] if words and words[0].startswith("qid:") else words:
        index, colon, value = word.partition(":")
        if not colon:
            return f"{word!r} is not of the form index:value"
        if not re.fullmatch(r"[+-]?\d{1,18}", index) or not first <= int(index) <= last:
            return f"feature index {index!r} is not an integer from {first} to {last}"
        if int(index) in seen:
            return f"feature index {index} occurs twice"
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.float32(_number(value)))
        if not finite:
            return f"value {value!r} of feature {index} is not a finite number"
        seen.add(int(index))
    return ""


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")


def _are_labels(values: NDArray[np.float64], n_labels: int | None) -> bool:
    # Labels come as float64, which holds every integer up to 2**53.
    least, most = (-(2.0**53), 2.0**53) if n_labels is None else (-1.0, float(n_labels))
    return bool(((values > least) & (values < most) & (values == np.floor(values))).all())


def _header(name: str) -> tuple[tuple[int, int, int] | None, int]:
    """Return the three counts of an xmc file, or None, and the lines that they take."""
    with _open(name) as stream:
        for number, line in enumerate(stream, 1):
            words = line.partition(b"#")[0].split()
            if len(words) == 3 and all(re.fullmatch(rb"\d{1,18}", word) for word in words):
                return (int(words[0]), int(words[1]), int(words[2])), number
            if words:
                break
    return None, 0


def _open(name: str) -> Any:
    with open(name, "rb") as stream:
        start = stream.read(8)
    for magic, opener in _COMPRESSIONS.values():
        if start.startswith(magic):
            return opener(name, "rb")
    return open(name, "rb")
