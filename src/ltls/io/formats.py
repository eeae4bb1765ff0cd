"""The registry of file formats, used by readers, writers and the terminal.

A format is an object with a name, the suffixes and first bytes of its files, and methods to read
and write them. `register` adds a format; `ltls train`, `predict`, `evaluate` and `convert` then
support it without further changes. Subclass `SparseFormat` for sparse rows of features,
`ltls.io.tables.TableFormat` for tables and texts, `ltls.io.lines.LineFormat` for a row per line.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

from ..core.streams import without_compression_suffix
from .errors import FormatError, PathLike
from .files import OpenFile

if TYPE_CHECKING:
    import scipy.sparse as sp

ZeroBased: TypeAlias = bool | Literal["auto"]  # whether features start at 0
InputKind: TypeAlias = Literal["sparse", "dense", "table", "text"]


@dataclass(frozen=True)
class Sample:
    """What is known about a file when its format is detected.

    Parameters
    ----------
    path : path
        Its name.
    start : bytes
        Its first bytes, decompressed.
    columns_named : bool, default=False
        Whether the user named columns, so that the file must have some.
    expects_table : bool, default=False
        Whether the model that will read it was trained on a table.
    """

    path: PathLike
    start: bytes
    columns_named: bool = False
    expects_table: bool = False

    @property
    def first_line(self) -> bytes:
        """The first line that is not blank."""
        return self.start.lstrip().split(b"\n", 1)[0]

    @property
    def suffix(self) -> str:
        """The suffix of the file, without a compression suffix."""
        return suffix_of(self.path)


class Format:
    """A file format.

    Attributes
    ----------
    name : str
        Its name for ``--format`` and ``--to``.
    kind : {"sparse", "dense", "table", "text"}
        Sparse features with integer labels; vectors, whose labels are in another file; a table
        with named columns; or texts and labels without column names.
    suffixes : tuple of str
        Suffixes of its files, such as ``".csv"``.
    starts : bytes
        The bytes that every file starts with; empty if there are none.
    """

    name: str
    kind: InputKind
    suffixes: tuple[str, ...] = ()
    starts: bytes = b""

    def detect(self, sample: Sample) -> bool:
        """Return whether a file has this format: by `starts` or, if it is empty, by its suffix."""
        if self.starts:
            return sample.first_line.startswith(self.starts)
        return sample.suffix in self.suffixes

    def __repr__(self) -> str:
        return f"<format {self.name}>"


@dataclass(frozen=True)
class SparseOptions:
    """How to read sparse rows; see `ltls.readers.read`."""

    format: str | None = None
    n_features: int | None = None
    zero_based: ZeroBased = "auto"
    n_jobs: int = 1


class SparseReader(ABC):
    """One pass over a file of sparse rows.

    Attributes
    ----------
    file : OpenFile
        The file; ``file.n_good`` counts the rows that were read.
    n_features : int or None
        As given, else as in the header, else set by `finish`.
    zero_based : bool or "auto"
        Whether feature indices start at 0; set by `finish` if it is "auto".
    n_labels : int or None
        The number of labels, if the file declares it; label j is then column j of `Y`.
    """

    file: OpenFile
    n_features: int | None
    zero_based: ZeroBased
    n_labels: int | None = None

    @property
    def first(self) -> int:
        """The smallest valid feature index, 0 or 1; 0 while that is unknown."""
        return 0 if self.zero_based else 1

    @abstractmethod
    def blocks(self, size: int) -> Iterator[Sequence[Any]]:
        """Yield parsed rows, from about `size` bytes of the file at a time.

        A block has the attributes ``features``, ``values`` and ``labels`` of all its rows; row i
        ends at ``feature_ends[i]`` and ``label_ends[i]``. Features are numbered as in the file. The
        features of a row are sorted and distinct, and so are its labels.
        """

    @abstractmethod
    def finish(self) -> None:
        """Check what depends on all rows, and set the attributes that depend on them."""


class SparseFormat(Format, ABC):
    """A format of sparse features with integer labels."""

    kind = "sparse"

    @abstractmethod
    def open(self, file: OpenFile, options: SparseOptions) -> SparseReader:
        """Begin to read a file."""

    @abstractmethod
    def write(self, stream: IO[bytes], X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Write features and an indicator matrix of labels, both in canonical CSR format."""


FORMATS: dict[str, Format] = {}
DEFAULT = "svmlight"  # for a file that no format recognizes


def register(file_format: Format) -> Format:
    """Add a format to the registry, replacing one of the same name.

    Formats that were registered last are tried first when the format of a file is detected.

    Examples
    --------
    >>> from ltls.io.formats import FORMATS
    >>> sorted(FORMATS)
    ['csv', 'fasttext', 'jsonl', 'npy', 'parquet', 'svmlight', 'text', 'tsv', 'xmc']
    """
    FORMATS.pop(file_format.name, None)
    FORMATS[file_format.name] = file_format
    return file_format


def get(name: str, *kinds: InputKind) -> Format:
    """Return a format by name; if kinds are given, it must be of one of these."""
    file_format = FORMATS.get(name)
    if file_format is None or (kinds and file_format.kind not in kinds):
        raise ValueError(f"format must be one of {names(*kinds)}, got {name!r}")
    return file_format


def names(*kinds: InputKind) -> str:
    """Return the names of all formats, or of those of some kinds, for a message."""
    return ", ".join(name for name, each in FORMATS.items() if not kinds or each.kind in kinds)


def detect(sample: Sample) -> Format:
    """Return the format of a file: by its content, else by its suffix, else svmlight."""
    found = (each for each in reversed(FORMATS.values()) if each.detect(sample))
    return next(found, None) or _with_suffix(sample.suffix) or FORMATS[DEFAULT]


def by_suffix(path: PathLike) -> Format:
    """Return the format that matches the suffix of a file."""
    suffix = suffix_of(path)
    if file_format := _with_suffix(suffix):
        return file_format
    known = ", ".join(suffix for each in FORMATS.values() for suffix in each.suffixes)
    raise FormatError(f"the suffix must be one of {known}, got {suffix!r}", path=path)


def _with_suffix(suffix: str) -> Format | None:
    return next((each for each in reversed(FORMATS.values()) if suffix in each.suffixes), None)


def suffix_of(path: PathLike) -> str:
    """Return the suffix of a file name, without a compression suffix."""
    return os.path.splitext(without_compression_suffix(path))[1]
