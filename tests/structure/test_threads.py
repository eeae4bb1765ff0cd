"""Dynamic programs with several threads, called from several threads, and after a fork."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gil import releases_the_gil
from programs import PROGRAMS, all_results, assert_all_same, edge_scores
from reference import MINUS_INFINITY
from threadpoolctl import threadpool_info, threadpool_limits

from ltls import Trellis, readers
from ltls.core import _engine

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
EVERY_PROGRAM = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@DTYPES
@pytest.mark.parametrize("n_jobs", [1, 2, 3, 7, -1])
def test_results_do_not_depend_on_n_jobs(n_jobs, dtype):
    trellis = Trellis(5000, 3)
    h = edge_scores(trellis, 1003, dtype=dtype)
    h[::7, ::5] = MINUS_INFINITY
    assert_all_same(all_results(trellis, h, n_jobs=n_jobs), all_results(trellis, h))


def test_a_single_row_accepts_any_n_jobs():
    trellis = Trellis(22)
    h = edge_scores(trellis)
    for n_jobs in (1, 2, -1):
        assert_all_same(all_results(trellis, h, n_jobs=n_jobs), all_results(trellis, h))


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_concurrent_calls_agree(n_jobs):
    tasks = []
    for seed, (n_classes, width) in enumerate([(22, 2), (5000, 3), (10**12, 8), (300, 300)] * 10):
        trellis = Trellis(n_classes, width)
        tasks.append((trellis, edge_scores(trellis, 100, seed=seed)))
    expected = [all_results(trellis, h) for trellis, h in tasks]
    with ThreadPoolExecutor(max_workers=8) as threads:
        found = list(threads.map(lambda task: all_results(*task, n_jobs=n_jobs), tasks))
    for one, other in zip(found, expected, strict=True):
        assert_all_same(one, other)


@EVERY_PROGRAM
def test_the_gil_is_released_during_a_call(program):
    trellis = Trellis(10**6, width=8)
    h = edge_scores(trellis, 2000, dtype=np.float32)
    assert releases_the_gil(lambda: program(trellis, h))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_can_call_after_its_parent_used_threads():
    trellis = Trellis(5000, 3)
    h = edge_scores(trellis, 500)
    expected = all_results(trellis, h, n_jobs=2)

    def check():
        assert_all_same(all_results(trellis, h, n_jobs=2), expected)

    child = multiprocessing.get_context("fork").Process(target=check)
    child.start()
    child.join(timeout=30)
    hangs = child.is_alive()
    if hangs:
        child.kill()
        child.join()
    assert not hangs
    assert child.exitcode == 0
    assert_all_same(all_results(trellis, h, n_jobs=2), expected)


COUNT_THREADS = """
import os, sys, threading
from ltls import LTLSClassifier, readers
from ltls.settings import Trellises

counts, finished = set(), threading.Event()

def watch():
    while not finished.is_set():
        counts.add(len(os.listdir("/proc/self/task")))

watcher = threading.Thread(target=watch)
watcher.start()
others = len(os.listdir("/proc/self/task"))
try:
    for n_jobs in (None, 1, 2, 3):
        counts.clear()
        for _ in range(200):  # short calls may be over before the other thread looks
            rows = readers.read(sys.argv[1], n_jobs=n_jobs)
            trellises = Trellises(n_trellises=4, epochs=1)
            model = LTLSClassifier(n_jobs=n_jobs, trellises=trellises, random_state=0)
            model.fit(rows.X, rows.y).predict_topk(rows.X, 1)
            if max(counts, default=0) >= others - 1 + (n_jobs or 1):
                break
        print(max(counts) - others, len(os.listdir("/proc/self/task")) - others)
finally:
    finished.set()
    watcher.join()
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list threads")
def test_n_jobs_is_the_number_of_threads(tmp_path):
    """Parser, trainer and predictor start as many threads as n_jobs says; None is one.

    They end with the call: threads that wait for the next one would take processor time.
    """
    (tmp_path / "rows").write_text("1 1:1\n2 2:1\n" * 5000)
    command = [sys.executable, "-c", COUNT_THREADS, str(tmp_path / "rows")]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "4"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=200
    )
    counts = [[int(count) for count in line.split()] for line in done.stdout.splitlines()]
    assert counts == [[0, 0], [0, 0], [1, 0], [2, 0]]


def test_threadpoolctl_sees_and_limits_the_threads():
    all_cores = _engine.threads_for(-1)
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "openmp"]
    assert all_cores in [pool["num_threads"] for pool in pools]
    with threadpool_limits(1, "openmp"):
        assert _engine.threads_for(-1) == _engine.threads_for(3) == 1
    with threadpool_limits(3, "openmp"):
        assert _engine.threads_for(3) == 3
    assert _engine.threads_for(-1) == all_cores


class CountedParser:
    """The engine's parser, which records the number of threads that it is called with."""

    def __init__(self, parser):
        self.parser, self.n_threads = parser, []

    def parse(self, *arguments):
        self.n_threads.append(arguments[-1])
        return self.parser.parse(*arguments)

    def __getattr__(self, name):
        return getattr(self.parser, name)


def test_a_stream_obeys_the_limits_of_the_thread_that_reads_it(tmp_path, monkeypatch):
    (tmp_path / "rows").write_text("1 1:1\n2 2:1\n" * 100)
    stream = readers.Stream(tmp_path / "rows", chunk_size=100, n_jobs=2)
    parser = CountedParser(_engine.TextRows)
    monkeypatch.setattr(_engine, "TextRows", parser)
    for limit in (1, 2):
        parser.n_threads.clear()
        with threadpool_limits(limit, "openmp"):
            list(stream)
        assert set(parser.n_threads) == {limit}
