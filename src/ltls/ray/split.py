"""How the workers of a cluster share trellises and rows.

The workers are G groups of P. A group trains some of the trellises, each of its workers on a shard
of the rows. Groups are independent, but the larger group is the slower one; shards are equal, but
average their weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from .averaging import average_cost, averages_per_epoch


@dataclass(frozen=True)
class Split:
    """`groups` of trellises, each with `shards` of the rows."""

    groups: int
    shards: int

    @classmethod
    def of(cls, how: str, n_workers: int, n_trellises: int, nnz: int, n_features: int) -> Split:
        """Return the split of a name: rows, trellises, or auto, which takes the least time.

        `nnz` are the non-zeros of all rows.
        """
        most = min(n_workers, n_trellises)
        choices = {"rows": [1], "trellises": [most], "auto": range(most, 0, -1)}
        if how not in choices:
            raise ValueError(f'split must be "auto", "rows" or "trellises", got {how!r}')
        splits = (
            cls(groups, 1 if how == "trellises" else n_workers // groups) for groups in choices[how]
        )
        # Of equal ones the first: it sends the smallest messages.
        return min(splits, key=lambda each: round(each.epoch_cost(n_trellises, nnz, n_features), 9))

    def trellises(self, group: int, n_trellises: int) -> slice:
        """Return the trellises of a group."""
        first, last = (number * n_trellises // self.groups for number in (group, group + 1))
        return slice(first, last)

    def largest_group(self, n_trellises: int) -> int:
        """Return how many trellises the largest group has."""
        return -(-n_trellises // self.groups)

    def averages(self, nnz: int, n_features: int) -> int:
        """Return how often a group averages its weights in an epoch."""
        return averages_per_epoch(nnz, n_features, self.shards) if self.shards > 1 else 0

    def epoch_cost(self, n_trellises: int, nnz: int, n_features: int) -> float:
        """Return the time of an epoch, where one worker alone needs 1."""
        averaging = self.averages(nnz, n_features) * average_cost(nnz, n_features)
        return self.largest_group(n_trellises) / n_trellises * (1 / self.shards + averaging)
