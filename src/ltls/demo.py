"""A first look: the paper's figure 1, and the five best paths of a random example."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .plot import figure1
from .trellis import Trellis


def main(folder: Path = Path("demo")) -> None:
    """Draw figure 1 into `folder` and print the best paths of a random example."""
    folder.mkdir(exist_ok=True)
    picture = folder / "figure1.png"
    figure = figure1().get_figure(root=True)
    assert figure is not None
    figure.savefig(picture, dpi=150)
    print(f"Figure 1 of the paper, the trellis of 22 classes: {picture}\n")

    trellis = Trellis(22)
    h = np.random.default_rng(0).normal(size=trellis.n_edges).astype(np.float32)
    paths, scores = trellis.topk(h, 5)
    probabilities = np.exp(scores - trellis.log_partition(h))
    print(f"{trellis}: {trellis.n_edges} edges, {trellis.n_slices} slices")
    print("The five best paths of a random example:\n")
    print("  path   score  probability  edges")
    for path, score, probability in zip(paths, scores, probabilities, strict=True):
        edges = " ".join(str(edge) for edge in trellis.path_edges(path))
        print(f"  {path:4d}  {score:6.3f}  {probability:11.3f}  {edges}")


if __name__ == "__main__":
    main()
