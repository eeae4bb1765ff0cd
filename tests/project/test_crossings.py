"""How many files of the package one has to read to follow a call: those whose functions it runs.

They are counted for a small problem and for one with views, after imports, and for the second of
two calls.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

from ltls import LTLSClassifier

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


rng, found = np.random.default_rng(0), {}
for name, n_rows, n_labels in (("small", 200, 10), ("views", 1200, 80)):
    y = np.arange(n_rows) % n_labels
    noise = rng.random((n_rows, n_labels)) < 1 / n_labels
    X = csr_array(np.eye(n_labels, dtype=np.float32)[y] + noise)
    with tempfile.TemporaryDirectory() as folder:
        path, rows = folder + "/model", folder + "/rows"
        model = LTLSClassifier(random_state=0).fit(X, y)
        assert (model.model_.part("views") is not None) == (name == "views")
        model.save(path)
        write(rows, X, y, "svmlight")
        sys.argv = ["ltls", "predict", path, rows, "-o", folder + "/labels.tsv"]
        found[name] = {
            "fit": crossed(lambda: LTLSClassifier(random_state=0).fit(X, y)),
            "predict_topk": crossed(lambda: model.predict_topk(X)),
            "load": crossed(lambda: load(path)),
            "ltls predict": crossed(terminal),
        }
        assert len(Path(folder, "labels.tsv").read_text().splitlines()) == n_rows
print(json.dumps(found))
"""
MOST = {
    "small": {"fit": 21, "predict_topk": 6, "load": 16, "ltls predict": 27},
    "views": {"fit": 27, "predict_topk": 9, "load": 20, "ltls predict": 31},
}
# A model in a fresh process, which must not need modules that only training does.
PREDICTION = """
import sys

import numpy as np

from ltls import load

model = load(sys.argv[1])
X = np.eye(4)
model.predict(X), model.predict_topk(X, proba=True), model.explain(X), model.score(X, [0, 1, 2, 3])
import ltls.cli.predict

print([name for name in sys.modules if name.startswith("ltls.training")])
"""


@pytest.fixture(scope="module")
def found():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("problem", "call"), [(a, b) for a, own in MOST.items() for b in own])
def test_a_call_crosses_few_files(found, problem, call):
    files = found[problem][call]
    assert len(files) <= MOST[problem][call], files


def test_prediction_imports_nothing_of_training(tmp_path):
    LTLSClassifier(random_state=0).fit(np.eye(4), np.arange(4)).save(tmp_path / "model")
    words = [sys.executable, "-c", PREDICTION, tmp_path / "model"]
    assert subprocess.check_output(words, text=True) == "[]\n"
