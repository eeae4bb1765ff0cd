"""Checkpoints: the state of a training between two epochs, from which it goes on as if never left.

A checkpoint is a checked file of tensors (`ltls.storage.tensor_file`): the weights and the optimizer's
memory, the codebooks, the held-out rows, the best weights so far, and the random numbers to come.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..linear.weights import LinearModel
from ..linear.trainable import Learner
from ..model.fitted import Model
from ..storage.model_file import decode_codebooks, encode_codebooks, encode_parameters
from ..storage.tensor_file import Kind, TensorFile, damage_reported, write
from .trainer import Standing

_CHECKPOINT = Kind("checkpoint", "ltls-checkpoint", version=1)
_FREE = {"epochs", "n_jobs", "verbose"}  # what may be another when a training goes on


@dataclass
class Checkpoint:
    """Where `LTLSClassifier.fit` keeps its state after an epoch, and whether it goes on from there.

    Parameters
    ----------
    path : path
        The file. It is written under another name first, and renamed when complete.
    resume : bool, default=False
        Go on from the state in the file, to the same result as if the training had not been
        stopped. Rows, labels and parameters must be the same, but for `epochs` and `n_jobs`.
    seconds : float, default=0
        Write no more often than that.

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
        self._standing = Standing()

    def check(self) -> None:
        """Refuse to replace what is no checkpoint, and to resume from one that is not there."""
        path = Path(self.path)
        if path.exists():
            TensorFile(path, _CHECKPOINT)
        elif self.resume:
            raise ValueError(f"{path}: there is no checkpoint to resume from; begin without resume")

    @property
    def ended(self) -> bool:
        """Whether the training ran to its end, and was not interrupted."""
        return self._standing.ended

    def begin(self, parameters: dict[str, Any]) -> None:
        """Take note of how to learn, so that a resumed training is the same."""
        self.check()
        fixed = {name: value for name, value in parameters.items() if name not in _FREE}
        self._parameters = json.loads(json.dumps(encode_parameters(fixed)))
        self._digest = hashlib.blake2b(digest_size=16)

    def see(self, X: Any, *arrays: npt.NDArray[Any] | None) -> None:
        """Take note of rows to learn from: their features, labels and weights."""
        features = [X.data, X.indices, X.indptr] if hasattr(X, "indptr") else [X]
        self._digest.update(repr(X.shape).encode())
        for array in [*features, *arrays]:
            if array is not None:
                self._digest.update(np.ascontiguousarray(array).data)

    def save(
        self, model: Model, standing: Standing, held_out: npt.NDArray[np.int64], rng: Any
    ) -> None:
        """Write the state after an epoch; what prevents it is a warning, the training goes on."""
        self._standing = standing
        if time.monotonic() - self._written < self.seconds:
            return
        learner = model.learner
        assert learner is not None
        codebooks, tensors = encode_codebooks(model.codebooks)
        tensors.update(_tensors(learner))
        if standing.best is not None:
            tensors["best"] = standing.best.weights
        if standing.best_paths is not None:
            tensors["best_paths"] = standing.best_paths
        _, keys, *position = rng.get_state()
        tensors |= {"held_out": held_out, "random": keys.astype(np.int64)}
        description = {
            "parameters": self._parameters,
            "rows": self._digest.hexdigest(),
            "codebooks": codebooks,
            "clock": learner.clock,
            "losses": standing.losses,
            "highest": standing.highest,
            "waited": standing.waited,
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
        self, model: Model
    ) -> tuple[Standing, npt.NDArray[np.int64], np.random.RandomState]:
        """Bring a model to the state in the file; return where the training stood."""
        file = TensorFile(Path(self.path), _CHECKPOINT)
        file.verify(list(file.tensors))
        learner = model.learner
        assert learner is not None
        with damage_reported(file.path):
            state = file.description
            self._check_same_problem(state)
            model.codebooks[:] = decode_codebooks(state["codebooks"], model.trellis.n_classes, file)
            for name, tensor in _tensors(learner).items():
                tensor[:] = file.tensor(name)
            learner.clock, learner.epochs = state["clock"], len(state["losses"])
            best = None
            if "best" in file.tensors:
                weights = np.array(file.tensor("best"))
                shape = (learner.n_edges, learner.n_trellises)
                best = LinearModel(weights, None, *shape, learner.intercept, learner.unit_length)
            rng = np.random.RandomState()
            rng.set_state(("MT19937", file.tensor("random").astype(np.uint32), *state["random"]))
            paths = np.array(file.tensor("best_paths")) if "best_paths" in file.tensors else None
            standing = Standing(state["losses"], state["highest"], state["waited"], best, paths)
            self._standing = standing
            return standing, np.array(file.tensor("held_out")), rng

    def _check_same_problem(self, state: dict[str, Any]) -> None:
        for name, value in self._parameters.items():
            if state["parameters"].get(name) != value:
                raise CheckpointMismatchError(
                    f"{self.path} is a checkpoint of {name}={state['parameters'].get(name)!r}, got "
                    f"{value!r}: resume with the same settings, or begin anew"
                )
        if state["rows"] != self._digest.hexdigest():
            raise CheckpointMismatchError(
                f"{self.path} is a checkpoint of other rows or labels: resume with the same data, "
                "or begin anew"
            )


def as_checkpoint(given: str | os.PathLike[str] | Checkpoint | None) -> Checkpoint | None:
    """Return a checkpoint for a path, and one that is given as it is."""
    return given if given is None or isinstance(given, Checkpoint) else Checkpoint(given)


class CheckpointMismatchError(ValueError):
    """A training cannot go on from a checkpoint of another one."""


def _tensors(learner: Learner) -> dict[str, npt.NDArray[Any]]:
    """Return what learning changes, as it lies in memory."""
    all_ = {"weights": learner.weights, "squares": learner.squares, "sums": learner.sums}
    return {name: tensor for name, tensor in all_.items() if tensor is not None}
