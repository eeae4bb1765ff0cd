"""Checkpoints: the state of training between two epochs; resuming is bit-identical.

A checkpoint is a tensor file (`ltls.storage.tensor_file`) with the weights, the optimizer's state,
the codebooks, the held-out rows, the best weights so far, and the state of the random generator.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.atomic import remove_abandoned
from ..model.fitted import FittedModel
from ..storage.compatibility import current_parameters
from ..storage.model_file import decode_codebooks, encode_codebooks
from ..storage.tensor_file import Kind, TensorFile, damage_reported, write
from ..storage.validation import INTEGER, NUMBER, NUMBERS, check_finite, check_types
from ..storage.values import encode_parameters
from ..structure.codebook import TableCodebook
from .state import TrainerState

_CHECKPOINT = Kind("checkpoint", "ltls-checkpoint", version=1)
_FREE = {"epochs", "n_jobs", "verbose"}  # parameters that may differ when training is resumed


@dataclass
class Checkpoint:
    """Where `LTLSClassifier.fit` saves its state after an epoch, and whether it resumes from there.

    Parameters
    ----------
    path : path-like
        The file, replaced atomically.
    resume : bool, default=False
        Continue from the state in the file. The result is the same as if training had never been
        stopped. Rows, labels and parameters must be the same, except `epochs` and `n_jobs`.
    seconds : float, default=0
        Minimum time between two checkpoints.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import load_digits
    >>> from ltls import Checkpoint, LTLSClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "digits.checkpoint")
    ...     first = LTLSClassifier(epochs=2, random_state=0).fit(X, y, checkpoint=path)
    ...     model = LTLSClassifier(epochs=5, random_state=0)
    ...     model = model.fit(X, y, checkpoint=Checkpoint(path, resume=True))
    >>> whole = LTLSClassifier(epochs=5, random_state=0).fit(X, y)
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
        """Whether training ran to its end without being interrupted."""
        return self._state.completed

    def begin(self, parameters: dict[str, Any]) -> None:
        """Record the parameters, which must be the same when training is resumed."""
        self.check()
        remove_abandoned(self.path)
        fixed = {name: value for name, value in parameters.items() if name not in _FREE}
        self._parameters = json.loads(json.dumps(encode_parameters(fixed)))
        self._digest = hashlib.blake2b(digest_size=16)

    def add_rows(self, X: Any, *arrays: npt.NDArray[Any] | None) -> None:
        """Add rows to the fingerprint of the training data: features, labels and weights."""
        features = [X.data, X.indices, X.indptr] if hasattr(X, "indptr") else [X]
        self._digest.update(repr(X.shape).encode())
        for array in [*features, *arrays]:
            if array is not None:
                self._digest.update(np.ascontiguousarray(array).data)

    def save(
        self, model: FittedModel, state: TrainerState, held_out: npt.NDArray[np.int64], rng: Any
    ) -> None:
        """Write the state after an epoch; if that fails, warn and let training continue."""
        self._state = state
        if time.monotonic() - self._written < self.seconds:
            return
        trainable = model.trainable
        assert trainable is not None
        codebooks, tensors = encode_codebooks(model.codebooks)
        tensors.update(trainable.tensors())
        if state.best_weights is not None:
            tensors["best"] = state.best_weights.values
        if state.best_paths is not None:
            tensors["best_paths"] = state.best_paths
        _, keys, *position = rng.get_state()
        tensors |= {"held_out": held_out, "random": keys.astype(np.int64)}
        description = {
            "parameters": self._parameters,
            "rows": self._digest.hexdigest(),
            "codebooks": codebooks,
            "clock": trainable.step,
            "losses": state.losses,
            "highest": state.best_precision,
            "waited": state.n_no_change,
            "random": position,
        }
        try:
            write(self.path, _CHECKPOINT, description, tensors)
        except OSError as error:
            warnings.warn(
                f"the checkpoint {self.path} could not be written: {error.strerror}",
                RuntimeWarning,
                stacklevel=2,
            )
        self._written = time.monotonic()

    def restore(
        self, model: FittedModel
    ) -> tuple[TrainerState, npt.NDArray[np.int64], np.random.RandomState]:
        """Bring a model to the state in the file; return it with the held-out rows."""
        file = TensorFile(Path(self.path), _CHECKPOINT)
        file.verify(list(file.tensors))
        trainable = model.trainable
        assert trainable is not None
        with damage_reported(file.path):
            saved = file.description
            problem = current_parameters(saved["parameters"]), saved["rows"]
        self._check_same_problem(*problem)
        with damage_reported(file.path):
            _check_state(file, model)
            model.codebooks[:] = decode_codebooks(saved["codebooks"], model.trellis.n_classes, file)
            for name, tensor in trainable.tensors().items():
                tensor[:] = file.tensor(name)
            trainable.step, trainable.epochs = saved["clock"], len(saved["losses"])
            best = None
            if "best" in file.tensors:
                best = trainable.wrap(np.array(file.tensor("best")))
            rng = _decode_random(file.tensor("random"), *saved["random"])
            paths = np.array(file.tensor("best_paths")) if "best_paths" in file.tensors else None
            state = TrainerState(saved["losses"], saved["highest"], saved["waited"], best, paths)
            self._state = state
            return state, np.array(file.tensor("held_out")), rng

    def _check_same_problem(self, parameters: dict[str, Any], rows: str) -> None:
        for name, value in self._parameters.items():
            if parameters.get(name) != value:
                raise CheckpointMismatchError(
                    f"{self.path} is a checkpoint of {name}={parameters.get(name)!r}, got "
                    f"{value!r}: resume with the same parameters, or start from scratch"
                )
        if rows != self._digest.hexdigest():
            raise CheckpointMismatchError(
                f"{self.path} is a checkpoint of other rows or labels: resume with the same data, "
                "or start from scratch"
            )


