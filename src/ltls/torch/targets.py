"""Arguments of the output layers, checked and as matrices: inputs, targets, and allowed classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .ops.tracing import has_values


def rows_of(input: Tensor, in_features: int) -> Tensor:  # noqa: A002
    """Return inputs of shape (…, in_features) as a matrix.

    Reshapes that change nothing are skipped, here and elsewhere: dispatching even a view, forward
    and backward, takes the host longer than a kernel takes the GPU.
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"input must be a tensor, got {type(input).__name__}")
    if input.shape[-1:] != (in_features,):
        raise ValueError(f"input must have shape (…, {in_features}), got {tuple(input.shape)}")
    return input if input.dim() == 2 else input.reshape(-1, in_features)


def labels_of(target: Tensor, batch: torch.Size) -> Tensor:
    """Return targets of the shape of a batch, or (*batch, k), as int64 of shape (rows, k)."""
    if not isinstance(target, Tensor):
        raise TypeError(f"target must be a tensor, got {type(target).__name__}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise TypeError(
            f"target must have an integer dtype, got {target.dtype}; for soft targets pass "
            "class indices and target_probs"
        )
    if target.shape[: len(batch)] != batch or target.dim() > len(batch) + 1:
        several = ", ".join([*map(str, batch), "L"])
        raise ValueError(
            f"target must have shape {tuple(batch)} or ({several}), got {tuple(target.shape)}"
        )
    k = target.shape[-1] if target.dim() > len(batch) else 1
    return target.to(torch.int64).reshape(-1, k)


def padded(labels: Tensor, offsets: Tensor, batch: torch.Size, ignore_index: int) -> Tensor:
    """Return sets of classes as a matrix with `ignore_index` as padding, shape (*batch, L).

    Parameters
    ----------
    labels, offsets
        The sets, as in `SoftmaxHead.forward`.
    batch : torch.Size
        The shape of the rows.
    ignore_index : int
    """
    n = batch.numel()
    if labels.dim() != 1 or offsets.dim() != 1 or len(offsets) not in (n, n + 1):
        raise ValueError(
            f"offsets must have shape ({n},) or ({n + 1},) for {n} rows, and target must be flat, "
            f"got {tuple(offsets.shape)} and {tuple(labels.shape)}"
        )
    ends = offsets.new_full((n + 1 - len(offsets),), len(labels))
    ptr = torch.cat([offsets, ends]).to(labels.device, torch.int64)
    sizes = ptr.diff()
    if has_values(ptr) and (ptr[0] != 0 or ptr[-1] != len(labels) or (sizes < 0).any()):
        raise ValueError(
            f"offsets must increase from 0 to the {len(labels)} targets, got {offsets.tolist()[:9]}"
        )
    column = torch.arange(max(int(sizes.max()), 1) if n else 1, device=labels.device)
    at = (ptr[:-1, None] + column).clamp(max=max(len(labels) - 1, 0))
    own = labels[at] if len(labels) else torch.full_like(at, ignore_index, dtype=labels.dtype)
    return torch.where(column < sizes[:, None], own, ignore_index).reshape(*batch, len(column))


def allowed_labels(
    among: Any, batch: torch.Size, n_classes: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the labels of a set or mask, sorted, and which of them count, both (rows or 1, m)."""
    given = torch.as_tensor(among, device=device)
    is_mask, m = given.dtype == torch.bool, given.shape[-1] if given.dim() else 0
    if given.dim() and not m:
        raise ValueError("among must allow at least one class, got none")
    shapes = [(m,), (*batch, m)]
    fits = m == n_classes if is_mask else m > 0 and not given.is_floating_point()
    if not fits or tuple(given.shape) not in shapes:
        raise ValueError(
            "among must be class indices of shape (m,) or (…, m), or a boolean mask of shape "
            f"({n_classes},) or (…, {n_classes}), got {given.dtype} of shape "
            f"{tuple(given.shape)}"
        )
    if is_mask and given.dim() == 1:
        given = given.nonzero()[:, 0]
        if not len(given):
            raise ValueError("among must allow at least one class, got a mask of none")
    elif is_mask:
        labels = torch.arange(n_classes, device=given.device)[None]
        return labels, given.reshape(-1, n_classes)
    labels = given.to(torch.int64).reshape(-1, given.shape[-1]).sort(1).values
    counts = labels >= 0
    counts[:, 1:] &= labels[:, 1:] != labels[:, :-1]
    if has_values(labels) and labels.numel():
        is_binary = not is_mask and labels.min() >= 0 and labels.max() <= 1
        if is_binary and 2 < m == n_classes:
            raise ValueError(
                f"among must be class indices or a boolean mask, got a mask of {given.dtype}: "
                "pass it as bool"
            )
        wrong = (labels < -1) | (labels >= n_classes)
        if wrong.any():
            raise ValueError(
                f"among must have class indices from 0 to {n_classes - 1}, or -1 as "
                f"padding, got {int(labels[wrong][0])}"
            )
    return labels, counts
