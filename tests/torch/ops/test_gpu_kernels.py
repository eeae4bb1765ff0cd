"""Every fused GPU kernel against an enumeration of all paths in float64.

On a machine with a CUDA device, pytest, pytest-xdist, torch, triton and scikit-learn are all that
this needs, and no compiled engine. Most of the time is spent on compiling kernels, so that several
processes are that much faster; eight take two minutes on an H200:

    PYTHONPATH=src:tests/support python -m pytest --noconftest -o addopts= -n 8 -m gpu \\
        tests/torch/ops/test_gpu_kernels.py

With TRITON_INTERPRET=1 fewer cases run on the CPU, in Triton's interpreter; test_triton.py does so.
"""

import copy
import itertools
import os
import re
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
pytest.importorskip("triton", reason="needs triton: run make test-all")

from reference import Graph  # noqa: E402

from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax, functional, make_layout  # noqa: E402
from ltls.torch.ops import cluster_loss, clusters, custom, launch, reference  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not INTERPRETED and not torch.cuda.is_available(), reason="needs a CUDA device"
    ),
    pytest.mark.filterwarnings("default"),  # those of other versions of torch and triton
]
on_a_gpu = pytest.mark.skipif(INTERPRETED, reason="needs a CUDA device, not the interpreter")

TOLERANCE = 2e-5 if INTERPRETED else 1e-4
# times the tolerance, for gradients in the type of h: bfloat16 has 8 bits
ROUNDED = 1e-2 / TOLERANCE
SMALL = [(2, 2), (3, 2), (22, 2), (1000, 2), (7, 3), (243, 3), (100, 5), (512, 8), (777, 8),
         (1023, 8), (3000, 10), (256, 16), (2000, 17), (1024, 32), (1500, 32), (70, 64), (64, 64),
         (4097, 64)]  # fmt: skip
HUGE = [(10**6, 8), (10**12, 2), (10**12, 8), (2**62, 2), (2**62 - 1, 3), (2**62 - 1, 64)]
# What the engine's RandomCodebook gives, which never changes: sizes, seed, labels, their paths.
PERMUTED = [
    ([7], 0, [*range(7)], [1, 4, 0, 3, 6, 2, 5]),
    ([1000], 42, [*range(8)], [714, 437, 85, 7, 664, 394, 987, 934]),
    ([10**9], 2**64 - 1, [0, 1, 2], [773406423, 491846772, 503688331]),
    ([2**62], 12345, [0, 1], [3415546019399735468, 2873661419063527432]),
    ([22, 54, 118], 7, [0, 21, 22, 53, 54, 117], [12, 9, 40, 28, 101, 88]),
]


class Oracle:
    """All paths of a trellis as a matrix, and the answers from their definitions."""

    def __init__(self, n_classes: int, width: int) -> None:
        graph = Graph(n_classes, width)
        self.matrix = np.zeros((n_classes, len(graph.edges)))
        for number, path in enumerate(graph.paths):
            self.matrix[number, path] = 1

    def scores(self, h: np.ndarray) -> np.ndarray:
        """Return the scores of all paths."""
        forbidden = np.isneginf(h)
        finite = np.where(forbidden, 0, h)
        hit = forbidden.astype(float) @ self.matrix.T > 0
        return np.where(hit, -np.inf, finite @ self.matrix.T)

    def totals(self, scores: np.ndarray) -> np.ndarray:
        """Return the log-partitions."""
        with np.errstate(divide="ignore"):
            return np.logaddexp.reduce(scores, axis=1)

    def marginals(self, scores: np.ndarray) -> np.ndarray:
        """Return the probability of every edge."""
        totals = self.totals(scores)
        shift = np.where(np.isneginf(totals), 0, totals)
        return np.exp(scores - shift[:, None]) @ self.matrix


def error(found: torch.Tensor, expected: np.ndarray, floor: float = 1e-2) -> float:
    """Return the largest relative difference; differences of what is tiny count as absolute."""
    one, other = found.double().cpu().numpy(), np.asarray(expected, float)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        off = np.abs(one - other) / np.maximum(np.abs(other), floor)
    return float(np.max(np.where(same, 0, np.where(np.isnan(off), np.inf, off)), initial=0))


def inputs(n_edges: int, rows: int, kind: str, dtype: torch.dtype, device: str) -> torch.Tensor:
    rng = np.random.default_rng(n_edges + rows)
    h = rng.normal(size=(rows, n_edges))
    if kind == "large":
        h *= 10
    if kind == "forbidden":
        h[rng.random(h.shape) < 0.3] = -np.inf
        h[0] = -np.inf
    if kind == "ties":
        h = np.rint(h)
    return torch.tensor(h, dtype=dtype, device=device)


