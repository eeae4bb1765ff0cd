"""One training step of an output layer alone, on a GPU: time and memory beside its peers.

A step is forward, backward (into the weights and the input) and AdamW; memory is the peak above
what the input needs: weights, gradients, the optimizer's state and everything in between. Targets
are Zipf-distributed. Times are medians between CUDA events of steps that follow each other. The
backward pass runs on the thread that calls it: by default torch hands it to another one, which
takes longer than most of these heads do, as one row shows. A *graphed callable* is a head whose
forward and backward pass are captured, in a loop that is not; a *CUDA graph* is the whole step. A
head that fails, or does not fit into memory, is reported, and the remaining heads still run;
cut-cross-entropy, Liger and QuACK, which can leave a GPU unusable for the process that called them,
have processes of their own.

Writes deep_head_step.json after every point, in under ten minutes on an H200; torch, triton and
numpy are all it needs (and cut-cross-entropy, Liger and QuACK, if they are to be measured;
PYTHONPATH may name a folder that has them):

    PYTHONPATH=src python -m benchmarks.deep_head.step
    PYTHONPATH=src:FOLDER python -m benchmarks.deep_head.step

To see that it works at all, in seconds and without a GPU:

    python -m benchmarks.deep_head.step --quick --device cpu --output FOLDER

`--check` measures nothing: it checks stored results against the targets, and fails if one is
missed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import machine
from benchmarks.deep_head.heads import (
    TOP,
    Adaptive,
    AdaptiveTrellis,
    CutCrossEntropy,
    Full,
    Liger,
    LinearAlone,
    LinearCrossEntropy,
    Quack,
    Trellis,
)
from ltls.torch import make_layout

NAME = "deep_head_step"

BATCH, IN_FEATURES, CLASSES = 4096, (512,), (10**4, 10**5, 10**6, 10**7)
WIDTHS = (2, 8, 32)
# Of each, those below half of the classes; the faster of the two is reported.
CUTOFFS = ((2_000, 20_000, 200_000, 2_000_000), (10_000, 100_000, 1_000_000))
TRELLIS_CUTOFFS = (2_000, 10_000)  # of the adaptive softmax that ends in a trellis
PEERS = {  # head, the module it needs, and how it is made
    "cut-cross-entropy, bf16": ("cut_cross_entropy", CutCrossEntropy),
    "Liger, bf16": ("liger_kernel", Liger),
    "QuACK, bf16": ("quack", Quack),
}
ADAPTIVE = "AdaptiveTrellisSoftmax, width 32"
SECONDS_PER_TIMING = 0.3
SECONDS_APART = 60  # for one head in a process of its own
TOO_LARGE = "does not fit"
MAX_TOP_MS = 1.0  # for the best labels of a batch
MAX_STEP_MS = 0.5  # for a training step that is launched eagerly, or graphed in an eager loop
TARGETS = [  # of whom, which figure, how many times ours
    ("nn.Linear + cross_entropy", "step ms", 50),
    ("nn.Linear + cross_entropy", "memory", 100),
    ("AdaptiveLogSoftmaxWithLoss", "step ms", 5),
    ("TrellisSoftmax, width 8, not fused", "step ms", 4),
]
# How often weights pass through memory in a step: read by two products, their gradient written
# and read, weight and both moments of AdamW read and written.
PASSES_OF_WEIGHTS = 10


class Device:
    """Clock and memory of a GPU, or the clock of a CPU."""

    def __init__(self, name: str, patience: float) -> None:
        self.name = name
        self.patience = patience  # seconds for one timing
        self.is_gpu = name.startswith("cuda")

    def settle(self) -> None:
        """Wait for what was begun, and give back what is no longer used."""
        gc.collect()
        if self.is_gpu:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def used(self) -> int:
        """Return the bytes in use."""
        return torch.cuda.memory_allocated() if self.is_gpu else 0

    def peak(self) -> int:
        """Return the most bytes that were in use since it settled."""
        return torch.cuda.max_memory_allocated() if self.is_gpu else 0

    def times(self, work: Callable[[], object], n: int) -> list[float]:
        """Return milliseconds of n calls that follow each other."""
        if not self.is_gpu:
            marks = [time.perf_counter()]
            for _ in range(n):
                work()
                marks.append(time.perf_counter())
            return [1e3 * (b - a) for a, b in pairwise(marks)]
        events = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
        events[0].record()
        for event in events[1:]:
            work()
            event.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in pairwise(events)]

    def median(self, work: Callable[[], object]) -> float:
        """Return milliseconds of a call."""
        self.times(work, 2)
        first = max(self.times(work, 1)[0], 1e-3)
        n = int(min(200, max(5, 1e3 * self.patience / first)))
        return statistics.median(self.times(work, n))

    def bandwidth(self) -> float:
        """Return bytes per second of a large copy, read and written.

        It runs before all heads, and so does a product: its workspace is no head's memory.
        """
        torch.ones(64, 64, device=self.name) @ torch.ones(64, 64, device=self.name)
        source = torch.ones((1 << 29) if self.is_gpu else (1 << 23), device=self.name)
        target = torch.empty_like(source)
        milliseconds = self.median(lambda: target.copy_(source))
        return 2 * source.numel() * 4 / milliseconds * 1e3


def zipf(n: int, n_classes: int, device: str) -> Tensor:
    """Draw labels with probability proportional to 1 / (label + 1)."""
    generator = torch.Generator(device).manual_seed(0)
    ranks = torch.arange(1, n_classes + 1, device=device, dtype=torch.float64)
    upto = (1 / ranks).cumsum(0)
    drawn = torch.rand(n, generator=generator, device=device, dtype=torch.float64) * upto[-1]
    return torch.searchsorted(upto, drawn).clamp(max=n_classes - 1)


def heads(in_features: int, n_classes: int, device: str) -> Iterator[dict[str, Any]]:
    """Name what is compared and how each is made."""
    where = {"device": device}

    def there(kind: Callable[..., Any], *arguments: Any) -> Any:
        with torch.device(device):  # random numbers for 10**10 weights take minutes elsewhere
            return kind(*arguments)

    for width in WIDTHS:
        for fused in (True, False):
            yield {
                "head": f"TrellisSoftmax, width {width}" + ("" if fused else ", not fused"),
                "make": lambda w=width, f=fused: Trellis(
                    in_features, n_classes, w, fused=f, **where
                ),
            }
    extra = {"make": lambda: Trellis(in_features, n_classes, 8, **where)}
    yield {"head": "TrellisSoftmax, width 8, two threads", "two threads": True, **extra}
    yield {
        "head": "nn.Linear of the size of a trellis",
        "make": lambda: LinearAlone(in_features, make_layout(n_classes, 8).n_edges, **where),
        "training only": True,
    }
    yield {"head": "TrellisSoftmax, width 8, bf16", "bf16": True, **extra}
    for cutoffs in CUTOFFS:
        below = [cutoff for cutoff in cutoffs if cutoff <= n_classes // 2]
        if below:
            yield {
                "head": "AdaptiveLogSoftmaxWithLoss",
                "cutoffs": below,
                "make": lambda c=below: there(Adaptive, in_features, n_classes, c),
            }
    dense = [cutoff for cutoff in TRELLIS_CUTOFFS if cutoff <= n_classes // 2]
    adaptive = {
        "make": lambda: AdaptiveTrellis(in_features, n_classes, dense or [100], 32, **where)
    }
    yield {"head": ADAPTIVE, **adaptive}
    full = {"make": lambda: there(Full, in_features, n_classes)}
    if device.startswith("cuda"):
        for name, (module, kind) in PEERS.items():
            if importlib.util.find_spec(module):
                yield {
                    "head": name,
                    "make": lambda kind=kind: there(kind, in_features, n_classes),
                    "training only": True,
                    "apart": True,
                }
    if hasattr(torch.nn.functional, "linear_cross_entropy"):  # from torch 2.13 on
        yield {
            "head": "linear_cross_entropy, bf16",
            "make": lambda: there(LinearCrossEntropy, in_features, n_classes),
            "training only": True,
        }
    yield {"head": "nn.Linear + cross_entropy", **full}
    yield {"head": "nn.Linear + cross_entropy, bf16", "bf16": True, **full}
    if device.startswith("cuda"):
        for name, case in (
            ("TrellisSoftmax, width 8", extra),
            (ADAPTIVE, adaptive),
        ):
            graphed = {"graphed": True, "training only": True, **case}
            yield {"head": f"{name}, graphed callable", **graphed}
            yield {"head": f"{name}, CUDA graph", "graph": True, **case}


def measure(case: dict[str, Any], x: Tensor, y: Tensor, device: Device) -> dict[str, Any]:
    """Return time, memory and size of one head."""
    device.settle()
    before = device.used()
    x = x.detach().requires_grad_()  # a leaf that no other head has used
    head = case["make"]()
    if case.get("graphed"):
        head.softmax = torch.cuda.make_graphed_callables(head.softmax, (x, y))
    graph = case.get("graph", False)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=device.is_gpu, capturable=graph)
    kind = "cuda" if device.is_gpu else "cpu"
    two_threads = case.get("two threads", False)

    def cast() -> contextlib.AbstractContextManager[None]:
        on = case.get("bf16", False)
        return torch.autocast(kind, torch.bfloat16) if on else contextlib.nullcontext()

    def step() -> None:
        optimizer.zero_grad()
        x.grad = None
        with cast():
            loss = head.loss(x, y)
        with torch.autograd.set_multithreading_enabled(two_threads):
            loss.backward()
        optimizer.step()

    work = captured(step) if graph else step
    row: dict[str, Any] = {"parameters": head.size}
    row["step ms"] = device.median(work)
    if device.is_gpu:
        row["memory"] = device.peak() - before
    moved = 4.0 * (PASSES_OF_WEIGHTS * row["parameters"] + 3 * x.numel()) + head.score_bytes(y)
    row["bytes"] = moved
    del work
    optimizer.zero_grad()
    x.grad = None
    if not case.get("training only"):

        @torch.no_grad()
        def top() -> object:
            with cast():
                return head.top(x)

        try:
            row[f"top-{TOP} ms"] = device.median(top)
        except torch.OutOfMemoryError:
            row[f"top-{TOP} ms"] = TOO_LARGE
    return row


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """Record a step once; then it is launched as a whole."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # On the same stream: what a graph holds must have been used on no other.
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph.replay


