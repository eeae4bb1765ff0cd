"""The memory for arrays is the smallest limit known; rounding to int8."""

import numpy as np
import pytest

from ltls.core import arrays
from ltls.core.arrays import as_int8, available_memory, memory_limit


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "_CONTAINER_LIMITS", ())
    machine = memory_limit()
    missing, none, small = (tmp_path / name for name in ("missing", "none", "small"))
    none.write_text("max\n")
    small.write_text("12345678\n")
    for limits, expected in [((missing, none), machine), ((missing, none, small), 12345678)]:
        monkeypatch.setattr(arrays, "_CONTAINER_LIMITS", limits)
        assert memory_limit() == expected


def test_available_memory_is_within_the_limit():
    available, limit = available_memory(), memory_limit()
    if available is None or limit is None:
        pytest.skip("the system does not say how much memory there is")
    assert 0 < available <= limit


@pytest.mark.parametrize("largest", [5e-45, 1e-40, 1e-38, 1e-30, 1, 3e38])
def test_numbers_of_any_size_are_rounded_to_int8(largest):
    values = np.array([largest, -largest, largest / 3, 0], np.float32)
    rounded, scales = as_int8(values, np.zeros(4, np.int64), 1)
    error = np.abs(values.astype(np.float64) - rounded * scales.astype(np.float64))
    assert (error <= scales * 0.5001).all()
    assert scales[0] <= max(largest / 126, 2e-38)