def check_small(oracle: Oracle, size: tuple[int, int], h: torch.Tensor, k: int) -> dict[str, float]:
    """Compare with all paths, enumerated."""
    layout, device = make_layout(*size), h.device
    n_classes, rows = layout.n_classes, len(h)
    rng = np.random.default_rng(0)
    exact = h.double().cpu().numpy()
    scores = oracle.scores(exact)
    totals, marginals = oracle.totals(scores), oracle.marginals(scores)
    places = np.arange(rows)

    paths = rng.integers(n_classes, size=(rows, 1))
    paths[-1] = -1
    given = torch.tensor(paths, device=device)
    found, total, values = launch.forward(h, given, layout)
    with np.errstate(invalid="ignore"):
        log_probs = scores - totals[:, None]
    expected = np.where(paths >= 0, log_probs[places[:, None], paths], 0)
    errors = {"log-partition": error(total, totals), "log-prob": error(found, expected, 1)}

    path_grads, total_grads = rng.normal(size=(rows, 1)), rng.normal(size=rows)
    grads = [torch.tensor(g, dtype=total.dtype, device=device) for g in (path_grads, total_grads)]
    grad = launch.backward(h, given, total, values, *grads, layout)
    expected = gradient(oracle, marginals, paths, path_grads, total_grads)
    errors["gradient"] = error(grad, expected) / (ROUNDED if h.element_size() == 2 else 1)

    several = rng.integers(-1, n_classes, size=(rows, 3))
    given = torch.tensor(several, device=device)
    found, total, values = launch.forward(h, given, layout)
    expected = np.where(several >= 0, log_probs[places[:, None], several], 0)
    errors["log-probs"] = error(found, expected, 1)
    if h.element_size() > 2:
        path_grads = rng.normal(size=several.shape)
        grads[0] = torch.tensor(path_grads, dtype=total.dtype, device=device)
        grad = custom.log_probs_backward(h, given, total, values, *grads, *size)
        expected = gradient(oracle, marginals, several, path_grads, total_grads)
        errors["gradients"] = error(grad, expected)

    best, values = launch.topk(h, layout, k)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    sorted_scores = np.take_along_axis(scores, order, 1)
    errors["top-k scores"] = error(values, sorted_scores)
    reached = best.cpu().numpy()
    if np.array_equal(exact, np.rint(exact)):  # sums are exact: ties go to the smaller path
        order = np.where(np.isneginf(sorted_scores), -1, order)
        errors["top-k paths"] = float((reached != order).any())
    else:
        again = np.where(reached >= 0, scores[places[:, None], reached], -np.inf)
        errors["top-k paths"] = error(torch.tensor(again), sorted_scores)
    return errors


def gradient(
    oracle: Oracle,
    marginals: np.ndarray,
    paths: np.ndarray,
    path_grads: np.ndarray,
    total_grads: np.ndarray,
) -> np.ndarray:
    """Return the gradient in h of log-probabilities of paths and of the log-partition."""
    used = np.where((paths >= 0)[..., None], oracle.matrix[paths] - marginals[:, None], 0)
    return marginals * total_grads[:, None] + (used * path_grads[..., None]).sum(1)


def check_huge(size: tuple[int, int], h: torch.Tensor, k: int) -> dict[str, float]:
    """Compare with plain torch operations in float64: too many paths to enumerate."""
    layout, device = make_layout(*size), h.device
    rng = np.random.default_rng(0)
    paths = torch.tensor(rng.integers(layout.n_classes, size=(len(h), 1)))
    exact = h.double().cpu().requires_grad_()
    score = reference.path_scores(exact, paths, layout)
    total = reference.log_partition(exact, layout)
    log_prob = score - total[:, None]
    log_prob.sum().backward()
    found, totals, values = launch.forward(h, paths.to(device), layout)
    ones = torch.ones_like(found)
    grad = launch.backward(h, paths.to(device), totals, values, ones, None, layout)
    best, best_scores = launch.topk(h, layout, k)
    again = reference.path_scores(exact, best.cpu(), layout)
    _, expected = reference.topk(exact.detach(), layout, k)
    return {
        "log-partition": error(totals, total.detach().numpy()),
        "log-prob": error(found, log_prob.detach().numpy(), 1),
        "gradient": error(grad, exact.grad.numpy()) / (ROUNDED if h.element_size() == 2 else 1),
        "top-k scores": error(best_scores, expected.numpy()),
        "top-k paths": error(again.detach(), expected.numpy()),
    }


def step(layer, x, y):
    """Return the loss and all gradients of a training step."""
    layer.zero_grad()
    x.grad = None
    loss = layer(x, y).loss
    loss.backward()
    given = (tensor for tensor in (x, *layer.parameters()) if tensor.grad is not None)
    return [loss.detach().clone(), *(tensor.grad.clone() for tensor in given)]


