"""Array types of the engine, conversion of user arguments to arrays, and memory for them."""

from __future__ import annotations

import operator
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
AnyArray: TypeAlias = npt.NDArray[Any]
Tensors: TypeAlias = "dict[str, AnyArray]"

# The memory limit of a container, on Linux: cgroup 2 and cgroup 1.
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def as_integer(
    name: str, value: Any, at_least: int | None = None, at_most: int | None = None
) -> int:
    """Return an integer argument as an int, or raise an error that names it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if at_least is not None and number < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {number}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name} must be at most {at_most}, got {number}")
    return number


def check_unmasked(name: str, values: Any) -> None:
    """Raise an error for masked entries in an array or a list: NumPy would ignore the mask."""
    rows = values if isinstance(values, (list, tuple)) else (values,)
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows):
        raise ValueError(f"{name} must not have masked entries: drop them, or fill them in")


_VECTORS = (list, tuple, np.ndarray)


def as_frame(name: str, given: Any) -> nw.DataFrame[Any] | None:
    """Return an argument that is a data frame of pandas, polars or others; None for any other."""
    found = _native(name, given)
    return None if found is None or not hasattr(found, "columns") else found


def unframed(name: str, given: Any) -> Any:
    """Return the values of a data frame or of a column as an array, anything else as it is."""
    found = _native(name, given)
    if found is not None:
        return found.to_numpy()
    if hasattr(given, "__arrow_c_array__"):  # narwhals knows only the chunked columns of Arrow
        return np.asarray(given)
    return given


def unlisted(name: str, given: Any) -> Any:
    """Return a column of vectors, such as a Series of lists, as an array of shape (n_rows, length).

    It may be the only column of a data frame. A tensor of PyTorch is returned such that NumPy can
    read it, and anything else as it is.
    """
    if isinstance(given, (list, tuple)):
        return given
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        return given.float() if str(given.dtype) == "torch.bfloat16" else given
    frame = as_frame(name, given)
    if frame is not None and has_vectors(frame, *frame.columns[:2]):
        return unlisted(name, frame[frame.columns[0]].to_native())
    if frame is not None or hasattr(given, "tocsr") or getattr(given, "ndim", 1) != 1:
        return given
    values = np.asarray(unframed(name, given))
    if values.ndim > 1:
        return values
    if values.dtype != object or not any(isinstance(each, _VECTORS) for each in values.flat):
        return given
    for row, vector in enumerate(values):
        if not isinstance(vector, _VECTORS):
            raise ValueError(
                f"{name} must have a vector in every row, but row {row} has {vector!r}; drop such "
                "rows"
            )
        if np.shape(vector) != np.shape(values[0]):
            raise ValueError(
                f"{name} must have vectors of the same length: row 0 has {len(values[0])} numbers, "
                f"row {row} has {len(vector)} numbers"
            )
    return np.stack(values)  # type: ignore[call-overload]


def has_vectors(frame: nw.DataFrame[Any], *columns: str) -> bool:
    """Return whether a single column is given, and has vectors."""
    return len(columns) == 1 and np.ndim(unlisted("", frame[columns[0]].head(1).to_native())) > 1


def _native(name: str, given: Any) -> Any:
    """Return a data frame or a column as a narwhals object, None for anything else."""
    if isinstance(given, (list, tuple, np.ndarray)):  # narwhals takes 40 µs to say no
        return None
    import narwhals.stable.v2 as nw  # the torch layers do not need it

    found = nw.from_native(given, pass_through=True, allow_series=True)
    if isinstance(found, nw.LazyFrame):
        kind = type(given).__name__
        raise ValueError(f"{name} must be a data frame in memory, got a {kind}: call its collect()")
    return found if isinstance(found, (nw.DataFrame, nw.Series)) else None


def as_floats(X: Any) -> Any:
    """Return rows as the engine takes them: float32 or float64, dense ones C-ordered.

    Half precision and small integers become float32, which holds them exactly. Nothing is copied
    unless necessary.
    """
    dtype = np.promote_types(X.dtype, np.float32)
    return (
        np.ascontiguousarray(X, dtype) if isinstance(X, np.ndarray) else X.astype(dtype, copy=False)
    )


def as_int64(name: str, values: npt.ArrayLike, ndim: int | None = None) -> Ints:
    """Return integers as a contiguous int64 array, copied only if necessary."""
    check_unmasked(name, values)
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind == "O" and all(isinstance(value, int) for value in array.flat):
        if max(map(abs, array.flat)) >= 2**63:
            raise ValueError(f"{name} must be within 64 bits, got {max(array.flat, key=abs)}")
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got {array.dtype}")
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be within 64 bits, got {array.max()}")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    return np.require(array, np.int64, ["C", "A"]).reshape(array.shape)


def threads(n_jobs: int | None) -> int:
    """Return the engine's number of threads for `n_jobs`: None means 1, −1 means all cores."""
    return 1 if n_jobs is None else as_integer("n_jobs", n_jobs)


def pointers(counts: npt.ArrayLike) -> Ints:
    """Return where consecutive lists of given lengths begin and end."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def entries_of(ptr: Ints, rows: Ints) -> tuple[Ints, AnyArray]:
    """Return the pointers of some of the lists of `ptr`, and the positions of their entries."""
    counts = ptr[rows + 1] - ptr[rows]
    ends = np.cumsum(counts)
    index = np.int32 if ptr[-1] < 2**31 else np.int64  # a temporary, but large
    at = np.repeat((ptr[rows] - (ends - counts)).astype(index), counts)
    at += np.arange(len(at), dtype=index)
    return np.concatenate([[0], ends]), at


def smallest(integers: AnyArray) -> AnyArray:
    """Return integers that are not negative in the smallest type that holds them."""
    return integers.astype(np.min_scalar_type(int(integers.max(initial=0))))


_LEAST_SCALE = np.finfo(np.float32).tiny
MOST_SCALE = 1e30  # sums of weights, too, are finite in float32


def int8_scales(largest: Floats) -> Floats:
    """Return what int8 values are multiplied by, given the largest magnitudes."""
    # A scale is a normal number: others are so inexact that values would exceed 127.
    return np.where(largest > 0, np.maximum(largest / 127, _LEAST_SCALE), 1).astype(np.float32)


def as_int8(values: AnyArray, group: Ints, n_groups: int) -> tuple[AnyArray, Floats]:
    """Return values rounded to int8, and the scale of every group of them."""
    largest = np.zeros(n_groups, np.float32)
    np.maximum.at(largest, group, np.abs(values))
    scales = int8_scales(largest)
    return np.rint(values / scales[group]).astype(np.int8), scales


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
    """Return zeros that start on a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(shape)


def memory_limit() -> int | None:
    """Return the number of bytes that this process may use, None if it is unknown."""
    limits = []
    if hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in _CONTAINER_LIMITS:
        try:
            text = Path(name).read_text()
        except OSError:
            continue
        if text.strip().isdigit():
            limits.append(int(text))
    if sys.platform != "win32":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min((limit for limit in limits if limit > 0), default=None)


def available_memory() -> int | None:
    """Return at most how many bytes this process can still allocate, None if that is unknown."""
    limits = [limit] if (limit := memory_limit()) is not None else []
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        text = ""
    limits += [1024 * int(found[1]) for found in re.finditer(r"MemAvailable:\s+(\d+) kB", text)]
    return min(limits, default=None)
