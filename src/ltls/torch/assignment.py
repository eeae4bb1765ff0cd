"""From the arguments of a head to its codebooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..structure.splits import split_along_axes
from .labels import KeyedPaths, LabelPaths, TablePaths
from .layout import Layout, make_layout

POLICIES = ("frequency", "random", "similarity")


def assign(
    assignment: Any,
    n_classes: int,
    width: int,
    n_trellises: int,
    counts: Any = None,
    label_features: Any = None,
) -> list[LabelPaths]:
    """Make the codebooks of a head; see `TrellisSoftmax`."""
    if not isinstance(assignment, str):
        return _given(assignment, n_classes, n_trellises)
    if assignment not in POLICIES:
        raise ValueError(f"assignment must be one of {POLICIES} or a codebook, got {assignment!r}")
    if (label_features is not None) != (assignment == "similarity"):
        raise ValueError("label_features and assignment='similarity' need each other")
    if assignment == "random":
        return [KeyedPaths(n_classes, [n_classes], seed) for seed in range(n_trellises)]
    layout = make_layout(n_classes, width)
    order = None if counts is None else _by_count(counts, n_classes)
    if assignment == "frequency":
        return [_by_frequency(layout, order, r) for r in range(n_trellises)]
    axes = label_axes(label_features, n_classes, layout.n_slices + 1)
    return [_by_similarity(layout, order, axes @ _rotation(axes, r)) for r in range(n_trellises)]


def _given(assignment: Any, n_classes: int, n_trellises: int) -> list[LabelPaths]:
    books = list(assignment) if isinstance(assignment, (list, tuple)) else [assignment]
    if len(books) != n_trellises:
        raise ValueError(
            f"assignment must have one codebook for each of {n_trellises} trellises, "
            f"got {len(books)}"
        )
    found = [_converted(book, n_classes) for book in books]
    sizes = {(book.n_labels, book.n_paths) for book in found}
    if len(sizes) > 1 or found[0].n_labels != n_classes:
        raise ValueError(
            f"assignment must have codebooks for {n_classes} labels, all of one size, got "
            + ", ".join(f"{labels} labels on {paths} paths" for labels, paths in sorted(sizes))
        )
    return found


def _converted(book: Any, n_classes: int) -> LabelPaths:
    if isinstance(book, LabelPaths):
        return book
    if hasattr(book, "seed"):  # a RandomCodebook
        n_labels = min(n_classes, book.n_paths)
        return KeyedPaths(n_labels, [*book.grown_from, book.n_paths], book.seed)
    if hasattr(book, "n_paths"):  # a TableCodebook
        return TablePaths(torch.from_numpy(book.paths), book.n_paths)
    paths = torch.as_tensor(book).cpu()
    if paths.dim() != 1 or paths.is_floating_point():
        raise TypeError(
            "assignment must be a policy, a TableCodebook, a RandomCodebook or the path of every "
            f"label, got {type(book).__name__}"
        )
    return TablePaths(paths.to(torch.int64), n_classes)


def _by_count(counts: Any, n_classes: int) -> Tensor:
    """Return the labels, most frequent first."""
    numbers = torch.as_tensor(counts).cpu()
    if numbers.shape != (n_classes,):
        raise ValueError(
            f"counts must have one number for each of {n_classes} labels, got shape "
            f"{tuple(numbers.shape)}"
        )
    return torch.argsort(numbers, descending=True, stable=True)


def exit_ends(layout: Layout) -> list[int]:
    """Return where the paths of every exit that has any end."""
    parts = enumerate(layout.digits)
    return [layout.first_path[i] + d * layout.width**i for i, d in parts if d]


def _by_frequency(layout: Layout, order: Tensor | None, number: int) -> LabelPaths:
    """Give the most frequent labels the smallest paths; from trellis 1 on, mixed in every exit."""
    ends = exit_ends(layout)
    if order is None:
        if number == 0:
            return LabelPaths(layout.n_classes, layout.n_classes)
        return KeyedPaths(layout.n_classes, ends, number)
    places = torch.arange(len(order))
    if number:
        generator = torch.Generator().manual_seed(number)
        for first, end in zip([0, *ends], ends, strict=False):
            places[first:end] = first + torch.randperm(end - first, generator=generator)
    paths = torch.empty_like(places)
    paths[order] = places
    return TablePaths(paths, layout.n_classes)


def label_axes(features: Any, n_labels: int, n_axes: int) -> Any:
    """Return the principal axes of labels' features, (n_labels, n_axes)."""
    matrix = torch.as_tensor(features).detach().to(torch.float64)
    if matrix.dim() != 2 or len(matrix) != n_labels:
        raise ValueError(
            f"label_features must have shape ({n_labels}, n_features), got {tuple(matrix.shape)}"
        )
    centred = matrix - matrix.mean(0)
    _, directions = torch.linalg.eigh(centred.T @ centred)
    strongest = directions.flip(1)[:, :n_axes]
    axes = (centred @ strongest).cpu().numpy()
    return axes[:, np.arange(n_axes) % axes.shape[1]]  # few features: axes are used again


def _rotation(axes: Any, number: int) -> Any:
    """Return how trellis `number` turns the axes: the first one does not."""
    size = axes.shape[1]
    if number == 0:
        return np.eye(size)
    return np.linalg.qr(np.random.default_rng(number).standard_normal((size, size)))[0]


def _by_similarity(layout: Layout, order: Tensor | None, axes: Any) -> LabelPaths:
    """Let similar labels share edges; with an order by frequency, among those of one exit."""
    if order is None:
        return TablePaths(torch.from_numpy(split_along_axes(layout, axes)), layout.n_classes)
    paths = torch.empty(layout.n_classes, dtype=torch.int64)
    for i, digit in enumerate(layout.digits):
        if digit == 0:
            continue
        first, count = layout.first_path[i], digit * layout.width**i
        labels = order[first : first + count]
        # The paths of one exit are those of a trellis that has no other.
        part = make_layout(count, layout.width)
        among = split_along_axes(part, axes[labels.numpy()]) if count > 1 else np.zeros(1, np.int64)
        paths[labels] = first + torch.from_numpy(among)
    return TablePaths(paths, layout.n_classes)
