"""What importing `ltls` and `ltls.torch` loads."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs torch: run make test-all")


def check(code):
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_ltls_does_not_import_torch():
    check("import sys, ltls; from ltls import *; assert 'torch' not in sys.modules")


def test_the_layer_does_not_import_the_estimators():
    check("import sys, ltls.torch; assert 'ltls.estimators' not in sys.modules")


def test_the_layer_works_without_the_compiled_engine():
    check(
        "import sys\n"
        "sys.modules['ltls._engine'] = None\n"
        "import torch\n"
        "from ltls.torch import TrellisSoftmax\n"
        "head = TrellisSoftmax(8, 1000, 4, counts=range(1000), n_trellises=2)\n"
        "x = torch.ones(3, 8)\n"
        "head(x, torch.arange(3)).loss.backward()\n"
        "assert head.topk(x, 5)[0].shape == (3, 5)\n"
        "assert sys.modules['ltls._engine'] is None\n"
    )
