"""Atomic writes: a file is replaced as a whole, or not at all."""

import os
import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest

from ltls.core.atomic import new_folder, replacing


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


@contextmanager
def umask(value):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_replaced_file_keeps_its_mode_from_the_start(tmp_path, mode):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    with umask(0o022), replacing(path) as temporary:
        assert temporary.stat().st_mode & 0o777 == mode  # nobody else reads what is written
        temporary.write_text("new")
    assert path.stat().st_mode & 0o777 == mode
    assert path.read_text() == "new"


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_of_the_umask(tmp_path, mask, mode):
    path = tmp_path / "file"
    with umask(mask), replacing(path) as temporary:
        temporary.write_text("new")
    assert path.stat().st_mode & 0o777 == mode


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_a_replaced_file_keeps_its_owner(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    os.chown(path, 1234, 2345)
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_a_group_that_cannot_be_kept_passes_its_rights_to_no_other(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError

    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o664)
    monkeypatch.setattr(os, "chown", refused)
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.stat().st_mode & 0o777 == 0o604


def test_the_target_of_a_link_is_replaced(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "file").write_text("old")
    link = tmp_path / "link"
    link.symlink_to(folder / "file")
    with replacing(link) as temporary:
        assert temporary.parent == folder
        temporary.write_text("new")
    assert link.is_symlink()
    assert (folder / "file").read_text() == "new"
    with replacing(tmp_path / "link") as temporary:  # a link to nothing creates its target
        (folder / "file").unlink()
        temporary.write_text("newer")
    assert (folder / "file").read_text() == "newer"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(OSError, match="Not a regular file") as error, replacing(name):
            pass
        assert error.value.filename == str(name)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_device_is_not_replaced():
    with pytest.raises(OSError, match="Not a regular file"), replacing(os.devnull):
        pass
    assert not os.path.isfile(os.devnull)


_KILLED = """
import os, signal, sys
from ltls.core.atomic import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half of the n")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_files_of_killed_writers_are_removed_by_the_next_one(tmp_path):
    path, other = tmp_path / "file", tmp_path / "file.12345678.other"
    path.write_text("old")
    other.write_text("not ours")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False)
    assert path.read_text() == "old"
    (left,) = tmp_path.glob("*.tmp")  # the second writer has removed the first one's
    with replacing(path) as temporary:
        assert not left.exists()
        with replacing(path) as second:  # of a writer that still runs nothing is removed
            assert temporary.exists()
            second.write_text("second")
        temporary.write_text("first")
    assert path.read_text() == "first"
    assert sorted(os.listdir(tmp_path)) == ["file", "file.12345678.other"]


def test_file_and_folder_are_synchronized_around_the_rename(tmp_path, monkeypatch):
    path, calls = tmp_path / "file", []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(file):
        is_folder = stat.S_ISDIR(os.fstat(file).st_mode)
        calls.append("folder" if is_folder else os.fstat(file).st_size)
        fsync(file)

    def recorded_replace(*paths):
        calls.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert calls == [3, "rename", "folder"]


def test_a_writer_that_is_interrupted_while_it_waits_removes_nothing(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def interrupted(*_):
        raise KeyboardInterrupt

    with new_folder(tmp_path, lambda: None) as folder:
        monkeypatch.setattr(fcntl, "flock", interrupted)
        with pytest.raises(KeyboardInterrupt), new_folder(tmp_path, lambda: None):
            pass
        assert folder.is_dir()
