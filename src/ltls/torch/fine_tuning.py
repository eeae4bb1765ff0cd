"""Fine-tuning: an encoder is trained with a trellis head.

Mixed precision, gradient accumulation, several GPUs and checkpoints are Accelerate's.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from ..core.settings import FLAG, NOTHING, Integer, Number, OneOf, Settings, setting, settings
from ..model.examples import Examples
from ..training.progress import EpochStats, log_epoch, progress_bar
from .encoding import PRECISIONS, Encoder
from .head_files import Head
from .hybrid import HeadStage
from .pretrained import POOLINGS

_STATE, _BEST = "state.json", "best.safetensors"
_MOST = 1 << 31  # rows of a mini-batch, or tokens
_CLIP = 1.0  # the norm of gradients


@settings
class FineTuning(Settings):
    """How rows are encoded, and a network is fine-tuned."""

    pooling: str | None = setting(
        OneOf(POOLINGS),
        NOTHING,
        default=None,
        help="How a sequence of vectors becomes one: by its mean or maximum, or its first or last "
        "one. By default, as a model of sentence-transformers does it, and otherwise by the mean.",
    )
    max_length: int | None = setting(
        Integer(1, _MOST),
        NOTHING,
        default=None,
        help="Maximum number of tokens of a text; longer texts are truncated, with a warning in "
        "`fit`. By default, as many as the encoder takes.",
    )
    epochs: int = setting(
        Integer(1), default=3, help="Maximum number of passes over the rows in fine-tuning."
    )
    batch_size: int = setting(
        Integer(1, _MOST),
        default=32,
        help="Number of rows per mini-batch and process, in fine-tuning and when rows are encoded.",
    )
    learning_rate: float = setting(
        Number(above=0), default=5e-5, help="Step size of AdamW for the encoder."
    )
    head_learning_rate: float = setting(
        Number(above=0), default=3e-3, help="Step size of AdamW for the head."
    )
    weight_decay: float = setting(Number(0), default=0.01, help="Weight decay of AdamW.")
    warmup: float = setting(
        Number(0, 1),
        default=0.1,
        help="Fraction of all steps in which the learning rates increase linearly; then they "
        "decrease to 0.",
    )
    mixed_precision: str = setting(
        OneOf(PRECISIONS),
        default="no",
        help='Floating-point type of fine-tuning and of encoding rows, or "no" for full precision.',
    )
    gradient_accumulation_steps: int = setting(
        Integer(1),
        default=1,
        help="Number of mini-batches per optimizer step. More of them with a smaller `batch_size` "
        "take less memory.",
    )
    gradient_checkpointing: bool = setting(
        FLAG,
        default=False,
        help="Recompute activations in the backward pass, which saves memory. Requires a model of "
        "transformers.",
    )
    n_iter_no_change: int = setting(
        Integer(1),
        default=2,
        help="Fine-tuning ends after this many epochs without a higher P@1 on the held-out rows.",
    )
    verbose: int = setting(Integer(0), FLAG, default=0, help="If above 0, show progress.")


class Network(nn.Module):
    """An encoder with a head; `forward` returns the loss."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, batch: Any, target: Tensor) -> Tensor:
        """Return the loss of a batch and its padded targets."""
        return self.head(self.encoder(batch), target).loss


def fine_tune(
    network: Network,
    trained: Examples,
    held_out: Examples,
    options: FineTuning,
    seed: int,
    device: torch.device,
    folder: Path | None,
    resume: bool,
) -> None:
    """Train a network in place, and end with its best epoch on the held-out rows.

    `folder` gets a checkpoint after every epoch; with `resume`, training continues from there.
    """
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(gpus), _accelerator(options, device) as accelerator:
        torch.manual_seed(seed + accelerator.process_index)  # dropout
        if options.gradient_checkpointing:
            _checkpoint_gradients(network.encoder.model)
        optimizer, scheduler = _optimizer(network, options, len(trained))
        order = torch.Generator()
        loader = torch.utils.data.DataLoader(
            range(len(trained)),
            options.batch_size,
            shuffle=True,
            generator=order,
            collate_fn=lambda rows: (
                network.encoder.inputs([trained.rows[i] for i in rows]),
                _padded(trained, rows),
            ),
        )
        prepared = accelerator.prepare(network, optimizer, loader, scheduler)
        state: dict[str, Any] = {"epoch": 0, "best": -1.0, "no_change": 0}
        if resume and folder is not None and (folder / _STATE).exists():
            state = json.loads((folder / _STATE).read_text())
            accelerator.load_state(str(folder / f"epoch-{state['epoch']}"))
        best, verbose = None, bool(options.verbose) and accelerator.is_main_process
        done = state["epoch"]
        with progress_bar(verbose, options.epochs, len(trained), done) as show:
            for epoch in range(done + 1, options.epochs + 1):
                if state["no_change"] >= options.n_iter_no_change:
                    break
                order.manual_seed(seed + epoch)  # that of a checkpoint is not restored
                start, stats = time.perf_counter(), EpochStats()
                for loss, n_rows in _epoch(accelerator, *prepared):
                    stats.add(loss, 0.0, n_rows)
                    show(epoch, stats, n_rows * accelerator.num_processes)
                precision = _precision(network, held_out, options, accelerator)
                seconds = time.perf_counter() - start
                log_epoch(verbose, epoch, options.epochs, stats, seconds, precision, "labels")
                better = precision > state["best"] or not len(held_out)
                no_change = 0 if better else state["no_change"] + 1
                highest = precision if better else state["best"]
                state = {"epoch": epoch, "best": highest, "no_change": no_change}
                if better:
                    best = {name: each.cpu().clone() for name, each in network.state_dict().items()}
                if folder is not None:
                    _save(accelerator, network, folder, state, better)
        if best is not None:
            network.load_state_dict(best)
        elif folder is not None and (folder / _BEST).exists():
            load_model(network, folder / _BEST)
        accelerator.unwrap_model(prepared[0], keep_fp32_wrapper=False)
        accelerator.free_memory()


