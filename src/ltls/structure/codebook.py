"""Codebooks: which label has which path."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core import _engine
from ..core.arrays import Doubles, Ints, as_int64, as_integer
from ..core.caching import cached_property
from .policies import Assignment, Identity, KeyedPermutation
from .quantizer import ResidualQuantizer

# A random codebook of up to this many paths is decoded with a table: a lookup is ten times as fast
# as computing the permutation, and the table is small compared with any model.
_LARGEST_TABLE = 1 << 18


class _Codebook:
    """Lookups of scalars and arrays of any shape, in both directions."""

    _engine: _engine.RandomCodebook | _engine.TableCodebook | _engine.BucketCodebook

    @property
    def engine(self) -> Any:
        """The engine's codebook."""
        return self._engine

    @property
    def decoding_engine(self) -> Any:
        """The engine's codebook with the fastest lookup."""
        return self._engine

    @property
    def n_paths(self) -> int:
        """The number of paths."""
        return self._engine.n_paths

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return self._engine.n_labels

    def path_of(self, labels: npt.ArrayLike) -> Any:
        """Return the paths of labels, −1 for a label without one.

        Examples
        --------
        >>> from ltls import TableCodebook
        >>> TableCodebook(5, [3, 0, -1]).path_of([[0, 1], [1, 2]])
        array([[ 3,  0],
               [ 0, -1]])
        """
        return _lookup("labels", labels, self.n_labels, self._engine.path_of)

    def label_of(self, paths: npt.ArrayLike) -> Any:
        """Return the labels of paths, −1 for a free path, which has no label.

        Examples
        --------
        >>> from ltls import RandomCodebook
        >>> book = RandomCodebook(10**12, seed=1)
        >>> book.label_of(book.path_of(123_456_789))
        123456789
        """
        return _lookup("paths", paths, self.n_paths, self._engine.label_of)


class RandomCodebook(_Codebook):
    """A random assignment, computed from a seed without a table.

    The paths are a permutation of 0 … n − 1 keyed by the seed (a Feistel network with cycle
    walking). It takes O(1) memory, so a model of a billion classes still has logarithmic size.

    Parameters
    ----------
    n : int
        The number of labels and paths, from 1 to 2**62.
    seed : int, default=0
        From 0 to 2**64 − 1. The same n, seed and growth give the same permutation in every version.
    grown_from : sequence of int, default=()
        The number of paths before each call of `grow`, increasing.

    Examples
    --------
    >>> from ltls import RandomCodebook
    >>> book = RandomCodebook(10**9, seed=7)
    >>> paths = book.path_of([0, 1, 2])
    >>> book.label_of(paths).tolist()
    [0, 1, 2]
    """

    _engine: _engine.RandomCodebook

    def __init__(self, n: int, seed: int = 0, *, grown_from: Any = ()) -> None:
        n = as_integer("n", n, at_least=1, at_most=2**62)
        seed = as_integer("seed", seed, at_least=0, at_most=2**64 - 1)
        sizes = [as_integer("grown_from", size, at_least=1, at_most=n) for size in grown_from]
        self._engine = _engine.RandomCodebook([*sizes, n], seed)

    @cached_property
    def decoding_engine(self) -> Any:
        """A table of the permutation, if it is small."""
        if self.n_paths > _LARGEST_TABLE:
            return self._engine
        return _engine.TableCodebook(self.n_paths, self.path_of(np.arange(self.n_paths)))

    @property
    def seed(self) -> int:
        """The seed, which is the key of the permutation."""
        return self._engine.seed

    @property
    def grown_from(self) -> tuple[int, ...]:
        """The number of paths before each call of `grow`."""
        return tuple(self._engine.sizes[:-1])

    def grow(self, n_paths: int) -> RandomCodebook:
        """Return a codebook of `n_paths` paths in which every old label keeps its path.

        The new labels are permuted among the new paths.

        Examples
        --------
        >>> from ltls import RandomCodebook
        >>> book = RandomCodebook(100, seed=1)
        >>> book.grow(164).path_of(42) == book.path_of(42)
        True
        """
        n_paths = as_integer("n_paths", n_paths, at_least=self.n_paths, at_most=2**62)
        if n_paths == self.n_paths:
            return self
        return RandomCodebook(n_paths, self.seed, grown_from=(*self.grown_from, self.n_paths))

    def __repr__(self) -> str:
        grown = f", grown_from={self.grown_from}" if self.grown_from else ""
        return f"RandomCodebook({self.n_paths}, seed={self.seed}{grown})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RandomCodebook):
            return NotImplemented
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __getstate__(self) -> dict[str, Any]:
        return {"n": self.n_paths, "seed": self.seed, "grown_from": self.grown_from}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class _WithTable(_Codebook):
    """Base class of codebooks with a table of paths."""

    @property
    def paths(self) -> Ints:
        """A copy of the table: the path of every label, −1 for a label without one."""
        paths: Ints = self.path_of(np.arange(self.n_labels))
        return paths

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _WithTable) or type(other) is not type(self):
            return NotImplemented
        return self.n_paths == other.n_paths and np.array_equal(self.paths, other.paths)

    __hash__ = None  # type: ignore[assignment]  # a table can be changed

    def __getstate__(self) -> dict[str, Any]:
        return {"n_paths": self.n_paths, "paths": self.paths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["n_paths"], state["paths"])  # type: ignore[misc]


