"""Checked tensor files: any damage is detected, and writing is atomic."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from small_models import memory_limited, model_of

import ltls
from ltls import ModelFileError
from ltls.storage import tensor_file
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import DTYPES, Kind, TensorFile, encode, write

KIND = Kind("test file", "ltls-test", version=3)


@pytest.fixture
def model():
    return model_of("views")


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


def test_it_is_a_file_of_safetensors_and_the_same_for_equal_contents(path):
    contents, tensors = set(), {"x": np.arange(3), "y": np.ones(2, np.float16)}
    for _ in range(3):
        write(path, KIND, {"a": 1, "b": [2]}, tensors)
        contents.add(path.read_bytes())
    assert len(contents) == 1
    assert {name: each.tolist() for name, each in load_file(path).items()} == {
        name: each.tolist() for name, each in tensors.items()
    }


def test_files_of_other_kinds_and_of_newer_versions_are_rejected(path):
    write(path, KIND, {}, {})
    with pytest.raises(ModelFileError, match=r"format version 3, .* reads up to 2: upgrade ltls"):
        TensorFile(path, Kind("test file", "ltls-test", version=2))
    with pytest.raises(ModelFileError, match="is not an ltls model file"):
        TensorFile(path, MODEL)
    save_file({"weights": np.zeros((2, 2))}, path, {"format": "pt"})
    others = (path.read_bytes(), b"PK\3\4" + bytes(1000), b"hello world, this is text\n" * 50)
    for content in others:
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="is not an ltls model file"):
            ltls.load(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        ltls.load(path)


# Damage


def test_a_failed_write_leaves_the_old_file(model, path, full_disk):
    model.save(path)
    before = path.read_bytes()
    with full_disk(), pytest.raises(OSError):
        model.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_any_change_is_detected(model, path):
    model.save(path)
    good, rng = path.read_bytes(), np.random.default_rng(0)
    end = 8 + int.from_bytes(good[:8], "little")  # of the header
    in_header, in_tensors = rng.integers(8, end, 90), rng.integers(end, len(good), 90)
    for place in [*range(8), *in_header, *in_tensors]:
        bad = bytearray(good)
        bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        message = "was changed" if place >= end else "model"
        with pytest.raises(ModelFileError, match=message):
            ltls.load(path, verify=place >= end)
        with pytest.raises(ModelFileError, match=message):
            describe(path)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, -1])
def test_a_file_of_another_length_is_rejected(model, path, keep):
    model.save(path)
    good = path.read_bytes()
    for content in (good[:keep], good + b"\0"):
        path.write_bytes(content)
        with pytest.raises(ModelFileError):
            ltls.load(path)


# Headers that lie, with the right checksum


def resealed(change):
    """Return the bytes of a file whose header was changed before its checksum was computed."""
    content = bytes(encode(KIND, {"a": 1}, {"x": np.arange(4.0), "y": np.ones(2, np.int8)}))
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    header["__metadata__"] = {**header["__metadata__"], "header_sha256": "0" * 64}
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)
    return bytes(
        tensor_file._sealed(len(start).to_bytes(8, "little") + start + content[8 + length :])
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("data_offsets", [0, 4096], "lies outside of it"),
        ("data_offsets", [-8, 24], "lies outside of it"),
        ("data_offsets", [2**70, 2**70 + 32], "lies outside of it"),
        ("data_offsets", [0, 24], "does not have the size of its shape"),
        ("data_offsets", [1, 33], "which is not aligned"),
        ("data_offsets", [0], "is damaged"),
        ("data_offsets", [0.0, 32.0], "is damaged"),
        ("shape", [-2, -2], "does not have the size of its shape"),
        ("shape", [2**40, 2**40], "does not have the size of its shape"),
        ("shape", "4", "is damaged"),
        ("dtype", "C128", "is damaged"),
        ("dtype", ["F64"], "is damaged"),
    ],
)
def test_tensors_that_are_not_where_they_should_be(path, name, value, message):
    path.write_bytes(resealed(lambda header: header["x"].update({name: value})))
    file = TensorFile(path, KIND)
    with pytest.raises(ModelFileError, match=message):
        file.tensor("x")
    assert file.tensor("y").tolist() == [1, 1]


@pytest.mark.parametrize(
    "metadata",
    [
        {"model": "{"},
        {"model": "[" * 10_000},
        {"ltls_version": None},
        {"sha256": "[]"},
        {"sha256": "{}"},
        {"sha256": "3"},
    ],
    ids=str,
)
def test_metadata_that_is_not_what_it_should_be(path, metadata):
    def change(header):
        header["__metadata__"] |= metadata
        if None in metadata.values():
            del header["__metadata__"]["ltls_version"]

    path.write_bytes(resealed(change))
    with pytest.raises(ModelFileError, match="is damaged"):
        TensorFile(path, KIND).verify(["x"])


@pytest.mark.parametrize(
    "header",
    [b'{"__metadata__":{"a":"' + b"x" * (1 << 25) + b'"}}', b"[" + b"[]," * (1 << 21) + b"[]]"],
    ids=["long", "many lists"],
)
def test_a_header_cannot_ask_for_memory(path, header):
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with memory_limited(128 << 20), pytest.raises(ModelFileError, match="description of a model"):
        ltls.load(path)


def test_a_description_that_could_not_be_read_is_not_written(path, monkeypatch):
    monkeypatch.setattr(tensor_file, "_MOST_HEADER", 100)
    with pytest.raises(
        ValueError, match=r"the description of a model, .* may have at most 100 bytes"
    ):
        write(path, KIND, {"long": "x" * 100}, {})
    assert not path.exists()
