"""The target of state dicts of the torch layers: what loads also predicts."""

import functools

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save

from .mutate import mutated_bytes, mutated_tensors, pick

N_CLASSES, N_FEATURES = 50, 4


def books(n_classes):
    return [np.random.default_rng(r).permutation(n_classes) for r in range(2)]


@functools.cache
def layers():
    """Return a layer of every kind by the suffix of its files."""
    import torch

    from ltls.torch import AdaptiveTrellisSoftmax, TrellisEmbedding, TrellisSoftmax

    torch.manual_seed(0)
    given = {"width": 3, "n_trellises": 2}
    size = N_FEATURES, N_CLASSES
    tail = given | {"assignment": books(N_CLASSES - 20), "trellis_features": 2}
    return {
        ".safetensors": TrellisSoftmax(*size, assignment=books(N_CLASSES), **given),
        ".adaptive.safetensors": AdaptiveTrellisSoftmax(*size, [5, 20], head_bias=True, **tail),
        ".embedding.safetensors": TrellisEmbedding(
            *size[::-1], assignment=books(N_CLASSES), padding_idx=3, **given
        ),
    }


@functools.cache
def seed(suffix):
    return {name: tensor.numpy().copy() for name, tensor in layers()[suffix].state_dict().items()}


def generate(rng, folder):
    """Return a suffix and a changed safetensors file."""
    suffix = pick(rng, sorted(layers()))
    if rng.random() < 0.3:
        return suffix, mutated_bytes(rng, save(seed(suffix)))
    return suffix, save(mutated_tensors(rng, seed(suffix)))


def run(content, path):
    """Load a state dict and predict; return whether it was accepted."""
    import torch
    from safetensors.torch import load

    layer = layers()["".join(path.suffixes)]
    try:
        layer.load_state_dict(load(content))
    except (SafetensorError, RuntimeError):
        return False
    state = layer.state_dict().values()
    if not all(torch.isfinite(each).all() and each.double().abs().max() < 1e30 for each in state):
        return True  # predictions of NaN are errors
    if path.suffixes[0] == ".embedding":
        vectors = layer(torch.arange(N_CLASSES))
        assert vectors.shape == (N_CLASSES, N_FEATURES)
        assert not vectors.isnan().any()
        return True
    labels, log_probs = layer.topk(torch.ones(3, N_FEATURES), 5)
    assert labels.min() >= 0
    assert labels.max() < N_CLASSES
    assert not log_probs.isnan().any()
    assert layer.sample(torch.ones(3, N_FEATURES), 2).min() >= 0
    return True
