"""What restricted answers cost: the ten best among some classes, or within a category.

A `TrellisSoftmax` of a million classes in a thousand categories answers 64 rows at a time.

    python -m benchmarks.deep_head.restricted

Writes deep_head_restricted.json, in under a minute on two cores; `--device cuda` for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks import machine
from benchmarks.deep_head import tables
from benchmarks.deep_head.heads import arguments, description
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
    options = arguments(__doc__, seconds=60).parse_args()
    torch.manual_seed(0)
    n = N_CLASSES // 10 if options.small else N_CLASSES
    category = torch.arange(n) * N_CATEGORIES // n
    head = TrellisSoftmax(IN_FEATURES, n, WIDTH, hierarchy=category, device=options.device)
    x = torch.randn(ROWS, IN_FEATURES, device=options.device)
    device = Device(options.device, 1.0)
    rows = []
    for name, work in cases(head, x):
        rows.append({"restriction": name, "us per row": 1e3 * device.median(work) / ROWS})
        print(rows[-1], flush=True)
    result: dict[str, Any] = {"about": description(options.device), "rows": rows}
    machine.write(NAME, result, options.output)
    print("\n".join(tables.restricted(result)))


if __name__ == "__main__":
    main()
