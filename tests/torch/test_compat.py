"""State dicts of earlier versions load, and the layer predicts what it predicted then."""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from safetensors.torch import load_file  # noqa: E402

from ltls.torch import TrellisSoftmax  # noqa: E402

FOLDERS = sorted((Path(__file__).parents[1] / "compat").glob("v*"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_state_dict_of_an_earlier_version_predicts_the_same(folder):
    expected = json.loads((folder / "torch_head.json").read_text())
    head = TrellisSoftmax(**expected["parameters"])
    head.load_state_dict(load_file(folder / "torch_head.safetensors"))
    x = torch.tensor(expected["x"])
    with torch.no_grad():
        labels, log_probs = head.topk(x, 3)
        every = head.log_prob(x)
    np.testing.assert_array_equal(labels, expected["labels"])
    # Instruction sets differ in the order of sums.
    np.testing.assert_allclose(log_probs, expected["log_probs"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(every, expected["all"], rtol=1e-5, atol=1e-5)


EDGES = ["edges.bias", "edges.weight"]
GATE = ["gate.bias", "gate.weight"]


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({}, EDGES),
        ({"bias": False, "label_smoothing": 0.1}, ["edges.weight"]),
        ({"assignment": "random"}, ["codebooks.0.seed", *EDGES]),
        ({"n_trellises": 2}, ["codebooks.1.seed", *EDGES, *GATE]),
        ({"counts": range(300)}, ["codebooks.0.labels", "codebooks.0.paths", *EDGES]),
    ],
    ids=str,
)
def test_the_keys_of_the_state_dict_are_those_of_version_0_1(options, keys):
    assert sorted(TrellisSoftmax(16, 300, 4, **options).state_dict()) == keys
