import importlib.util
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

# Several processes test on as many cores: threads that spin while they wait take the time of others
# (a minute for a second of k-means). Before NumPy and scikit-learn are imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings
from reference import Graph
from sklearn.datasets import load_digits

from ltls import Trellis
from ltls.core import _engine

pytest.register_assert_rewrite("comparison")  # so that its comparisons show their numbers
# The same examples in every run; `--hypothesis-profile=explore` looks for new ones.
settings.register_profile("ltls", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("ltls")

# A shell that starts us in the background has Ctrl-C ignored, and our children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fail if a test module cannot be imported: `--doctest-ignore-import-errors` would skip it."""
    report = yield
    is_test = collector.path.name.startswith("test_")
    if is_test and report.skipped and "unable to import module" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = _import_error(collector.path)
    return report


def _import_error(path):
    spec = importlib.util.spec_from_file_location("not_importable", path)
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except Exception as error:
        return f"{path} cannot be imported: {error!r}"
    return f"{path} cannot be imported"


@pytest.fixture(params=_engine.instruction_sets())
def instruction_set(request):
    """The engine restricted to one of the instruction sets that this machine has."""
    previous = _engine.use_instruction_set(request.param)
    yield request.param
    _engine.use_instruction_set(previous)


@pytest.fixture(scope="module", params=range(2, 10), ids="width {}".format)
def small(request):
    """(trellis, graph) for every number of classes from 1 to 300, at one width."""
    return [(Trellis(c, request.param), Graph(c, request.param)) for c in range(1, 301)]


HUGE = [
    (10**12, 2),
    (2**62 - 1, 2),
    (2**62, 2),
    (10**12, 8),
    (3**39 - 1, 3),
    (3**39, 3),
    (2**62, 3),
    (7**22 - 1, 7),
    (7**22, 7),
    (2**62, 7),
    (64**10 - 1, 64),
    (64**10, 64),
    (2**62 - 1, 64),
    (2**62, 64),
]


@pytest.fixture(scope="module", params=HUGE, ids=lambda size: "{} classes, width {}".format(*size))
def huge(request):
    """(trellis, graph) with far more paths than could be enumerated."""
    return Trellis(*request.param), Graph(*request.param)


@pytest.fixture(scope="session")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


@contextmanager
def _files_limited(resource, n_bytes):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def full_disk():
    """A context in which files cannot grow beyond a few bytes, as on a full disk."""
    resource = pytest.importorskip("resource", reason="needs file size limits")
    return lambda: _files_limited(resource, 4096)


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch, capsys):
    """Run a command line of ltls in this process."""
    from ltls import cli  # tests of other rooms do not need it

    monkeypatch.setenv("COLUMNS", "200")

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["ltls", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return Result(end.value.code, *capsys.readouterr())

    return command
