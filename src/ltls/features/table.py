"""The front end of tables: columns of texts, numbers, categories and vectors.

Texts become TF-IDF weighted n-grams, numbers are standardized, and every value of a category is a
feature. All kinds of columns have equal weight, regardless of the number of columns. Vectors, such
as embeddings, are dense features beside these.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, hstack

from ..core.arrays import AnyArray, Tensors, as_frame
from ..core.declarations import Array, Described
from ..core.settings import TEXT, Allowed, setting, settings
from ..core.shortened import shortened
from .blocks import Blocks
from .columns import KINDS, Record, TableColumns
from .rows import Standardizer
from .text import Text, Vectorizer

if TYPE_CHECKING:
    from sklearn.preprocessing import OneHotEncoder

_MAX_SCALED = 1e6  # standard deviations from the mean
_NAMES = Allowed("a list of names", lambda value: isinstance(value, (list, tuple)))


@settings
class Table(Text):
    """Rows of a table: columns of texts, numbers, categories and vectors.

    Texts become TF-IDF weighted n-grams. Numbers are scaled to mean 0 and standard deviation 1.
    Every value of a category is a feature. Missing numbers are replaced by the mean, and a missing
    category is a value like any other. Texts, numbers and categories have equal weight, regardless
    of the number of columns. Vectors are dense features, which a label matrix scores; a missing
    vector is 0. ``normalize="auto"`` does not scale rows to unit length: that would make the
    numbers of a row relative to each other.
    """

    text: str | Sequence[str] = setting(
        TEXT,
        _NAMES,
        default=(),
        help="The text columns. The texts of a row are joined by line breaks.",
    )
    number: str | Sequence[str] = setting(TEXT, _NAMES, default=(), help="The number columns.")
    category: str | Sequence[str] = setting(TEXT, _NAMES, default=(), help="The category columns.")
    vectors: str | Sequence[str] = setting(
        TEXT,
        _NAMES,
        default=(),
        help="The columns of vectors: lists of numbers, all of the same length.",
    )

    def check(self, owner: str | None = None) -> None:
        """Raise an error if a setting is invalid."""
        super().check(owner)
        self.columns()

    def named_columns(
        self, features: str | Sequence[str] | None, text: str | None
    ) -> dict[str, Any]:
        """Return the columns of a table to read: its own; no others may be named."""
        columns = self.columns()
        if features or text:
            names = ", ".join(columns.names)
            raise ValueError(f"the model takes the columns {names}: do not name others")
        return {"mixed": columns}

    def columns_among(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the columns of a table to read by default: its own."""
        return self.named_columns(None, None)

    def columns(self) -> TableColumns:
        """Return the columns by kind."""
        given = (getattr(self, kind) for kind in KINDS)
        return TableColumns(*((each,) if isinstance(each, str) else tuple(each) for each in given))

    def _inputs(self, X: Any) -> list[Record]:
        return as_records(X, self.columns())

    def _vectorizer(self, inputs: Sequence[Record]) -> TableVectorizer:
        columns = self.columns()
        given = self.filled(normalize=False)
        if columns.text:
            texts = [columns.joined_text(row) for row in inputs]
            own = Text(**{name: getattr(given, name) for name, *_ in Text.declared()})
            return TableVectorizer(given, columns, Vectorizer(own.resolved(texts)))
        return TableVectorizer(given, columns, None)


def _another_length(number: int, name: str, found: int, length: int) -> ValueError:
    return ValueError(
        f"row {number}: {name!r} has {found} numbers, but the vectors of the column have {length}"
    )


