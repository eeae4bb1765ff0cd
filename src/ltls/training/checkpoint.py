"""Checkpoints: the state of training between two mini-batches; resuming is bit-identical.

A checkpoint is a tensor file (`ltls.storage.tensor_file`) with the weights, the optimizer state,
the codebooks, the held-out rows, the best weights so far, the state of the random generator at the
start of the epoch, and the number of rows trained on since then.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import AnyArray, Tensors
from ..core.atomic import remove_abandoned
from ..core.declarations import Array, Described
from ..core.settings import Settings
from ..features.blocks import Blocks
from ..parts.trellis_training import TrellisTraining
from ..parts.trellises import codebooks_from_state, codebooks_state
from ..storage.tensor_file import Kind, TensorFile, damage_reported, encode_parameters, write
from ..structure.codebook import BucketCodebook, Codebook
from .data import Source
from .progress import EpochStats
from .trainer import TrainerState

_CHECKPOINT = Kind("checkpoint", "ltls-checkpoint", version=1)
_FREE = {"trellises__epochs", "n_jobs", "verbose"}  # parameters that may differ in resuming


@dataclass
class Checkpoint:
    """Where `LTLSClassifier.fit` saves the training state, and whether to resume from it.

    The state is saved after every epoch, and when Ctrl-C or another signal that Python handles ends
    the training.

    Parameters
    ----------
    path : path-like
        The file, replaced atomically.
    resume : bool, default=False
        Continue from the state in the file. The result is bit-identical to that of uninterrupted
        training. Rows, labels and parameters must be the same, except for epochs, `n_jobs` and
        `verbose`.
    seconds : float, default=0
        Minimum time between two checkpoints. The last one, and one at an interruption, are always
        written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import load_digits
    >>> from ltls import Checkpoint, LTLSClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "digits.checkpoint")
    ...     first = LTLSClassifier(random_state=0).set_params(trellises__epochs=2)
    ...     first = first.fit(X, y, checkpoint=path)
    ...     model = LTLSClassifier(random_state=0).set_params(trellises__epochs=5)
    ...     model = model.fit(X, y, checkpoint=Checkpoint(path, resume=True))
    >>> whole = LTLSClassifier(random_state=0).set_params(trellises__epochs=5).fit(X, y)
    >>> bool((model.coef_ == whole.coef_).all())
    True
    """

    path: str | os.PathLike[str]
    resume: bool = False
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._written = time.monotonic()
        self._state = TrainerState()

    def check(self) -> None:
        """Raise an error if the file is not a checkpoint, or missing when resuming."""
        path = Path(self.path)
        if path.exists():
            TensorFile(path, _CHECKPOINT)
        elif self.resume:
            raise ValueError(f"{path}: there is no checkpoint to resume from; start without resume")

    @property
    def completed(self) -> bool:
        """Whether the training that used this object ran to its end, without an interruption."""
        return self._state.completed

    def begin(self, parameters: dict[str, Any]) -> None:
        """Record the parameters, which must not change when training is resumed."""
        self.check()
        remove_abandoned(self.path)
        self._parameters = _as_json(parameters)
        self._digest = hashlib.blake2b(digest_size=16)

    def add_rows(self, X: Any, *arrays: AnyArray | None) -> None:
        """Add rows to the fingerprint of the training data: features, labels and weights."""
        self._digest.update(repr(X.shape).encode())
        if isinstance(X, Blocks):
            X, arrays = X.sparse, (X.dense, *arrays)
        features = [X.data, X.indices, X.indptr] if hasattr(X, "indptr") else [X]
        for array in [*features, *arrays]:
            if array is not None:
                self._digest.update(np.ascontiguousarray(array).data)

    def save(
        self, training: TrellisTraining, state: TrainerState, source: Source, now: bool = False
    ) -> None:
        """Write the state; if that fails, warn and let training continue.

        If the last checkpoint is recent, nothing is written, except with `now`. In the first epoch
        of a policy that assigns paths during training, there is nothing to write yet.
        """
        self._state = state
        if not now and time.monotonic() - self._written < self.seconds:
            return
        if any(book.n_paths - book.n_free < training.n_labels for book in training.tables):
            return
        _, keys, *position = source.rng.get_state() if state.within is None else state.random
        codebooks, tensors = codebooks_state(training.codebooks)
        tensors |= training.weights.tensors()
        tensors |= {"held_out": source.held_out, "random": keys.astype(np.uint32)}
        description = {
            "parameters": self._parameters,
            "rows": self._digest.hexdigest(),
            "codebooks": codebooks,
            "step": training.weights.step,
            "losses": state.losses,
            "best_precision": state.best_precision,
            "n_no_change": state.n_no_change,
            "random": position,
        }
        if state.within is not None:
            description["within"] = asdict(state.within)
        if state.best is not None:
            weights, books = state.best
            codebooks, own = codebooks_state(books)
            description["best"] = {"codebooks": codebooks}
            tensors |= {f"best.{name}": paths for name, paths in own.items()}
            tensors["best.weights"] = weights.values
        try:
            write(self.path, _CHECKPOINT, description, tensors)
        except OSError as error:
            warnings.warn(
                f"the checkpoint {self.path} could not be written: {error.strerror}",
                RuntimeWarning,
                stacklevel=2,
            )
        self._written = time.monotonic()

    def restore(self, training: TrellisTraining, source: Source) -> TrainerState:
        """Restore trellises, held-out rows and the random generator from the file."""
        file = TensorFile(Path(self.path), _CHECKPOINT)
        file.verify(list(file.tensors))
        with damage_reported(file.path):
            section = file.section(verify=True)
            parameters = section.get("parameters", "an object", lambda v: isinstance(v, dict))
            rows = section.get("rows", "a checksum", lambda v: isinstance(v, str))
        self._check_same_problem(parameters, rows)
        with damage_reported(file.path):
            training.codebooks = _codebooks(section, training)
            state, tensors, rng = _decoded(section, training, source.n_all)
            training.weights.set_tensors(tensors, section.integer("step", 1), len(state.losses))
            section.check_all_read()
            section.check_all_taken()
        self._state = state
        source.held_out, source.rng = np.array(tensors["held_out"]), rng
        return state

    def _check_same_problem(self, parameters: dict[str, Any], rows: str) -> None:
        for name, value in self._parameters.items():
            before = parameters.get(name)
            if before != value:
                raise CheckpointMismatchError(
                    f"{self.path} is a checkpoint with {name}={before!r}, got {value!r}: resume "
                    "with the same parameters, or start from scratch"
                )
        if rows != self._digest.hexdigest():
            raise CheckpointMismatchError(
                f"{self.path} is a checkpoint of other rows or labels: resume with the same data, "
                "or start from scratch"
            )


def _as_json(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that must not change, as a file stores them."""
    fixed = dict(parameters)
    for group, given in parameters.items():
        if isinstance(given, Settings):
            fixed |= {f"{group}__{name}": value for name, value in given.stored().items()}
            del fixed[group]
    fixed = {name: value for name, value in fixed.items() if name not in _FREE}
    encoded: dict[str, Any] = json.loads(json.dumps(encode_parameters(fixed)))
    return encoded


