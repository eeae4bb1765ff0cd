"""The target of model files: what loads can do everything, and all else is a `ModelFileError`."""

import functools
import json
import tempfile
import warnings

import numpy as np
from scipy.sparse import csr_array

import ltls
from ltls import ModelFileError
from ltls.storage.model_file import MODEL, describe

from . import seeds
from .mutate import mutated_bytes, mutated_file, pick
from .reseal import Contents, resealed

LONG_WORD = 30 * "a" + "0" * 2000 + "b"  # which some regular expressions match in 2ⁿ ways
OVERFLOWS = ("not finite", "NaN or +inf", "inf in fsum")  # in errors of numbers that are too large


@functools.cache
def contents():
    """Return the contents of a file of every kind, with its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        paths = seeds.files(folder)
        read = functools.partial(ltls.load, verify=True, mmap=False)
        return [(Contents.of(path, MODEL, read), path.read_bytes()) for path in paths]


def generate(rng, folder):
    """Return a suffix and a file that is changed: as it is, or in its pieces and sealed again."""
    chosen, content = pick(rng, contents())
    if rng.random() < 0.05:
        return ".ltls", mutated_bytes(rng, content)
    return ".ltls", resealed(rng, MODEL, chosen, [other for other, _ in contents()])


def mutate(rng, content, folder):
    """Return a file with one more change."""
    return mutated_file(rng, content, MODEL, folder)


def run(content, path):
    """Load a file and use the model; return whether it was accepted."""
    path.write_bytes(content)
    mapped = _loaded(path, mmap=True, verify=False)
    verified = _loaded(path, mmap=False, verify=True)
    if verified is None:
        return False
    assert mapped is not None, "a file is accepted only if it is verified"
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


def _rows(model):
    """Return inputs of a model: known ones, unknown ones and an empty one."""
    front_end = model.model_.front_end
    if front_end.name == "text":
        return ["my card is lost", "", "ß \N{SNOWMAN} 1", "a fee", "a" * 40 + "b", LONG_WORD]
    if front_end.name == "table":
        usual = {
            "text": "my card " + LONG_WORD,
            "number": 1.5,
            "category": "north",
            "vectors": [1, 2, 3],
        }
        columns = front_end.describe()["columns"]
        row = {name: usual[kind] for kind, names in columns.items() for name in names}
        return [row, dict.fromkeys(row)]
    n = model.n_features_in_
    columns = np.unique(np.random.default_rng(0).integers(n, size=9))
    ends = np.linspace(0, len(columns), 4).astype(np.int64)
    X = csr_array((np.linspace(-1, 2, len(columns)), columns, ends), shape=(3, n))
    return X if n > 1000 else X.toarray()


def _use(model, path):
    """Call everything. Numbers that overflow are a ValueError; what is saved can be loaded."""
    X = _rows(model)
    classes = model.classes_
    few = len(classes) < 5000
    calls = [
        lambda: model.predict(X),
        lambda: model.predict_topk(X, 3),
        lambda: model.predict_topk(X, 2, among=list(classes[:3])),
        lambda: model.explain(X, k=2),
        lambda: model.global_explanation(classes[0]),
        lambda: model.predictor(k=2)(X),
    ]
    if few:
        calls.append(lambda: model.decision_function(X))
    if few and hasattr(model, "predict_proba"):
        calls += [lambda: model.predict_proba(X), lambda: model.log_proba(X, [classes[0]] * len(X))]
    for call in calls:
        _attempt(call, OVERFLOWS)
    json.dumps(describe(path, verify=False), default=str)
    model.set_params(size_budget=None)  # which may be too small for it
    _check_saved(model, X, path)
    y = [classes[0], "new", classes[-1], "new", "new", classes[0]][: len(_sized(X))]
    more = [[label] for label in y] if model.multilabel_ else y
    # Parameters that do not fit the model are a ValueError, too.
    if _attempt(lambda: model.partial_fit(X, more)):
        _check_saved(model, X, path)


def _sized(X):
    return range(X.shape[0]) if hasattr(X, "shape") else X


def _attempt(call, accepted=("",)):
    try:
        call()
    except ValueError as error:
        if not any(words in str(error) for words in accepted):
            raise
        return False
    return True


def _check_saved(model, X, path):
    """Save a model: unless that is refused, the file gives the same model and the same bytes."""
    before = path.read_bytes()
    try:
        model.save(path)
    except ValueError:
        assert path.read_bytes() == before, "a refused save changed the file"
        return
    saved = path.read_bytes()
    again = ltls.load(path, verify=True)
    for name in ("predict_topk", "decision_function"):
        try:
            expected = getattr(model, name)(X)
        except ValueError:
            continue
        for ours, theirs in zip(getattr(again, name)(X), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    again.save(path)
    assert path.read_bytes() == saved, "saving again gives another file"
