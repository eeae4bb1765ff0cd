"""How many files of the package one has to read to follow a call: those whose functions it runs.

They are counted for a small problem, after imports, and for the second of two calls.
"""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, sys, tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

import ltls
from ltls import LTLSClassifier, load
from ltls.cli.app import main
from ltls.readers import write

ROOT = str(Path(ltls.__file__).parent) + os.sep


def crossed(call):
    call()
    files = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            files.add(code.co_filename.removeprefix(ROOT).replace(os.sep, "/"))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(files - {"core/caching.py"})  # which is Python's own from 3.12 on


def terminal():
    with suppress(SystemExit):
        main()


rng = np.random.default_rng(0)
y = np.arange(200) % 10
X = csr_array(np.eye(10, dtype=np.float32)[y] + (rng.random((200, 10)) < 0.1))
with tempfile.TemporaryDirectory() as folder:
    path, rows = folder + "/model", folder + "/rows"
    model = LTLSClassifier(random_state=0).fit(X, y)
    model.save(path)
    write(rows, X, y, "svmlight")
    sys.argv = ["ltls", "predict", path, rows, "-o", folder + "/labels.tsv"]
    found = {
        "fit": crossed(lambda: LTLSClassifier(random_state=0).fit(X, y)),
        "predict_topk": crossed(lambda: model.predict_topk(X)),
        "load": crossed(lambda: load(path)),
        "ltls predict": crossed(terminal),
    }
    assert len(Path(folder, "labels.tsv").read_text().splitlines()) == 200
print(json.dumps(found))
"""
MOST = {"fit": 28, "predict_topk": 6, "load": 19, "ltls predict": 45}


@pytest.fixture(scope="module")
def found():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("call", MOST)
def test_a_call_crosses_few_files(found, call):
    assert len(found[call]) <= MOST[call], found[call]


def test_predicting_and_loading_train_nothing(found):
    for call in ("predict_topk", "load", "ltls predict"):
        assert not [name for name in found[call] if name.startswith("training/")]