class _Learned:
    """Statistics of the columns that are not texts, over batches of rows."""

    def __init__(self, columns: TableColumns) -> None:
        from sklearn.preprocessing import StandardScaler  # slow to import, and only needed here

        self._scalers = {name: StandardScaler() for name in columns.number}
        self._categories: dict[str, set[str | None]] = {name: set() for name in columns.category}
        self._lengths: dict[str, int] = dict.fromkeys(columns.vectors, 0)

    def add(self, rows: Sequence[Record]) -> None:
        """Learn from a batch."""
        for name, scaler in self._scalers.items():
            numbers = [[row[name]] for row in rows if not math.isnan(row[name])]
            if numbers:
                scaler.partial_fit(numbers)
        for name, known in self._categories.items():
            known.update(row[name] for row in rows)
        for name, length in self._lengths.items():
            found = (len(row[name]) for row in rows if row[name] is not None)
            self._lengths[name] = length or next(found, 0)

    def lengths(self) -> tuple[int, ...]:
        """Return the lengths of the vectors of every column."""
        for name, length in self._lengths.items():
            if not length:
                raise ValueError(f"column {name!r} must have vectors, all are missing")
        return tuple(self._lengths.values())

    def scaling(self) -> Standardizer:
        """Return mean and standard deviation of every number column, without missing numbers."""
        for name, scaler in self._scalers.items():
            if not hasattr(scaler, "mean_"):
                raise ValueError(f"number column {name!r} must have numbers, all are missing")
        mean, scale = (
            np.array([getattr(scaler, part)[0] for scaler in self._scalers.values()])
            for part in ("mean_", "scale_")
        )
        return Standardizer(mean, scale)

    def categories(self) -> list[list[str | None]]:
        """Return the values of every category column, sorted, a missing one last."""
        return [
            sorted(known, key=lambda value: (value is None, value))
            for known in self._categories.values()
        ]