def inputs(batch: int, in_features: int, n_classes: int, device: str) -> tuple[Tensor, Tensor]:
    """Return the input vectors and targets of one point."""
    x = torch.randn(batch, in_features, device=device, requires_grad=True)
    return x, zipf(batch, n_classes, device)


def attempt(case: dict[str, Any], x: Tensor, y: Tensor, device: Device) -> dict[str, Any]:
    """Measure, or say why not."""
    try:
        return measure(case, x, y, device)
    except torch.OutOfMemoryError:
        return {"error": TOO_LARGE}
    except Exception as error:
        first = (str(error).strip() or "?").splitlines()[0]
        return {"error": f"{type(error).__name__}: {first[:200]}"}


def attempt_apart(head: str, in_features: int, n_classes: int, seconds: float) -> dict[str, Any]:
    """Measure what is to run apart in a process of its own."""
    sizes = str(in_features), str(n_classes)
    command = [sys.executable, "-m", __spec__.name, "--apart", head, *sizes]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, cwd=machine.ROOT
        )
    except subprocess.TimeoutExpired:
        return {"error": f"stopped after {seconds:.0f} s"}
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        last = (done.stderr.strip() or "?").splitlines()[-1]
        return {"error": f"ended with status {done.returncode}: {last[:200]}"}


