"""The Triton kernels against plain torch operations in float64.

`test_triton.py` runs this file in a process of its own, because TRITON_INTERPRET=1 must be set
before Triton is imported. On a machine with a GPU, `pytest tests/torch/ops/kernel_cases.py` runs
the compiled kernels.
"""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
pytest.importorskip("triton", reason="needs triton: run make test-all")

from ltls.torch import TrellisSoftmax, make_layout  # noqa: E402
from ltls.torch.ops import custom, launch, reference  # noqa: E402

# The interpreter runs on NumPy, which warns of log(0).
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [(2, 2), (22, 2), (243, 3), (100, 5), (777, 8), (2000, 17), (70, 64), (10**12, 8)]
KINDS = ["normal", "large", "forbidden", "ties"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
# Every size with every kind of scores, and every kind with every dtype.
CASES = [
    (size, kind, DTYPES[(i + j) % 4])
    for (i, size), (j, kind) in itertools.product(enumerate(SIZES), enumerate(KINDS))
]
# What `ltls.RandomCodebook` gives in every version: sizes, seed, labels, their paths.
PERMUTED = [
    ([7], 0, [*range(7)], [1, 4, 0, 3, 6, 2, 5]),
    ([1000], 42, [*range(8)], [714, 437, 85, 7, 664, 394, 987, 934]),
    ([10**9], 2**64 - 1, [0, 1, 2], [773406423, 491846772, 503688331]),
    ([2**62], 12345, [0, 1], [3415546019399735468, 2873661419063527432]),
    ([22, 54, 118], 7, [0, 21, 22, 53, 54, 117], [12, 9, 40, 28, 101, 88]),
]


def edge_scores(layout, kind, dtype, rows=5):
    rng = np.random.default_rng(layout.n_edges)
    h = rng.normal(size=(rows, layout.n_edges))
    if kind == "large":
        h *= 10
    if kind == "forbidden":
        h[rng.random(h.shape) < 0.3] = -np.inf
        h[0] = -np.inf
    if kind == "ties":
        h = np.rint(h)
    return torch.tensor(h, dtype=dtype, device=DEVICE)


def expected_log_probs(h, paths, layout):
    log_z = reference.log_partition(h, layout)
    log_probs = reference.path_scores(h, paths, layout) - log_z[:, None]
    return torch.where(paths < 0, 0, log_probs), log_z


def close(found, expected, rtol=1e-4, atol=1e-4):
    torch.testing.assert_close(found.double().cpu(), expected, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize(("size", "kind", "dtype"), CASES)
@pytest.mark.parametrize("k", [1, 3])
def test_forward_and_backward(size, kind, dtype, k):
    layout = make_layout(*size)
    h = edge_scores(layout, kind, dtype)
    generator = torch.Generator().manual_seed(0)
    paths = torch.randint(layout.n_classes, (len(h), k), generator=generator)
    paths[-1, 0] = -1
    log_probs, log_z, alpha = launch.forward(h, paths.to(DEVICE), layout)
    exact = h.double().cpu().requires_grad_()
    expected, expected_log_z = expected_log_probs(exact, paths, layout)
    close(log_probs, expected.detach())
    close(log_z, expected_log_z.detach())

    finite = torch.isfinite(expected_log_z)
    grads = torch.randn(len(h), k, generator=generator, dtype=torch.float64)
    grad_log_z = torch.randn(len(h), generator=generator, dtype=torch.float64)
    device_grads = [g.to(DEVICE, log_z.dtype) for g in (grads, grad_log_z)]
    grad = launch.backward(h, paths.to(DEVICE), log_z, alpha, *device_grads, layout)
    edges = layout.path_edges(paths)
    marginals = reference.marginals(exact, layout)
    known = torch.where(paths >= 0, grads, 0)
    expected_grad = marginals * (grad_log_z - known.sum(1))[:, None]
    on_path = torch.where(edges >= 0, known[..., None], 0)
    expected_grad.scatter_add_(1, edges.clamp(min=0).flatten(1), on_path.flatten(1))
    tolerance = 0.02 if h.element_size() == 2 else 1e-4  # the gradient has the dtype of h
    close(grad[finite.to(DEVICE)], expected_grad[finite], tolerance, tolerance)


@pytest.mark.parametrize(("size", "kind", "dtype"), CASES)
def test_topk(size, kind, dtype):
    layout = make_layout(*size)
    h = edge_scores(layout, kind, dtype)
    k = min(4, layout.n_classes)
    paths, scores = launch.topk(h, layout, k)
    exact = h.double().cpu()
    expected_paths, expected_scores = reference.topk(exact, layout, k)
    close(scores, expected_scores)
    if kind == "ties":  # sums are exact, so paths are too
        assert paths.tolist() == expected_paths.tolist()
    found = reference.path_scores(exact, paths.cpu(), layout)
    close(torch.where(paths.cpu() >= 0, found, -torch.inf), expected_scores)


def test_paths_out_of_range_are_nan():
    layout = make_layout(22, 2)
    h = torch.zeros(3, layout.n_edges, device=DEVICE)
    paths = torch.tensor([[0], [22], [2**40]], device=DEVICE)
    found, _, _ = launch.forward(h, paths, layout)
    assert found.isnan().flatten().tolist() == [False, True, True]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, None])
