"""Whether operations are run as they are written, or traced and transformed."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


def is_transformed() -> bool:
    """Return whether a transform of `torch.func` is active, such as grad or vmap."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active


def is_exported() -> bool:
    """Return whether this is an export to ONNX, which knows plain operators only."""
    exported: bool = torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()
    return exported


def is_traced() -> bool:
    """Return whether values are not known: compiled, exported or transformed."""
    return torch.compiler.is_compiling() or is_transformed()


def has_values(tensor: Tensor) -> bool:
    """Return whether the host can look at values at once: on a CPU, neither traced nor fake."""
    return tensor.device.type == "cpu" and not is_traced() and not isinstance(tensor, FakeTensor)