def captured_step(layer, x, y):
    """Return what `step` does, of a CUDA graph."""
    layer = copy.deepcopy(layer)
    # All that the graph holds must have been used on the stream that it captures, and on no other.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(layer, x, y)
    torch.cuda.current_stream().wait_stream(stream)
    layer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = layer(x, y).loss
        loss.backward()
    graph.replay()
    torch.cuda.synchronize()
    return [loss.detach(), *(parameter.grad for parameter in layer.parameters())]


def unsynchronized_step(layer, x, y):
    """Return what `step` does, if it never waits for the GPU."""
    step(layer, x, y)  # tables of the layout are copied once
    torch.cuda.set_sync_debug_mode("error")
    try:
        return step(layer, x, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def assert_same_step(found, expected, **tolerances):
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.to(theirs), theirs, **tolerances)


def key(seed):
    return torch.tensor([seed - 2**64 if seed >= 2**63 else seed], device=DEVICE)


def on_device(values, **options):
    return torch.tensor(values, device=DEVICE, **options)


def agree(errors):
    assert {name: off for name, off in errors.items() if not off <= TOLERANCE} == {}


def small_cases():
    """All kinds of scores in all types; in the interpreter, which is slow, some of them."""
    kinds = ["normal", "large", "forbidden", "ties"]
    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
    for place, size in enumerate(SMALL[::4] if INTERPRETED else SMALL):
        for (i, kind), (j, dtype) in itertools.product(enumerate(kinds), enumerate(dtypes)):
            if not INTERPRETED or (i + place) % 4 == j:
                yield pytest.param(size, kind, dtype, id=f"{size}-{kind}-{str(dtype)[6:]}")


@pytest.fixture(scope="module")
def oracles():
    return {}


@pytest.mark.parametrize(("size", "kind", "dtype"), small_cases())
def test_a_trellis_whose_paths_can_be_enumerated(size, kind, dtype, oracles, monkeypatch):
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    if size not in oracles:
        oracles.clear()
        oracles[size] = Oracle(*size)
    oracle = oracles[size]
    rows, k = (5, 3) if INTERPRETED else (67, 7)
    h = inputs(oracle.matrix.shape[1], rows, kind, dtype, DEVICE)
    agree(check_small(oracle, size, h, min(k, size[0])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16][: 1 if INTERPRETED else 2])
@pytest.mark.parametrize("size", HUGE[::2] if INTERPRETED else HUGE)
def test_a_trellis_with_more_paths_than_can_be_enumerated(size, dtype):
    h = inputs(make_layout(*size).n_edges, 2 if INTERPRETED else 9, "normal", dtype, DEVICE)
    agree(check_huge(size, h, 4))


def test_a_path_out_of_range_gives_nan():
    layout = make_layout(22, 2)
    h = torch.zeros(3, layout.n_edges, device=DEVICE)
    found, _, _ = launch.forward(h, on_device([[0], [22], [2**40]]), layout)
    assert found.isnan().flatten().tolist() == [False, True, True]


HALVES = [torch.float16] if INTERPRETED else [torch.float16, torch.bfloat16]


def adaptive_step(layer, x, y):
    """Return log-probabilities, the loss, and gradients by both."""
    layer.zero_grad()
    x.grad = None
    output, loss = layer(x, y)
    (2 * loss + (output * torch.linspace(-1, 1, len(x)).to(output)).sum()).backward()
    grads = (tensor.grad for tensor in (x, *layer.parameters()))
    return [output.detach(), loss.detach(), *(each.clone() for each in grads)]


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(
    ("n", "n_features", "n_classes"),
    [(1, 1, 2), (50, 24, 70), (30, 40, 1300), (70, 5, 20), (20, 200, 100), (20, 512, 17)],
)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_a_cluster_scores_its_own_rows(n, n_features, n_classes, share, dtype, monkeypatch):
    """A share of rows in the dense cluster, others in the head or the trellis; beside float64."""
    rng = np.random.default_rng(n)
    torch.manual_seed(0)
    cutoffs = [10, 10 + n_classes]
    layer = AdaptiveTrellisSoftmax(n_features, cutoffs[1] + 30, cutoffs, 1.0, width=4).to(dtype)
    mine = rng.random(n) < share
    others = rng.integers(40, size=n)
    others += np.where(others < 10, 0, n_classes)
    labels = torch.tensor(np.where(mine, 10 + rng.integers(n_classes, size=n), others))
    x = torch.randn(n, n_features, dtype=dtype)
    exact = copy.deepcopy(layer).double()
    if INTERPRETED:
        monkeypatch.setattr(custom, "_use_triton", lambda values: values.dtype != torch.float64)
    expected = adaptive_step(exact, x.double().requires_grad_(), labels)
    found = adaptive_step(layer.to(DEVICE), x.to(DEVICE).requires_grad_(), labels.to(DEVICE))
    # The terms of sums are rounded to bfloat16. Gradients of PyTorch's own operations are off by up
    # to 0.029 here.
    limit = TOLERANCE if dtype == torch.float32 else max(2e-2, 5 * torch.finfo(dtype).eps)
    errors = [error(one, other.numpy(), 1) for one, other in zip(found, expected, strict=True)]
    assert max(errors) < limit, errors