class TableCodebook(_WithTable):
    """An explicit assignment, as a table; paths without a label are free.

    Do not modify it while another thread uses it.

    Parameters
    ----------
    n_paths : int
        The number of paths.
    paths : sequence of int, default=()
        The path of every label 0 … len(paths) − 1, or −1 for a label that has none yet.

    Examples
    --------
    >>> from ltls import TableCodebook
    >>> book = TableCodebook(5, [3, 0])
    >>> book.label_of([0, 1, 2, 3, 4]).tolist()
    [1, -1, -1, 0, -1]
    >>> book.assign(2, book.free_path())
    >>> book.path_of(2), book.n_free
    (2, 2)
    """

    _engine: _engine.TableCodebook
    quantizer: ResidualQuantizer | None = None
    """How vectors are turned into paths, for a codebook made by `from_embeddings`."""

    def __init__(self, n_paths: int, paths: npt.ArrayLike = ()) -> None:
        self._engine = _engine.TableCodebook(
            as_integer("n_paths", n_paths, at_least=1, at_most=2**62),
            as_int64("paths", paths, ndim=1),
        )

    @classmethod
    def from_embeddings(
        cls,
        vectors: npt.ArrayLike,
        width: int = 32,
        n_trellises: int = 1,
        *,
        spare: float = 0.1,
        random_state: int = 0,
    ) -> TableCodebook | list[TableCodebook]:
        """Derive paths from label vectors, such as embeddings of items (semantic IDs).

        The states of a path are the digits of a residual k-means code, so that similar labels share
        edges. Codes are distinct, and no state of the first slice has more than twice its share of
        the labels. There are ``width ** n`` paths, with the smallest n that leaves at least
        ``spare * n_labels`` of them free. `assign_embeddings` assigns free paths to new labels.

        Parameters
        ----------
        vectors : array of shape (n_labels, n_dimensions)
        width : int, default=32
            States per slice of the trellis.
        n_trellises : int, default=1
            Number of codebooks. All but the first use a random half of the dimensions.
        spare : float, default=0.1
            Minimum number of free paths, relative to the number of labels. There are usually many
            more: 5,000 labels and width 32 have 32,768 paths. With more free paths, new labels get
            paths closer to their vectors, but the initial probabilities of labels are smaller.
        random_state : int, default=0
            Seed for k-means and for the choice of dimensions.

        Returns
        -------
        codebook : TableCodebook, or a list of them if n_trellises > 1

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import TableCodebook
        >>> vectors = np.random.RandomState(0).standard_normal((100, 8))
        >>> book = TableCodebook.from_embeddings(vectors, width=4)
        >>> book
        TableCodebook(n_labels=100, n_paths=256, n_free=156)
        >>> book.assign_embeddings(vectors[:2] + 0.01)
        array([100, 101])
        """
        numbers = _as_vectors(vectors)
        if numbers.ndim != 2 or not numbers.size:
            raise ValueError(
                f"vectors must have shape (n_labels, n_dimensions), got {numbers.shape}"
            )
        if not np.isfinite(numbers).all():
            raise ValueError("vectors must be finite, got NaN or infinity")
        width = as_integer("width", width, at_least=2)
        n_trellises = as_integer("n_trellises", n_trellises, at_least=1)
        if not 0 <= spare < np.inf:
            raise ValueError(f"spare must be at least 0 and less than infinity, got {spare}")
        n_digits = 1
        while width**n_digits < (1 + spare) * len(numbers):
            n_digits += 1
        rng = np.random.RandomState(random_state)
        books = []
        for r in range(n_trellises):
            seen = np.ones(numbers.shape[1])
            if r and numbers.shape[1] > 1:
                seen[rng.permutation(len(seen))[: len(seen) // 2]] = 0
            book = cls(width**n_digits)
            book.quantizer = ResidualQuantizer.fit(numbers * seen, width, n_digits, rng)
            book.assign_embeddings(numbers)
            books.append(book)
        return books if n_trellises > 1 else books[0]

    def assign_embeddings(self, vectors: npt.ArrayLike) -> Ints:
        """Assign new labels to free paths close to their vectors, in place; return the labels.

        No training is needed: a new label is scored by the edges that it shares with other labels.

        Parameters
        ----------
        vectors : array of shape (n, n_dimensions)

        Returns
        -------
        labels : int64 array of shape (n,)

        Raises
        ------
        ValueError
            If the codebook is not from `from_embeddings`, or fewer than n paths are free.
        """
        if self.quantizer is None:
            raise ValueError("assign_embeddings needs a codebook made by from_embeddings")
        paths, given = self.paths, _as_vectors(vectors)
        n_dimensions = self.quantizer.n_dimensions
        if given.ndim != 2 or given.shape[1] != n_dimensions:
            raise ValueError(f"vectors must have shape (n, {n_dimensions}), got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("vectors must be finite, got NaN or infinity")
        # The centroids of a quantizer are 0 in dimensions that it does not use.
        codes = self.quantizer.codes(given, paths[paths >= 0])
        labels = np.arange(len(codes)) + self.n_labels
        self._engine = _engine.TableCodebook(self.n_paths, np.concatenate([paths, codes]))
        return labels

    @property
    def n_free(self) -> int:
        """The number of free paths."""
        return self._engine.n_free

    def is_free(self, paths: npt.ArrayLike) -> Any:
        """Return whether paths are free.

        Examples
        --------
        >>> from ltls import TableCodebook
        >>> TableCodebook(4, [3, 0]).is_free([0, 1, 2, 3])
        array([False,  True,  True, False])
        """
        return np.equal(self.label_of(paths), -1)[()]

    def free_path(self) -> int:
        """Return a free path.

        Examples
        --------
        >>> from ltls import TableCodebook
        >>> TableCodebook(3, [2, 0]).free_path()
        1
        """
        return self._engine.free_path()

    def assign(self, label: int, path: int) -> None:
        """Assign a free path to a label without one; a label beyond the last extends the table.

        Examples
        --------
        >>> from ltls import TableCodebook
        >>> book = TableCodebook(3, [2])
        >>> book.assign(1, 0)
        >>> book.paths
        array([2, 0])
        """
        self._engine.assign(as_integer("label", label), as_integer("path", path))

    def release(self, label: int) -> None:
        """Free the path of a label.

        Examples
        --------
        >>> from ltls import TableCodebook
        >>> book = TableCodebook(3, [2, 0])
        >>> book.release(1)
        >>> book.paths
        array([ 2, -1])
        """
        self._engine.release(as_integer("label", label))

    def grow(self, n_paths: int) -> TableCodebook:
        """Return a copy with more paths; new paths are free, and labels keep theirs.

        Examples
        --------
        >>> from ltls import TableCodebook
        >>> TableCodebook(3, [2, 0]).grow(7)
        TableCodebook(n_labels=2, n_paths=7, n_free=5)
        """
        grown = TableCodebook(self.n_paths, self.paths)
        grown._engine.grow(as_integer("n_paths", n_paths, at_least=self.n_paths, at_most=2**62))
        return grown

    def __repr__(self) -> str:
        counts = ("n_labels", "n_paths", "n_free")
        return f"TableCodebook({', '.join(f'{name}={getattr(self, name)}' for name in counts)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "quantizer": self.quantizer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.quantizer = state.get("quantizer")


class BucketCodebook(_WithTable):
    """An assignment in which several labels, a bucket, share a path; label weights rank them.

    Parameters
    ----------
    n_paths : int
        The number of paths.
    paths : sequence of int
        The path of every label 0 … len(paths) − 1.

    Examples
    --------
    >>> from ltls.structure.codebook import BucketCodebook
    >>> book = BucketCodebook(2, [0, 1, 0])
    >>> book.path_of([0, 2]).tolist()
    [0, 0]
    >>> book.label_of(0)  # the first label of the bucket
    0
    """

    _engine: _engine.BucketCodebook

    def __init__(self, n_paths: int, paths: npt.ArrayLike) -> None:
        self._engine = _engine.BucketCodebook(
            as_integer("n_paths", n_paths, at_least=1, at_most=2**62),
            as_int64("paths", paths, ndim=1),
        )

    def extend(self, paths: npt.ArrayLike) -> BucketCodebook:
        """Return a codebook with new labels, which have the given paths.

        Examples
        --------
        >>> from ltls.structure.codebook import BucketCodebook
        >>> BucketCodebook(2, [0, 1]).extend([1])
        BucketCodebook(n_labels=3, n_paths=2)
        """
        more = as_int64("paths", paths, ndim=1)
        return BucketCodebook(self.n_paths, np.concatenate([self.paths, more]))

    def __repr__(self) -> str:
        return f"BucketCodebook(n_labels={self.n_labels}, n_paths={self.n_paths})"


def _as_vectors(vectors: Any) -> Doubles:
    """Return an array of float64; tensors may require gradients, or be bfloat16."""
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().cpu().double()
    return np.asarray(vectors, np.float64)


def _lookup(name: str, values: npt.ArrayLike, limit: int, translate: Any) -> Any:
    """Apply an engine lookup, which maps flat int64 arrays, to values of any shape."""
    array = as_int64(name, values)
    if limit == 0 and array.size:
        raise ValueError(f"{name} must be empty: the codebook has none yet, got {array.flat[0]}")
    result = np.empty(array.size, np.int64)
    translate(array.reshape(-1), result)
    return result.reshape(array.shape) if array.ndim else int(result[0])


Codebook: TypeAlias = RandomCodebook | TableCodebook | BucketCodebook


def make_codebook(assignment: Assignment, n_paths: int) -> Codebook:
    """Return the codebook that a policy describes."""
    if isinstance(assignment, KeyedPermutation):
        *before, _ = assignment.sizes
        return RandomCodebook(n_paths, assignment.seed, grown_from=before)
    if isinstance(assignment, Identity):
        return TableCodebook(n_paths, np.arange(n_paths))
    return TableCodebook(n_paths, assignment.paths)


def copy_codebooks(
    codebooks: Codebook | list[Codebook], n_trellises: int, n_labels: int
) -> list[Codebook]:
    """Return checked copies of codebooks given by a user."""
    given = codebooks if isinstance(codebooks, list) else [codebooks]
    kinds = {type(book) for book in given}
    if len(kinds) != 1 or not kinds <= {TableCodebook, RandomCodebook}:
        raise ValueError(
            "assignment must be the name of a policy, or TableCodebooks or RandomCodebooks, all of "
            f"the same type, got {codebooks}"
        )
    sizes = {book.n_paths for book in given}
    if len(given) != n_trellises or len(sizes) != 1:
        raise ValueError(
            f"assignment must have one codebook for each of {n_trellises} trellises, "
            f"all of the same size, got {len(given)} with {sorted(sizes)} paths"
        )
    if min(sizes) < n_labels:
        raise ValueError(
            f"assignment has {min(sizes)} paths, but y has {n_labels} labels: use a codebook "
            "with a path for every label"
        )
    return [deepcopy(book) for book in given]
