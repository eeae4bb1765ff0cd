"""A bad model file is one kind of error and costs no memory; what loads predicts."""

import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification

import ltls
from ltls import LTLSClassifier, ModelFileError, TableCodebook, TextClassifier, Trellis
from ltls.linear.weights import padded
from ltls.storage import tensor_file
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile, write

ARCHIVE = Path(__file__).parents[1] / "compat"


@contextmanager
def memory_limited(n_bytes):
    """Let this process allocate no more than some bytes."""
    resource = pytest.importorskip("resource", reason="needs limits of memory")
    try:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        pytest.skip("the system does not tell the memory of a process")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ltls"


@pytest.fixture(scope="module")
def kinds(digits):
    """Return models of several kinds, by name."""
    X, y = digits
    options = {"epochs": 1, "random_state": 0}
    texts = ["one card", "two cards", "three fees", "four fees"] * 5
    several = make_multilabel_classification(100, n_classes=9, random_state=0)
    return {
        "table": LTLSClassifier(assignment="frequency", embedding_dim=0, **options).fit(X, y),
        "embedding": ltls.load(ARCHIVE / "v0.1" / "single_embedding.ltls", mmap=False),
        "dense": ltls.load(ARCHIVE / "v0.2" / "standardized.ltls", mmap=False),
        "calibrated": ltls.load(ARCHIVE / "v0.2" / "calibrated_multi.ltls", mmap=False),
        "several labels": LTLSClassifier(**options).fit(*several),
        "pruned": LTLSClassifier(density=0.3, embedding_dim=0, **options).fit(X, y),
        "text": TextClassifier(**options).fit(texts, ["a", "b", "c", "d"] * 5),
    }


def rewritten(path, change):
    """Replace a file by one with other contents and valid checksums."""
    file = TensorFile(path, MODEL)
    description = json.loads(json.dumps(file.description))
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    change(description, tensors)
    write(path, MODEL, description, tensors)


def set_to(name, value):
    """Return a change of one value of the description."""
    *parents, last = name.split(".")

    def change(description, _):
        for parent in parents:
            description = description[parent]
        description[last] = value

    change.__name__ = f"{name} = {value!r}"
    return change


def tensor(name, make):
    """Return a change of one tensor."""

    def change(_, tensors):
        tensors[name] = np.ascontiguousarray(make(tensors[name]))

    change.__name__ = f"tensor {name}"
    return change


