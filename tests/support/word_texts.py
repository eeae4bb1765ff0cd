"""Texts of few words, two of which tell the label: for tiny encoders that tests make."""

import numpy as np

WORDS = [f"w{i}" for i in range(40)]


def problem(several=False, n=240):
    """Texts whose first two words tell the label."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 4, n), rng.integers(4, 8, n)
    texts = [
        " ".join([WORDS[a], WORDS[b], *rng.choice(WORDS[8:], 3)])
        for a, b in zip(first, second, strict=True)
    ]
    if several:
        return texts, [[f"a{a}", f"b{b}"] for a, b in zip(first, second, strict=True)]
    return texts, [f"{a}-{b}" for a, b in zip(first, second, strict=True)]
