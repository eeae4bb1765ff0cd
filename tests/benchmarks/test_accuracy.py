"""The comparison of accuracy: its runner with fake contenders, its tables, its checks."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import datasets, machine
from benchmarks.accuracy import __main__ as accuracy
from benchmarks.accuracy import environments, report, results
from benchmarks.accuracy.methods import METHODS, PEERS, Method
from ltls import readers

FIGURES = ("p1", "p3", "p5", "recall5", "psp1", "psp5", "model_bytes")
FIGURES += ("predict_seconds", "predict_cpu_seconds", "train_seconds", "train_cpu_seconds")
FIGURES += ("train_peak_bytes", "test_rows")


def result(p1=0.5, **figures):
    """A result with one run."""
    run = dict.fromkeys(FIGURES, 1.0) | {"p1": p1} | figures
    return {"runs": {"0": run}, "about": {"machine": "a machine", "date": "2026-01-01"}}


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Results and whatever is built go to a folder of the test."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(machine, "BUILD", tmp_path / "build")


# Results


def test_figures_of_ranked_labels():
    Y = sp.csr_matrix(np.eye(6, dtype=np.float32))
    Y_test = sp.csr_matrix([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]], dtype=np.float32)
    top = np.array([[1, 2, 0, 3, 4], [0, 1, 2, 3, 5]], dtype=np.int32)
    found = results.figures(Y, Y_test, top)
    assert found["p1"] == 0.5
    assert found["p3"] == pytest.approx(2 / 6)
    assert found["p5"] == pytest.approx(3 / 10)
    assert found["recall5"] == 1
    assert found["psp1"] == 0.5  # all labels are equally frequent
    assert found["psp5"] == pytest.approx(1)


def test_figures_are_means_over_the_seeds_and_times_the_shortest():
    runs = [result(0.5, train_seconds=2), result(0.25, train_seconds=3)]
    two = {"runs": {str(seed): run["runs"]["0"] for seed, run in enumerate(runs)}}
    assert results.summary(two, "p1") == 0.375
    assert results.summary(two, "train_seconds") == 2
    assert results.summary({"not_run": "no"}, "p1") is None
    del two["runs"]["1"]["p5"]  # a figure that is newer than the result
    assert results.summary(two, "p5") is None


# Tables


def test_a_table_shows_every_method_that_is_known():
    missing = {"not_run": "took longer than 1 s", "about": {}}
    of = {"omikuji": result(0.75), "default": result(0.76), "pecos": missing}
    lines = {line.split(" | ")[0].strip("| *"): line for line in report.set_table(of)}
    assert "| best peer |" in lines["omikuji"]
    assert "| +1.00 |" in lines["`LTLSClassifier()`"]
    assert "not run" in lines["PECOS XR-Linear"]


def test_averages_are_over_the_sets_that_all_methods_ran_on():
    tools = ("default", "omikuji", "napkinxc", "pecos")
    every = {method: result(0.5, model_bytes=100) for method in tools}
    larger = {method: result(0.7, model_bytes=10_000) for method in tools}
    known = {"a": every, "b": larger, "c": {"default": result(0.1)}}
    found = report.averages(known)["default"]
    assert found["p1"] == pytest.approx(0.6)
    assert found["bytes"] == pytest.approx(1000)  # the geometric mean
    assert report.averages({}) == {}


# The runner


@pytest.fixture
def prepared(tmp_path):
    """A small set."""
    X = np.eye(6, dtype=np.float32).repeat(20, axis=0)
    y = np.arange(6).repeat(20)
    for part in ("train", "test"):
        readers.write(tmp_path / f"tiny_{part}.txt.gz", X, y, "xmc")
    return datasets.prepare(tmp_path, "tiny", tmp_path / "prepared")


def test_prepared_sets_are_those_of_the_file(prepared, tmp_path):
    Y, Y_test = datasets.labels(prepared)
    assert Y.shape == Y_test.shape == (120, 6)
    counts = {"rows": 120, "test_rows": 120, "features": 6, "labels": 6, "labels_per_row": 1}
    assert datasets.describe(prepared) == {**counts, "labels_with_one_row": 0}
    assert readers.read(prepared / "train.txt").y.tolist() == np.arange(6).repeat(20).tolist()
    assert datasets.prepare(tmp_path, "none", tmp_path / "prepared") is None


def test_ours_runs_once_a_seed(prepared):
    given = {"trellises__epochs": 3, "trellises__width": 2}
    method = Method("ours", "ours", "ours", "ltls", given, seeds=2)
    accuracy.run_missing(method, "tiny", prepared, 1, 60, fresh=False)
    (run,) = results.read("tiny", "ours")["runs"].values()
    assert run["p1"] == 1
    assert run["p5"] == pytest.approx(0.2)
    assert min(run[name] for name in ("train_seconds", "predict_seconds", "model_bytes")) > 0
    assert run["train_peak_bytes"] > 10**7
    accuracy.run_missing(method, "tiny", prepared, 2, 60, fresh=False)
    runs = results.read("tiny", "ours")["runs"]
    assert list(runs) == ["0", "1"]
    assert runs["0"] == run


FAKE_PEER = """
import json, os, sys
import numpy as np
name, data, out, settings = sys.argv[1:]
np.save(os.path.join(out, "top5.npy"), np.full((120, 5), [0, 1, 2, 3, 4], dtype=np.int32))
json.dump(json.loads(settings), open(os.path.join(out, "measures.json"), "w"))
"""


def test_a_peer_runs_in_its_environment(prepared, tmp_path, monkeypatch):
    script = tmp_path / "fake.py"
    script.write_text(FAKE_PEER)
    monkeypatch.setattr(accuracy, "CONTENDER", script)
    asked = []

    def command(peer, root):
        asked.append(peer)
        return [sys.executable], dict(os.environ)

    monkeypatch.setattr(environments, "command", command)
    measures = {"train_seconds": 2.0, "model_bytes": 7}
    method = Method("fake", "fake", "fake", "omikuji", measures)
    for _ in range(2):
        accuracy.run_missing(method, "tiny", prepared, 5, 60, fresh=False)
    found = results.read("tiny", "fake")
    assert asked == ["omikuji"]  # the second time there is nothing to do
    assert results.summary(found, "p1") == pytest.approx(1 / 6)
    assert results.summary(found, "train_seconds") == 2
    assert found["versions"]["omikuji"]


def test_a_failure_is_shown_and_tried_again(prepared, tmp_path, monkeypatch):
    script = tmp_path / "sometimes_broken.py"
    monkeypatch.setattr(accuracy, "CONTENDER", script)
    monkeypatch.setattr(environments, "command", lambda *_: ([sys.executable], dict(os.environ)))
    measures = {"train_seconds": 2.0, "model_bytes": 7}
    method = Method("fake", "fake", "fake", "omikuji", measures, seeds=2)

    def found(content, seeds):
        script.write_text(content)
        accuracy.run_missing(method, "tiny", prepared, seeds, 60, fresh=False)
        return results.read("tiny", "fake")

    broken = "raise SystemExit('it cannot')"
    assert found(broken, 2)["not_run"] == "exit status 1: it cannot"
    one = found(FAKE_PEER, 1)
    assert list(one["runs"]) == ["0"]
    assert found(broken, 2) == one  # what is known stays
    assert list(found(FAKE_PEER, 2)["runs"]) == ["0", "1"]


def test_a_run_that_takes_too_long_ends_with_all_that_it_started(tmp_path, monkeypatch):
    written = tmp_path / "child"
    child = f"import time, os; open({str(written)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    code = f"import subprocess, sys; subprocess.call([sys.executable, '-S', '-c', {child!r}])"

    class Process(subprocess.Popen):
        """Its time is up as soon as the child process runs."""

        def wait(self, timeout=None):
            if timeout is None:
                return super().wait()
            while self.poll() is None and not (written.exists() and written.read_text()):
                time.sleep(0.01)
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(environments.subprocess, "Popen", Process)
    with pytest.raises(environments.RunError, match="longer than 2 s"):
        environments.compete(
            [sys.executable, "-S", "-c", code], dict(os.environ), tmp_path / "out", 2
        )
    process = int(written.read_text())
    for _ in range(1200):  # the system may reap it with a delay
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the child process still runs")


def test_there_are_fewer_runs_on_a_large_set():
    for name in ("omikuji", "default"):
        assert [METHODS[name].runs(n_rows) for n_rows in (10**5, 10**6, 10**7)] == [5, 3, 1]
    assert METHODS["linearsvc"].runs(10) == 1


def test_one_vs_all_refuses_what_is_too_large():
    assert METHODS["linearsvc"].refuses(10**6, 10**4)
    assert not METHODS["linearsvc"].refuses(10**4, 10**3)
    assert not METHODS["omikuji"].refuses(10**6, 10**4)


def test_a_python_that_is_not_there_is_named():
    with pytest.raises(environments.SetupError, match=r"needs Python 1\.0 or 0\.9 with pip"):
        environments.interpreter(("1.0", "0.9"))


def test_every_peer_has_pinned_requirements():
    for peer in PEERS:
        pins = environments.versions(peer.contender)
        assert peer.contender in environments.PYTHONS
        assert pins
        assert all(pins.values()), pins
        json.dumps(peer.settings)
