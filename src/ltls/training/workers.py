"""Who runs the work of training, if it is not this process or its CPUs."""

from __future__ import annotations

from typing import Protocol

from scipy.sparse import csr_array

from ..core.arrays import Ints
from ..parts.label_matrix import LabelTrainer
from ..parts.label_weights import LabelWeights
from .data import Source
from .progress import EpochStats
from .trellis_training import TrellisTraining


class Workers(Protocol):
    """Processes or devices that train trellises, clusters of labels, and vectors of labels."""

    def run_epoch(self, training: TrellisTraining, source: Source, count_hits: bool) -> EpochStats:
        """Train all trellises on all rows of a source, in place, and advance its generator."""

    def train_clusters(
        self,
        given: LabelWeights,
        source: Source,
        clusters: list[tuple[Ints, Ints]],
        counts: Ints,
        row_length: float,
        without_held_out: bool,
    ) -> list[tuple[csr_array, csr_array | None]]:
        """Train label weights, as `ltls.parts.label_weights.train_clusters` does.

        `counts` are the rows of every label; `without_held_out` says never to train on the rows
        that are held out.
        """

    def label_trainer(self, trainer: LabelTrainer) -> LabelTrainer:
        """Return who trains the vectors of labels; the given trainer is this process."""
