"""Labels of a model as they are written in files and at the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.streams import open_input
from .output import escaped

if TYPE_CHECKING:
    from ..model.labels import Labels


class WrittenLabels:
    """Finds labels of a model as `predict` writes them: the number 3 is written as 3."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._by_text = {escaped(label): label for label in labels.values}

    def find(self, written: Any, unknown: Any = None) -> Any:
        """Return the label written like this, `unknown` if the model has none."""
        if written in self._labels:
            return written
        return self._by_text.get(str(written), self._by_text.get(escaped(written), unknown))


def labels_in(path: Path, labels: Labels) -> list[Any]:
    """Return the labels in the file of --among, one per line."""
    known = WrittenLabels(labels)
    with open_input(path) as stream:
        content = stream.read()
    try:
        lines = content.decode("utf-8-sig").split("\n")  # labels may have other line separators
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 (--among): {error.reason}") from None
    names = [name for line in lines if (name := line.removesuffix("\r"))]
    if not names:
        raise ValueError(f"{path}: the file has no labels (--among)")
    found = [known.find(name) for name in names]
    if None in found:
        name = names[found.index(None)]
        raise ValueError(f"{path}: the model has no label {name!r} (--among)")
    return found