def _decode_random(
    keys: npt.NDArray[Any], position: int, has_gauss: int, gauss: float
) -> np.random.RandomState:
    if not 0 <= operator.index(position) <= len(keys):  # NumPy would read beyond the keys
        raise ValueError(f"the random generator must be at 0 to {len(keys)}, got {position}")
    rng = np.random.RandomState()
    rng.set_state(("MT19937", keys.astype(np.uint32), position, has_gauss, gauss))
    return rng


def _check_state(file: TensorFile, model: FittedModel) -> None:
    """Raise an error if a checkpoint does not fit the model that is to continue from it."""
    trainable, saved = model.trainable, file.description
    assert trainable is not None
    check_types(saved, {"clock": INTEGER, "losses": NUMBERS, "highest": NUMBER, "waited": INTEGER})
    arrays = trainable.tensors()
    if "best" in file.tensors:
        arrays["best"] = trainable.values
    for name, array in arrays.items():
        tensor = file.tensor(name)
        if (tensor.shape, tensor.dtype) != (array.shape, array.dtype):
            raise ValueError(f"{name} must be {array.dtype} of shape {array.shape}")
        check_finite(file, name)
        if name == "squares" and (tensor < 0).any():
            raise ValueError("sums of squares must not be negative")
    kinds = [book["kind"] == "table" for book in saved["codebooks"]]
    if len(kinds) != len(model.codebooks):
        raise ValueError(f"there must be {len(model.codebooks)} codebooks, got {len(kinds)}")
    if len(set(kinds)) > 1:
        raise ValueError("either all codebooks must be tables or none")
    tables = [file.tensor(book["paths"]) for book in saved["codebooks"] if book["kind"] == "table"]
    if "best_paths" in file.tensors:
        best = file.tensor("best_paths")
        if len(best) != len(tables):
            raise ValueError(f"the best epoch must have {len(tables)} codebooks, got {len(best)}")
        tables.extend(best)
    for paths in tables:
        if paths.shape != (len(model.labels),) or paths.min() < 0:
            raise ValueError(f"every codebook must have paths of {len(model.labels)} labels")
        TableCodebook(model.trellis.n_classes, paths)
    held_out = file.tensor("held_out")
    if held_out.dtype != np.int64 or held_out.ndim != 1 or (np.diff(held_out) <= 0).any():
        raise ValueError("the held-out rows must be increasing integers")
    if len(held_out) and not 0 <= held_out[0] <= held_out[-1] < model.n_rows:
        raise ValueError(f"the held-out rows must be below {model.n_rows}")


def as_checkpoint(given: str | os.PathLike[str] | Checkpoint | None) -> Checkpoint | None:
    """Return a checkpoint at a path; a given checkpoint is returned as it is."""
    return given if given is None or isinstance(given, Checkpoint) else Checkpoint(given)


class CheckpointMismatchError(ValueError):
    """A checkpoint belongs to other data or parameters."""
