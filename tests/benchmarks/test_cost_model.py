"""The cost model of a cluster: what it predicts in cases that can be computed by hand."""

from dataclasses import replace

import pytest

from benchmarks.cost_model import GBITS, WORKERS, Measured

MEASURED = Measured(
    epochs=2,
    trellises=4,
    features=1000,
    stride=100,
    epoch_s=64.0,
    labels_s=30.0,
    reading_s=2.0,
    driver_s=5.0,
    memory=1e9,
    start_s=0.5,
    nnz=2_500_000,
    row_bytes=0,
)


def test_one_worker_needs_no_network():
    parts = MEASURED.seconds(1, 10)
    assert parts["computing"] == 2 * 64 + 30 + 2
    assert parts["network"] == 0
    # Its weights are fetched after every epoch.
    assert parts["the caller"] == pytest.approx(5 + 2 * 3_200_000 / 1.25e9)


def test_messages():
    """Weights and squares of 4 bytes, for all edges of a group's trellises."""
    assert MEASURED.message_bytes() == 1000 * 4 * 100 * 8
    assert MEASURED.message_bytes(4) == 1000 * 100 * 8
    # Four groups of 2: in each of 8 rounds, half of the message goes out and half comes in.
    parts = MEASURED.seconds(8, 8)
    assert parts["computing"] == pytest.approx((2 * 64 + 32) / 8)
    assert parts["network"] == pytest.approx(2 * 8 * 800_000 / 1e9)
    assert parts["starting tasks"] == 2 * 8 * 0.5


def test_averages_are_rare_where_they_are_dear():
    """4 · 36 non-zeros per feature and shard between two averages, if there are as many."""
    assert MEASURED.rounds(1) == 1
    assert MEASURED.rounds(2) == 8
    assert replace(MEASURED, nnz=2 * 144 * 1000 * 3).rounds(2) == 3
    assert replace(MEASURED, nnz=10).rounds(2) == 1
    assert replace(MEASURED, nnz=10**9).rounds(64) == 4


def test_the_path_of_the_largest_group():
    """Three trellises on two workers: the slower one has two of them, and nothing is averaged."""
    three = replace(MEASURED, trellises=3, nnz=1000)
    assert three.seconds(2, 10)["computing"] == pytest.approx(2 * 64 * 2 / 3 + 32 / 2)
    copied = 2 * three.message_bytes(2) / 1e9
    assert three.critical_seconds(2, 1) == pytest.approx(5 + 2 * (64 * 2 / 3 + copied) + 16)


def test_plan():
    plan = MEASURED.plan()
    assert [(step["workers"], step["gbit"]) for step in plan] == [
        (n, gbit) for n in WORKERS for gbit in GBITS
    ]
    assert plan[2]["efficiency"] == 1
    assert plan[0]["bottleneck"] == "computing"
    for n_workers in WORKERS:
        seconds = [step["seconds"] for step in plan if step["workers"] == n_workers]
        assert seconds == sorted(seconds, reverse=True)  # a faster network is not slower