def with_nan(values):
    values = values.copy()
    values.flat[values.size // 2] = np.nan
    return values


CHANGES = [
    ("table", set_to("parameters", 3)),
    ("table", set_to("parameters.n_jobs", 0)),
    ("table", set_to("parameters.unknown", 1)),
    ("table", set_to("intercept", 1)),
    ("table", set_to("trellis.width", "8")),
    ("table", set_to("trellis.n_classes", 2**70)),
    ("table", set_to("state.usual_labels", [])),
    ("table", set_to("state.l1", "x")),
    ("table", set_to("feature_names", "abc")),
    ("table", set_to("labels.n", 11)),
    ("table", set_to("n_features", 12)),
    ("table", set_to("codebooks", [{"kind": "table", "paths": "none"}])),
    ("table", set_to("codebooks", [{"kind": "hash"}])),
    ("table", tensor("labels", lambda labels: np.zeros_like(labels))),
    ("table", tensor("labels", lambda labels: labels.astype(np.float64))),
    ("table", tensor("counts", lambda counts: np.concatenate([counts, counts]))),
    ("table", tensor("paths.0", lambda paths: paths[:-1])),
    ("table", tensor("paths.0", lambda paths: np.where(paths == 3, -1, paths))),
    ("table", tensor("paths.0", lambda paths: paths.astype(np.float64))),
    ("table", tensor("weights", lambda weights: weights.astype(np.float64))),
    ("embedding", tensor("embedding.labels", lambda labels: labels[:-1])),
    ("embedding", tensor("embedding.labels", with_nan)),
    ("embedding", tensor("embedding.features", lambda features: features[:-1])),
    ("embedding", set_to("embedding.rank", 40)),
    ("embedding", set_to("embedding.weight", float("nan"))),
    ("embedding", set_to("embedding.weight", -1.0)),
    ("several labels", set_to("state.threshold", None)),
    ("pruned", tensor("scales", with_nan)),
    ("pruned", tensor("weights.columns", lambda columns: columns[:-1])),
    ("dense", tensor("standardize.mean", lambda mean: mean[:-1])),
    ("dense", tensor("standardize.scale", lambda scale: 0 * scale)),
    ("calibrated", set_to("sections.calibration.scale", 0)),
    ("calibrated", tensor("calibration.scores", lambda scores: scores[::-1])),
    ("calibrated", tensor("calibration.probabilities", lambda p: p + 1)),
    ("text", set_to("text.ngram_range", [1])),
    ("text", set_to("text.ngram_range", 2)),
    ("text", set_to("text.n_features", 2.5)),
    ("text", set_to("text.tokenizer", "[")),
    ("text", set_to("text.tokenizer", "(a)(b)")),
    ("text", tensor("text.words.idf", lambda idf: idf[:-1])),
    ("text", tensor("text.words.idf", with_nan)),
    ("text", tensor("text.words", lambda words: np.frombuffer(b'{"a": 1}', np.uint8))),
]


@pytest.mark.parametrize(
    ("kind", "change"), CHANGES, ids=[f"{kind}: {each.__name__}" for kind, each in CHANGES]
)
def test_a_file_whose_parts_do_not_fit_is_rejected(kinds, path, kind, change):
    kinds[kind].save(path)
    rewritten(path, lambda *_: None)
    ltls.load(path)
    rewritten(path, change)
    with pytest.raises(ModelFileError, match="is damaged") as error:
        ltls.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_verifying_finds_weights_that_are_not_finite(kinds, path, dtype):
    kinds["table"].save(path, dtype=dtype)
    rewritten(path, tensor("weights", with_nan))
    with pytest.raises(ModelFileError, match="'weights' has numbers that are not finite"):
        ltls.load(path, verify=True)


def test_a_description_cannot_ask_for_memory(kinds, path):
    kinds["table"].save(path)
    n_paths = 2**27  # a few gigabytes for a table codebook
    stride = padded(Trellis(n_paths, 2).n_edges)

    def change(description, tensors):
        description["trellis"] = {"n_classes": n_paths, "width": 2}
        description["codebooks"] = description["codebooks"][:1]
        tensors["weights"] = np.zeros((65, stride), np.float32)

    rewritten(path, change)
    with memory_limited(256 << 20), pytest.raises(ModelFileError, match="table codebook of 10"):
        ltls.load(path)


def test_pruned_weights_cannot_ask_for_memory(path):
    X, y = np.eye(500, dtype=np.float32), np.arange(500)
    model = LTLSClassifier(width=64, n_trellises=2, density=1e-3, epochs=1, replay_size=0)
    model.fit(X, y).save(path)
    n_rows = 100_000

    def change(description, tensors):
        description["n_features"] = n_rows - 1
        counts = np.zeros(n_rows, np.uint32)
        counts[0] = len(tensors["weights.values"])
        tensors["weights.counts"] = counts
        tensors["scales"] = np.ones(n_rows, np.float32)

    expected = model.predict_topk(X[:1], 2)[0].shape
    rewritten(path, change)
    assert n_rows * model.model_.weights.stride > 100e6
    with memory_limited(64 << 20):
        found = ltls.load(path).predict_topk(np.zeros((1, n_rows - 1), np.float32), 2)[0]
    assert found.shape == expected


@pytest.mark.parametrize(
    "header",
    [b'{"__metadata__":{"a":"' + b"x" * (1 << 25) + b'"}}', b"[" + b"[]," * (1 << 21) + b"[]]"],
    ids=["long", "many lists"],
)
def test_a_header_cannot_ask_for_memory(path, header):
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with memory_limited(128 << 20), pytest.raises(ModelFileError, match="description of a model"):
        ltls.load(path)


def test_what_could_not_be_loaded_is_not_saved(digits, path, monkeypatch):
    X, y = digits
    book = TableCodebook(1 << 17, np.arange(10))
    model = LTLSClassifier(assignment=book, n_trellises=1, embedding_dim=0, epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="a table codebook of 10 labels may have 65536 paths"):
        model.save(path)
    monkeypatch.setattr(tensor_file, "_MOST_HEADER", 100)
    with pytest.raises(ValueError, match="the description of a model may have 100 bytes"):
        LTLSClassifier(epochs=1).fit(X, y).save(path)
    assert not path.exists()


def flipped(path, name):
    """Change one bit of a tensor."""
    file = TensorFile(path, MODEL)
    begin, _ = file.tensors[name]["data_offsets"]
    content = bytearray(path.read_bytes())
    content[file._start + begin + 1] ^= 4
    path.write_bytes(content)


def test_commands_verify_the_weights(kinds, path, command, tmp_path):
    kinds["pruned"].save(path)
    (tmp_path / "rows.txt").write_text("1 1:1\n2 2:1\n")
    flipped(path, "weights.values")
    for name in ("predict", "evaluate"):
        words = (name, path, tmp_path / "rows.txt", "-q")
        result = command(*words)
        assert result.code == 2
        assert "is damaged: tensor 'weights.values' was changed" in result.err
        assert command(*words, "--no-verify").code == 0


def test_a_model_that_is_not_mapped_survives_the_end_of_its_file(kinds, path):
    for model in kinds.values():
        model.save(path)
        is_text = isinstance(model, TextClassifier)
        X = ["a card"] if is_text else np.eye(5, model.n_features_in_, dtype=np.float32)
        expected = ltls.load(path).predict_topk(X, 2)
        loaded = ltls.load(path, mmap=False)
        with path.open("r+b") as file:
            file.truncate(0)
        for ours, theirs in zip(loaded.predict_topk(X, 2), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_describe_of_a_bad_description_is_the_same_error(kinds, path):
    kinds["table"].save(path)
    rewritten(path, set_to("trained_on", []))
    with pytest.raises(ModelFileError, match="trained_on must be an object, got"):
        describe(path)
