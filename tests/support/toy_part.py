"""A part of another package, which `toy_part-1.0.dist-info` announces as such packages do.

It says of every label how rare it is, whatever the row, times a setting.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ltls.core.declarations import Array
from ltls.core.settings import Number, Settings, setting, settings
from ltls.parts.base import PartExplanation


@settings
class Toy(Settings):
    """How much the toy says."""

    strength: float = setting(Number(0), default=1.0, help="What its constants are multiplied by.")


@dataclass(frozen=True, eq=False)
class ToyPart:
    """A constant for every label."""

    name: ClassVar[str] = "toy"
    settings: ClassVar[type[Settings]] = Toy

    constants: Any
    strength: float

    @classmethod
    def fit(cls, given, context):
        return cls(-np.log1p(context.counts).astype(np.float32), given.strength)

    def finish(self, context):
        return replace(self, constants=-np.log1p(context.counts).astype(np.float32))

    def score(self, rows, ids, n_jobs):
        return np.float32(self.strength) * self.constants[ids]

    def candidates(self, rows, n, n_jobs):
        return np.tile(np.argsort(-self.constants, kind="stable")[:n], (len(rows), 1))

    def explain(self, rows, label):
        score = float(self.strength * self.constants[label])
        none = np.empty(0, np.int64)
        return PartExplanation(self.name, none, np.empty(0), score, score, "how rare the label is")

    def grow(self, n_labels, n_new_columns):
        more = (0, n_labels - len(self.constants))
        return replace(self, constants=np.pad(self.constants, more))

    def learn(self, context):
        return self.finish(context)

    def state(self):
        return {"strength": self.strength}, {"constants": self.constants}

    @classmethod
    def from_state(cls, section, sizes, memory):
        declared = {"constants": Array("f4", ("n_labels",), high=0)}
        tensors = section.tensors(declared, {"n_labels": sizes.n_labels})
        return cls(np.array(tensors["constants"]), section.number("strength", 0))

    def describe(self):
        return {"toy_strength": self.strength}
