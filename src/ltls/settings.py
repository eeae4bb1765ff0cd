"""Groups of settings: the front ends, and the parts of a model."""

from .features.front_ends import Numbers, Table, Text
from .parts.calibration import Calibration
from .parts.label_matrix import LabelMatrix
from .parts.label_weights import LabelWeights
from .parts.memory import Memory
from .parts.neighbours import Neighbours
from .parts.propensity import Propensity
from .parts.prototypes import Prototypes
from .parts.trellises import Trellises
from .parts.views import Views

__all__ = [
    "Calibration",
    "LabelMatrix",
    "LabelWeights",
    "Memory",
    "Neighbours",
    "Numbers",
    "Propensity",
    "Prototypes",
    "Table",
    "Text",
    "Trellises",
    "Views",
]
