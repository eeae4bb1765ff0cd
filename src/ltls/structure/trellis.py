"""The trellis graph and its dynamic programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..core import _engine
from ..core.arrays import AnyArray, Ints, as_int64, as_integer, pointers, threads

_MATRIX_CLASSES = 1_000_000


class Trellis:
    """A graph with one path per class and O(log n_classes) edges.

    Paths lead from a source through slices of `width` states each to a sink. With n_classes
    written in base `width`, there is one slice per digit except the most significant one; digit i
    is the number of states of slice i with an edge to the sink (an early exit). Paths are the
    integers 0 … n_classes − 1, and no table of them is stored.

    Parameters
    ----------
    n_classes : int
        The number of classes, from 1 to 2**62.
    width : int, default=2
        The number of states in a slice, at least 2. Width 2 is the paper's graph and the smallest;
        `width=n_classes` is one-vs-all.

    Attributes
    ----------
    n_classes, width, n_slices, n_edges : int
        `width` is the effective one, min(width, n_classes).
    longest_path : int
        The number of edges of the longest path.
    digits : tuple of int
        n_classes in base `width`, least significant first: the number of early exits of each slice,
        and last the number of auxiliary vertices between the last slice and the sink.

    References
    ----------
    Jasinska and Karampatziakis, Log-time and Log-space Extreme Classification, 2016, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from ltls import Trellis
    >>> trellis = Trellis(22)
    >>> trellis.n_edges, trellis.n_slices
    (19, 4)
    >>> h = np.linspace(-1, 1, trellis.n_edges)
    >>> paths, scores = trellis.topk(h, 3)
    >>> paths.tolist(), scores.round(3).tolist()
    ([21, 13, 17], [0.556, 0.333, 0.222])
    >>> trellis.path_edges(21).tolist()
    [1, 5, 9, 13, 15, 16]
    """

    def __init__(self, n_classes: int, width: int = 2) -> None:
        n_classes = as_integer("n_classes", n_classes, at_least=1, at_most=2**62)
        width = as_integer("width", width, at_least=2)
        self.engine = _engine.Trellis(n_classes, min(width, 2**62))  # the compiled graph
        self.n_classes: int = self.engine.n_classes
        self.width: int = self.engine.width
        self.n_slices: int = self.engine.n_slices
        self.n_edges: int = self.engine.n_edges
        self.longest_path: int = self.engine.longest_path
        self.digits: tuple[int, ...] = tuple(self.engine.digits)

    def __repr__(self) -> str:
        return f"Trellis(n_classes={self.n_classes}, width={self.width})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trellis):
            return NotImplemented
        return (self.n_classes, self.width) == (other.n_classes, other.width)

    def __hash__(self) -> int:
        return hash((self.n_classes, self.width))

    def __reduce__(self) -> tuple[type[Trellis], tuple[int, int]]:
        return Trellis, (self.n_classes, max(self.width, 2))

    @property
    def edges(self) -> Ints:
        """The vertices (from, to) of every edge, shape (n_edges, 2).

        Vertices are numbered from the source, 0, slice by slice, then the auxiliary vertices, and
        the sink last.
        """
        edges = np.empty((self.n_edges, 2), np.int64)
        self.engine.edges(edges)
        return edges

    def path_edges(self, path: int) -> Ints:
        """Return the edges of a path, from source to sink.

        Examples
        --------
        >>> from ltls import Trellis
        >>> Trellis(22).path_edges(7).tolist()
        [1, 4, 6, 10, 14, 16]
        """
        edges = self.path_edges_batch(as_int64("path", [path]))[0]
        used: Ints = edges[edges >= 0]
        return used

    def path_edges_batch(self, paths: npt.ArrayLike) -> Ints:
        """Return the edges of several paths, one row each, padded with −1 at the end.

        Examples
        --------
        >>> from ltls import Trellis
        >>> Trellis(22).path_edges_batch([0, 21])
        array([[ 0,  2, 17, -1, -1, -1],
               [ 1,  5,  9, 13, 15, 16]])
        """
        ids = as_int64("paths", paths, ndim=1)
        edges = np.empty((len(ids), self.longest_path), np.int64)
        self.engine.path_edges(ids, edges)
        return edges

    def path_of(self, edges: Iterable[int]) -> int:
        """Return the id of the path with these edges, given in order from source to sink.

        Examples
        --------
        >>> from ltls import Trellis
        >>> trellis = Trellis(22)
        >>> trellis.path_of(trellis.path_edges(7))
        7
        """
        sequence = as_int64("edges", [*edges], ndim=1)
        path = self.engine.path_of(sequence)
        if path < 0:
            raise ValueError(
                f"edges must be a path from source to sink of {self}, got {sequence.tolist()}"
            )
        return path

    def score(self, h: npt.ArrayLike, paths: npt.ArrayLike, n_jobs: int | None = None) -> Any:
        """Return the scores of given paths: the sums of their edge scores.

        Parameters
        ----------
        h : array of shape (n_edges,) or (B, n_edges)
            Edge scores.
        paths : int or array of shape (k,); for a batch of shape (B,) or (B, k)
            The paths of each row.
        n_jobs : int, optional
            Number of threads for a batch; None means 1, −1 means all cores.

        Returns
        -------
        scores : float or array, of the shape of `paths`

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import Trellis
        >>> trellis = Trellis(22)
        >>> h = np.arange(trellis.n_edges) / 10
        >>> trellis.score(h, [0, 7]).round(1)
        array([1.9, 5.1])
        """
        rows = self._rows(h)
        ids = as_int64("paths", paths)
        one_row = np.ndim(h) == 1
        if ids.ndim > 1 + (not one_row) or (not one_row and ids.shape[:1] != rows.shape[:1]):
            expected = "() or (k,)" if one_row else f"({len(rows)},) or ({len(rows)}, k)"
            raise ValueError(f"paths must have shape {expected}, got {ids.shape}")
        per_row = ids.reshape(len(rows), ids.size // max(len(rows), 1))
        scores = np.empty(per_row.shape, rows.dtype)
        self.engine.score(rows, per_row, scores, threads(n_jobs))
        return scores.reshape(ids.shape)[()]

    def viterbi(self, h: npt.ArrayLike, n_jobs: int | None = None) -> tuple[Any, Any]:
        """Return the best path and its score.

        Parameters
        ----------
        h : array of shape (n_edges,) or (B, n_edges)
            Edge scores; −inf forbids an edge.
        n_jobs : int, optional
            Number of threads for a batch; None means 1, −1 means all cores.

        Returns
        -------
        path, score : int and float, or arrays of shape (B,)
            Ties go to the smaller path. If every path is forbidden, −1 and −inf.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import Trellis
        >>> trellis = Trellis(22)
        >>> h = np.arange(trellis.n_edges) / 10
        >>> path, score = trellis.viterbi(h)
        >>> int(path), float(round(score, 1))
        (21, 5.9)
        """
        rows = self._rows(h)
        paths, scores = np.empty(len(rows), np.int64), np.empty(len(rows), rows.dtype)
        self.engine.viterbi(rows, paths, scores, threads(n_jobs))
        return (paths, scores) if np.ndim(h) == 2 else (paths[0], scores[0])

    def topk(self, h: npt.ArrayLike, k: int, n_jobs: int | None = None) -> tuple[Ints, AnyArray]:
        """Return the k best paths and their scores, best first (list Viterbi).

        Parameters
        ----------
        h : array of shape (n_edges,) or (B, n_edges)
            Edge scores; −inf forbids an edge.
        k : int
            Number of paths; at most n_classes are returned.
        n_jobs : int, optional
            Number of threads for a batch; None means 1, −1 means all cores.

        Returns
        -------
        paths, scores : arrays of shape (k,) or (B, k)
            Ties go to the smaller path. If fewer than k paths are allowed, the rest is −1 with
            score −inf.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import Trellis
        >>> trellis = Trellis(22)
        >>> h = np.arange(trellis.n_edges) / 10
        >>> paths, scores = trellis.topk(h, k=3)
        >>> paths, scores.round(1)
        (array([21, 13, 17]), array([5.9, 5.7, 5.6]))
        """
        rows = self._rows(h)
        k = min(as_integer("k", k, at_least=1), self.n_classes)
        paths, scores = np.empty((len(rows), k), np.int64), np.empty((len(rows), k), rows.dtype)
        self.engine.topk(rows, paths, scores, threads(n_jobs))
        return (paths, scores) if np.ndim(h) == 2 else (paths[0], scores[0])

    def log_partition(self, h: npt.ArrayLike, n_jobs: int | None = None) -> Any:
        """Return the log of the sum over all paths of exp(score).

        Parameters
        ----------
        h : array of shape (n_edges,) or (B, n_edges)
            Edge scores; −inf forbids an edge.
        n_jobs : int, optional
            Number of threads for a batch; None means 1, −1 means all cores.

        Returns
        -------
        log_partition : float or array of shape (B,)

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import Trellis
        >>> trellis = Trellis(22)
        >>> total = trellis.log_partition(np.zeros(trellis.n_edges))
        >>> float(np.exp(total).round())  # 22 paths of score 0
        22.0
        """
        rows = self._rows(h)
        totals = np.empty(len(rows), rows.dtype)
        self.engine.log_partition(rows, totals, threads(n_jobs))
        return totals if np.ndim(h) == 2 else totals[0]

    def marginals(self, h: npt.ArrayLike, n_jobs: int | None = None) -> AnyArray:
        """Return the marginal probability of every edge: the gradient of `log_partition`.

        It is the probability that a path drawn with probability proportional to exp(score) uses
        the edge.

        Parameters
        ----------
        h : array of shape (n_edges,) or (B, n_edges)
            Edge scores; −inf forbids an edge.
        n_jobs : int, optional
            Number of threads for a batch; None means 1, −1 means all cores.

        Returns
        -------
        marginals : array of the shape of h

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import Trellis
        >>> trellis = Trellis(22)
        >>> marginals = trellis.marginals(np.zeros(trellis.n_edges))
        >>> (22 * marginals[:2]).round()  # paths through each of the source's two edges
        array([11., 11.])
        """
        rows = self._rows(h)
        marginals = np.empty_like(rows, order="C")
        self.engine.marginals(rows, marginals, threads(n_jobs))
        return marginals if np.ndim(h) == 2 else marginals[0]

    def sample(
        self,
        h: npt.ArrayLike,
        n: int,
        temperature: float = 1.0,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> tuple[Ints, AnyArray]:
        """Draw paths with probability proportional to exp(score / temperature), exactly.

        Parameters
        ----------
        h : array of shape (n_edges,) or (B, n_edges)
            Edge scores; −inf forbids an edge.
        n : int
            Number of independent samples per row.
        temperature : float, default=1.0
            Positive. Scores are divided by it: low values favour the best paths, high values
            approach a uniform distribution.
        random_state : int, RandomState or None, default=None
            Seed for the samples, which do not depend on `n_jobs`.
        n_jobs : int, optional
            Number of threads for a batch; None means 1, −1 means all cores.

        Returns
        -------
        paths, log_probabilities : arrays of shape (n,) or (B, n)
            If every path is forbidden, −1 and −inf.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import Trellis
        >>> trellis = Trellis(22)
        >>> h = np.zeros(trellis.n_edges)
        >>> paths, log_probabilities = trellis.sample(h, 1000, random_state=0)
        >>> len(set(paths.tolist())), np.exp(-log_probabilities[:2]).round()
        (22, array([22., 22.]))
        """
        rows = self._rows(h)
        n = as_integer("n", n, at_least=1)
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        if temperature != 1:
            rows = rows / rows.dtype.type(temperature)
        from sklearn.utils import check_random_state  # slow to import, and only needed here

        seed = int(check_random_state(random_state).randint(2**63, dtype=np.int64))
        paths, log_probs = np.empty((len(rows), n), np.int64), np.empty((len(rows), n), rows.dtype)
        self.engine.sample(rows, seed, paths, log_probs, threads(n_jobs))
        return (paths, log_probs) if np.ndim(h) == 2 else (paths[0], log_probs[0])

    def matrix(self) -> csr_array:
        """Return the paper's path matrix: row p has ones at the edges of path p.

        Returns
        -------
        matrix : sparse array of shape (n_classes, n_edges), float32
            Only for up to a million classes; the other methods do not need it.

        Examples
        --------
        >>> from ltls import Trellis
        >>> Trellis(3).matrix().toarray()
        array([[1., 0., 0., 0., 0., 1.],
               [1., 0., 1., 0., 1., 0.],
               [0., 1., 0., 1., 1., 0.]], dtype=float32)
        """
        if self.n_classes > _MATRIX_CLASSES:
            raise ValueError(
                f"matrix() supports at most {_MATRIX_CLASSES} classes, got "
                f"n_classes={self.n_classes}; use path_edges_batch"
            )
        edges = self.path_edges_batch(np.arange(self.n_classes))
        used = edges >= 0
        indptr = pointers(used.sum(axis=1))
        indices = edges[used]
        matrix = csr_array(
            (np.ones(len(indices), np.float32), indices, indptr),
            shape=(self.n_classes, self.n_edges),
        )
        matrix.sort_indices()
        return matrix

    def grow(self) -> tuple[Trellis, Ints]:
        """Return a larger trellis that keeps every path, and the new positions of the edges.

        Adds one auxiliary vertex or, if there are already width − 1, one slice. Every old path
        keeps its id and states and follows the mapped edges, so scores do not change.

        Returns
        -------
        trellis : Trellis
            Of the same width.
        edge_map : array of shape (n_edges,)
            For each old edge, its index in the new trellis.

        Examples
        --------
        >>> from ltls import Trellis
        >>> larger, edge_map = Trellis(22).grow()
        >>> larger
        Trellis(n_classes=54, width=2)
        >>> edge_map[Trellis(22).path_edges(7)].tolist() == larger.path_edges(7).tolist()
        True
        """
        larger = Trellis(self.engine.grown(), self.width)
        edge_map = np.empty(self.n_edges, np.int64)
        self.engine.edge_map(larger.engine, edge_map)
        return larger, edge_map

    def _rows(self, h: npt.ArrayLike) -> AnyArray:
        """Return h as contiguous rows of float32 or float64, copied only if necessary."""
        array = np.asarray(h)
        if array.dtype not in (np.float32, np.float64):
            if array.dtype.kind not in "buif":
                raise TypeError(f"h must hold real numbers, got {array.dtype}")
            array = array.astype(np.float64)
        if array.ndim not in (1, 2) or array.shape[-1] != self.n_edges:
            raise ValueError(
                f"h must have shape ({self.n_edges},) or (B, {self.n_edges}), got {array.shape}"
            )
        return np.require(np.atleast_2d(array), requirements=["C", "A"])
