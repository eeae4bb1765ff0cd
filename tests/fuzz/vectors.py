"""The target of vectors: npy files, and columns of vectors in JSON lines and Parquet.

They are rows of one length that a model is trained on and predicts, or a typed error.
"""

import functools
import io
import json
import struct

import numpy as np

from ltls import LTLSClassifier, TableClassifier
from ltls.features.columns import TableColumns
from ltls.io.errors import DataError
from ltls.io.npy import Npy, bad_rows, read_labels
from ltls.io.tables import Columns, Rows, Table
from ltls.settings import Table as TableSettings
from ltls.settings import Trellises

from .mutate import mutated_bytes, mutated_json, pick
from .readers import ERRORS, LIMITS

SMALL = Trellises(width=2, n_trellises=1, epochs=1)
VECTORS = np.arange(60, dtype=np.float32).reshape(20, 3) % 7 - 2
LABELS = [f"k{number % 3}" for number in range(20)]
RECORDS = [
    {"t": f"word {number % 4}", "v": vector.tolist(), "k": label}
    for number, (vector, label) in enumerate(zip(VECTORS, LABELS, strict=True))
]
COLUMNS = (
    Columns(None, "k", ("v",)),
    Columns(label="k", mixed=TableColumns(text=("t",), vectors=("v",))),
)
# Parts of the header of an npy file, which is a Python literal.
TYPES = [
    "'<f4'", "'>f8'", "'<f2'", "'|i1'", "'<u8'", "'|b1'", "'<c8'", "'<f16'", "'|O'", "'<U1'", "[]",
    "'<U0'", "'|V0'", "'<M8[s]'", "[('a', '<f4')]", "('<f4', (2,))", "'x'", "None", "5", "'<U9'",
]  # fmt: skip
SIZES = [
    "20", "3", "60", "0", "1", "-1", "-20", "True", "2.0", "'3'", "None", "2**62", "99999999999999",
    "4611686018427387904", "9" * 400, "()", "(3, 1)", "1+1",
]  # fmt: skip
SHAPES = ["(20, 3)", "(3, 20)", "(60,)", "()", "60", "None", "[20, 3]", "-" * 5000, "(" * 5000]
CELLS = [
    None, [], [1], [1, 2], [1, 2, 3, 4], [1, None, 2], ["1", "2", "3"], ["a"], [[1, 2, 3]], "1",
    "x", 3, True, {"a": 1}, [1e39, 0, 0], [1e20, 0, 0], [10**400, 0, 0], [float("nan"), 0, 0],
    [0, 0, float("-inf")], [5e-324, 0, 0], [0.5] * 500, [2**70, 0, 0],
]  # fmt: skip


def npy(rng):
    """Return a file with a header of unusual parts, and mostly as many numbers as it says."""
    data = VECTORS.astype(pick(rng, ["f4", "f4", "f8", "f2", "i1"]))
    if rng.random() < 0.3:
        bad = np.float32(pick(rng, [np.nan, np.inf, 1e30]))
        data = np.where(rng.random(data.shape) < 0.05, bad, data)
    kind = data.dtype.newbyteorder("=").str
    shape = pick(rng, [*SHAPES, f"({pick(rng, SIZES)}, {pick(rng, SIZES)})"])
    parts = {
        "descr": repr(kind) if rng.random() < 0.7 else pick(rng, TYPES),
        "fortran_order": pick(rng, ["False", "False", "True", "1", "'x'"]),
        "shape": "(20, 3)" if rng.random() < 0.6 else shape,
    }
    header = "{" + "".join(f"{name!r}: {part}, " for name, part in parts.items()) + "}"
    version = pick(rng, [1, 1, 1, 2, 3, 9])
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data.tobytes()


def changed_records(rng):
    records = [dict(each) for each in RECORDS]
    for _ in range(int(rng.integers(1, 4))):
        pick(rng, records)["v"] = pick(rng, CELLS)
    return records if rng.random() < 0.6 else mutated_json(rng, records, int(rng.integers(1, 4)))


