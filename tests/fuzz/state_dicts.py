"""The target of state dicts of the torch head: what loads also predicts."""

import functools

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from .mutate import mutated_bytes, mutated_tensors


@functools.cache
def head():
    import torch

    from ltls.torch import TrellisSoftmax

    torch.manual_seed(0)
    books = [np.random.default_rng(r).permutation(50) for r in range(2)]
    return TrellisSoftmax(4, 50, width=3, n_trellises=2, assignment=books)


@functools.cache
def seed():
    return {name: tensor.numpy() for name, tensor in head().state_dict().items()}


def generate(rng, folder):
    """Return a suffix and a changed safetensors file."""
    if rng.random() < 0.3:
        return ".safetensors", mutated_bytes(rng, save(dict(seed())))
    return ".safetensors", save(mutated_tensors(rng, seed()))


def run(content, path):
    """Load a state dict and predict; return whether it was accepted."""
    import torch

    try:
        tensors = {name: torch.from_numpy(array) for name, array in load(content).items()}
        head().load_state_dict(tensors)
    except (RuntimeError, SafetensorError, ValueError, KeyError, TypeError):
        return False
    state = head().state_dict().values()
    if not all(torch.isfinite(each).all() and each.double().abs().max() < 1e30 for each in state):
        return True  # predictions of NaN are errors
    labels, log_probs = head().topk(torch.ones(3, 4), 5)
    assert labels.min() >= 0
    assert labels.max() < 50
    assert not log_probs.isnan().any()
    assert head().sample(torch.ones(3, 4), 2).min() >= 0
    return True
