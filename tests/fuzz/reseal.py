"""The resealing mutator: changes of files that their checksums do not show.

What a file may hold is declared (`ltls.core.declarations`): types, sizes, smallest and largest
values, sums, orders. A change goes to the ends of what is declared, or one step beyond: both must
end in a model that works or in an error. Checksums are computed again.
"""

import copy
import math
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from ltls.core.declarations import Array, Described, _limit
from ltls.core.settings import Settings
from ltls.storage.tensor_file import DTYPES, TensorFile, encode

from .mutate import NUMBERS, VALUES, mutated_json, mutated_tensors, pick

UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SIZES = (0, 1, 2, 1000, 2**20)


@dataclass
class Declared:
    """What was declared while a file was read, by names."""

    arrays: dict[str, Array] = field(default_factory=dict)
    limits: dict[str, list] = field(default_factory=dict)  # values of tensors, and around them
    values: dict[str, list] = field(default_factory=dict)  # of the description
    sizes: dict[str, set[int]] = field(default_factory=dict)


@contextmanager
def recorded():
    """Collect what is declared while a file is read in this block."""
    found = Declared()

    def tensors(section, declared, sizes):
        taken = real["tensors"](section, declared, sizes)
        for name in taken:
            array, place = declared[name], section._prefix + name
            ends = [_limit(each, sizes) for each in (array.low, array.high)]
            found.arrays[place] = array
            found.limits[place] = [end + step for end in ends if end is not None
                                   for step in (-1, 0, 1)]  # fmt: skip
            for size in array.shape:
                if isinstance(size, str):
                    found.sizes.setdefault(size, set()).add(_limit(size, sizes))
        return taken

    def noting(name, values_of):
        def method(section, key, *given):
            found.values[section._prefix + key] = values_of(*given)
            return real[name](section, key, *given)

        return method

    methods = {
        "integer": lambda low, high=2**62: [low - 1, low, low + 1, high, high + 1, float(low)],
        "number": _around,
        "flag": lambda _default=None: [True, False, 0, 1, None],
        "choice": lambda names: [*names, "x", None],
        "texts": lambda: [[], [""], ["a", "a"], ["x"] * 9, ["\0"] * 12, "x", [1]],
        "numbers": lambda *ends: [[], 1.0, ["a"], *([each] for each in _around(*ends))],
    }
    real = {name: getattr(Described, name) for name in ("tensors", *methods)}
    patched = {name: noting(name, values_of) for name, values_of in methods.items()}
    with patch.multiple(Described, tensors=tensors, **patched):
        yield found


def _around(low=-math.inf, high=math.inf):
    ends = [end for end in (low, high) if math.isfinite(end)] or [-1e308, -3e38, 3e38, 1e308]
    beyond = [math.nextafter(low, -math.inf), math.nextafter(high, math.inf)]
    return [*ends, *beyond, 0, 1e-300, math.nan, "1", None]


@dataclass
class Contents:
    """A file in its pieces, and what it may hold."""

    description: dict
    tensors: dict[str, np.ndarray]
    declared: Declared

    @classmethod
    def of(cls, path, kind, read):
        """Return the contents of a file; `read` must read all of them."""
        with recorded() as declared:
            read(path)
        file = TensorFile(path, kind)
        tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
        return cls(file.description, tensors, declared)

    def copy(self):
        tensors = {name: tensor.copy() for name, tensor in self.tensors.items()}
        return Contents(copy.deepcopy(self.description), tensors, self.declared)


def resealed(rng, kind, contents, others=()):
    """Return the bytes of a file after a few changes; sections may come from other files."""
    changed = contents.copy()
    for _ in range(int(rng.integers(1, 4))):
        pick(rng, CHANGES)(rng, changed, others)
    return bytes(encode(kind, changed.description, changed.tensors))


# Changes, in place


def _value(rng, contents, _):
    """Set a value of the description to one at the ends of its range."""
    name = pick(rng, sorted(contents.declared.values))
    *outer, last = name.split(".")
    place = contents.description
    for each in outer:
        place = place.get(each) if isinstance(place, dict) else None
    if isinstance(place, dict):
        place[last] = copy.deepcopy(pick(rng, contents.declared.values[name]))


def _setting(rng, contents, _):
    """Set a setting to a value at the ends of what it allows."""
    found = [(place, name) for place, name in _places(contents.description) if name in _SETTINGS]
    if found:
        place, name = pick(rng, found)
        place[name] = copy.deepcopy(pick(rng, _SETTINGS[name]))


