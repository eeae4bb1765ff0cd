"""Faults of the file system: the n-th call fails, or the process or the machine ends there."""

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path

KILLED = 77  # exit code of a process that ended at its fault


class Faults:
    """Counts the calls that change files, and lets one of them be the last.

    Parameters
    ----------
    at : int or None
        The call at which the fault happens, from 0; None for none.
    mode : {"fail", "kill", "power"}
        The call raises an error; the process ends before it, as by SIGKILL; or the machine loses
        power: what was written but not synchronized is lost. Whether a name that was not
        synchronized survives is chance: `renames_survive` decides.
    """

    def __init__(self, at=None, mode="fail", renames_survive=True):
        self.at, self.mode, self.renames_survive = at, mode, renames_survive
        self.n_calls = 0
        self._unsynced = set()  # files whose content may be lost
        self._renames = []  # (old content of the target or None, source, target)

    def _count(self):
        number, self.n_calls = self.n_calls, self.n_calls + 1
        if number != self.at:
            return
        if self.mode == "fail":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.mode == "power":
            self._lose_power()
        os._exit(KILLED)

    def _lose_power(self):
        for path in self._unsynced:
            if os.path.exists(path):
                os.truncate(path, 0)
        if not self.renames_survive:
            for before, source, target in reversed(self._renames):
                _replace(target, source)
                if before is not None:
                    with open(target, "wb") as stream:
                        stream.write(before)

    @contextmanager
    def active(self):
        """Count the calls in this block."""
        names = ("open", "fsync", "replace", "unlink", "chmod", "utime")
        own = {name: getattr(os, name) for name in names}
        own_write = Path.write_bytes

        def counted(name):
            def call(*arguments, **options):
                self._count()
                return own[name](*arguments, **options)

            return call

        def fsync(file):
            self._count()
            own["fsync"](file)
            path = os.readlink(f"/proc/self/fd/{file}")
            if stat.S_ISDIR(os.fstat(file).st_mode):
                self._renames = [each for each in self._renames if os.path.dirname(each[2]) != path]
            self._unsynced.discard(path)

        def replace(source, target):
            self._count()
            source, target = os.path.realpath(source), os.path.realpath(target)
            before = Path(target).read_bytes() if os.path.exists(target) else None
            own["replace"](source, target)
            self._renames.append((before, source, target))
            if source in self._unsynced:
                self._unsynced.discard(source)
                self._unsynced.add(target)

        def write_bytes(path, content):
            with path.open("wb") as stream:
                self._unsynced.add(os.path.realpath(path))
                for half in (content[: len(content) // 2], content[len(content) // 2 :]):
                    self._count()
                    stream.write(half)
                    stream.flush()

        patched = {name: counted(name) for name in names} | {"fsync": fsync, "replace": replace}
        try:
            for name, call in patched.items():
                setattr(os, name, call)
            Path.write_bytes = write_bytes
            yield
        finally:
            for name, call in own.items():
                setattr(os, name, call)
            Path.write_bytes = own_write


_replace = os.replace
