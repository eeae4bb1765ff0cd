"""Encoders: from texts or tensors to vectors.

Tokenizers and models are those of Hugging Face's transformers, or modules of the user's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.arrays import AnyArray, as_integer

POOLINGS = ("mean", "cls")
PRECISIONS = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_BATCH = 1024  # texts whose tokens are counted


class Encoder(nn.Module):
    """A model that turns texts or tensors into vectors.

    Parameters
    ----------
    model : nn.Module
        Called with the result of the tokenizer, or with a batch of rows. It returns a vector per
        row, or a sequence of vectors per row, which is pooled; either as a tensor or as the
        `last_hidden_state` of an output of transformers.
    tokenizer : callable, optional
        A tokenizer of transformers. Without it, inputs are arrays or tensors.
    pooling : {"mean", "cls"}
        The mean over the tokens of a text, or its first token.
    max_length : int, optional
        Tokens of a text; the rest is truncated. By default as many as the model takes.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, pooling: str, max_length: int | None):
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {POOLINGS}, got {pooling!r}")
        self.model, self.tokenizer, self.pooling = model, tokenizer, pooling
        config = getattr(model, "config", None)
        positions = getattr(config, "max_position_embeddings", None)
        if max_length is not None:
            most = positions if positions is not None and positions > 0 else None
            max_length = as_integer("max_length", max_length, at_least=1, at_most=most)
        self.max_length = max_length or self._longest(positions)

    @classmethod
    def load(
        cls,
        source: Any,
        tokenizer: Any,
        pooling: str,
        max_length: int | None,
        safe: bool | None = None,
        has_tokenizer: bool = True,
    ) -> Encoder:
        """Return the encoder of a module, or of a name or folder of transformers.

        With `safe`, no weights are read but those in safetensors files. Without a tokenizer, inputs
        are arrays or tensors.
        """
        if isinstance(source, nn.Module):
            return cls(source, tokenizer, pooling, max_length)
        if not isinstance(source, (str, Path)):
            raise TypeError(
                "encoder must be the name or folder of a model of transformers, or an nn.Module, "
                f"got {type(source).__name__}"
            )
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise ImportError(
                f"encoder={str(source)!r} needs transformers: pip install 'ltls[encoders]'"
            ) from error
        try:
            if has_tokenizer:
                tokenizer = tokenizer or AutoTokenizer.from_pretrained(source)
            model = AutoModel.from_pretrained(source, use_safetensors=safe)
        except OSError as error:
            raise OSError(f"encoder={str(source)!r} cannot be loaded: {error}") from error
        return cls(model, tokenizer, pooling, max_length)

    def _longest(self, positions: int | None) -> int | None:
        """Return how many tokens the model takes, as far as it says so."""
        given = [getattr(self.tokenizer, "model_max_length", None), positions]
        known = [each for each in given if each is not None and 0 < each < 10**9]
        return min(known, default=None)

    def forward(self, batch: Any) -> Tensor:
        """Return the vectors of a batch that `inputs` has made."""
        mask = None
        if isinstance(batch, Mapping):
            mask, found = batch.get("attention_mask"), self.model(**batch)
        else:
            found = self.model(batch)
        hidden: Tensor = getattr(found, "last_hidden_state", found)
        if hidden.dim() == 2:
            return hidden
        if self.pooling == "cls":
            return hidden[:, 0]
        if mask is None:
            return hidden.mean(1)
        weights = mask[..., None].to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)

    def inputs(self, rows: Sequence[Any]) -> Any:
        """Return a batch of texts as tokens, or of rows as a tensor."""
        if self.tokenizer is None:
            batch = torch.stack([torch.as_tensor(row) for row in rows])
            return batch.to(self._dtype()) if batch.is_floating_point() else batch
        limit = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        return dict(self.tokenizer(list(rows), padding=True, return_tensors="pt", **limit))

    def _dtype(self) -> torch.dtype:
        """Return the type of the weights."""
        types = (each.dtype for each in self.model.parameters() if each.is_floating_point())
        return next(types, torch.float32)

    def warn_of_long(self, texts: Sequence[str]) -> None:
        """Warn if texts are truncated."""
        if self.tokenizer is None or not self.max_length:
            return
        n_long = 0
        for first in range(0, len(texts), _BATCH):
            batch = self.tokenizer(list(texts[first : first + _BATCH]), verbose=False)
            n_long += sum(len(ids) > self.max_length for ids in batch["input_ids"])
        if n_long:
            warnings.warn(
                f"{n_long:,} of {len(texts):,} texts are longer than max_length={self.max_length} "
                "tokens and are truncated",
                stacklevel=3,
            )

    @torch.no_grad()
    def vectors(
        self,
        rows: Any,
        batch_size: int,
        device: torch.device,
        out: AnyArray,
        mixed_precision: str = "no",
    ) -> None:
        """Write the vectors of all rows into an array, those of similar length together."""
        self.eval().to(device)
        dtype = PRECISIONS[mixed_precision]
        order = np.arange(len(rows))
        if self.tokenizer is not None:
            order = np.argsort([-len(text) for text in rows], kind="stable")
        for first in range(0, len(rows), batch_size):
            some = order[first : first + batch_size]
            batch = on_device(self.inputs([rows[i] for i in some]), device)
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                out[some] = self(batch).float().cpu().numpy()

    @torch.no_grad()
    def vector(self, row: Any, device: torch.device) -> AnyArray:
        """Return the vector of a row."""
        self.eval().to(device)
        found: AnyArray = self(on_device(self.inputs([row]), device))[0].float().cpu().numpy()
        return found

    def size(self, row: Any, device: torch.device) -> int:
        """Return the size of a vector."""
        return len(self.vector(row, device))


def on_device(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device."""
    if isinstance(batch, Mapping):
        return {name: value.to(device) for name, value in batch.items()}
    return batch.to(device)
