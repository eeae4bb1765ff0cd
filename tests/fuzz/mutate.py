"""Random changes of bytes, JSON values and tensors."""

import copy
import json
from pathlib import Path

import numpy as np

from ltls.storage import tensor_file
from ltls.storage.tensor_file import TensorFile

NUMBERS = [
    0, 1, -1, 2, 3, 7, 255, 2**16, 2**27, 2**31, 2**40, 2**62, 2**63, 2**64, 10**30,
    0.5, -0.5, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
VALUES = [
    *NUMBERS, None, True, False, "", "x", "\0", "\x1b[31m", "−1", [], {}, [[]], [1], ["a"],
    {"a": 1}, {"tuple": [1]}, {"bytes": "eA=="}, {"bytes": "%"}, {"tuple": {}}, "weights", "labels",
]  # fmt: skip
WORDS = [
    b"\0", b"\n", b"\r\n", b"#", b":", b",", b";", b"\t", b'"', b"'", b"{", b"}", b"[", b"]", b"-",
    b"+", b"1e999", b"nan", b"inf", b"0x1p3", b"99999999999999999999", b"2147483648", b"-1",
    b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3", b"qid:1", b"__label__", b"PAR1", b"\x1f\x8b", b"null",
    b"1:1", b"\x1b[31m",
]  # fmt: skip


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def mutated_bytes(rng, content, words=WORDS):
    """Return bytes after a few changes: flips, words, cuts, repetitions, moves."""
    content = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(content) + 1))
        length = int(2 ** rng.uniform(0, 8))
        kind = rng.integers(6)
        if kind == 0 and at < len(content):
            content[at] ^= 1 << int(rng.integers(8))
        elif kind == 1 and at < len(content):
            content[at] = int(rng.integers(256))
        elif kind == 2:
            content[at:at] = pick(rng, words)
        elif kind == 3:
            del content[at : at + length]
        elif kind == 4:
            content[at:at] = content[at : at + length] * int(rng.integers(1, 4))
        else:
            other = int(rng.integers(len(content) + 1))
            content[at : at + length] = content[other : other + length]
    return bytes(content)


def mutated_json(rng, value, n_changes=1):
    """Return a JSON value with some of its parts replaced, removed, repeated or swapped."""
    value = copy.deepcopy(value)
    for _ in range(n_changes):
        places = list(_places(value))
        if not places:
            return pick(rng, VALUES)
        parent, key = pick(rng, places)
        kind = rng.integers(5)
        if kind == 0:
            del parent[key]
        elif kind == 1 and isinstance(parent[key], (int, float)):
            parent[key] = parent[key] + int(rng.integers(-2, 3))
        elif kind == 2:
            other, name = pick(rng, places)
            parent[key] = copy.deepcopy(other[name])
        elif kind == 3 and isinstance(parent, list):
            parent.extend(copy.deepcopy(parent[: int(rng.integers(1, 4))]))
        else:
            parent[key] = copy.deepcopy(pick(rng, VALUES))
    return value


def _places(value):
    """Yield every container within a value with each of its keys."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


DTYPES = ("float64", "float32", "float16", "int64", "int8", "uint16", "uint8")


def mutated_tensors(rng, tensors):
    """Return tensors of which one has other numbers, another type or another shape."""
    tensors = {name: np.array(tensor) for name, tensor in tensors.items()}
    name = pick(rng, sorted(tensors))
    tensor = tensors[name]
    kind = rng.integers(8)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[name] = tensor[: int(rng.integers(len(tensor) + 1))] if tensor.ndim else tensor
    elif kind == 2:
        tensors[name] = np.concatenate([tensor, tensor[: int(rng.integers(1, 4))]])
    elif kind == 3:
        with np.errstate(all="ignore"):
            tensors[name] = tensor.astype(pick(rng, DTYPES))
    elif kind == 4:
        shapes = [(-1,), (1, -1), (-1, 1), tensor.shape[::-1], (*tensor.shape, 1)]
        tensors[name] = tensor.reshape(pick(rng, shapes))
    elif kind == 5:
        tensors[name] = np.zeros(pick(rng, [(0,), (0, 0), (0, 16), (1, 0)]), tensor.dtype)
    elif tensor.size:
        flat = tensor.reshape(-1)
        for at in rng.integers(flat.size, size=int(rng.integers(1, 4))):
            with np.errstate(all="ignore"):
                flat[at] = np.array(pick(rng, NUMBERS), np.float64).astype(tensor.dtype)
        if tensor.dtype == np.uint8 and rng.random() < 0.5:  # JSON
            tensors[name] = _changed_text(rng, flat)
    return tensors


def _changed_text(rng, encoded):
    try:
        value = json.loads(encoded.tobytes())
    except ValueError:
        return encoded
    text = json.dumps(mutated_json(rng, value, int(rng.integers(1, 3))))
    return np.frombuffer(text.encode(), np.uint8)


def mutated_file(rng, content, kind, folder):
    """Return a model file or checkpoint with a part changed, and its checksums computed again."""
    path = Path(folder, "sealed")
    path.write_bytes(content)
    file = TensorFile(path, kind, mmap=False)
    description = file.description
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    if rng.random() < 0.5:
        description = mutated_json(rng, description)
    elif tensors:
        tensors = mutated_tensors(rng, tensors)
    tensor_file.write(path, kind, description, tensors)
    return path.read_bytes()
