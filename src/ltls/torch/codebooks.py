"""Codebooks as modules: label ↔ path lookups whose tables and keys are buffers of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..structure.policies import (
    POLICIES,
    Assignment,
    Identity,
    KeyedPermutation,
    LabelStats,
)
from .layout import make_layout
from .ops import custom


class LabelPaths(nn.Module):
    """Base class of codebooks.

    Lookups take tensors of any shape and never synchronize with a GPU.
    """

    def __init__(self, n_labels: int, n_paths: int) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.n_paths = n_paths

    def path_of(self, labels: Tensor, ignore_index: int = -1) -> Tensor:
        """Return the paths of labels: −1 for `ignore_index`, `n_paths` for a label out of range."""
        raise NotImplementedError

    def label_of(self, paths: Tensor) -> Tensor:
        """Return the labels of paths; −1 for a free path and for path −1."""
        raise NotImplementedError

    def look_up(self, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor | None, int, int]:
        """Return labels, a table or None, their number and what to ignore, for `custom.loss`."""
        return self.path_of(labels, ignore_index), None, self.n_paths, -1

    def reset_parameters(self) -> None:
        """Restore the buffers that the module was made with."""

    def like_saved(self, state: Mapping[str, Tensor]) -> LabelPaths:
        """Return a codebook of the kind whose state is given: a table, or none.

        The number of paths must be the same, since it is the layer's.
        """
        paths, labels = state.get("paths"), state.get("labels")
        if not state and isinstance(self, TablePaths):
            return IdentityPaths(self.n_labels, self.n_paths)
        if paths is None or labels is None or isinstance(self, TablePaths):
            return self
        if paths.shape != (self.n_labels,) or labels.shape != (self.n_paths + 1,):
            return self  # torch reports that the sizes differ
        return TablePaths(paths.to("cpu", torch.int64), self.n_paths)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"n_labels={self.n_labels}, n_paths={self.n_paths}"


class IdentityPaths(LabelPaths):
    """Label i has path i; nothing is stored."""

    def path_of(self, labels: Tensor, ignore_index: int = -1) -> Tensor:
        """Return the paths of labels: −1 for `ignore_index`, `n_paths` for a label out of range."""
        return custom.look_up(labels, None, self.n_labels, self.n_paths, ignore_index)

    def look_up(self, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor | None, int, int]:
        """Return the labels as they are: each is its own path."""
        return labels, None, self.n_labels, ignore_index

    def label_of(self, paths: Tensor) -> Tensor:
        """Return the labels of paths; −1 for a free path and for path −1."""
        if self.n_labels == self.n_paths:
            return paths
        return torch.where(paths < self.n_labels, paths, -1)


class KeyedPaths(LabelPaths):
    """The keyed permutation of `ltls.RandomCodebook`: computed from a seed, not stored.

    Parameters
    ----------
    n_labels : int
        The number of labels; the paths of the remaining ids are free.
    sizes : sequence of int
        Increasing, the last one is the number of paths. Every block of ids between two sizes is
        permuted on its own.
    seed : int
        The key, from 0 to 2**64 − 1. It is a buffer, so that it is part of the state_dict.
    """

    seed: Tensor

    def __init__(self, n_labels: int, sizes: Sequence[int], seed: int) -> None:
        super().__init__(n_labels, sizes[-1])
        self.sizes = list(sizes)
        self._signed = seed - 2**64 if seed >= 2**63 else seed
        self.register_buffer("seed", torch.tensor([self._signed], dtype=torch.int64))

    def reset_parameters(self) -> None:
        """Restore the seed that the module was made with."""
        self.seed.fill_(self._signed)

    def path_of(self, labels: Tensor, ignore_index: int = -1) -> Tensor:
        """Return the paths of labels: −1 for `ignore_index`, `n_paths` for a label out of range."""
        ids = custom.look_up(labels, None, self.n_labels, self.n_paths, ignore_index)
        return custom.permute(ids, self.seed, self.sizes, False)

    def label_of(self, paths: Tensor) -> Tensor:
        """Return the labels of paths; −1 for a free path and for path −1."""
        labels = custom.permute(paths, self.seed, self.sizes, True)
        return torch.where(labels < self.n_labels, labels, -1)


class TablePaths(LabelPaths):
    """An explicit codebook: a table of paths and its inverse, both buffers.

    Parameters
    ----------
    paths : int64 tensor of shape (n_labels,)
        The path of every label.
    n_paths : int
        The number of paths; those without a label are free.
    """

    paths: Tensor
    labels: Tensor

    def __init__(self, paths: Tensor, n_paths: int) -> None:
        super().__init__(len(paths), n_paths)
        dtype = torch.int32 if n_paths < 2**31 - 1 else torch.int64
        # Tables are made on the CPU even if the default device is "meta", as it is while a model
        # is built to load its state.
        labels = torch.full((n_paths + 1,), -1, dtype=dtype, device="cpu")  # the last: of path −1
        ids = torch.arange(len(paths), dtype=dtype, device="cpu")
        wrong = (paths < 0) | (paths >= n_paths)
        if not wrong.any():
            labels[paths] = ids
            wrong = labels[paths] != ids
        if wrong.any():
            label = int(wrong.int().argmax())
            raise ValueError(
                f"assignment must give every label a distinct path from 0 to {n_paths - 1}, got "
                f"path {int(paths[label])} for label {label}"
            )
        paths, default = paths.to(dtype), torch.get_default_device()
        self._tables = (paths, labels) if default.type == "meta" else None
        self.register_buffer("paths", paths.to(default))
        self.register_buffer("labels", labels.to(default))

    def reset_parameters(self) -> None:
        """Restore the tables of a module that was made on "meta"."""
        if self._tables is not None and not self.paths.is_meta:
            for buffer, table in zip((self.paths, self.labels), self._tables, strict=True):
                buffer.copy_(table)
            self._tables = None

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any) -> None:
        """Load the tables; those that are no codebook are an error of `load_state_dict`."""
        paths, labels = (state_dict.get(prefix + name) for name in ("paths", "labels"))
        shapes = self.paths.shape, self.labels.shape
        # torch reports missing tables and those of other shapes.
        complete = paths is not None and labels is not None and not paths.is_meta
        checked = complete and (paths.shape, labels.shape) == shapes
        if checked and not self._is_codebook(paths, labels):
            errors = arguments[-1]
            errors.append(f"{prefix}paths and {prefix}labels are not each other's inverse")
            return
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _is_codebook(self, paths: Tensor, labels: Tensor) -> bool:
        try:
            expected = TablePaths(paths.to("cpu", torch.int64), self.n_paths).labels
        except ValueError:
            return False
        return torch.equal(expected, labels.to("cpu", expected.dtype))

    def path_of(self, labels: Tensor, ignore_index: int = -1) -> Tensor:
        """Return the paths of labels: −1 for `ignore_index`, `n_paths` for a label out of range."""
        return custom.look_up(labels, self.paths, self.n_labels, self.n_paths, ignore_index)

    def look_up(self, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor | None, int, int]:
        """Return the labels and the table of paths."""
        return labels, self.paths, self.n_labels, ignore_index

    def label_of(self, paths: Tensor) -> Tensor:
        """Return the labels of paths; −1 for a free path and for path −1."""
        return self.labels[paths].to(torch.int64)


@dataclass(frozen=True)
class Nodes:
    """The nodes of a hierarchy of labels, each an interval of paths.

    Parameters
    ----------
    leaf : int64 array of shape (n_labels,)
        The node of the last level of every label, numbered in the order of paths.
    intervals : dict
        From a tuple of values, one per level down to the node's, to its first path and the end.
    """

    leaf: Any
    intervals: dict[tuple[Any, ...], tuple[int, int]]

    def paths(self, counts: Any, n_trellises: int) -> list[Any]:
        """Return a table of paths per trellis; the first is by frequency within the leaves."""
        rng = np.random.RandomState(0)
        first = np.arange(len(self.leaf)) if counts is None else -counts
        keys = [first, *(rng.random_sample(len(self.leaf)) for _ in range(n_trellises - 1))]
        tables = []
        for key in keys:
            table = np.empty(len(self.leaf), np.int64)
            table[np.lexsort((key, self.leaf))] = np.arange(len(self.leaf))
            tables.append(table)
        return tables


def nodes_of(hierarchy: Any, n_classes: int) -> Nodes:
    """Return the nodes of a hierarchy, given as one value per label and level."""
    values = np.asarray(hierarchy)
    if values.ndim not in (1, 2) or len(values) != n_classes or not values.size:
        raise ValueError(
            f"hierarchy must have shape ({n_classes},) or ({n_classes}, n_levels), got "
            f"{values.shape}"
        )
    columns = values.reshape(n_classes, -1).T
    leaf = np.zeros(n_classes, np.int64)
    intervals: dict[tuple[Any, ...], tuple[int, int]] = {}
    for level, column in enumerate(columns):
        names, codes = np.unique(column, return_inverse=True)
        pairs, leaf = np.unique(leaf * len(names) + codes, return_inverse=True)
        ends = np.bincount(leaf, minlength=len(pairs)).cumsum()
        member = np.empty(len(pairs), np.int64)
        member[leaf] = np.arange(n_classes)  # a label of every node
        for node, label in enumerate(member):
            name = tuple(each[label].item() for each in columns[: level + 1])
            intervals[name] = (int(ends[node - 1]) if node else 0, int(ends[node]))
    return Nodes(leaf, intervals)


def adopt_saved(
    books: nn.ModuleList, state_dict: Mapping[str, Tensor], start: str, device: torch.device
) -> None:
    """Replace codebooks by the kind whose states are saved under keys that begin with `start`."""
    for r, book in enumerate(books):
        first = f"{start}{r}."
        saved = {k[len(first) :]: v for k, v in state_dict.items() if k.startswith(first)}
        books[r] = book.like_saved(saved).to(device)


def make_codebooks(
    assignment: Any,
    n_classes: int,
    width: int,
    n_trellises: int,
    counts: Any = None,
    label_features: Any = None,
    nodes: Nodes | None = None,
) -> list[LabelPaths]:
    """Return one codebook per trellis; the arguments are those of `TrellisSoftmax`."""
    if nodes is not None:
        if not isinstance(assignment, str) or assignment != "frequency":
            raise ValueError(f"hierarchy requires assignment='frequency', got {assignment!r}")
        tables = nodes.paths(_label_counts(counts, n_classes), n_trellises)
        return [TablePaths(torch.from_numpy(table), n_classes) for table in tables]
    if not isinstance(assignment, str):
        return _given(assignment, n_classes, n_trellises, width)
    policy = POLICIES.get(assignment)
    if policy is None or policy.needs_training:
        names = sorted(name for name, each in POLICIES.items() if not each.needs_training)
        raise ValueError(
            f"assignment must be one of {names} or a codebook, got {assignment!r}"
            + (", which needs the fit of a classifier" if policy else "")
        )
    if (label_features is not None) != policy.needs_sample:
        needs = "needs" if policy.needs_sample else "does not take"
        raise ValueError(f"assignment={assignment!r} {needs} label_features")
    if counts is not None:
        policy = policy.by_frequency()
    stats = LabelStats(
        n_classes, _label_counts(counts, n_classes), _label_vectors(label_features, n_classes)
    )
    # A fixed seed, so that all processes of a distributed run make the same codebooks.
    rng = np.random.RandomState(0)
    books = policy.initial(make_layout(n_classes, width), n_trellises, stats, rng)
    return [_module(book, n_classes) for book in books]


def _module(book: Assignment, n_classes: int) -> LabelPaths:
    if isinstance(book, Identity):
        return IdentityPaths(n_classes, n_classes)
    if isinstance(book, KeyedPermutation):
        return KeyedPaths(n_classes, book.sizes, book.seed)
    return TablePaths(torch.from_numpy(book.paths), n_classes)


def _label_counts(counts: Any, n_classes: int) -> Any:
    if counts is None:
        return None
    numbers = torch.as_tensor(counts, device="cpu")
    if numbers.shape != (n_classes,):
        raise ValueError(
            f"counts must have shape ({n_classes},), one number per class, got "
            f"{tuple(numbers.shape)}"
        )
    if not (numbers >= 0).all():  # nor is NaN
        raise ValueError(f"counts must be 0 or more, got {numbers[~(numbers >= 0)][0].item()}")
    return (numbers.double() if numbers.is_floating_point() else numbers).numpy()


def _label_vectors(label_features: Any, n_classes: int) -> Any:
    if label_features is None:
        return None
    vectors = torch.as_tensor(label_features, device="cpu").detach().to(torch.float64)
    if vectors.dim() != 2 or len(vectors) != n_classes:
        raise ValueError(
            f"label_features must have shape ({n_classes}, n_features), got {tuple(vectors.shape)}"
        )
    return (vectors - vectors.mean(0)).numpy()  # so that the axes are principal components


def _given(assignment: Any, n_classes: int, n_trellises: int, width: int) -> list[LabelPaths]:
    """Convert the codebooks that the caller passed, and check their sizes."""
    given = list(assignment) if isinstance(assignment, (list, tuple)) else [assignment]
    if len(given) != n_trellises:
        raise ValueError(
            f"assignment must have one codebook per trellis, got {len(given)} for {n_trellises} "
            "trellises"
        )
    for book in given:
        quantizer = getattr(book, "quantizer", None)
        if quantizer is not None and quantizer.width != width:
            raise ValueError(
                f"width must be {quantizer.width}, that of the codebook's embeddings, got {width}"
            )
    books = [_converted(book, n_classes) for book in given]
    sizes = {(book.n_labels, book.n_paths) for book in books}
    if len(sizes) > 1 or books[0].n_labels != n_classes:
        raise ValueError(
            f"assignment must have codebooks for {n_classes} labels, all of the same size, got "
            + ", ".join(f"{labels} labels on {paths} paths" for labels, paths in sorted(sizes))
        )
    return books


def _converted(book: Any, n_classes: int) -> LabelPaths:
    if isinstance(book, LabelPaths):
        return book
    if hasattr(book, "seed"):  # an ltls.RandomCodebook
        n_labels = min(n_classes, book.n_paths)
        return KeyedPaths(n_labels, [*book.grown_from, book.n_paths], book.seed)
    if hasattr(book, "n_paths"):  # an ltls.TableCodebook
        return TablePaths(torch.from_numpy(book.paths), book.n_paths)
    paths = torch.as_tensor(book, device="cpu")
    if paths.dim() != 1 or paths.is_floating_point():
        raise TypeError(
            "assignment must be the name of a policy, a TableCodebook, a RandomCodebook or an "
            f"integer array of paths, got {type(book).__name__}"
        )
    return TablePaths(paths.to(torch.int64), n_classes)
