"""Files of an encoder and its head, safetensors and JSON without pickle; folders of checkpoints."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from ..model.examples import Examples
from ..model.labels import Labels
from ..storage.tensor_file import decode_labels, encode_labels
from ..structure.codebook import TableCodebook
from .fine_tuning import Encoder
from .head import TrellisSoftmax

_FORMAT = 1
_ENCODER, _WEIGHTS, _HEAD = "encoder", "model.safetensors", "head.safetensors"


def save_network(
    path: Path, encoder: Encoder, head: TrellisSoftmax | None, labels: Labels
) -> dict[str, Any]:
    """Save an encoder, its head and labels to a folder; return what is to be known of them."""
    (path / _ENCODER).mkdir(exist_ok=True)
    pretrained = hasattr(encoder.model, "save_pretrained")
    if pretrained:
        encoder.model.save_pretrained(path / _ENCODER)
    else:
        save_model(encoder.model, str(path / _ENCODER / _WEIGHTS))
    if hasattr(encoder.tokenizer, "save_pretrained"):
        encoder.tokenizer.save_pretrained(path / _ENCODER)
    kind, values = encode_labels(labels.values)
    tensors = {"labels": torch.from_numpy(np.array(values))}
    described: dict[str, Any] = {
        "format": _FORMAT,
        "labels": kind,
        "pretrained": pretrained,
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
    }
    if head is not None:
        head = deepcopy(head).cpu()
        tensors |= {f"head.{name}": each for name, each in head.edges.state_dict().items()}
        tensors["paths"] = head.codebooks[0].path_of(torch.arange(head.n_classes)).to(torch.int64)
        described["head"] = {
            "in_features": head.in_features,
            "width": head.width,
            "loss": head.loss_name,
            "bias": head.edges.bias is not None,
            "unit_length": head.unit_length,
            "n_paths": head.layout.n_classes,
        }
    save_file({name: each.contiguous() for name, each in tensors.items()}, path / _HEAD)
    return described


def load_network(
    path: Path,
    described: dict[str, Any],
    encoder: nn.Module | None,
    tokenizer: Any,
    device: torch.device,
) -> tuple[Encoder, TrellisSoftmax | None, Labels]:
    """Return an encoder, its head and labels from a folder; see `EncoderClassifier.load`."""
    if described.get("format") != _FORMAT:
        raise ValueError(f"{path} must have format {_FORMAT}, got {described.get('format')}")
    source: Any = path / _ENCODER
    if not described["pretrained"]:
        if encoder is None:
            raise ValueError("encoder must be a module like the one that was saved, got None")
        load_model(encoder, str(source / _WEIGHTS))
        source = encoder
    network = Encoder.load(source, tokenizer, described["pooling"], described["max_length"])
    tensors = load_file(path / _HEAD)
    labels = Labels(decode_labels(described["labels"], tensors.pop("labels").numpy()))
    return network, _head(described.get("head"), tensors, device), labels


def _head(
    described: dict[str, Any] | None, tensors: dict[str, Tensor], device: torch.device
) -> TrellisSoftmax | None:
    """Return the head of a saved model."""
    if described is None:
        return None
    given, paths = dict(described), tensors["paths"]
    book = TableCodebook(given.pop("n_paths"), paths.numpy())
    head = TrellisSoftmax(n_classes=len(paths), assignment=book, **given)
    own = {name[5:]: each for name, each in tensors.items() if name.startswith("head.")}
    head.edges.load_state_dict(own)
    return head.to(device)


# Checkpoints


@contextmanager
def checkpoint_folder(
    checkpoint: Any, resume: bool, examples: Examples, encoder: Encoder, parameters: dict[str, Any]
) -> Iterator[Path]:
    """Yield the folder of a checkpoint of this training, or a temporary one."""
    if checkpoint is None:
        if resume:
            raise ValueError("resume=True needs checkpoint, the folder to continue from")
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
        return
    folder, mine = Path(checkpoint), _fingerprint(examples, encoder, parameters)
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "data.json"
    if resume and not stored.exists():
        raise FileNotFoundError(f"resume=True: there is no checkpoint in {folder}")
    if resume and json.loads(stored.read_text())["fingerprint"] != mine:
        raise ValueError(f"resume=True: {folder} has a checkpoint of other data or parameters")
    if not resume:
        (folder / "state.json").unlink(missing_ok=True)
        (folder / "vectors.npy").unlink(missing_ok=True)
        stored.write_text(json.dumps({"fingerprint": mine, "time": int(time.time())}))
    yield folder


def _fingerprint(examples: Examples, encoder: Encoder, parameters: dict[str, Any]) -> str:
    """Return a hash of the rows, the labels and what training depends on."""
    found = hashlib.sha256()
    rows: Any = examples.rows  # texts, or what the encoder takes
    for row in rows:
        found.update(row.encode() if isinstance(row, str) else np.asarray(row).tobytes())
        found.update(b"\0")
    for array in (examples.indptr, examples.labels):
        found.update(array.tobytes())
    for name, value in encoder.state_dict().items():
        found.update(f"{name} {tuple(value.shape)}".encode())
    others = ("encoder", "tokenizer", "vectors", "text", "device", "n_jobs", "verbose")
    found.update(repr({k: v for k, v in parameters.items() if k not in others}).encode())
    return found.hexdigest()
