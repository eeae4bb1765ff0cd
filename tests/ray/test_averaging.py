"""Averages of weights, against loops over single numbers."""

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs ray: run make test-all")

from ltls.ray.averaging import averaged, change


@pytest.mark.parametrize("adagrad", [True, False])
def test_averages(adagrad):
    rng = np.random.default_rng(0)
    names = ["weights", "squares"] if adagrad else ["weights"]
    state = {name: rng.uniform(0.1, 1, (6, 4)).astype(np.float32) for name in names}
    rows = [np.array([0, 2, 3]), np.array([2, 5]), np.array([], np.int64)]
    after = []
    for own in rows:
        moved = {name: array.copy() for name, array in state.items()}
        for name in names:
            moved[name][own] += rng.uniform(0.1, 1, (len(own), 4)).astype(np.float32)
        after.append(moved)
    new = averaged(
        state, [change(state, moved, own) for moved, own in zip(after, rows, strict=True)]
    )
    for i in range(6):
        for j in range(4):
            moves = [m["weights"][i, j] - state["weights"][i, j] for m in after]
            weights = [float(move != 0) for move in moves]
            if adagrad:
                weights = [m["squares"][i, j] - state["squares"][i, j] for m in after]
                expected = state["squares"][i, j] + sum(weights)
                assert new["squares"][i, j] == pytest.approx(expected, rel=1e-5)
            mean = (
                sum(w * m for w, m in zip(weights, moves, strict=True)) / sum(weights)
                if any(weights)
                else 0
            )
            expected = state["weights"][i, j] + mean
            assert new["weights"][i, j] == pytest.approx(expected, rel=1e-5)
    assert np.array_equal(new["weights"][1], state["weights"][1])  # a feature that nobody saw
