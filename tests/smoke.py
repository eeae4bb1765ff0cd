"""An installed wheel works: learn, save, load and answer, in Python and at the terminal.

A script of its own, which needs nothing but the package: cibuildwheel and `make wheel-test` run it
in clean environments.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

import ltls
from ltls.core import _engine


def main():
    for compiler in ("cc", "c++", "gcc", "g++", "clang"):
        print(f"{compiler}: {shutil.which(compiler) or 'not here'}")
    print(f"ltls {ltls.__version__} at {Path(ltls.__file__).parent}")
    print(f"instruction sets: {', '.join(_engine.instruction_sets())}")
    source = Path(__file__).resolve().parent.parent / "src"
    assert source not in Path(ltls.__file__).resolve().parents, "the wheel is to be tested"
    X = np.eye(50, dtype=np.float32)
    y = [f"label {i}" for i in range(50)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.ltls")
        model = ltls.LTLSClassifier(random_state=0).set_params(trellises__epochs=20)
        model.fit(X, y).save(file)
        assert (ltls.load(file).predict(X) == y).all()
        rows = Path(folder, "rows.txt")
        rows.write_text("".join(f"{i % 5} {i % 5 + 1}:1\n" for i in range(100)))
        ltls_command = shutil.which("ltls") or str(Path(sysconfig.get_path("scripts"), "ltls"))
        for words in (
            ["train", str(rows), "-o", str(file), "-q"],
            ["evaluate", str(file), str(rows)],
            ["info", str(file)],
        ):
            subprocess.run([ltls_command, *words], check=True, stdout=subprocess.PIPE)
        del model
    print(f"works with Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