def test_look_up(dtype):
    labels = torch.tensor([-100, -1, 0, 1, 4, 5, 2**40])
    table = None if dtype is None else torch.tensor([3, 1, 4, 0, 6], dtype=dtype)
    found = launch.look_up(
        labels.to(DEVICE), None if table is None else table.to(DEVICE), 5, 7, -100
    )
    assert found.tolist() == reference.look_up(labels, table, 5, 7, -100).tolist()


def key(seed):
    return torch.tensor([seed - 2**64 if seed >= 2**63 else seed], device=DEVICE)


@pytest.mark.parametrize(("sizes", "seed", "labels", "paths"), PERMUTED)
def test_permute_equals_the_engine(sizes, seed, labels, paths):
    found = launch.permute(torch.tensor(labels, device=DEVICE), key(seed), sizes, False)
    assert found.tolist() == paths
    assert launch.permute(found, key(seed), sizes, True).tolist() == labels


@pytest.mark.parametrize("sizes", [[1], [2], [5], [1000], [4096], [7, 8, 300]], ids=str)
def test_permute_is_a_bijection_of_every_block(sizes):
    labels = torch.arange(sizes[-1], device=DEVICE)
    paths = launch.permute(labels, key(2**64 - 5), sizes, False)
    assert torch.equal(launch.permute(paths, key(2**64 - 5), sizes, True), labels)
    for first, end in itertools.pairwise([0, *sizes]):
        assert paths[first:end].sort().values.tolist() == [*range(first, end)]


def test_permute_maps_values_out_of_range():
    values = torch.tensor([-100, -1, 300, 2**40], device=DEVICE)
    assert launch.permute(values, key(3), [300], False).tolist() == [-1, -1, 300, 300]


@pytest.mark.skipif(DEVICE != "cpu", reason="counts launches in Triton's interpreter")
@pytest.mark.parametrize(
    ("assignment", "n_kernels"),
    [("frequency", 3), ("random", 4), (torch.arange(999, -1, -1), 3)],
    ids=["frequency", "random", "table"],
)
def test_a_training_step_launches_few_kernels(assignment, n_kernels, monkeypatch):
    """The host launches kernels more slowly than a GPU runs them, so their number matters."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from triton.runtime.interpreter import GridExecutor

    calls, inside_kernel = [], []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if not inside_kernel:
                calls.append(str(operator))
            return operator(*args, **(kwargs or {}))

    launch_kernel = GridExecutor.__call__

    def count(kernel, *args, **kwargs):
        calls.append(f"triton {kernel.fn.__name__}")
        inside_kernel.append(True)
        launch_kernel(kernel, *args, **kwargs)
        inside_kernel.pop()

    monkeypatch.setattr(GridExecutor, "__call__", count)
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    y = torch.arange(9) * 100
    y[3] = -100
    grads, counted = [], []
    for fused in (True, False):
        torch.manual_seed(0)
        head = TrellisSoftmax(16, 1000, 8, assignment=assignment, fused=fused)
        x = torch.randn(9, 16, requires_grad=True)
        calls.clear()
        with Count():
            head(x, y).loss.backward()
        counted.append(list(calls))
        grads.append(torch.cat([x.grad, head.edges.weight.grad]))
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)
    assert sum(name.startswith("triton") for name in counted[0]) == n_kernels
    assert len(counted[0]) <= 36, counted[0]
