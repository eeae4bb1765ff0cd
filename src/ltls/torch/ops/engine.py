"""The operators on the compiled engine, for tensors on a CPU."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ...structure.codebook import RandomCodebook
from ...structure.trellis import Trellis
from .precision import accumulation_dtype

_MIN_PARALLEL_SIZE = 1 << 16  # edge scores; below it, starting threads costs more than it saves

_trellis = lru_cache(maxsize=256)(Trellis)


def _arguments(h: Tensor, n_classes: int, width: int) -> tuple[Trellis, Any, int]:
    """Return the engine's trellis, h as an array that shares its memory, and the thread count."""
    array = h.detach().to(accumulation_dtype(h)).contiguous().numpy()
    n_jobs = torch.get_num_threads() if array.size >= _MIN_PARALLEL_SIZE else 1
    return _trellis(n_classes, width), array, n_jobs


def forward(h: Tensor, paths: Tensor, n_classes: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities, log-partitions and an empty tensor; see `custom.log_probs`."""
    trellis, rows, n_jobs = _arguments(h, n_classes, width)
    log_z = torch.from_numpy(trellis.log_partition(rows, n_jobs))
    log_probs = log_z.new_empty(paths.shape)
    if paths.shape[1]:
        scores = torch.from_numpy(trellis.score(rows, paths.clamp(min=0).numpy(), n_jobs))
        log_probs = torch.where(paths >= 0, scores - log_z[:, None], 0)
    return log_probs, log_z, log_z.new_empty(0)


def marginals(h: Tensor, n_classes: int, width: int) -> Tensor:
    """Return the marginal probability of every edge."""
    trellis, rows, n_jobs = _arguments(h, n_classes, width)
    return torch.from_numpy(trellis.marginals(rows, n_jobs))


def topk(h: Tensor, k: int, n_classes: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of every row and their scores."""
    trellis, rows, n_jobs = _arguments(h, n_classes, width)
    paths, scores = trellis.topk(rows, k, n_jobs)
    return torch.from_numpy(paths), torch.from_numpy(scores)


def permute(values: Tensor, seed: Tensor, sizes: list[int], inverse: bool) -> Tensor:
    """Apply the keyed permutation of `RandomCodebook`, or its inverse, to values in range."""
    book = RandomCodebook(sizes[-1], int(seed) % 2**64, grown_from=sizes[:-1])
    array = values.cpu().contiguous().numpy()
    return torch.from_numpy(book.label_of(array) if inverse else book.path_of(array))
