"""Run the GPU kernels in Triton's interpreter (TRITON_INTERPRET=1): python … INPUTS RESULTS."""

import sys

import numpy as np
import torch

from ltls.torch.layout import make_layout
from ltls.torch.ops import launch


def main():
    given, results = np.load(sys.argv[1]), {}
    for case in given:
        n_classes, width, k = map(int, case.split())
        layout = make_layout(n_classes, width)
        h = torch.from_numpy(given[case])
        paths, scores = launch.topk(h, layout, k)
        log_probs, log_z, alpha = launch.forward(h, paths[:, :1].contiguous(), layout)
        ones = torch.ones_like(log_probs)
        grad = launch.backward(h, paths[:, :1].contiguous(), log_z, alpha, ones, None, layout)
        for name, value in (("paths", paths), ("scores", scores), ("log_z", log_z), ("grad", grad)):
            results[f"{case} {name}"] = value.numpy()
    np.savez(sys.argv[2], **results)


if __name__ == "__main__":
    main()
