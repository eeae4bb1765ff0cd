"""What is stored of a test campaign."""

import pytest

from benchmarks import machine, reliability, tables


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Return what is stored, in a folder of its own."""
    read, write = machine.read, machine.write
    monkeypatch.setattr(machine, "read", lambda name: read(name, tmp_path))
    monkeypatch.setattr(machine, "write", lambda name, result: write(name, result, tmp_path))
    return lambda: machine.read(reliability.NAME)


def test_counts_add_up_and_name_the_last_commit(stored, monkeypatch):
    slowest = "slowest_health_check_s"
    for commit, measured in [
        ("one", {"tried": 10, "seconds": 1800, "health_checks": 7, slowest: 0.5}),
        ("two", {"tried": 5, "seconds": 1800, "health_checks": 2000, slowest: 0.25}),
    ]:
        monkeypatch.setattr(machine, "commit", lambda commit=commit: commit)
        reliability.count("server", measured)
    monkeypatch.setattr(machine, "commit", lambda: "three")
    reliability.count("soak", {"tried": 1})
    assert reliability.counted("server") == 15
    of = stored()["counts"]["server"]
    assert (of["commit"], of["seconds"], of[slowest]) == ("two", 3600, 0.5)
    lines = tables.reliability(stored())
    (row,) = (line for line in lines if "hostile clients |" in line)
    assert f"| 15 | {of['date']}, two |" in row
    assert (
        "In 60 minutes beside hostile clients, the slowest of 2,007 health checks took 0.50 s."
        in lines
    )
