"""The target of model files: what loads also predicts, and all else is a `ModelFileError`."""

import functools
import json
import warnings
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

import ltls
from ltls import ModelFileError
from ltls.storage import tensor_file
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile

from .mutate import mutated_bytes, mutated_file, mutated_json, mutated_tensors, pick

ARCHIVE = Path(__file__).parents[1] / "compat"
KINDS = sorted(ARCHIVE.glob("*/*.ltls"))  # small models of every kind and version


@functools.cache
def parts(path):
    """Return the description, the tensors and the bytes of a model."""
    file = TensorFile(path, MODEL)
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    return file.description, tensors, path.read_bytes()


def generate(rng, folder):
    """Return a suffix and a file that is changed: as it is, or in its parts and sealed again."""
    description, tensors, content = parts(pick(rng, KINDS))
    kind = rng.random()
    if kind < 0.1:
        return ".ltls", mutated_bytes(rng, content)
    if kind < 0.55:
        description = mutated_json(rng, description, int(rng.integers(1, 4)))
    else:
        tensors = mutated_tensors(rng, tensors)
        if rng.random() < 0.3:
            description = mutated_json(rng, description)
    path = Path(folder, "sealed.ltls")
    tensor_file.write(path, MODEL, description, tensors)
    return ".ltls", path.read_bytes()


def mutate(rng, content, folder):
    """Return a file with one more change."""
    return mutated_file(rng, content, MODEL, folder)


def run(content, path):
    """Load a file and use the model; return whether it was accepted."""
    path.write_bytes(content)
    mapped, verified = (
        _loaded(path, mmap=True, verify=False),
        _loaded(path, mmap=False, verify=True),
    )
    if verified is None:
        return False
    assert mapped is not None, "a file is accepted only if it is verified"
    weights = verified.model_.weights.to_float32()
    if np.abs(weights).max(initial=0) < 1e30:  # scores of others overflow, which is an error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _use(verified, path)
    return True


def _loaded(path, **options):
    try:
        return ltls.load(path, **options)
    except ModelFileError as error:
        if str(path) not in str(error):
            raise AssertionError(f"the error does not name the file: {error}") from error
        return None


def _use(model, path):
    rng = np.random.default_rng(0)
    if hasattr(model, "vectorizer_"):
        X = ["the card is lost", "", "ß \N{SNOWMAN} 1", "a fee"]
    else:
        n = model.n_features_in_
        columns = rng.integers(n, size=12) if n else np.empty(0, np.int64)
        ends = np.linspace(0, len(columns), 5).astype(np.int64)
        X = csr_array((rng.normal(size=len(columns)), columns, ends), shape=(4, n))
        X.sum_duplicates()
    labels, scores = model.predict_topk(X, 3)
    assert len(labels) == len(scores) == 4
    assert not np.isnan(scores).any()
    model.predict(X)
    if hasattr(model, "predict_proba") and len(model.classes_) < 10_000:
        model.predict_proba(X)
    if not hasattr(model, "vectorizer_") and n:
        model.predictor(k=2)(np.array([0]), np.array([1.0]))
    json.dumps(describe(path, verify=False), default=str)
    model.set_params(size_budget=None).save(path)  # which may be too small for it
    again = ltls.load(path).predict_topk(X, 3)[0]
    assert again.shape == labels.shape
