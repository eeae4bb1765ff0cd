"""Checked tensor files: any damage is detected, and writing is atomic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import ltls
from ltls import LTLSClassifier, ModelFileError
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import DTYPES, Kind, TensorFile, write

KIND = Kind("test file", "ltls-test", version=3)


@pytest.fixture(scope="module")
def model(digits):
    return LTLSClassifier(width=4, assignment="frequency", random_state=0).fit(*digits)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ltls"


# Tensors and descriptions


@settings(max_examples=30)
@given(data=st.data(), seed=st.integers(0, 99))
def test_tensors_and_description_round_trip(tmp_path_factory, data, seed):
    path = tmp_path_factory.mktemp("round_trip") / "tensors"
    rng = np.random.default_rng(seed)
    shapes = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)
    names = data.draw(st.lists(st.text("abc.", min_size=1, max_size=5), max_size=4, unique=True))
    dtypes = st.sampled_from(list(DTYPES.values()))
    tensors = {
        name: rng.integers(0, 100, data.draw(shapes)).astype(data.draw(dtypes)) for name in names
    }
    description = {"text": data.draw(st.text(max_size=20)), "number": seed}
    write(path, KIND, description, tensors)
    file = TensorFile(path, KIND)
    assert file.description == description
    assert set(file.tensors) == set(tensors)
    file.verify(list(tensors))
    for name, tensor in tensors.items():
        assert file.tensor(name).dtype == tensor.dtype
        np.testing.assert_array_equal(file.tensor(name), tensor)


def test_the_version_is_the_oldest_that_can_read_the_file(path):
    write(path, KIND, {}, {}, version=1)
    assert TensorFile(path, KIND).metadata["format_version"] == "1"
    write(path, KIND, {}, {})
    with pytest.raises(ModelFileError, match=r"format version 3, .* reads up to 2"):
        TensorFile(path, Kind("test file", "ltls-test", version=2))


def test_a_file_of_another_kind_is_rejected(path):
    write(path, KIND, {}, {})
    with pytest.raises(ModelFileError, match="is not a model file of ltls"):
        TensorFile(path, MODEL)


def test_equal_contents_give_equal_files(path):
    contents = []
    for _ in range(3):
        write(path, KIND, {"a": 1, "b": [2]}, {"x": np.arange(3), "y": np.ones(2)})
        contents.append(path.read_bytes())
    assert len(set(contents)) == 1


# Damage


def test_a_failed_write_leaves_the_old_file(model, path, full_disk):
    model.save(path)
    before = path.read_bytes()
    with full_disk(), pytest.raises(OSError):
        model.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_model_file_has_the_mode_of_other_new_files(model, path):
    other = path.with_name("other")
    other.touch()
    model.save(path)
    assert path.stat().st_mode == other.stat().st_mode


def header_of(path):
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_any_change_of_the_header_is_detected(model, path):
    model.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in [*range(8), *rng.integers(8, header_of(path), 100)]:
        bad = bytearray(good)
        bad[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(ModelFileError):
            ltls.load(path)
        with pytest.raises(ModelFileError):
            describe(path)


def test_verify_detects_any_change_of_the_tensors(model, path):
    model.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(1)
    for position in rng.integers(header_of(path), len(good), 100):
        bad = bytearray(good)
        bad[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(ModelFileError, match="was changed"):
            ltls.load(path, verify=True)
        with pytest.raises(ModelFileError, match="was changed"):
            describe(path)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, -1])
def test_a_truncated_file_is_rejected(model, path, keep):
    model.save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelFileError):
        ltls.load(path)


def test_a_longer_file_is_rejected(model, path):
    model.save(path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ModelFileError, match="size"):
        ltls.load(path)


def test_other_files_are_rejected(path):
    save_file({"weights": np.zeros((2, 2))}, path, {"format": "pt"})
    with pytest.raises(ModelFileError, match="not a model file of ltls"):
        ltls.load(path)
    path.write_bytes(b"PK\3\4" + bytes(1000))
    with pytest.raises(ModelFileError, match="not a model file of ltls"):
        ltls.load(path)
    path.write_text("hello world, this is text\n" * 50)
    with pytest.raises(ModelFileError, match="not a model file of ltls"):
        ltls.load(path)


def test_a_missing_file_raises_file_not_found(path):
    with pytest.raises(FileNotFoundError):
        ltls.load(path)


def test_files_of_newer_versions_are_rejected(model, path):
    model.save(path)
    newer = path.read_bytes().replace(b'"format_version":"2"', b'"format_version":"9"')
    path.write_bytes(newer)
    with pytest.raises(ModelFileError, match=r"format version 9, .* upgrade ltls"):
        ltls.load(path)
