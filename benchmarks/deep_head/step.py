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

Writes deep_head_step.json after every head, in under ten minutes on an H200; torch, triton and
numpy are all it needs (and cut-cross-entropy, Liger and QuACK, if they are to be measured;
PYTHONPATH may name a folder that has them):

    PYTHONPATH=src:FOLDER python -m benchmarks.deep_head.step
    python -m benchmarks.deep_head.step --small --device cpu --output FOLDER
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
from itertools import pairwise
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
    Quack,
    Trellis,
    arguments,
    compare,
    description,
)
from ltls.torch import make_layout

NAME = "deep_head_step"
BATCH, IN_FEATURES, CLASSES = 4096, 512, (10**6, 10**4, 10**5, 10**7)  # the targets' size first
WIDTHS = (2, 8, 32)
CUTOFFS = (2_000, 20_000, 200_000, 2_000_000)  # of adaptive softmax, those below half the classes
TRELLIS_CUTOFFS = (2_000, 10_000)  # of the adaptive softmax that ends in a trellis
PEERS = {  # head, the module it needs, and how it is made
    "cut-cross-entropy, bf16": ("cut_cross_entropy", CutCrossEntropy),
    "Liger, bf16": ("liger_kernel", Liger),
    "QuACK, bf16": ("quack", Quack),
}
TRELLIS, ADAPTIVE = "TrellisSoftmax, width 8", "AdaptiveTrellisSoftmax, width 32"
SECONDS_APART = 60  # for one head in a process of its own
TOO_LARGE = "does not fit"


class Device:
    """Clock and memory of a GPU, or the clock of a CPU."""

    def __init__(self, name: str, patience: float = 0.3) -> None:
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


def zipf(n: int, n_classes: int, device: str) -> Tensor:
    """Draw labels with probability proportional to 1 / (label + 1)."""
    generator = torch.Generator(device).manual_seed(0)
    ranks = torch.arange(1, n_classes + 1, device=device, dtype=torch.float64)
    upto = (1 / ranks).cumsum(0)
    drawn = torch.rand(n, generator=generator, device=device, dtype=torch.float64) * upto[-1]
    return torch.searchsorted(upto, drawn).clamp(max=n_classes - 1)


