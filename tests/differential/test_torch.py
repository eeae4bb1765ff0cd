"""The engine, torch operators and GPU kernels (in Triton's interpreter) on the same rows."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ltls import LTLSClassifier, Trellis
from ltls.settings import Trellises

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

import problems  # noqa: E402

from ltls.torch import convert  # noqa: E402
from ltls.torch.layout import make_layout  # noqa: E402
from ltls.torch.ops import custom, reference  # noqa: E402

TOLERANCE = 2e-5  # sums in another order
CASES = [(2, 2, 2), (22, 2, 5), (105, 2, 7), (1000, 4, 5), (997, 8, 3), (10**6, 8, 4)]
with_each_case = pytest.mark.parametrize(("n_classes", "width", "k"), CASES)


def edge_scores(n_classes, width):
    rng = np.random.default_rng([n_classes, width])
    return rng.normal(size=(9, Trellis(n_classes, width).n_edges)).astype(np.float32)


def expected(n_classes, width, k):
    """Return best paths, scores, log-partitions and the gradient of the best, by the engine."""
    trellis, h = Trellis(n_classes, width), edge_scores(n_classes, width)
    paths, scores = trellis.topk(h, k)
    on_path = np.zeros_like(h)
    for row, path in enumerate(paths[:, 0].tolist()):
        on_path[row, trellis.path_edges(path)] = 1
    return paths, scores, trellis.log_partition(h), on_path - trellis.marginals(h)


def assert_equal(found, wanted):
    """Compare paths exactly but for ties within the tolerance, and numbers within it."""
    np.testing.assert_array_equal(found[0], wanted[0])
    for ours, theirs in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


@with_each_case
def test_torch_operators_agree_with_the_engine(n_classes, width, k):
    h = torch.from_numpy(edge_scores(n_classes, width)).requires_grad_()
    layout = make_layout(n_classes, width)
    wanted = expected(n_classes, width, k)
    for operators in ("reference", "custom"):
        h.grad = None
        if operators == "reference":
            paths, scores = reference.topk(h.detach(), layout, k)
            log_z = reference.log_partition(h, layout)
            log_probs = reference.path_scores(h, paths[:, :1], layout)[:, 0] - log_z
        else:
            paths, scores = custom.topk(h.detach(), k, n_classes, width)
            log_probs, log_z, _ = custom.log_probs(h, paths[:, :1].contiguous(), n_classes, width)
        log_probs.sum().backward()
        assert_equal([each.detach().numpy() for each in (paths, scores, log_z, h.grad)], wanted)


def test_gpu_kernels_agree_with_the_engine(tmp_path):
    pytest.importorskip("triton", reason="needs triton: run make test-all")
    cases = {f"{n} {width} {k}": edge_scores(n, width) for n, width, k in CASES}
    np.savez(tmp_path / "inputs.npz", **cases)
    environment = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("triton_interpreter.py")
    subprocess.run(
        [sys.executable, script, tmp_path / "inputs.npz", tmp_path / "results.npz"],
        env={**os.environ, **environment},
        check=True,
    )
    results = np.load(tmp_path / "results.npz")
    for case in cases:
        found = [results[f"{case} {name}"] for name in ("paths", "scores", "log_z", "grad")]
        assert_equal(found, expected(*map(int, case.split())))


@pytest.mark.parametrize("n_trellises", [1, 3])
def test_a_converted_classifier_predicts_as_before(n_trellises):
    X, y = problems.digits()
    trellises = Trellises(
        width=4, n_trellises=n_trellises, loss="softmax", epochs=2, average=False, dtype="float32"
    )
    model = LTLSClassifier(trellises=trellises, label_weights=False, random_state=0).fit(X, y)
    head = convert.from_classifier(model)
    with torch.no_grad():
        log_probs = head.log_prob(torch.from_numpy(X)).numpy()
    for label in range(10):
        own = model.path_log_proba(X, np.full(len(X), label))
        np.testing.assert_allclose(np.exp(log_probs[:, label]), np.exp(own), atol=1e-4)
