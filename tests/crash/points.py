"""Let every call of the C library that a work makes be the last one, or fail, in turn.

    LD_PRELOAD=shim.so python points.py FOLDER MOST [WORK FAULT]

For each of `WORKS` and each of `FAULTS`, or those that are given, MOST of the calls are tried, from
the first to the last, each in a forked process. Prints the number of calls and what went wrong as
lines of JSON.
"""

import ctypes
import itertools
import json
import os
import shutil
import signal
import sys
import warnings
from pathlib import Path

import numpy as np

from ltls import Checkpoint, LTLSClassifier, load
from ltls.readers import Stream
from ltls.settings import Trellises

FILES, MAPS, MEMORY, ENGINE = 1 | 2 | 4, 8, 16, 32  # as in shim.c
FAULTS = {
    "a file call fails": (FILES, 0),
    "killed at a file call": (FILES, 1),
    "no unsynced write survives": (FILES, 2),
    "even unsynced writes survive": (FILES, 3),
    "odd unsynced writes survive": (FILES, 4),
    "a map fails": (MAPS, 0),
    "killed at a map": (MAPS, 1),
    "an allocation fails": (MEMORY, 0),
    "an allocation of the engine fails": (ENGINE, 0),
    "killed at an allocation": (MEMORY, 1),
}
KILLED = 77
X, Y = np.eye(24, dtype=np.float32), np.arange(24) % 6
ROWS = "".join(f"{label} {i}:1\n" for i, label in enumerate(Y))


def classifier(epochs=2):
    trellises = Trellises(width=2, n_trellises=2, epochs=epochs)
    return LTLSClassifier(trellises=trellises, prototypes=True, neighbours=True, random_state=0)


def prepare(folder):
    """Make a folder with an old model, rows, and a checkpoint after one of two epochs."""
    template = folder.parent.parent / "template"
    if not template.exists():
        template.mkdir()
        OLD.save(template / "model.ltls")
        (template / "rows.svm").write_text(ROWS)
        classifier(1).fit(X, Y, checkpoint=template / "half")
    shutil.copytree(template, folder)


def save(folder):
    NEW.save(folder / "model.ltls")


def use(folder):
    assert load(folder / "model.ltls").predict(X).shape == (24,)
    assert load(folder / "model.ltls", mmap=False).predict(X).shape == (24,)


def train(folder):
    path = folder / "state"
    checkpoint = Checkpoint(path, resume=path.exists())
    classifier().fit(X, Y, checkpoint=checkpoint).save(folder / "model.ltls")


def resume(folder):
    checkpoint = Checkpoint(folder / "half", resume=True)
    classifier().fit(X, Y, checkpoint=checkpoint).save(folder / "model.ltls")


def stream(folder):
    path = folder / "state"
    checkpoint = Checkpoint(path, resume=path.exists())
    rows = Stream(folder / "rows.svm", "svmlight", chunk_size=64)
    model = classifier().fit_stream(rows, checkpoint=checkpoint)
    model.save(folder / "model.ltls")


WORKS = {work.__name__: work for work in (save, use, train, resume, stream)}
OLD, NEW = (classifier(epochs).fit(X, Y) for epochs in (1, 2))


def contents(folder):
    """Return the files of a folder but for temporary ones, and the names of these."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    temporary = {name for name in files if name.endswith(".tmp")}
    return {name: each for name, each in files.items() if name not in temporary}, temporary


def in_child(work):
    """Run a function in a forked process and return its exit code: 0 if it returns."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            work()
            code = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def attempt(shim, work, folder, kinds, mode, at):
    """Do a work with a fault. If the call fails, an error may follow; the process must live on."""
    shim.faults_arm(kinds, at, mode)
    try:
        work(folder)
    except BaseException as error:
        shim.faults_disarm()
        # NumPy and safetensors have errors of their own where memory is exhausted.
        if kinds != MEMORY and not isinstance(error, (MemoryError, OSError)):
            raise
    finally:
        shim.faults_disarm()
    _, temporary = contents(folder)
    assert not temporary, "a temporary file is left"


def codes(kinds, mode, culprit):
    """Return the exit codes that a process may have after a fault of a call in some library."""
    if mode:
        return {KILLED}
    # Where memory is exhausted, safetensors, in Rust, aborts, and NumPy raises an error without
    # the lock of the interpreter (numpy/_core/src/multiarray/nditer_api.c).
    if kinds == MEMORY and "safetensors" in culprit:
        return {0, -signal.SIGABRT}
    if kinds == MEMORY and "numpy" in culprit:
        return {0, -signal.SIGSEGV}
    return {0}


def check_point(shim, work, folder, expected, kinds, mode, at):
    """Return what is wrong after a fault at a call, or None."""
    prepare(folder)
    old, _ = contents(folder)
    code = in_child(lambda: attempt(shim, work, folder, kinds, mode, at))
    found, _ = contents(folder)
    # Threads make the number of calls vary: the last ones may not come.
    finished = code == 0 and found == expected
    culprit = shim.faults_culprit().decode()
    if code not in codes(kinds, mode, culprit) and not finished:
        return f"exit code {code} after a call of {culprit or 'Python'}"
    if found["model.ltls"] not in (old["model.ltls"], expected["model.ltls"]):
        return "half a model file"
    if code := in_child(lambda: work(folder)):
        return f"exit code {code} of the next run"
    if contents(folder) != (expected, set()):
        return "the next run gives something else"
    return None


def check_points(shim, work, root, kinds, mode, most):
    """Return the number of calls, those that were tried, and what is wrong after some of them."""
    for number in range(2):  # the first does what is done once per process
        whole = root / f"whole{number}"
        prepare(whole)
        shim.faults_arm(kinds, -1, mode)
        work(whole)
        n_calls = shim.faults_disarm()
    expected, _ = contents(whole)
    points = np.unique(np.linspace(0, n_calls - 1, min(most, n_calls)).astype(int)).tolist()
    wrong = {}
    for at in points:
        folder = root / f"call{at}"
        if problem := check_point(shim, work, folder, expected, kinds, mode, at):
            wrong[at] = problem
        shutil.rmtree(folder)
    return {"calls": n_calls, "tried": len(points), "wrong": wrong}


def main():
    root, most, chosen = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    warnings.simplefilter("ignore")
    shim = ctypes.CDLL(None)
    shim.faults_arm.argtypes = ctypes.c_int, ctypes.c_long, ctypes.c_int
    shim.faults_disarm.restype = ctypes.c_long
    shim.faults_culprit.restype = ctypes.c_char_p
    for name, fault in [chosen] if chosen else itertools.product(WORKS, FAULTS):
        folder = root / f"{name}, {fault}"
        folder.mkdir()
        found = check_points(shim, WORKS[name], folder, *FAULTS[fault], most)
        print(json.dumps({"work": name, "fault": fault, **found}), flush=True)


if __name__ == "__main__":
    main()
