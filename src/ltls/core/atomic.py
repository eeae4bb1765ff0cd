"""Atomic writes: a file is replaced as a whole, or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_VERSION = re.compile(r"version-[0-9a-f]{8}")  # names of folders that `new_folder` makes


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the same folder, which is renamed to `path` on success.

    On failure the temporary file is removed and `path` stays as it was. On success, file and folder
    are on the disk when the block ends. A file that is replaced keeps its mode and, where the
    system permits, its owner; the target of a symbolic link is replaced, not the link. Temporary
    files of writers that were killed are removed.

    Raises
    ------
    OSError
        If `path` is not a regular file: replacing a device or a pipe would destroy it.
    """
    target = _regular_file(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(target.parent))
    remove_abandoned(target)
    # The name is known before the file exists, so that any interrupt removes the file.
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}.tmp")
    lock = -1
    try:
        lock = _locked_file(temporary, target)
        yield temporary
        if temporary.stat().st_mtime_ns == 0:
            raise FileNotFoundError(errno.ENOENT, "Nothing was written", str(temporary))
        _synchronize(temporary)
        if fcntl is None:
            os.close(lock)  # Windows cannot rename an open file
            lock = -1
        os.replace(temporary, target)
        _synchronize_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if lock >= 0:
            os.close(lock)


@contextmanager
def new_folder(parent: Path, in_use: Callable[[], str | None]) -> Iterator[Path]:
    """Yield a new folder in `parent` for the files of a new version.

    At its end, the block replaces a file that names the version in use; `in_use` returns the name
    in this file. All other versions are then removed: the old one if the block succeeds, the new
    one if it fails, and those of writers that were killed.
    """
    lock = -1 if fcntl is None else os.open(parent, os.O_RDONLY)
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of two writers, the second one waits
        try:
            folder = parent / f"version-{secrets.token_hex(4)}"
            folder.mkdir()
            yield folder
        finally:
            name = in_use()
            for other in parent.iterdir():
                if other.name != name and is_version(other.name):
                    shutil.rmtree(other, ignore_errors=True)
    finally:
        if lock >= 0:
            os.close(lock)


def is_version(name: Any) -> bool:
    """Return whether a value is the name of a folder that `new_folder` has made."""
    return isinstance(name, str) and _VERSION.fullmatch(name) is not None


def synchronize_tree(folder: Path) -> None:
    """Wait until all files in a folder are on the disk."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        (_synchronize_folder if path.is_dir() else _synchronize)(path)


def _regular_file(path: str | os.PathLike[str]) -> Path:
    """Return the file that would be replaced; raise an error if it is not a regular file."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))
    return target


def remove_abandoned(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files of a target whose writers no longer run.

    A writer locks its file, and the lock ends with the process.
    """
    target = Path(os.path.realpath(path))
    if fcntl is None or not target.parent.is_dir():
        return
    pattern = re.compile(re.escape(target.name) + r"\.[0-9a-f]{8}\.tmp")
    for name in os.listdir(target.parent):
        if pattern.fullmatch(name):
            with suppress(OSError):  # locked, gone, or of another user
                _remove_unlocked(target.parent / name)


def _remove_unlocked(temporary: Path) -> None:
    file = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        temporary.unlink()
    finally:
        os.close(file)


def _locked_file(temporary: Path, target: Path) -> int:
    """Create a temporary file with the mode and owner of the target, and lock it."""
    before = target.stat() if target.exists() else None
    mode = 0o666 if before is None else stat.S_IMODE(before.st_mode) & 0o777
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    while True:
        file = os.open(temporary, flags, mode)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
                # Another process may have removed the file before it was locked.
                if not (temporary.exists() and os.path.samestat(os.fstat(file), temporary.stat())):
                    os.close(file)
                    continue
            if before is not None:
                _set_owner_and_mode(temporary, before, mode)
            os.utime(temporary, ns=(0, 0))  # to tell later whether something was written
        except BaseException:
            os.close(file)
            raise
        return file


def _set_owner_and_mode(file: Path, before: os.stat_result, mode: int) -> None:
    """Give a file the owner and mode that another had, as far as the system permits."""
    if hasattr(os, "chown"):
        try:
            os.chown(file, before.st_uid, before.st_gid)
        except PermissionError:  # only root may give files away
            try:
                os.chown(file, -1, before.st_gid)
            except PermissionError:
                mode &= ~0o070  # permissions of one group are not granted to another
    os.chmod(file, mode)


def _synchronize(path: Path) -> None:
    """Wait until a file is on the disk."""
    file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _synchronize_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do so."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows, or a folder that may not be read
        return
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(file)
