"""Codebooks as modules: label ↔ path lookups whose tables and keys are buffers of the model."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
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
    PathTable,
)
from .buffers import FixedBuffers
from .hierarchy import Nodes
from .layout import Layout, make_layout
from .ops import custom


class LabelPaths(FixedBuffers):
    """Base class of the codebook modules.

    Lookups take tensors of any shape, and do not synchronize with the GPU.
    """

    def __init__(self, n_labels: int, n_paths: int) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.n_paths = n_paths

    def _table(self) -> Tensor | None:
        """Return the paths of all labels; None if label i has path i."""
        return None

    def path_of(self, labels: Tensor, ignore_index: int = -1) -> Tensor:
        """Return the paths of labels: −1 for `ignore_index`, `n_paths` for a label out of range."""
        table, outside = self._table(), (labels < 0) | (labels >= self.n_labels)
        paths = labels if table is None else table[labels.clamp(0, self.n_labels - 1)]
        paths = paths.to(torch.int64).masked_fill(outside, self.n_paths)
        return paths.masked_fill(labels == ignore_index, -1)

    def label_of(self, paths: Tensor) -> Tensor:
        """Return the labels of paths; −1 for a free path and for path −1."""
        raise NotImplementedError

    def look_up(self, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor | None, int, int]:
        """Return the arguments of `custom.loss`: labels, table or None, n_labels, ignore_index."""
        return labels, self._table(), self.n_labels, ignore_index

    def reset_parameters(self) -> None:
        """Restore the buffers of a module that was made on "meta"."""
        self.restore_fixed()

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"n_labels={self.n_labels}, n_paths={self.n_paths}"


class IdentityPaths(LabelPaths):
    """Label i has path i; no table is stored."""

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
        The number of labels; the other paths are free.
    sizes : sequence of int
        Where blocks of ids end, in increasing order; the last one is the number of paths. Every
        block is permuted by itself.
    seed : int
        The key, from 0 to 2**64 − 1; a buffer, and so part of the state_dict.
    device : torch.device, optional
    """

    seed: Tensor

    def __init__(
        self, n_labels: int, sizes: Sequence[int], seed: int, device: torch.device | None = None
    ) -> None:
        super().__init__(n_labels, sizes[-1])
        self.sizes = list(sizes)
        self.first_seed = seed - 2**64 if seed >= 2**63 else seed
        self.register_fixed("seed", torch.tensor([self.first_seed], device="cpu"), device)

    def path_of(self, labels: Tensor, ignore_index: int = -1) -> Tensor:
        """Return the paths of labels: −1 for `ignore_index`, `n_paths` for a label out of range."""
        outside = labels < 0
        if self.n_labels < self.n_paths:  # else `permute` finds those that are too large
            outside = outside | (labels >= self.n_labels)
        own = labels.masked_fill(outside, self.n_paths)
        paths = custom.permute(own, self.seed, self.sizes, False)
        return paths.masked_fill(labels == ignore_index, -1)

    def look_up(self, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor | None, int, int]:
        """Return paths in place of labels, for `custom.loss` without a table."""
        return self.path_of(labels, ignore_index), None, self.n_paths, -1

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
    device : torch.device, optional
    """

    paths: Tensor
    labels: Tensor

    def __init__(self, paths: Tensor, n_paths: int, device: torch.device | None = None) -> None:
        super().__init__(len(paths), n_paths)
        labels = _inverse(paths, n_paths)
        self.register_fixed("paths", paths.to(labels.dtype), device)
        self.register_fixed("labels", labels, device)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any) -> None:
        """Load the tables; `load_state_dict` reports invalid ones."""
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
            expected = _inverse(paths.to("cpu", torch.int64), self.n_paths)
        except ValueError:
            return False
        return torch.equal(expected, labels.to("cpu", expected.dtype))

    def _table(self) -> Tensor | None:
        return self.paths

    def label_of(self, paths: Tensor) -> Tensor:
        """Return the labels of paths; −1 for a free path and for path −1."""
        return self.labels[paths].to(torch.int64)


def _inverse(paths: Tensor, n_paths: int) -> Tensor:
    """Return the label of every path, −1 if it is free, and of path −1 at the end."""
    dtype = torch.int32 if n_paths < 2**31 - 1 else torch.int64
    if paths.is_meta:
        return torch.empty(n_paths + 1, dtype=dtype, device="meta")
    labels = torch.full((n_paths + 1,), -1, dtype=dtype, device="cpu")
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
    return labels


def tabulated(book: LabelPaths, device: torch.device, more: Tensor | None = None) -> TablePaths:
    """Return a codebook as a table, with `more` paths for new labels, which must be free."""
    table = book.path_of(torch.arange(book.n_labels, device=device)).cpu()
    if more is not None:
        taken = torch.isin(more, table)
        if taken.any():
            raise ValueError(f"paths must be free, got {int(more[taken][0])}, which has a class")
        table = torch.cat([table, more])
    return TablePaths(table, book.n_paths, device)


def with_paths(books: nn.ModuleList, paths: Any, device: torch.device) -> nn.ModuleList:
    """Return codebooks with new labels, whose paths have shape (n,) or (n, n_trellises)."""
    table = torch.atleast_1d(torch.as_tensor(paths, device="cpu"))
    if not table.numel():
        table = table.to(torch.int64).reshape(0, len(books))
    if table.is_floating_point() or table.dtype == torch.bool:
        raise TypeError(f"paths must be integers, got {table.dtype}")
    table = table.to(torch.int64).reshape(len(table), -1)
    if table.shape[1] != len(books):
        raise ValueError(
            f"paths must have one column for each of {len(books)} trellises, got shape "
            f"{tuple(table.shape)}"
        )
    return nn.ModuleList(tabulated(book, device, table[:, r]) for r, book in enumerate(books))


def adopt_saved(
    books: nn.ModuleList,
    layout: Layout,
    state_dict: Mapping[str, Tensor],
    start: str,
    metadata: Mapping[str, Any],
    device: torch.device,
) -> None:
    """Replace codebooks by those of the kind that was saved: table, key or identity.

    The number of paths must be that of the layer.

    Parameters
    ----------
    books : nn.ModuleList
        The codebooks of the layer, changed in place.
    layout : Layout
        The layout of the layer.
    state_dict : mapping of str to tensor
    start : str
        The prefix of the keys of codebooks.
    metadata : mapping
        The metadata of the layer, which `nn.Module.state_dict` adds. Only with metadata does a lack
        of tables mean that the codebooks have none; without it, the dict may hold only parameters.
    device : torch.device
        The device of new codebooks, whose tensors torch loads next.
    """
    saved = []
    for r in range(len(books)):
        first = f"{start}{r}."
        saved.append({k[len(first) :]: v for k, v in state_dict.items() if k.startswith(first)})
    complete, n_labels = "version" in metadata, books[0].n_labels
    if complete and n_labels == layout.n_classes:
        # A key alone does not say which blocks of labels it permutes, but every policy has its own.
        for name in ("frequency", "random"):
            made = make_codebooks(name, n_labels, layout.width, len(books), device=device)
            if all(map(_is_saved, made, saved)):
                for r, book in enumerate(made):
                    books[r] = book
                return
    for r, (book, state) in enumerate(zip(books, saved, strict=True)):
        n_paths = book.n_paths
        if {"paths", "labels"} <= state.keys() and not isinstance(book, TablePaths):
            shapes = state["paths"].shape, state["labels"].shape
            if shapes == ((n_labels,), (n_paths + 1,)):  # else torch reports that they differ
                books[r] = TablePaths(state["paths"].to("cpu", torch.int64), n_paths, device)
        elif isinstance(book, KeyedPaths) and not _may_load(book, state):
            raise RuntimeError(
                f"{start}{r} has the key of another codebook, and may permute other blocks of "
                "labels: build the layer with the codebook that was saved"
            )
        elif not state and complete and not isinstance(book, IdentityPaths):
            books[r] = IdentityPaths(n_labels, n_paths)


def _may_load(book: KeyedPaths, state: Mapping[str, Tensor]) -> bool:
    """Return whether the saved key can be loaded: it must permute the same blocks of labels.

    That is known if all labels are one block, or if the key is that of construction.
    """
    if "seed" not in state or state["seed"].is_meta or book.sizes == [book.n_paths]:
        return True
    return int(state["seed"]) == book.first_seed


def _is_saved(book: LabelPaths, state: Mapping[str, Tensor]) -> bool:
    """Return whether a codebook without a table has a saved state."""
    if isinstance(book, KeyedPaths):
        seed = state.get("seed")
        return seed is not None and not seed.is_meta and int(seed) == book.first_seed
    return not state


def make_codebooks(
    assignment: Any,
    n_classes: int,
    width: int,
    n_trellises: int,
    counts: Any = None,
    label_features: Any = None,
    nodes: Nodes | None = None,
    device: Any = None,
) -> nn.ModuleList:
    """Return one codebook per trellis; the arguments are those of `TrellisSoftmax`.

    Without a `device`, they are on torch's default device.
    """
    device = torch.get_default_device() if device is None else torch.device(device)
    if nodes is not None and not (isinstance(assignment, str) and assignment == "frequency"):
        raise ValueError(f"hierarchy requires assignment='frequency', got {assignment!r}")
    if not isinstance(assignment, str):
        return nn.ModuleList(_given(assignment, n_classes, n_trellises, width, device))
    # A model that is built under torch.device("meta") to be loaded has its tensors there, too.
    on_meta = any(isinstance(each, Tensor) and each.is_meta for each in (counts, label_features))
    if on_meta and device.type == "meta" and assignment != "random":
        table = torch.empty(n_classes, dtype=torch.int64, device=device)
        return nn.ModuleList(TablePaths(table, n_classes, device) for _ in range(n_trellises))
    return nn.ModuleList(
        _module(each, n_classes, device)
        for each in _assignments(
            assignment, n_classes, width, n_trellises, counts, label_features, nodes
        )
    )


def _assignments(
    assignment: str,
    n_classes: int,
    width: int,
    n_trellises: int,
    counts: Any,
    label_features: Any,
    nodes: Nodes | None,
) -> list[Assignment]:
    if nodes is not None:
        tables = nodes.paths(_label_counts(counts, n_classes), n_trellises)
        return [PathTable(table) for table in tables]
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
    return policy.initial(make_layout(n_classes, width), n_trellises, stats, rng)


def _module(book: Assignment, n_classes: int, device: torch.device) -> LabelPaths:
    if isinstance(book, Identity):
        return IdentityPaths(n_classes, n_classes)
    if isinstance(book, KeyedPermutation):
        return KeyedPaths(n_classes, book.sizes, book.seed, device)
    return TablePaths(torch.from_numpy(book.paths), n_classes, device)


def _label_counts(counts: Any, n_classes: int) -> Any:
    if counts is None:
        return None
    if isinstance(counts, Tensor):
        counts = _with_values(counts, "counts").cpu()
        counts = (counts.double() if counts.is_floating_point() else counts).numpy()
    numbers = np.asarray(counts)
    if numbers.dtype.kind not in "biufO":
        raise TypeError(f"counts must be real numbers, got {numbers.dtype}")
    numbers = numbers.astype(np.float64 if numbers.dtype.kind in "fO" else np.int64)
    if numbers.shape != (n_classes,):
        raise ValueError(
            f"counts must have shape ({n_classes},), one number per class, got {numbers.shape}"
        )
    if not (numbers >= 0).all():  # nor is NaN
        raise ValueError(f"counts must be 0 or more, got {numbers[~(numbers >= 0)][0].item()}")
    return numbers


def _label_vectors(label_features: Any, n_classes: int) -> Any:
    if label_features is None:
        return None
    if isinstance(label_features, Tensor):
        label_features = _with_values(label_features, "label_features").detach()
    vectors = torch.as_tensor(label_features, device="cpu").to(torch.float64)
    if vectors.dim() != 2 or len(vectors) != n_classes:
        raise ValueError(
            f"label_features must have shape ({n_classes}, n_features), got {tuple(vectors.shape)}"
        )
    return (vectors - vectors.mean(0)).numpy()  # so that the axes are principal components


def _with_values(given: Tensor, name: str) -> Tensor:
    if given.is_meta:
        raise ValueError(f"{name} must have values, got a tensor on meta")
    return given


def _given(
    assignment: Any, n_classes: int, n_trellises: int, width: int, device: torch.device
) -> list[LabelPaths]:
    """Convert the codebooks that the caller passed, and check their sizes."""
    is_list = isinstance(assignment, (list, tuple, nn.ModuleList))
    given = list(assignment) if is_list else [assignment]
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
    books = [_converted(book, n_classes, device) for book in given]
    sizes = {(book.n_labels, book.n_paths) for book in books}
    if len(sizes) > 1 or books[0].n_labels != n_classes:
        raise ValueError(
            f"assignment must have codebooks for {n_classes} labels, all of the same size, got "
            + ", ".join(f"{labels} labels on {paths} paths" for labels, paths in sorted(sizes))
        )
    return books


def _converted(book: Any, n_classes: int, device: torch.device) -> LabelPaths:
    if isinstance(book, LabelPaths):
        # Of another layer. A copy: modules that share tensors cannot be saved as safetensors.
        return copy.deepcopy(book).to(device)
    if hasattr(book, "seed"):  # an ltls.RandomCodebook
        n_labels = min(n_classes, book.n_paths)
        return KeyedPaths(n_labels, [*book.grown_from, book.n_paths], book.seed, device)
    if hasattr(book, "n_paths"):  # an ltls.TableCodebook
        return TablePaths(torch.from_numpy(book.paths), book.n_paths, device)
    paths = book if isinstance(book, Tensor) else torch.as_tensor(book, device="cpu")
    if paths.dim() != 1 or paths.is_floating_point():
        raise TypeError(
            "assignment must be the name of a policy, a TableCodebook, a RandomCodebook or an "
            f"integer array of paths, got {type(book).__name__}"
        )
    if not paths.is_meta:
        paths = paths.cpu()
    return TablePaths(paths.to(torch.int64), n_classes, device)
