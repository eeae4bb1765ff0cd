"""Encoders: from texts or tensors to vectors, and fine-tuned with a trellis head.

Tokenizers and models are those of Hugging Face's transformers, or modules of the user's own.
Mixed precision, gradient accumulation, several GPUs and checkpoints are Accelerate's.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from ..core.arrays import AnyArray, Bools, Ints
from .head import TrellisSoftmax
from .hybrid import HeadScores

_STATE, _BEST = "state.json", "best.safetensors"
_CLIP = 1.0  # the norm of gradients

# Called with the number of the epoch, the loss of some rows, and how many they are.
Report = Callable[[int, float, int], None]


class Encoder(nn.Module):
    """A model that turns texts or tensors into vectors.

    Parameters
    ----------
    model : nn.Module
        Called with what the tokenizer returns, or with a batch of rows. It returns vectors, or a
        sequence of them per row that is pooled, perhaps as `last_hidden_state` of an output.
    tokenizer : callable, optional
        A tokenizer of transformers. Without it, inputs are arrays or tensors.
    pooling : {"mean", "cls"}
        The mean over the tokens of a text, or its first token.
    max_length : int, optional
        Tokens of a text; the rest is truncated. By default as many as the model takes.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, pooling: str, max_length: int | None):
        super().__init__()
        if pooling not in ("mean", "cls"):
            raise ValueError(f"pooling must be 'mean' or 'cls', got {pooling!r}")
        self.model, self.tokenizer, self.pooling = model, tokenizer, pooling
        self.max_length = max_length or self._longest()

    @classmethod
    def load(cls, source: Any, tokenizer: Any, pooling: str, max_length: int | None) -> Encoder:
        """Return the encoder of a module, or of a name or folder of transformers."""
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
        tokenizer = tokenizer or AutoTokenizer.from_pretrained(source)
        return cls(AutoModel.from_pretrained(source), tokenizer, pooling, max_length)

    def _longest(self) -> int | None:
        """Return how many tokens the model takes, as far as it says so."""
        of_tokenizer = getattr(self.tokenizer, "model_max_length", None)
        config = getattr(self.model, "config", None)
        given = [of_tokenizer, getattr(config, "max_position_embeddings", None)]
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
            return torch.stack([torch.as_tensor(row) for row in rows])
        limit = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        return dict(self.tokenizer(list(rows), padding=True, return_tensors="pt", **limit))

    def warn_of_long(self, texts: Sequence[str]) -> None:
        """Warn if texts are truncated; only those that could be are counted."""
        if self.tokenizer is None or not self.max_length:
            return
        some = [text for text in texts if len(text) > self.max_length]
        if not some:
            return
        lengths = [len(ids) for ids in self.tokenizer(some, verbose=False)["input_ids"]]
        n_long = sum(length > self.max_length for length in lengths)
        if n_long:
            warnings.warn(
                f"{n_long:,} of {len(texts):,} texts are longer than max_length={self.max_length} "
                "tokens and are truncated",
                stacklevel=4,
            )

    @torch.no_grad()
    def vectors(self, rows: Any, batch_size: int, device: torch.device, out: AnyArray) -> None:
        """Write the vectors of all rows into an array, those of similar length together."""
        self.eval().to(device)
        order = np.arange(len(rows))
        if self.tokenizer is not None:
            order = np.argsort([-len(text) for text in rows], kind="stable")
        for first in range(0, len(rows), batch_size):
            some = order[first : first + batch_size]
            batch = on_device(self.inputs([rows[i] for i in some]), device)
            out[some] = self(batch).float().cpu().numpy()

    def size(self, row: Any, device: torch.device) -> int:
        """Return the size of a vector."""
        with torch.no_grad():
            self.eval().to(device)
            return self(on_device(self.inputs([row]), device)).shape[1]