@contextmanager
def _accelerator(options: FineTuning, device: torch.device) -> Iterator[Any]:
    """Yield an `Accelerator`, whose global settings end with it unless they were there before."""
    try:
        from accelerate import Accelerator, DistributedDataParallelKwargs
        from accelerate.state import AcceleratorState, PartialState, is_initialized
    except ImportError as error:
        raise ImportError("fine_tune needs accelerate: pip install 'ltls[encoders]'") from error
    before = is_initialized()
    try:
        yield Accelerator(
            mixed_precision=options.mixed_precision,
            gradient_accumulation_steps=options.gradient_accumulation_steps,
            cpu=device.type == "cpu",
            kwargs_handlers=[
                DistributedDataParallelKwargs(
                    broadcast_buffers=False,
                    find_unused_parameters=True,  # such as the pooler of BERT
                )
            ],
        )
    finally:
        if not before:  # a group of processes stays
            AcceleratorState._reset_state(PartialState().num_processes == 1)


def _checkpoint_gradients(model: nn.Module) -> None:
    older = getattr(model, "gradient_checkpointing_enable", None)
    enable = getattr(model, "activation_checkpointing_enable", older)  # of transformers 5
    if enable is None:
        raise ValueError(
            f"gradient_checkpointing=True needs a model of transformers, got {type(model).__name__}"
        )
    enable()


def _epoch(
    accelerator: Any, model: Any, optimizer: Any, loader: Any, scheduler: Any
) -> Iterator[tuple[float, int]]:
    """Train on all rows; yield the summed loss, and the number of rows, of every mini-batch."""
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
        yield loss.item() * len(target), len(target)


def _padded(examples: Examples, rows: Sequence[int]) -> Tensor:
    """Return the labels of some rows, padded with −100."""
    own = [examples.labels[examples.indptr[i] : examples.indptr[i + 1]] for i in rows]
    found = torch.full((len(rows), max(1, *map(len, own))), -100)
    for target, labels in zip(found, own, strict=True):
        target[: len(labels)] = torch.from_numpy(labels)
    return found


def _optimizer(network: Network, options: FineTuning, n_rows: int) -> tuple[Any, Any]:
    """Return AdamW, with a rate of its own for the head, and a linear schedule with warm-up."""
    groups = [
        {"params": network.encoder.parameters(), "lr": options.learning_rate},
        {"params": network.head.parameters(), "lr": options.head_learning_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=options.weight_decay)
    per_epoch = math.ceil(
        math.ceil(n_rows / options.batch_size) / options.gradient_accumulation_steps
    )
    total = max(options.epochs * per_epoch, 1)
    first = options.warmup * total

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
    network: Network, examples: Examples, options: FineTuning, accelerator: Any
) -> float:
    """Return P@1 of the head, that of the first process: all must end after the same epoch."""
    if not len(examples):
        return -1.0
    from accelerate.utils import broadcast_object_list

    vectors = np.empty((len(examples), network.head.in_features), np.float32)
    encoding = options.batch_size, accelerator.device, vectors, options.mixed_precision
    network.encoder.vectors(examples.rows, *encoding)
    best = HeadStage(network.head, False).best(vectors, 1)
    found = [float(examples.contains(best).mean())]
    return float(broadcast_object_list(found)[0])
