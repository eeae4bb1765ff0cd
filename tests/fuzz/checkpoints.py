"""The target of checkpoint files: training resumes, or one of two errors says why not."""

import functools
import tempfile
import warnings
from pathlib import Path

import numpy as np

from ltls import Checkpoint, LTLSClassifier, ModelFileError
from ltls.settings import Trellises
from ltls.storage.tensor_file import TensorFile, write
from ltls.training import checkpoint
from ltls.training.checkpoint import CheckpointMismatchError

from .mutate import mutated_bytes, mutated_file
from .reseal import Contents, resealed

X, Y = np.eye(12, dtype=np.float32), np.arange(12) % 4
KIND = checkpoint._CHECKPOINT
OPTIONS = (
    {"trellises": {"assignment": "ranking", "average": True, "optimizer": "sgd"}},
    {"trellises": {"n_trellises": 2}, "validation_fraction": 0.3},
    {"trellises": {"assignment": "frequency"}, "validation_fraction": 0.3},
)

WITHIN = 1


def classifier(number, epochs):
    options = dict(OPTIONS[number])
    trellises = Trellises(**{"n_trellises": 1, **options.pop("trellises"), "epochs": epochs})
    return LTLSClassifier(trellises=trellises, label_weights=False, random_state=0, **options)


@functools.cache
def contents():
    """Return the contents of a checkpoint after an epoch of every kind, with its bytes.

    One is of the next epoch, after four rows.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(len(OPTIONS)):
            path = Path(folder, f"seed{number}")
            classifier(number, 1).fit(X, Y, checkpoint=path)
            if number == WITHIN:
                file = TensorFile(path, KIND)
                tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
                within = {"loss": 3.0, "hits": 1.0, "examples": 4, "rows": 4}
                write(path, KIND, {**file.description, "within": within}, tensors)
            content = path.read_bytes()
            resume = classifier(number, 1).fit
            read = functools.partial(_resumed, resume)
            found.append((Contents.of(path, KIND, read), content))
    return found


def _resumed(fit, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(X, Y, checkpoint=Checkpoint(path, resume=True))


def generate(rng, folder):
    """Return a suffix, which is the number of the options, and a changed checkpoint."""
    number = int(rng.integers(len(OPTIONS)))
    chosen, content = contents()[number]
    if rng.random() < 0.05:
        return f".{number}", mutated_bytes(rng, content)
    return f".{number}", resealed(rng, KIND, chosen, [other for other, _ in contents()])


def mutate(rng, content, folder):
    """Return a file with one more change."""
    return mutated_file(rng, content, KIND, folder)


def run(content, path):
    """Resume training; return whether the checkpoint was accepted."""
    path.write_bytes(content)
    model = classifier(int(path.suffix[1:]), 2)
    try:
        found = _resumed(model.fit, path).predict(X)
    except (ModelFileError, CheckpointMismatchError) as error:
        if str(path) not in str(error):
            raise AssertionError(f"the error does not name the file: {error}") from error
        return False
    except ValueError as error:  # weights that overflow are an error of training
        if "finite" not in str(error):
            raise
        return True
    assert set(found.tolist()) <= set(Y.tolist())
    return True