def _places(value):
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _json(rng, contents, _):
    contents.description = mutated_json(rng, contents.description)


def _tensor(rng, contents, _):
    if contents.tensors:
        contents.tensors = mutated_tensors(rng, contents.tensors)


def _numbers(rng, contents, _):
    """Set some numbers of a tensor, or all, to one at the ends of its range."""
    name = pick(rng, sorted(contents.declared.limits))
    tensor = contents.tensors.get(name)
    if tensor is None or not tensor.size:
        return
    ends = contents.declared.limits[name] or NUMBERS
    number = pick(rng, [*ends, *NUMBERS] if rng.random() < 0.3 else ends)
    if tensor.dtype.kind == "u" and rng.random() < 0.5:  # another type has room for it
        tensor = tensor.astype(pick(rng, UNSIGNED))
    with np.errstate(all="ignore"):
        new = np.array(number, np.float64).astype(tensor.dtype)
    if rng.random() < 0.3:
        tensor = np.full(tensor.shape, new)
    else:
        tensor.reshape(-1)[rng.integers(tensor.size, size=int(rng.integers(1, 4)))] = new
    contents.tensors[name] = tensor


def _order(rng, contents, _):
    """Move numbers of a tensor: sums stay as they are, orders and places do not."""
    name = pick(rng, sorted(contents.tensors)) if contents.tensors else ""
    flat = contents.tensors.get(name, np.empty(0)).reshape(-1)
    if not flat.size:
        return
    one, two = rng.integers(flat.size, size=2)
    kind = rng.integers(4)
    if kind == 0:
        flat[[one, two]] = flat[[two, one]]
    elif kind == 1:
        flat[:] = rng.permutation(flat)
    elif kind == 2:
        flat.sort()
    elif flat.dtype.kind == "u" and one != two and flat[one]:  # lists of other lengths
        with np.errstate(all="ignore"):
            flat[one], flat[two] = flat[one] - 1, flat[two] + 1


def _size(rng, contents, _):
    """Give a size another value wherever it occurs."""
    declared = contents.declared
    size = pick(rng, sorted(declared.sizes))
    (old,) = declared.sizes[size] if len(declared.sizes[size]) == 1 else (None,)
    if old is None:
        return
    new = max(0, old + int(rng.integers(-2, 3))) if rng.random() < 0.8 else pick(rng, SIZES)
    for name, array in declared.arrays.items():
        tensor = contents.tensors.get(name)
        if tensor is None or size not in array.shape or tensor.ndim != len(array.shape):
            continue
        axis = array.shape.index(size)
        if tensor.size and tensor.nbytes // tensor.shape[axis] * new < 1 << 22:
            index = np.arange(new) % tensor.shape[axis]
            contents.tensors[name] = np.take(tensor, index, axis)
    for place, key in _places(contents.description):
        if key == size and place[key] == old:
            place[key] = new


def _section(rng, contents, others):
    """Take a section of another file."""
    if not others:
        return
    other = pick(rng, others)
    name = pick(rng, sorted(other.description))
    contents.description[name] = copy.deepcopy(other.description[name])
    for key in [key for key in contents.tensors if key.split(".")[0] == name]:
        del contents.tensors[key]
    theirs = {k: v.copy() for k, v in other.tensors.items() if k.split(".")[0] == name}
    contents.tensors |= theirs


CHANGES = (_value, _value, _setting, _json, _tensor, _numbers, _numbers, _order, _size, _section)


def _settings():
    """Return values for every setting: those that its description names, and others."""
    found = {}
    classes = Settings.__subclasses__()
    while classes:
        each = classes.pop()
        classes += each.__subclasses__()
        if not hasattr(each, "__dataclass_fields__"):
            continue
        for name, default, kinds, _ in each.declared():
            known = [int(n) + step for n in re.findall(r"-?\b\d+\b", kinds) for step in (-1, 0, 1)]
            words = re.findall(r"'(\w+)'", kinds)
            usual = [default, *known, *words, 2**62, 1e-9, [1, 2], [1, 2**62], [2, 1], *VALUES[-9:]]
            found.setdefault(name, []).extend(usual)
    return found


_SETTINGS = _settings()
_SETTINGS["tokenizer"] += [
    "(?:a+)+$",
    r"(?:\w+\.?)+@|\w+",
    r"\w*\w*\w*x",
    "a?" * 30 + "a" * 30,
    r"\S+@",
]
assert set(DTYPES) >= {"U8", "U64"}
