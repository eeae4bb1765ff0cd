"""Sections of model files: unknown ones are skipped if a model can be used without them."""

import json

import numpy as np
import problems
import pytest

import ltls
from ltls import LTLSClassifier, ModelFileError
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile, write


@pytest.fixture(scope="module")
def fitted():
    X, y = problems.sparse()
    settings = {"width": 4, "n_trellises": 2, "label_weights": True, "bucket_size": 4}
    return X, LTLSClassifier(**settings, random_state=0).fit(X, y)


@pytest.fixture
def path(tmp_path, fitted):
    path = tmp_path / "model.ltls"
    fitted[1].save(path)
    return path


def rewrite(path, change):
    """Replace a model file by one with another description and valid checksums."""
    file = TensorFile(path, MODEL)
    description = json.loads(json.dumps(file.description))
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    change(description, tensors)
    write(path, MODEL, description, tensors)


def assert_predicts_the_same(path, fitted, **options):
    X, model = fitted
    loaded = ltls.load(path, **options)
    expected = model.predict_topk(X, 3)[0]
    assert (loaded.predict_topk(X, 3)[0][:, 0] == expected[:, 0]).mean() > 0.98


def test_a_file_lists_its_sections(path, fitted):
    file = TensorFile(path, MODEL)
    sections = file.description["sections"]
    assert set(sections) == {"label_weights", "replay", "optimizer"}
    assert all(section["version"] == 1 for section in sections.values())
    assert [name for name in sections if sections[name]["required"]] == ["label_weights"]
    assert describe(path)["format_version"] == 4
    rewrite(path, lambda *_: None)
    assert_predicts_the_same(path, fitted, verify=True)


@pytest.mark.parametrize("name", ["calibration", "optimizer.state"])
def test_an_unknown_section_that_is_optional_is_skipped(path, fitted, name):
    def add(description, tensors):
        section = {"version": 7, "required": False, "anything": {"deep": [1, 2]}}
        description["sections"][name] = section
        tensors[f"{name}.numbers"] = np.arange(5)

    rewrite(path, add)
    for options in ({}, {"mmap": False}, {"verify": True}):
        assert_predicts_the_same(path, fitted, **options)
    assert describe(path)["classes"] == 40


def test_an_unknown_section_that_is_required_is_an_error(path):
    def add(description, _):
        description["sections"]["routing"] = {"version": 2, "required": True}

    rewrite(path, add)
    with pytest.raises(
        ModelFileError, match=r"section 'routing' of version 2, written by .*upgrade ltls"
    ):
        ltls.load(path)


def test_a_later_version_of_a_known_section_is_an_error_if_required(path):
    def later(description, _):
        description["sections"]["label_weights"]["version"] = 2

    rewrite(path, later)
    with pytest.raises(ModelFileError, match=r"'label_weights' of version 2.*upgrade ltls"):
        ltls.load(path)


def test_a_later_version_of_a_known_section_is_skipped_if_optional(path, fitted):
    def later(description, tensors):
        description["sections"]["label_weights"] = {"version": 2, "required": False}
        tensors["label_weights.labels"] = np.arange(3, dtype=np.uint8)

    rewrite(path, later)
    X, _ = fitted
    loaded = ltls.load(path)
    assert loaded.model_.label_weights is None
    assert loaded.predict_topk(X, 3)[0].shape == (500, 3)


def test_a_newer_file_format_is_an_error(path):
    file = TensorFile(path, MODEL)
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    write(path, MODEL, file.description, tensors, MODEL.version + 1)
    with pytest.raises(ModelFileError, match="upgrade ltls"):
        ltls.load(path)


# Damaged label weights


def labels_out_of_range(_, tensors):
    tensors["label_weights.labels"][0] = 40


def labels_that_do_not_increase(_, tensors):
    counts = tensors["label_weights.counts"]
    start = int(np.cumsum(counts)[np.flatnonzero(counts > 1)[0]]) - 2
    labels = tensors["label_weights.labels"]
    labels[[start, start + 1]] = labels[[start + 1, start]]


def labels_of_another_type(_, tensors):
    tensors["label_weights.labels"] = tensors["label_weights.labels"].astype(np.int64)


def too_few_labels(_, tensors):
    tensors["label_weights.labels"] = tensors["label_weights.labels"][:-1].copy()


def too_few_values(_, tensors):
    tensors["label_weights.values"] = tensors["label_weights.values"][:-1].copy()


def values_of_another_type(_, tensors):
    tensors["label_weights.values"] = tensors["label_weights.values"].astype(np.float32)


def counts_that_are_too_high(_, tensors):
    tensors["label_weights.counts"][3] += 1


def counts_that_are_negative(_, tensors):
    counts = tensors["label_weights.counts"].astype(np.int64)
    counts[0], counts[1] = -1, counts[0] + counts[1] + 1
    tensors["label_weights.counts"] = counts


def a_missing_feature(_, tensors):
    for name in ("counts", "scales"):
        tensors[f"label_weights.{name}"] = tensors[f"label_weights.{name}"][1:].copy()


def too_many_scales(_, tensors):
    scales = tensors["label_weights.scales"]
    tensors["label_weights.scales"] = np.append(scales, scales[:1])


def matrices(_, tensors):
    tensors["label_weights.values"] = tensors["label_weights.values"][:, None].copy()


def no_labels(_, tensors):
    del tensors["label_weights.labels"]


def no_scales(_, tensors):
    del tensors["label_weights.scales"]


def no_weight(description, _):
    del description["sections"]["label_weights"]["weight"]


def a_weight_of_text(description, _):
    description["sections"]["label_weights"]["weight"] = "heavy"


def candidates_of_text(description, _):
    description["sections"]["label_weights"]["n_candidates"] = "many"


def no_candidates(description, _):
    description["sections"]["label_weights"]["n_candidates"] = -3


def no_version(description, _):
    del description["sections"]["label_weights"]["version"]


def sections_of_text(description, _):
    description["sections"] = "label_weights"


def a_bucket_out_of_range(_, tensors):
    tensors["paths.0"][5] = 10


def a_label_without_a_bucket(_, tensors):
    tensors["paths.1"] = tensors["paths.1"][:-1].copy()


DAMAGE = [
    labels_out_of_range, labels_that_do_not_increase, labels_of_another_type, too_few_labels,
    too_few_values, values_of_another_type, counts_that_are_too_high, counts_that_are_negative,
    a_missing_feature, too_many_scales, matrices, no_labels, no_scales, no_weight, a_weight_of_text,
    candidates_of_text, no_candidates, no_version, sections_of_text, a_bucket_out_of_range,
    a_label_without_a_bucket,
]  # fmt: skip


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_label_weights_and_buckets_are_an_error(path, damage, mmap):
    rewrite(path, damage)
    with pytest.raises(ModelFileError):
        ltls.load(path, mmap=mmap)


def test_changed_bytes_are_found(path, fitted):
    content = bytearray(path.read_bytes())
    values = fitted[1].model_.label_weights.values.tobytes()
    at = bytes(content).index(values)
    content[at + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="damaged"):
        ltls.load(path, verify=True)
    with pytest.raises(ModelFileError, match="damaged"):
        describe(path)


def test_random_damage_never_crashes(path, fitted):
    X, _ = fitted
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        bad = bytearray(good)
        for position in rng.integers(len(bad), size=rng.integers(1, 20)):
            bad[position] = rng.integers(256)
        path.write_bytes(bad[: rng.integers(len(bad))] if rng.random() < 0.3 else bad)
        try:
            loaded = ltls.load(path)
        except ModelFileError:
            continue
        loaded.predict_topk(X[:5], 3)
