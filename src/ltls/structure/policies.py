"""Codebook policies: which label gets which path.

A policy is one object, used by the classifier, by training on streams and by the torch layers:

- `initial` assigns paths before training, from label counts and, if `needs_sample` is set, from
  vectors that describe the labels;
- `between_epochs` may move labels to better paths during training.

`initial` uses NumPy alone, since the torch layers work without the engine. It returns descriptions
(`PathTable`, `KeyedPermutation`, `Identity`), which the classifier turns into
`TableCodebook`/`RandomCodebook` and the torch layers into modules. Only the classifier calls
`between_epochs`, which may use the engine.

To add a policy, subclass `CodebookPolicy` and call `register_policy`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from ..core.arrays import Doubles, Floats, Ints
from .exchange import exchange_paths
from .splits import Shape, label_axes, random_rotation, split_along_axes

if TYPE_CHECKING:
    from .trellis import Trellis


@dataclass(frozen=True)
class PathTable:
    """An explicit path for every label; labels beyond the table have none yet."""

    paths: Ints


@dataclass(frozen=True)
class KeyedPermutation:
    """A keyed permutation of each block of ids; blocks end at `sizes`. No table is stored."""

    seed: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Identity:
    """Label i has path i; no table is stored."""


Assignment: TypeAlias = PathTable | KeyedPermutation | Identity


@dataclass(frozen=True)
class LabelStats:
    """What is known about the labels before training.

    Parameters
    ----------
    n_labels : int
    counts : array of shape (n_labels,), optional
        Rows per label. If None, labels are assumed to be sorted by frequency, most frequent first.
    vectors : array or sparse matrix of shape (n_labels, n_dimensions), optional
        Similar labels have similar vectors. Only policies with `needs_sample` use them.
    """

    n_labels: int
    counts: Ints | None = None
    vectors: Any = None


class CodebookPolicy(ABC):
    """How labels are assigned to paths."""

    name: ClassVar[str]
    needs_sample: ClassVar[bool] = False
    """Whether `initial` needs `LabelStats.vectors`, which are computed from a sample of rows."""
    needs_training: ClassVar[bool] = False
    """Whether labels get or change their paths during training, which only classifiers do."""

    @abstractmethod
    def initial(
        self, trellis: Shape, n_trellises: int, stats: LabelStats, rng: Any
    ) -> list[Assignment]:
        """Return an assignment for each trellis before the first epoch.

        Parameters
        ----------
        trellis : Trellis or Layout
            Its `n_classes`, `width`, `n_slices` and `digits` apply to all trellises.
        n_trellises : int
        stats : LabelStats
        rng : numpy.random.RandomState

        Returns
        -------
        assignments : list of PathTable, KeyedPermutation or Identity
        """

    def by_frequency(self) -> CodebookPolicy:
        """Return a variant that also gives frequent labels short paths, or the policy itself."""
        return self

    def between_epochs(
        self,
        trellis: Trellis,
        paths: list[Ints],
        score_sums: Callable[[], Floats],
        n_jobs: int | None,
    ) -> list[Ints] | None:
        """Return new paths of all labels for each trellis, or None to keep the present ones.

        Parameters
        ----------
        trellis : Trellis
        paths : list of arrays of shape (n_labels,)
            The present paths, one array per trellis.
        score_sums : callable
            Returns the edge scores of every label, summed over its training rows, as an array of
            shape (n_trellises, n_labels, n_edges). A call takes a pass over the rows.
        n_jobs : int or None
            Number of threads.
        """
        return None


class RandomPolicy(CodebookPolicy):
    """A keyed random permutation: O(1) memory."""

    name = "random"

    def initial(  # noqa: D102
        self, trellis: Shape, n_trellises: int, stats: LabelStats, rng: Any
    ) -> list[Assignment]:
        seeds = [int(rng.randint(2**31)) for _ in range(n_trellises)]
        return [KeyedPermutation(seed, (trellis.n_classes,)) for seed in seeds]


class RankingPolicy(CodebookPolicy):
    """The paper's online assignment: a label takes its best free path when it is first seen."""

    name = "ranking"
    needs_training = True

    def initial(  # noqa: D102
        self, trellis: Shape, n_trellises: int, stats: LabelStats, rng: Any
    ) -> list[Assignment]:
        return [PathTable(np.empty(0, np.int64)) for _ in range(n_trellises)]


