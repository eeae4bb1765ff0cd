"""Files of encoders and their classifiers, without pickle; folders of checkpoints."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn

from ..core.arrays import Tensors
from ..core.atomic import is_version, new_folder, synchronize_tree
from ..estimators.classifier import LTLSClassifier
from ..estimators.front_ends import TextClassifier
from ..estimators.load import load
from ..model.examples import Examples
from ..model.model import Model
from ..parts.calibration import Calibrator
from ..storage.model_file import labels_from_state, labels_state
from ..storage.tensor_file import (
    Kind,
    ModelFileError,
    TensorFile,
    damage_reported,
    decode_parameters,
    encode,
    encode_parameters,
    write_content,
)
from .encoding import Encoder
from .fine_tuning import FineTuning
from .head_files import head_from_state, head_state
from .hybrid import Stages
from .pretrained import is_sentence_transformer
from .processes import Processes

CLASSIFIER = Kind("classifier with an encoder", "ltls-encoder", version=1)
_FILE, _ENCODER, _WEIGHTS = "classifier.ltls", "encoder", "model.safetensors"
_TOKENIZER = "tokenizer_config.json"  # which transformers writes
_PARTS: dict[str, type[LTLSClassifier]] = {"vectors": LTLSClassifier, "text": TextClassifier}
_FORMATS = ("single", "lists", "sparse", "dense")
_MOST = 1 << 31


def save(path: Path, encoder: Encoder, model: Model, options: FineTuning) -> None:
    """Save a model to a folder, so that there is always the old version or the new one.

    The file of the classifier is replaced last, and names the folder of the other files.
    """
    path.mkdir(parents=True, exist_ok=True)
    with new_folder(path, lambda: _version(path / _FILE)) as folder:
        described, tensors = _state(encoder, model)
        parameters = {each.name: getattr(options, each.name) for each in fields(FineTuning)}
        parameters |= {"pooling": encoder.pooling, "max_length": encoder.max_length}
        described |= {"parameters": encode_parameters(parameters), "version": folder.name}
        content = encode(CLASSIFIER, described, tensors)
        try:
            _read(TensorFile(path / _FILE, CLASSIFIER, content=content))
        except ModelFileError as error:
            raise ValueError(f"it cannot be saved: {error.__cause__ or error}") from error
        _save_encoder(encoder, folder / _ENCODER)
        for name, part in _estimators(model).items():
            part.save(folder / f"{name}.ltls")
        synchronize_tree(folder)
        write_content(path / _FILE, content)


def _save_encoder(encoder: Encoder, folder: Path) -> None:
    folder.mkdir()
    if encoder.is_pretrained:
        model: Any = encoder.model
        model.save_pretrained(folder)
    else:
        save_model(encoder.model, str(folder / _WEIGHTS))
    if hasattr(encoder.tokenizer, "save_pretrained"):
        encoder.tokenizer.save_pretrained(folder)


def _state(encoder: Encoder, model: Model) -> tuple[dict[str, Any], Tensors]:
    (stages,) = model.parts
    described, tensors = labels_state(model.labels)
    calibration, _ = model.calibration.state()
    described |= {
        "pretrained": encoder.is_pretrained,
        "tokenizer": encoder.tokenizer is not None,
        "parts": list(_estimators(model)),
        "weights": stages.weights,
        "calibration": calibration,
        "target_format": model.target_format,
        "typical_labels": model.typical_labels,
    }
    if (head := stages.trained("head")) is not None:
        described["head"], own = head_state(head)
        tensors |= {f"head.{name}": tensor for name, tensor in own.items()}
    return described, tensors


def _estimators(model: Model) -> dict[str, LTLSClassifier]:
    """Return the estimators among the stages of a model."""
    (stages,) = model.parts
    return {name: stages.trained(name) for name in _PARTS if name in stages.by_name}


def load_saved(
    path: Path, encoder: nn.Module | None, tokenizer: Any, device: torch.device
) -> tuple[Encoder, Model, FineTuning]:
    """Return what `save` has written; see `EncoderClassifier.load`."""
    file = TensorFile(path / _FILE, CLASSIFIER)
    file.verify(list(file.tensors))
    found = _read(file)
    folder = path / found["version"]
    source: Any = folder / _ENCODER
    if not found["pretrained"]:
        if encoder is None:
            raise ValueError("encoder must be a module like the one that was saved, got None")
        try:
            load_model(encoder, str(source / _WEIGHTS))
        except (SafetensorError, RuntimeError) as error:
            raise ModelFileError(f"{source / _WEIGHTS} is not of this encoder: {error}") from error
        source = encoder
    has_own = is_sentence_transformer(encoder) or (
        found["pretrained"] and (folder / _ENCODER / _TOKENIZER).exists()
    )
    if found["tokenizer"] and tokenizer is None and not has_own:
        raise ValueError("tokenizer must be one like that of the saved model, got None")
    given = found["parameters"]
    network = Encoder.load(
        source, tokenizer, given.pooling, given.max_length, True, found["tokenizer"]
    )
    parts, n_labels = {}, len(found["labels"])
    for name in found["parts"]:
        parts[name] = part = load(folder / f"{name}.ltls", verify=True)
        ids = part.classes_
        if not isinstance(part, _PARTS[name]) or ids.dtype.kind != "i" or ids.min() < 0:
            raise ModelFileError(f"{folder / name}.ltls is not a classifier of {name} with ids")
        if ids.max() >= n_labels:
            raise ModelFileError(f"{folder / name}.ltls has labels that {path / _FILE} lacks")
    head = None if found["head"] is None else found["head"].to(device)
    several = found["target_format"] != "single"
    stages = Stages.of(head, parts.get("vectors"), parts.get("text"), several, found["weights"])
    names = ("labels", "calibration", "target_format", "typical_labels")
    return network, stages.model(*(found[name] for name in names)), given


def _version(path: Path) -> str | None:
    """Return the name of the folder that a file of a classifier names, None if there is none."""
    try:
        return str(TensorFile(path, CLASSIFIER).description["version"])
    except (OSError, ModelFileError, LookupError, TypeError):
        return None


def _read(file: TensorFile) -> dict[str, Any]:
    """Return what a file says, checked."""
    with damage_reported(file.path):
        root = file.section(verify=True)
        labels, parts = labels_from_state(root), root.texts("parts")
        if len(set(parts)) != len(parts) or not set(parts) <= _PARTS.keys():
            raise ValueError(f"parts must be among {', '.join(_PARTS)}, got {parts}")
        head = head_from_state(root.section("head"), len(labels)) if root.has("head") else None
        weights, names = root.section("weights"), [*(["head"] if head else []), *parts]
        if not names:
            raise ValueError("it has neither a head nor parts")
        target_format = root.choice("target_format", _FORMATS)
        several, calibration = target_format != "single", root.section("calibration")
        parameters = root.get("parameters", "an object", lambda v: isinstance(v, dict))
        found = {
            "labels": labels,
            "parts": parts,
            "head": head,
            "weights": {name: weights.number(name, 0, 1) for name in names},
            "calibration": Calibrator.from_state(calibration, several),
            "target_format": target_format,
            "typical_labels": root.integer("typical_labels", 1, _MOST),
            "parameters": FineTuning.from_dict(decode_parameters(parameters)),
            "pretrained": root.flag("pretrained"),
            "tokenizer": root.flag("tokenizer"),
            "version": root.get("version", "the name of a folder", is_version),
        }
        root.check_all_read()
        root.check_all_taken()
        return found


# Checkpoints


@contextmanager
def checkpoint_folder(
    checkpoint: Any,
    resume: bool,
    examples: Examples,
    encoder: Encoder,
    parameters: dict[str, Any],
    seed: int,
    processes: Processes,
) -> Iterator[tuple[Path, int]]:
    """Yield the folder of a checkpoint, or a temporary one, and the seed that training began with.

    With `resume`, the seed is that of the checkpoint: its vectors are in the order of its rows.
    All processes get the folder of the first one.
    """
    if checkpoint is None and resume:
        raise ValueError("resume=True needs checkpoint, the folder to continue from")

    def begun() -> tuple[Path, int]:
        if checkpoint is None:
            return Path(name), seed
        fingerprint = _fingerprint(examples, encoder, parameters)
        return Path(checkpoint), _begun(Path(checkpoint), resume, fingerprint, seed)

    temporary = checkpoint is None and processes.is_first
    with tempfile.TemporaryDirectory() if temporary else nullcontext("") as name:
        folder, seed = processes.first(begun)
        if not folder.is_dir():
            raise FileNotFoundError(
                "checkpoint must be a folder that all processes share, got "
                f"{checkpoint!r}: there is no {folder}"
            )
        yield folder, seed


def _begun(folder: Path, resume: bool, fingerprint: str, seed: int) -> int:
    """Begin a checkpoint, or check that it can be resumed; return its seed."""
    about = folder / "data.json"
    if resume:
        if not about.exists():
            raise FileNotFoundError(f"resume=True: there is no checkpoint in {folder}")
        stored = json.loads(about.read_text())
        if stored["fingerprint"] != fingerprint:
            raise ValueError(f"resume=True: {folder} has a checkpoint of other data or parameters")
        return int(stored["seed"])
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("state.json", "best.safetensors", "vectors.npy"):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob("epoch-[0-9]*"):
        shutil.rmtree(path, ignore_errors=True)
    about.write_text(json.dumps({"fingerprint": fingerprint, "seed": seed}))
    return seed


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
    others = ["encoder", "tokenizer", "vectors", "text", "device", "n_jobs", "verbose"]
    if not isinstance(parameters["random_state"], Integral):
        others.append("random_state")  # what it would draw is in the checkpoint
    # What saves memory may change, as long as every step is on the same rows.
    others += ["batch_size", "gradient_accumulation_steps", "gradient_checkpointing"]
    rows_per_step = parameters["batch_size"] * parameters["gradient_accumulation_steps"]
    scales = parameters["mixed_precision"] == "fp16"  # gradients, by a factor in the checkpoint
    kept = {k: v for k, v in parameters.items() if k not in [*others, "mixed_precision"]}
    with np.printoptions(threshold=sys.maxsize):  # all numbers of an array
        found.update(repr((kept, parameters["fine_tune"] and rows_per_step, scales)).encode())
    return found.hexdigest()
