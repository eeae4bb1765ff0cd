"""The predictor with other threads around: forks, and the end of the interpreter."""

import os
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from ltls import LTLSClassifier
from ltls.settings import Trellises

N_FORKS = 100


@pytest.fixture(scope="module")
def predictor():
    X = np.eye(64, dtype=np.float32)
    model = LTLSClassifier(trellises=Trellises(width=2, n_trellises=1), random_state=0)
    return model.fit(X, np.arange(64)).predictor(k=1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_predicts_although_threads_of_its_parent_were_predicting(
    predictor, record_property
):
    record_property("forks", N_FORKS)
    indptr = np.arange(65, dtype=np.int32)
    rows = indptr, np.arange(64, dtype=np.int32), np.ones(64, np.float32)
    expected, finished = predictor(*rows)[0].tolist(), threading.Event()

    def predict():
        while not finished.is_set():
            predictor(*rows)

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = []
    try:
        for _ in range(N_FORKS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
                child = os.fork()
            if child == 0:
                signal.alarm(5)  # ends a child that waits for ever
                os._exit(predictor(*rows)[0].tolist() != expected)
            codes.append(os.waitpid(child, 0)[1])
            if codes[-1]:
                break
    finally:
        finished.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * N_FORKS


DAEMON = """
import sys, threading, time
import numpy as np
from ltls import LTLSClassifier, Trellis

X = np.eye(64, dtype=np.float32)
model = LTLSClassifier(random_state=0).fit(X, np.arange(64))
predictor, trellis, h = model.predictor(k=1), Trellis(1000), np.zeros((200, Trellis(1000).n_edges))
indptr = np.arange(65, dtype=np.int32)
rows = indptr, np.arange(64, dtype=np.int32), np.ones(64, np.float32)
calls = {
    "predictor": lambda: predictor(*rows),
    "predict": lambda: model.predict(X),
    "trellis": lambda: trellis.viterbi(h),
}[sys.argv[1]]

def work():
    while True:
        calls()

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.parametrize("call", ["predictor", "predict", "trellis"])
def test_a_daemon_thread_does_not_disturb_the_end_of_the_interpreter(call):
    ended = subprocess.run(
        [sys.executable, "-c", DAEMON, call], capture_output=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