def heads(in_features: int, n_classes: int, device: str) -> Iterator[dict[str, Any]]:
    """Name what is compared and how each is made."""
    sizes = in_features, n_classes

    def there(kind: Callable[..., Any], *given: Any, **options: Any) -> Callable[[], Any]:
        def make() -> Any:
            with torch.device(device):  # random numbers for 10**10 weights take minutes elsewhere
                return kind(*given, **options)

        return make

    for width in WIDTHS:
        for fused in (True, False):
            name = f"TrellisSoftmax, width {width}" + ("" if fused else ", not fused")
            yield {"head": name, "make": there(Trellis, *sizes, width, fused=fused, device=device)}
    ours = there(Trellis, *sizes, 8, device=device)
    yield {"head": f"{TRELLIS}, two threads", "make": ours, "two threads": True}
    n_edges = make_layout(n_classes, 8).n_edges
    yield {
        "head": "nn.Linear of the size of a trellis",
        "make": there(LinearAlone, in_features, n_edges),
        "training only": True,
    }
    yield {"head": f"{TRELLIS}, bf16", "make": ours, "bf16": True}
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= n_classes // 2]
    adaptive = there(Adaptive, *sizes, cutoffs or [100])
    yield {"head": "AdaptiveLogSoftmaxWithLoss", "cutoffs": cutoffs, "make": adaptive}
    dense = [cutoff for cutoff in TRELLIS_CUTOFFS if cutoff <= n_classes // 2]
    small = {"width": 32, "trellis_features": max(1, in_features // 16)}
    mixed = there(AdaptiveTrellis, *sizes, dense or [100], **small, device=device)
    yield {"head": ADAPTIVE, "make": mixed}
    defaults = there(AdaptiveTrellis, *sizes, None, device=device)
    yield {"head": "AdaptiveTrellisSoftmax, defaults", "make": defaults}
    for name, (module, kind) in PEERS.items() if device.startswith("cuda") else ():
        if importlib.util.find_spec(module):
            alone = {"training only": True, "apart": True}
            yield {"head": name, "make": there(kind, *sizes), **alone}
    full = there(Full, *sizes)
    yield {"head": "nn.Linear + cross_entropy", "make": full}
    yield {"head": "nn.Linear + cross_entropy, bf16", "make": full, "bf16": True}
    for name, make in ((TRELLIS, ours), (ADAPTIVE, mixed)) if device.startswith("cuda") else ():
        graphed = {"graphed": True, "training only": True}
        yield {"head": f"{name}, graphed callable", "make": make, **graphed}
        yield {"head": f"{name}, CUDA graph", "make": make, "graph": True}


def measure(case: dict[str, Any], x: Tensor, y: Tensor, device: Device) -> dict[str, Any]:
    """Return time, memory and size of one head, or that it does not fit into memory."""
    device.settle()
    before = torch.cuda.memory_allocated() if device.is_gpu else 0
    x = x.detach().requires_grad_()  # a leaf that no other head has used
    try:
        head = case["make"]()
        step = training_step(case, head, x, y, device)
        row: dict[str, Any] = {"parameters": head.size, "step ms": device.median(step)}
        if device.is_gpu:
            row["memory"] = torch.cuda.max_memory_allocated() - before
    except torch.OutOfMemoryError:
        return {"error": TOO_LARGE}
    del step
    head.zero_grad()
    x.grad = None
    if not case.get("training only"):

        @torch.no_grad()
        def top() -> object:
            with cast(case, device):
                return head.top(x)

        try:
            row[f"top-{TOP} ms"] = device.median(top)
        except torch.OutOfMemoryError:
            row[f"top-{TOP} ms"] = TOO_LARGE
    return row


def cast(case: dict[str, Any], device: Device) -> contextlib.AbstractContextManager[None]:
    kind = "cuda" if device.is_gpu else "cpu"
    return torch.autocast(kind, torch.bfloat16) if case.get("bf16") else contextlib.nullcontext()


def training_step(
    case: dict[str, Any], head: Any, x: Tensor, y: Tensor, device: Device
) -> Callable[[], None]:
    """Return a function that does one step, captured if the case says so."""
    if case.get("graphed"):
        head.softmax = torch.cuda.make_graphed_callables(head.softmax, (x, y))
    graph = case.get("graph", False)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=device.is_gpu, capturable=graph)

    def step() -> None:
        optimizer.zero_grad()
        x.grad = None
        with cast(case, device):
            loss = head.loss(x, y)
        with torch.autograd.set_multithreading_enabled(case.get("two threads", False)):
            loss.backward()
        optimizer.step()

    return captured(step) if graph else step


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
    torch.manual_seed(0)
    x = torch.randn(batch, in_features, device=device, requires_grad=True)
    return x, zipf(batch, n_classes, device)


def measure_apart(head: str, n_classes: int, seconds: float) -> dict[str, Any]:
    """Measure a head in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--apart", head, str(n_classes)]
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


def run_apart(head: str, n_classes: int, device: Device) -> None:
    """Print as JSON what was found, in the process that `measure_apart` starts."""
    x, y = inputs(BATCH, IN_FEATURES, n_classes, device.name)
    (case,) = (c for c in heads(IN_FEATURES, n_classes, device.name) if c["head"] == head)
    print(json.dumps(measure(case, x, y, device)), flush=True)


def main() -> None:
    parser = arguments(__doc__, seconds=500)
    parser.add_argument("--apart", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    device = Device(options.device, 0.02 if options.small else 0.3)
    if options.apart:
        run_apart(options.apart[0], int(options.apart[1]), device)
        return
    batch, size, classes = BATCH, IN_FEATURES, CLASSES
    if options.small:
        batch, size, classes = 64, 16, (1_000, 10_000)
    # Its workspace is no head's memory.
    torch.ones(64, 64, device=device.name) @ torch.ones(64, 64, device=device.name)

    def cases() -> Iterator[dict[str, Any]]:
        for n_classes in classes:
            x, y = inputs(batch, size, n_classes, options.device)
            for case in heads(size, n_classes, options.device):
                yield {"in_features": size, "C": n_classes, "inputs": (x, y), **case}

    def run(case: dict[str, Any]) -> dict[str, Any]:
        if case.get("apart"):
            device.settle()
            return measure_apart(case["head"], case["C"], SECONDS_APART)
        return measure(case, *case["inputs"], device)

    result = {"about": description(options.device), "batch": batch}
    compare(NAME, result, cases(), run, options)


if __name__ == "__main__":
    main()
