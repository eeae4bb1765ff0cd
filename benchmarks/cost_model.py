"""What a training step costs on a cluster: a model of few measured numbers.

W workers are G groups of P (see `ltls.ray.training`). One epoch takes

    work / W                                     of processor time, shared by all workers
    rounds · 2 (P − 1)/P · bytes / network       to exchange changes and new weights in a group
    rounds · (bytes / memory + start)            to copy and average weights, and to start tasks
    bytes · G / network                          for the caller to fetch the weights

and the caller needs the same processor time for any W, to cluster labels, to evaluate held-out
rows and to merge statistics,

where bytes = features · trellises / G · padded edges · 8: weights and AdaGrad's accumulators. The
number of labels counts only through the edges, O(log labels). Label weights cost their work / W,
and rows once more over the network.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ltls.ray.split import Split

WORKERS = (1, 2, 4, 8, 64, 512)
GBITS = (10, 25, 100)


@dataclass(frozen=True)
class Measured:
    """What was measured with one worker, and in one round of two.

    Parameters
    ----------
    epochs, trellises, features, stride : int
        Of the model; stride is the padded number of edges.
    epoch_s, labels_s, reading_s, driver_s : float
        Processor seconds of an epoch of all trellises, of label weights, of reading, and of the
        thread that calls `fit`.
    memory : float
        Bytes per second at which weights are copied and averaged.
    start_s : float
        Seconds to start a round of tasks.
    nnz, row_bytes : int
        Non-zeros and bytes of all rows.
    """

    epochs: int
    trellises: int
    features: int
    stride: int
    epoch_s: float
    labels_s: float
    reading_s: float
    driver_s: float
    memory: float
    start_s: float
    nnz: int
    row_bytes: int

    def message_bytes(self, groups: int = 1) -> int:
        """Return the largest message of a worker: all rows of its group's weights, and squares."""
        return self.features * Split(groups, 1).largest_group(self.trellises) * self.stride * 8

    def seconds(self, n_workers: int, gbit: float) -> dict[str, float]:
        """Return the seconds of a training by what they are spent on."""
        split = Split.of("auto", n_workers, self.trellises, self.nnz, self.features)
        groups, shards, rounds = split.groups, split.shards, self.rounds(split.shards)
        size, network = self.message_bytes(groups), gbit * 1e9 / 8
        exchanged = 2 * (shards - 1) / shards * size / network
        labels = (self.labels_s + self.reading_s) / n_workers
        moved = self.row_bytes / network if n_workers > 1 else 0.0
        return {
            "computing": self.epochs * self._slowest(split) + labels,
            "network": self.epochs * rounds * exchanged + moved,
            "copying weights": self.epochs * rounds * 2 * size / self.memory,
            "starting tasks": self.epochs * rounds * self.start_s,
            "the caller": self.driver_s + self.epochs * size * groups / network,
        }

    def processor_seconds(self, groups: int, shards: int) -> float:
        """Return the processor seconds of all training tasks together, wherever they run."""
        copied = 2 * groups * shards * self.message_bytes(groups) / self.memory
        return self.epochs * (self.epoch_s + self.rounds(shards) * copied)

    def critical_seconds(self, groups: int, shards: int) -> float:
        """Return the processor seconds of the longest chain of tasks, without a network."""
        split = Split(groups, shards)
        copied = self.rounds(shards) * 2 * self.message_bytes(groups) / self.memory
        others = (self.labels_s + self.reading_s) / (groups * shards)
        return self.driver_s + self.epochs * (self._slowest(split) + copied) + others

    def _slowest(self, split: Split) -> float:
        """Return the processor seconds of an epoch for a worker of the largest group."""
        share = split.largest_group(self.trellises) / self.trellises
        return self.epoch_s * share / split.shards

    def rounds(self, shards: int) -> int:
        """Return the rounds of an epoch."""
        return max(Split(1, shards).averages(self.nnz, self.features), 1)

    def plan(self) -> list[dict[str, object]]:
        """Return seconds, efficiency and bottleneck for every number of workers and network."""
        alone = sum(self.seconds(1, GBITS[-1]).values())
        found = []
        for n_workers in WORKERS:
            for gbit in GBITS:
                parts = self.seconds(n_workers, gbit)
                total = sum(parts.values())
                found.append(
                    {
                        "workers": n_workers,
                        "gbit": gbit,
                        "seconds": total,
                        "efficiency": alone / (n_workers * total),
                        "bottleneck": max(parts, key=lambda part: parts[part]),
                    }
                )
        return found

    def as_dict(self) -> dict[str, float]:
        """Return the numbers, to store them."""
        return asdict(self)
