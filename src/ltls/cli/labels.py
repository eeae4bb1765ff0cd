"""The labels of a model by the texts that stand for them in files and at the terminal."""

from __future__ import annotations

from typing import Any

from ..model.labels import Labels
from .output import escaped


class WrittenLabels:
    """Finds labels that are written as `predict` writes them: 3 is written as the text 3.

    Parameters
    ----------
    labels : Labels
        Those of a model.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._by_text = {escaped(label): label for label in labels.values}

    def find(self, written: Any) -> Any:
        """Return the label that is meant, None if the model has no such label."""
        return written if written in self._labels else self._by_text.get(escaped(written))
