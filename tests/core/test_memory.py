"""The memory limit is the smallest known, and files are compared with what is available."""

import gzip

import pytest

from ltls.core import memory
from ltls.core.memory import fits_in_memory, memory_limit, needed_memory


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_CONTAINER_LIMITS", ())
    machine = memory_limit()
    missing, none, small = (tmp_path / name for name in ("missing", "none", "small"))
    none.write_text("max\n")
    small.write_text("12345678\n")
    for limits, expected in [((missing, none), machine), ((missing, none, small), 12345678)]:
        monkeypatch.setattr(memory, "_CONTAINER_LIMITS", limits)
        assert memory_limit() == expected


@pytest.mark.parametrize(
    ("size", "limit", "fits"), [(500, 1000, True), (501, 1000, False), (10**6, None, True)]
)
def test_a_file_may_take_half_of_the_memory(tmp_path, monkeypatch, size, limit, fits):
    monkeypatch.setattr(memory, "memory_limit", lambda: limit)
    path = tmp_path / "rows"
    path.write_bytes(b"1" * size)
    assert fits_in_memory(needed_memory([path])) == fits


def test_a_compressed_file_counts_several_times(tmp_path, monkeypatch):
    path = tmp_path / "rows"
    path.write_bytes(gzip.compress(b"some rows"))
    size = path.stat().st_size
    for limit, fits in [(2 * size, False), (20 * size, True)]:
        monkeypatch.setattr(memory, "memory_limit", lambda limit=limit: limit)
        assert fits_in_memory(needed_memory([path])) == fits


def test_what_is_no_file_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: 1)
    assert fits_in_memory(needed_memory(["-", tmp_path]))


def test_several_files_and_the_memory_per_byte_add_up(tmp_path):
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_bytes(b"1" * 100)
    assert needed_memory(paths, 50) == 10_000