@pytest.mark.parametrize("ignore_index", [-100, 0])
def test_rows_of_clusters_are_listed_in_order(ignore_index):
    """More rows than a program looks at once."""
    n, cutoffs = 2500, [10, 30, 100]
    labels = np.random.default_rng(0).integers(-2, 102, size=n)
    labels[:9] = ignore_index
    found = torch.empty((3, n), dtype=torch.int64, device=DEVICE)
    rows = torch.empty((2, n), dtype=torch.int32, device=DEVICE)
    n_rows = torch.empty(2, dtype=torch.int32, device=DEVICE)
    given = on_device(labels), on_device(cutoffs), found, rows, n_rows
    launch.run(clusters.targets, (2,), *given, n, 2, ignore_index, BLOCK=1024)
    entries, within, ignored = found.cpu().numpy()
    counts = labels != ignore_index
    known = (labels >= 0) & (labels < 100)
    entry = np.where(labels < 10, labels, np.where(labels < 30, 10, 11))
    np.testing.assert_array_equal(entries, np.where(counts, np.where(known, entry, -2), -1))
    np.testing.assert_array_equal(ignored, np.where(counts, 0, -1))
    for cluster, (first, end) in enumerate(itertools.pairwise(cutoffs)):
        mine = np.flatnonzero((labels >= first) & (labels < end) & counts)
        np.testing.assert_array_equal(rows[cluster, : n_rows[cluster]].cpu().numpy(), mine)
        np.testing.assert_array_equal(within[mine], labels[mine] - first)


@pytest.mark.parametrize("ignore_index", [-100, 0])
def test_labels_of_an_adaptive_softmax_at_its_cutoffs(ignore_index, monkeypatch):
    """One label on either side of every cutoff, those to ignore, and those out of range."""
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    torch.manual_seed(0)
    options = {"width": 4, "reduction": "sum", "ignore_index": ignore_index, "head_bias": True}
    layer = AdaptiveTrellisSoftmax(16, 100, [10, 30, 60], div_value=2.0, **options).to(DEVICE)
    labels = on_device([-100, -1, 0, 1, 9, 10, 29, 30, 59, 60, 99, 100])
    x = torch.randn(len(labels), 16, device=DEVICE)
    ignored = labels == ignore_index
    wrong = ((labels < 0) | (labels >= 100)) & ~ignored
    every = layer.log_prob(x)
    expected = every.gather(1, labels.clamp(0, 99)[:, None])[:, 0].masked_fill(ignored, 0)
    output, loss = layer(x, labels)
    expected = expected.masked_fill(wrong, torch.nan)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert loss.isnan()
    fine = ~wrong
    torch.testing.assert_close(layer(x[fine], labels[fine]).loss, -expected[fine].sum())


