"""The edge numbering of a trellis, and the edges of its paths as tensor operations.

The numbering is that of the compiled engine. This module does not need the engine, and runs on a
GPU without synchronization.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ..structure.trellis import Trellis

AnyTrellis: TypeAlias = "Trellis | Layout"


class Block(NamedTuple):
    """All paths through a range of states of one slice that are the same after that slice.

    State s continues with edge ``edge + s * stride``, then with the edges of `suffix` to the sink.
    The paths through s are the ``width**level`` paths from ``path + s * width**level`` on, one for
    every choice of the states of earlier slices.
    """

    level: int
    first: int
    end: int
    edge: int
    stride: int
    suffix: tuple[int, ...]
    path: int

    def scores(self, h: Tensor) -> Tensor:
        """Return the sum of edge scores after each state of the range, (rows, end − first)."""
        last = self.edge + (self.end - 1) * self.stride
        scores = h[:, self.edge + self.first * self.stride : last + 1 : self.stride]
        for edge in self.suffix:
            scores = scores + h[:, edge, None]
        return scores


@dataclass(frozen=True)
class Layout:
    """The edge blocks of the trellis of `n_classes` paths over slices of `width` states.

    The auxiliary vertices count as slice `n_slices`: `digits[-1]` states, which all have an edge to
    the sink. Use `make_layout` or `layout_of` to create one.
    """

    n_classes: int
    width: int
    digits: tuple[int, ...]  # n_classes in base width: the number of exits of each slice
    first_path: tuple[int, ...]  # the smallest path that exits from each slice
    exit_edge: tuple[int, ...]  # the first edge from each slice to the sink
    n_edges: int

    def __hash__(self) -> int:
        """Return a hash that is cheap, since every training step looks layouts up in caches."""
        return hash((self.n_classes, self.width))

    @property
    def n_slices(self) -> int:
        """The number of slices, without the auxiliary vertices."""
        return len(self.digits) - 1

    @property
    def longest_path(self) -> int:
        """The number of edges of the longest path."""
        return self.n_slices + 2 if self.n_slices else 0

    def states(self, i: int) -> int:
        """Return the number of states of slice i."""
        return self.width if i < self.n_slices else self.digits[-1]

    def transition(self, i: int) -> int:
        """Return the first edge from slice i − 1 to slice i."""
        return self.width + (i - 1) * self.width**2

    def block(self, h: Tensor, i: int) -> Tensor:
        """Return the scores of the edges from slice i − 1 to slice i, shape (rows, from, to)."""
        first, columns = self.transition(i), self.states(i)
        return h[:, first : first + self.width * columns].unflatten(1, (self.width, columns))

    def exits(self, h: Tensor, i: int) -> Tensor:
        """Return the scores of the edges from slice i to the sink, shape (rows, digits[i])."""
        return h[:, self.exit_edge[i] : self.exit_edge[i] + self.digits[i]]

    def blocks(self, first: int, end: int) -> list[Block]:
        """Return blocks that together are the paths first … end − 1, in the order of paths.

        All paths together are one block per exit. Any other interval adds at most two blocks per
        slice, since states are the digits of a path id, the last state the most significant digit.
        """
        if not 0 <= first < end <= self.n_classes:
            raise ValueError(
                f"first and end must be an interval of paths within 0 … {self.n_classes}, got "
                f"{first} and {end}"
            )
        blocks: list[Block] = []

        def split(low: int, high: int, whole: Block) -> None:
            level, edge, stride, path = whole.level, whole.edge, whole.stride, whole.path
            power = self.width**level
            start, skipped = divmod(low, power)
            stop, rest = divmod(high, power)

            def part(state: int, low: int, high: int) -> None:
                suffix = (edge + state * stride, *whole.suffix)
                below = self.transition(level) + state, self.states(level), suffix
                split(low, high, Block(level - 1, 0, self.width, *below, path + state * power))

            if skipped:
                part(start, skipped, rest if start == stop else power)
            start += skipped > 0
            if start < stop:
                blocks.append(whole._replace(first=start, end=stop))
            if rest and start <= stop:
                part(stop, 0, rest)

        for i, digit in enumerate(self.digits):
            offset, size = self.first_path[i], digit * self.width**i
            low, high = max(first - offset, 0), min(end - offset, size)
            if low < high:
                split(low, high, Block(i, 0, digit, self.exit_edge[i], 1, (), offset))
        return blocks

    def path_edges(self, paths: Tensor) -> Tensor:
        """Return the edges of paths, from source to sink, on a new last axis, padded with −1.

        A negative path has no edges. Nothing here synchronizes with the GPU.
        """
        last = torch.zeros_like(paths)
        first = torch.zeros_like(paths)
        for i in range(1, self.n_slices + 1):
            later = paths >= self.first_path[i]
            last = torch.where(later, i, last)
            first = torch.where(later, self.first_path[i], first)
        rest = paths - first
        last = torch.where(paths >= 0, last, -2)
        columns, leaving, state = [], torch.full_like(paths, -1), rest
        for i in range(self.n_slices + 1):
            previous, state = state, rest % self.width
            rest = rest // self.width  # ONNX would export torch.div by way of float32
            edge = state if i == 0 else self.transition(i) + previous * self.states(i) + state
            columns.append(torch.where(i <= last, edge, leaving))
            leaving = torch.where(i == last, self.exit_edge[i] + state, -1)
        return torch.stack([*columns, leaving], -1) if columns[1:] else paths[..., None][..., :0]


def layout_of(trellis: AnyTrellis) -> Layout:
    """Return the layout of a trellis.

    Examples
    --------
    >>> from ltls import Trellis
    >>> from ltls.torch.layout import layout_of
    >>> layout_of(Trellis(22)).exit_edge
    (17, 17, 18, 19, 16)
    """
    return trellis if isinstance(trellis, Layout) else make_layout(trellis.n_classes, trellis.width)


@lru_cache(maxsize=256)
def make_layout(n_classes: int, width: int) -> Layout:
    """Return the layout of the trellis with `n_classes` paths and `width` states per slice.

    Parameters
    ----------
    n_classes : int
        From 1 to 2**62.
    width : int
        At least 2.

    Returns
    -------
    Layout
        It works with the functions of `ltls.torch.functional`, like an `ltls.Trellis`.

    Examples
    --------
    >>> from ltls.torch import make_layout
    >>> make_layout(22, 2).n_edges
    19
    """
    if not 1 <= n_classes <= 2**62:
        raise ValueError(f"n_classes must be between 1 and 2**62, got {n_classes}")
    if width < 2 and n_classes > 1:
        raise ValueError(f"width must be at least 2, got {width}")
    if n_classes == 1:
        return Layout(1, 1, (1,), (0,), (0,), 0)
    width = min(width, n_classes)
    digits, rest = [], n_classes
    while rest:
        rest, digit = divmod(rest, width)
        digits.append(digit)
    n = len(digits) - 1
    edge = width + (n - 1) * width**2 + width * digits[n]
    exit_edge, first_path, path = [0] * (n + 1), [], 0
    for i in [n, *range(n)]:
        exit_edge[i] = edge
        edge += digits[i]
    for i, digit in enumerate(digits):
        first_path.append(path)
        path += digit * width**i
    if edge >= 2**31:
        raise ValueError(
            f"width {width} with n_classes {n_classes} needs more than 2**31-1 edges; use a "
            "smaller width"
        )
    return Layout(n_classes, width, tuple(digits), tuple(first_path), tuple(exit_edge), edge)
