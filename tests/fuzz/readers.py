"""The target of readers: rows or a typed error; skipping bad rows and streaming agree with that."""

import bz2
import functools
import gzip
import io
import lzma

import numpy as np

from ltls.core.streams import CorruptFileError
from ltls.io import formats
from ltls.io.errors import DataError
from ltls.io.tables import Columns, Table
from ltls.readers import FileTooLargeError, SizeLimits, Stream, read

from .mutate import mutated_bytes, pick

ERRORS = (DataError, CorruptFileError, FileTooLargeError)
COMPRESSIONS = {
    ".gz": functools.partial(gzip.compress, mtime=0),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}
# What a file becomes counts as its size. Of small ones, this is part of the memory that any has: a
# row may be a single byte, and is a Python object of about 100.
LIMITS = SizeLimits(max_ratio=50, max_bytes=1 << 16)
SEEDS = {
    ".svm": b"1,3 1:0.5 7:-2e-3 # one\n2 2:1\n\n-4 qid:3 1:1 3:1e10\n 5:1\n",
    ".xmc": b"3 10 4\n0,3 0:1 9:0.25\n1 4:1\n\n",
    ".csv": b'text,kind,n\n"a, b",x,1\n"he said ""no""",y,2.5\n\xc3\xa9t\xc3\xa9,z,-3\n',
    ".tsv": b"text\tkind\tn\na b\tx\t1\nc\ty\t2\n",
    ".jsonl": b'{"text": "a", "kind": ["x", "y"], "n": 1}\n{"text": "b", "kind": "z", "n": [2]}\n',
    ".ft": b"__label__x __label__y a text\n__label__z another\n",
    ".txt": b"one text\nanother\n\nlast",
}
FORMATS = {".ft": "fasttext", ".txt": "text", ".svm": "svmlight"}


@functools.cache
def parquet_seed():
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        return None
    # The usual one reserves far more than it uses, and crashes where memory is limited.
    arrow.set_memory_pool(arrow.system_memory_pool())
    stream = io.BytesIO()
    table = {"text": ["a", "b"], "kind": [["x"], ["y", "z"]], "n": [1.5, 2.5]}
    parquet.write_table(arrow.table(table), stream)
    return stream.getvalue()


def generate(rng, folder):
    """Return a suffix and a changed file of some format, sometimes compressed."""
    seeds = {**SEEDS, ".parquet": parquet_seed()}
    suffix = pick(rng, [name for name, seed in seeds.items() if seed is not None])
    content = mutated_bytes(rng, seeds[suffix])
    if rng.random() < 0.15:
        compression = pick(rng, sorted(COMPRESSIONS))
        content = COMPRESSIONS[compression](content)
        if rng.random() < 0.5:
            content = mutated_bytes(rng, content)
        suffix += compression
    return suffix, content


def mutate(rng, content, folder):
    """Return a file with a few more changes."""
    return mutated_bytes(rng, content)


def run(content, path):
    """Read a file in every way; return whether all its rows are good."""
    path.write_bytes(content)
    name = formats.suffix_of(path)
    formats.detect(formats.Sample(path, content[: 1 << 16]))
    name = FORMATS.get(name, name[1:])
    return _sparse(path, name) if formats.get(name).kind == "sparse" else _table(path, name)


def _attempt(work):
    try:
        return work()
    except ERRORS:
        return None


def _note(skipped, error):
    skipped.append(error.kind)  # the error itself keeps frames alive


def _sparse(path, name):
    strict = _attempt(lambda: read(path, name, limits=LIMITS))
    skipped = []
    note = functools.partial(_note, skipped)
    lenient = _attempt(lambda: read(path, name, on_bad_row=note, limits=LIMITS))
    threads = _attempt(lambda: read(path, name, n_jobs=3, limits=LIMITS))
    chunks = _attempt(lambda: list(Stream(path, name, chunk_size=16, limits=LIMITS)))
    assert (strict is None) == (threads is None) == (chunks is None)
    if strict is None:
        return False
    assert not skipped
    for other in (lenient, threads):
        for one, two in ((strict.X, other.X), (strict.Y, other.Y)):
            assert one.shape == two.shape
            assert (one != two).nnz == 0
    assert sum(chunk.n_rows for chunk in chunks) == strict.n_rows
    assert np.isfinite(strict.X.data).all()
    return True


def _table(path, name):
    good = False
    for columns in (Columns("text", "kind"), Columns(None, "kind", ("n",))):
        if name in ("fasttext", "text") and columns.features:
            continue
        for labelled in (True, False):
            skipped = []
            options = (path, name, columns, labelled)
            strict = _attempt(lambda o=options: _rows(Table(*o, None, LIMITS)))
            note = functools.partial(_note, skipped)
            lenient = _attempt(lambda o=options, n=note: _rows(Table(*o, n, LIMITS)))
            if strict is not None:
                assert lenient == strict
                assert not skipped
                good = True
    return good


def _rows(table):
    parts = {"inputs": [], "labels": []}
    for batch in table.batches(2):
        for name, rows in parts.items():
            rows.extend(getattr(batch, name))
    return parts
