"""Buffers that are made with values, also in a module that is built on "meta"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class FixedBuffers(nn.Module):
    """Base class of modules with buffers whose values are given at construction.

    A module is built on "meta" to be loaded, or to be materialized by `to_empty` and initialized by
    `reset_parameters`. Values cannot be read back from "meta", so they are kept until then.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fixed: set[str] = set()
        self._kept: dict[str, Tensor | None] = {}  # None: not even the caller knew the value

    def register_fixed(self, name: str, value: Tensor, device: torch.device | None = None) -> None:
        """Register a buffer on a device, by default torch's default device.

        Parameters
        ----------
        name : str
        value : tensor
            On a CPU, or on "meta" if the value will be loaded.
        device : torch.device, optional
        """
        device = torch.get_default_device() if device is None else device
        if value.is_meta and device.type != "meta":
            raise ValueError(f"{name} must have values, got a tensor on meta")
        self.register_buffer(name, value.to(device))
        self._fixed.add(name)
        if device.type == "meta":
            self._kept[name] = None if value.is_meta else value

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        before = {name: self.get_buffer(name) for name in self._fixed}
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            if self.get_buffer(name).is_meta and not buffer.is_meta:
                self._kept[name] = buffer.detach().cpu().clone()
        return self

    def restore_fixed(self) -> None:
        """Write the values of buffers that were on "meta" and have been materialized since."""
        for name, value in list(self._kept.items()):
            buffer = self.get_buffer(name)
            if buffer.is_meta:
                continue
            if value is None:
                raise RuntimeError(
                    f"{type(self).__name__} was built from tensors on meta, so {name} has no value "
                    "to restore: load a state dict instead, or build it from NumPy arrays"
                )
            buffer.copy_(value)
            del self._kept[name]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, Tensor) and not value.is_meta and "_kept" in self.__dict__:
            self._kept.pop(name, None)  # `from_pretrained` sets buffers one by one

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any) -> None:
        errors = arguments[-1]
        n_errors = len(errors)
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        for name in list(self._kept) if len(errors) == n_errors else ():
            if prefix + name in state_dict and not self.get_buffer(name).is_meta:
                del self._kept[name]  # what was loaded takes its place
