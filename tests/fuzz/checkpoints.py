"""The target of checkpoint files: training resumes, or one of two errors says why not."""

import functools
import warnings
from pathlib import Path

import numpy as np

from ltls import Checkpoint, LTLSClassifier, ModelFileError
from ltls.storage import tensor_file
from ltls.storage.tensor_file import TensorFile
from ltls.training import checkpoint
from ltls.training.checkpoint import CheckpointMismatchError

from .mutate import mutated_bytes, mutated_file, mutated_json, mutated_tensors

X, Y = np.eye(12, dtype=np.float32), np.arange(12) % 4
KIND = checkpoint._CHECKPOINT
OPTIONS = (
    {"assignment": "ranking", "average": True, "optimizer": "sgd"},
    {"validation_fraction": 0.3, "n_trellises": 2},
    {"assignment": "frequency", "validation_fraction": 0.3},
)


def classifier(number, epochs):
    return LTLSClassifier(epochs=epochs, embedding_dim=0, random_state=0, **OPTIONS[number])


@functools.cache
def parts(number, folder):
    """Return the description, the tensors and the bytes of a checkpoint after an epoch."""
    path = Path(folder, f"seed{number}.checkpoint")
    classifier(number, 1).fit(X, Y, checkpoint=path)
    file = TensorFile(path, KIND)
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    return file.description, tensors, path.read_bytes()


def generate(rng, folder):
    """Return a suffix, which is the number of the options, and a changed checkpoint."""
    number = int(rng.integers(len(OPTIONS)))
    description, tensors, content = parts(number, folder)
    kind = rng.random()
    if kind < 0.1:
        return f".{number}", mutated_bytes(rng, content)
    if kind < 0.5:
        description = mutated_json(rng, description, int(rng.integers(1, 3)))
    else:
        tensors = mutated_tensors(rng, tensors)
    path = Path(folder, "sealed.checkpoint")
    tensor_file.write(path, KIND, description, tensors)
    return f".{number}", path.read_bytes()


def mutate(rng, content, folder):
    """Return a file with one more change."""
    return mutated_file(rng, content, KIND, folder)


def run(content, path):
    """Resume training; return whether the checkpoint was accepted."""
    path.write_bytes(content)
    model = classifier(int(path.suffix[1:]), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, Y, checkpoint=Checkpoint(path, resume=True))
        except (ModelFileError, CheckpointMismatchError) as error:
            if str(path) not in str(error):
                raise AssertionError(f"the error does not name the file: {error}") from error
            return False
        except ValueError:
            file = TensorFile(path, KIND)
            tensors = map(file.tensor, file.tensors)
            if all(
                np.abs(each).max(initial=0) < 1e15 for each in tensors if each.dtype.kind == "f"
            ):
                raise
            return True  # weights that overflow are an error of training
    assert set(model.predict(X).tolist()) <= set(Y.tolist())
    return True
