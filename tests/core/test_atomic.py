"""Atomic writes: a file is replaced as a whole, or not at all."""

import os

import pytest

from ltls.core.atomic import replacing


@pytest.mark.parametrize("exists", [False, True])
def test_a_file_is_replaced_at_the_end(tmp_path, exists):
    path = tmp_path / "file"
    if exists:
        path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert temporary.parent == tmp_path
        assert path.exists() == exists
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_nothing_written_is_an_error_that_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(path):
        pass
    assert path.read_text() == "old"


def test_two_writers_have_different_temporary_files(tmp_path):
    with replacing(tmp_path / "file") as one, replacing(tmp_path / "file") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "file").read_text() == "one"  # which is renamed last


def test_a_folder_and_a_missing_folder_are_named(tmp_path):
    with pytest.raises(IsADirectoryError) as error, replacing(tmp_path):
        pass
    assert error.value.filename == str(tmp_path)
    path = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError, match="No such folder") as error, replacing(path):
        pass
    assert error.value.filename == str(tmp_path / "none")