def run_apart(head: str, in_features: int, n_classes: int, device: Device) -> None:
    """Print as JSON what was found, in the process that `attempt_apart` starts."""
    x, y = inputs(BATCH, in_features, n_classes, device.name)
    (case,) = (c for c in heads(in_features, n_classes, device.name) if c["head"] == head)
    print(json.dumps(attempt(case, x, y, device)), flush=True)


def faster(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the faster of the adaptive heads of one size."""
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        other = best.get(row["head"])
        if other is None or row.get("step ms", 1e99) < other.get("step ms", 1e99):
            best[row["head"]] = row
    return list(best.values())


def ratios(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float, float]]:
    """Yield what is compared at a million classes and width 8, what we want, and what was found."""
    for size in sorted({row["in_features"] for row in rows}):
        at = {r["head"]: r for r in rows if r["C"] == 10**6 and r["in_features"] == size}
        ours = at.get("TrellisSoftmax, width 8", {})
        for other, figure, target in TARGETS:
            theirs, own = at.get(other, {}).get(figure), ours.get(figure)
            if theirs and own:
                yield f"{size} inputs, {figure} of {other}, times ours", target, theirs / own


def check(rows: list[dict[str, Any]]) -> int:
    """Print what we want and what was found; return 1 where a target is missed."""
    failed = False
    every = {(r["in_features"], r["C"], r["head"]): r.get("step ms", 0.0) for r in rows}
    for size in sorted({row["in_features"] for row in rows}):
        other = every.get((size, 10**4, "AdaptiveLogSoftmaxWithLoss"), 0)
        for name in (ADAPTIVE, f"{ADAPTIVE}, graphed callable"):
            ours = every.get((size, 10**6, name), 0)
            if ours and other:
                failed |= ours > other
                print(
                    f"{'ok' if ours <= other else 'MISSED':7} {size} inputs, a step of {name} of "
                    f"10⁶ classes: {ours:.2f} ms, of adaptive softmax of 10⁴: {other:.2f} ms"
                )
    name = "TrellisSoftmax, width 8"
    for row in (r for r in rows if r["C"] == 10**6 and r["head"].startswith(name)):
        bounds = {name: ("step ms", f"top-{TOP} ms"), f"{name}, graphed callable": ("step ms",)}
        for figure in bounds.get(row["head"], ()):
            most = MAX_STEP_MS if figure == "step ms" else MAX_TOP_MS
            slow = row.get(figure, 0) > most
            failed |= slow
            words = (
                f"{row['in_features']} inputs, {row['head']}, {figure}: {row.get(figure, 0):.2f}"
            )
            print(f"{'MISSED' if slow else 'ok':7} {words}, target at most {most}")
    for words, target, found in ratios(rows):
        failed |= found < target
        print(f"{'ok' if found >= target else 'MISSED':7} {words}: {found:.3g}, target {target}")
    return int(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work at all?")
    parser.add_argument("--seconds", type=float, default=500, help="after which nothing is begun")
    parser.add_argument("--only", nargs="+", help="heads with one of these words; others are kept")
    parser.add_argument("--check", action="store_true", help="only check stored results")
    parser.add_argument("--apart", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:
        sys.exit(check(machine.read(NAME, options.output)["rows"]))
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    start = time.perf_counter()
    device = Device(options.device, 0.02 if options.quick else SECONDS_PER_TIMING)
    if options.apart:
        run_apart(options.apart[0], *map(int, options.apart[1:]), device)
        return
    batch, sizes, classes = BATCH, IN_FEATURES, CLASSES
    if options.quick:
        batch, sizes, classes = 64, (16,), (1_000, 10_000)
    about = machine.description("torch", "numpy")
    if device.is_gpu:
        about["gpu"] = torch.cuda.get_device_name()
        about["triton"] = version("triton")
    about["TF32 products"] = "on" if torch.backends.cuda.matmul.allow_tf32 else "off"
    for name, (module, _) in PEERS.items():
        if not options.only and not importlib.util.find_spec(module):
            about[name] = "not installed, left out"
    if not hasattr(torch.nn.functional, "linear_cross_entropy"):
        about["linear_cross_entropy"] = "not in this version of torch, left out"
    rows: list[dict[str, Any]] = []
    result = {"about": about, "batch": batch, "bandwidth": device.bandwidth(), "rows": rows}
    kept: list[dict[str, Any]] = []
    if options.only:
        stored = machine.read(NAME, options.output)
        kept = [row for row in stored["rows"] if row["in_features"] in sizes]
        about["other heads"] = f"{stored['about']['date']}, {stored['about']['command']}"
    # A million classes first: the targets are defined at this size.
    points = [(size, c) for c in sorted(classes, key=lambda c: c != 10**6) for size in sizes]
    for size, n_classes in points:
        device.settle()
        x, y = inputs(batch, size, n_classes, options.device)
        here = []
        for case in heads(size, n_classes, options.device):
            if options.only and not any(word in case["head"] for word in options.only):
                continue
            named = {key: case[key] for key in ("head", "cutoffs") if key in case}
            row = {"in_features": size, "C": n_classes, **named}
            left = options.seconds - (time.perf_counter() - start)
            if left <= 0:
                row["error"] = f"not run: {options.seconds:.0f} s were over"
            elif case.get("apart"):
                device.settle()
                row |= attempt_apart(case["head"], size, n_classes, min(left, SECONDS_APART))
            else:
                row |= attempt(case, x, y, device)
            here.append(row)
            print(row, flush=True)
        measured = {row["head"] for row in here if not row.get("error", "").startswith("not run")}
        stored = [r for r in kept if r["C"] == n_classes and r["head"] not in measured]
        names = {row["head"] for row in stored}
        here = [row for row in here if row["head"] not in names] + stored
        rows += faster(here)
        about["took"] = f"{time.perf_counter() - start:.0f} s"
        machine.write(NAME, result, options.output)


if __name__ == "__main__":
    main()
