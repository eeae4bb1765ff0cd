"""Encoders: from texts or tensors to vectors.

Tokenizers and models are those of Hugging Face's transformers, or modules of the user's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.arrays import AnyArray, as_integer
from ..training.progress import row_bar
from .pretrained import is_sentence_transformer, load_pretrained

PRECISIONS = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_BATCH = 1024  # texts whose tokens are counted


class Encoder(nn.Module):
    """A model that turns texts or tensors into vectors.

    Parameters
    ----------
    model : nn.Module
        Called with the result of the tokenizer, or with a batch of rows. It returns a vector per
        row, or a sequence of vectors per row, which is pooled; either as a tensor or as the
        `last_hidden_state` of an output of transformers. A `SentenceTransformer` is called as it
        is there.
    tokenizer : callable, optional
        A tokenizer of transformers. Without it, inputs are arrays or tensors.
    pooling : {"mean", "cls", "max", "lasttoken"}
        The mean or the maximum over the tokens of a text, or its first or last token.
    max_length : int, optional
        Tokens of a text; the rest is truncated. By default as many as the model takes.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, pooling: str, max_length: int | None):
        super().__init__()
        self.model, self.tokenizer, self.pooling = model, tokenizer, pooling
        config = getattr(model, "config", None)
        positions = getattr(config, "max_position_embeddings", None)
        if max_length is not None:
            most = positions if positions is not None and positions > 0 else None
            max_length = as_integer("max_length", max_length, at_least=1, at_most=most)
        self._prepares_texts = is_sentence_transformer(model)
        if self._prepares_texts:
            own: Any = model
            if tokenizer is not None:
                own.tokenizer = tokenizer
            if max_length is not None:
                own.max_seq_length = max_length
            self.tokenizer, positions = own.tokenizer, own.max_seq_length
        self._has_decoder = not self._prepares_texts and getattr(
            config, "is_encoder_decoder", False
        )
        self.max_length = max_length or self._longest(positions)

    @classmethod
    def load(
        cls,
        source: Any,
        tokenizer: Any,
        pooling: str | None,
        max_length: int | None,
        safe: bool | None = None,
        has_tokenizer: bool = True,
    ) -> Encoder:
        """Return the encoder of a module, or of a name or folder of transformers.

        With `safe`, no weights are read but those in safetensors files. Without a tokenizer, inputs
        are arrays or tensors.
        """
        if isinstance(source, nn.Module):
            return cls(source, tokenizer, pooling or "mean", max_length)
        found = load_pretrained(source, tokenizer, pooling, safe, has_tokenizer)
        return cls(*found, max_length)

    @property
    def is_pretrained(self) -> bool:
        """Whether transformers saves and loads the model."""
        return hasattr(self.model, "save_pretrained") and not self._prepares_texts

    def _longest(self, positions: int | None) -> int | None:
        """Return how many tokens the model takes, as far as it says so."""
        given = [getattr(self.tokenizer, "model_max_length", None), positions]
        known = [each for each in given if each is not None and 0 < each < 10**9]
        return min(known, default=None)

    def forward(self, batch: Any) -> Tensor:
        """Return the vectors of a batch that `inputs` has made, in float32.

        Those of texts without tokens are 0.
        """
        mask = None
        if isinstance(batch, Mapping):
            mask, found = batch.get("attention_mask"), self._outputs(batch)
        else:
            found = self.model(batch)
        hidden: Tensor = getattr(found, "last_hidden_state", found).float()
        pooled = hidden if hidden.dim() == 2 else self._pooled(hidden, mask)
        return pooled if mask is None else torch.where(mask.any(1, keepdim=True), pooled, 0)

    def _outputs(self, batch: Mapping[str, Tensor]) -> Any:
        if self._prepares_texts:
            return self.model(dict(batch))["sentence_embedding"]  # it adds to the dict
        model: Any = self.model
        return (model.get_encoder() if self._has_decoder else model)(**batch)

    def _pooled(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            mask = hidden.new_ones(hidden.shape[:2])
        if self.pooling == "mean":
            weights = mask[..., None].to(hidden.dtype)
            return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
        if self.pooling == "max":
            return hidden.masked_fill(mask[..., None] == 0, -torch.inf).amax(1)
        is_token = (mask > 0).long()  # padding is on the right, or on the left
        at = is_token.argmax(1)
        if self.pooling == "lasttoken":
            at = mask.shape[1] - 1 - is_token.flip(1).argmax(1)
        return hidden[torch.arange(len(hidden), device=hidden.device), at]

    def inputs(self, rows: Sequence[Any]) -> Any:
        """Return a batch of texts as tokens, or of rows as a tensor."""
        if self.tokenizer is None:
            batch = torch.stack([torch.as_tensor(row) for row in rows])
            return batch.to(self._dtype()) if batch.is_floating_point() else batch
        tokens = self._tokens(list(rows))
        ids = tokens.get("input_ids")
        if ids is None or ids.dim() != 2 or ids.shape[1]:
            return tokens
        # No text has a token, and models need one, which the mask leaves out.
        names = {*tokens, "attention_mask"}
        return {name: torch.zeros((len(rows), 1), dtype=torch.long) for name in names}

    def _tokens(self, texts: list[str]) -> dict[str, Tensor]:
        if self._prepares_texts:
            model: Any = self.model
            prepared = getattr(model, "preprocess", model.tokenize)(texts)  # its new name
            return {name: each for name, each in prepared.items() if isinstance(each, Tensor)}
        limit = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        return dict(self.tokenizer(texts, padding=True, return_tensors="pt", **limit))

    def _dtype(self) -> torch.dtype:
        """Return the type of the weights."""
        types = (each.dtype for each in self.model.parameters() if each.is_floating_point())
        return next(types, torch.float32)

    def warn_of_long(self, texts: Sequence[str]) -> None:
        """Warn if texts are truncated."""
        if not callable(self.tokenizer) or not self.max_length:
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
        verbose: bool = False,
    ) -> None:
        """Write the vectors of all rows into an array, those of similar length together."""
        self.eval().to(device)
        dtype = PRECISIONS[mixed_precision]
        order = np.arange(len(rows))
        if self.tokenizer is not None:
            order = np.argsort([-len(text) for text in rows], kind="stable")
        with row_bar(verbose, "encoding", len(rows)) as advance:
            for first in range(0, len(rows), batch_size):
                some = order[first : first + batch_size]
                batch = on_device(self.inputs([rows[i] for i in some]), device)
                with torch.autocast(device.type, dtype, enabled=dtype is not None):
                    out[some] = self(batch).cpu().numpy()
                advance(len(some))

    @torch.no_grad()
    def vector(self, row: Any, device: torch.device) -> AnyArray:
        """Return the vector of a row."""
        self.eval().to(device)
        found: AnyArray = self(on_device(self.inputs([row]), device))[0].cpu().numpy()
        return found

    def size(self, row: Any, device: torch.device) -> int:
        """Return the size of a vector."""
        return len(self.vector(row, device))


def on_device(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device."""
    if isinstance(batch, Mapping):
        return {name: value.to(device) for name, value in batch.items()}
    return batch.to(device)