def on_device(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device."""
    if isinstance(batch, Mapping):
        return {name: value.to(device) for name, value in batch.items()}
    return batch.to(device)


class Network(nn.Module):
    """An encoder with a head; `forward` returns the loss."""

    def __init__(self, encoder: Encoder, head: TrellisSoftmax) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, batch: Any, target: Tensor) -> Tensor:
        """Return the loss of a batch and its padded targets."""
        return self.head(self.encoder(batch), target).loss


@dataclass(frozen=True)
class Schedule:
    """How a network is fine-tuned; see `EncoderClassifier`."""

    epochs: int
    batch_size: int
    learning_rate: float
    head_learning_rate: float
    weight_decay: float
    warmup: float
    mixed_precision: str
    gradient_accumulation_steps: int
    gradient_checkpointing: bool
    n_iter_no_change: int
    seed: int


class Examples(Protocol):
    """Rows of texts or tensors, with label ids in CSR layout; see `ltls.model.examples`."""

    rows: Any
    indptr: Ints
    labels: Ints

    def __len__(self) -> int: ...

    def contains(self, ids: Ints) -> Bools:
        """Return which of some ids of every row are its labels."""
        ...


def _padded(examples: Examples, rows: Sequence[int]) -> Tensor:
    """Return the labels of some rows, padded with −100."""
    own = [examples.labels[examples.indptr[i] : examples.indptr[i + 1]] for i in rows]
    found = torch.full((len(rows), max(1, *map(len, own))), -100)
    for target, labels in zip(found, own, strict=True):
        target[: len(labels)] = torch.from_numpy(labels)
    return found


def fine_tune(
    network: Network,
    trained: Examples,
    held_out: Examples,
    how: Schedule,
    device: torch.device,
    folder: Path | None,
    resume: bool,
    report: Report,
) -> None:
    """Train a network in place, and end with its best epoch on the held-out rows.

    `folder` has a checkpoint after every epoch; with `resume`, training continues from there.
    """
    try:
        from accelerate import Accelerator, DistributedDataParallelKwargs
    except ImportError as error:
        raise ImportError("fine_tune needs accelerate: pip install 'ltls[encoders]'") from error
    accelerator = Accelerator(
        mixed_precision=how.mixed_precision,
        gradient_accumulation_steps=how.gradient_accumulation_steps,
        cpu=device.type == "cpu",
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
    )
    if how.gradient_checkpointing:
        body = network.encoder.model
        older = getattr(body, "gradient_checkpointing_enable", None)
        enable = getattr(body, "activation_checkpointing_enable", older)  # of transformers 5
        if enable is None:
            raise ValueError("gradient_checkpointing=True needs a model of transformers")
        enable()
    optimizer, scheduler = _optimizer(network, how, len(trained))
    loader = torch.utils.data.DataLoader(
        range(len(trained)),
        how.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(how.seed),
        collate_fn=lambda rows: (
            network.encoder.inputs([trained.rows[i] for i in rows]),
            _padded(trained, rows),
        ),
    )
    model, optimizer, loader, scheduler = accelerator.prepare(network, optimizer, loader, scheduler)
    state: dict[str, Any] = {"epoch": 0, "best": -1.0, "no_change": 0}
    if resume and folder is not None and (folder / _STATE).exists():
        state = json.loads((folder / _STATE).read_text())
        accelerator.load_state(str(folder / f"epoch-{state['epoch']}"))
    best = None
    for epoch in range(state["epoch"], how.epochs):
        if state["no_change"] >= how.n_iter_no_change:
            break
        model.train()
        for batch, target in loader:
            with accelerator.accumulate(model):
                loss = model(batch, target)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), _CLIP)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            report(epoch + 1, loss.item() * len(target), len(target))
        precision = _precision(network, held_out, how.batch_size, accelerator.device)
        better = precision > state["best"] or not len(held_out)
        state["epoch"], state["no_change"] = epoch + 1, 0 if better else state["no_change"] + 1
        if better:
            state["best"] = precision
            best = {name: each.cpu().clone() for name, each in network.state_dict().items()}
        if folder is not None:
            _save(accelerator, network, folder, state, better)
    if best is not None:
        network.load_state_dict(best)
    elif folder is not None and (folder / _BEST).exists():
        load_model(network, folder / _BEST)
    accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    accelerator.free_memory()


def _optimizer(network: Network, how: Schedule, n_rows: int) -> tuple[Any, Any]:
    """Return AdamW, with a rate of its own for the head, and a linear schedule with warm-up."""
    groups = [
        {"params": network.encoder.parameters(), "lr": how.learning_rate},
        {"params": network.head.parameters(), "lr": how.head_learning_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=how.weight_decay)
    per_epoch = math.ceil(math.ceil(n_rows / how.batch_size) / how.gradient_accumulation_steps)
    total = max(how.epochs * per_epoch, 1)
    first = how.warmup * total

    def factor(step: int) -> float:
        return min((step + 1) / (first + 1), max(1 - step / total, 0.0))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _save(
    accelerator: Any, network: Network, folder: Path, state: dict[str, Any], better: bool
) -> None:
    """Save the state of training; the one before is removed when this one is complete."""
    accelerator.save_state(str(folder / f"epoch-{state['epoch']}"))
    if accelerator.is_main_process:
        if better:
            save_model(network, str(folder / _BEST))
        (folder / f"{_STATE}.new").write_text(json.dumps(state))
        (folder / f"{_STATE}.new").replace(folder / _STATE)
        shutil.rmtree(folder / f"epoch-{state['epoch'] - 1}", ignore_errors=True)
    accelerator.wait_for_everyone()


def _precision(
    network: Network, examples: Examples, batch_size: int, device: torch.device
) -> float:
    """Return P@1 of the head."""
    if not len(examples):
        return -1.0
    vectors = np.empty((len(examples), network.head.in_features), np.float32)
    network.encoder.vectors(examples.rows, batch_size, device, vectors)
    return float(examples.contains(HeadScores(network.head, vectors, False).best(1)).mean())
