"""The floating-point type in which the dynamic programs accumulate."""

from __future__ import annotations

import torch
from torch import Tensor


def accumulation_dtype(h: Tensor) -> torch.dtype:
    """Return float64 for float64 edge scores, float32 for every other type."""
    return torch.float64 if h.dtype == torch.float64 else torch.float32
