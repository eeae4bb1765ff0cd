"""The front ends, which turn the inputs of users into features.

A front end is a group of settings (`Numbers`, `Text`, `Table`) whose `fit` returns a fitted object
with `matrix(X)`, the features of inputs; `sparse`, whether there are always sparse ones;
`feature_names`; `places`, the names and positions of the features in every input; `read`, which
reads inputs from JSON; `empty`, an input without features; `arrays`, the names and types of the
arrays that inputs consist of; `columns`, those of a table or None; and `state` for files.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from .numbers import NumberInputs, Numbers
from .table import Table, TableVectorizer
from .text import Text, Vectorizer

__all__ = ["FRONT_ENDS", "FrontEnd", "FrontEndSettings", "Numbers", "Table", "Text"]

FrontEndSettings: TypeAlias = Numbers | Text | Table
FrontEnd: TypeAlias = NumberInputs | Vectorizer | TableVectorizer

FRONT_ENDS: dict[str, Any] = {
    each.name: each for each in (NumberInputs, Vectorizer, TableVectorizer)
}