class TableVectorizer:
    """The front end of tables, fitted.

    Parameters
    ----------
    given : Table
    columns : TableColumns
    texts : Vectorizer or None
        None if there are no texts.
    """

    name: ClassVar[str] = "table"

    def __init__(self, given: Table, columns: TableColumns, texts: Vectorizer | None) -> None:
        self.settings, self.columns, self.texts = given, columns, texts
        self._scaling: Standardizer | None = None
        self._encoder: OneHotEncoder | None = None
        self._lengths: tuple[int, ...] = ()  # of vectors

    def fit_transform(self, rows: Sequence[Record], n_jobs: int | None = None) -> Any:
        """Learn vocabulary, means and categories; return the features of the rows."""
        parts = []
        if self.texts is not None:
            parts.append(self.texts.fit_transform(self._texts_of(rows), n_jobs))
        learned = _Learned(self.columns)
        learned.add(rows)
        self._set(learned)
        return self._joined([*parts, *self._others(rows)], rows)

    def fit(self, batches: Iterable[Sequence[Record]], n_jobs: int | None = None) -> None:
        """Learn from batches of rows that need not fit into memory, in one pass."""
        learned = _Learned(self.columns)

        def texts() -> Iterator[list[str]]:
            for rows in batches:
                learned.add(rows)
                yield self._texts_of(rows)

        if self.texts is not None:
            self.texts.fit(texts(), n_jobs)
        else:
            for _ in texts():
                pass
        self._set(learned)

    def matrix(self, X: Any, n_jobs: int | None = None) -> Any:
        """Return the features of the rows of a table: sparse, dense, or both as blocks."""
        return self.transform(as_records(X, self.columns), n_jobs)

    def transform(self, rows: Sequence[Record], n_jobs: int | None = None) -> Any:
        """Return the features of rows; unknown n-grams and categories are ignored."""
        parts = []
        if self.texts is not None:
            parts.append(self.texts.transform(self._texts_of(rows), n_jobs))
        return self._joined([*parts, *self._others(rows)], rows)

    def _texts_of(self, rows: Sequence[Record]) -> list[str]:
        return [self.columns.joined_text(row) for row in rows]

    def _set(self, learned: _Learned) -> None:
        if self.columns.number:
            self._scaling = learned.scaling()
        if self.columns.category:
            self._set_categories(learned.categories())
        self._lengths = learned.lengths()

    def _set_categories(self, categories: list[list[str | None]]) -> None:
        from sklearn.preprocessing import OneHotEncoder  # slow to import, and only needed here

        values = [np.array(each, object) for each in categories]
        self._encoder = OneHotEncoder(categories=values, handle_unknown="ignore", dtype=np.float64)
        self._encoder.fit(np.array([[each[0] for each in values]], object))

    def _others(self, rows: Sequence[Record]) -> Iterator[Any]:
        """Yield the features of numbers and of categories."""
        if self._scaling is not None:
            numbers = [[row[name] for name in self.columns.number] for row in rows]
            scaled = np.nan_to_num(self._scaling(np.array(numbers)), nan=0.0)  # 0 is the mean
            scaled = scaled.clip(-_MAX_SCALED, _MAX_SCALED)
            yield csr_array(scaled / math.sqrt(len(self.columns.number)))
        if self._encoder is not None:
            cells = [[row[name] for name in self.columns.category] for row in rows]
            encoded = self._encoder.transform(np.array(cells, object))
            yield encoded / math.sqrt(len(self.columns.category))

    def _joined(self, parts: list[Any], rows: Sequence[Record]) -> Any:
        """Return sparse features, with the vectors of the rows beside them."""
        if not parts:
            return self._vectors(rows)
        joined = csr_array(hstack(parts), dtype=np.float32)
        joined.sort_indices()
        return Blocks(joined, self._vectors(rows)) if self.columns.vectors else joined

    def _vectors(self, rows: Sequence[Record]) -> AnyArray:
        found = np.zeros((len(rows), sum(self._lengths)), np.float32)
        first = 0
        for name, length in zip(self.columns.vectors, self._lengths, strict=True):
            for number, row in enumerate(rows):
                vector = row[name]
                if vector is None:
                    continue
                if len(vector) != length:
                    raise _another_length(number, name, len(vector), length)
                found[number, first : first + length] = vector
            first += length
        return found

    @property
    def sparse(self) -> bool:
        """Whether there are sparse features: all but vectors."""
        return bool(self.columns.text or self.columns.number or self.columns.category)

    @property
    def n_features(self) -> int:
        """The number of features."""
        n_texts = 0 if self.texts is None else self.texts.n_features
        others = len(self.columns.number) + sum(map(len, self._categories))
        return n_texts + others + sum(self._lengths)

    @property
    def _categories(self) -> list[AnyArray]:
        return [] if self._encoder is None else list(self._encoder.categories_)

    def feature_names(self) -> Mapping[int, tuple[str, Any]]:
        """Return the name of every feature."""
        return {number: (name, ()) for number, name in enumerate(self.names())}

    def names(self) -> list[str]:
        """Return the names: n-grams, numbers, ``column=value``, and ``column[0]`` for vectors."""
        return ([] if self.texts is None else self.texts.names()) + self._other_names()

    def places(self, X: Any) -> Iterable[Mapping[int, tuple[str, Any]]]:
        """Yield the names of the features of every row, with their positions in its joined text."""
        return map(self.found_in, as_records(X, self.columns))

    def read(self, items: Sequence[Any], n_features: int) -> list[Record]:
        """Return rows from JSON: objects with a value for every column, and no others."""
        for item in items:
            for name in item if isinstance(item, dict) else ():
                if name not in self.columns.names:
                    raise ValueError(f"there is no column {name!r}"[:200])
        for number, item in enumerate(items):  # before copies of vectors are made
            for name, length in zip(self.columns.vectors, self._lengths, strict=True):
                cell = item.get(name) if isinstance(item, dict) else None
                if isinstance(cell, (list, np.ndarray)) and len(cell) != length:
                    raise _another_length(number, name, len(cell), length)
        return as_records(list(items), self.columns)

    @property
    def arrays(self) -> dict[str, str]:
        """The names and types of the arrays that rows are made of."""
        kinds = {"text": "str", "number": "float64", "category": "str", "vectors": "float32"}
        return {name: kinds[kind] for kind in KINDS for name in getattr(self.columns, kind)}

    def empty(self) -> Any:
        """Return a row without values, in the form that `read` takes."""
        return dict.fromkeys(self.columns.names)

    def describe(self) -> dict[str, Any]:
        """Describe the input for callers."""
        return {"input": self.name, "columns": self.columns.by_kind()}

    def _other_names(self) -> list[str]:
        pairs = zip(self.columns.category, self._categories, strict=False)
        values = [
            f"{name}={'' if value is None else value}" for name, known in pairs for value in known
        ]
        vectors = zip(self.columns.vectors, self._lengths, strict=False)
        numbered = [f"{name}[{at}]" for name, length in vectors for at in range(length)]
        return [*self.columns.number, *values, *numbered]

    def found_in(self, row: Record) -> dict[int, tuple[str, Sequence[tuple[int, int]]]]:
        """Return the features of a row: their names, and their positions in its joined text."""
        found: dict[int, tuple[str, Sequence[tuple[int, int]]]] = {}
        first = 0
        if self.texts is not None:
            found |= self.texts.found_in(self.columns.joined_text(row))
            first = self.texts.n_features
        return found | {first + at: (name, ()) for at, name in enumerate(self._other_names())}

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        described: dict[str, Any] = {k: list(v) for k, v in self.columns.by_kind().items()}
        if self._lengths:
            described["lengths"] = list(self._lengths)
        names = (name for name, *_ in Table.declared())
        described["settings"] = {n: getattr(self.settings, n) for n in names if n not in KINDS}
        tensors: Tensors = {}
        if self.texts is not None:
            described["texts"], own = self.texts.state()
            tensors |= {f"texts.{name}": tensor for name, tensor in own.items()}
        if self._scaling is not None:
            tensors |= {"mean": self._scaling.mean, "scale": self._scaling.scale}
        if self.columns.category:
            listed = json.dumps([each.tolist() for each in self._categories], ensure_ascii=False)
            encoded = listed.encode("utf-8", "surrogatepass")
            tensors["categories"] = np.frombuffer(encoded, np.uint8)
        return described, tensors

    @classmethod
    def from_state(cls, section: Described) -> TableVectorizer:
        """Restore a vectorizer from its `state`."""
        kinds = KINDS if section.has("vectors") else KINDS[:-1]
        columns = TableColumns(*(tuple(section.texts(kind)) for kind in kinds))
        settings_of = section.get("settings", "settings", lambda v: isinstance(v, dict))
        given = Table.from_dict({**settings_of, **asdict(columns)})
        texts = Vectorizer.from_state(section.section("texts")) if columns.text else None
        self = cls(given, columns, texts)
        if columns.vectors:
            self._lengths = tuple(section.get("lengths", "lengths of vectors", _are_lengths))
            if len(self._lengths) != len(columns.vectors):
                raise ValueError("every column of vectors must have a length")
        declared: dict[str, Array] = {}
        if columns.number:
            declared |= {
                "mean": Array("f8", ("n_numbers",)),
                "scale": Array("f8", ("n_numbers",), low=1e-300),
            }
        if columns.category:
            declared["categories"] = Array("u1", ("n_bytes",))
        tensors = section.tensors(declared, {"n_numbers": len(columns.number)})
        if columns.number:
            self._scaling = Standardizer(np.array(tensors["mean"]), np.array(tensors["scale"]))
        if columns.category:
            listed = json.loads(tensors["categories"].tobytes().decode("utf-8", "surrogatepass"))
            if (
                not isinstance(listed, list)
                or len(listed) != len(columns.category)
                or not all(isinstance(each, list) and each for each in listed)
                or not all(isinstance(value, str | None) for each in listed for value in each)
                or any(len(each) != len(set(each)) for each in listed)
            ):
                raise ValueError("category columns must have lists of different texts")
            self._set_categories(listed)
        return self


def _are_lengths(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, int) and not isinstance(each, bool) and 0 < each < 2**31 for each in value
    )


def as_records(X: Any, columns: TableColumns) -> list[Record]:
    """Return the cells of a data frame or of a list of dicts as records."""
    if (frame := as_frame("X", X)) is not None:
        for name in columns.names:
            if name not in frame.columns:
                listed = ", ".join(map(repr, map(str, frame.columns)))
                raise ValueError(f"X must have a column {name!r}, but it has {listed}")
        cells = (frame[name].to_list() for name in columns.names)
        rows: list[Any] = [
            dict(zip(columns.names, row, strict=True)) for row in zip(*cells, strict=True)
        ]
    elif isinstance(X, (list, tuple)):
        rows = list(X)
    else:
        raise ValueError(
            f"X must be a data frame or a list of dicts, one per row, got {type(X).__name__}"
        )
    if not rows:
        raise ValueError("X must have at least one row, got none")
    records = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(f"rows must be dicts, but row {number} is {shortened(row)}")
        try:
            records.append(columns.read(row))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from None
    return records
