"""Compare every fused GPU kernel with an enumeration of all paths in float64.

Prints a table and ends with status 1 if anything is further off than 1e-4, relative. It needs a
CUDA device, torch, triton and numpy, and no compiled engine: `PYTHONPATH=src python
benchmarks/check_gpu_kernels.py`. Under TRITON_INTERPRET=1 the kernels run on the CPU, without a
GPU; `--quick` then suits a test.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from reference import Graph

from ltls.torch import TrellisSoftmax, functional, launches, make_layout, unfused

TOLERANCE = 1e-4
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
    found, total, values = launches.forward(h, given, layout)
    with np.errstate(invalid="ignore"):
        log_probs = scores - totals[:, None]
    expected = np.where(paths >= 0, log_probs[places[:, None], paths], 0)
    errors = {"log-partition": error(total, totals), "log-prob": error(found, expected, 1)}

    path_grads, total_grads = rng.normal(size=(rows, 1)), rng.normal(size=rows)
    grads = [torch.tensor(g, dtype=total.dtype, device=device) for g in (path_grads, total_grads)]
    grad = launches.backward(h, given, total, values, *grads, layout)
    expected = gradient(oracle, marginals, paths, path_grads, total_grads)
    # The gradient has the type of h: bfloat16 has 8 bits.
    errors["gradient"] = error(grad, expected) / (100 if h.element_size() == 2 else 1)

    several = rng.integers(-1, n_classes, size=(rows, 3))
    given = torch.tensor(several, device=device)
    found, total, values = launches.forward(h, given, layout)
    expected = np.where(several >= 0, log_probs[places[:, None], several], 0)
    errors["log-probs"] = error(found, expected, 1)
    if h.element_size() > 2:
        path_grads = rng.normal(size=several.shape)
        grads[0] = torch.tensor(path_grads, dtype=total.dtype, device=device)
        grad = launches.backward(h, given, total, values, *grads, layout)
        expected = gradient(oracle, marginals, several, path_grads, total_grads)
        errors["gradients"] = error(grad, expected)

    best, values = launches.topk(h, layout, k)
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
    score = unfused.path_scores(exact, paths, layout)
    total = unfused.log_partition(exact, layout)
    log_prob = score - total[:, None]
    log_prob.sum().backward()
    found, totals, values = launches.forward(h, paths.to(device), layout)
    ones = torch.ones_like(found)
    grad = launches.backward(h, paths.to(device), totals, values, ones, None, layout)
    best, best_scores = launches.topk(h, layout, k)
    again = unfused.path_scores(exact, best.cpu(), layout)
    _, expected = unfused.topk(exact.detach(), layout, k)
    return {
        "log-partition": error(totals, total.detach().numpy()),
        "log-prob": error(found, log_prob.detach().numpy(), 1),
        "gradient": error(grad, exact.grad.numpy()) / (100 if h.element_size() == 2 else 1),
        "top-k scores": error(best_scores, expected.numpy()),
        "top-k paths": error(again.detach(), expected.numpy()),
    }


def check_wrong_paths(device: str) -> dict[str, float]:
    layout = make_layout(22, 2)
    h = torch.zeros(3, layout.n_edges, device=device)
    paths = torch.tensor([[0], [22], [2**40]], device=device)
    found, _, _ = launches.forward(h, paths, layout)
    return {"NaN for a wrong path": float(found.isnan().flatten().tolist() != [False, True, True])}


def check_tables(device: str) -> dict[str, float]:
    labels = torch.tensor([-100, -1, 0, 1, 4, 5, 2**40], device=device)
    table = torch.tensor([3, 1, 4, 0, 6], dtype=torch.int32, device=device)
    wrong = 0.0
    for given, known in ((table, [3, 1, 6]), (table.long(), [3, 1, 6]), (None, [0, 1, 4])):
        found = launches.look_up(labels, given, 5, 7, -100).tolist()
        wrong += found != [-1, 7, *known, 7, 7]
    return {"wrong": wrong}


def check_permutations(device: str) -> dict[str, float]:
    wrong = 0.0
    for sizes, seed, labels, paths in PERMUTED:
        found = launches.permute(
            torch.tensor(labels, device=device), _key(seed, device), sizes, False
        )
        wrong += found.tolist() != paths
    for sizes in ([1], [2], [5], [1000], [4096], [7, 8, 300]):
        every = torch.arange(sizes[-1], device=device)
        there = launches.permute(every, _key(2**64 - 5, device), sizes, False)
        back = launches.permute(there, _key(2**64 - 5, device), sizes, True)
        wrong += not (torch.equal(back, every) and torch.equal(there.sort().values, every))
        for first, end in itertools.pairwise([0, *sizes]):
            wrong += not bool(((there[first:end] >= first) & (there[first:end] < end)).all())
    outside = torch.tensor([-100, -1, 0, 299, 300, 2**40], device=device)
    found = launches.permute(outside, _key(3, device), [300], False).tolist()
    wrong += found[:2] != [-1, -1] or found[4:] != [300, 300]
    sizes = [2**62 - 3]
    some = torch.tensor(np.random.default_rng(0).integers(sizes[0], size=1000), device=device)
    there = launches.permute(some, _key(1, device), sizes, False)
    wrong += not torch.equal(launches.permute(there, _key(1, device), sizes, True), some)
    return {"permutation": wrong}


def _key(seed: int, device: str) -> torch.Tensor:
    return torch.tensor([seed - 2**64 if seed >= 2**63 else seed], device=device)


def check_head(device: str, n_trellises: int, assignment: str) -> dict[str, float]:
    """Train a few steps with and without fused kernels, then again as a CUDA graph."""
    torch.manual_seed(0)
    layers = []
    for fused in (True, False):
        torch.manual_seed(1)
        layers.append(
            TrellisSoftmax(32, 5000, 8, n_trellises, assignment, fused=fused, device=device)
        )
    x = torch.randn(300, 32, device=device)
    y = torch.randint(0, 5000, (300,), device=device)
    losses: list[list[float]] = []
    for layer in layers:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            loss = layer(x, y).loss
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    errors = {"training": error(torch.tensor(losses[0]), np.array(losses[1]))}
    head = layers[0]
    labels, values = head.topk(x, 5)
    expected = head.log_prob(x).topk(5)
    errors["head top-k"] = error(values, expected.values.detach().cpu().numpy())
    found = head.log_prob(x, labels).detach()
    errors["head labels"] = error(found, values.cpu().numpy())
    errors["CUDA graph"] = captured(head, x, y)
    compiled = torch.compile(head, fullgraph=True)
    head.zero_grad()
    head(x, y).loss.backward()
    expected_grad = head.edges.weight.grad.cpu().numpy().copy()
    head.zero_grad()
    compiled(x, y).loss.backward()
    errors["torch.compile"] = error(head.edges.weight.grad, expected_grad, 1e-3)
    with torch.autocast("cuda", torch.bfloat16):
        automatic = head(x, y).loss
        automatic.backward()
    errors["autocast"] = error(automatic.detach(), head(x, y).loss.detach().cpu().numpy()) / 100
    return errors


def captured(head: TrellisSoftmax, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the difference of gradients between a plain step and one in a CUDA graph."""
    plain, graphed = copy.deepcopy(head), copy.deepcopy(head)
    plain.zero_grad()
    graphed.zero_grad()
    expected = plain(x, y).loss
    expected.backward()
    # All that the graph holds must have been used on the stream that it captures, and on no other.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            graphed.zero_grad()
            graphed(x, y).loss.backward()
    torch.cuda.current_stream().wait_stream(stream)
    graphed.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = graphed(x, y).loss
        loss.backward()
    graph.replay()
    torch.cuda.synchronize()
    return max(
        error(loss.detach(), expected.detach().cpu().numpy()),
        error(graphed.edges.weight.grad, plain.edges.weight.grad.cpu().numpy(), 1e-3),
    )