def _codebooks(section: Described, training: TrellisTraining) -> list[Codebook]:
    """Return the codebooks of a section, which must be of the same kinds as those of `training`."""
    books = codebooks_from_state(section, training.trellis.n_classes, training.n_labels)
    kinds = [isinstance(book, BucketCodebook) for book in books]
    if kinds != [training.shares_paths] * len(training.codebooks):
        raise ValueError(f"codebooks must be {len(training.codebooks)} of the same kind")
    return books


def _decoded(
    section: Described, training: TrellisTraining, n_rows: int
) -> tuple[TrainerState, Tensors, np.random.RandomState]:
    """Return the state, the tensors and the random generator of a checkpoint, checked."""
    kinds = {"float32": "f4", "float64": "f8"}
    declared = {
        name: Array(kinds[array.dtype.name], array.shape, low=0 if name == "squares" else None)
        for name, array in training.weights.tensors().items()
    }
    declared |= {
        "held_out": Array("i8", ("n_held_out",), low=0, high="n_rows - 1", increasing="all"),
        "random": Array("u4", (624,)),
    }
    tensors, best = section.tensors(declared, {"n_rows": n_rows}), None
    if section.has("best"):
        own = section.section("best")
        [values] = own.tensors({"weights": declared["weights"]}, {}).values()
        best = training.weights.wrap(np.array(values)), _codebooks(own, training)
    position = section.get(
        "random",
        "the position of a random generator",
        lambda v: (
            isinstance(v, list)
            and len(v) == 3
            and all(isinstance(each, (int, float)) for each in v)
            and isinstance(v[0], int)
            and 0 <= v[0] <= 624
        ),
    )
    rng = np.random.RandomState()
    rng.set_state(("MT19937", np.array(tensors["random"]), *position))
    within = None
    if section.has("within"):
        sums = section.section("within")
        loss, hits = sums.number("loss"), sums.number("hits", 0)
        counts = (sums.integer(name, 0, n_rows) for name in ("examples", "rows"))
        within = EpochStats(loss, hits, *counts)
    state = TrainerState(
        section.numbers("losses"),
        section.number("best_precision", -1, 1),
        section.integer("n_no_change", 0),
        best,
        within=within,
        random=rng.get_state(),
    )
    return state, tensors, rng


class CheckpointMismatchError(ValueError):
    """A checkpoint belongs to other data or parameters."""