class FrequencyPolicy(CodebookPolicy):
    """Frequent labels get short paths.

    All trellises but the first shuffle the labels whose paths have the same length.
    """

    name = "frequency"

    def initial(  # noqa: D102
        self, trellis: Shape, n_trellises: int, stats: LabelStats, rng: Any
    ) -> list[Assignment]:
        ends = exit_ends(trellis)
        if stats.counts is None:
            others = [KeyedPermutation(r, tuple(ends)) for r in range(1, n_trellises)]
            return [Identity(), *others]
        return [_by_frequency(stats.counts, ends, rng if r else None) for r in range(n_trellises)]


@dataclass(frozen=True)
class SimilarityPolicy(CodebookPolicy):
    """Similar labels share edges; see `ltls.structure.splits`.

    Parameters
    ----------
    within_exits : bool, default=False
        Whether frequent labels get short paths. Labels with paths of the same length are then split
        by similarity, and in the last slice of these paths by frequency.
    """

    name = "similarity"
    needs_sample = True
    within_exits: bool = False

    def by_frequency(self) -> CodebookPolicy:  # noqa: D102
        return SimilarityPolicy(within_exits=True)

    def initial(  # noqa: D102
        self, trellis: Shape, n_trellises: int, stats: LabelStats, rng: Any
    ) -> list[Assignment]:
        axes = label_axes(stats.vectors, trellis.n_slices + 1, rng)
        rotated = [axes]
        rotated += [axes @ random_rotation(axes.shape[1], rng) for _ in range(n_trellises - 1)]
        if not self.within_exits:
            return [PathTable(split_along_axes(trellis, each)) for each in rotated]
        order = np.arange(stats.n_labels)
        if stats.counts is not None:
            order = np.argsort(-stats.counts, kind="stable")
        return [PathTable(_split_within_exits(trellis, order, each)) for each in rotated]


class LearnedPolicy(SimilarityPolicy):
    """Like `similarity`; between epochs, labels also move to paths that the model scores higher."""

    name = "learned"
    needs_training = True

    def between_epochs(  # noqa: D102
        self,
        trellis: Trellis,
        paths: list[Ints],
        score_sums: Callable[[], Floats],
        n_jobs: int | None,
    ) -> list[Ints] | None:
        pairs = zip(score_sums(), paths, strict=True)
        return [exchange_paths(trellis, sums, each, n_jobs) for sums, each in pairs]


POLICIES: dict[str, CodebookPolicy] = {}


def register_policy(policy: CodebookPolicy) -> None:
    """Make a policy available as ``assignment=policy.name`` in this process.

    The command ``ltls train`` knows only the policies of ltls itself.

    Parameters
    ----------
    policy : CodebookPolicy
        Its `name` must not be that of another policy.
    """
    if policy.name in POLICIES:
        raise ValueError(
            f"there is already a codebook policy named {policy.name!r}; choose another name"
        )
    POLICIES[policy.name] = policy


for _policy in (
    RandomPolicy(),
    RankingPolicy(),
    SimilarityPolicy(),
    FrequencyPolicy(),
    LearnedPolicy(),
):
    register_policy(_policy)


def exit_ends(trellis: Shape) -> list[int]:
    """Return where the path ids of every slice's exits end; slices without exits are left out."""
    counts = [digit * trellis.width**i for i, digit in enumerate(trellis.digits)]
    ends = np.cumsum(np.array(counts, object))  # Python integers: up to 2**62
    return [int(end) for end, count in zip(ends, counts, strict=True) if count]


def _by_frequency(counts: Ints, ends: list[int], rng: Any) -> PathTable:
    """Sort labels by count; with `rng`, shuffle the labels of every exit."""
    order = np.argsort(-counts, kind="stable")
    if rng is not None:
        for part in np.split(order, np.unique(np.minimum(ends, len(order)))):
            part[:] = rng.permutation(part)
    paths = np.empty(len(counts), np.int64)
    paths[order] = np.arange(len(counts))
    return PathTable(paths)


@dataclass(frozen=True)
class _OneExit:
    """The paths of one exit: a trellis with that exit alone."""

    n_classes: int
    width: int
    n_slices: int
    digits: tuple[int, ...]


def _split_within_exits(trellis: Shape, order: Ints, axes: Doubles) -> Ints:
    paths = np.empty(len(order), np.int64)
    first = 0
    for i, digit in enumerate(trellis.digits):
        count = digit * trellis.width**i
        labels = order[first : first + count]
        if len(labels) == 1:
            paths[labels] = first
        elif len(labels):
            exit_ = _OneExit(count, trellis.width, i, (0,) * i + (digit,))
            by_frequency = np.arange(len(labels), dtype=np.float64)
            columns = np.column_stack([axes[labels, :i], by_frequency])
            paths[labels] = first + split_along_axes(exit_, columns)
        first += count
    return paths
