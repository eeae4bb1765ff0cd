"""How workers share trellises and rows, against all ways to share them."""

import pytest

pytest.importorskip("ray", reason="needs ray: run make test-all")

from ltls.ray.averaging import average_cost
from ltls.ray.split import Split


def test_names():
    assert Split.of("rows", 6, 3, 100, 10) == Split(1, 6)
    assert Split.of("trellises", 6, 3, 100, 10) == Split(3, 1)
    assert Split.of("trellises", 2, 3, 100, 10) == Split(2, 1)
    assert Split.of("auto", 1, 3, 0, 0) == Split(1, 1)
    with pytest.raises(ValueError, match=r"trellises., got 'labels'"):
        Split.of("labels", 2, 3, 100, 10)


def test_groups_have_all_trellises_once():
    for n_trellises in range(1, 8):
        for groups in range(1, n_trellises + 1):
            split = Split(groups, 1)
            slices = [split.trellises(group, n_trellises) for group in range(groups)]
            numbers = [i for each in slices for i in range(each.start, each.stop)]
            assert numbers == list(range(n_trellises))
            sizes = [each.stop - each.start for each in slices]
            assert split.largest_group(n_trellises) == max(sizes)


def test_few_rows_are_not_averaged():
    """An average of 36 non-zeros per feature costs more than an uneven split of 3 trellises."""
    assert Split.of("auto", 2, 3, 100 * 1000, 1000) == Split(2, 1)
    assert Split.of("auto", 2, 3, 10**9, 1000) == Split(1, 2)
    assert Split.of("auto", 4, 4, 10**9, 1000) == Split(4, 1)
    assert Split.of("auto", 8, 4, 10**9, 1000) == Split(4, 2)


@pytest.mark.parametrize("n_workers", [1, 2, 3, 5, 8, 64])
@pytest.mark.parametrize("n_trellises", [1, 3, 5])
@pytest.mark.parametrize("values_per_feature", [1, 50, 500, 50_000])
def test_no_other_split_takes_less_time(n_workers, n_trellises, values_per_feature):
    n_features = 1000
    nnz = values_per_feature * n_features
    chosen = Split.of("auto", n_workers, n_trellises, nnz, n_features)
    assert chosen.groups * chosen.shards <= n_workers

    def seconds(groups, shards):
        largest = max(len(range(i, n_trellises, groups)) for i in range(groups))
        averages = Split(groups, shards).averages(nnz, n_features) if shards > 1 else 0
        trained = largest / n_trellises / shards
        return trained + averages * average_cost(nnz, n_features) * largest / n_trellises

    best = min(
        seconds(groups, n_workers // groups) for groups in range(1, min(n_workers, n_trellises) + 1)
    )
    assert seconds(chosen.groups, chosen.shards) == pytest.approx(best)
