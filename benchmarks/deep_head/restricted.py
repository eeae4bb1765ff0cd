"""What restricted answers cost: the ten best among some classes, or within a category.

A `TrellisSoftmax` of a million classes in a thousand categories answers 64 rows at a time.

    python -m benchmarks.deep_head.restricted

Writes deep_head_restricted.json, in under a minute on two cores; `--device cuda` for a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import machine, tables
from benchmarks.deep_head.step import Device
from ltls.torch import TrellisSoftmax

NAME = "deep_head_restricted"
N_CLASSES, N_CATEGORIES, IN_FEATURES, WIDTH, ROWS, K = 10**6, 1000, 64, 8, 64, 10


def cases(head: TrellisSoftmax, x: torch.Tensor) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name the restrictions."""
    yield "all classes", lambda: head.topk(x, K)
    yield "a category of 1,000 classes", lambda: head.topk(x, K, within=271)
    yield "a category, sampled", lambda: head.sample(x, K, within=271)
    for m in (100, 1_000, 10_000, 100_000):
        some = torch.randperm(head.n_classes, device=x.device)[:m]
        yield f"any {m:,} classes", lambda some=some: head.topk(x, K, among=some)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--classes", type=int, default=N_CLASSES)
    options = parser.parse_args()
    torch.manual_seed(0)
    n = options.classes
    category = torch.arange(n) * N_CATEGORIES // n
    head = TrellisSoftmax(IN_FEATURES, n, WIDTH, hierarchy=category, device=options.device)
    x = torch.randn(ROWS, IN_FEATURES, device=options.device)
    device = Device(options.device, 1.0)
    about = machine.description("torch", "numpy")
    if device.is_gpu:
        about["gpu"] = torch.cuda.get_device_name()
    rows = []
    for name, work in cases(head, x):
        rows.append({"restriction": name, "us per row": 1e3 * device.median(work) / ROWS})
        print(rows[-1], flush=True)
    result: dict[str, Any] = {"about": about, "rows": rows}
    machine.write(NAME, result, options.output)
    print("\n".join(tables.restricted(result)))


if __name__ == "__main__":
    main()