def json_lines(rng):
    records = changed_records(rng)
    lines = records if isinstance(records, list) else [records]
    return "".join(json.dumps(each) + "\n" for each in lines).encode()


@functools.cache
def arrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return None
    # The usual one reserves far more than it uses, and crashes where memory is limited.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    return pyarrow


def parquet(rng):
    """Return a table with a column of some type, whose cells are what fits into it."""
    pa = arrow()
    number = pick(
        rng, [pa.float32(), pa.float64(), pa.float16(), pa.int64(), pa.bool_(), pa.string()]
    )
    kinds = [
        pa.list_(number), pa.list_(number, 3), pa.large_list(number), pa.list_(pa.list_(number)),
        pa.map_(pa.string(), number), pa.struct([("a", number)]), pa.binary(), pa.null(), number,
    ]  # fmt: skip
    kind = kinds[0] if rng.random() < 0.5 else pick(rng, kinds)
    cells = [each["v"] for each in RECORDS]
    for _ in range(int(rng.integers(4))):
        cells[int(rng.integers(len(cells)))] = pick(rng, CELLS)
    column = pa.chunked_array([_of_kind(cell, kind) for cell in cells])
    columns = {"t": [each["t"] for each in RECORDS], "v": column, "k": LABELS}
    stream = io.BytesIO()
    try:
        pa.parquet.write_table(pa.table(columns), stream)
    except pa.ArrowException:  # a type that Parquet does not have
        return parquet(rng)
    return stream.getvalue()


def _of_kind(cell, kind):
    """Return a cell as an array of a type, a missing one if it is none of these."""
    try:
        return arrow().array([cell], kind)
    except (arrow().ArrowException, TypeError, ValueError, OverflowError):
        return arrow().nulls(1, kind)


def generate(rng, folder):
    """Return a suffix and a file; some are changed bytewise, too."""
    makers = {".npy": npy, ".jsonl": json_lines}
    if arrow() is not None:
        makers[".parquet"] = parquet
    suffix = pick(rng, sorted(makers))
    content = makers[suffix](rng)
    return suffix, mutated_bytes(rng, content) if rng.random() < 0.25 else content


def mutate(rng, content, folder):
    """Return a file with a few more changes."""
    return mutated_bytes(rng, content)


def run(content, path):
    """Read a file, train on it and predict; return whether it is accepted."""
    path.write_bytes(content)
    return _npy(path) if path.suffix == ".npy" else _table(path, path.suffix[1:])


def _npy(path):
    try:
        X = Npy().open(path)
        for error in bad_rows(X, path):
            raise error
    except DataError as error:
        if str(path) not in str(error):
            raise
        return False
    labels = path.with_suffix(".txt")
    labels.write_text("".join(f"k{number % 3}\n" for number in range(len(X))))
    y = [label for (label,) in read_labels(labels, len(X))]
    works = _works(LTLSClassifier(trellises=SMALL, random_state=0), X, y)
    assert works or len(X) == 1  # and of one class
    return True


def _table(path, name):
    accepted = False
    for columns in COLUMNS:
        skipped = []
        strict = _read(path, name, columns, None)
        lenient = _read(path, name, columns, skipped.append)
        assert strict is None or not skipped
        for rows in (strict, lenient):
            if rows is None or not rows.labels:
                continue
            y = [tuple(own) for own in rows.labels]
            if columns.mixed is None:
                model = LTLSClassifier(trellises=SMALL, random_state=0)
                assert len(set(map(len, rows.X))) == 1
            else:
                features = TableSettings(text="t", vectors="v")
                model = TableClassifier(features=features, trellises=SMALL, random_state=0)
            accepted |= _works(model, rows.X, y) and rows is strict
    return accepted


def _read(path, name, columns, on_bad_row):
    try:
        return Rows.concatenate(Table(path, name, columns, True, on_bad_row, LIMITS).batches(7))
    except ERRORS:
        return None


def _works(model, X, y):
    """Return whether a model can be fitted; it predicts the labels that it was given."""
    try:
        model.fit(X, y)
    except ValueError:  # values that are too large, no words, or all vectors missing
        return False
    assert model.predict(X).shape[0] == len(X)
    return True
