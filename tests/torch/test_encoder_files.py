"""Folders of `EncoderClassifier`: the old version or the new one, and one error for bad ones."""

import copy
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from safetensors.numpy import load, save  # noqa: E402
from torch import nn  # noqa: E402

from ltls import LTLSClassifier, ModelFileError, TextClassifier  # noqa: E402
from ltls.core.atomic import new_folder  # noqa: E402
from ltls.storage import tensor_file  # noqa: E402
from ltls.storage.tensor_file import TensorFile  # noqa: E402
from ltls.torch import EncoderClassifier, TrellisSoftmax  # noqa: E402
from ltls.torch.adaptive_head import AdaptiveHead  # noqa: E402
from ltls.torch.encoder_files import CLASSIFIER  # noqa: E402
from ltls.torch.hybrid import Stages  # noqa: E402

N_LABELS = 6


class Letters(nn.Module):
    """Counts of the first letters of words."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(N_LABELS))

    def forward(self, input_ids, attention_mask=None):
        return self.scale * nn.functional.one_hot(input_ids, N_LABELS).float()


def tokenizer(texts, **_):
    ids = [["abcdef".index(word[0]) for word in text.split()] for text in texts]
    return {"input_ids": torch.tensor(ids)}


TEXTS = [f"{a}x {b}y" for a in "abcdef" for b in "abcdef"] * 2
LABELS = [text[0] for text in TEXTS]


@pytest.fixture(scope="module")
def model():
    """A model whose head is not trained: fine-tuning is not needed here."""
    torch.manual_seed(0)
    found = EncoderClassifier(
        Letters(), tokenizer=tokenizer, fine_tune=False, device="cpu", random_state=0
    ).fit(TEXTS, LABELS)
    return with_head(found, TrellisSoftmax(N_LABELS, N_LABELS, width=2))


def with_head(model, head, weights=(0.2, 0.5, 0.3)):
    """Return a model with another head, and other weights of the stages."""
    weights = dict(zip(["head", "vectors", "text"], weights, strict=True))
    stages = Stages.of(head, model.vectors_, model.text_, False, weights)
    found = copy.copy(model)
    found.fitted_ = replace(found.fitted_, model=found.fitted_.model.with_parts([stages]))
    return found


@pytest.fixture
def folder(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def loaded(folder):
    return EncoderClassifier.load(folder, Letters(), tokenizer, device="cpu")


def version_of(folder):
    return folder / TensorFile(folder / "classifier.ltls", CLASSIFIER).description["version"]


def reseal(folder, change):
    """Change the description and the tensors of a file, with the right checksums."""
    path = folder / "classifier.ltls"
    description = copy.deepcopy(TensorFile(path, CLASSIFIER).description)
    tensors = load(path.read_bytes())
    change(description, tensors)
    path.write_bytes(tensor_file.encode(CLASSIFIER, description, tensors))


def test_a_folder_has_the_same_predictions_and_is_replaced_as_a_whole(model, folder):
    expected = model.predict_topk(TEXTS, 3)
    before, content = version_of(folder), (folder / "classifier.ltls").read_bytes()
    for _ in range(2):
        again = loaded(folder)
        for ours, theirs in zip(again.predict_topk(TEXTS, 3), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        again.save(folder)
    assert version_of(folder) != before
    assert sorted(os.listdir(folder)) == ["classifier.ltls", version_of(folder).name]
    assert len((folder / "classifier.ltls").read_bytes()) == len(content)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["encoder", "vectors", "text", "classifier"])
def test_a_failed_save_leaves_the_old_version(model, folder, monkeypatch, place, error):
    def fail(*_):
        raise error

    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if place == "encoder":
        monkeypatch.setattr("ltls.torch.encoder_files.save_model", fail)
    elif place == "classifier":
        monkeypatch.setattr("ltls.torch.encoder_files.write_content", fail)
    else:
        kind = {"vectors": LTLSClassifier, "text": TextClassifier}[place]
        monkeypatch.setattr(kind, "save", fail)
    with pytest.raises(error):
        model.save(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert len(os.listdir(folder)) == 2


def test_what_could_not_be_loaded_is_not_saved(model, folder):
    content = (folder / "classifier.ltls").read_bytes()
    spoiled = with_head(model, model.head_, [0.2, np.nan, 0.3])
    with pytest.raises(ValueError, match=r"cannot be saved.*weights.vectors"):
        spoiled.save(folder)
    assert (folder / "classifier.ltls").read_bytes() == content
    loaded(folder)


def test_a_tokenizer_that_is_not_saved_must_be_given(folder):
    with pytest.raises(ValueError, match="tokenizer must be one like that of the saved model"):
        EncoderClassifier.load(folder, Letters(), device="cpu")


def test_folders_of_killed_writers_are_removed(model, folder):
    (folder / "version-0123abcd").mkdir()
    (folder / "version-of-mine").mkdir()
    model.save(folder)
    assert sorted(os.listdir(folder)) == [
        "classifier.ltls", *sorted([version_of(folder).name, "version-of-mine"])
    ]  # fmt: skip


def test_a_writer_waits_for_another_one(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    with new_folder(tmp_path, lambda: None):
        other = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)


DESCRIBED = {
    "version": ["../model", "version-0123abcd/..", "/tmp", "", 3, None],
    "n_labels": [0, 5, 7, 2**62, "6"],
    "kind": ["int", "x", None],
    "parts": [[], ["text", "text"], ["head"], "text", None],
    "weights": [{}, {"head": 0.2, "vectors": 0.5, "text": 2}, {"head": 0.2, "vectors": 0.5}, []],
    "calibration": [None, {}, {"multilabel": True, "scale": 1.0, "missed": 0.0, "threshold": None}],
    "target_format": ["x", None, 3, "lists"],
    "typical_labels": [0, None, 2**63, "x"],
    "pretrained": [None, 1],
    "tokenizer": [None, 1],
    "unknown": [1],
    "parameters.batch_size": [0, -1, 2**62, 1.5, None, True],
    "parameters.max_length": [0, -5, 2**63, "x", False],
    "parameters.mixed_precision": ["fp8", None, 16],
    "parameters.pooling": ["sum", ["mean"]],
    "parameters.unknown": [1],
    "parameters": [None, [], 3],
    "head.n_classes": [0, 1, 5, 7, 2**62, -1],
    "head.n_paths": [0, 5, 7, 2**40, 2**63],
    "head.width": [0, 1, 3, 2**40, 2**63, 2.0],
    "head.in_features": [0, 5, 2**31, 2**63, None],
    "head.loss": ["x", None],
    "head.unit_length": [1, None],
    "head.bias": [False, None],
    "head.codebooks": [[], [{}], [{"kind": "random"}], [{"kind": "table"}] * 2, None],
    "head.unknown": [1],
    "head": [None, {}, 5],
}
TENSORS = {
    "head.edges.weight": [np.zeros((3, 4), np.float32), np.full((10, 6), np.nan, np.float32)],
    "head.edges.bias": [np.zeros(3, np.float32), np.zeros(10, np.int64), None],
    "head.paths.0": [np.zeros(6, np.uint8), np.arange(1, 7, dtype=np.uint8), None],
    "labels": [np.zeros(6, np.uint8), np.frombuffer(b'["a"]', np.uint8), None],
    "other": [np.zeros(3, np.float32)],
}
CUTOFFS = [[], [0, 3], [2, 2], [3, 2], [2, 4], [1, 3], 2, ["2", 3], [True, 3], [2**70], None]
DESCRIBED_ADAPTIVE = {
    "head.cutoffs": CUTOFFS,
    "head.div_value": [0, 1, 1e300, -2, "x", None],
    "head.head_bias": [False, None],
    "head.trellis_features": [0, 2, 2**31, None],
    "head.in_features": [2**31],
    "head.unknown": [1],
}
TENSORS_ADAPTIVE = {
    "head.label_of": [np.arange(1, 7), np.zeros(6, np.int64), np.arange(7), None],
    "head.head.weight": [np.zeros((5, 6), np.float32), None],
    "head.head.bias": [np.zeros(3, np.float32)],
    "head.tail.0.0.weight": [np.zeros((2, 6), np.float32), np.zeros((1, 5), np.float32), None],
    "head.tail.1.0.weight": [np.zeros((2, 6), np.float32), None],
    "head.tail.0.1.weight": [np.zeros((2, 1), np.float32), None],
    "head.tail.1.1.edges.weight": [np.full((9, 1), np.inf, np.float32), None],
    "head.other": [np.zeros(3, np.float32)],
}


@pytest.fixture
def adaptive(model, tmp_path):
    """A folder of a model with an adaptive head."""
    counts = np.array([3, 9, 2, 8, 1, 7])
    options = {"cutoffs": [2, 3], "width": 2, "head_bias": True}
    other = with_head(model, AdaptiveHead.by_frequency(N_LABELS, counts, **options))
    other.save(tmp_path / "adaptive")
    for ours, theirs in zip(
        loaded(tmp_path / "adaptive").predict_topk(TEXTS, 3), other.predict_topk(TEXTS, 3),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(ours, theirs)
    return tmp_path / "adaptive"


def check_refused(folder, values, change):
    for value in values:
        reseal(folder, lambda *content, value=value: change(*content, value))
        with pytest.raises(ModelFileError, match=r"classifier\.ltls is damaged"):
            loaded(folder)


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [("folder", *each) for each in DESCRIBED.items()]
    + [("adaptive", *each) for each in DESCRIBED_ADAPTIVE.items()],
)
def test_descriptions_that_are_not_as_declared(kind, name, values, request):
    def change(described, _, value):
        *outer, last = name.split(".")
        for each in outer:
            described = described[each]
        described[last] = value

    check_refused(request.getfixturevalue(kind), values, change)


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [("folder", *each) for each in TENSORS.items()]
    + [("adaptive", *each) for each in TENSORS_ADAPTIVE.items()],
)
def test_tensors_that_are_not_as_declared(kind, name, values, request):
    def change(_, tensors, value):
        tensors[name] = value
        if value is None:
            del tensors[name]

    check_refused(request.getfixturevalue(kind), values, change)


def test_damage_and_parts_of_other_models(model, folder, tmp_path):
    version = version_of(folder)
    (version / "text.ltls").rename(tmp_path / "text.ltls")
    with pytest.raises(FileNotFoundError):
        loaded(folder)
    X = np.eye(9, dtype=np.float32)
    for others, text in (
        (range(-1, 8), "with ids"),
        (range(9), "with ids|labels that"),
        ("abcdefghi", "with ids"),
    ):
        LTLSClassifier(random_state=0).fit(X, list(others)).save(version / "text.ltls")
        with pytest.raises(ModelFileError, match=text):
            loaded(folder)
    texts = TextClassifier(random_state=0).fit(TEXTS, [10**12 + ord(each) for each in LABELS])
    texts.save(version / "text.ltls")
    with pytest.raises(ModelFileError, match="labels that"):
        loaded(folder)
    shutil.copy(tmp_path / "text.ltls", version / "text.ltls")
    loaded(folder)
    weights = version / "encoder" / "model.safetensors"
    for content in (b"", b"x" * 100, save({"scale": np.ones(3, np.float32)}), save({"x": X})):
        weights.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.safetensors is not of this encoder"):
            loaded(folder)
    path = folder / "classifier.ltls"
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), len(content) // 50):
        content[at] ^= 1
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"classifier\.ltls"):
            loaded(folder)
        content[at] ^= 1
    path.unlink()
    with pytest.raises(FileNotFoundError):
        loaded(folder)