def no_waiting(device: str) -> dict[str, float]:
    """Run a training step where torch makes every wait for the GPU an error."""
    head = TrellisSoftmax(32, 5000, 8, 2, "random", device=device)
    x = torch.randn(300, 32, device=device)
    y = torch.randint(0, 5000, (300,), device=device)
    head(x, y).loss.backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        head(x, y).loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"waits for the GPU": 0.0}


def cases(device: str, quick: bool) -> Iterator[tuple[str, object]]:
    kinds = ["normal", "large", "forbidden", "ties"]
    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
    small = SMALL[::4] if quick else SMALL
    for place, size in enumerate(small):
        oracle = Oracle(*size)
        for kind, dtype in itertools.product(kinds, dtypes):
            if quick and (kinds.index(kind) + place) % 4 != dtypes.index(dtype):
                continue
            rows, k = (5, 3) if quick else (67, 7)
            h = inputs(oracle.matrix.shape[1], rows, kind, dtype, device)
            k = min(k, size[0])
            yield (
                f"C={size[0]:<5} width {size[1]:<3} {kind:<9} {str(dtype)[6:]}",
                lambda o=oracle, s=size, h=h, k=k: check_small(o, s, h, k),
            )
    for size in HUGE[::2] if quick else HUGE:
        for dtype in dtypes[: 1 if quick else 2]:
            h = inputs(make_layout(*size).n_edges, 2 if quick else 9, "normal", dtype, device)
            yield (
                f"C={size[0]} width {size[1]} {str(dtype)[6:]}",
                lambda s=size, h=h: check_huge(s, h, 4),
            )
    yield "paths out of range", lambda: check_wrong_paths(device)
    yield "codebooks that are tables", lambda: check_tables(device)
    yield "random codebooks", lambda: check_permutations(device)
    if device != "cpu":
        for n_trellises, assignment in [(1, "frequency"), (1, "random"), (3, "random")]:
            yield (
                f"TrellisSoftmax, {n_trellises} × {assignment}",
                lambda n=n_trellises, a=assignment: check_head(device, n, a),
            )
        yield "a training step", lambda: no_waiting(device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.device == "cuda":
        print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
        assert functional.operators.is_fused(torch.zeros(1, device="cuda"), make_layout(10, 2))
    failed = done = 0
    for name, check in cases(options.device, options.quick):
        try:
            errors = check()
        except Exception:
            traceback.print_exc()
            errors = {"ran": float("inf")}
        worst = max(errors.values())
        failed += not worst <= TOLERANCE
        done += 1
        verdict = "ok" if worst <= TOLERANCE else "FAILED"
        shown = "  ".join(f"{key} {value:.1e}" for key, value in errors.items())
        print(f"{verdict:<6} {name:<42} {shown}", flush=True)
    print(f"{done - failed} of {done} agree to {TOLERANCE:.0e}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
