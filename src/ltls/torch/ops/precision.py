"""The floating-point type in which the dynamic programs accumulate."""

from __future__ import annotations

import torch
from torch import Tensor


def accumulation_dtype(h: Tensor) -> torch.dtype:
    """Return float64 for float64 edge scores, float32 for every other type."""
    return torch.float64 if h.dtype == torch.float64 else torch.float32


def log_softmax(logits: Tensor) -> Tensor:
    """Return log-probabilities in the type of accumulation: those in bfloat16 do not sum to 1."""
    return torch.log_softmax(logits, -1, dtype=accumulation_dtype(logits))


def widest(tensor: Tensor) -> Tensor:
    """Return a tensor in float64, for differences of large numbers; MPS has float32 only."""
    return tensor.to(torch.float32 if tensor.device.type == "mps" else torch.float64)