def test_logits_of_a_cluster_may_be_minus_infinity(monkeypatch):
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    layer = AdaptiveTrellisSoftmax(1, 1212, [10, 1210], width=2, device=DEVICE)
    with torch.no_grad():
        layer.tail[0][0].weight.fill_(1)
        layer.tail[0][1].weight[:600] = -torch.inf
    x, labels = torch.ones(3, 1, device=DEVICE), on_device([700, 1199, 800])
    expected = torch.log_softmax(layer.tail[0](x), 1).gather(1, labels[:, None] - 10)[:, 0]
    expected = expected + torch.log_softmax(layer.head(x), 1)[:, 10]
    torch.testing.assert_close(layer(x, labels).output, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("frozen", ["clusters", "outside", "all but the input"])
def test_only_gradients_that_are_needed_are_computed(frozen, monkeypatch):
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    torch.manual_seed(0)
    layer = AdaptiveTrellisSoftmax(16, 500, [40, 90], width=4, div_value=2.0, device=DEVICE)
    x = torch.randn(4, 16, device=DEVICE, requires_grad=True)
    y = on_device([3, 40, 61, 250])
    expected = dict(zip(["x", *dict(layer.named_parameters())], step(layer, x, y)[1:], strict=True))
    grids, run = [], launch.run
    monkeypatch.setattr(
        launch, "run", lambda kernel, grid, *given, **named: (
            grids.append(grid) if kernel is clusters.backward else None,
            run(kernel, grid, *given, **named),
        ),
    )  # fmt: skip
    step(layer, x, y)
    whole = [grid[0] for grid in grids]
    grids.clear()
    inner = ("tail.0.1.weight", "tail.1.1.edges.weight", "tail.1.1.edges.bias")
    for name, parameter in layer.named_parameters():
        trained = {"outside": name in inner, "clusters": name not in inner}
        parameter.requires_grad_(trained.get(frozen, False))
    x.requires_grad_(frozen != "outside")
    layer.zero_grad()
    x.grad = None
    layer(x, y).loss.backward()
    assert sum(grid[0] for grid in grids) < sum(whole)
    for name, tensor in (("x", x), *layer.named_parameters()):
        assert (tensor.grad is not None) == tensor.requires_grad
        if tensor.grad is not None:
            torch.testing.assert_close(tensor.grad, expected[name])


def replaced(kind):
    """Return a change of a layer after which its clusters must be called."""
    from torch.nn.utils import parametrizations, prune

    linear = torch.nn.Linear
    return {
        "bias": lambda tail: tail.__setitem__(1, linear(8, 50, device=DEVICE)),
        "dropout": lambda tail: tail.insert(1, torch.nn.Dropout(0.0)),
        "hook": lambda tail: tail[1].register_forward_hook(lambda *_: None),
        "hook of the cluster": lambda tail: tail.register_forward_pre_hook(lambda *_: None),
        "pruned": lambda tail: prune.random_unstructured(tail[1], "weight", 0.5),
        "parametrized": lambda tail: parametrizations.weight_norm(tail[1]),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["bias", "dropout", "hook", "hook of the cluster", "pruned", "parametrized"]
)
def test_a_cluster_that_was_changed_is_called(kind, monkeypatch):
    """Also in a second step, which needs a new graph of pruned weights."""
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    torch.manual_seed(0)
    layer = AdaptiveTrellisSoftmax(16, 500, [40, 90], width=4, div_value=2.0, device=DEVICE)
    x, y = torch.randn(4, 16, device=DEVICE), on_device([3, 40, 61, 89])
    given = layer.head, layer.tail, layer.trellis.edges
    assert cluster_loss.supports(x, *given)
    replaced(kind)(layer.tail[0])
    assert not cluster_loss.supports(x, *given)
    for _ in range(2):
        loss = layer(x, y).loss
        torch.testing.assert_close(loss, -layer.log_prob(x, y).mean(), rtol=1e-4, atol=1e-4)
        loss.backward()


@pytest.mark.parametrize("sizes", [{"dtype": torch.float64}, {"div_value": 1.0}], ids=str)
def test_a_cluster_without_a_kernel_is_called(sizes, monkeypatch):
    """One of float64, and one of more features than kernels take."""
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    layer = AdaptiveTrellisSoftmax(600, 500, [40, 90], width=4, device=DEVICE, **sizes)
    x = torch.randn(4, 600, device=DEVICE, dtype=sizes.get("dtype"))
    y = on_device([3, 40, 61, 89])
    expected = -layer.log_prob(x, y).mean()
    torch.testing.assert_close(layer(x, y).loss, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("set_precision", "precision"),
    [
        ("pass", "ieee"),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "tf32"),
        ("torch.set_float32_matmul_precision('high')", "tf32"),
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", "tf32"),
        ("torch.backends.fp32_precision = 'tf32'", "tf32"),
    ],
)
def test_float32_is_multiplied_as_torch_does(set_precision, precision):
    """In a process of its own: torch forbids to mix its two settings."""
    if "fp32_precision" in set_precision and not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this version of torch has only the older setting")
    program = "import torch; from ltls.torch.ops import cluster_loss;"
    program += f"{set_precision}; print(cluster_loss._precision())"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [precision]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_fused_loss_of_an_adaptive_softmax_is_the_plain_one(reduction, monkeypatch):
    """On a GPU, or in the interpreter, where the plain one runs on the engine."""
    torch.manual_seed(0)
    layer = AdaptiveTrellisSoftmax(
        16, 500, [40, 90], width=4, div_value=2.0, reduction=reduction, device=DEVICE
    )
    x = torch.randn(9, 16, device=DEVICE, requires_grad=True)
    y = on_device([3, 39, 40, 89, 90, 499, -100, 250, 61])
    results = []
    for fused in (True, False):
        monkeypatch.setattr(custom, "_use_triton", lambda values, fused=fused: fused)
        layer.trellis.fused = fused or INTERPRETED
        layer.zero_grad()
        x.grad = None
        output, loss = layer(x, y)
        (loss + output.square().sum()).backward()
        grads = [x.grad, *(parameter.grad for parameter in layer.parameters())]
        results.append([output.detach(), loss.detach(), *(grad.clone() for grad in grads)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    layer.trellis.fused = True
    assert layer(x, on_device([*range(8), 500])).loss.isnan()


@pytest.mark.parametrize("kind", ["mean", "sum"])
@pytest.mark.parametrize("table", [False, True])
def test_the_loss_of_labels_is_that_of_their_paths(kind, table):
    """Through the loss and through the log-probabilities, beside an enumeration of all paths."""
    size, rows = (777, 8), 9
    layout, oracle = make_layout(*size), Oracle(*size)
    h = inputs(layout.n_edges, rows, "normal", torch.float32, DEVICE).requires_grad_()
    labels = np.random.default_rng(1).integers(700, size=rows)
    paths = np.random.default_rng(2).permutation(777)[:700] if table else np.arange(700)
    given = on_device([*labels[:-1], -100])
    counted = np.arange(rows) < rows - 1
    loss, log_probs = custom.loss(
        h, given, on_device(paths, dtype=torch.int32) if table else None, 700, -100,
        kind, layout,
    )  # fmt: skip
    weights = np.random.default_rng(3).normal(size=rows)
    (2 * loss + (log_probs * on_device(weights, dtype=h.dtype)).sum()).backward()
    scores = oracle.scores(h.detach().double().cpu().numpy())
    expected = scores[np.arange(rows), paths[labels]] - oracle.totals(scores)
    share = 1 / counted.sum() if kind == "mean" else 1
    path_grads = np.where(counted, weights - 2 * share, 0)[:, None]
    used = np.where(counted, paths[labels], -1)[:, None]
    grad = gradient(oracle, oracle.marginals(scores), used, path_grads, np.zeros(rows))
    agree(
        {
            "log-probs": error(log_probs.detach(), np.where(counted, expected, 0), 1),
            "loss": error(loss.detach(), -expected[counted].sum() * share, 1),
            "gradient": error(h.grad, grad),
        }
    )


@pytest.mark.parametrize("size", [(2, 2), (22, 2), (243, 3), (777, 8), (70, 64), (4097, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_logistic_loss_of_sets(size, dtype, weighted, monkeypatch):
    """Beside the cross-entropy of every edge: those of the paths of a row are positive."""
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    layout, oracle, rng = make_layout(*size), Oracle(*size), np.random.default_rng(0)
    h = inputs(layout.n_edges, 7, "large", dtype, DEVICE).requires_grad_()
    paths = rng.integers(-1, size[0], size=(7, 4))
    paths[:, 1] = paths[:, 0]  # counts once
    paths[2] = -1
    given = on_device(rng.random(paths.shape), dtype=torch.float32) if weighted else None
    losses = functional.logistic_loss(h, on_device(paths), layout, given)
    factors = rng.normal(size=7)
    losses.backward(on_device(factors, dtype=losses.dtype))
    own = given.double().cpu().numpy() if weighted else np.ones(paths.shape)
    used = np.where((paths >= 0)[..., None], oracle.matrix[paths], 0)
    positive, weights = used.max(1), (used * own[..., None]).max(1)
    x = h.detach().double().cpu().numpy()
    each = np.where(positive > 0, weights * np.logaddexp(0, -x), np.logaddexp(0, x))
    slopes = np.where(positive > 0, -weights / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))
    rounded = ROUNDED if h.element_size() == 2 else 1
    agree(
        {
            "losses": error(losses.detach(), each.sum(1)),
            "gradient": error(h.grad, slopes * factors[:, None]) / rounded,
        }
    )
    paths[0, 2] = size[0]
    h.grad = None
    losses = functional.logistic_loss(h, on_device(paths), layout, given)
    assert losses.isnan().tolist() == [True, *[False] * 6]
    losses.sum().backward()
    assert not h.grad[0].any()


def gradients_of_gradients(loss, of):
    (gradient,) = torch.autograd.grad(loss, of, create_graph=True)
    (loss + gradient.square().sum()).backward()


def test_gradients_of_gradients_are_an_error(monkeypatch):
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    layout = make_layout(22, 2)
    h = torch.zeros(3, layout.n_edges, device=DEVICE, requires_grad=True)
    paths = on_device([[0, 5], [7, -1], [21, 3]])
    with pytest.raises(RuntimeError, match="fused=False"):
        gradients_of_gradients(functional.logistic_loss(h, paths, layout).sum(), h)
    gradients_of_gradients(functional.logistic_loss(h, paths, layout, fused=False).sum(), h)
    x = torch.randn(4, 16, device=DEVICE, requires_grad=True)
    for layer in (
        AdaptiveTrellisSoftmax(16, 500, [40, 90], width=4, device=DEVICE),
        TrellisSoftmax(16, 500, width=4, device=DEVICE),
    ):
        with pytest.raises(RuntimeError, match="fused=False"):
            gradients_of_gradients(layer(x, on_device([3, 40, 61, 89])).loss, x)


@pytest.mark.parametrize(
    "assignment",
    ["frequency", "random", torch.arange(999, -1, -1)],
    ids=["frequency", "random", "table"],
)
@pytest.mark.parametrize("view", ["column", "every other", "expanded"])
def test_targets_that_are_a_view(assignment, view, monkeypatch):
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    torch.manual_seed(0)
    batch = torch.randint(1000, (9, 4), device=DEVICE)
    y = {"column": batch[:, -1], "every other": batch.flatten()[::2][:9],
         "expanded": batch[0, :1].expand(9)}[view]  # fmt: skip
    assert not y.is_contiguous()
    layers = (
        TrellisSoftmax(16, 1000, 8, assignment=assignment),
        AdaptiveTrellisSoftmax(16, 1000, [20, 100], width=4),
    )
    x = torch.randn(9, 16, device=DEVICE)
    for layer in layers:
        layer.to(DEVICE)
        found, expected = layer(x, y), layer(x, y.contiguous())
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(found.output, layer.log_prob(x, y), rtol=1e-4, atol=1e-4)


def test_a_label_out_of_range_makes_the_loss_nan():
    layout = make_layout(22, 2)
    h = torch.zeros(3, layout.n_edges, device=DEVICE, requires_grad=True)
    loss, log_probs = custom.loss(h, on_device([0, 21, -100]), None, 21, -100, "mean", layout)
    assert log_probs.isnan().flatten().tolist() == [False, True, False]
    assert loss.isnan()


@pytest.mark.parametrize(("sizes", "seed", "labels", "paths"), PERMUTED)
def test_random_codebooks_are_those_of_the_engine(sizes, seed, labels, paths):
    assert launch.permute(on_device(labels), key(seed), sizes, False).tolist() == paths


@pytest.mark.parametrize("sizes", [[1], [2], [5], [1000], [4096], [7, 8, 300]], ids=str)
def test_random_codebooks_are_permutations_of_every_block(sizes):
    every = torch.arange(sizes[-1], device=DEVICE)
    there = launch.permute(every, key(2**64 - 5), sizes, False)
    assert torch.equal(launch.permute(there, key(2**64 - 5), sizes, True), every)
    assert torch.equal(there.sort().values, every)
    for first, end in itertools.pairwise([0, *sizes]):
        assert ((there[first:end] >= first) & (there[first:end] < end)).all()


def test_a_huge_random_codebook_can_be_inverted():
    sizes = [2**62 - 3]
    some = on_device(np.random.default_rng(0).integers(sizes[0], size=1000))
    there = launch.permute(some, key(1), sizes, False)
    assert torch.equal(launch.permute(there, key(1), sizes, True), some)


def test_labels_outside_of_a_random_codebook_have_no_path():
    outside = on_device([-100, -1, 0, 299, 300, 2**40])
    found = launch.permute(outside, key(3), [300], False).tolist()
    assert found[:2] == [-1, -1]
    assert found[4:] == [300, 300]


@on_a_gpu
def test_tensors_on_a_gpu_are_given_to_the_kernels():
    assert custom.is_fused(torch.zeros(1, device=DEVICE), make_layout(10, 2))


@on_a_gpu
@pytest.mark.parametrize(
    ("n_trellises", "assignment"), [(1, "frequency"), (1, "random"), (3, "random")]
)
def test_a_head_with_kernels_is_one_without(n_trellises, assignment):
    """Also without waiting for the GPU, in a CUDA graph, compiled, and in autocast."""
    layers = []
    for fused in (True, False):
        torch.manual_seed(1)
        options = {"fused": fused, "device": DEVICE}
        layers.append(TrellisSoftmax(32, 5000, 8, n_trellises, assignment, **options))
    x = torch.randn(300, 32, device=DEVICE)
    y = torch.randint(0, 5000, (300,), device=DEVICE)
    losses = []
    for layer in layers:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        losses.append([])
        for _ in range(5):
            losses[-1].append(step(layer, x, y)[0].item())
            optimizer.step()
    head = layers[0]
    labels, values = head.topk(x, 5)
    every = head.log_prob(x).detach()
    agree(
        {
            "training": error(torch.tensor(losses[0]), np.array(losses[1])),
            "top-k": error(values, every.topk(5).values.cpu().numpy()),
            "labels": error(every.gather(1, labels), values.cpu().numpy()),
        }
    )
    expected = step(head, x, y)
    close = {"rtol": 1e-4, "atol": 1e-6}
    assert_same_step(unsynchronized_step(head, x, y), expected, **close)
    assert_same_step(captured_step(head, x, y), expected, **close)
    assert_same_step(step(torch.compile(head, fullgraph=True), x, y), expected, **close)
    with torch.autocast("cuda", torch.bfloat16):
        automatic = step(head, x, y)[0]
    torch.testing.assert_close(automatic, expected[0], rtol=1e-2, atol=0)


def all_answers(layer, x, y):
    among = torch.arange(0, 5000, 3, device=x.device)
    return [layer(x, y).output, layer.topk(x, 5)[1], layer.topk(x, 5, among=among)[1]]


@on_a_gpu
def test_an_adaptive_softmax_on_a_gpu_is_the_one_on_a_cpu():
    """Also without waiting for the GPU, in a CUDA graph, and compiled."""
    torch.manual_seed(0)
    layer = AdaptiveTrellisSoftmax(32, 5000, [100, 400], width=8, div_value=2.0)
    x, y = torch.randn(300, 32), torch.randint(0, 5000, (300,))
    y[:100] %= 500
    y[5] = -100
    expected, answers = step(layer, x, y), all_answers(layer, x, y)
    layer.to(DEVICE)
    x, y = x.to(DEVICE), y.to(DEVICE)
    assert_same_step(all_answers(layer, x, y), answers, rtol=1e-4, atol=1e-4)
    close = {"rtol": 1e-3, "atol": 1e-5}
    assert_same_step(unsynchronized_step(layer, x, y), expected, **close)
    assert_same_step(captured_step(layer, x, y), expected, **close)
    assert_same_step(step(torch.compile(layer, fullgraph=True), x, y), expected, **close)


@on_a_gpu
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_graphed_callable_is_the_layer(adaptive):
    torch.manual_seed(0)
    options = {"width": 8, "device": DEVICE}
    layer = TrellisSoftmax(32, 5000, **options)
    if adaptive:
        layer = AdaptiveTrellisSoftmax(32, 5000, [100, 400], **options)
    x = torch.randn(300, 32, device=DEVICE, requires_grad=True)
    y = torch.randint(0, 5000, (300,), device=DEVICE)
    graphed = torch.cuda.make_graphed_callables(copy.deepcopy(layer), (x, y))
    for targets in (y, y.flip(0)):
        assert_same_step(step(graphed, x, targets), step(layer, x, targets))


@pytest.fixture
def counted(monkeypatch):
    """Return the operations of a call: those of torch, and launches in Triton's interpreter."""
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

    def counted(call):
        calls.clear()
        with Count():
            call()
        return list(calls)

    return counted


@pytest.mark.skipif(not INTERPRETED, reason="counts launches in Triton's interpreter")
@pytest.mark.parametrize(
    ("assignment", "n_kernels"),
    [("frequency", 2), ("random", 3), (torch.arange(999, -1, -1), 2)],
    ids=["frequency", "random", "table"],
)
def test_a_training_step_launches_few_kernels(assignment, n_kernels, counted):
    """The host launches kernels more slowly than a GPU runs them, so their number matters."""
    y = torch.arange(9) * 100
    y[3] = -100
    grads, calls = [], []
    for fused in (True, False):
        torch.manual_seed(0)
        head = TrellisSoftmax(16, 1000, 8, assignment=assignment, fused=fused)
        x = torch.randn(9, 16, requires_grad=True)
        calls.append(counted(lambda head=head, x=x: head(x, y).loss.backward()))
        grads.append(torch.cat([x.grad, head.edges.weight.grad]))
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)
    assert sum(name.startswith("triton") for name in calls[0]) == n_kernels
    assert len(calls[0]) <= 32, calls[0]


@pytest.mark.skipif(not INTERPRETED, reason="counts launches in Triton's interpreter")
@pytest.mark.parametrize(("cutoffs", "n_kernels"), [([20], 7), ([20, 100], 9), ([20, 50, 100], 11)])
def test_a_step_of_an_adaptive_softmax_launches_few_kernels(cutoffs, n_kernels, counted):
    """Two for every dense cluster; matrix products and the others do not depend on clusters."""
    layer = AdaptiveTrellisSoftmax(16, 1000, cutoffs, width=4)
    x, y = torch.randn(9, 16, requires_grad=True), torch.arange(9) * 100
    layer(x, y)  # makes the tables
    calls = counted(lambda: layer(x, y).loss.backward())
    assert sum(name.startswith("triton") for name in calls) == n_kernels
    assert sum("aten.mm" in name for name in calls) == 3
    kept = ("triton", "aten.cat", "aten.mm", "aten.nll_loss_forward", "aten.ones_like")
    views = "empty|select|unbind|split|view|alias|detach|transpose|squeeze|aten.t\\.|lift"
    others = [name for name in calls if not name.startswith(kept) and not re.search(views, name)]
    assert others == []
